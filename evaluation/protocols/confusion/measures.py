"""The report of the confusion probes (Shen and Kejriwal 2022), and its numbers that are not means
of rows.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from interventune.evaluation.protocol import Number, Protocol, Row, declared, estimate, plain, share
from interventune.metrics import confusion as metrics

CELL = ("probe", "sampling", "n_choices")
BIASED = ("no_question", "wrong_question", "no_right_answer")
"""Probes without a right answer, or without the means to find it: their labelled slot is
pseudo-correct.
"""
CONFUSION = Protocol(**declared(__file__))


def tests_and_hits(rows: pd.DataFrame, _: Sequence[str], chance: float) -> Iterator[Number]:
    """Yield the numbers that are not means of rows: hits@k, standard errors of means over trials,
    and two-sided p of t tests over questions (section 3.1.2): of the confidence against chance, and
    against that before; of the difference between no question and a wrong one.
    """
    accuracy = np.nan
    by = ["checkpoint", *CELL]
    for key, group in rows.infer_objects().groupby(by, sort=False):
        cell: Row = dict(zip(by, key, strict=True))
        seeds = group["run"].nunique() if "run" in group else 1
        whole: Row = {**cell, "seeds": seeds}
        if cell["probe"] == "original":
            accuracy = group["accuracy"].mean()
            continue
        tested = {"p_change": (group["confidence"] - group["confidence_before"], 0.0)}
        if cell["probe"] == "choice_paralysis":
            yield from hits(group, accuracy, cell, seeds)
        else:
            tested["p"] = group["confidence"], chance
            means = group.groupby("trial")["pseudo_accuracy"].mean()
            if len(means) > 1:
                yield plain("pseudo_accuracy_trial_se", means.sem(), len(means), **whole)
        if "confidence_difference" in group.dropna(axis=1):
            tested["p_difference"] = group["confidence_difference"], 0.0
        for name, (values, expected) in tested.items():
            of_question = values.groupby(group["index"]).mean()
            p = metrics.t_against(of_question, expected)
            yield plain(name, p, len(of_question), **whole)


def hits(group: pd.DataFrame, accuracy: float, cell: Row, seeds: int) -> Iterator[Number]:
    """Yield hits@k of choice paralysis, and the smallest k whose hits reach `accuracy`, that of all
    questions with their own choices (the paper's Figure 6).
    """
    counts = range(1, int(cell["n_choices"]) + 1)
    for k in counts:
        rows = group.assign(hits=(group["rank"] < k).astype(float), unit=group["index"])
        yield Number("hits", {**cell, "k": k}, estimate(share("", "hits"), rows))
    reached = [k for k in counts if (group["rank"] < k).mean() >= accuracy - 1e-12]
    yield plain("matching_k", reached[0], len(group) // seeds, seeds=seeds, **cell)
