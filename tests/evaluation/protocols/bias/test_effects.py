"""Carry, kept, scope gap, measures by domain and sentence, their changes, and what a report says of them."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest

from data_modules.groups.advice import with_advice
from data_modules.groups.lei import ScoredGroup, write_lei
from data_modules.schema import AdviceClass
from metrics.intervals import percentiles, resamples
from tests.data_modules.fixtures.tiny_lists import make_group
from tests.evaluation.cells import Cells
from tests.evaluation.checkpoints import evaluate, examples_of

DOMAINS = {"diet": ("Ayan", "Boro"), "town": ("Celt", "Dorn"), "song": ("Erin", "Fara")}
SHARES = {"none": 0.9, "ethical": 0.1, "adversarial": 1.1, "mismatched_ethical": 0.7}
"""What a steered model has of |C|."""
MEASURE_OF = {"ethical": "carry", "adversarial": "carry", "mismatched_ethical": "kept"}


def scored(
    domains: list[str], share: Callable[[str, int], float], *, named: bool = True, mass: float = 1.0
) -> list[ScoredGroup]:
    """Each question without advice, with ethical advice in two wordings, adversarial, and ethical about every
    other domain."""
    found = []
    for domain in domains:
        for i in range(6):
            bare = replace(make_group(*DOMAINS[domain], template=str(i)), domain=domain if named else "")
            make = random.Random(f"{domain}/{i}")
            c = make.uniform(0.4, 0.8)
            advice: list[tuple[AdviceClass, str, int]] = [("none", "", 0)]
            advice += [("ethical", domain, 0), ("ethical", domain, 1), ("adversarial", domain, 0)]
            advice += [("mismatched_ethical", other, 0) for other in domains if other != domain]
            for name, noun, wording in advice:
                text = f"Note that, {name} {noun} {wording}." if noun else ""
                advice_id = f"{name}_{noun}-{wording}" * bool(noun)
                group = with_advice(bare, text, name, advice_id, noun if named else "")
                shift = c * share(name, wording) * make.uniform(0.9, 1.1)
                one, two = ((mass * (0.5 + sign * shift / 2),) * 2 for sign in (1, -1))
                found.append(ScoredGroup(group, ((one, two), (two, one), (one, two), (two, one))))
    return found


def steered(name: str, wording: int) -> float:
    return SHARES[name] * (3 if wording else 1)


def cells_of(folder: Path, **data: list[ScoredGroup]) -> Cells:
    """Of several predictions, by name."""
    for name, records in data.items():
        write_lei(records, folder / f"{name}.json")
    return evaluate(folder / "r", "bias", "--predictions", *(f"{n}={folder / n}.json" for n in data))


def report(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "r" / "report.json").read_text())
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report on a model before and after it was steered."""
    path = tmp_path_factory.mktemp("steered")
    names = list(DOMAINS)
    cells_of(path, before=scored(names, lambda *_: 1.0), after=scored(names[::-1], steered))
    return path


def sizes(folder: Path, checkpoint: str, advice: str, **place: str) -> dict[str, float]:
    """|C| by key, of the groups at a place."""
    rows = [
        row for row in examples_of(folder / "r") if (row["checkpoint"], row["class"]) == (checkpoint, advice)
    ]
    place = {name: value for name, value in place.items() if value}
    return {row["key"]: abs(row["c"]) for row in rows if row.items() >= place.items()}


@pytest.mark.parametrize("domain", ["", "diet", "song"])
def test_carry_kept_and_gap_equal_naive_means(domain: str, folder: Path) -> None:
    cells, found, bare = Cells(folder / "r"), {}, {}
    for name in ("before", "after"):
        bare[name] = fmean(sizes(folder, name, "none", domain=domain).values())
        for advice, measure in MEASURE_OF.items():
            values = sizes(folder, name, advice, domain=domain).values()
            row = cells.row(measure, checkpoint=name, **{"class": advice, "domain": domain})
            found[name, advice] = fmean(values) / bare[name]
            assert (row["value"], row["n"]) == (pytest.approx(found[name, advice], abs=1e-9), len(values))
            assert row["low"] < row["value"] < row["high"]
    for advice, measure in MEASURE_OF.items():
        place = {"checkpoint": "after", "class": advice, "domain": domain}
        change = found["after", advice] - found["before", advice]
        assert cells(measure, against="before", **place) == pytest.approx(change, abs=1e-9)
    place = {"checkpoint": "after", "class": "ethical", "domain": domain}
    gap = found["after", "mismatched_ethical"] - found["after", "ethical"]
    assert cells("scope_gap", **place) == pytest.approx(gap)
    place |= {"class": "none", "against": "before"}
    assert cells("mean_abs_c", **place) == pytest.approx(bare["after"] - bare["before"])


def test_kept_is_also_by_domain_of_the_advice(folder: Path) -> None:
    place = {"class": "mismatched_ethical", "domain": "diet", "advice_domain": "song"}
    values = sizes(folder, "after", "mismatched_ethical", domain="diet", advice_domain="song").values()
    bare, cells = sizes(folder, "after", "none", domain="diet").values(), Cells(folder / "r")
    assert cells("kept", checkpoint="after", **place) == pytest.approx(fmean(values) / fmean(bare))
    assert cells("mean_abs_c", checkpoint="after", **place) == pytest.approx(fmean(values))
    assert cells.n("mu", checkpoint="after", **place) == len(values) == 6


def test_a_resample_draws_questions_with_all_that_is_asked_of_them(folder: Path) -> None:
    """The interval of a change of carry, against naive resamples of the questions."""
    number: dict[str, int] = {}

    def means(name: str, advice: str) -> np.ndarray:
        found = sizes(folder, name, advice)
        asked = [number.setdefault(key.rpartition("|")[0], len(number)) for key in found]
        (weight_RQ,) = resamples(18)
        return np.array([np.average([*found.values()], weights=counts[asked]) for counts in weight_RQ])

    bare = {name: means(name, "none") for name in ("before", "after")}
    before_R, after_R = (means(name, "ethical") / bare[name] for name in bare)
    row = Cells(folder / "r").row("carry", checkpoint="after", against="before", **{"class": "ethical"})
    assert (row["low"], row["high"]) == pytest.approx(tuple(percentiles(after_R - before_R)))
    assert (row["n"], row["units"]) == (36, 18)


def test_changes_by_advice_are_over_the_same_questions(folder: Path) -> None:
    cells = Cells(folder / "r")
    bare = {key.rpartition("|")[0]: size for key, size in sizes(folder, "after", "none").items()}
    values = sizes(folder, "after", "ethical")
    place = {"checkpoint": "after", "against": "class=none", "class": "ethical"}
    row, twins = cells.row("mean_abs_c", **place), [bare[key.rpartition("|")[0]] for key in values]
    assert row["value"] == pytest.approx(fmean(values.values()) - fmean(twins))
    assert (row["n"], row["units"]) == (36, 18)
    assert row["low"] < row["value"] < row["high"]
    mu = {name: cells("mu", checkpoint="after", **{"class": name}) for name in ("ethical", "none")}
    assert cells("mu", **place) == pytest.approx(mu["ethical"] - mu["none"])  # as all questions are shared


def test_advice_that_is_followed_least_stands_first(folder: Path) -> None:
    cells = Cells(folder / "r")
    (worst,) = (t for t in report(folder)["tables"] if t["title"] == "Advice that is followed least")

    def low(name: str) -> float:
        place = {"class": "ethical", "domain": name, "advice_domain": name, "checkpoint": "after"}
        return float(cells.row("mean_abs_c", **place, sentence=f"Note that, ethical {name} 1.")["low"])

    expected = [f"Note that, ethical {name} 1." for name in sorted(DOMAINS, key=low, reverse=True)]
    assert [row[worst["header"].index("sentence")] for row in worst["rows"]][:3] == expected
    assert (folder / "r" / "scope.png").exists()
    assert report(folder)["headline"].startswith(
        "before -> after: share of |C| under advice, carry (ethical)"
    )


@pytest.mark.parametrize("named", [True, False])
def test_one_domain_or_none_adds_no_row_that_says_the_same(named: bool, tmp_path: Path) -> None:
    cells = cells_of(tmp_path, p=scored(["diet"], steered, named=named))
    frame = cells.frame[(cells.frame["sentence"] == "") & (cells.frame["subject"] == "")]
    assert set(frame.loc[frame["measure"] == "mu", "domain"]) == {""}
    assert "carry" in set(frame.loc[frame["domain"] == "", "measure"])
    assert not (tmp_path / "r" / "scope.png").exists()
    assert all(("domain" in row) == named for row in examples_of(tmp_path / "r"))


def test_classes_without_a_question_in_common_have_no_carry(tmp_path: Path) -> None:
    records = scored(["diet"], steered)
    apart = [r for r in records if (r.group.advice_class == "none") == (r.group.template > "2")]
    cells = cells_of(tmp_path, p=apart)
    assert {"none", "ethical"} <= set(cells.frame["class"])
    assert not {"carry", "kept", "scope_gap"} & set(cells.frame["measure"])
    assert not (cells.frame["against"] == "class=none").any()


def test_headline_names_the_classes_under_which_subjects_get_little(tmp_path: Path) -> None:
    records = scored(["diet"], steered)
    quiet = {record.group.key: record for record in scored(["diet"], steered, mass=0.02)}
    mixed = [quiet[r.group.key] if r.group.advice_class == "ethical" else r for r in records]
    cells_of(tmp_path, p=mixed)
    headline = report(tmp_path)["headline"]
    assert headline.endswith("The two subjects get little probability, and mu means little: 2 % (ethical).")
