"""One question, with and without advice, for a direct look at a model.

S is the span score of `bias`: sqrt(p_start p_end) for an encoder, over all tokens of its best
window; for a decoder, the share of one of the two candidates that its prompt offers.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np

from interventune.data_modules.schema.groups import Group, UnderspecifiedQuestion
from interventune.data_modules.schema.questions import QAExample
from interventune.data_modules.schema.spans import Span
from interventune.evaluation.answering.interface import (
    KINDS,
    Answerer,
    Compute,
    kind_of,
    open_answerer,
)
from interventune.evaluation.protocol import Evaluation, Results, View, plain


def evaluate(
    *,
    checkpoint: str,
    context: str,
    question: str,
    advice: str = "",
    candidate: list[str] | None = None,
    compute: Compute,
) -> Evaluation:
    """Answer one question, with and without advice, and score candidate answers.

    Example: interventune evaluate ask --checkpoint best.ckpt --context "A Tolin baker met a \\
        Kessar baker." --question "Who was rude?" --advice "Note that, origin says nothing about \\
        manners."

    Args:
        checkpoint: a .ckpt, a Hugging Face folder, a Hub name, or a language model (hf:PATH,
            openai:MODEL[@URL]).
        context: the text that the question is about.
        question: the question.
        advice: a sentence that is put directly before the question, or where a decoder's prompt has
            it.
        candidate: words of the context to score (default: the answers of an encoder). A decoder
            takes two.
        compute: model options.
    """
    example = QAExample("--question", context, question)
    examples = {"without advice": example}
    if advice:
        examples["with advice"] = replace(example, advice=advice)
    spans = [mention(text, context) for text in candidate or []]
    answerer, questions = open_answerer(checkpoint, compute), list(examples.values())
    texts = {
        name: answer.text or answer.failure or "no answer"
        for name, answer in zip(examples, sorted(answerer.answers(questions)), strict=True)
    }
    scores_spans = "mentions" in KINDS[kind_of(checkpoint)].abilities
    if scores_spans and not spans:
        answers = cast(Any, answerer).spans(questions)
        # Yes, no and unknown, which begin at -1, are not in the context.
        places = dict.fromkeys((span.start, span.text) for span in answers if span.start >= 0)
        spans = [Span(start, start + len(text), text) for start, text in places]
    numbers = [
        plain("score", score, 1, asked=name, candidate=span.text)
        for name, example in (examples.items() if spans else ())
        for span, score in zip(spans, scores(answerer, example, spans, scores_spans), strict=True)
    ]
    return Evaluation(
        title="One question",
        results=Results(("asked", "candidate"), "questions", numbers),
        views=[View(f"{question} (score, 0 to 1)", ("candidate",), {"score": "S"}, across="asked")],
        headline="; ".join(f"{name}: {text}" for name, text in texts.items()) + ".",
        examples=[{"asked": name, "answer": text} for name, text in texts.items()],
    )


def mention(text: str, context: str) -> Span:
    """Find a candidate as a separate word; ValueError if it is absent.

    >>> mention("Niger", "A Nigerian met a man from Niger.").start
    26
    """
    word = re.search(rf"(?<!\w){re.escape(text)}(?!\w)", context)
    if not word or not text:
        raise ValueError(f"--candidate {text!r}: is no word of the context")
    return Span(*word.span(), text)


def scores(
    answerer: Answerer, example: QAExample, spans: Sequence[Span], scores_spans: bool
) -> list[float]:
    """Return S of each candidate; ValueError if no window of the context contains it completely."""
    if scores_spans:
        with_spans = replace(example, answers=tuple(spans))
        (log_score_C,) = answerer.span_scores([with_spans], against_unknown=False)
        if not np.isfinite(log_score_C).all():
            raise ValueError("--candidate: no window of the context holds it whole")
        return np.exp(log_score_C.astype(np.float64)).tolist()
    if len(spans) != 2:
        raise ValueError(f"--candidate: {answerer.path} chooses between two, here are {len(spans)}")
    first, second = spans
    variant = UnderspecifiedQuestion(
        example.context, example.question, (first, second), example.advice
    )
    group = Group((first.text, second.text), "", "", "", "none", "", (variant,) * 4)
    return answerer.subject_scores([group])[0, 0].tolist()
