"""Checkpoints of multiple choice as answerers, and encoders that embed texts.

Shape letters: C choices, Q texts, T tokens, D hidden.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from tqdm.auto import tqdm

from data_modules.batching.choice_set import ChoiceSet
from data_modules.batching.sets import sorted_batches
from data_modules.encoding.choices import ChoiceEncoding
from data_modules.schema import ChoiceQuestion
from evaluation.answering.checkpoint import Checkpoint
from evaluation.answering.interface import Ability
from evaluation.processes import shared, shared_rows
from models.heads.choice import ChoiceModel, masked_mean


class ChoiceCheckpoint(Checkpoint):
    """A model of multiple choice; of a folder or a Hub name the encoder under a head of random weights.

    Args:
        path: a `.ckpt` of the experiment multiple_choice, a Hugging Face folder, or a Hub name.
        compute: where and how it runs; a batch counts choices.

    Raises:
        ValueError: the checkpoint cannot be used, or there is no such device.
    """

    can: frozenset[Ability] = frozenset({"choices", "embeddings"})
    kind = ChoiceModel
    encoding_class = ChoiceEncoding

    @cached_property
    def identity(self) -> dict[str, Any]:
        """Weights, tokenizer, encoding, pooling and dtype."""
        return {**super().identity, "pooling": self.model.pooling}

    @shared
    @torch.inference_mode()
    def choice_logits(self, questions: Sequence[ChoiceQuestion], what: str = "choosing") -> list[np.ndarray]:
        """The logits (C,) of every question's choices, float32, in the order of the questions, which may have
        different numbers of choices."""
        data = ChoiceSet(questions, self.tokenizer, self.encoding, self.model.architecture)
        logits: list[np.ndarray] = [np.empty(0, dtype=np.float32)] * len(questions)
        for index in tqdm(data.batches(self.batch_size), desc=what, unit="batch", disable=None):
            with self.autocast():
                logits_BC = self.model(self.moved(data[index].inputs))
            for i, logits_C in zip(index, logits_BC.float().cpu().numpy(), strict=True):
                logits[i] = logits_C
        return logits

    @shared_rows
    @torch.inference_mode()
    def embeddings(self, texts: Sequence[str], what: str = "embedding texts") -> np.ndarray:
        """One vector of length 1 for every text, (Q, D) float32: the mean of the encoder's last hidden states
        over its tokens."""
        vectors_QD = np.zeros((len(texts), self.model.config.hidden_size), dtype=np.float32)
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
            vectors_QD[index] = torch.nn.functional.normalize(pooled_QD, dim=-1).cpu().numpy()
        return vectors_QD
