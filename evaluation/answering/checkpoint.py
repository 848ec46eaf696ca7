"""Fine-tuned checkpoints as answerers: loading, batching and device in one place.

Shape letters: N groups, V variants, S subjects, E the two boundaries (start, end), B rows, T
tokens, D hidden.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from transformers.utils.logging import disable_progress_bar

from interventune.data_modules.batching.group_set import GroupSet
from interventune.data_modules.batching.sets import QASet
from interventune.data_modules.encoding.tokenizers import load_tokenizer, tokenizer_id
from interventune.data_modules.encoding.windows import Encoding
from interventune.evaluation.answering.asking import Compute
from interventune.evaluation.answering.interface import Answer, Answerer, local_path
from interventune.evaluation.answering.work import shared
from interventune.models.backbones import EncoderModel, pick_device
from interventune.models.heads.span import QAModel
from interventune.models.loading import load
from interventune.models.row_scores import score_rows
from interventune.models.weights import fingerprint

if TYPE_CHECKING:
    from interventune.data_modules.schema.groups import Group
    from interventune.data_modules.schema.questions import QAExample

GROUPS_AT_ONCE = 8192
"""Number of groups tokenised at a time: about 100 MB."""


def hold_weights(model: torch.nn.Module, dtype: str) -> None:
    """Cast the weights, in place, but not the buffers: position frequencies stay exact."""
    for parameter in model.parameters():
        parameter.data = parameter.data.to(getattr(torch, dtype))


Held = tuple[Any, Any, dict[str, Any]]
"""A model on its device, its tokenizer, and options of its encoding."""


def from_files(path: str, kind: type[EncoderModel], compute: Compute) -> Held:
    """Load a checkpoint; ValueError if it cannot be used, or the device is absent."""
    disable_progress_bar()  # reading weights takes only a moment
    path, device = local_path(path), pick_device(compute.device)
    causal = getattr(kind, "heads", "") == "causal"
    model, info = load(path, kind, weights_type(compute) if causal else "float32")
    if causal and compute.dtype != "auto":
        hold_weights(model, compute.dtype)
    elif compute.dtype not in ("auto", "float32"):  # for which torch's own attention is faster
        from interventune.models.kernels import use_kernels

        use_kernels(model)
    try:
        tokenizer = load_tokenizer(info.tokenizer, model.architecture)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    return model.to(device), tokenizer, info.encoding


def weights_type(compute: Compute) -> str:
    """Return the type in which a language model's weights are loaded: on a GPU that of
    its files.
    """
    on_gpu = pick_device(compute.device).type == "cuda"
    return compute.dtype if on_gpu or compute.dtype != "auto" else "float32"


class Checkpoint(Answerer):
    """The base of checkpoints: a model with its own tokenizer, on a device, loaded from files or,
    as `held`, from a running training (see `lent`). ValueError if it cannot be used, tokenizer and
    model do not fit, or the device is absent.
    """

    kind: ClassVar[type[EncoderModel]]
    """The models that can be evaluated."""
    encoding_class: ClassVar[type]
    """The options by which text becomes rows."""

    def __init__(self, path: str, compute: Compute, held: Held | None = None) -> None:
        self.path, self.batch_size = path, compute.batch_size
        self.dtype = "float32" if compute.dtype == "auto" else compute.dtype
        self.model, self.tokenizer, options = held or from_files(path, self.kind, compute)
        self.digest = "live" if held else ""
        """Of the weights; a model in training has none, because its answers are not stored."""
        self.device = next(self.model.parameters()).device
        try:
            self.encoding = self.encoding_class(**options)
        except (TypeError, ValueError) as error:  # TypeError: an option unknown to this version
            raise ValueError(f"{path}: {error}") from error
        self.encoding = self.encoding.within(self.model.max_tokens)
        words, embeddings = len(self.tokenizer), self.model.config.vocab_size
        if words > embeddings:
            raise ValueError(
                f"{path}: its tokenizer has {words} tokens, its model {embeddings} embeddings"
            )

    @property
    def identity(self) -> dict[str, Any]:
        self.digest = self.digest or fingerprint(self.model)
        return {
            "weights": self.digest,
            "heads": {"name": self.model.heads, **self.model.head_options},
            "tokenizer": tokenizer_id(self.tokenizer),
            "encoding": asdict(self.encoding),
            "dtype": self.dtype,
        }

    def autocast(self) -> AbstractContextManager[Any]:
        """Return a context in which an encoder computes in the requested dtype."""
        if self.dtype == "float32" or self.model.heads == "causal":
            return nullcontext()
        return torch.autocast(self.device.type, dtype=getattr(torch, self.dtype))

    def moved(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        """Copy tensors to the checkpoint's device."""
        return {name: value.to(self.device, non_blocking=True) for name, value in inputs.items()}


class QuestionCheckpoint(Checkpoint):
    """A model that answers questions about a text: with spans only, or with spans, yes, no and
    unknown.
    """

    kind = QAModel
    encoding_class = Encoding
    sets: dict[Any, QASet] | None = None
    """Cached question sets, for a model that is evaluated repeatedly."""

    def __init__(self, path: str, asking: Compute, held: Held | None = None) -> None:
        super().__init__(path, asking, held)
        self.encoding: Encoding = self.encoding.resolved(self.model.architecture)

    @property
    def identity(self) -> dict[str, Any]:
        return {**super().identity, "may_abstain": self.may_abstain}

    def question_set(self, examples: Sequence[QAExample], may_abstain: bool | None = None) -> QASet:
        """Return the questions, tokenised; only once if `sets` caches them."""
        key, kept = (*examples, may_abstain), {} if self.sets is None else self.sets
        if key not in kept:
            how: dict[str, Any] = {"may_abstain": may_abstain, "answers": False}
            kept[key] = QASet(examples, self.tokenizer, self.encoding, **how)
        return kept[key]

    def fits(self, example: QAExample) -> bool:
        """Whether the model can read a question's whole text; an encoder reads it in windows."""
        return True

    def answers(self, examples: Sequence[QAExample], what: str = "answering") -> Iterator[Answer]:
        from interventune.evaluation.answering.questions import (
            spans,  # `bias` usually does not need it
        )

        abstain = self.may_abstain
        if abstain is None:
            abstain = any(example.answer_type == "unknown" for example in examples)
        for i, span in enumerate(spans(self, examples, may_abstain=abstain, what=what)):
            yield Answer(
                i, span.text, span.failure, unknown_score=span.unknown_score, guess=span.guess
            )

    def span_scores(
        self, examples: Sequence[QAExample], what: str = "choosing"
    ) -> list[np.ndarray]:
        from interventune.evaluation.answering.questions import span_scores

        return span_scores(self, examples, what)

    @shared
    @torch.inference_mode()
    def subject_scores(self, groups: Sequence[Group], what: str = "scoring groups") -> Tensor:
        """S(x) = sqrt(p_start p_end) for each subject in all four variants, (N, 4, 2) float64. A
        batch has as many rows as fit in the space of `batch_size` rows of the longest.
        """
        score, tokens = self.model.group_log_probs, self.batch_size * self.encoding.max_length
        parts = list[
            Tensor
        ]()  # tokenised part by part, to keep little more than the scores in memory
        with self.autocast():  # one context, in which weights are cast to bfloat16 only once
            for at in range(0, max(1, len(groups)), GROUPS_AT_ONCE):
                data = GroupSet(groups[at : at + GROUPS_AT_ONCE], self.tokenizer, self.encoding)
                options: dict[str, Any] = {"tokens": tokens, "device": self.device, "what": what}
                parts.append(score_rows(data.rows, data.lengths, score, **options))
                self.require_finite(parts[-1].abs().flatten())
        return torch.cat(parts).unflatten(0, (-1, 4)).double().mean(-1).exp()

    @torch.inference_mode()
    def hidden_states(self, inputs: dict[str, Tensor]) -> tuple[Tensor, ...]:
        """Hidden states (B, T, D) of the embeddings and of every layer, on this checkpoint's
        device.
        """
        with self.autocast():
            states = self.model.hidden_states(self.moved(inputs))
        self.require_finite(states[-1].abs().amax(-1)[inputs["attention_mask"] != 0])
        return states
