"""What a report says, under the keys that the goldens know: reports of another form are mapped here."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.golden.adapter import digest

Numbers = Iterator[tuple[str, float]]

KEPT = 30_000
"""Characters, fractions aside, of rows that are kept whole."""


Cell = dict[str, Any]
"""A row of results.csv."""


def faithfulness(row: Cell, several: bool) -> Numbers:
    """`[CHECKPOINT/]VARIANT/[TYPE/]MEASURE`."""
    if row["domain"]:
        return
    at = "/".join(
        [row["checkpoint"]] * several + [row["variant"]] + [row["answer_type"]] * bool(row["answer_type"])
    )
    if row["measure"] == "failed":
        yield f"{at}/failures", round(row["value"] * row["n"])
    else:
        yield f"{at}/{row['measure']}", row["value"]
        yield f"{at}/n", row["n"]


def negation(row: Cell, several: bool) -> Numbers:
    """`[CHECKPOINT/][edit/EDIT/|dataset/DATA/]STORY_acc` and `.../STORY/yes`."""
    parts = [row["checkpoint"]] * several
    parts += ["edit", row["edit"]] * bool(row["edit"]) + ["dataset", row["data"]] * bool(row["data"])
    at, story = "".join(f"{part}/" for part in parts), row["story"]
    if row["measure"] == "failed":
        yield f"{at}failures", round(row["value"] * row["n"])
    elif row["measure"] == "accuracy":
        yield f"{at}{story}_acc", row["value"]
        if story == "comb":
            yield f"{at}n", row["n"]
    else:
        yield f"{at}{story}/{row['measure']}", row["value"]


def predicate_argument(row: Cell, several: bool) -> Numbers:
    """`[CHECKPOINT/][negated/][schema/SCHEMA/]WORDING/MEASURE`."""
    parts = [row["checkpoint"]] * several + [row["data"]] * (row["data"] != "plain")
    parts += ["schema", str(row["schema"])] * (row["schema"] != "") + [row["wording"]]
    at = "/".join(parts)
    if row["measure"] == "failed":
        yield f"{at}/failures", round(row["value"] * row["n"])
        return
    yield f"{at}/{row['measure']}", row["value"]
    yield f"{at}/n", row["n"]


def bias(row: Cell, several: bool) -> Numbers:
    """`[CHECKPOINT/]CLASS/MEASURE[/SUBJECT[/ATTRIBUTE]]`, `[CHECKPOINT/]qa/f1`."""
    name, measure = [row["checkpoint"]] * several, row["measure"]
    if row["cluster"] or measure == "failed":
        return
    if measure in ("em", "f1"):
        yield "/".join([*name, "qa", measure]), row["value"]
        yield "/".join([*name, "qa/n"]), row["n"]
        return
    place = [part for part in (row["subject"], row["attribute"]) if part]
    yield "/".join([*name, row["class"], measure, *place]), row["value"]
    if measure in ("mu", "gamma"):
        yield "/".join([*name, row["class"], "n", *place]), row["n"]


def ask(row: Cell, several: bool) -> Numbers:
    """`with_advice/CANDIDATE`."""
    yield f"{row['asked'].replace(' ', '_')}/{row['candidate']}", row["value"]


def confusion(row: Cell, several: bool) -> Numbers:
    """`[CHECKPOINT/]PROBE/MEASURE`, `[CHECKPOINT/]choice_paralysis/SAMPLING/CHOICES/MEASURE`, ..."""
    at, probe = f"{row['checkpoint']}/" * several, row["probe"]
    measure, value, n = row["measure"], row["value"], row["n"]
    if row["test"]:
        where = f"{at}{probe}/" + f"{row['sampling']}/{row['n_choices']}/" * bool(row["sampling"])
        renamed = {"confidence_difference_above_0": f"{at}confidence_difference"}
        renamed["words_picked_or_not"] = f"{at}irregularities/words"
        name = renamed.get(row["test"], where + row["test"]) + f"_{row['trial']}" * (row["trial"] != "")
        if measure != "greatest_p":
            yield f"{name}/{measure}", value
    elif probe == "original":
        yield from confusion_original(row, at)
    elif measure.startswith("confidence_difference"):
        if "trial" not in measure:
            yield f"{at}{measure}", value
        if measure.endswith("_sd"):
            yield f"{at}confidence_difference_se", value / math.sqrt(n)
    elif row["sampling"]:
        if measure.startswith("accuracy_trial"):
            return  # hits@1
        where = f"{at}choice_paralysis/{row['sampling']}/{row['n_choices']}/"
        if measure.startswith("hits"):
            measure = measure.replace("hits", f"hits@{row['k']}")
        if measure.endswith("_trial_sd"):
            name = measure.removesuffix("_trial_sd")
            yield from ((f"{where}{name}_sd", value), (f"{where}{name}_se", value / math.sqrt(n)))
        elif measure == "paralysis_sd":
            yield f"{where}paralysis_instances_sd", value
            yield f"{where}n", n
        elif measure not in ("accuracy", "confidence_sd"):
            yield f"{where}{measure}", value
    else:
        yield from confusion_biased(row, f"{at}{probe}/")


def confusion_original(row: Cell, at: str) -> Numbers:
    """Of the questions as they are."""
    measure, value, n = row["measure"], row["value"], row["n"]
    words = {"words_picked": "selected", "words_not_picked": "other"}
    if measure == "label_share":
        yield f"{at}irregularities/balance/{row['slot']}", value
    elif measure in words:
        where = f"{at}irregularities/words/{words[measure]}"
        yield from ((f"{where}/mean", value), (f"{where}/n", n))
        yield from ((f"{where}/low", row["low"]), (f"{where}/high", row["high"]))
    elif measure == "overlap":
        yield from ((f"{at}irregularities/overlap", value), (f"{at}irregularities/overlap_words", n))
    else:
        yield from (("n", n), (f"{at}original/{measure}", value))
        if measure == "confidence_sd":
            yield f"{at}original/confidence_se", value / math.sqrt(n)


def confusion_biased(row: Cell, at: str) -> Numbers:
    """Of the probes that leave no right answer."""
    measure, value, n = row["measure"], row["value"], row["n"]
    maxprob = ("tau", "acc_perturbed_only", "acc_mixed")
    if measure.startswith(maxprob):
        if row["split"]:
            yield from ((f"{at}maxprob/{measure}", value), (f"{at}maxprob/n", n))
        elif measure.endswith("_split_sd"):
            yield f"{at}maxprob/{measure.replace('_split_sd', '_sd')}", value
        else:
            yield f"{at}maxprob/{measure}_mean", value
    elif measure.endswith("_trial_sd"):
        name = measure.removesuffix("_trial_sd")
        if name == "pseudo_accuracy":
            yield f"{at}{name}_sd", value
        if name in ("pseudo_accuracy", "confidence", "anc_post_minus_sac", "anc_minus_rac"):
            yield f"{at}{name}_se", value / math.sqrt(n)
    else:
        yield f"{at}{measure}", value
        if measure == "chance":
            yield from ((f"{at}n", n), ("choices", round(1 / value)))


def consistency(row: Cell, several: bool) -> Numbers:
    """`DOMAIN/VARIANT/[ATTRIBUTE/]MEASURE`, `verdict/READING/TEST`; a change was positive where less."""
    name, value = row["measure"], row["value"]
    if row["reading"]:
        yield f"verdict/{row['reading']}/{name}", value
    elif name == "failed":
        yield "failures", round(value * row["n"])
    elif not row["domain"]:
        yield f"perplexity/{row['variant']}", value
    elif row["group"] == "":
        parts = [row["domain"], row["variant"], *([row["attribute"]] if row["attribute"] else []), name]
        yield "/".join(parts), 0.0 - value if name == "change" else value
        if name == "average":
            yield f"{row['domain']}/{row['variant']}/n", row["n"]


def shift(row: Cell, several: bool) -> Numbers:
    """`[CHECKPOINT/]shift/[single_window/]WHERE/VARIANT/[layer_01/]WHAT` and
    `between/FIRST_SECOND/WHERE/layer_01/WHAT`; the last layer of one checkpoint has no layer."""
    measure, where = row["measure"], {"common": "tokens"}.get(row["embedding"], row["embedding"])
    if measure == "stories":
        yield "stories", row["value"]
    elif row["reference"]:
        yield (
            f"between/{row['reference']}_{row['checkpoint']}/{where}/layer_{row['layer']:02d}/{measure}",
            row["value"],
        )
    else:
        family = "/".join(
            [row["checkpoint"]] * several + ["shift"] + ["single_window"] * (row["stories"] != "all")
        )
        variant = row["variant"]
        if measure == "skipped":
            yield f"{family}/{variant}/skipped", row["value"]
        elif measure == "pairs":
            yield f"{family}/{where}/{variant}/pairs", row["value"]
            yield f"{family}/{where}/{variant}/n", row["n"]
        else:
            layer = "" if row["layer"] == LAYERS else f"layer_{row['layer']:02d}/"
            yield f"{family}/{where}/{variant}/{layer}{measure.replace('cosine', 'mean')}", row["value"]
            yield f"{family}/{where}/{variant}/n", row["n"]


LAYERS = 2
"""Of the models of the goldens."""


def feature_bias(row: Cell, several: bool) -> Numbers:
    """`[CHECKPOINT/]TASK/INTERVENTION/[STEER/]MEASURE`."""
    parts = (
        [row["checkpoint"]] * several
        + [row["task"], row["intervention"]]
        + [row["steer"]] * bool(row["steer"])
    )
    at, measure, value = "/".join(parts), row["measure"], row["value"]
    if not row["task"] or measure == "intended":
        return
    if measure == "ones":
        if row["seed"] == 0:
            yield f"{at}/n_{row['cell']}", row["n"]
    elif measure == "failed":
        yield f"{at}/failures", round(value * row["n"])
    elif measure == "h1_sd":
        yield from ((f"{at}/sd", value), (f"{at}/seeds", row["n"]))
    else:
        renamed = {"h1": "h1_acc", "h2": "h2_acc", "h1_se": "se", "uncalibrated_h1": "uncalibrated_h1_acc"}
        yield f"{at}/{renamed.get(measure, measure)}", value


FLAT_KEYS: dict[str, Callable[[Cell, bool], Numbers]] = {
    "confusion": confusion,
    "faithfulness": faithfulness,
    "feature-bias": feature_bias,
    "shift": shift,
    "negation": negation,
    "predicate-argument": predicate_argument,
    "bias": bias,
    "ask": ask,
    "consistency": consistency,
}
"""Protocol to the flat keys, with their values, that a row of its long table stands for; `several` says
whether there is more than one checkpoint. Numbers that the flat report did not have yield nothing."""

NEW_FIELDS = {
    "faithfulness": {"domain"},
    "bias": {"data", "category", "attribute"},
    "consistency": {"checkpoint", "method"},
}
"""Fields of examples.jsonl that the goldens do not have yet."""

RENAMED = {
    "feature-bias": {"checkpoint": "model", "path": "checkpoint"},
    "negation": {"data": "dataset"},
    "predicate-argument": {"data": "set"},
    "bias": {"checkpoint": "run"},
}
"""Fields of examples.jsonl that the goldens know by another name."""


def report_numbers(folder: Path, protocol: str) -> dict[str, float | None]:
    """Every number of a report by its flat key; None where there is nothing to divide by."""
    found = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    rows = [
        {key: math.nan if value is None else value for key, value in row.items()} for row in found["results"]
    ]
    several = len({row.get("checkpoint", row.get("model")) for row in rows} - {""}) > 1
    flat = (pair for row in rows for pair in FLAT_KEYS[protocol](row, several))
    return {key: None if value != value else value for key, value in flat}


def example_rows(folder: Path, protocol: str) -> list[dict[str, Any]]:
    """The rows of examples.jsonl, in an order that does not depend on the one they were written in."""
    lines = (folder / "examples.jsonl").read_text(encoding="utf-8").splitlines()
    new = NEW_FIELDS.get(protocol, set())
    old = RENAMED.get(protocol, {})
    rows = (
        {old.get(key, key): value for key, value in json.loads(line).items() if key not in new}
        for line in lines
    )
    return sorted(rows, key=lambda row: json.dumps(texts(row), sort_keys=True))


def kept_rows(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The rows themselves where they are few; else a digest of what is no fraction in them, and the sums of
    what is."""
    short = [rounded(row) for row in rows]
    if len(json.dumps([texts(row) for row in rows])) <= KEPT:
        return {"rows": short}
    sums: dict[str, float] = {}
    for row in rows:
        add_floats(row, "", sums)
    return {"n": len(rows), "digest": digest([texts(row) for row in rows]), "sums": rounded(sums)}


def texts(value: Any) -> Any:
    """The same with a mark in place of every fraction."""
    if isinstance(value, dict):
        return {key: texts(item) for key, item in value.items()}
    if isinstance(value, list):
        return [texts(item) for item in value]
    return "fraction" if isinstance(value, float) else value


def rounded(value: Any) -> Any:
    """The same with ten digits of every fraction."""
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [rounded(item) for item in value]
    return float(f"{value:.10g}") if isinstance(value, float) else value


def add_floats(value: Any, key: str, sums: dict[str, float]) -> None:
    """Add the fractions of a row to the sums of their fields."""
    if isinstance(value, dict):
        for name, item in value.items():
            add_floats(item, f"{key}/{name}" if key else name, sums)
    elif isinstance(value, list):
        for item in value:
            add_floats(item, key, sums)
    elif isinstance(value, float):
        sums[key] = sums.get(key, 0.0) + value


def differences(expected: Any, found: Any, *, rel: float, where: str = "") -> list[str]:
    """Where two values differ: fractions by more than `rel`, everything else at all."""
    if isinstance(expected, dict) and isinstance(found, dict):
        told = [f"{where}/{key}: missing" for key in expected.keys() - found.keys()]
        told += [f"{where}/{key}: new" for key in found.keys() - expected.keys()]
        for key in expected.keys() & found.keys():
            told += differences(expected[key], found[key], rel=rel, where=f"{where}/{key}")
        return sorted(told)
    if isinstance(expected, list) and isinstance(found, list):
        if len(expected) != len(found):
            return [f"{where}: {len(found)} items, expected {len(expected)}"]
        pairs = enumerate(zip(expected, found, strict=True))
        return [t for i, (e, f) in pairs for t in differences(e, f, rel=rel, where=f"{where}[{i}]")]
    numbers = all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in (expected, found))
    if numbers and float in (type(expected), type(found)):
        near = abs(expected - found) <= max(rel * abs(expected), rel * SMALL)
        return [] if near else [f"{where}: {found!r}, expected {expected!r}"]
    return [] if expected == found else [f"{where}: {found!r}, expected {expected!r}"]


SMALL = 0.01
"""Fractions below it are compared as if they were as large: they are differences of numbers near one."""
