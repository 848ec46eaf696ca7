"""Fine-tuned checkpoints as answerers: loading, batching and device in one place.

Shape letters: N groups, V variants, S subjects, E the two boundaries (start, end), C choices, Q texts, D
hidden.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor
from tqdm.auto import tqdm
from transformers.utils.logging import disable_progress_bar

from data_modules.batching.choice_set import ChoiceSet
from data_modules.batching.collate import QABatch
from data_modules.batching.decoding import Answer as Span
from data_modules.batching.decoding import decode_answers
from data_modules.batching.group_rows import score_rows, token_budget
from data_modules.batching.samplers import sorted_batches
from data_modules.batching.sets import GroupSet, QASet
from data_modules.batching.typed_decoding import AnswerRule, WindowScores, decode_typed_answers
from data_modules.encoding.choices import ChoiceEncoding
from data_modules.encoding.tokenizers import load_tokenizer, tokenizer_id
from data_modules.encoding.windows import Encoding
from data_modules.schema import ChoiceQuestion, Group, QAExample
from evaluation.answering.interface import Ability, Answer, Answerer, Asking, Compute
from models.checkpoint import fingerprint, load
from models.heads.answers import AnswerModel
from models.heads.choice import ChoiceModel, masked_mean
from models.heads.span import QAModel, SpanModel

SPANS: frozenset[Ability] = frozenset({"spans", "subjects"})
TYPES: frozenset[Ability] = frozenset({"types"})

PART = 16_384
"""Groups that are tokenised at a time: about 100 MB."""


class Checkpoint(Answerer):
    """What both kinds of checkpoints share: a model with its own tokenizer, on a device.

    Args:
        path: a `.ckpt` of `python -m training`, a Hugging Face folder, or a Hub name.
        loaded: the model, its tokenizer and encoding.
        compute: where and how it runs.

    Raises:
        ValueError: tokenizer and model do not fit, or there is no such device.
    """

    encoding: Encoding | ChoiceEncoding

    def __init__(self, path: str, loaded: Any, compute: Compute) -> None:
        self.path, self.precision, self.batch_size = path, compute.precision, compute.batch_size
        self.device = pick_device(compute.device)
        self.model = loaded.model.to(self.device)
        try:
            self.tokenizer = load_tokenizer(loaded.tokenizer, self.model.architecture)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error
        words, rows = len(self.tokenizer), self.model.config.vocab_size
        if words > rows:
            raise ValueError(f"{path}: its tokenizer has {words} tokens, but its model {rows} embeddings")

    @cached_property
    def identity(self) -> dict[str, Any]:
        """Weights, tokenizer, encoding and precision."""
        return {
            "weights": fingerprint(self.model),
            "tokenizer": tokenizer_id(self.tokenizer),
            "encoding": asdict(self.encoding),
            "precision": self.precision,
        }

    def autocast(self) -> AbstractContextManager[Any]:
        """The precision that was asked for, as a context for forward passes."""
        if self.precision == "bf16":
            return torch.autocast(self.device.type, dtype=torch.bfloat16)
        return nullcontext()


class QuestionCheckpoint(Checkpoint):
    """A model that answers questions about a text, with spans alone or with yes, no and unknown too.

    Args:
        path: a `.ckpt` of `python -m training`, a Hugging Face folder, or a Hub name.
        asking: where it runs, and when an answer type wins over a span.

    Raises:
        ValueError: the checkpoint cannot be used, or there is no such device.
    """

    encoding: Encoding

    def __init__(self, path: str, asking: Asking) -> None:
        disable_progress_bar()  # of reading weights, a blink
        loaded = load(path, QAModel)
        super().__init__(path, loaded, asking)
        options = loaded.encoding or fitting_encoding(self.model.max_tokens)
        try:
            encoding = Encoding(**options)
        except (TypeError, ValueError) as error:  # a name or a type that this version does not know
            raise ValueError(f"{path}: its encoding {options} does not fit: {error}") from error
        self.encoding = encoding.resolved(self.model.architecture)
        self.rule = AnswerRule(
            unknown_threshold=asking.unknown_threshold, type_threshold=asking.type_threshold
        )
        self.can = SPANS | TYPES if isinstance(self.model, AnswerModel) else SPANS

    def answers(self, examples: Sequence[QAExample], what: str = "answering") -> Iterator[Answer]:
        """The answer of every question, each once, longest contexts first."""
        for span in self.spans(examples, what=what):
            yield Answer(span.example, span.text)

    @torch.inference_mode()
    def spans(
        self, examples: Sequence[QAExample], *, max_answer_tokens: int | None = None, what: str = "answering"
    ) -> Iterator[Span]:
        """The same with scores and offsets; spans have at most `max_answer_tokens` tokens: 30, or 16 with
        XLNet's heads, unless given."""
        data = QASet(examples, self.tokenizer, self.encoding, may_abstain=self.may_abstain)
        longest = max_answer_tokens or (16 if self.model.heads == "xlnet" else 30)
        decode = self._typed if "types" in self.can else self._spans
        for index in tqdm(data.batches(self.batch_size), desc=what, unit="batch", disable=None):
            with self.autocast():
                yield from decode(data, data[index], longest)

    def subject_scores(self, groups: Sequence[Group], what: str = "scoring groups") -> Tensor:
        """S(x) = sqrt(p_start p_end) of both subjects: (N, 4, 2) float64."""
        return self.group_log_probs(groups, what).double().mean(-1).exp()

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
    def hidden_states(self, inputs: dict[str, Tensor]) -> tuple[Tensor, ...]:
        """Hidden states (B, T, D) of the embeddings and of every layer, on this checkpoint's device."""
        with self.autocast():
            return self.model.hidden_states(to_device(inputs, self.device))

    def _spans(self, data: QASet, batch: QABatch, longest: int) -> Iterator[Span]:
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

    def _typed(self, data: QASet, batch: QABatch, longest: int) -> Iterator[Span]:
        assert isinstance(self.model, AnswerModel)
        scores = WindowScores(
            *self.model.predict_answers(
                to_device(batch.inputs, self.device),
                batch.context_BT.to(self.device),
                batch.max_context_BT.to(self.device),
                batch.cls_B.to(self.device),
                longest,
            )
        )
        shift_B = batch.shift_B.to(self.device)
        scores = scores._replace(start_B=scores.start_B - shift_B, end_B=scores.end_B - shift_B)
        return decode_typed_answers(data, batch.feature_B, scores, self.rule)


class ChoiceCheckpoint(Checkpoint):
    """A model of multiple choice; of a folder or a Hub name the encoder under a head of random weights.

    Args:
        path: a `.ckpt` of the experiment multiple_choice, a Hugging Face folder, or a Hub name.
        compute: where and how it runs; a batch counts choices.

    Raises:
        ValueError: the checkpoint cannot be used, or there is no such device.
    """

    can: frozenset[Ability] = frozenset({"choices", "embeddings"})
    encoding: ChoiceEncoding

    def __init__(self, path: str, compute: Compute) -> None:
        disable_progress_bar()  # of reading weights, a blink
        loaded = load(path, ChoiceModel)
        super().__init__(path, loaded, compute)
        options = loaded.encoding or fitting_choice_encoding(self.model.max_tokens)
        try:
            self.encoding = ChoiceEncoding(**options)
        except (TypeError, ValueError) as error:  # options that this version does not know
            raise ValueError(f"{path}: its encoding {options} does not fit: {error}") from error

    @cached_property
    def identity(self) -> dict[str, Any]:
        """Weights, tokenizer, encoding, pooling and precision."""
        return {**super().identity, "pooling": self.model.pooling}

    @torch.inference_mode()
    def choice_logits(self, questions: Sequence[ChoiceQuestion], what: str = "choosing") -> list[np.ndarray]:
        """The logits (C,) of every question's choices, float32, in the order of the questions, which may have
        different numbers of choices."""
        data = ChoiceSet(questions, self.tokenizer, self.encoding, self.model.architecture)
        logits: list[np.ndarray] = [np.empty(0, dtype=np.float32)] * len(questions)
        for index in tqdm(data.batches(self.batch_size), desc=what, unit="batch", disable=None):
            with self.autocast():
                logits_BC = self.model(to_device(data[index].inputs, self.device))
            for i, logits_C in zip(index, logits_BC.float().cpu().numpy(), strict=True):
                logits[i] = logits_C
        return logits

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
            inputs = to_device(dict(encoded), self.device)
            with self.autocast():
                hidden_QTD = self.model.encode(inputs)
            pooled_QD = masked_mean(hidden_QTD, inputs["attention_mask"])
            vectors_QD[index] = torch.nn.functional.normalize(pooled_QD, dim=-1).cpu().numpy()
        return vectors_QD


def fitting_encoding(max_tokens: int | None) -> dict[str, int]:
    """Options for a model that does not say how it was trained: the defaults, or as long as it can take."""
    length = Encoding().max_length
    if max_tokens is None or max_tokens >= length:
        return {}
    return {"max_length": max_tokens, "stride": max_tokens // 3}


def fitting_choice_encoding(max_tokens: int | None) -> dict[str, int]:
    """The same for multiple choice."""
    return {} if max_tokens is None else {"max_length": min(max_tokens, ChoiceEncoding().max_length)}


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
