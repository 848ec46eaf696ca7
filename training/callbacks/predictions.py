"""`interventune train predict`: what the model says, as files that anything can read.

Answers go to `predictions/<set>.json` as {id: text}, the format of SQuAD's official script; groups to
`predictions/<set>.jsonl` with their scores, which `interventune evaluate bias --predictions` reads; choices
as a list of {id, label, choice, logits}.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch.distributed as dist

from data_modules.batching.data_module import EvalSet
from data_modules.batching.group_set import GroupSet
from data_modules.batching.sets import PairSet, QASet
from data_modules.records import write_records
from data_modules.schema import ScoredGroup
from storage.files import write_text


class PredictionWriter(pl.Callback):
    """Collects predictions by index, from all processes, and writes one file per set."""

    def __init__(self) -> None:
        self.predictions: list[dict[int, Any]] = []

    def on_predict_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """One collection per set; ValueError for questions that their file could not tell apart."""
        for evaluated in trainer.datamodule.eval_sets["predict"]:
            if isinstance(data := evaluated.data, QASet):
                ids = Counter(data.column("id"))
                if several := [name for name, count in ids.items() if count > 1]:
                    raise ValueError(
                        f"data.predict_qa: {evaluated.name} asks several questions of the id {several[0]!r}; "
                        "predictions are written by id"
                    )
        self.predictions = [{} for _ in trainer.datamodule.eval_sets["predict"]]

    def on_predict_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Take in one batch: texts of answers, or boundary probabilities of subjects."""
        data = trainer.datamodule.eval_sets["predict"][dataloader_idx].data
        predictions = self.predictions[dataloader_idx]
        if isinstance(data, QASet):
            predictions |= {answer.example: answer.text for answer in pl_module.decode(data, batch, outputs)}
        elif isinstance(data, GroupSet):
            p_BVSE = outputs["log_prob_BVSE"].double().exp()
            p_BVSE = p_BVSE.expand(*p_BVSE.shape[:-1], 2)  # a decoder's S stands at both boundaries
            predictions |= zip(batch.group_B.tolist(), p_BVSE.tolist(), strict=True)
        elif not isinstance(data, PairSet):
            predictions |= zip(batch.example_B.tolist(), outputs["logits_BN"].tolist(), strict=True)

    def on_predict_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Write the files, on one process."""
        folder, parts = trainer.log_dir, [self.predictions]
        if dist.is_available() and dist.is_initialized():
            parts = [[] for _ in range(dist.get_world_size())]
            dist.all_gather_object(parts, self.predictions)
        if folder is None or not trainer.is_global_zero:
            return
        for i, evaluated in enumerate(trainer.datamodule.eval_sets["predict"]):
            if isinstance(evaluated.data, PairSet):
                continue
            merged = {index: value for part in parts for index, value in part[i].items()}
            write_predictions(evaluated, merged, Path(folder) / "predictions" / f"{evaluated.name}.json")


def write_predictions(evaluated: EvalSet, predictions: dict[int, Any], path: Path) -> None:
    """Predictions of one set, by index in the set, to one file."""
    data, indices = evaluated.data, sorted(predictions)
    content: Any
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(data, GroupSet):
        scored = (ScoredGroup(data.groups[i], base_scores=predictions[i]) for i in indices)
        write_records(scored, path.with_suffix(".jsonl"))
        return
    if isinstance(data, QASet):
        questions = zip(indices, data.questions(indices), strict=True)
        content = {question.id: predictions[i] for i, question in questions}
    else:
        assert not isinstance(data, PairSet)
        content = [
            {
                "id": data.questions[i].id,
                "label": data.questions[i].label,
                "choice": predictions[i].index(max(predictions[i])),
                "logits": predictions[i],
            }
            for i in indices
        ]
    write_text(path, json.dumps(content, indent=1, ensure_ascii=False) + "\n")
