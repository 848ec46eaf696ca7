"""Variants of questions: the one way from originals to what is trained on, evaluated and written.

made, rejected = made_of(read_questions(source), "ts_r")
perturb(with_rationale(example), "ts_r")  # a QAExample, or Rejected with its reason
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial

from data_modules.schema import REFORMATTED, QAExample, Rejected, Span, Variant
from storage.errors import DataError

logger = logging.getLogger(__name__)

ANNOTATED = frozenset({"coqa", "hotpotqa", "stories"})
"""Data sets whose rationales are annotated: a question without one has none."""


def perturb(
    example: QAExample, variant: Variant, sentences: Mapping[str, str] | None = None
) -> QAExample | Rejected:
    """One variant of an original with its rationale, or why there is none (deletion.py, reformatting.py).

    A variant keeps id, question and history; its references are the original's. Everything is deterministic.

    Args:
        example: an original; as `os`, a variant stays what it is.
        variant: which one.
        sentences: by id what `ts_r_aug` and `os_r_aug` append in place of the bare answer (default: frames).

    Raises:
        DataError: the example is a variant already.
    """
    if variant == "os":
        return replace(example, kept=((0, len(example.context)),)) if example.variant == "os" else example
    if example.variant != "os":
        raise DataError(f"question {example.id!r}: is a variant already ({example.variant}); name originals")
    from data_modules.interventions.deletion import delete, truncate

    if variant in REFORMATTED:
        from data_modules.interventions.reformatting import reformat

        made = reformat(example, variant)
    elif variant == "ts":
        made = truncate(example)
    elif variant.endswith("_aug"):
        from data_modules.interventions.augmentation import given_sentence, template_sentence

        given = None if sentences is None else partial(given_sentence, sentences=sentences)
        made = delete(example, variant, given or template_sentence)
    else:
        made = delete(example, variant, None)
    return made if isinstance(made, Rejected) else replace(made, variant=variant, references=example.gold)


def made_of(
    examples: Iterable[QAExample], variant: Variant, sentences: Mapping[str, str] | None = None
) -> tuple[list[QAExample], Counter[str]]:
    """One variant of the originals that allow it, and how many do not, by reason."""
    found = [perturb(with_rationale(example), variant, sentences) for example in examples]
    rejected = Counter(one.reason for one in found if isinstance(one, Rejected))
    return [one for one in found if isinstance(one, QAExample)], rejected


def with_rationale(example: QAExample) -> QAExample:
    """An example with its rationale: the annotated one; in data sets without such annotation the sentence
    that holds the first answer (two, if the answer runs over a boundary). An example without an answer span
    stays as it is."""
    if example.rationale or example.dataset in ANNOTATED:
        return example
    if not example.answers or not example.answers[0].text.strip():
        return example
    from data_modules.interventions.deletion import sentence_spans, trim

    first, last = trim(example.context, example.answers[0].start, example.answers[0].end)
    spans = [(start, end) for start, end in sentence_spans(example.context) if first < end and start < last]
    start, end = spans[0][0], spans[-1][1]
    return replace(example, rationale=(Span(start, end, example.context[start:end]),))


def usual_variants(dataset: str) -> list[Variant]:
    """Those of the paper's Tables 4 and 5."""
    return ["os", "os_r"] if dataset == "hotpotqa" else ["os", "ts", "ts_r"]


def listed(rejected: Counter[str]) -> str:
    """How many were rejected, and why, as ` (2 no rationale)`; empty where none was."""
    reasons = ", ".join(f"{count} {reason}" for reason, count in rejected.most_common())
    return f" ({reasons})" if reasons else ""


def report_rejected(kept: int, rejected: Counter[str], variant: Variant, what: str) -> None:
    """Log how many examples allow no such variant, as `kept 3 of 5 (2 no rationale)`; DataError where none
    does."""
    counts = f"kept {kept} of {kept + rejected.total()}{listed(rejected)}"
    if rejected:
        logger.info("%s, %s: %s", what, variant, counts)
    if not kept:
        raise DataError(f"{what}: no question is left in variant {variant}: {counts}")
