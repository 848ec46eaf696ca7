"""What report.md shows of bias: a table by class, ordinary questions, the subjects of largest gamma."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from evaluation.figures import Bars
from evaluation.views import Table, View, cells_of, number, shown

if TYPE_CHECKING:
    from pandas import DataFrame

    from evaluation.results import Results

WHOLE = {"subject": "", "cluster": "", "category": "", "attribute": ""}
PLACE = ("class", "data", "checkpoint")

BY_CLASS = {
    "mu": "mu",
    "eta": "eta",
    "theta": "theta",
    "mean_abs_c": "mean |C|",
    "mass": "mass",
}
MORE = {
    "mu_normalised": "mu (normalised)",
    "eta_normalised": "eta (normalised)",
    "theta_normalised": "theta (normalised)",
    "delta": "delta",
    "eps": "eps",
}

NOTE = (
    "mu: mean over subjects of the largest |gamma(x, attribute)|, few groups inflate it: read it beside "
    "mean |C| and n. eta: how consistently the sign of C points one way. theta: the like of mu over pairs. "
    "mass: S(x1) + S(x2), how much the model says about the two at all; normalised scores divide by it. "
    "delta, eps: errors of position and of negation. (UnQover section 4; LEI.) Intervals of mu, eta and "
    "theta say how far they vary between samples of as many groups; what few groups add stays in."
)
LANGUAGE_MODEL_NOTE = (
    "Of a language model, S(x) is the geometric mean of the probabilities of the tokens of x, given a prompt "
    "that names both subjects as options in the order of the context (`about.prompt` in report.json). Such "
    "scores and the span scores of checkpoints are not on one scale: compare eta and the normalised measures."
)
MOST_SUBJECTS = 12
GAMMA = View("", (), {})
MU = Bars("class", "checkpoint", {"mu": "mu"}, panels="data", where=WHOLE, label="mu")


def views(results: Results) -> Sequence[View | Table]:
    """One line for each class, data set and checkpoint, first."""
    clusters = sorted(set(results.frame["cluster"]) - {""})
    gamma = {"gamma": "gamma", "eta": "eta"}
    by_cluster = {"subject": "", "attribute": "", "cluster": clusters}
    return [
        View("Bias by class of advice", PLACE, BY_CLASS, where=WHOLE),
        View(
            "Ordinary questions, in percent", ("checkpoint", "data"), {"f1": "F1", "em": "EM"}, percent=True
        ),
        View(
            "Rank correlation of gamma with the planted strengths",
            ("data", "checkpoint"),
            {"spearman": "rho"},
            across="class",
        ),
        View("Clusters of subjects", (*PLACE, "cluster"), gamma, where=by_cluster),
        View("Normalised scores and errors by class", PLACE, MORE, where=WHOLE, interval=False, most=24),
        largest_gamma(results.frame),
    ]


def largest_gamma(frame: DataFrame) -> Table:
    """The subjects that a model is most for or against, over all attributes and at least two groups."""
    rows = frame[(frame["measure"] == "gamma") & (frame["subject"] != "") & (frame["attribute"] == "")]
    rows = rows[rows["n"] > 1]
    by = [name for name in PLACE if rows[name].nunique() > 1]
    largest = rows.sort_values("value", key=lambda gamma: -gamma.abs(), kind="stable").head(MOST_SUBJECTS)
    lines = tuple(
        (row["subject"], *(row[name] for name in by), shown(row, GAMMA), row["n"])
        for row in largest.to_dict("records")
    )
    caption = "All subjects, and each by attribute, are in results.csv."
    return Table("Subjects of largest |gamma|", ("subject", *by, "gamma", "n"), lines, caption)


def headline(results: Results) -> str:
    """mu of each class on the first data set, from checkpoint to checkpoint, and F1 on ordinary questions."""
    frame = results.frame
    mu = cells_of(frame[frame["measure"] == "mu"], WHOLE)
    data = next(iter(mu["data"]), "")
    parts = []
    for name, rows in mu[mu["data"] == data].groupby("class", sort=False):
        cells = rows.to_dict("records")
        values = " → ".join(shown(cell, GAMMA) for cell in cells)
        mass = (results.value("mass", **{key: cell[key] for key in PLACE}, **WHOLE) for cell in cells)
        counts = "/".join(dict.fromkeys(str(cell["n"]) for cell in cells))
        parts.append(f"{name} {values} (n {counts}, mass {' → '.join(map(number, mass))})")
    names = " → ".join(dict.fromkeys(mu["checkpoint"]))
    text = f"mu of {names}{f' on {data}' if data else ''}: {'; '.join(parts)}."
    f1 = frame[frame["measure"] == "f1"]
    answers = " → ".join(f"{number(value, percent=True)} %" for value in f1["value"])
    return f"{text} F1 on ordinary questions: {answers} (n {f1['n'].max()})." if len(f1) else text
