"""What the report of the feature-bias protocol shows: tables, figures and a headline."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any

from data_modules.tasks.wording import HYPOTHESES
from evaluation.conclusions import change, check_silence, failure_note, headline
from evaluation.figures import Bars
from evaluation.protocols.feature_bias.measures import FAMILIES, long_table
from evaluation.report import Evaluation, Figure
from evaluation.results import Results
from evaluation.views import View, cells_of

NOTE = (
    "Demonstrations (and training texts) agree with two features: h1, the label, and h2, another one, which "
    "differ on the disambiguating texts. With two classes every prediction follows one of them: h1 + h2 = "
    "100 %, and guessing gets 50 %. Each share is the mean over the two disambiguating cells, whatever their "
    "sizes, then over sets of demonstrations or training seeds (the paper's metric); `sd` is over those "
    "sets. `agree` is the accuracy where both features agree: a model at chance has learned neither. In- "
    "context predictions are calibrated with content-free texts, except explanations (the paper's way); "
    "fine-tuned ones are not."
)
PARITY = (
    "`--parity`: demonstrations, their order and the label words that count are those of the authors' code; "
    "where a pool ends early, fewer demonstrations stand in the prompt, as there."
)

WHOLE = {"task": "", "family": "", "feature": ""}


def report(
    rows: Sequence[dict[str, Any]], names: Sequence[str], tasks: Mapping[str, int], about: dict[str, Any]
) -> Evaluation:
    """The report of all rows; `tasks` to their numbers of classes."""
    check_silence(rows, names)
    results = long_table(rows, names)
    notes = [NOTE, *([PARITY] if about["parity"] else []), *failure_note(rows, "texts")]
    if several := {name: classes for name, classes in tasks.items() if classes > 2}:
        parts = ", ".join(f"{name}: {classes}" for name, classes in several.items())
        notes.append(
            f"More than two classes ({parts}): a prediction may follow neither feature, so h1 and h2 do not "
            "add up to 100 %, and guessing follows either in 1 by the number of classes."
        )
    prompts = Counter(row["checkpoint"] for row in rows if "cut" in row)
    if cut := Counter(row["checkpoint"] for row in rows if row.get("cut")):
        parts = "; ".join(f"{name}: {n} of {prompts[name]} prompts" for name, n in cut.items())
        notes.append(f"Cut at their beginning, where demonstrations stand (`--truncate`): {parts}.")
    steers = sorted({row["steer"] for row in rows} - {""})
    figures: dict[str, Figure] = {}
    if "none" in about["intervention"]:
        figures["learned.png"] = Bars(
            x="task",
            hue="checkpoint",
            measures={"h1": ""},
            where={"task": list(tasks), "intervention": "none"},
            percent=True,
            label="texts that follow the label (%)",
            chance={name: 1 / classes for name, classes in tasks.items()},
        )
    steered = partial(
        Bars,
        hue="intervention",
        measures={"intended": ""},
        panels="steer",
        percent=True,
        label="follow the intended feature (%)",
        chance=None if several else 0.5,
    )
    if steers:
        figures["steered.png"] = steered(x="checkpoint", where=WHOLE)
    frame = results.frame
    for name in names if steers and (frame["family"] != "").any() else ():
        end = f"_{name}" if len(names) > 1 else ""
        place = {"checkpoint": name, "task": "", "feature": "", "family": list(FAMILIES.values())}
        if len(cells_of(frame[frame["measure"] == "intended"], place)):
            # the paper's Figure 3
            figures[f"steered_families{end}.png"] = steered(x="family", where=place)
    return Evaluation(
        title="Feature bias",
        results=results,
        views=views(tasks, " or ".join(steers)),
        about=about,
        headline=conclusion(results, set(tasks.values())),
        notes=notes,
        figures=figures,
        examples=rows,
        console=3,
    )


def conclusion(results: Results, classes: Collection[int]) -> str:
    """Which feature each follows (with two classes it is the other one in the rest), and which intervention
    adds most; `classes` are the tasks' numbers of them."""
    frame = results.frame
    means = cells_of(frame[frame["measure"] == "h1"], WHOLE | {"intervention": "none"}).to_dict("records")
    parts = [change(f"{row['checkpoint']} follows the label in", [row], percent=True) for row in means]
    other = ", the other feature in the rest" * (max(classes) == 2)
    sentences = [f"{'; '.join(parts)} of disambiguating texts{other}"] if parts else []
    gains = cells_of(frame[(frame["measure"] == "gain") & (frame["value"] > 0)], WHOLE)
    for _, rows in gains.groupby(["checkpoint", "steer"], sort=False):
        row = rows.loc[rows["value"].idxmax()].to_dict()
        most = change(f"{row['intervention']} adds most,", [row], percent=True)
        sentences.append(f"{row['checkpoint']} toward {row['steer']}: {most}")
    chance = " to ".join(f"{100 / count:.0f}" for count in sorted({min(classes), max(classes)}, reverse=True))
    return headline(sentences, f"near {chance} % without an intervention, and interventions that add much")


def views(tasks: Collection[str], steers: str) -> list[View]:
    """By task without an intervention, means over tasks, and what interventions toward `steers` do."""
    features = {"h1": "h1", "h2": "h2"}
    learned = features | {"h1_sd": "sd", "uncalibrated_h1": "h1 uncalibrated", "agreement": "agree"}
    return [
        View(
            "Which feature is learned, in percent of disambiguating texts",
            ("task", "how"),
            learned | {"failed": "no answer"},
            where={"task": list(tasks), "intervention": "none", "steer": "", "cell": ""},
            percent=True,
        ),
        View(
            "Means over tasks, each file counted once, in percent (the paper's Figure 2)",
            ("family", "feature"),
            features,
            where={"task": "" if len(tasks) > 1 else [], "intervention": "none", "steer": ""},
            percent=True,
        ),
        View(
            f"Texts that follow the intended feature ({steers}), means over tasks, in percent",
            ("steer", "intervention"),
            {"intended": "follows it"},
            where=WHOLE,
            percent=True,
            caption="The paper's Table 2. Only tasks with every intervention count, and toward h1 no "
            "sentiment task beside others (16 of the paper's 22 files are behind that column).",
        ),
        View(
            "What an intervention adds to it, in points",
            ("steer", "intervention"),
            {"gain": "more"},
            where=WHOLE,
            percent=True,
        ),
        *(
            View(
                f"Toward {steer} by feature, in percent (the paper's Table {4 + (steer == 'h2')})",
                ("checkpoint", "family", "feature"),
                {"intended": "follows it"},
                across="intervention",
                where={"task": "", "steer": steer, "family": list(FAMILIES.values())},
                percent=True,
                interval=False,
                caption="A line without a feature is the mean over the files of the family; a feature of two "
                "files (genre, lexicon, gender, religion) is the mean over both. Intervals: results.csv.",
            )
            for steer in HYPOTHESES
        ),
        View(
            f"Texts that follow the intended feature ({steers}) by task, in percent",
            ("steer", "task", "intervention"),
            {"intended": "follows it"},
            where={"task": list(tasks) if len(tasks) > 1 else []},
            percent=True,
            most=24,
        ),
    ]
