"""What the report of the confusion probes shows: tables, figures, a headline, and a row for every answer."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from data_modules.schema import ChoiceQuestion
from evaluation.conclusions import change, headline, short
from evaluation.figures import COLOURS, Bars, Lines, bare, new_figure
from evaluation.protocols.confusion.measures import BIASED, TrialAnswers, answers, long_table
from evaluation.protocols.confusion.trials import Plan
from evaluation.report import Evaluation, Figure
from evaluation.views import View
from metrics.confusion import CERTAINTIES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

log = logging.getLogger(__name__)

REPLACING = ("wrong_question", "no_right_answer")
"""Probes that put something else in, which --no-shared-words concerns."""
GAPS = {
    "confidence_difference": ("no question\n– wrong question", 0.0),
    "anc_post_minus_sac": ("others – substitute\n(after)", 0.0),
    "anc_minus_rac": ("others – right\n(before)", -1.0),
}
"""Differences of confidences: their titles, and what a model without bias, that knows every answer, has."""


def report(
    sets: Mapping[str, Sequence[ChoiceQuestion]],
    plan: Plan,
    outcomes: Sequence[TrialAnswers],
    about: dict[str, Any],
) -> Evaluation:
    """The report of all models on the questions of one benchmark (named ""), or of several."""
    frame, names = answers(outcomes), list(about["checkpoints"])
    results = long_table(sets, frame, plan.seed)
    sizes = {name: (len(questions), len(questions[0].choices)) for name, questions in sets.items()}
    counted = "; ".join(
        f"{f'{name}: ' * bool(name)}{total} questions with {count} choices each, guessing is right in "
        f"{1 / count:.3f} of them"
        for name, (total, count) in sizes.items()
    )
    notes = [
        f"{counted}. A probe takes away what the right choice could be told by. Its slot is then "
        "pseudo-correct: a model without prior bias picks it by chance, with a confidence of 1 by the number "
        "of choices. "
        f"{plan.trials} trial(s) of every probe with random texts, seeds {plan.seed} to {plan.seeds[-1]}."
    ]
    drawn = min(plan.instances, *(total for total, _ in sizes.values()))
    if plan.drawn_only:
        notes.append(f"Every probe, and the originals, have the {drawn} questions drawn in each trial only.")
    for probe in REPLACING if plan.no_shared_words and not plan.drawn_only else ():
        what = "wrong questions" if probe == "wrong_question" else "substitutes"
        for name, (total, _) in sizes.items():
            part = frame[(frame["probe"] == probe) & (frame["benchmark"] == name)]
            if len(part):
                left = total - part["index"].nunique()
                notes.append(
                    f"{f'{name}: ' * bool(name)}{what} have no word in common with what they replace; {left} "
                    f"of {total} questions have no such other one and are left out."
                )
    for name in names:
        tied, total = ties([one for one in outcomes if one.checkpoint == name])
        if tied:
            notes.append(f"{name}: {tied} of {total} answers are ties; the first choice counts.")
            log.warning("%s: %d of %d answers are ties; the first choice counts", name, tied, total)
    sentences, lead = [], " -> ".join(names)
    for name, (_, count) in sizes.items():
        on = f"{lead}, {name}" if name else lead
        if "no_question" in plan.probes:
            cell = {"benchmark": name, "probe": "no_question"}
            kept = change("confidence", results.rows("confidence", names, **cell))
            right = change("pseudo-accuracy", results.rows("pseudo_accuracy", names, **cell))
            sentences.append(f"{on}, without the question: {kept} and {right}; chance is {short(1 / count)}")
        if "choice_paralysis" in plan.probes and len(sizes) == 1:
            cell = {"probe": "choice_paralysis", "sampling": plan.sampling[0], "benchmark": name}
            cell["n_choices"] = str(plan.choices[-1])
            before, after = (
                change(text, results.rows(measure, names, **cell), percent=True)
                for measure, text in (
                    ("accuracy_before", "right among their own choices"),
                    ("accuracy", "right"),
                )
            )
            sentences.append(f"{on}, among {plan.choices[-1]} {plan.sampling[0]} choices: {after}; {before}")
    if "choice_paralysis" in plan.probes:
        notes.append(
            f"Choice paralysis: {drawn} questions drawn in each trial, the same for "
            f"every number of choices. Heuristic: the questions whose {plan.similar_by} are most similar to "
            "the prompt. A question with the same prompt gives no choices, since they could be right."
        )
    return Evaluation(
        title="Confusion probes",
        results=results,
        views=VIEWS,
        about=about,
        headline=headline(sentences, "confidence at chance where nothing tells the answer, and many right"),
        notes=notes,
        figures=figures(frame, plan, names, {name: 1 / count for name, (_, count) in sizes.items()}),
        examples=frame["example"],
        console=2,
    )


def ties(outcomes: Sequence[TrialAnswers]) -> tuple[int, int]:
    """How many answers have several choices of the greatest confidence, and how many there are."""
    tied = [(one.confidence_PC == one.confidence_PC.max(1, keepdims=True)).sum(1) > 1 for one in outcomes]
    return sum(int(tied_P.sum()) for tied_P in tied), sum(map(len, tied))


BIAS: dict[str, Any] = {"probe": list(BIASED), "split": ""}

VIEWS = [
    View(
        "Prior bias",
        ("benchmark", "probe"),
        {
            "accuracy_before": "accuracy before",
            "pseudo_accuracy": "pseudo-accuracy",
            "confidence_before": "confidence before",
            "confidence": "confidence after",
            "variance": "variance",
        },
        where=BIAS,
        caption="Before: with the original question. Pseudo-accuracy and confidence after: of the slot where "
        "the right choice stood. Variance: the paper's definition 1, over the choices of a question, in the "
        "mean. n: answers, over all trials.",
    ),
    View(
        "Wrong question (the paper's Table 1)",
        ("checkpoint", "benchmark"),
        {
            "pseudo_accuracy": "pseudo-accuracy",
            "pseudo_accuracy_trial_se": "its standard error over trials",
            "confidence_difference": "confidence: no question – wrong question",
        },
        across="measure",
        where=BIAS | {"probe": "wrong_question"},
        caption="The difference is above 0 if a wrong question misleads more than none. n: "
        "trials (of the standard error) and answers.",
    ),
    View(
        "Choice paralysis",
        ("benchmark", "sampling", "n_choices"),
        {
            "accuracy_before": "accuracy before",
            "accuracy": "hits@1",
            "matching_k": "k to match",
            "paralysis": "paralysis",
        },
        where={"probe": "choice_paralysis"},
        caption="Accuracy before: of the drawn questions with their own choices; k to match: the smallest k "
        "whose hits@k reaches the accuracy of all questions with their own (the paper's Figure 6). "
        "Paralysis: confidence in the right choice before less that after (definition 2 with the sign of the "
        "paper's words; its formula is the negative).",
    ),
    View(
        "Calibration by MaxProb",
        ("benchmark", "probe"),
        {"tau": "tau", "acc_perturbed_only": "changed only", "acc_mixed": "mixed"},
        where=BIAS,
        caption="A question counts as unchanged iff its greatest confidence is above tau, the mean over one "
        "random half of the questions and of their changed versions. Changed only: the share of changed ones "
        "told right, which the paper's Table 2 seems to hold; mixed: of both. Means of five splits.",
    ),
    View(
        "MaxProb, margin and entropy",
        ("benchmark", "probe", "score"),
        {"auroc": "AUROC", "aurc": "area under risk"},
        where={"score": list(CERTAINTIES), "coverage": "", "sampling": ""},
        caption="How sure a model is: its greatest confidence, by how much that exceeds the second, or the "
        "entropy of all (with two choices they agree). AUROC: how often it is surer of a right answer than "
        "of a wrong one (original), or of a question than of its changed version. Area under risk: the mean "
        "share of wrong answers among the surest, over all coverages; who answers a changed question is "
        "wrong. results.csv has the curves (`risk` by `coverage`), and both of choice paralysis.",
    ),
    View(
        "Differences of confidences",
        ("benchmark",),
        {name: title.replace("\n", " ") for name, (title, _) in GAPS.items()},
        caption="No question less wrong question (the paper's Table 1): above 0 if a wrong one misleads. "
        "ANC' – SAC: 0 without bias; ANC – RAC: -1 for a model that knows all.",
    ),
    View(
        "Tests of prior bias (p)",
        ("benchmark", "test", "probe"),
        {"greatest_p": "p"},
        where=BIAS,
        caption="The paper names no tests; these are ours (those of choice paralysis: results.csv). Of a "
        "test in every trial the greatest p. A variance is never below 0, so the paper's test says nothing.",
    ),
    View(
        "Which letter is preferred",
        ("benchmark", "probe", "slot"),
        {"slot_preference": "confidence in the slot"},
        where={"n_choices": ""},
        caption="Who chooses by letter sees every choice behind every letter once; confidences are means "
        "over these orders. Whatever stands in a slot gets 1 by the number of choices without a preference "
        "for places.",
    ),
    View(
        "Does the order decide",
        ("benchmark", "probe"),
        {"same_pick": "same choice in every order"},
        where={"n_choices": ""},
    ),
    View(
        "What is picked",
        ("benchmark",),
        {"words_picked": "words of picked choices", "words_not_picked": "of others", "overlap": "overlap"},
        caption="Of the originals. Words: split at white space; the interval is 1.96 standard errors. "
        "Overlap: Pearson's r of the frequencies of words (runs of word characters, lower case) shared with "
        "the prompt, in picked and in other choices.",
    ),
]


def figures(
    frame: DataFrame, plan: Plan, names: Sequence[str], benchmarks: Mapping[str, float]
) -> dict[str, Figure]:
    """Those of every benchmark (name to chance): boxes of confidences (the paper's Figure 3), means of their
    differences (4), confidence (5) and hits@k (6) by number of choices, and risk by coverage."""
    drawn: dict[str, Figure] = {}
    for benchmark, chance in benchmarks.items():
        end = f"_{re.sub(r'[^A-Za-z0-9.-]+', '_', benchmark)}.png" if benchmark else ".png"
        here, part = {"benchmark": benchmark}, frame[frame["benchmark"] == benchmark]
        probes = [probe for probe in BIASED if probe in plan.probes]
        if probes:
            boxes = {
                probe.replace("_", " "): [
                    part[(part["checkpoint"] == name) & (part["probe"] == probe)]["confidence"].to_numpy()
                    for name in names
                ]
                for probe in ("original", *probes)
            }
            ideal, label = [math.nan, *[chance] * len(probes)], "confidence in the labelled choice"
            drawn[f"confidences{end}"] = partial(draw_boxes, boxes, names, ideal, label)
        if gaps := [gap for gap in GAPS if gap in part and part[gap].notna().any()]:
            drawn[f"differences{end}"] = Bars(
                x="checkpoint",
                hue="benchmark",
                measures={
                    gap: f"{title}\nideal: {ideal:g}" for gap, (title, ideal) in GAPS.items() if gap in gaps
                },
                where=here,
                label="mean difference of confidences",
            )
        original = here | {"probe": "original"}
        if "choice_paralysis" in plan.probes:
            drawn[f"paralysis{end}"] = Lines(
                x="n_choices",
                hue="checkpoint",
                measures={"confidence": ""},
                panels="sampling",
                where=here | {"probe": "choice_paralysis"},
                label="confidence in the right choice",
                x_label="choices (dashed: all questions, own choices)",
                level=original | {"measure": "confidence"},
            )
            for kind in plan.sampling:
                drawn[f"hits_{kind}{end}"] = Lines(
                    x="k",
                    hue="checkpoint",
                    measures={"hits": "choices"},
                    panels="n_choices",
                    where=here | {"sampling": kind},
                    label=f"hits@k ({kind})",
                    x_label="k (dashed: all questions, own choices)",
                    level=original | {"measure": "accuracy"},
                )
        drawn[f"risk{end}"] = Lines(
            x="coverage",
            hue="score",
            measures={"risk": ""},
            panels="checkpoint",
            where=original,
            label="wrong among the surest",
            x_label="coverage",
        )
    return drawn


def draw_boxes(
    columns: Mapping[str, Sequence[np.ndarray]],
    names: Sequence[str],
    ideal: Sequence[float],
    label: str,
    _: DataFrame,
    path: Path,
) -> None:
    """Groups of boxes with a dashed line at the ideal, one box for each name: median, quartiles, mean as a
    diamond, whiskers to 1.5 IQR. `columns` maps the title of a group to the values of every name."""
    figure = new_figure(2.6 + len(columns) * (0.6 + 0.45 * len(names)), 3.6)
    axes: Axes = figure.subplots()
    width = 0.8 / len(names)
    mean = {"marker": "D", "markersize": 4, "markerfacecolor": "white", "markeredgecolor": "black"}
    for i, name in enumerate(names):
        boxes = axes.boxplot(
            [values[i] for values in columns.values()],
            positions=[g + (i - (len(names) - 1) / 2) * width for g in range(len(columns))],
            widths=0.8 * width,
            showmeans=True,
            showfliers=False,
            patch_artist=True,
            medianprops={"color": "black"},
            meanprops=mean,
            boxprops={"facecolor": COLOURS[i % len(COLOURS)], "alpha": 0.55},
            manage_ticks=False,
        )
        boxes["boxes"][0].set_label(name)
    for g, value in enumerate(ideal):
        mark = "without bias" if g == len(ideal) - 1 else None
        axes.plot([g - 0.46, g + 0.46], [value] * 2, "k--", linewidth=1, label=mark)
    # The first model's counts are all models': they get the same questions.
    axes.set_xticks(range(len(columns)), [f"{name}\nn = {len(v[0])}" for name, v in columns.items()])
    axes.set_ylabel(label)
    bare(axes)
    figure.legend(loc="outside upper center", ncols=min(4, len(names) + 1), frameon=False, fontsize=9)
    figure.savefig(path, dpi=150)
