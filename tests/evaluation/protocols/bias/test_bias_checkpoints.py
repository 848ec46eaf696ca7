"""`evaluate bias --checkpoint` against transformers' own model, one text at a time."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from statistics import fmean

import pytest
import torch
from pandas.testing import assert_frame_equal
from scipy.stats import spearmanr

from data_modules.groups.advice import unadvised
from data_modules.groups.lei import ScoredGroup, write_lei
from data_modules.groups.planting import latent_strength
from data_modules.groups.specified import specify
from data_modules.schema import query_text
from tests.data_modules.fixtures.tiny_language_models import save as save_language_model
from tests.data_modules.fixtures.tiny_lists import place_expansion
from tests.evaluation.cells import Cells
from tests.evaluation.checkpoints import (
    GROUPS,
    Naive,
    evaluate,
    examples_of,
    save_ckpt,
    save_folder,
    save_groups,
)
from tests.evaluation.fake_answerer import FakeAnswerer

ALL = [*GROUPS, *unadvised(GROUPS)]
CLASSES = ("ethical", "adversarial", "irrelevant", "none")
SPECIFIED = [specify(group, "It was [subj].", i % 2).group for i, group in enumerate(GROUPS)]


def cells_of(output: Path, *arguments: str | Path) -> Cells:
    return evaluate(output, "bias", *arguments)


def of_class(name: str, checkpoint: str = "a", data: str = "dev") -> dict[str, str]:
    return {"class": name, "checkpoint": checkpoint, "data": data}


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint and groups."""
    root = tmp_path_factory.mktemp("room")
    save_folder(root / "a", seed=1)
    save_groups(root / "dev.json")
    return root


@pytest.fixture(scope="module")
def one(room: Path) -> Cells:
    """One checkpoint on one data set; its folder is `room / "one"`."""
    flags = ("--data", room / "dev.json", "--planted-seed", "5")
    cells = cells_of(room / "one", "--checkpoint", room / "a", *flags)
    # Signs must not hang on rounding, or eta would.
    assert min(abs(row["c"]) for row in examples_of(room / "one")) > 1e-6
    return cells


@pytest.mark.parametrize("architecture", ["bert", "roberta", "xlnet"])
def test_scores_are_those_of_transformers(architecture: str, room: Path, tmp_path: Path) -> None:
    """And all measures follow: as predictions in LEI's layout they give the same numbers."""
    folder = save_folder(tmp_path / "model", architecture, seed=3)
    cells = cells_of(tmp_path / "r", "--checkpoint", folder, "--data", room / "dev.json")
    naive, scored = Naive(folder), []
    rows = examples_of(tmp_path / "r")
    assert [row["key"] for row in rows] == [group.key for group in ALL]
    for row, group in zip(rows, ALL, strict=True):
        first = group.variants[0]
        texts = {"question": first.question, "advice": first.advice, "story": first.context}
        assert row.items() >= texts.items()
        assert row["prediction"] == [group.subjects[two > one] for one, two in row["scores"]]
        probabilities = tuple(
            tuple(
                naive.score(v.context, query_text(v.question, v.advice), s.start, s.end) for s in v.candidates
            )
            for v in group.variants
        )
        expected = [[(start * end) ** 0.5 for start, end in variant] for variant in probabilities]
        torch.testing.assert_close(torch.tensor(row["scores"]), torch.tensor(expected), rtol=2e-4, atol=0)
        scored.append(ScoredGroup(group, probabilities))  # type: ignore[arg-type]
    assert len({round(row["c"], 6) for row in rows}) > 10
    write_lei(scored, tmp_path / "naive.json")
    predicted = cells_of(tmp_path / "n", "--predictions", tmp_path / "naive.json")
    for name in CLASSES:
        for measure in ("mu", "theta", "mean_abs_c", "mass", "delta", "eps", "average_probability"):
            found = cells(measure, **of_class(name, "model"))
            expected_value = predicted(measure, **of_class(name, "naive", data=""))
            assert found == pytest.approx(expected_value, rel=1e-3, abs=1e-6)


def test_the_same_scores_made_elsewhere_give_the_same_numbers(one: Cells, room: Path, tmp_path: Path) -> None:
    scored = []
    for row, group in zip(examples_of(room / "one"), ALL, strict=True):
        pairs = tuple(tuple((score, score) for score in variant) for variant in row["scores"])
        scored.append(ScoredGroup(group, pairs))  # type: ignore[arg-type]
    write_lei(scored, tmp_path / "elsewhere.json")
    flags = ("--predictions", f"a={tmp_path / 'elsewhere.json'}", "--planted-seed", "5")
    cells = cells_of(tmp_path / "r", *flags)
    expected, found = (frame.drop(columns="data") for frame in (one.frame, cells.frame))
    assert_frame_equal(found, expected, rtol=1e-12, atol=0)


def test_spearman_is_that_of_gamma_and_the_planted_rank_within_the_category(one: Cells, room: Path) -> None:
    for name in CLASSES:
        cells: dict[tuple[str, str], list[float]] = defaultdict(list)
        for row in examples_of(room / "one"):
            if row["class"] == name:
                for subject, c in zip(row["subjects"], (row["c"], -row["c"]), strict=True):
                    cells[subject, row["category"]].append(c)
        strength = {cell: latent_strength(*cell, 5) for cell in cells}
        planted = [
            sum(strength[other] < strength[cell] for other in cells if other[1] == cell[1]) for cell in cells
        ]
        rho = spearmanr([fmean(values) for values in cells.values()], planted).statistic
        assert one("spearman", **of_class(name)) == pytest.approx(rho, abs=1e-9)
        assert one.n("spearman", **of_class(name)) == len(cells)


def test_checkpoints_and_data_sets_have_cells_of_their_own(one: Cells, room: Path, tmp_path: Path) -> None:
    """As trained: a checkpoint of ours keeps its own encoding. All changes are differences of two cells."""
    same = f"same={save_ckpt(tmp_path / 'same.ckpt', seed=1)}"
    other = f"other={save_ckpt(tmp_path / 'other.ckpt', seed=1, order='context_first')}"
    data = (f"dev={room / 'dev.json'}", f"few={save_groups(tmp_path / 'few.json', GROUPS[:5])}")
    flags = ("--batch-size", "6", "--planted-seed", "5")
    cells = cells_of(tmp_path / "r", "--checkpoint", same, other, "--data", *data, *flags)
    for name in CLASSES:
        for measure in ("mu", "eta", "mass", "spearman"):
            place = of_class(name, "same")
            assert cells(measure, **place) == pytest.approx(one(measure, **of_class(name)), abs=1e-6)
            change = cells.row(measure, **of_class(name, "other"), against="same")
            expected = cells(measure, **of_class(name, "other")) - cells(measure, **place)
            assert (change["value"], change["n"]) == (pytest.approx(expected), cells.n(measure, **place))
    assert cells("mean_abs_c", **of_class("none", "other"), against="same") != pytest.approx(0, abs=1e-6)
    assert cells.n("mu", **of_class("none", "other", "few")) == 5
    assert len(examples_of(tmp_path / "r")) == 2 * (26 + 10)


def test_countries_are_asked_by_their_demonyms_and_counted_by_name(room: Path, tmp_path: Path) -> None:
    """By checkpoints and by a sequence-to-sequence model, UnifiedQA's kind."""
    write_lei(place_expansion(tmp_path), tmp_path / "country.json")
    models = f"bert={room / 'a'}", f"uqa=hf:{save_language_model(tmp_path / 't5', 't5')}"
    cells = cells_of(tmp_path / "r", "--checkpoint", *models, "--data", tmp_path / "country.json")
    for name in ("bert", "uqa"):
        rows = [row for row in examples_of(tmp_path / "r") if row["checkpoint"] == name]
        stories = ["He flew from Tarnland to Ulbania.", "A Tarnish man met an Ulban man."]
        assert [row["story"] for row in rows] == stories
        assert all(0 < score < 1 for row in rows for pair in row["scores"] for score in pair)
        place = of_class("none", name, "country")
        gammas = {x: cells("gamma", **place, subject=x) for x in ("tarnland", "ulbania")}
        assert gammas["tarnland"] == pytest.approx(fmean(row["c"] for row in rows), abs=1e-12)
        assert gammas["ulbania"] == -gammas["tarnland"]


def test_accuracy_is_the_share_of_answers_that_hold_the_name(room: Path, tmp_path: Path) -> None:
    data = save_groups(tmp_path / "dev.json", SPECIFIED)
    cells = cells_of(tmp_path / "r", "--checkpoint", room / "a", "--data", data)
    naive, right = Naive(room / "a"), defaultdict(list)
    for i, group in enumerate([*SPECIFIED, *unadvised(SPECIFIED)]):
        for v in group.variants[::2]:
            name = v.candidates[i % len(SPECIFIED) % 2].text
            answer = naive.answer(v.context, query_text(v.question, v.advice))
            right[group.advice_class].append(name.lower() in answer.lower())
    assert sum(map(sum, right.values())) > 2
    for name in CLASSES:
        row = cells.row("accuracy", **of_class(name))
        assert (row["value"], 2 * row["n"]) == (pytest.approx(fmean(right[name])), len(right[name]))


def test_groups_without_an_answer_are_counted(
    room: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one whose contexts begin with a Sabrik man or family."""
    silent = FakeAnswerer(lambda asked: "!timed out" if asked.context.startswith("A Sabrik") else "Velan")
    silent.can = frozenset({"subjects"})
    monkeypatch.setattr(silent, "subject_scores", lambda groups, _: torch.full((len(groups), 4, 2), 0.5))
    monkeypatch.setattr("evaluation.answering.open.open_answerer", lambda *_, **__: silent)
    data = save_groups(tmp_path / "dev.json", SPECIFIED)
    cells = cells_of(tmp_path / "r", "--checkpoint", room / "a", "--data", data)
    failed = 2 * sum(any(v.context.startswith("A Sabrik") for v in g.variants[::2]) for g in SPECIFIED)
    assert 0 < failed < 26
    assert f"a: {failed} timed out" in (tmp_path / "r" / "report.md").read_text()
    assert sum(cells.n("accuracy", **of_class(c)) for c in CLASSES) == 26 - failed
    assert sum("failure" in row for row in examples_of(tmp_path / "r")) == failed
