"""What the feature-bias protocol measures and shows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, get_args

from data_modules.tasks.wording import Hypothesis
from evaluation.figures import Bars
from evaluation.frame import Protocol
from evaluation.headlines import Said
from evaluation.protocols.feature_bias.prompts import NONE, Intervention, named_intervention
from evaluation.statistics import Floats, Weighted
from evaluation.views import View
from metrics.feature_bias import mean_over_strata

NOTE = (
    "Demonstrations (and training texts) agree with two features: h1, the label, and h2, another one, which "
    "differ on the disambiguating texts: there a prediction follows one of them (h1 + h2 = 100 %), and "
    "guessing gets 50 %. Shares are means over the two disambiguating cells, whatever their sizes, over sets "
    "of demonstrations and over tasks (the paper's metric). `agree` is the accuracy where both features "
    "agree: a model at chance has learned neither. In-context predictions are calibrated with content-free "
    "texts, except explanations (the paper's way); fine-tuned ones are not."
)
STEERED_NOTE = (
    "Toward h1, means leave out sentiment tasks where there are others: the paper has no label words of "
    "sentiment, so that its Table 2 has 16 of the 22 files in the h1 column."
)
PLAIN = {"intervention": NONE}
LEARNED = {"h1": "h1", "h2": "h2", "uncalibrated_h1": "h1 uncalibrated", "agreement": "agree"}
PARITY_NOTE = (
    "`--parity`: demonstrations, their order and the label words that count are those of the authors' code; "
    "where a pool ends early, fewer demonstrations stand in the prompt, as there."
)


def over_strata(heading: str, field: str) -> Weighted:
    """The mean of a field over tasks, sets of demonstrations and cells."""

    def of(weight_RN: Floats, columns_N2: Floats) -> Floats:
        return mean_over_strata(weight_RN, *columns_N2.T)

    return Weighted(heading, (field, "stratum"), of, share=True)


FEATURE_BIAS = Protocol(
    title="Feature bias",
    unit=("task", "cell", "id"),
    units="texts",
    by=("intervention", "family", "feature", "task", "seed", "cell"),
    cells=[
        ("intervention",),
        ("intervention", "family"),
        ("intervention", "family", "feature"),
        ("intervention", "task"),
        ("intervention", "task", "seed", "cell"),
    ],
    compared=("intervention",),
    measures={
        "h1": over_strata("h1", "follows_h1"),
        "h2": over_strata("h2", "follows_h2"),
        "steerable_h1": over_strata("h1", "steerable_h1"),
        "uncalibrated_h1": over_strata("h1 uncalibrated", "uncalibrated_h1"),
        "agreement": over_strata("agree", "agrees"),
    },
    views=[
        View("Which feature is learned, means over tasks", ("intervention",), LEARNED, where=PLAIN),
        View("By family of tasks (the paper's Figure 2)", ("family",), LEARNED, where=PLAIN),
        View("By task", ("task",), LEARNED, where=PLAIN),
    ],
    figures={
        "learned.png": Bars(
            x="task",
            measures={"h1": ""},
            where=PLAIN,
            label="follow the label (%)",
            chance=0.5,
        )
    },
    headline=[
        Said("h1", "follows the label"),
        Said("agreement", "right where both features agree", intervention=NONE),
    ],
    good="near 50 % without an intervention, near 100 % toward h1, near 0 % toward h2",
    notes=[NOTE],
    failures="texts",
)


def steering(protocol: Protocol, steers: list[Hypothesis]) -> Protocol:
    """The protocol with tables and figures of interventions toward these features."""
    views, figures = [*protocol.views], {**protocol.figures}
    for steer in steers:
        measure = "steerable_h1" if steer == "h1" else "h2"
        ways = [NONE, *(named_intervention(way, steer) for way in get_args(Intervention))]
        shown: dict[str, Any] = {"measures": {measure: f"follows {steer}"}, "where": {"intervention": ways}}
        wide = shown | {"across": "intervention", "interval": False}
        gains = {"intervention": ways, "against": f"intervention={NONE}"}
        views += [
            View(f"Toward {steer}, means over tasks (the paper's Table 2)", ("intervention",), **shown),
            View(f"What it adds toward {steer}, in points", ("intervention",), **shown | {"where": gains}),
            View(f"Toward {steer} by family", ("checkpoint", "family"), **wide),
            View(
                f"Toward {steer} by feature (the paper's Table {4 if steer == 'h1' else 5})",
                ("checkpoint", "family", "feature"),
                **wide,
            ),
        ]
        bars = Bars(x="checkpoint", hue="intervention", **shown, label=f"follow {steer} (%)", chance=0.5)
        figures[f"toward_{steer}.png"] = bars
        # the paper's Figure 3
        figures[f"toward_{steer}_by_family.png"] = replace(bars, x="family", panels="checkpoint")
    return replace(protocol, views=views, figures=figures, notes=[NOTE, STEERED_NOTE])
