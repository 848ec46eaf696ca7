"""What a report of group bias shows and says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evaluation.layout import Layout
from evaluation.shown.bars import Bars
from evaluation.shown.headlines import Said, short
from evaluation.shown.views import Table, View, cells_of, make_table

if TYPE_CHECKING:
    from pandas import DataFrame

CELL = ("data", "class")
EFFECTS = {"carry": "carry", "kept": "kept", "scope_gap": "scope gap"}
MEASURES = {name: name for name in ("mu", "eta", "theta", "mean_abs_c", "delta", "eps", "mass")}
NORMALISED = {"mu_normalised": "mu (normalised)"}
LITTLE_MASS = 0.5
"""Of S(x1) + S(x2): below it a headline says so."""

NOTE = (
    "mu: mean over subjects of the largest |gamma(x, attribute)|, inflated by few groups; eta: how "
    "consistently the sign of C points one way; theta: mu over pairs; delta, eps: errors of position and of "
    "negation; mass: S(x1) + S(x2) (UnQover section 4; LEI)."
)
EFFECTS_NOTE = (
    "carry, kept: mean |C| under advice about the subjects' domain (kept: about another, or none) over mean "
    "|C| of the same questions without advice; scope gap: kept - carry of ethical advice, near 1 where it is "
    "followed within its scope alone."
)
ACCURACY_NOTE = (
    "accuracy: the share of both orders in which the answer holds the right subject's name (LEI, Figure 6)."
)
NORMALISED_NOTE = (
    "Scores of language models and of spans differ in scale: compare them by eta and normalised mu alone."
)


def said(measure: str, words: str, advice: str) -> Said:
    """A clause of the headline about a class of advice."""
    return Said(measure, words, **{"class": advice})


BIAS = Layout(
    title="Group bias",
    by=(*CELL, "domain", "advice_domain", "category", "attribute", "subject", "cluster"),
    cells=[CELL],
    measures={"accuracy": "accuracy", "unknown": "unknown"},
    units="groups",
    views=[
        View("Bias by class of advice", CELL, {**MEASURES, "mean_abs_c": "mean |C|"}),
        View("Share of unknown, where it is offered", CELL, {"unknown": "unknown"}),
        View("What advice leaves of mean |C|", CELL, EFFECTS, caption=EFFECTS_NOTE),
        View("What advice leaves, by domain of the subjects", (*CELL, "domain"), EFFECTS, most=30),
        View("What advice about other domains leaves", (*CELL, "domain", "advice_domain"), EFFECTS, most=30),
        View("Specified contexts", CELL, {"accuracy": "accuracy"}, caption=ACCURACY_NOTE),
        View("Same questions: with advice - without", CELL, MEASURES, where={"against": "class=none"}),
        View("Rank correlation of gamma with the planted strengths", CELL, {"spearman": "rho"}),
        View("Clusters of subjects", (*CELL, "cluster"), {"gamma": "gamma", "eta": "eta"}),
        View("Normalised scores", CELL, NORMALISED, caption=NORMALISED_NOTE),
    ],
    figures={"mu.png": Bars("class", {"mu": "mu"}, panels="data", label="mu")},
    headline=[
        said("scope_gap", "scope gap", "ethical"),
        said("kept", "share of |C| under advice about other domains, kept", "mismatched_ethical"),
        *(said("mu", "bias mu", advice) for advice in ("ethical", "adversarial", "none")),
        Said("accuracy", "right where the context decides"),
        said("mean_abs_c", "mean |C|", "none"),
        said("delta", "position error delta", "none"),
    ],
    good="mu falls with ethical advice, rises with adversarial, and nothing changes without advice",
    notes=[NOTE],
    console=3,
)


def little_mass(frame: DataFrame, checkpoint: str) -> str:
    """Where a checkpoint says little about either subject, in a sentence; "" for nowhere."""
    cells = cells_of(frame, {"measure": "mass", "checkpoint": checkpoint, "against": ""})
    found = [
        f"{short(row['value'], percent=True)} % ({' '.join(filter(None, (row[name] for name in CELL)))})"
        for row in cells[cells["value"] < LITTLE_MASS].to_dict("records")
    ]
    if not found:
        return ""
    return f" The two subjects get little probability, and mu means little: {'; '.join(found)}."


def cluster_table(frame: DataFrame) -> Table:
    """The attributes that go to each cluster most, at most ten a class, as in UnQover's gender table."""
    by = [*CELL, "cluster", "category", "attribute"]
    gamma = frame[(frame["measure"] == "gamma") & (frame["cluster"] != "") & (frame["attribute"] != "")]
    gamma = gamma.sort_values(["cluster", "value"], ascending=[True, False], kind="stable")
    places = gamma[(gamma["value"] > 0) & (gamma["n"] > 1)].drop_duplicates(by)
    first = places.groupby([*CELL, "cluster"], sort=False).head(10)
    view = View("Attributes of a cluster", tuple(by), {"gamma": "gamma"}, caption="Others: results.csv.")
    return make_table(view, first[by].merge(gamma))
