"""One question, with and without advice: for people who want to see it.

interventune evaluate ask --checkpoint last.ckpt --context "A Tolin baker met a Kessar baker." \\
    --question "Who was rude?" --advice "Note that, origin says nothing about manners." \\
    --candidate Tolin Kessar

An encoder picks a span of the context, a decoder writes.

Shape letters: B windows, T tokens, C candidates, E boundaries (start, end).
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated

from data_modules.schema import QAExample, Span
from evaluation.answering.interface import Asking, Compute
from evaluation.report import Evaluation
from evaluation.results import Results
from evaluation.views import Table
from storage.json_files import half_surrogate

if TYPE_CHECKING:
    from evaluation.answering.checkpoint import QuestionCheckpoint


def evaluate(
    *,
    checkpoint: str,
    context: str,
    question: str,
    advice: str = "",
    candidate: list[str] | None = None,
    advice_at: Annotated[str, "system,user,context"] | None = None,
    compute: Compute = Compute(),  # noqa: B008  frozen
) -> Evaluation:
    """One question, answered with and without advice.

    Args:
        checkpoint: a .ckpt, a Hugging Face folder, or a Hub name.
        context: the text to answer from.
        question: about it.
        advice: a sentence that is put right before the question, or where a decoder was trained to find it.
        candidate: spans of the context to score (default: the answers). A decoder chooses among two or more,
            which its prompt then offers.
        advice_at: of decoders: where the advice stands, one place or several side by side.
        compute: how the model runs.
    """
    from evaluation.answering.checkpoint import QuestionCheckpoint
    from evaluation.answering.open import advice_places, check_reads_prompts

    for name, text in (("context", context), ("question", question)):
        if not text.strip():
            raise ValueError(f"--{name}: is empty")
    for text in (context, question, advice, *(candidate or [])):
        if half_surrogate(text):
            raise ValueError(f"{text!r}: is not UTF-8")
    candidates = [mention(text, context) for text in candidate or []]
    places = advice_places(advice_at)
    if places:
        check_reads_prompts(checkpoint, "--advice-at")
    answerer = QuestionCheckpoint(checkpoint, Asking(**asdict(compute)))
    if answerer.decoder and len(candidates) == 1:
        raise ValueError("--candidate: a decoder chooses among two or more; name another")
    example = QAExample("--question", context, question)
    asked = {"without advice": (answerer, example)}
    for place in (places or [""]) * bool(advice):
        reader = answerer.reading(advice_at=place) if place else answerer
        asked["with advice" + f" ({place})" * bool(place)] = reader, replace(example, advice=advice)
    starts: dict[str, int] = {}
    answers: dict[str, str] = {}
    for name, (reader, ex) in asked.items():
        if reader.decoder:
            starts[name], answers[name] = -1, next(reader.answers([ex])).text
        else:
            span = next(reader.spans([ex]))
            starts[name], answers[name] = span.start, span.text
    if not candidates:
        # Yes, no and unknown, which begin at -1, stand nowhere in the context: there is no span to score.
        # What a decoder writes has no place either.
        found = dict.fromkeys((starts[name], answers[name]) for name in asked)
        candidates = [Span(start, start + len(text), text) for start, text in found if start >= 0]
    names = [span.text for span in candidates]
    if answerer.decoder:
        names += [answerer.encoding.unknown] * bool(names and answerer.offers_unknown)
    results, rows = Results(("asked", "candidate"), "questions"), list[tuple[str | float, ...]]()
    for name, (reader, ex) in asked.items():
        scores: list[float] = []
        if names and reader.decoder:
            scores = chosen(reader, ex, candidates)
        elif names:
            (found_M,) = reader.span_scores([replace(ex, answers=tuple(candidates))], against_unknown=False)
            scores = [math.exp(score) for score in found_M]
        for text, score in zip(names, scores, strict=True):
            if not score:
                raise ValueError(f"--candidate {text!r}: no window of the context holds it whole")
            results.add("score", score, n=1, asked=name, candidate=text)
        rows.append((name, answers[name] or "–", *scores))
    caption = "S = sqrt(p_start * p_end), the span score of UnQover; over all tokens of the best window."
    if answerer.decoder:
        caption = (
            f"S: softmax over the candidates of the {answerer.decoder.likelihood} log-likelihood of their "
            "tokens behind a prompt that offers them in the order of the context."
        )
    header = ("asked", "answer", *(f"S({text})" for text in names))
    return Evaluation(
        title="One question",
        results=results,
        views=[Table(question, header, tuple(rows), caption if names else "", lead=2)],
        headline="; ".join(f"{name}: {answer or 'no answer'}" for name, answer in answers.items()) + ".",
        about={
            "protocol": "ask",
            "checkpoint": checkpoint,
            "context": context,
            "question": question,
            "advice": advice,
            "candidate": candidate or [],
            "advice_at": places,
            "dtype": compute.dtype,
        },
        examples=[{"asked": name, "answer": answer} for name, answer in answers.items()],
    )


def mention(text: str, context: str) -> Span:
    """Where a candidate stands as a word of its own.

    Raises:
        ValueError: nowhere.

    >>> mention("Niger", "A Nigerian met a man from Niger.").start
    26
    """
    whole = re.search(rf"(?<!\w){re.escape(text)}(?!\w)", context)
    if not whole or not text:
        raise ValueError(f"--candidate {text!r}: is no word of the context")
    return Span(*whole.span(), text)


def chosen(answerer: QuestionCheckpoint, example: QAExample, candidates: Sequence[Span]) -> list[float]:
    """S of every candidate, and of unknown where the decoder may answer it: shares of 1."""
    import torch

    from data_modules.batching.sets import Collator
    from data_modules.encoding.prompts import choice_prompt
    from data_modules.encoding.windows import asked, encoded_prompt, encoded_prompts

    assert answerer.decoder is not None
    how, tokenizer = answerer.encoding, answerer.tokenizer
    text = asked(example, how, tokenizer)
    offered = choice_prompt(
        text, candidates, how.choice_prompt, how.advice_at, how.unknown * how.offer_unknown
    )
    (row,) = encoded_prompts([offered], tokenizer, how)
    inputs, _, shift_B = Collator(tokenizer, 1).pad([encoded_prompt(row, 0)])
    candidate_1CE = torch.tensor([row.spans], device=answerer.device) + int(shift_B[0])
    with torch.inference_mode(), answerer.autocast():
        log_share_1C = answerer.decoder.log_shares(answerer.moved(inputs), candidate_1CE)
    return [float(share) for share in log_share_1C[0].exp()]
