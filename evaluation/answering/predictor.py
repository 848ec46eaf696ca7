"""A trained checkpoint, ready to be asked: loading, batching and device in one place.

Shape letters: N groups, V variants, S subjects, E the two boundaries (start, end).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor
from tqdm.auto import tqdm
from transformers.utils.logging import disable_progress_bar

from data_modules.batching.collate import QABatch
from data_modules.batching.group_rows import score_rows, token_budget
from data_modules.encoding.decoding import Answer, decode_answers
from data_modules.encoding.sets import GroupSet, QASet
from data_modules.encoding.tokenizers import load_tokenizer
from data_modules.encoding.typed_decoding import AnswerRule, WindowScores, decode_typed_answers
from data_modules.encoding.windows import Encoding
from data_modules.schema import Group, QAExample
from evaluation.answering.answerers import Said
from models.checkpoint import load
from models.heads.answers import AnswerModel
from models.heads.span import QAModel, SpanModel

PART = 16_384
"""Groups that are tokenised at a time: about 100 MB."""


class Predictor:
    """A question-answering model with its own tokenizer and text encoding.

    Args:
        path: a `.ckpt` of `python -m training`, a Hugging Face folder, or a Hub name.
        device: `auto`, or a device of torch.
        precision: `32` or `bf16`.
        batch_size: rows scored together; of groups, as many more as are shorter than the longest.
        rule: when an answer type wins over a span; for models with such heads.

    Raises:
        ValueError: the checkpoint cannot be used, or there is no such device.
    """

    def __init__(
        self,
        path: str,
        *,
        device: str = "auto",
        precision: str = "32",
        batch_size: int = 64,
        rule: AnswerRule = AnswerRule(),  # noqa: B008  never mutated
    ) -> None:
        if batch_size < 1:
            raise ValueError(f"--batch-size: at least 1, got {batch_size}")
        self.path = path
        self.device = pick_device(device)
        disable_progress_bar()  # of reading weights, a blink
        loaded = load(path, QAModel)
        self.precision, self.batch_size = precision, batch_size
        self.model = loaded.model.to(self.device)
        try:
            self.tokenizer = load_tokenizer(loaded.tokenizer, loaded.model.architecture)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error
        words, rows = len(self.tokenizer), self.model.config.vocab_size
        if words > rows:
            raise ValueError(f"{path}: its tokenizer has {words} tokens, but its model {rows} embeddings")
        options = loaded.encoding or fitting_encoding(self.model.max_tokens)
        try:
            encoding = Encoding(**options)
        except (TypeError, ValueError) as error:  # a name or a type that this version does not know
            raise ValueError(f"{path}: its encoding {options} does not fit: {error}") from error
        self.encoding = encoding.resolved(self.model.architecture)
        self.rule = rule
        self.may_abstain: bool | None = None
        """Of a span model: see `QASet`; a protocol that compares several sets decides once for all."""

    @classmethod
    def of(cls, path: str, args: argparse.Namespace) -> Predictor:
        """By the flags of `add_prediction_arguments`, and of `add_answer_arguments` where they are there."""
        rule = AnswerRule()
        if hasattr(args, "unknown_threshold"):
            rule = AnswerRule(unknown_threshold=args.unknown_threshold, type_threshold=args.type_threshold)
        return cls(path, device=args.device, precision=args.precision, batch_size=args.batch_size, rule=rule)

    @property
    def typed(self) -> bool:
        """Whether the model also says yes, no and unknown."""
        return isinstance(self.model, AnswerModel)

    @torch.inference_mode()
    def group_log_probs(self, groups: Sequence[Group], what: str = "scoring groups") -> Tensor:
        """Boundary log-probabilities (N, 4, 2, 2) of all groups, float32, on the CPU, in their order.

        Rows, not groups, make up batches: as many as have room where `batch_size` of the longest would.
        Groups are tokenised a part at a time, so that memory holds the scores (64 bytes a group) and little
        else.
        """
        parts = [groups[at : at + PART] for at in range(0, len(groups), PART)]
        result = torch.empty(len(groups), 4, 2, 2)
        # One context for all batches: within it, weights are cast to bfloat16 once.
        with self.autocast():
            for p, part in enumerate(parts):
                data = GroupSet(part, self.tokenizer, self.encoding)
                name = f"{what} ({p + 1} of {len(parts)})" if len(parts) > 1 else what
                result[p * PART : p * PART + len(part)] = self.group_set_log_probs(data, name)
        return result

    @torch.inference_mode()
    def group_set_log_probs(self, data: GroupSet, what: str = "scoring groups") -> Tensor:
        """The same of groups that are tokenised."""
        tokens = token_budget(self.batch_size, self.encoding.max_length, self.device)
        with self.autocast():
            return score_rows(data, self.model.group_log_probs, tokens=tokens, device=self.device, what=what)

    @torch.inference_mode()
    def answers(
        self, examples: Sequence[QAExample], *, max_answer_tokens: int | None = None, what: str = "answering"
    ) -> Iterator[Answer]:
        """The answer of every question, each once, longest contexts first.

        Spans have at most `max_answer_tokens` tokens: 30, or 16 with XLNet's heads, unless given.
        """
        data = QASet(examples, self.tokenizer, self.encoding, may_abstain=self.may_abstain)
        longest = max_answer_tokens or (16 if self.model.heads == "xlnet" else 30)
        for index in tqdm(data.batches(self.batch_size), desc=what, unit="batch", disable=None):
            batch = data[index]
            with self.autocast():
                yield from (self._typed if self.typed else self._spans)(data, batch, longest)

    def said(self, examples: Sequence[QAExample], what: str = "answering") -> Iterator[Said]:
        """The same as texts: what protocols score."""
        for answer in self.answers(examples, what=what):
            yield Said(answer.example, answer.text)

    @torch.inference_mode()
    def hidden_states(self, inputs: dict[str, Tensor]) -> tuple[Tensor, ...]:
        """Hidden states (B, T, D) of the embeddings and of every layer, on this predictor's device."""
        with self.autocast():
            return self.model.hidden_states(to_device(inputs, self.device))

    def _spans(self, data: QASet, batch: QABatch, longest: int) -> Iterator[Answer]:
        assert isinstance(self.model, SpanModel)
        spans = self.model.predict_spans(
            to_device(batch.inputs, self.device),
            batch.context_BT.to(self.device),
            batch.cls_B.to(self.device),
            longest,
        )
        shift_B = batch.shift_B.to(self.device)
        start_B, end_B = spans.start_B - shift_B, spans.end_B - shift_B
        return decode_answers(data, batch.feature_B, start_B, end_B, spans.score_B, spans.null_B)

    def _typed(self, data: QASet, batch: QABatch, longest: int) -> Iterator[Answer]:
        assert isinstance(self.model, AnswerModel)
        found = self.model.predict_answers(
            to_device(batch.inputs, self.device),
            batch.context_BT.to(self.device),
            batch.max_context_BT.to(self.device),
            batch.cls_B.to(self.device),
            longest,
        )
        shift_B = batch.shift_B.to(self.device)
        scores = WindowScores(*found)
        scores = scores._replace(start_B=scores.start_B - shift_B, end_B=scores.end_B - shift_B)
        return decode_typed_answers(data, batch.feature_B, scores, self.rule)

    def autocast(self) -> AbstractContextManager[Any]:
        """The precision that was asked for, as a context for forward passes."""
        if self.precision == "bf16":
            return torch.autocast(self.device.type, dtype=torch.bfloat16)
        return nullcontext()


def fitting_encoding(max_tokens: int | None) -> dict[str, int]:
    """Options for a model that does not say how it was trained: the defaults, or as long as it can take."""
    length = Encoding().max_length
    if max_tokens is None or max_tokens >= length:
        return {}
    return {"max_length": max_tokens, "stride": max_tokens // 3}


def to_device(inputs: dict[str, Tensor], device: torch.device) -> dict[str, Tensor]:
    """The same tensors on `device`."""
    return {name: value.to(device, non_blocking=True) for name, value in inputs.items()}


def pick_device(name: str) -> torch.device:
    """A device by name; `auto` is a GPU where there is one.

    Raises:
        ValueError: torch knows no such device here.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"--device {name}: {str(error).splitlines()[0]}") from error
    return torch.device(name)
