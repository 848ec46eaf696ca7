"""One question, with and without advice: for people who want to see it.

python -m evaluation ask --checkpoint last.ckpt --context "A Tolin baker met a Kessar baker." \\
    --question "Who was rude?" --advice "Note that, origin says nothing about manners." \\
    --candidate Tolin Kessar

Shape letters: B windows, T tokens, C candidates, E boundaries (start, end).
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from evaluation.old_flags import add_prediction_arguments
from evaluation.old_report import Report
from evaluation.old_tables import Table

if TYPE_CHECKING:
    from data_modules.schema import Span
    from evaluation.answering.predictor import Predictor

SETTINGS = ("protocol", "checkpoint", "context", "question", "advice", "candidate", "precision")
"""Flags that the answer depends on."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of this protocol."""
    parser.add_argument("--checkpoint", required=True, metavar="PATH", help="a .ckpt, a folder or a Hub name")
    parser.add_argument("--context", required=True, help="the text to answer from")
    parser.add_argument("--question", required=True)
    parser.add_argument("--advice", default="", help="a sentence that is put right before the question")
    parser.add_argument(
        "--candidate",
        nargs="+",
        default=[],
        metavar="TEXT",
        help="spans of the context to score (default: the answers found)",
    )
    add_prediction_arguments(parser)


def run(args: argparse.Namespace) -> Report:
    """Ask without the advice, then with it."""
    from data_modules.schema import Span
    from evaluation.answering.predictor import Predictor

    for name in ("context", "question"):
        if not getattr(args, name).strip():
            raise ValueError(f"--{name}: is empty")
    candidates = [Span.locate(text, args.context, "--candidate") for text in args.candidate]
    predictor = Predictor.of(args.checkpoint, args)
    asked = {"without advice": ""} | ({"with advice": args.advice} if args.advice else {})
    answers = {name: answer(predictor, args.context, args.question, advice) for name, advice in asked.items()}
    if not candidates:
        # Yes, no and unknown stand nowhere in the context: there is no span to score.
        candidates = list(dict.fromkeys(span for span in answers.values() if span.start >= 0))
    scores = {
        name: candidate_scores(predictor, args.context, args.question, advice, candidates)
        for name, advice in asked.items()
    }
    rows = tuple((name, answers[name].text or "–", *scores[name]) for name in asked)
    header = ("asked", "answer", *(f"S({span.text})" for span in candidates))
    caption = (
        "S = sqrt(p_start * p_end), the span score of UnQover; over all tokens of the best window."
        if candidates
        else ""
    )
    metrics = {
        f"{name.replace(' ', '_')}/{span.text}": score
        for name in asked
        for span, score in zip(candidates, scores[name], strict=True)
    }
    return Report(
        title="One question",
        metrics=metrics,
        tables=(Table(args.question, header, rows, caption),),
        about={key: value for key, value in vars(args).items() if key in SETTINGS},
        examples=[{"asked": name, "answer": answers[name].text} for name in asked],
    )


def answer(predictor: Predictor, context: str, question: str, advice: str) -> Span:
    """The model's answer: cut from the context, or, beginning at -1, yes, no, unknown, or nothing."""
    from data_modules.schema import QAExample, Span

    example = QAExample("--question", context, question, advice=advice)
    found = next(iter(predictor.answers([example])))
    return Span(found.start, found.start + len(found.text), found.text)


def candidate_scores(
    predictor: Predictor, context: str, question: str, advice: str, candidates: list[Span]
) -> list[float]:
    """S of every candidate, the largest over the windows that hold it.

    Raises:
        DataError: no window holds a candidate, or its first or last token reaches beyond it.
    """
    import torch

    from data_modules.batching.collate import Collator
    from data_modules.encoding.windows import encode_texts, query_text, whole_span
    from evaluation.answering.predictor import to_device
    from models.heads.span import candidate_log_probs
    from storage.errors import DataError

    text = (context, query_text(question, advice), "--question")
    rows = list(encode_texts([text], predictor.tokenizer, predictor.encoding))
    inputs, _, shift_B = Collator(predictor.tokenizer, predictor.encoding.pad_to_multiple_of).pad(rows)
    with torch.inference_mode(), predictor.autocast():
        output = predictor.model(to_device(inputs, predictor.device))
    best = []
    for span in candidates:
        found = []
        for b, row in enumerate(rows):
            at = whole_span(span, context, row, "--candidate")
            if at is not None:
                start, end = (torch.tensor([[i + int(shift_B[b])]], device=predictor.device) for i in at)
                log_prob_1CE = candidate_log_probs(
                    output.start_BT[b : b + 1], output.end_BT[b : b + 1], start, end
                )
                found.append(float(log_prob_1CE.mean(-1).exp()))
        if not found:
            raise DataError(f"--candidate {span.text!r}: no window of the context holds it whole")
        best.append(max(found))
    return best
