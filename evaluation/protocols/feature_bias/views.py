"""Measures and report of the feature-bias protocol."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from interventune.data_modules.tasks.features import Hypothesis
from interventune.evaluation.protocol import Protocol
from interventune.evaluation.protocols.feature_bias.prompts import NONE
from interventune.evaluation.shown.figures import Bars
from interventune.evaluation.shown.headlines import Said
from interventune.evaluation.shown.views import View
from interventune.evaluation.statistics import Floats, Statistic
from interventune.metrics.feature_bias import stratum_weights

NOTE = (
    "On texts where the two features differ, an answer follows h1, the label, or h2 (h1 + h2 = "
    "100 %; guessing gets 50 %); `agree` is the accuracy where they agree. Shares are means over "
    "the two kinds of such texts, sets of demonstrations and tasks (the paper's metric). "
    "In-context predictions are calibrated, except explanations."
)
STEERED_NOTE = (
    "Means toward h1 leave out sentiment tasks if there are others, as the paper's Table 2 does."
)
PLAIN = {"intervention": NONE}
LEARNED = {"h1": "h1", "h2": "h2", "uncalibrated_h1": "h1 uncalibrated", "agreement": "agree"}


class OverStrata(Statistic):
    """The mean of a field over strata (a task, a set of demonstrations and a kind of texts),
    whatever their sizes. The second field is the stratum.
    """

    def columns(self, fields_NF: Floats) -> Floats:
        """Return rows that weigh one over the number of rows in their stratum."""
        weight_N = stratum_weights(fields_NF[:, 1])
        return np.stack([np.ones_like(weight_N), weight_N * fields_NF[:, 0], weight_N], axis=1)


def over_strata(heading: str, field: str) -> OverStrata:
    """The mean of a field over strata."""
    return OverStrata(
        heading, (field, "stratum"), lambda sums_RC: sums_RC[:, 1] / sums_RC[:, 2], share=True
    )


FEATURE_BIAS = Protocol(
    title="Feature bias",
    unit=("task", "seed"),
    units="sets of demonstrations",
    item=("task", "seed", "cell", "id"),
    by=("intervention", "family", "feature", "task"),
    cells=[
        ("intervention",),
        ("intervention", "family"),
        ("intervention", "family", "feature"),
        ("intervention", "task"),
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
            x="task", measures={"h1": ""}, where=PLAIN, label="follow the label (%)", chance=0.5
        )
    },
    headline=[
        Said("h1", "follows the label (h1) where the features differ"),
        Said("agreement", "right where both features agree", intervention=NONE),
    ],
    good="near 50 % without an intervention, near 100 % with one toward h1, near 0 % with one "
    "toward h2",
    notes=[NOTE],
    failures="texts",
)


def steering(ways: Sequence[tuple[str, Hypothesis]]) -> Protocol:
    """Return the protocol with tables and figures of these interventions and steered features;
    first none.
    """
    views, figures = [*FEATURE_BIAS.views], {**FEATURE_BIAS.figures}
    for steer in dict.fromkeys(steer for _, steer in ways[1:]):
        measure, number = ("steerable_h1", 4) if steer == "h1" else ("h2", 5)
        names = [NONE, *(f"{way} to {steer}" for way, other in ways[1:] if other == steer)]
        shown: dict[str, Any] = {
            "measures": {measure: f"follows {steer}"},
            "where": {"intervention": names},
        }
        gains = {"intervention": names, "against": f"intervention={NONE}"}
        views += [
            View(
                f"Toward {steer}, means over tasks (the paper's Table 2)",
                ("intervention",),
                **shown,
            ),
            View(
                f"What it adds toward {steer}, in points",
                ("intervention",),
                **shown | {"where": gains},
            ),
            View(
                f"Toward {steer} by feature (the paper's Table {number})",
                ("checkpoint", "family", "feature"),
                across="intervention",
                interval=False,
                **shown,
            ),
        ]
        bars = Bars(
            x="checkpoint", hue="intervention", **shown, label=f"follow {steer} (%)", chance=0.5
        )
        by_family = replace(bars, x="family", panels="checkpoint")  # the paper's Figure 3
        figures |= {f"toward_{steer}.png": bars, f"toward_{steer}_by_family.png": by_family}
    return replace(FEATURE_BIAS, views=views, figures=figures, notes=[NOTE, STEERED_NOTE])
