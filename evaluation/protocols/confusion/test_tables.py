"""Tables of the confusion protocol: tests, and what a set and the picks of a model look like."""

from __future__ import annotations

import math
from collections.abc import Sequence

from evaluation.old_tables import Table
from evaluation.protocols.confusion.figures import TITLES
from evaluation.protocols.confusion.results import BiasResult, ConfusionResult, ParalysisResult
from metrics.confusion.irregularities import Interval

OURS = "The paper names no tests; these are ours. "


def p_value(p: float) -> str:
    """Two digits that count.

    >>> p_value(0.0312), p_value(1e-30), p_value(math.nan)
    ('0.031', '<1e-16', '–')
    """
    if not math.isfinite(p):
        return "–"
    return "<1e-16" if p < 1e-16 else f"{p:.2g}"


def bias_tests(results: Sequence[ConfusionResult]) -> Table:
    """p-values of the first three probes."""
    rows = tuple(
        (
            result.name,
            TITLES[one.probe],
            len(one.targets),
            p_value(one.tests["confidence_against_chance"].p),
            p_value(one.tests["confidence_before_after"].p),
            p_value(_greatest(one, "accuracy_against_chance_")),
            p_value(_greatest(one, "accuracy_before_after_")),
            p_value(one.tests["accuracy_against_chance_over_trials"].p),
            p_value(one.tests["variance_against_zero"].p),
        )
        for result in results
        for one in result.bias.values()
    )
    return Table(
        "Tests of prior bias (p)",
        (
            "checkpoint",
            "probe",
            "n",
            "confidence = chance (t)",
            "confidence before = after (paired t)",
            "pseudo-accuracy = chance (binomial)",
            "right before = after (McNemar)",
            "pseudo-accuracy = chance (t over trials)",
            "variance = 0 (t)",
        ),
        rows,
        OURS + "Of binomial and McNemar, which are exact, the greatest p of all trials. The last is what the "
        "paper states; a variance is never below 0, so that it says nothing: read the others.",
    )


def paralysis_tests(results: Sequence[ConfusionResult]) -> Table:
    """p-values of choice paralysis."""
    rows = tuple(
        (
            result.name,
            one.sampling,
            one.n,
            len(one.lost),
            p_value(one.tests["accuracy_before_after_over_trials"].p),
            p_value(_greatest(one, "accuracy_before_after_")),
            p_value(_greatest(one, "confidence_before_after_")),
        )
        for result in results
        for one in result.paralysis
    )
    return Table(
        "Tests of choice paralysis (p)",
        (
            "checkpoint",
            "sampling",
            "choices",
            "n",
            "accuracy before = hits@1 (paired t over trials)",
            "right before = after (McNemar)",
            "confidence before = after (paired t)",
        ),
        rows,
        OURS + "Of the last two the greatest p of all trials.",
    )


def irregularity_tables(results: Sequence[ConfusionResult]) -> list[Table]:
    """Label balance (of the set), lengths and overlap (of what each model picks)."""
    balance = results[0].original.irregular.balance
    n = results[0].original.irregular.n
    slots = Table(
        "Where the right choice stands",
        ("slot", "share", "questions"),
        tuple((str(slot), share, round(share * n)) for slot, share in enumerate(balance)),
    )
    rows = tuple(
        (
            result.name,
            found.n,
            _interval(found.selected),
            _interval(found.other),
            p_value(found.length.p),
            found.overlap,
            found.vocabulary,
        )
        for result in results
        for found in [result.original.irregular]
    )
    picks = Table(
        "Irregularities of what is picked",
        (
            "checkpoint",
            "n",
            "words of picked choices [95 %]",
            "of the others [95 %]",
            "p (Welch's t)",
            "overlap with the prompt (r)",
            "words in it",
        ),
        rows,
        "On the original questions. Words: split at white space; the interval is 1.96 standard errors. "
        "Overlap: Pearson's r of the frequencies of words (runs of word characters, lower case; ours) shared "
        "with the prompt, in picked and in other choices. Interval, test and split into words are ours.",
    )
    return [slots, picks]


def _interval(found: Interval) -> str:
    return f"{found.mean:.2f} [{found.low:.2f}, {found.high:.2f}]"


def _greatest(one: BiasResult | ParalysisResult, name: str) -> float:
    """The greatest p of the tests that end in the number of a trial; one that cannot be made counts as 1."""
    found = [test.p for key, test in one.tests.items() if key.removeprefix(name).isdigit()]
    return max(1.0 if math.isnan(p) else p for p in found)
