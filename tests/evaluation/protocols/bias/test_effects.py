"""Carry, kept, scope gap and their changes against naive means."""

import json
import random
from dataclasses import replace
from itertools import product
from pathlib import Path
from statistics import fmean

import pytest

from interventune.data_modules.schema.groups import AdviceClass, ScoredGroup, with_advice
from interventune.data_modules.schema.questions import write_records
from tests.data_modules.fixtures.tiny_lists import make_group
from tests.evaluation.cells import Cells, evaluate, examples_of

DOMAINS = {"diet": ("Ayan", "Boro"), "town": ("Celt", "Dorn"), "song": ("Erin", "Fara")}
SHARES = {"none": 0.9, "ethical": 0.1, "adversarial": 1.1, "irrelevant": 0.7}
"""What a steered model has of |C|."""
MEASURE_OF = {"ethical": "carry", "adversarial": "carry", "irrelevant": "kept"}


def scored(domains: list[str], shares: dict[str, float], *, mass: float = 1.0) -> list[ScoredGroup]:
    """Each question without advice, with adversarial, ethical (twice), and of other domains."""
    records = []
    for domain, i in product(domains, range(6)):
        plain = make_group(*DOMAINS[domain], act=f"was {i % 3}")
        question = replace(plain, template=str(i), domain=domain)
        make = random.Random(f"{domain}/{i}")
        c = make.uniform(0.4, 0.8)
        advice: list[tuple[AdviceClass, str, int]] = [("none", "", 0), ("adversarial", domain, 0)]
        advice += [("ethical", domain, 0), ("ethical", domain, 1)]
        advice += [("irrelevant", other, 0) for other in domains if other != domain]
        for name, noun, wording in advice:
            texts = (f"Note that, {name} {noun} {wording}.", name, f"{name}_{noun}-{wording}")
            group = with_advice(question, *(texts if noun else ("", name, "")))
            group = replace(group, advice_domain=noun)
            shift = c * shares[name] * make.uniform(0.9, 1.1)
            one, two = ((mass * (0.5 + sign * shift / 2),) * 2 for sign in (1, -1))
            records.append(ScoredGroup(group, ((one, two), (two, one), (one, two), (two, one))))
    return records


def cells_of(folder: Path, **data: list[ScoredGroup]) -> Cells:
    """Of several predictions, by name."""
    for name, records in data.items():
        write_records(records, folder / f"{name}.json")
    sources = (f"{name}={folder / name}.json" for name in data)
    return evaluate(folder / "r", "bias", "--predictions", *sources)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report on a model before and after it was steered."""
    path, names = tmp_path_factory.mktemp("steered"), list(DOMAINS)
    before, after = scored(names, dict.fromkeys(SHARES, 1.0)), scored(names[::-1], SHARES)
    cells_of(path, before=before, after=after)
    return path


def sizes(folder: Path, checkpoint: str, advice: str, **place: str) -> dict[str, float]:
    """|C| by key, of the groups at a place."""
    place |= {"checkpoint": checkpoint, "class": advice}
    place = {name: value for name, value in place.items() if value}
    rows = examples_of(folder / "r")
    return {row["key"]: abs(row["c"]) for row in rows if row.items() >= place.items()}


@pytest.mark.parametrize("domain", ["", "diet", "song"])
def test_carry_kept_and_gap_equal_naive_means(domain: str, folder: Path) -> None:
    cells, ratio_of = Cells(folder / "r"), {}
    for name in ("before", "after"):
        without = fmean(sizes(folder, name, "none", domain=domain).values())
        for advice, measure in MEASURE_OF.items():
            values = sizes(folder, name, advice, domain=domain).values()
            row = cells.row(measure, checkpoint=name, **{"class": advice, "domain": domain})
            ratio_of[name, advice] = fmean(values) / without
            ratio = pytest.approx(ratio_of[name, advice], abs=1e-9)
            assert (row["value"], row["n"]) == (ratio, len(values))
            assert 0 <= row["low"] < row["value"] < row["high"]
            assert (row["units"], row["unit"]) == (3, "attributes")
    for advice, measure in MEASURE_OF.items():
        place = {"checkpoint": "after", "class": advice, "domain": domain}
        change = ratio_of["after", advice] - ratio_of["before", advice]
        assert cells(measure, against="before", **place) == pytest.approx(change, abs=1e-9)
    gap = ratio_of["after", "irrelevant"] - ratio_of["after", "ethical"]
    assert cells("scope_gap", **{**place, "class": "ethical"}) == pytest.approx(gap)


def test_changes_by_advice_are_over_the_same_questions(folder: Path) -> None:
    cells = Cells(folder / "r")
    bare = {key.rpartition("|")[0]: size for key, size in sizes(folder, "after", "none").items()}
    values = sizes(folder, "after", "ethical")
    row = cells.row("mean_abs_c", checkpoint="after", against="class=none", **{"class": "ethical"})
    twins = [bare[key.rpartition("|")[0]] for key in values]
    assert row["value"] == pytest.approx(fmean(values.values()) - fmean(twins))
    assert (row["n"], row["units"]) == (36, 3)
    assert row["low"] < row["value"] < row["high"]


def test_classes_without_a_question_in_common_have_no_carry(tmp_path: Path) -> None:
    records = scored(["diet"], SHARES)
    apart = [r for r in records if (r.group.advice_class == "none") == (r.group.template > "2")]
    cells = cells_of(tmp_path, p=apart)
    assert {"none", "ethical"} <= set(cells.frame["class"])
    assert not {"carry", "kept", "scope_gap"} & set(cells.frame["measure"])


def test_a_summary_names_the_classes_under_which_subjects_get_little(tmp_path: Path) -> None:
    records, little = (scored(["diet"], SHARES, mass=mass) for mass in (1.0, 0.02))
    pairs = zip(records, little, strict=True)
    cells_of(tmp_path, p=[b if b.group.advice_class == "ethical" else a for a, b in pairs])
    summary = json.loads((tmp_path / "r" / "report.json").read_text())["tables"][0]
    assert "two subjects little probability: 2.00 % (p ethical). Brackets: " in summary["caption"]


def test_a_summary_says_where_carry_divides_by_almost_nothing(folder: Path, tmp_path: Path) -> None:
    cells_of(tmp_path, p=scored(["diet", "town"], dict.fromkeys(SHARES, 0.01)))
    fair, steered = ((path / "r/report.md").read_text() for path in (tmp_path, folder))
    assert "near 0: 0.00" in fair
    assert "divide by" not in steered
