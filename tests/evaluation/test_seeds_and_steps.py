"""Several checkpoints of one name are seeds, and those of a run's folder its steps."""

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import t

from interventune.evaluation.__main__ import main
from interventune.evaluation.answering.sources import Model, named_models
from interventune.evaluation.protocol import estimate, mean, share
from interventune.evaluation.results import NUMBERS
from tests.evaluation.cells import Cells
from tests.evaluation.protocol_cases import CASES, Case

LEFT_OUT = ("ask", "consistency", "consistency-write", "predicate-argument", "sensitivity")
MODELS = [case for case in CASES if case.protocol not in LEFT_OUT]
"""Protocols of models; two with many questions are like the others."""


def by_case(case: Case) -> str:
    return case.protocol


def kept(model: Path, run: Path, *steps: int) -> None:
    """A run whose kept checkpoints are all the same model."""
    for step in steps:
        if model.is_dir():
            shutil.copytree(model, run / f"checkpoint-{step}")
            (run / f"checkpoint-{step}/trainer_state.json").write_text("{}")
        else:
            (run / "checkpoints").mkdir(parents=True, exist_ok=True)
            shutil.copy(model, run / f"checkpoints/step_{step:06}.ckpt")


@pytest.mark.parametrize("case", MODELS, ids=by_case)
def test_equal_seeds_and_steps_have_the_numbers_of_one(
    case: Case, room: Path, tmp_path: Path
) -> None:
    """With two runs of two checkpoints each, all the same."""
    kind, colon, model = case.model.rpartition(":")
    for run in ("run_0", "run_1"):
        kept(room / model, tmp_path / run, 0, 10)
    tables = []
    for name, source in (("one", room / model), ("along", tmp_path / "run_*")):
        assert main(case.asking(room, tmp_path / name, f"m={kind}{colon}{source}")) == 0
        cells = Cells(tmp_path / name)
        cells.check()
        tables.append(cells.frame)
    one, along = tables
    places = [name for name in one if name not in (*NUMBERS, "unit")]
    expected = one.set_index(places)["value"]
    for step in (0, 10):
        part = along[(along["step"] == step) & (along["against"] != "step=0")]
        if "reference" in part:  # not of comparisons with step 0
            part = part[part["reference"] == ""]
        actual = part.set_index(places)["value"]
        assert actual.index.equals(expected.index)
        np.testing.assert_allclose(actual, expected, atol=1e-6)
        assert (part.loc[part["checkpoint"] == "m", "seeds"] == 2).all()
        assert not part["seed_std"].fillna(0).max() > 1e-6
    changes = along[along["against"] == "step=0"]
    assert len(changes)
    assert np.nanmax(np.abs(changes["value"])) < 1e-6
    report = (tmp_path / "along/report.md").read_text()
    assert "## Summary, 2 seeds\n\n| measure | m step 0 | m step 10 | change |" in report
    assert "## Along training" in report


def rows_of(value_SN: list[list[float]], first: int = 0) -> pd.DataFrame:
    parts = [
        pd.DataFrame({"x": value_N, "unit": np.arange(len(value_N)) // 2, "run": f"{first + s}"})
        for s, value_N in enumerate(value_SN)
    ]
    return pd.concat(parts)


def test_the_mean_over_seeds_and_its_change() -> None:
    one, two = rows_of([[0, 1, 0, 0], [1, 1, 0, 1]]), rows_of([[1, 1, 1, 0]] * 3, first=2)
    number, change = estimate(share("x", "x"), one), estimate(share("x", "x"), two, one)
    assert (number.value, number.n, number.units, number.seeds) == (0.5, 4, 2, 2)
    assert number.seed_std == pytest.approx(np.std([0.25, 0.75], ddof=1))
    assert (change.value, change.n, change.seeds) == (0.25, 4, 3)
    assert change.seed_std == pytest.approx(number.seed_std)  # the others do not differ
    same = estimate(share("x", "x"), one.assign(x=1 - one["x"]), one)  # paired by seed
    assert (same.value, same.seed_std) == (0, pytest.approx(2 * number.seed_std))


def test_seeds_widen_an_interval() -> None:
    """Without differences between units, it is Student's over seeds; without any between seeds,
    that over units.
    """
    flat = rows_of([[1.0] * 6, [2.0] * 6, [4.0] * 6])
    low, high = estimate(mean("x", "x"), flat).interval
    error = np.std([1, 2, 4], ddof=1) / np.sqrt(3)
    assert (low, high) == pytest.approx(t.interval(0.95, 2, 7 / 3, error))
    equal = rows_of([[1.0, 2, 5, 3, 4, 4]] * 3)
    single = equal[equal["run"] == "0"].drop(columns="run")
    assert estimate(mean("x", "x"), equal).interval == pytest.approx(
        estimate(mean("x", "x"), single).interval
    )


def test_what_names_stand_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a/seed_2", "a/seed_10", "b"):
        for step in (200, 0, 1000):
            file = tmp_path / name / f"checkpoints/step_{step:06}.ckpt"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.touch()
        (file.with_name("best.ckpt")).touch()
    for step in (5, 10):
        (tmp_path / f"c/checkpoint-{step}").mkdir(parents=True)
    (tmp_path / "c/checkpoint-5/trainer_state.json").touch()  # 10 is being written
    best = "a/seed_{}/checkpoints/best.ckpt"
    seeds = [Model("x", best.format(seed), best.format(seed)) for seed in (2, 10)]
    assert named_models(["x=a/seed_*/checkpoints/best.ckpt"]) == seeds
    assert named_models([f"x={best.format(2)},{best.format(10)}"]) == seeds
    steps = [(f"checkpoints/step_{step:06}.ckpt", step) for step in (0, 200, 1000)]
    assert named_models(["b"]) == [Model("b", f"b/{file}", "", step) for file, step in steps]
    assert named_models(["y=a/seed_*"]) == [
        Model("y", f"a/{seed}/{file}", f"a/{seed}", step)
        for file, step in steps
        for seed in ("seed_2", "seed_10")
    ]
    assert named_models(["c"]) == [Model("c", "c/checkpoint-5", "", 5)]
    assert named_models(["hf:gpt2", "z=openai:m@http://h/v1"]) == [
        Model("gpt2", "hf:gpt2"),
        Model("z", "openai:m@http://h/v1"),
    ]
    for mistake, word in (
        ("x=no/*.ckpt", "no/"),
        ("x=b,b/checkpoints/best.ckpt", "mixes"),
        ("x=b,b", "twice"),
    ):
        with pytest.raises(ValueError, match=word):
            named_models([mistake])


def test_one_unit_has_the_interval_of_its_seeds() -> None:
    single = rows_of([[1.0], [2.0], [4.0]])
    error = np.std([1, 2, 4], ddof=1) / np.sqrt(3)
    assert estimate(mean("x", "x"), single).interval == pytest.approx(
        t.interval(0.95, 2, 7 / 3, error)
    )


def test_a_change_along_training_is_of_the_seeds_that_have_come_so_far() -> None:
    start, later = rows_of([[1.0, 2.0], [5.0, 9.0]]), rows_of([[2.0, 3.0]])
    change = estimate(mean("x", "x"), later, start)
    assert (change.value, change.seeds) == (1, 1)
    turned = start.iloc[::-1]  # in another order of seeds
    assert estimate(mean("x", "x"), start, turned).seed_std == 0
