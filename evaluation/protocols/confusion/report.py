"""The report of the confusion protocol: flat metrics, and a row for every answer of every model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from data_modules.schema import ChoiceQuestion
from evaluation.old_report import Report
from evaluation.protocols.confusion.figures import figures
from evaluation.protocols.confusion.results import (
    BiasResult,
    ConfusionResult,
    ParalysisResult,
)
from evaluation.protocols.confusion.runs import Condition, ModelRun, Plan
from evaluation.protocols.confusion.tables import tables
from metrics.confusion.measures import Spread, confidences, spread
from metrics.confusion.significance import Significance

Metrics = Iterator[tuple[str, float | int]]


def confusion_report(
    examples: Sequence[ChoiceQuestion],
    plan: Plan,
    runs: Sequence[ModelRun],
    results: Sequence[ConfusionResult],
    about: Mapping[str, Any],
) -> Report:
    """The report of all models on one set of questions."""
    metrics: dict[str, float | int] = {"n": len(examples), "choices": len(examples[0].choices)}
    for result in results:
        metrics |= dict(metric_keys(result, f"{result.name}/" if len(results) > 1 else ""))
    found = tables(results)
    return Report(
        title="Confusion probes",
        metrics=metrics,
        tables=tuple(found),
        about=dict(about),
        notes=tuple(notes(examples, plan, results)),
        figures=figures(results),
        examples=rows(examples, runs),
        console=min(3, len(found)),
    )


def notes(
    examples: Sequence[ChoiceQuestion], plan: Plan, results: Sequence[ConfusionResult]
) -> Iterator[str]:
    """What the numbers mean, and over what they are."""
    count, chance = len(results[0].original.irregular.balance), 1 / len(examples[0].choices)
    yield (
        f"{len(examples)} questions with {count} choices each; guessing is right in {chance:.3f} of them. A "
        "probe takes away what the right choice could be told by. Its slot is then pseudo-correct: a model "
        "without prior bias picks it by chance, with a confidence of 1 by the number of choices."
    )
    yield (
        f"{plan.trials} trial(s) of every probe with random texts, seeds {plan.seed} to "
        f"{plan.seed + plan.trials - 1}. ± is the standard error over trials."
    )
    if plan.no_shared_words and "wrong_question" in results[0].bias:
        asked = len(results[0].bias["wrong_question"].targets)
        yield (
            f"Wrong questions have no word in common with the right one; {len(examples) - asked} of "
            f"{len(examples)} questions have no such other one and are left out."
        )
    if results[0].paralysis:
        drawn = min(plan.instances, len(examples))
        yield (
            f"Choice paralysis: {drawn} questions drawn in each trial, the same for every number of choices. "
            f"Heuristic: the questions whose {plan.similar_by} are most similar to the prompt. A question "
            "with the same prompt gives no choices, since they could be right."
        )


def metric_keys(result: ConfusionResult, prefix: str) -> Metrics:
    """Flat keys of one model."""
    original = result.original
    yield f"{prefix}original/accuracy", original.accuracy
    yield from spread_keys(f"{prefix}original/confidence", original.confidence)
    for probe, found in result.bias.items():
        yield from bias_keys(found, f"{prefix}{probe}/")
    if result.difference_test:
        yield from spread_keys(f"{prefix}confidence_difference", spread(result.difference))
        yield from test_keys(f"{prefix}confidence_difference", result.difference_test)
    for one in result.paralysis:
        yield from paralysis_keys(one, f"{prefix}choice_paralysis/{one.sampling}/{one.n}/")
    irregular = original.irregular
    for slot, share in enumerate(irregular.balance):
        yield f"{prefix}irregularities/balance/{slot}", share
    for name, length in (("selected", irregular.selected), ("other", irregular.other)):
        for what, value in zip(("mean", "low", "high", "n"), length, strict=True):
            yield f"{prefix}irregularities/words/{name}/{what}", value
    yield from test_keys(f"{prefix}irregularities/words", irregular.length)
    yield f"{prefix}irregularities/overlap", irregular.overlap
    yield f"{prefix}irregularities/overlap_words", irregular.vocabulary


def bias_keys(found: BiasResult, prefix: str) -> Metrics:
    """Of one of the first three probes."""
    yield f"{prefix}n", len(found.targets)
    yield f"{prefix}chance", found.chance
    yield f"{prefix}accuracy_before", found.pre_accuracy
    yield from spread_keys(f"{prefix}pseudo_accuracy", found.pseudo_accuracy)
    yield f"{prefix}confidence_before", float(found.pre_P.mean())
    # Over questions `_sd`, over trials `_se`: what the paper calls the one was the other (spec B4).
    yield f"{prefix}confidence", float(found.post_SP.mean())
    yield f"{prefix}confidence_sd", spread(found.post_SP.ravel()).sd
    yield f"{prefix}confidence_se", spread(found.post_SP.mean(1)).se
    yield f"{prefix}variance", found.variance
    yield f"{prefix}variance_ddof1", found.variance_ddof1
    for name, gap_SP in found.substitution.items():
        yield f"{prefix}{name}", float(gap_SP.mean())
        yield f"{prefix}{name}_sd", spread(gap_SP.ravel()).sd
        yield f"{prefix}{name}_se", spread(gap_SP.mean(1)).se
    for name, test in found.tests.items():
        yield from test_keys(f"{prefix}{name}", test)
    for name in ("tau", "acc_perturbed_only", "acc_mixed"):
        values = [getattr(split, name) for split in found.maxprob]
        yield f"{prefix}maxprob/{name}", values[0]
        yield f"{prefix}maxprob/{name}_mean", spread(values).mean
        yield f"{prefix}maxprob/{name}_sd", spread(values).sd
    yield f"{prefix}maxprob/n", found.maxprob[0].n


def paralysis_keys(one: ParalysisResult, prefix: str) -> Metrics:
    """Of choice paralysis with one sampling and number of choices."""
    yield f"{prefix}n", len(one.lost)
    yield from spread_keys(f"{prefix}accuracy_before", one.pre_accuracy)
    for k, values in enumerate(one.hits_SK.T, 1):
        yield from spread_keys(f"{prefix}hits@{k}", spread(values))
    yield f"{prefix}matching_k", one.matching_k
    yield from spread_keys(f"{prefix}confidence_before", one.pre_confidence)
    yield from spread_keys(f"{prefix}confidence", one.confidence)
    yield from spread_keys(f"{prefix}paralysis", one.paralysis)
    yield f"{prefix}paralysis_instances_sd", spread(one.lost).sd
    for name, test in one.tests.items():
        yield from test_keys(f"{prefix}{name}", test)


def spread_keys(name: str, found: Spread) -> Metrics:
    """Mean, standard deviation and error of what there are several of."""
    yield name, found.mean
    yield f"{name}_sd", found.sd
    yield f"{name}_se", found.se


def test_keys(name: str, found: Significance) -> Metrics:
    """Statistic and p."""
    yield f"{name}/statistic", found.statistic
    yield f"{name}/p", found.p


def rows(examples: Sequence[ChoiceQuestion], runs: Sequence[ModelRun]) -> Iterator[dict[str, Any]]:
    """Every answer: of an original with its texts, of a changed question with the texts that changed."""
    for run in runs:
        before_NC = confidences(run.original_NC)
        for i, example in enumerate(examples):
            row = {"prompt": example.prompt, "choices": list(example.choices)}
            yield {"checkpoint": run.name, "probe": "original", **answer(i, example, before_NC[i]), **row}
        for condition, logit_PC in zip(run.conditions, run.logits, strict=True):
            after_PC = confidences(logit_PC)
            for i, example, after_C in zip(condition.targets, condition.examples, after_PC, strict=True):
                yield {
                    "checkpoint": run.name,
                    "probe": condition.probe,
                    "trial": condition.trial,
                    # As text, as in the keys of the numbers that the row stands behind.
                    **(
                        {"sampling": condition.sampling, "n_choices": str(condition.n)} if condition.n else {}
                    ),
                    **answer(i, example, after_C),
                    "confidence_before": float(before_NC[i, examples[i].label]),
                    "right_before": int(before_NC[i].argmax()) == examples[i].label,
                    "donors": list(example.donors),
                    **changed_texts(condition, example),
                }


def answer(index: int, example: ChoiceQuestion, confidence_C: np.ndarray) -> dict[str, Any]:
    """What a model makes of one question."""
    pick = int(confidence_C.argmax())
    return {
        "index": index,
        "id": example.id,
        "label": example.label,
        "pick": pick,
        "right": pick == example.label,
        "confidences": [float(value) for value in confidence_C],
    }


def changed_texts(condition: Condition, example: ChoiceQuestion) -> dict[str, Any]:
    """The texts that differ from the original's."""
    if condition.probe == "choice_paralysis":
        return {"choices": list(example.choices)}
    if condition.probe == "no_right_answer":
        return {"substitute": example.choices[example.label]}
    return {"prompt": example.prompt}
