"""A trained model of multiple choice, ready to be asked: loading, batching and device in one place.

    predictor = ChoicePredictor.of("runs/.../best.ckpt", args)
    logits = predictor.logits(examples, "original questions")

Shape letters: N choices of a question, Q texts, D hidden.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from typing import Any

import numpy as np
import torch
from tqdm.auto import tqdm
from transformers.utils.logging import disable_progress_bar

from data_modules.batching.samplers import sorted_batches
from data_modules.encoding.choices import ChoiceEncoding, ChoiceSet
from data_modules.encoding.tokenizers import load_tokenizer, tokenizer_id
from data_modules.schema import ChoiceQuestion
from evaluation.answering.predictor import pick_device, to_device
from models.checkpoint import fingerprint, load
from models.heads.choice import ChoiceModel, masked_mean


class ChoicePredictor:
    """A model of multiple choice with its own tokenizer and text encoding.

    Args:
        path: a `.ckpt` of `python -m training` (ChoiceModule); of a Hugging Face folder or a Hub name the
            encoder under a head of random weights.
        device: `auto`, or a device of torch.
        precision: `32` or `bf16`.
        batch_size: rows, that is choices, scored together.

    Raises:
        ValueError: the checkpoint cannot be used, or there is no such device.
    """

    def __init__(
        self, path: str, *, device: str = "auto", precision: str = "32", batch_size: int = 64
    ) -> None:
        if batch_size < 1:
            raise ValueError(f"--batch-size: at least 1, got {batch_size}")
        self.path, self.precision, self.batch_size = path, precision, batch_size
        self.device = pick_device(device)
        disable_progress_bar()  # of reading weights, a blink
        loaded = load(path, ChoiceModel)
        self.model = loaded.model.to(self.device)
        try:
            self.tokenizer = load_tokenizer(loaded.tokenizer, self.model.architecture)
            self.encoding = ChoiceEncoding(**(loaded.encoding or fitting_encoding(self.model.max_tokens)))
        except (TypeError, ValueError) as error:  # or options that this version does not know
            raise ValueError(f"{path}: {error}") from error
        words, rows = len(self.tokenizer), self.model.config.vocab_size
        if words > rows:
            raise ValueError(f"{path}: its tokenizer has {words} tokens, but its model {rows} embeddings")

    @classmethod
    def of(cls, path: str, args: argparse.Namespace) -> ChoicePredictor:
        """By the flags of `add_prediction_arguments`."""
        return cls(path, device=args.device, precision=args.precision, batch_size=args.batch_size)

    @cached_property
    def weights_id(self) -> str:
        """SHA-256 over all weights: names this model in keys of finished work."""
        return fingerprint(self.model)

    @property
    def settings(self) -> dict[str, Any]:
        """What else numbers depend on, as plain values: for keys of finished work, and for reports."""
        return {
            "pooling": self.model.pooling,
            "max_length": self.encoding.max_length,
            "padding": self.encoding.padding,
            "tokenizer": tokenizer_id(self.tokenizer),
            "precision": self.precision,
            "device": self.device.type,
            "batch_size": self.batch_size,
        }

    @torch.inference_mode()
    def logits(self, examples: Sequence[ChoiceQuestion], what: str = "choosing") -> list[np.ndarray]:
        """The logits (N,) of every question's choices, float32, in the order of the questions, which may have
        different numbers of choices."""
        data = ChoiceSet(examples, self.tokenizer, self.encoding, self.model.architecture)
        found: list[np.ndarray] = [np.empty(0, dtype=np.float32)] * len(examples)
        for index in tqdm(data.batches(self.batch_size), desc=what, unit="batch", disable=None):
            with self.autocast():
                logits_BN = self.model(to_device(data[index].inputs, self.device))
            for i, logits_N in zip(index, logits_BN.float().cpu().numpy(), strict=True):
                found[i] = logits_N
        return found

    @torch.inference_mode()
    def embeddings(self, texts: Sequence[str], what: str = "embedding texts") -> np.ndarray:
        """One vector of length 1 for every text, (Q, D) float32: the mean of the encoder's last hidden states
        over its tokens, so that products of vectors are cosine similarities."""
        found = np.zeros((len(texts), self.model.config.hidden_size), dtype=np.float32)
        for index in tqdm(
            sorted_batches([len(text) for text in texts], self.batch_size),
            desc=what,
            unit="batch",
            disable=None,
        ):
            encoded = self.tokenizer(
                [texts[i] for i in index],
                truncation=True,
                max_length=self.encoding.max_length,
                padding=True,
                return_token_type_ids=True,
                return_tensors="pt",
            )
            inputs = to_device(dict(encoded), self.device)
            with self.autocast():
                hidden_QTD = self.model.encode(inputs)
            pooled_QD = masked_mean(hidden_QTD, inputs["attention_mask"])
            found[index] = torch.nn.functional.normalize(pooled_QD, dim=-1).cpu().numpy()
        return found

    def autocast(self) -> AbstractContextManager[Any]:
        """The precision that was asked for, as a context for forward passes."""
        if self.precision == "bf16":
            return torch.autocast(self.device.type, dtype=torch.bfloat16)
        return nullcontext()


def fitting_encoding(max_tokens: int | None) -> dict[str, int]:
    """Options for a model that was trained elsewhere: the usual ones, or shorter rows where it has too few
    positions for them."""
    return {} if max_tokens is None else {"max_length": min(max_tokens, ChoiceEncoding().max_length)}
