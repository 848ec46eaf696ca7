"""Fine-tuned checkpoints as answerers: loading, batching and device in one place.

Shape letters: N groups, V variants, S subjects or candidates of a row, M given spans of a question,
E the two boundaries (start, end), Q texts, B rows, T tokens, C types of answers or choices, D
hidden.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers.utils.logging import disable_progress_bar

from interventune.data_modules.batching.candidates import ChoiceEncoding, ChoiceSet, GroupSet
from interventune.data_modules.batching.decoding import decode_answers, decode_typed_answers
from interventune.data_modules.batching.sets import HIDDEN, QASet, encode_examples
from interventune.data_modules.encoding.tokenizers import load_tokenizer, tokenizer_id
from interventune.data_modules.encoding.windows import (
    Encoding,
    pad_rows,
    sorted_batches,
    token_span,
)
from interventune.data_modules.schema.groups import Group
from interventune.data_modules.schema.questions import Answer, ChoiceQuestion, QAExample
from interventune.models.backbones import EncoderModel, pick_device
from interventune.models.checkpoint import fingerprint
from interventune.models.heads.causal import CausalModel
from interventune.models.heads.span import ChoiceModel, QAModel, SpanModel, masked_mean
from interventune.models.loading import load
from interventune.storage.progress import progress

from .interface import Answerer, Compute
from .work import shared, stored

AT_ONCE = 8192
"""Number of groups or questions tokenised at a time: about 100 MB."""

Held = tuple[Any, Any, dict[str, Any]]
"""A model on its device, its tokenizer, and options of its encoding."""


def from_files(path: str, kind: type[EncoderModel], compute: Compute) -> Held:
    """Load a checkpoint; ValueError if it cannot be used, or the device is absent."""
    disable_progress_bar()  # reading weights takes only a moment
    path = path.removeprefix("hf:")
    device = pick_device(compute.device)
    causal = issubclass(kind, CausalModel)
    model, info = load(path, kind, weights_type(compute) if causal else "float32")
    if compute.dtype != "auto" and causal:  # but not the buffers: position frequencies stay exact
        for parameter in model.parameters():
            parameter.data = parameter.data.to(getattr(torch, compute.dtype))
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
        self.path = path
        self.batch_size = compute.batch_size
        self.dtype = "float32" if compute.dtype == "auto" else compute.dtype
        self.model, self.tokenizer, options = held or from_files(path, self.kind, compute)
        self.digest = "live" if held else ""
        """Of the weights; a model in training has none, because its answers are not stored."""
        self.device = next(self.model.parameters()).device
        try:
            self.encoding = self.encoding_class(**options)
            if limit := self.model.max_tokens:
                self.encoding = self.encoding.within(limit)
        except Exception as error:  # an option unknown to this version, or of another type
            raise ValueError(f"{path}: {error}") from error
        words = len(self.tokenizer)
        embeddings = self.model.config.vocab_size
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
        lower = self.dtype != "float32" and self.model.heads != "causal"
        return torch.autocast(self.device.type, getattr(torch, self.dtype), enabled=lower)

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
        key = (*examples, may_abstain)
        sets = {} if self.sets is None else self.sets
        if key not in sets:
            sets[key] = QASet(
                examples, self.tokenizer, self.encoding, may_abstain=may_abstain, answers=False
            )
        return sets[key]

    def fits(self, example: QAExample) -> bool:
        """Whether the model can read a question's whole text; an encoder reads it in windows."""
        return True

    def answers(self, examples: Sequence[QAExample], what: str = "answering") -> Iterator[Answer]:
        abstain = self.may_abstain
        if abstain is None:
            abstain = any(example.answer_type == "unknown" for example in examples)
        for first in range(0, len(examples), AT_ONCE):
            part = self.spans(examples[first : first + AT_ONCE], abstain, what)
            # Other processes number their questions from 0, too.
            for i, answer in enumerate(part, first):
                yield answer._replace(example=i)

    @shared
    @torch.inference_mode()
    def spans(
        self, examples: Sequence[QAExample], may_abstain: bool | None, what: str
    ) -> list[Answer]:
        """Return an encoder's answers with scores and offsets; at most 30 tokens (XLNet's heads:
        16). Where no window shows the right answer, the question fails.
        """
        data = self.question_set(examples, may_abstain)
        answers = list[Answer]()
        for index in progress(data.batches(self.batch_size), what):
            batch = data[index]
            inputs = self.moved(batch.inputs)
            context_BT = batch.context_BT.to(self.device)
            with self.autocast():
                if isinstance(self.model, SpanModel):
                    best = self.model.predict_spans(inputs, context_BT)
                    self.require_finite(best.score_B, best.null_B.abs())
                    answers += decode_answers(data, batch, *best)
                else:
                    may_start_BT = batch.max_context_BT.to(self.device)
                    typed = self.model.predict_answers(inputs, context_BT, may_start_BT)
                    self.require_finite(typed.score_B, typed.type_BC.abs())
                    answers += decode_typed_answers(data, batch, *typed)
        hidden = data.column("hidden")
        return sorted(
            answer._replace(failure=HIDDEN) if hidden[answer.example] else answer
            for answer in answers
        )

    @shared
    @torch.inference_mode()
    def span_scores(
        self, examples: Sequence[QAExample], what: str = "choosing"
    ) -> list[np.ndarray]:
        """Score spans against unknown; of a context's windows, that with the best score counts."""
        rows = list(encode_examples(examples, self.tokenizer, self.encoding))
        unknown = self.model.unknown_at
        scores = [np.full(len(example.answers), -np.inf, dtype=np.float32) for example in examples]
        batches = sorted_batches([len(row.input_ids_T) for row in rows], self.batch_size)
        for index in progress(batches, what):
            part = [rows[i] for i in index]
            inputs, context_BT, shift_B = pad_rows(part, self.tokenizer)
            spans = [[token_span(r, s) for s in examples[r.example].answers] for r in part]
            candidates = []
            for row, span_M, shift in zip(part, spans, shift_B.tolist(), strict=True):
                none = row.cls if unknown is None else unknown - shift
                tokens = [(none, none), *(span or (none, none) for span in span_M)]
                candidates.append(torch.tensor(tokens) + shift)
            candidate_BSE = pad_sequence(candidates, batch_first=True)
            with self.autocast():
                log_prob_BVSE = self.model.group_log_probs(
                    self.moved(inputs),
                    context_BT.to(self.device),
                    candidate_BSE[:, None].to(self.device),
                )
            self.require_finite(log_prob_BVSE.abs())
            log_score_BS = log_prob_BVSE[:, 0].float().mean(-1).cpu().numpy()
            for row, span_M, log_score_S in zip(part, spans, log_score_BS, strict=True):
                zero = log_score_S[0]
                best_M = scores[row.example]
                for m, span in enumerate(span_M):
                    if span is not None:
                        best_M[m] = max(best_M[m], log_score_S[1 + m] - zero)
        return scores

    @shared
    @torch.inference_mode()
    def subject_scores(self, groups: Sequence[Group], what: str = "scoring groups") -> Tensor:
        """S(x) = sqrt(p_start p_end) for each subject in all four variants, (N, 4, 2) float64. A
        batch has as many rows as fit in the space of `batch_size` rows of the longest.
        """
        tokens = self.batch_size * self.encoding.max_length
        parts = list[Tensor]()  # part by part, to keep little more than the scores in memory
        with self.autocast():  # one context, in which weights are cast to bfloat16 only once
            for at in range(0, max(1, len(groups)), AT_ONCE):
                data = GroupSet(groups[at : at + AT_ONCE], self.tokenizer, self.encoding)
                log_prob_RSE = self.model.score_rows(data, tokens=tokens, what=what)
                self.require_finite(log_prob_RSE.abs())
                parts.append(log_prob_RSE)
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


class ChoiceCheckpoint(Checkpoint):
    """A model of multiple choice; from a folder or a Hub name, the encoder with a head of random
    weights. Batch sizes count choices.
    """

    kind = ChoiceModel
    encoding_class = ChoiceEncoding

    @stored
    @torch.inference_mode()
    def choice_scores(self, questions: Sequence[ChoiceQuestion]) -> Iterable[list[float]]:
        data = ChoiceSet(questions, self.tokenizer, self.encoding, self.model.architecture)
        logits: dict[int, list[float]] = {}
        for index in data.batches(self.batch_size):
            with self.autocast():
                logits_BC = self.model(self.moved(data[index].inputs))
            self.require_finite(logits_BC.abs())
            logits.update(zip(index, logits_BC.float().tolist(), strict=True))
        return [logits[i] for i in range(len(questions))]

    @shared
    @torch.inference_mode()
    def embeddings(self, texts: Sequence[str], what: str = "embedding texts") -> Tensor:
        """Return the mean of the encoder's last hidden states over the tokens of each text, (Q, D)
        float32, scaled to length 1. The end of a long text is cut.
        """
        vectors_QD = torch.zeros(len(texts), self.model.config.hidden_size)
        options = {"max_length": self.encoding.max_length, "truncation": True, "padding": True}
        for index in progress(sorted_batches([*map(len, texts)], self.batch_size), what):
            rows = self.tokenizer([texts[i] for i in index], **options, return_tensors="pt")
            inputs = self.moved(dict(rows))
            with self.autocast():
                hidden_QTD = self.model.encode(inputs)
            self.require_finite(hidden_QTD.abs().amax(-1)[inputs["attention_mask"] != 0])
            pooled_QD = masked_mean(hidden_QTD, inputs["attention_mask"])
            vectors_QD[index] = torch.nn.functional.normalize(pooled_QD, dim=-1).float().cpu()
        return vectors_QD
