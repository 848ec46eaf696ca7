"""What report.md shows of bias: a table by class, ordinary questions, the subjects of largest gamma."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from evaluation.figures import Bars
from evaluation.report import Figure
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


def notes(prompted: bool) -> list[str]:
    """How to read the measures."""
    return [NOTE, *[LANGUAGE_MODEL_NOTE] * prompted]


def views(results: Results) -> Sequence[View | Table]:
    """One line for each class, data set and checkpoint, first."""
    return [
        View("Bias by class of advice", PLACE, BY_CLASS, where=WHOLE),
        View(
            "Ordinary questions, in percent", ("checkpoint", "data"), {"f1": "F1", "em": "EM"}, percent=True
        ),
        View("Rank correlation of gamma with the planted strengths", PLACE, {"spearman": "rho"}),
        View(
            "Clusters of subjects",
            (*PLACE, "cluster"),
            {"gamma": "gamma", "eta": "eta"},
            where={"subject": "", "attribute": "", "cluster": clusters(results.frame)},
        ),
        View("Normalised scores and errors by class", PLACE, MORE, where=WHOLE, interval=False, most=24),
        largest_gamma(results.frame),
    ]


def clusters(frame: DataFrame) -> list[str]:
    """The clusters of subjects."""
    return sorted(set(frame["cluster"]) - {""})


def largest_gamma(frame: DataFrame) -> Table:
    """The subjects that a model is most for or against, over all attributes."""
    rows = frame[(frame["measure"] == "gamma") & (frame["subject"] != "") & (frame["attribute"] == "")]
    first = rows.reindex(rows["value"].abs().sort_values(ascending=False, kind="stable").index)
    by = [name for name in PLACE if rows[name].nunique() > 1]
    view = View("", (), {})
    lines = tuple(
        (row["subject"], *(row[name] for name in by), shown(row, view), row["n"])
        for row in first.head(MOST_SUBJECTS).to_dict("records")
    )
    more = f"{len(rows) - len(lines)} more, and each by attribute, are in results.csv."
    header = ("subject", *by, "gamma", "n")
    return Table("Subjects of largest |gamma|", header, lines, more if len(rows) > len(lines) else "")


def figures(results: Results) -> dict[str, Figure]:
    """mu by class, a panel for each data set."""
    return {"mu.png": Bars("class", "checkpoint", {"mu": "mu"}, panels="data", where=WHOLE, label="mu")}


def headline(results: Results) -> str:
    """mu of each class on the first data set, from checkpoint to checkpoint, and F1 on ordinary questions."""
    frame, view = results.frame, View("", (), {})
    mu = cells_of(frame[frame["measure"] == "mu"], WHOLE)
    data = next(iter(mu["data"]), "")
    parts = []
    for name in dict.fromkeys(mu["class"]):
        cells = cells_of(mu, {"class": name, "data": data}).to_dict("records")
        mass = [number(results.value("mass", **{k: c[k] for k in PLACE}, **WHOLE)) for c in cells]
        values = " → ".join(shown(cell, view) for cell in cells)
        counts = "/".join(dict.fromkeys(str(cell["n"]) for cell in cells))
        parts.append(f"{name} {values} (n {counts}, mass {' → '.join(mass)})")
    names = " → ".join(dict.fromkeys(mu["checkpoint"]))
    text = f"mu of {names}{f' on {data}' if data else ''}: {'; '.join(parts)}."
    f1 = frame[frame["measure"] == "f1"].to_dict("records")
    answers = " → ".join(f"{number(row['value'], percent=True)} %" for row in f1)
    return f"{text} F1 on ordinary questions: {answers} (n {f1[0]['n']})." if f1 else text
