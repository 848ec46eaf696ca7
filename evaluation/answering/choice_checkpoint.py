"""Fine-tuned models of multiple choice as answerers.

Shape letters: B rows, C choices, Q texts, T tokens, D hidden.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from torch import Tensor
from tqdm.auto import tqdm

from interventune.data_modules.batching.choice_set import ChoiceEncoding, ChoiceSet
from interventune.data_modules.encoding.windows import sorted_batches
from interventune.data_modules.schema.questions import ChoiceQuestion
from interventune.evaluation.answering.checkpoint import Checkpoint
from interventune.evaluation.answering.work import kept, shared
from interventune.models.heads.choice import ChoiceModel, masked_mean


class ChoiceCheckpoint(Checkpoint):
    """A model of multiple choice; from a folder or a Hub name, the encoder with a head of random
    weights. Batch sizes count choices.
    """

    kind = ChoiceModel
    encoding_class = ChoiceEncoding

    def choice_logits(
        self, questions: Sequence[ChoiceQuestion], what: str = "choosing"
    ) -> list[np.ndarray]:
        return [
            np.array(logit_C, dtype=np.float32) for logit_C in self.logits(questions, what=what)
        ]

    @kept
    @torch.inference_mode()
    def logits(self, questions: Sequence[ChoiceQuestion], *, what: str) -> Iterable[list[float]]:
        """Return the logits of every question's choices as plain numbers."""
        data = ChoiceSet(questions, self.tokenizer, self.encoding, self.model.architecture)
        logits: dict[int, list[float]] = {}
        for index in tqdm(data.batches(self.batch_size), desc=what, unit="batch", disable=None):
            with self.autocast():
                logits_BC = self.model(self.moved(data[index].inputs))
            self.require_finite(logits_BC.abs().flatten())
            logits.update(zip(index, logits_BC.float().tolist(), strict=True))
        return [logits[i] for i in range(len(questions))]

    def embeddings(self, texts: Sequence[str], what: str = "embedding texts") -> np.ndarray:
        return self.vectors(texts, what).numpy()

    @shared
    @torch.inference_mode()
    def vectors(self, texts: Sequence[str], what: str) -> Tensor:
        """Return the mean of the encoder's last hidden states over the tokens of each text, (Q, D)
        float32, scaled to length 1.
        """
        vectors_QD = torch.zeros(len(texts), self.model.config.hidden_size)
        options = {"max_length": self.encoding.max_length, "truncation": True, "padding": True}
        batches = sorted_batches([len(text) for text in texts], self.batch_size)
        for index in tqdm(batches, desc=what, unit="batch", disable=None):
            rows = self.tokenizer([texts[i] for i in index], **options, return_tensors="pt")
            inputs = self.moved(dict(rows))
            with self.autocast():
                hidden_QTD = self.model.encode(inputs)
            self.require_finite(hidden_QTD.abs().amax(-1)[inputs["attention_mask"] != 0])
            pooled_QD = masked_mean(hidden_QTD, inputs["attention_mask"])
            vectors_QD[index] = torch.nn.functional.normalize(pooled_QD, dim=-1).float().cpu()
        return vectors_QD
