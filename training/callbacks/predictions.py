"""`interventune train predict`: the model's predictions, in common file formats.

Answers are written to `predictions/<set>.json` as {id: text}, the format of SQuAD's official
script, in which "" says unknown, so questions that a decoder did not answer are left out; groups to
`predictions/<set>.jsonl` with their scores, which `interventune evaluate bias --predictions` reads;
choices as a list of {id, label, choice, logits}.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch.distributed as dist

from interventune.data_modules.batching.group_set import GroupSet
from interventune.data_modules.batching.pair_set import PairSet
from interventune.data_modules.batching.sets import QASet
from interventune.data_modules.schema.groups import ScoredGroup
from interventune.data_modules.schema.spans import write_records
from interventune.storage.documents import write_text


class PredictionWriter(pl.Callback):
    """Collects predictions by index, from all processes, and writes one file per set."""

    def __init__(self) -> None:
        self.predictions: list[dict[int, Any]] = []

    def on_predict_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Make one collection per set; ValueError for questions whose ids are not unique in the
        file.
        """
        for name, data in trainer.datamodule.eval_sets["predict"]:
            ids = Counter(data.column("id") if isinstance(data, QASet) else ())
            if several := [id for id, count in ids.items() if count > 1]:
                raise ValueError(
                    f"data.predict_qa: {name} asks several questions of id {several[0]!r}"
                )
        self.predictions = [{} for _ in trainer.datamodule.eval_sets["predict"]]

    def on_predict_batch_end(
        self,
        trainer: Any,
        pl_module: Any,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Add one batch: texts of answers, or boundary probabilities of subjects."""
        data = trainer.datamodule.eval_sets["predict"][dataloader_idx].data
        predictions = self.predictions[dataloader_idx]
        if isinstance(data, QASet):
            answers = pl_module.decode(data, batch, outputs)
            predictions |= {one.example: one.text for one in answers if not one.failure}
        elif isinstance(data, GroupSet):
            p_BVSE = outputs["log_prob_BVSE"].double().exp()
            p_BVSE = p_BVSE.expand(
                *p_BVSE.shape[:-1], 2
            )  # a decoder's S is used for both boundaries
            predictions |= zip(batch.group_B.tolist(), p_BVSE.tolist(), strict=True)
        elif not isinstance(data, PairSet):
            predictions |= zip(batch.example_B.tolist(), outputs["logits_BN"].tolist(), strict=True)

    def on_predict_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        folder, parts = trainer.log_dir, [self.predictions]
        if dist.is_available() and dist.is_initialized():
            parts = [[] for _ in range(dist.get_world_size())]
            dist.all_gather_object(parts, self.predictions)
        if folder is None or not trainer.is_global_zero:
            return
        for i, (name, data) in enumerate(trainer.datamodule.eval_sets["predict"]):
            merged = {index: value for part in parts for index, value in part[i].items()}
            if not isinstance(data, PairSet):
                write_predictions(
                    data, dict(sorted(merged.items())), Path(folder) / "predictions" / name
                )


def write_predictions(data: Any, predictions: dict[int, Any], path: Path) -> None:
    """Write the predictions of one set, keyed by index in the set, to one file; `path` has no
    suffix.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(data, GroupSet):
        scored = (
            ScoredGroup(data.groups[i], base_scores=scores) for i, scores in predictions.items()
        )
        write_records(scored, path.with_name(f"{path.name}.jsonl"))
        return
    content: Any
    if isinstance(data, QASet):
        questions = data.questions(list(predictions))
        content = {
            question.id: predictions[i] for i, question in zip(predictions, questions, strict=True)
        }
    else:
        chosen = ((data.questions[i], logits) for i, logits in predictions.items())
        content = [
            {
                "id": asked.id,
                "label": asked.label,
                "choice": logits.index(max(logits)),
                "logits": logits,
            }
            for asked, logits in chosen
        ]
    write_text(
        path.with_name(f"{path.name}.json"),
        json.dumps(content, indent=1, ensure_ascii=False) + "\n",
    )
