"""One question, with and without advice: for people who want to see it.

interventune evaluate ask --checkpoint last.ckpt --context "A Tolin baker met a Kessar baker." \\
    --question "Who was rude?" --advice "Note that, origin says nothing about manners." \\
    --candidate Tolin Kessar

Shape letters: B windows, T tokens, C candidates, E boundaries (start, end).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from data_modules.schema import QAExample, Span
from evaluation.answering.interface import Asking, Compute
from evaluation.report import Evaluation
from evaluation.results import Results
from evaluation.views import Table
from storage.errors import DataError
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
    compute: Compute = Compute(),  # noqa: B008  frozen
) -> Evaluation:
    """One question, answered with and without advice.

    Args:
        checkpoint: a .ckpt, a Hugging Face folder, or a Hub name.
        context: the text to answer from.
        question: about it.
        advice: a sentence that is put right before the question.
        candidate: spans of the context to score (default: the answers).
        compute: how the model runs.
    """
    from evaluation.answering.checkpoint import QuestionCheckpoint

    for name, text in (("context", context), ("question", question)):
        if not text.strip():
            raise ValueError(f"--{name}: is empty")
    for text in (context, question, advice, *(candidate or [])):
        if half_surrogate(text):
            raise ValueError(f"{text!r}: is not UTF-8")
    candidates = [Span.locate(text, context, "--candidate") for text in candidate or []]
    answerer = QuestionCheckpoint(checkpoint, Asking(**asdict(compute)))
    examples = {"without advice": QAExample("--question", context, question)}
    if advice:
        examples["with advice"] = QAExample("--question", context, question, advice=advice)
    answers = {name: next(answerer.spans([example])) for name, example in examples.items()}
    if not candidates:
        # Yes, no and unknown, which begin at -1, stand nowhere in the context: there is no span to score.
        places = dict.fromkeys((answer.start, answer.text) for answer in answers.values())
        candidates = [Span(start, start + len(text), text) for start, text in places if start >= 0]
    results, rows = Results(("asked", "candidate"), "questions"), list[tuple[str | float, ...]]()
    for name, example in examples.items():
        scores = candidate_scores(answerer, example, candidates)
        for span, score in zip(candidates, scores, strict=True):
            results.add("score", score, n=1, asked=name, candidate=span.text)
        rows.append((name, answers[name].text or "–", *scores))
    caption = "S = sqrt(p_start * p_end), the span score of UnQover; over all tokens of the best window."
    header = ("asked", "answer", *(f"S({span.text})" for span in candidates))
    return Evaluation(
        title="One question",
        results=results,
        views=[Table(question, header, tuple(rows), caption if candidates else "", lead=2)],
        headline="; ".join(f"{name}: {answer.text or 'no answer'}" for name, answer in answers.items()) + ".",
        about={
            "protocol": "ask",
            "checkpoint": checkpoint,
            "context": context,
            "question": question,
            "advice": advice,
            "candidate": candidate or [],
            "dtype": compute.dtype,
        },
        examples=[{"asked": name, "answer": answer.text} for name, answer in answers.items()],
    )


def candidate_scores(
    answerer: QuestionCheckpoint, example: QAExample, candidates: Sequence[Span]
) -> list[float]:
    """S of every candidate, the largest over the windows that hold it.

    Raises:
        DataError: no window holds a candidate, or its first or last token reaches beyond it.
    """
    import torch

    from data_modules.batching.sets import Collator
    from data_modules.encoding.windows import encode_texts, whole_span
    from data_modules.schema import query_text
    from models.heads.span import candidate_log_probs

    text = (example.context, query_text(example.question, example.advice), example.id)
    rows = list(encode_texts([text], answerer.tokenizer, answerer.encoding))
    inputs, _, shift_B = Collator(answerer.tokenizer, answerer.encoding.pad_to_multiple_of).pad(rows)
    with torch.inference_mode(), answerer.autocast():
        output = answerer.model(answerer.moved(inputs))
    best = []
    for span in candidates:
        scores = []
        for b, row in enumerate(rows):
            ends = whole_span(span, example.context, row, "--candidate")
            if ends is not None:
                start, end = (torch.tensor([[t + int(shift_B[b])]], device=answerer.device) for t in ends)
                log_prob_1CE = candidate_log_probs(
                    output.start_BT[b : b + 1], output.end_BT[b : b + 1], start, end
                )
                scores.append(float(log_prob_1CE.mean(-1).exp()))
        if not scores:
            raise DataError(f"--candidate {span.text!r}: no window of the context holds it whole")
        best.append(max(scores))
    return best
