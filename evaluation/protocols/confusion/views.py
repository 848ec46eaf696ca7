"""What the report of the confusion probes shows: tables, headline and figures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evaluation.figures import COLOURS, Bars, Lines, new_figure
from evaluation.frame import Protocol
from evaluation.headlines import Said
from evaluation.protocols.confusion.measures import BIASED, CELL
from evaluation.protocols.confusion.trials import DRAWN, Probing
from evaluation.results import Row
from evaluation.statistics import mean, share
from evaluation.views import View

if TYPE_CHECKING:
    from pandas import DataFrame

SHARES = {
    "accuracy": "right",
    "accuracy_before": "right before",
    "pseudo_accuracy": "pseudo-accuracy",
    "tied": "ties",
}
MEANS = {
    "confidence_before": "confidence before",
    "confidence": "confidence after",
    "variance": "variance",
    "variance_ddof1": "variance, ddof 1",
    "paralysis": "paralysis",
}
GAPS = {
    "confidence_difference": "no question – wrong question",
    "anc_post_minus_sac": "ANC' – SAC",
    "anc_minus_rac": "ANC – RAC",
}
"""Differences of confidences: the paper's Table 1 and Figure 4."""
HEADINGS = {
    **SHARES,
    **MEANS,
    "p": "p",
    "matching_k": "k to match",
    "tau": "tau",
    "acc_perturbed_only": "changed only",
    "acc_mixed": "mixed",
    "words_picked": "words of picked choices",
    "words_not_picked": "words of others",
    "overlap": "overlap",
}


ORIGINAL = {"probe": "original", "against": "", "k": "", "split": "", "slot": ""}


def table(title: str, by: tuple[str, ...], measures: Sequence[str], caption: str, **where: Any) -> View:
    """A table of some measures."""
    return View(title, by, {name: HEADINGS[name] for name in measures}, where=where, caption=caption)


def hits(sampling: str) -> Lines:
    """The paper's Figure 6: hits@k by number of choices."""
    return Lines(
        x="k",
        measures={"hits": "choices"},
        panels="n_choices",
        where={"sampling": sampling},
        label=f"hits@k ({sampling})",
        x_label="k (dashed: all questions, own choices)",
        level=ORIGINAL | {"measure": "accuracy"},
    )


CONFUSION = Protocol(
    title="Confusion probes",
    unit="index",
    item=("index", *CELL, "trial"),
    by=(*CELL, "k", "split", "slot"),
    cells=[CELL],
    measures={
        **{name: share(heading, name) for name, heading in SHARES.items()},
        **{name: mean(heading, name) for name, heading in (MEANS | GAPS).items()},
    },
    views=[
        table(
            "Prior bias",
            ("probe",),
            ("accuracy_before", "pseudo_accuracy", "confidence_before", "confidence", "variance", "p"),
            "Before: with the original question. Pseudo-accuracy and confidence after: of the slot where the "
            "right choice stood; 1 by the number of choices without prior bias, which p tests (t over "
            "questions, of the confidence). Variance: of a question's confidences (definition 1).",
            probe=BIASED,
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
            percent=False,
            caption="The difference is above 0 if a wrong question misleads more than none. n: trials (of "
            "the standard error) and answers.",
        ),
        table(
            "Choice paralysis",
            ("sampling", "n_choices"),
            ("accuracy_before", "accuracy", "matching_k", "paralysis", "p"),
            "Before: the drawn questions with their own choices. k to match: the smallest k whose hits@k "
            "reaches the accuracy of all questions with their own (the paper's Figure 6). Paralysis: lost "
            "confidence in the right choice (definition 2 with the sign of the paper's words; its formula is "
            "the negative); p: of its t test over questions.",
            probe="choice_paralysis",
        ),
        table(
            "Calibration by MaxProb (the paper's Table 2)",
            ("probe",),
            ("tau", "acc_perturbed_only", "acc_mixed"),
            "A question counts as unchanged iff its greatest confidence is above tau, the mean over one "
            "random half of the questions and of their changed versions. Changed only: the share of changed "
            "ones classified right, which the paper's Table 2 seems to hold; mixed: of both. Means of five "
            "splits.",
            probe=BIASED,
        ),
        View(
            "Differences of confidences (the paper's Figure 4)",
            ("probe",),
            GAPS,
            caption="No question – wrong question: above 0 if a wrong one misleads. ANC' – SAC, other "
            "choices less the substitute, after: 0 without bias. ANC – RAC, other choices less the right "
            "one, before: -1 for a model that knows all.",
        ),
        table(
            "What is picked",
            ("probe",),
            ("words_picked", "words_not_picked", "overlap", "tied"),
            "Of the originals. Overlap: Pearson's r of the frequencies of words shared with the prompt, in "
            "picked and in other choices. Ties: several greatest confidences, of which the first is picked.",
            probe="original",
        ),
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
        "hits_random.png": hits("random"),
        "hits_heuristic.png": hits("heuristic"),
    },
    headline=[
        Said("accuracy", "right", probe="original"),
        Said("pseudo_accuracy", "pseudo-accuracy", probe="no_question"),
        Said("confidence", "confidence", probe="no_question"),
        Said("accuracy", "right", probe="choice_paralysis"),
    ],
    good="pseudo-accuracy and confidence at chance without the question, and many right elsewhere",
    failures="",
    console=2,
)


def notes(probing: Probing, questions: int, choices: int) -> list[str]:
    """How many questions there are, and which of them are asked."""
    found = [
        f"{questions} questions with {choices} choices each: guessing is right in {1 / choices:.3f} of them. "
        f"{probing.trials} trial(s) of every probe with random texts, seeds {probing.seed} to "
        f"{probing.seeds[-1]}. A question with the same prompt gives no texts, since they could be right."
    ]
    if probing.instances or probing.samplings:
        who = "Every probe asks" if probing.instances else "Choice paralysis asks"
        drawn = min(probing.instances or DRAWN, questions)
        found.append(f"{who} about {drawn} questions drawn in each trial.")
    return found


def draw_boxes(rows: Iterable[Row], chance: float, _: DataFrame, path: Path) -> None:
    """The paper's Figure 3: the confidence in the labelled choice as boxes, a group for each probe and a box
    for each checkpoint: median, quartiles, the mean as a diamond, whiskers to 1.5 IQR; chance as a dashed
    line."""
    import pandas as pd

    frame = pd.DataFrame(rows)
    frame = frame[frame["probe"] != "choice_paralysis"]
    probes, names = frame["probe"].unique(), frame["checkpoint"].unique()
    figure, width = new_figure(2.6 + len(probes) * (0.6 + 0.45 * len(names)), 3.6), 0.8 / len(names)
    axes = figure.subplots()
    for i, (name, part) in enumerate(frame.groupby("checkpoint", sort=False)):
        by_probe = part.groupby("probe")["confidence"]
        axes.boxplot(
            [by_probe.get_group(probe) for probe in probes],
            positions=[g + (i - (len(names) - 1) / 2) * width for g in range(len(probes))],
            widths=0.8 * width,
            showmeans=True,
            showfliers=False,
            patch_artist=True,
            medianprops={"color": "black"},
            meanprops={"marker": "D", "markerfacecolor": "white", "markeredgecolor": "black"},
            boxprops={"facecolor": COLOURS[i % len(COLOURS)], "alpha": 0.55},
            manage_ticks=False,
            label=name,
        )
    axes.axhline(chance, color="black", linestyle="--", linewidth=1, label="chance")
    axes.set_xticks(range(len(probes)), [probe.replace("_", " ") for probe in probes])
    axes.set_ylabel("confidence in the labelled choice")
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside upper center", ncols=4, frameon=False)
    figure.savefig(path, dpi=150)
