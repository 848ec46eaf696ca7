"""Answers of a `QuestionCheckpoint`: spans with scores, and scores of given spans.

Shape letters: S candidates of a row, M given spans of a question, E the two boundaries (start,
end), B rows, C types of answers, T tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence
from tqdm.auto import tqdm

from interventune.data_modules.batching.decoding import Answer as Span
from interventune.data_modules.batching.decoding import decode_answers, decode_typed_answers
from interventune.data_modules.batching.sets import HIDDEN, encode_examples
from interventune.data_modules.encoding.windows import pad_rows, sorted_batches, token_span
from interventune.data_modules.schema.questions import QAExample
from interventune.evaluation.answering.work import shared
from interventune.models.heads.span import SpanModel


@shared
@torch.inference_mode()
def spans(
    model: Any,
    examples: Sequence[QAExample],
    *,
    may_abstain: bool | None = None,
    what: str = "answering",
) -> list[Span]:
    """Return an encoder's answers with scores and offsets; at most 30 tokens (XLNet's heads: 16).
    Where no window shows the right answer, the question fails.
    """
    data = model.question_set(examples, may_abstain)
    found: list[Span] = []
    for index in tqdm(data.batches(model.batch_size), desc=what, unit="batch", disable=None):
        batch = data[index]
        inputs, device = model.moved(batch.inputs), model.device
        context_BT, cls_B = batch.context_BT.to(device), batch.cls_B.to(device)
        with model.autocast():
            if isinstance(model.model, SpanModel):
                best = model.model.predict_spans(inputs, context_BT, cls_B)
                model.require_finite(best.score_B, best.null_B.abs())
                found += decode_answers(data, batch, *best)
            else:
                may_start_BT = batch.max_context_BT.to(device)
                answer = model.model.predict_answers(inputs, context_BT, may_start_BT, cls_B)
                model.require_finite(answer.score_B, answer.type_BC.abs())
                found += decode_typed_answers(data, batch, *answer)
    hidden = data.column("hidden")
    failed = (span._replace(failure=HIDDEN * hidden[span.example]) for span in found)
    return sorted(failed, key=lambda span: span.example)


@shared
@torch.inference_mode()
def span_scores(
    model: Any,
    examples: Sequence[QAExample],
    what: str = "choosing",
    *,
    against_unknown: bool = True,
) -> list[np.ndarray]:
    """Score spans; of several windows of a context, the one with a span's best score counts.
    Without `against_unknown`, the score is log S itself.
    """
    rows = list(encode_examples(examples, model.tokenizer, model.encoding))
    unknown = model.model.unknown_at
    scores = [np.full(len(example.answers), -np.inf, dtype=np.float32) for example in examples]
    batches = sorted_batches([len(row.input_ids_T) for row in rows], model.batch_size)
    for index in tqdm(batches, desc=what, unit="batch", disable=None):
        part = [rows[i] for i in index]
        inputs, context_BT, shift_B = pad_rows(part, model.tokenizer)
        spans = [[token_span(r, s) for s in examples[r.example].answers] for r in part]
        candidates = []
        for row, found, shift in zip(part, spans, shift_B.tolist(), strict=True):
            none = row.cls if unknown is None else unknown - shift
            tokens = [(none, none), *(span or (none, none) for span in found)]
            candidates.append(torch.tensor(tokens) + shift)
        candidate_BSE = pad_sequence(candidates, batch_first=True)
        with model.autocast():
            log_prob_BVSE = model.model.group_log_probs(
                model.moved(inputs),
                context_BT.to(model.device),
                candidate_BSE[:, None].to(model.device),
            )
        model.require_finite(log_prob_BVSE.abs().flatten())
        log_score_BS = log_prob_BVSE[:, 0].float().mean(-1).cpu().numpy()
        for row, found, log_score_S in zip(part, spans, log_score_BS, strict=True):
            zero, best_M = log_score_S[0] if against_unknown else 0.0, scores[row.example]
            for m, span in enumerate(found):
                if span is not None:
                    best_M[m] = max(best_M[m], log_score_S[1 + m] - zero)
    return scores
