"""The numbers of the confusion probes (probes spec B4 to B6): a row for every answer, and what is no mean of
rows.

Shape letters: N questions, P targets of a trial, C choices.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import softmax

from data_modules.schema import ChoiceQuestion
from evaluation.answering.interface import Answerer
from evaluation.protocols.confusion.trials import Trial
from evaluation.results import Results, Row
from evaluation.statistics import estimate, share
from metrics import confusion as of

CELL = ("probe", "sampling", "n_choices")
BIASED = ("no_question", "wrong_question", "no_right_answer")
"""Probes that leave no right answer, or nothing to tell it by: their labelled slot is pseudo-correct."""
SPLITS = 5
"""Random halves of MaxProb; the paper has one."""


def answer_rows(
    answerer: Answerer, questions: Sequence[ChoiceQuestion], trials: Sequence[Trial]
) -> Iterator[dict[str, Any]]:
    """A row for every answer: its cell, what was asked and picked, and its numbers.

    Args:
        answerer: who chooses.
        questions: the originals.
        trials: what is asked: originals before their changed versions, no_question before wrong_question.
    """
    label_N = np.array([question.label for question in questions])
    original_NC = np.full((len(questions), len(questions[0].choices)), np.nan)
    no_question_N = np.full(len(questions), np.nan)
    for trial in trials:
        at = np.array(trial.targets)
        logit_PC = np.stack(list(answerer.choice_logits(trial.questions, trial.title)))
        confidence_PC = softmax(logit_PC.astype(np.float64), axis=1)
        slot_P = np.array([question.label for question in trial.questions])
        rank_P, own_P = of.ranks(confidence_PC, slot_P), of.at_label(confidence_PC, slot_P)
        right = "pseudo_accuracy" if trial.probe in BIASED else "accuracy"
        numbers = {right: rank_P == 0, "confidence": own_P, "rank": rank_P, "maxprob": maxprob(confidence_PC)}
        numbers["tied"] = (confidence_PC == confidence_PC.max(1, keepdims=True)).sum(1) > 1
        if trial.probe == "original":
            original_NC[at] = confidence_PC
        else:
            before_PC, label_P = original_NC[at], label_N[at]
            numbers["accuracy_before"] = of.ranks(before_PC, label_P) == 0
            numbers["confidence_before"] = of.at_label(before_PC, label_P)
            numbers["maxprob_before"] = maxprob(before_PC)
        if trial.probe in BIASED:
            numbers["variance"] = of.choice_variance(confidence_PC)
            numbers["variance_ddof1"] = of.choice_variance(confidence_PC, ddof=1)
        if trial.probe == "no_question":
            no_question_N[at] = own_P
        elif trial.probe == "wrong_question" and np.isfinite(no_question_N[at]).all():
            numbers["confidence_difference"] = no_question_N[at] - own_P
        elif trial.probe == "no_right_answer":
            substituted = of.substitution(before_PC, confidence_PC, label_P)
            numbers["anc_post_minus_sac"] = substituted.anc_post_minus_sac
            numbers["anc_minus_rac"] = substituted.anc_minus_rac
        elif trial.probe == "choice_paralysis":
            numbers["paralysis"] = of.paralysis(numbers["confidence_before"], own_P)
        place = {"probe": trial.probe, "sampling": trial.sampling, "n_choices": trial.n_choices}
        for p, question in enumerate(trial.questions):
            asked = {"prompt": question.prompt, "choices": list(question.choices), "label": question.label}
            yield {
                **place,
                "trial": trial.number,
                "index": int(at[p]),
                "id": question.id,
                **asked,
                "donors": list(question.donors),
                "pick": int(confidence_PC[p].argmax()),
                "confidences": confidence_PC[p].tolist(),
                **{name: float(value_P[p]) for name, value_P in numbers.items()},
            }


def maxprob(confidence_PC: np.ndarray) -> np.ndarray:
    """The greatest confidence; to twelve decimals, so that the order of choices does not matter."""
    return np.asarray(confidence_PC.max(1).round(12))


def add_numbers(
    results: Results, checkpoint: str, rows: Sequence[Row], questions: Sequence[ChoiceQuestion]
) -> None:
    """Add what is no mean of a checkpoint's rows: hits@k, MaxProb, deviations, tests of significance and
    irregularities."""
    accuracy = 0.0
    for key, group in pd.DataFrame(rows).groupby(list(CELL), sort=False):
        cell = {"checkpoint": checkpoint, **dict(zip(CELL, key, strict=True))}
        add_deviations(results, cell, group)
        by_question = group.groupby("index")
        if cell["probe"] == "original":
            accuracy = group["accuracy"].mean()
            test = add_irregularities(results, cell, questions, group)
        elif cell["probe"] in BIASED:
            add_maxprob(results, cell, group)
            test = of.t_against(by_question["confidence"].mean(), 1 / len(questions[0].choices))
        else:
            add_hits(results, cell, group, accuracy)
            test = of.t_against(by_question["paralysis"].mean(), 0)
        results.add("t", test.statistic, n=test.n, **cell)
        results.add("p", test.p, n=test.n, **cell)


def add_mean(results: Results, measure: str, rows: pd.DataFrame, **place: Any) -> None:
    """The mean of a column of shares with its interval over questions."""
    value, interval, n, units = estimate(share("", measure), rows.assign(unit=rows["index"]))
    results.add(measure, value, interval=interval, n=n, units=units, **place)


def add_deviations(results: Results, cell: Mapping[str, Any], group: pd.DataFrame) -> None:
    """Standard errors of means over trials, and the error bars of the paper's Figure 4: standard deviations
    over questions."""
    for measure in group.columns.intersection(["accuracy", "pseudo_accuracy", "confidence"]):
        means = group.groupby("trial")[measure].mean()
        if len(means) > 1 and means.notna().all():
            results.add(f"{measure}_trial_se", means.sem(), n=len(means), **cell)
    if cell["probe"] == "wrong_question" and "confidence_difference" in group:
        by_question = group.groupby("index")["confidence_difference"].mean()
        results.add("confidence_difference_sd", by_question.std(), n=len(by_question), **cell)
    if cell["probe"] == "no_right_answer":
        for measure in ("anc_post_minus_sac", "anc_minus_rac"):
            results.add(f"{measure}_sd", group[measure].std(), n=len(group), **cell)


def add_hits(results: Results, cell: Mapping[str, Any], group: pd.DataFrame, accuracy: float) -> None:
    """hits@k of choice paralysis, and the smallest k whose hits reach `accuracy`, that of all questions with
    their own choices (the paper's Figure 6)."""
    counts = range(1, int(cell["n_choices"]) + 1)
    for k in counts:
        add_mean(results, "hits", group.assign(hits=(group["rank"] < k).astype(float)), k=k, **cell)
    reached = [k for k in counts if (group["rank"] < k).mean() >= accuracy - 1e-12]
    results.add("matching_k", reached[0], n=len(group), **cell)


def add_maxprob(results: Results, cell: Mapping[str, Any], group: pd.DataFrame) -> None:
    """MaxProb on random halves: of the first split, and the means over all; split s takes trial s, beginning
    again where there are fewer trials."""
    trials = [answers for _, answers in group.groupby("trial")]
    splits = []
    for split in range(SPLITS):
        answers = trials[split % len(trials)]
        train, test = of.halves(len(answers), split)
        before_P, after_P = answers["maxprob_before"].to_numpy(), answers["maxprob"].to_numpy()
        tau, right_original, right_changed = of.maxprob(before_P, after_P, train, test)
        outcomes = {"tau": tau, "acc_perturbed_only": right_changed.astype(float)}
        outcomes["acc_mixed"] = (right_original.astype(float) + right_changed) / 2
        splits.append(answers[["index"]].iloc[test].assign(**outcomes))
    for name, rows in (("first", splits[0]), ("", pd.concat(splits))):
        results.add("tau", rows["tau"].mean(), n=len(rows), split=name, **cell)
        for measure in ("acc_perturbed_only", "acc_mixed"):
            add_mean(results, measure, rows, split=name, **cell)


def add_irregularities(
    results: Results, cell: Mapping[str, Any], questions: Sequence[ChoiceQuestion], group: pd.DataFrame
) -> of.Significance:
    """Where right choices stand, and what a model's picks look like (probes spec B6); the test of whether
    picked choices have another length than others."""
    pick_of = dict(zip(group["index"], group["pick"], strict=True))  # once, if drawn in several trials
    originals = [questions[i] for i in pick_of]
    found = of.irregularities(
        [question.prompt for question in originals],
        [question.choices for question in originals],
        [question.label for question in originals],
        list(pick_of.values()),
    )
    for slot, share_of_labels in enumerate(found.balance):
        results.add("label_share", share_of_labels, n=found.n, slot=slot, **cell)
    for measure, words in (("words_picked", found.selected), ("words_not_picked", found.other)):
        results.add(measure, words.mean, n=words.n, interval=(words.low, words.high), **cell)
    results.add("overlap", found.overlap, n=found.vocabulary, **cell)
    return found.length
