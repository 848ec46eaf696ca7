"""Fine-tuned checkpoints as answerers: loading, batching and device in one place.

Shape letters: N groups, V variants, S subjects or spans, E the two boundaries (start, end), B rows or
questions, C types of answers, T tokens, D hidden.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from tqdm.auto import tqdm
from transformers.utils.logging import disable_progress_bar

from data_modules.batching.group_set import GroupSet
from data_modules.encoding.tokenizers import load_tokenizer, tokenizer_id
from data_modules.encoding.windows import Encoding, token_span
from data_modules.schema import Group, QAExample
from evaluation.answering.interface import Answer, Answerer, Asking, Compute
from evaluation.processes import kept, shared
from models.backbones import EncoderModel, pick_device
from models.checkpoint import load
from models.heads.span import QAModel, SpanModel
from models.pretrained import fingerprint
from models.row_scores import score_rows

if TYPE_CHECKING:  # what reads questions is imported where they are asked
    from data_modules.batching.decoding import Answer as Span

GROUPS_AT_ONCE = 8192
"""Groups that are tokenised at a time: about 100 MB."""


def hold_weights(model: torch.nn.Module, dtype: str) -> None:
    """Cast the weights, in place; not the buffers: the frequencies of positions stay exact."""
    for parameter in model.parameters():
        parameter.data = parameter.data.to(getattr(torch, dtype))


class Checkpoint(Answerer):
    """What both kinds of checkpoints share: a model with its own tokenizer, on a device. ValueError where it
    cannot be used, tokenizer and model do not fit, or there is no such device."""

    kind: ClassVar[type[EncoderModel]]
    """The models that can be asked."""
    encoding_class: ClassVar[type]
    """How text becomes their rows."""

    def __init__(self, path: str, compute: Compute) -> None:
        disable_progress_bar()  # of reading weights, a blink
        self.path, self.batch_size = path, compute.batch_size
        self.dtype = "float32" if compute.dtype == "auto" else compute.dtype
        model, info = load(path, self.kind)
        self.device = pick_device(compute.device)
        self.is_decoder = model.heads == "causal"
        if self.is_decoder and compute.dtype != "auto":
            hold_weights(model, self.dtype)
        self.model: Any = model.to(self.device)
        try:
            self.tokenizer = load_tokenizer(info.tokenizer, model.architecture)
            self.encoding = self.encoding_class(**info.encoding)
        except (TypeError, ValueError) as error:  # TypeError: an option that this version does not know
            raise ValueError(f"{path}: {error}") from error
        words, embeddings = len(self.tokenizer), model.config.vocab_size
        if words > embeddings:
            raise ValueError(f"{path}: its tokenizer has {words} tokens, its model {embeddings} embeddings")

    @cached_property
    def weights(self) -> str:
        """A digest of the weights."""
        return fingerprint(self.model)

    @property
    def identity(self) -> dict[str, Any]:
        return {
            "weights": self.weights,
            "heads": {"name": self.model.heads, **self.model.head_options},
            "tokenizer": tokenizer_id(self.tokenizer),
            "encoding": asdict(self.encoding),
            "dtype": self.dtype,
        }

    def autocast(self) -> AbstractContextManager[Any]:
        """A context in which an encoder computes in the dtype that was asked for."""
        if self.dtype == "float32" or self.is_decoder:
            return nullcontext()
        return torch.autocast(self.device.type, dtype=getattr(torch, self.dtype))

    def moved(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        """The same tensors on the checkpoint's device."""
        return {name: value.to(self.device, non_blocking=True) for name, value in inputs.items()}


class QuestionCheckpoint(Checkpoint):
    """A model that answers questions about a text, with spans alone or with yes, no and unknown too, or in
    its own words (a decoder)."""

    kind = QAModel
    encoding_class = Encoding

    def __init__(self, path: str, asking: Asking) -> None:
        super().__init__(path, asking)
        encoding: Encoding = self.encoding
        if asking.chat == "never" and self.is_decoder:
            encoding = replace(encoding, prompts=replace(encoding.prompts, chat="never"))
        self.encoding = encoding.resolved(self.model.architecture)
        self.offers_unknown = self.encoding.candidates == 3
        self.max_new_tokens = asking.max_new_tokens

    @property
    def identity(self) -> dict[str, Any]:
        more = {"max_new_tokens": self.max_new_tokens, "may_abstain": self.may_abstain}
        return {**super().identity, **more}

    def answers(self, examples: Sequence[QAExample], what: str = "answering") -> Iterator[Answer]:
        if self.is_decoder:
            texts = list(self.written(examples, what=what))
        else:
            abstain = self.may_abstain
            if abstain is None:
                abstain = any(example.answer_type == "unknown" for example in examples)
            texts = [span.text for span in self.spans(examples, may_abstain=abstain, what=what)]
        yield from (Answer(i, text) for i, text in enumerate(texts))

    @kept
    @torch.inference_mode()
    def written(self, examples: Sequence[QAExample], *, what: str) -> list[str]:
        """What a decoder writes after each question's prompt."""
        from data_modules.batching.decoding import written_answers
        from data_modules.batching.sets import QASet
        from data_modules.encoding.prompts import around_answer

        data = QASet(examples, self.tokenizer, self.encoding)
        _, ends = around_answer(self.tokenizer, self.encoding.prompts.chat)
        texts = [""] * len(examples)
        for index in tqdm(data.batches(self.batch_size), desc=what, unit="batch", disable=None):
            batch = data[index]
            inputs = self.moved(batch.inputs)
            lines = self.model.write(inputs, batch.start_B, self.tokenizer, ends, self.max_new_tokens)
            for answer in written_answers(data, batch.feature_B, lines):
                texts[answer.example] = answer.text
        return texts

    @shared
    @torch.inference_mode()
    def spans(
        self, examples: Sequence[QAExample], *, may_abstain: bool | None = None, what: str = "answering"
    ) -> list[Span]:
        """The answers of an encoder with scores and offsets; spans have at most 30 tokens, 16 with XLNet's
        heads."""
        from data_modules.batching.decoding import decode_answers, decode_typed_answers
        from data_modules.batching.sets import QASet

        data = QASet(examples, self.tokenizer, self.encoding, may_abstain=may_abstain)
        spans: list[Span] = []
        for index in tqdm(data.batches(self.batch_size), desc=what, unit="batch", disable=None):
            batch = data[index]
            inputs, device = self.moved(batch.inputs), self.device
            context_BT, cls_B = batch.context_BT.to(device), batch.cls_B.to(device)
            with self.autocast():
                if isinstance(self.model, SpanModel):
                    best = self.model.predict_spans(inputs, context_BT, cls_B)
                    self.require_finite(best.score_B, best.null_B.abs())
                    spans += decode_answers(data, batch, *best)
                else:
                    may_start_BT = batch.max_context_BT.to(device)
                    found = self.model.predict_answers(inputs, context_BT, may_start_BT, cls_B)
                    self.require_finite(found.score_B, found.type_BC.abs())
                    spans += decode_typed_answers(data, batch, *found)
        return sorted(spans, key=lambda span: span.example)

    @shared
    @torch.inference_mode()
    def span_scores(
        self, examples: Sequence[QAExample], what: str = "choosing", *, against_unknown: bool = True
    ) -> list[np.ndarray]:
        """Of windows of one context the one counts in which a span does best. Without `against_unknown` the
        score is log S itself."""
        from data_modules.batching.sets import pad_rows, sorted_batches
        from data_modules.encoding.questions import encode_examples

        rows = list(encode_examples(examples, self.tokenizer, self.encoding))
        unknown = self.model.unknown_at
        scores = [np.full(len(example.answers), -np.inf, dtype=np.float32) for example in examples]
        batches = sorted_batches([len(row.input_ids_T) for row in rows], self.batch_size)
        for index in tqdm(batches, desc=what, unit="batch", disable=None):
            part = [rows[i] for i in index]
            inputs, context_BT, shift_B = pad_rows(part, self.tokenizer)
            spans = [[token_span(r.offsets_TE, s) for s in examples[r.example].answers] for r in part]
            candidates = []
            for row, found, shift in zip(part, spans, shift_B.tolist(), strict=True):
                none = row.cls if unknown is None else unknown - shift
                tokens = [(none, none), *(span or (none, none) for span in found)]
                candidates.append(torch.tensor(tokens) + shift)
            candidate_BSE = pad_sequence(candidates, batch_first=True)
            with self.autocast():
                log_prob_BVSE = self.model.group_log_probs(
                    self.moved(inputs), context_BT.to(self.device), candidate_BSE[:, None].to(self.device)
                )
            self.require_finite(log_prob_BVSE.abs().flatten())
            log_score_BS = log_prob_BVSE[:, 0].float().mean(-1).cpu().numpy()
            for row, found, log_score_S in zip(part, spans, log_score_BS, strict=True):
                zero, best_M = log_score_S[0] if against_unknown else 0.0, scores[row.example]
                for m, span in enumerate(found):
                    if span is not None:
                        best_M[m] = max(best_M[m], log_score_S[1 + m] - zero)
        return scores

    @shared
    def subject_scores(self, groups: Sequence[Group], what: str = "scoring groups") -> Tensor:
        """S(x) = sqrt(p_start p_end) of both subjects in all four variants, (N, 4, 2) float64; of a decoder
        the share."""
        # Tokenised a part at a time, memory holds the scores and little else.
        parts = (groups[at : at + GROUPS_AT_ONCE] for at in range(0, max(1, len(groups)), GROUPS_AT_ONCE))
        with self.autocast():  # one context: within it, weights are cast to bfloat16 once
            sets = (GroupSet(part, self.tokenizer, self.encoding) for part in parts)
            log_prob_NVSE = torch.cat([self.group_log_probs(data, what) for data in sets])
        return log_prob_NVSE.double().mean(-1).exp()

    @torch.inference_mode()
    def group_log_probs(self, data: GroupSet, what: str = "scoring groups") -> Tensor:
        """Boundary log-probabilities (N, 4, 2, 2) of groups, float32, on the CPU, in their order; of a
        decoder log S, (N, 4, 2, 1). A batch has as many rows as have room where `batch_size` of the longest
        would."""
        score, tokens = self.model.group_log_probs, self.batch_size * self.encoding.max_length
        with self.autocast():
            scores = score_rows(data.rows, data.lengths, score, tokens=tokens, device=self.device, what=what)
        self.require_finite(scores.abs().flatten())
        return scores.unflatten(0, (-1, 4))

    @torch.inference_mode()
    def hidden_states(self, inputs: dict[str, Tensor]) -> tuple[Tensor, ...]:
        """Hidden states (B, T, D) of the embeddings and of every layer, on this checkpoint's device."""
        with self.autocast():
            states = self.model.hidden_states(self.moved(inputs))
        self.require_finite(states[-1].abs().amax(-1)[inputs["attention_mask"] != 0])
        return states
