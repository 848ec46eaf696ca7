"""The tables of the confusion protocol, in the shape of the paper's."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from evaluation.old_tables import Cell, Table, format_cell
from evaluation.protocols.confusion.figures import TITLES
from evaluation.protocols.confusion.results import BiasResult, ConfusionResult, ParalysisResult
from evaluation.protocols.confusion.test_tables import (
    bias_tests,
    irregularity_tables,
    p_value,
    paralysis_tests,
)
from metrics.confusion.measures import Spread, spread


def tables(results: Sequence[ConfusionResult]) -> list[Table]:
    """All tables; the console shows the first three."""
    found: list[Table] = []
    if results[0].bias:
        found.append(bias_table(results))
    if results[0].paralysis:
        found.append(paralysis_table(results))
    if results[0].bias:
        found.append(maxprob_table(results))
    if len(results[0].difference):
        found.append(difference_table(results))
    if "no_right_answer" in results[0].bias:
        found.append(substitution_table(results))
    if results[0].bias:
        found.append(bias_tests(results))
    if results[0].paralysis:
        found.append(paralysis_tests(results))
    return [*found, *irregularity_tables(results)]


def plus_minus(found: Spread) -> str:
    """Mean and standard error.

    >>> plus_minus(Spread(0.72, 0.004, 0.0017, 5)), plus_minus(Spread(0.5, math.nan, math.nan, 1))
    ('0.7200 ± 0.0017', '0.5000')
    """
    if not math.isfinite(found.se):
        return format_cell(found.mean)
    return f"{format_cell(found.mean)} ± {format_cell(found.se)}"


def bias_table(results: Sequence[ConfusionResult]) -> Table:
    """Pseudo-accuracy and confidence."""
    rows = tuple(
        (
            name,
            TITLES[one.probe],
            len(one.targets),
            one.pre_accuracy,
            plus_minus(one.pseudo_accuracy),
            one.chance,
            float(one.pre_P.mean()),
            plus_minus(spread(one.post_SP.mean(1))),
            spread(one.post_SP.ravel()).sd,
            one.variance,
        )
        for name, one in _biases(results)
    )
    return Table(
        "Prior bias",
        (
            "checkpoint",
            "probe",
            "n",
            "accuracy",
            "pseudo-accuracy",
            "chance",
            "confidence before",
            "after",
            "sd over questions",
            "variance",
        ),
        rows,
        "Accuracy and confidence before: with the original question. Pseudo-accuracy and confidence after: "
        "of the slot where the right choice stood. Variance: the paper's definition 1, over the choices of a "
        "question, in the mean.",
    )


def paralysis_table(results: Sequence[ConfusionResult]) -> Table:
    """hits@k and paralysis."""
    rows = tuple(
        (
            name,
            one.sampling,
            one.n,
            len(one.lost),
            plus_minus(one.pre_accuracy),
            *_first_hits(one),
            one.matching_k,
            plus_minus(one.paralysis),
            spread(one.lost).sd,
        )
        for name, one in _paralyses(results)
    )
    return Table(
        "Choice paralysis",
        (
            "checkpoint",
            "sampling",
            "choices",
            "n",
            "accuracy before",
            "hits@1",
            "hits@2",
            "hits@3",
            "k to match",
            "paralysis",
            "sd over questions",
        ),
        rows,
        "n: questions drawn, over all trials. Accuracy before: of the drawn questions with their own "
        "choices. k to match: the smallest k whose hits@k reaches it. Paralysis: confidence in the right "
        "choice before less that after (definition 2 with the sign of the paper's words; its formula is the "
        "negative).",
    )


def maxprob_table(results: Sequence[ConfusionResult]) -> Table:
    """Table 2 of the paper."""
    rows = tuple(
        (
            name,
            TITLES[one.probe],
            one.maxprob[0].n,
            *(getattr(one.maxprob[0], key) for key in MAXPROB),
            *(_mean_sd([getattr(split, key) for split in one.maxprob]) for key in MAXPROB),
        )
        for name, one in _biases(results)
    )
    shown = ("tau", "changed only", "mixed")
    return Table(
        "Calibration by MaxProb",
        ("checkpoint", "probe", "n", *shown, *(f"mean {what} (sd)" for what in shown)),
        rows,
        "A question counts as unchanged iff its greatest confidence is above tau, the mean over one random "
        "half of the questions and of their changed versions. n: questions in the other half. Changed only: "
        "the share of changed ones told right, which the paper's Table 2 seems to hold; mixed: of both. "
        "First split, and the mean of five, each with a trial of its own.",
    )


MAXPROB = ("tau", "acc_perturbed_only", "acc_mixed")


def difference_table(results: Sequence[ConfusionResult]) -> Table:
    """Table 1 of the paper."""
    rows = []
    for result in results:
        wrong, test = result.bias["wrong_question"], result.difference_test
        assert test is not None
        found = spread(result.difference)
        rows.append(
            (
                result.name,
                found.n,
                plus_minus(wrong.pseudo_accuracy),
                found.mean,
                found.sd,
                found.se,
                p_value(test.p),
            )
        )
    return Table(
        "Wrong question against no question",
        (
            "checkpoint",
            "n",
            "pseudo-accuracy, wrong question",
            "average confidence difference",
            "sd over questions",
            "se over questions",
            "p (greater than 0)",
        ),
        tuple(rows),
        "The difference is the confidence with no question less that with a wrong one (mean over trials): "
        "above 0 if a wrong question misleads. The paper's Table 1; paired one-sided t test, ours.",
    )


def substitution_table(results: Sequence[ConfusionResult]) -> Table:
    """ANC, RAC and SAC."""
    rows = []
    for result in results:
        one = result.bias["no_right_answer"]
        row: list[Cell] = [result.name, len(one.targets), plus_minus(one.pseudo_accuracy)]
        for name, gap_SP in one.substitution.items():
            over_trials = spread(gap_SP.mean(1))
            # What is before the substitution is the same in every trial: an error of 0 would say nothing.
            mean: Cell = over_trials.mean if name == "anc_minus_rac" else plus_minus(over_trials)
            row += [mean, spread(gap_SP.ravel()).sd]
        rows.append(tuple(row))
    return Table(
        "No right answer",
        (
            "checkpoint",
            "n",
            "substitute picked",
            "others – substitute, after",
            "sd over questions",
            "others – right, before",
            "sd over questions",
        ),
        tuple(rows),
        "Differences of confidences: ANC' – SAC (0 without bias) and ANC – RAC (-1 for a model that knows "
        "all). What the paper's Figure 4 draws as standard errors can only be standard deviations over "
        "questions.",
    )


def _mean_sd(values: Sequence[float]) -> str:
    found = spread(values)
    return f"{format_cell(found.mean)} ({format_cell(found.sd)})"


def _first_hits(one: ParalysisResult, count: int = 3) -> list[Cell]:
    """hits@1 to hits@count; a dash where there are fewer choices."""
    return [plus_minus(spread(one.hits_SK[:, k])) if k < one.n else "–" for k in range(count)]


def _biases(results: Sequence[ConfusionResult]) -> Iterator[tuple[str, BiasResult]]:
    for result in results:
        for one in result.bias.values():
            yield result.name, one


def _paralyses(results: Sequence[ConfusionResult]) -> Iterator[tuple[str, ParalysisResult]]:
    for result in results:
        for one in result.paralysis:
            yield result.name, one
