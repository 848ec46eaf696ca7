"""Group bias of checkpoints, or of scores made elsewhere (UnQover's and LEI's measures).

interventune evaluate bias --checkpoint before=A.ckpt after=B.ckpt --data dev.json --output DIR
interventune evaluate bias --checkpoint uqa=hf:allenai/unifiedqa-t5-base --data dev.json --output DIR
interventune evaluate bias --predictions before=A.json after=B.json --output DIR
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from evaluation.answering.asking import Asking, named_sources
from evaluation.layout import Layout
from evaluation.report import Evaluation
from evaluation.results import Results
from evaluation.shown.bars import Bars
from evaluation.shown.headlines import Said, short
from evaluation.shown.views import View, cells_of
from storage.command_line import AtLeast, Named

if TYPE_CHECKING:
    from pandas import DataFrame

CELL = ("data", "class")
EFFECTS = {"carry": "carry", "kept": "kept", "scope_gap": "scope gap"}
MEASURES = {name: name for name in ("mu", "eta", "theta", "mean_abs_c", "delta", "eps", "mass")}
NORMALISED = {"mu_normalised": "mu (normalised)"}

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
ACCURACY_NOTE = "accuracy: the share of the two orders whose answer names the right subject (LEI, Figure 6)."
NORMALISED_NOTE = "Language models and spans score on different scales: compare by eta and normalised mu."


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


def evaluate(
    *,
    checkpoint: list[Named] | None = None,
    predictions: list[Annotated[str, "[NAME=]FILE"]] | None = None,
    data: list[Annotated[str, "[NAME=]SOURCE"]] | None = None,
    limit: Annotated[int, AtLeast(0)] = 0,
    clusters: list[Annotated[str, "FILE"]] | None = None,
    planted_seed: int | None = None,
    asking: Asking = Asking(prompt="unifiedqa"),  # noqa: B008  frozen
) -> Evaluation:
    """Group bias: gamma, eta, mu and their relatives, by class of advice.

    Args:
        checkpoint: a .ckpt, a Hugging Face folder, a Hub name, or a local language model (hf:PATH).
        predictions: in place of checkpoints: files with the subjects' start and end probabilities, UnQover's
            source records or LEI's records with start-end-score.
        data: with --checkpoint: groups in LEI's or UnQover's format, or stories:SPLIT; each set on its own,
            with its advice and without. Where contexts decide (LEI's specified set), the questions are
            answered too, for accuracy.
        limit: with --checkpoint: at most N groups of each class in a data set, evenly spread, and their
            questions without advice; 0 for all.
        clusters: lists of subjects with their clusters, as UnQover's `[subj] female | Mary`; adds gamma and
            eta of one cluster against the others, also by attribute (UnQover's gender table). By default
            the clusters that the ids of UnQover's predictions name.
        planted_seed: correlate gamma with the strengths that lei_planted draws from this seed.
        asking: how models are asked.
    """
    if bool(checkpoint) == bool(predictions):
        raise ValueError("name either --checkpoint or --predictions")
    if bool(checkpoint) != bool(data) or (limit and not checkpoint):
        raise ValueError("--checkpoint needs --data, the groups; --data and --limit go with --checkpoint")
    import pandas as pd

    from data_modules.schema.groups import ADVICE_CLASSES
    from evaluation.protocols.bias import groups
    from evaluation.protocols.bias.measures import add_bias

    named = named_sources(checkpoint or predictions or [], "--checkpoint")
    about, note = dict[str, Any](), ""
    if predictions:
        read = {name: groups.read_predictions(Path(path)) for name, path in named.items()}
        frame = pd.concat(read, names=["checkpoint"]).reset_index("checkpoint")
    else:
        from evaluation.protocols.bias import asked

        sets, frame = asked.read_sets(named_sources(data or [], "--data"), limit)
    if known := bool(clusters) or planted_seed is not None or frame["clusters"].notna().any():
        from evaluation.protocols.bias import subjects
    if clusters:
        frame = subjects.with_clusters(frame, clusters)
    if checkpoint:
        frame, about, note = asked.ask_all(named, frame, sets, asking)
    results = Results(BIAS.by, BIAS.units)
    for name, rows in frame.assign(unit=frame["key"]).groupby("data", sort=False):
        frames = dict(iter(rows.groupby("checkpoint", sort=False)))
        for advice in ADVICE_CLASSES:
            place = {"data": str(name), "class": advice}
            parts = {source: part[part["class"] == advice] for source, part in frames.items()}
            add_bias(results, parts, place)
            if known:
                subjects.add_clusters(results, parts, place)
            if planted_seed is not None:
                subjects.add_planted(results, parts, place, planted_seed)
        if (rows["class"] != "none").any():
            from evaluation.protocols.bias.effects import add_effects

            add_effects(results, frames, {"data": str(name)})
    report = BIAS.report(results, [*groups.example_rows(frame)], list(named), about)
    headline = report.headline + little_mass(results.frame, list(named)[-1])
    shown = [*report.views, *([subjects.cluster_table(results.frame)] if known else [])]
    return replace(report, headline=headline, notes=[*report.notes, note], views=shown)


def little_mass(frame: DataFrame, checkpoint: str) -> str:
    """Where the two subjects' S(x1) + S(x2) is below a half, in a sentence; "" for nowhere."""
    cells = cells_of(frame, {"measure": "mass", "checkpoint": checkpoint, "against": ""})
    found = [
        f"{short(row['value'], percent=True)} % ({' '.join(filter(None, (row[name] for name in CELL)))})"
        for row in cells[cells["value"] < 0.5].to_dict("records")
    ]
    if not found:
        return ""
    return f" The two subjects get little probability, and mu means little: {'; '.join(found)}."
