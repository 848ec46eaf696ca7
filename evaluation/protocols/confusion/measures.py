"""The numbers of the confusion probes (probes spec B4, B5): a row for every answer, and numbers
that are not means of rows.

Shape letters: N questions, P targets of a trial, C choices.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import softmax

from interventune.data_modules.schema.questions import ChoiceQuestion
from interventune.evaluation.answering.interface import Answerer
from interventune.evaluation.protocol import Number, Row, estimate, plain, share
from interventune.metrics import confusion as metrics

from .trials import Trial

CELL = ("probe", "sampling", "n_choices")
BIASED = ("no_question", "wrong_question", "no_right_answer")
"""Probes without a right answer, or without the means to find it: their labelled slot is
pseudo-correct.
"""


def answer_rows(
    answerer: Answerer, questions: Sequence[ChoiceQuestion], trials: Sequence[Trial]
) -> Iterator[dict[str, Any]]:
    """Yield a row for every answer: its cell, the question and the pick, and its numbers.

    Args:
        answerer: the model that chooses.
        questions: the originals.
        trials: originals before their changed versions, no_question before wrong_question.
    """
    label_N = np.array([question.label for question in questions])
    original_NC = np.full((len(questions), len(questions[0].choices)), np.nan)
    no_question_N = np.full(len(questions), np.nan)
    for trial in trials:
        at = np.array(trial.targets)
        kind = f" {trial.sampling} {trial.n_choices}" if trial.sampling else ""
        title = f"{trial.probe}{kind}, trial {trial.number + 1}"
        logit_PC = np.stack(list(answerer.choice_logits(trial.questions, title)))
        confidence_PC = softmax(logit_PC.astype(np.float64), axis=1)
        slot_P = np.array([question.label for question in trial.questions])
        rank_P = metrics.ranks(confidence_PC, slot_P)
        own_P = metrics.at_label(confidence_PC, slot_P)
        right = "pseudo_accuracy" if trial.probe in BIASED else "accuracy"
        numbers = {right: rank_P == 0, "confidence": own_P, "rank": rank_P}
        if trial.probe == "original":
            original_NC[at] = confidence_PC
        else:
            before_PC, label_P = original_NC[at], label_N[at]
            numbers["accuracy_before"] = metrics.ranks(before_PC, label_P) == 0
            numbers["confidence_before"] = metrics.at_label(before_PC, label_P)
        if trial.probe in BIASED:
            numbers["variance"] = metrics.choice_variance(confidence_PC)
            if trial.number == 0:
                numbers |= maxprob_numbers(before_PC, confidence_PC)
        if trial.probe == "no_question":
            no_question_N[at] = own_P
        elif trial.probe == "wrong_question" and np.isfinite(no_question_N[at]).all():
            numbers["confidence_difference"] = no_question_N[at] - own_P
        elif trial.probe == "no_right_answer":
            numbers["anc_post_minus_sac"] = metrics.others_less_own(confidence_PC, label_P)
            numbers["anc_minus_rac"] = metrics.others_less_own(before_PC, label_P)
        elif trial.probe == "choice_paralysis":
            numbers["paralysis"] = numbers["confidence_before"] - own_P  # Definition 2
        place = {"probe": trial.probe, "sampling": trial.sampling, "n_choices": trial.n_choices}
        for p, question in enumerate(trial.questions):
            asked = {
                "prompt": question.prompt,
                "choices": list(question.choices),
                "label": question.label,
            }
            found = {
                "pick": int(confidence_PC[p].argmax()),
                "confidences": confidence_PC[p].tolist(),
            }
            found |= {
                name: float(value_P[p])
                for name, value_P in numbers.items()
                if np.isfinite(value_P[p])
            }
            ids = {"trial": trial.number, "index": int(at[p]), "id": question.id}
            yield {**place, **ids, **asked, "donors": list(question.donors), **found}


def maxprob_numbers(before_PC: np.ndarray, after_PC: np.ndarray) -> dict[str, np.ndarray]:
    """MaxProb on a random half of the questions, as in the paper's Table 2; NaN for the half that
    sets tau. Confidences are rounded to twelve decimals, so that the order of choices does not
    matter.
    """
    before_P, after_P = before_PC.max(1).round(12), after_PC.max(1).round(12)
    train, test = metrics.halves(len(before_P), 0)
    tau, right_original, right_changed = metrics.maxprob(before_P, after_P, train, test)
    outcomes = {
        "tau": tau,
        "acc_perturbed_only": right_changed,
        "acc_mixed": np.mean([right_original, right_changed], axis=0),
    }
    numbers = {name: np.full(len(before_P), np.nan) for name in outcomes}
    for name, outcome_P in outcomes.items():
        numbers[name][test] = outcome_P
    return numbers


def tests_and_hits(rows: Sequence[Row], _: Sequence[str], chance: float) -> Iterator[Number]:
    """Yield the numbers that are not means of rows: hits@k, standard errors of means over trials,
    and p of t tests over questions (of the confidence against chance; of paralysis against none).
    """
    accuracy, by = np.nan, ["checkpoint", *CELL]
    for key, group in pd.DataFrame(rows).groupby(by, sort=False):
        cell: dict[str, Any] = dict(zip(by, key, strict=True))
        by_question = group.groupby("index")
        if cell["probe"] == "original":
            accuracy = group["accuracy"].mean()
            continue
        paralysis = cell["probe"] == "choice_paralysis"
        of_test, null = ("paralysis", 0) if paralysis else ("confidence", chance)
        if paralysis:
            yield from hits(group, accuracy, cell)
        p = metrics.t_against(by_question[of_test].mean(), null)
        yield plain("p", p, len(by_question), **cell)
        if paralysis:
            continue
        means = group.groupby("trial")["pseudo_accuracy"].mean()
        if len(means) > 1:
            yield plain("pseudo_accuracy_trial_se", means.sem(), len(means), **cell)


def hits(group: pd.DataFrame, accuracy: float, cell: dict[str, Any]) -> Iterator[Number]:
    """Yield hits@k of choice paralysis, and the smallest k whose hits reach `accuracy`, that of all
    questions with their own choices (the paper's Figure 6).
    """
    counts = range(1, int(cell["n_choices"]) + 1)
    for k in counts:
        rows = group.assign(hits=(group["rank"] < k).astype(float), unit=group["index"])
        yield Number("hits", {**cell, "k": k}, estimate(share("", "hits"), rows))
    reached = [k for k in counts if (group["rank"] < k).mean() >= accuracy - 1e-12]
    yield plain("matching_k", reached[0], len(group), **cell)
