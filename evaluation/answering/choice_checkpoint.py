"""Checkpoints of multiple choice as answerers, and encoders that embed texts.

Shape letters: C choices, Q texts, T tokens, D hidden.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from torch import Tensor
from tqdm.auto import tqdm

from data_modules.batching.choice_set import ChoiceSet
from data_modules.batching.sets import sorted_batches
from data_modules.encoding.choices import ChoiceEncoding
from data_modules.schema import ChoiceQuestion
from evaluation.answering.checkpoint import Checkpoint
from evaluation.answering.interface import Ability
from evaluation.processes import kept, shared
from models.heads.choice import ChoiceModel, masked_mean


class ChoiceCheckpoint(Checkpoint):
    """A model of multiple choice; of a folder or a Hub name the encoder under a head of random weights. A
    batch counts choices."""

    can: frozenset[Ability] = frozenset({"choices", "embeddings"})
    kind = ChoiceModel
    encoding_class = ChoiceEncoding

    def choice_logits(self, questions: Sequence[ChoiceQuestion], what: str = "choosing") -> list[np.ndarray]:
        """The logits (C,) of every question's choices, float32, in the order of the questions, which may have
        different numbers of choices."""
        return [np.array(logit_C, dtype=np.float32) for logit_C in self.logits(questions, what=what)]

    @kept
    @torch.inference_mode()
    def logits(self, questions: Sequence[ChoiceQuestion], *, what: str) -> Iterable[list[float]]:
        """The same as plain numbers."""
        data = ChoiceSet(questions, self.tokenizer, self.encoding, self.model.architecture)
        logits: dict[int, list[float]] = {}
        for index in tqdm(data.batches(self.batch_size), desc=what, unit="batch", disable=None):
            with self.autocast():
                logits_BC = self.model(self.moved(data[index].inputs))
            self.require_finite(logits_BC.abs().flatten())
            logits.update(zip(index, logits_BC.float().tolist(), strict=True))
        return [logits[i] for i in range(len(questions))]

    @shared
    @torch.inference_mode()
    def vectors(self, texts: Sequence[str], what: str) -> Tensor:
        """The same as `embeddings`."""
        vectors_QD = torch.zeros(len(texts), self.model.config.hidden_size)
        batches = sorted_batches([len(text) for text in texts], self.batch_size)
        for index in tqdm(batches, desc=what, unit="batch", disable=None):
            encoded = self.tokenizer(
                [texts[i] for i in index],
                truncation=True,
                max_length=self.encoding.max_length,
                padding=True,
                return_token_type_ids=True,
                return_tensors="pt",
            )
            inputs = self.moved(dict(encoded))
            with self.autocast():
                hidden_QTD = self.model.encode(inputs)
            self.require_finite(hidden_QTD.abs().amax(-1)[inputs["attention_mask"] != 0])
            pooled_QD = masked_mean(hidden_QTD, inputs["attention_mask"])
            vectors_QD[index] = torch.nn.functional.normalize(pooled_QD, dim=-1).float().cpu()
        return vectors_QD

    def embeddings(self, texts: Sequence[str], what: str = "embedding texts") -> np.ndarray:
        """One vector of length 1 for every text, (Q, D) float32: the mean of the encoder's last hidden states
        over its tokens."""
        return self.vectors(texts, what).numpy()
