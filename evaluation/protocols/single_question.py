"""One question, with and without advice, for a direct look at a model.

S, of an encoder's answers, is the span score of `bias`: sqrt(p_start p_end) over all tokens of its
best window.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from interventune.data_modules.schema.questions import QAExample, Span
from interventune.evaluation.answering.interface import KINDS, Compute, kind_of, open_answerer
from interventune.evaluation.protocol import Evaluation, Results, View, plain


def evaluate(
    *, checkpoint: str, context: str, question: str, advice: str = "", compute: Compute
) -> Evaluation:
    """Answer one question, with and without advice, and score an encoder's answers.

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
        compute: model options.
    """
    example = QAExample("--question", context, question)
    examples = {"without advice": example}
    if advice:
        examples["with advice"] = replace(example, advice=advice)
    answerer: Any = open_answerer(checkpoint, compute)
    questions = list(examples.values())
    results = Results(("asked", "candidate"), "questions")
    texts = {
        name: answer.text or answer.failure or "no answer"
        for name, answer in zip(examples, sorted(answerer.answers(questions)), strict=True)
    }
    if "mentions" in KINDS[kind_of(checkpoint)].abilities:
        # Yes, no and unknown, which begin at -1, are not in the context.
        starts = {span.text: span.start for span in answerer.spans(questions) if span.start >= 0}
        spans = tuple(Span(start, start + len(text), text) for text, start in starts.items())
        for name, example in examples.items():
            with_spans = replace(example, answers=spans)
            (log_score_C,) = answerer.span_scores([with_spans], against_unknown=False)
            scores = zip(spans, np.exp(log_score_C.astype(np.float64)), strict=True)
            results.extend(
                plain("score", score, 1, asked=name, candidate=span.text) for span, score in scores
            )
    return Evaluation(
        title="One question",
        results=results,
        views=[View(f"{question} (score, 0 to 1)", ("candidate",), {"score": "S"}, across="asked")],
        headline="; ".join(f"{name}: {text}" for name, text in texts.items()) + ".",
        examples=[{"asked": name, "answer": text} for name, text in texts.items()],
    )
