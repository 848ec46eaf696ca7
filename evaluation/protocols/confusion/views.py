"""The report of the confusion probes: tables, headline and figures."""

from typing import get_args

from interventune.evaluation.protocol import Bars, Lines, Protocol, Said, View, mean

from .measures import BIASED, CELL
from .trials import Sampling

GAPS = {
    "confidence_difference": "no question – wrong question",
    "anc_post_minus_sac": "ANC' – SAC",
    "anc_minus_rac": "ANC – RAC",
}
"""Differences of confidences: the paper's Table 1 and Figure 4."""
MEANS = {
    "confidence_before": "confidence before",
    "confidence": "confidence after",
    "variance": "variance",
    "paralysis": "paralysis",
    **GAPS,
    "tau": "tau",
}
ORIGINAL = {"probe": "original", "against": "", "k": ""}

CONFUSION = Protocol(
    title="Confusion probes",
    unit="index",
    item=("index", *CELL, "trial"),
    by=(*CELL, "k"),
    cells=[CELL],
    measures={
        "accuracy": "right",
        "accuracy_before": "right before",
        "pseudo_accuracy": "pseudo-accuracy",
        **{name: mean(heading, name) for name, heading in MEANS.items()},
        "acc_perturbed_only": "changed only",
        "acc_mixed": "mixed",
    },
    views=[
        View(
            "Prior bias",
            ("probe",),
            {
                "accuracy_before": "right before",
                "pseudo_accuracy": "pseudo-accuracy",
                "confidence_before": "confidence before",
                "confidence": "confidence after",
                "variance": "variance",
                "p": "p",
            },
            where={"probe": BIASED},
            caption="Before: with the original question. Pseudo-accuracy and confidence after: "
            "of the place of the right choice. Without prior bias they are 1 / number of "
            "choices, which p tests.",
        ),
        View(
            "Wrong question (the paper's Table 1)",
            ("checkpoint",),
            {
                "pseudo_accuracy": "pseudo-accuracy",
                "pseudo_accuracy_trial_se": "its standard error over trials",
                "confidence_difference": "confidence: no question – wrong question",
            },
            across="measure",
            where={"probe": "wrong_question"},
            percent=(),
        ),
        View(
            "Choice paralysis",
            ("sampling", "n_choices"),
            {
                "accuracy_before": "right before",
                "accuracy": "right",
                "matching_k": "k to match",
                "paralysis": "paralysis",
                "p": "p",
            },
            where={"probe": "choice_paralysis"},
            caption="Before: the drawn questions with their own choices. k to match: the "
            "smallest k whose hits@k reaches the accuracy on all questions. Paralysis: "
            "loss of confidence in the right choice.",
        ),
        View(
            "Calibration by MaxProb (the paper's Table 2)",
            ("probe",),
            {"tau": "tau", "acc_perturbed_only": "changed only", "acc_mixed": "mixed"},
            where={"probe": BIASED},
            caption="A question counts as unchanged if its highest confidence is above tau, the "
            "mean of a random half. Changed only: share of changed questions recognised; "
            "mixed: with originals.",
        ),
        View("Differences of confidences (the paper's Figure 4)", ("probe",), GAPS),
    ],
    figures={
        "differences.png": Bars(x="probe", measures=GAPS, label="mean difference of confidences"),
        "paralysis.png": Lines(
            x="n_choices",
            measures={"confidence": ""},
            panels="sampling",
            where={"probe": "choice_paralysis"},
            label="confidence in the right choice",
            x_label="choices (dashed: all questions, own choices)",
            level=ORIGINAL | {"measure": "confidence"},
        ),
        **{
            f"hits_{sampling}.png": Lines(  # the paper's Figure 6
                x="k",
                measures={"hits": "choices"},
                panels="n_choices",
                where={"sampling": sampling},
                label=f"hits@k ({sampling})",
                x_label="k (dashed: all questions, own choices)",
                level=ORIGINAL | {"measure": "accuracy"},
            )
            for sampling in get_args(Sampling)
        },
    },
    headline=[
        Said("accuracy", "right on the original questions", probe="original"),
        Said("pseudo_accuracy", "picks the right choice without the question", probe="no_question"),
        Said("confidence", "confidence in it", probe="no_question"),
        Said("accuracy", "right among other choices", probe="choice_paralysis"),
    ],
    good="right on the original questions and among other choices, at chance without the question",
    failures="",
    console=2,
)
