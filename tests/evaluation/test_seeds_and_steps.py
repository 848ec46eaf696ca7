"""Several checkpoints of one name are seeds, and those of a run's folder its steps."""

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm, t

from interventune.evaluation.__main__ import main
from interventune.evaluation.answering.sources import Model, by_label, named_models
from interventune.evaluation.protocol import Statistic, estimate, share
from interventune.evaluation.protocols.faithfulness.abstention import ABSTENTION, COLUMNS
from interventune.evaluation.results import NUMBERS
from tests.evaluation.cells import Cells
from tests.evaluation.protocol_cases import CASES, Case

LEFT_OUT = ("ask", "consistency", "consistency-write", "predicate-argument", "sensitivity")
X = Statistic("x", ("x",))
MODELS = [case for case in CASES if case.protocol not in LEFT_OUT]
"""Protocols of models; two with many questions are like the others."""


def kept(model: Path, run: Path, *steps: int) -> None:
    """A run whose kept checkpoints are all the same model."""
    for step in steps:
        if model.is_dir():
            shutil.copytree(model, run / f"checkpoint-{step}")
            (run / f"checkpoint-{step}/trainer_state.json").write_text("{}")
        else:
            (run / "checkpoints").mkdir(parents=True, exist_ok=True)
            shutil.copy(model, run / f"checkpoints/step_{step:06}.ckpt")


@pytest.mark.parametrize("case", MODELS, ids=lambda case: case.protocol)
def test_equal_seeds_and_steps_count_as_one(case: Case, room: Path, tmp_path: Path) -> None:
    """With two runs of two checkpoints each, all the same; or of one model and two seeds of it."""
    kind, colon, model = case.model.rpartition(":")
    for run in ("run_0", "run_1"):
        kept(room / model, tmp_path / run, 0, 10)
    (twins := tmp_path / "twins").mkdir()
    copy = shutil.copytree if (room / model).is_dir() else shutil.copy
    for twin in ("0", "1"):
        copy(room / model, twins / f"{twin}{(room / model).suffix}")
    tables = []
    sources = {"one": [f"m={room / model}", f"n={twins}/*"], "along": [f"m={tmp_path}/run_*"]}
    for name, models in sources.items():
        named = (source.replace("=", f"={kind}{colon}") for source in models)
        assert main(case.asking(room, tmp_path / name, *named)) == 0
        cells = Cells(tmp_path / name)
        cells.check()
        tables.append(cells.frame)
    one, along = tables
    assert "counts as another seed" in (tmp_path / "one/report.md").read_text()
    places = [name for name in one if name not in (*NUMBERS, "unit")]
    twice = one[one["checkpoint"] == "n"].replace("n", "m")
    one = one[one["checkpoint"] != "n"]
    assert (twice["seeds"] == 2).any()
    assert np.nanmax(np.abs(twice.loc[twice["against"] == "m", "value"])) < 1e-6
    expected = one.set_index(places)["value"]
    seeds = twice[twice["against"] != "m"].set_index(places)["value"]
    seeds = seeds[seeds.index.isin(expected.index)]  # others compare it with m
    np.testing.assert_allclose(seeds, expected.loc[seeds.index], atol=1e-6)
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
    assert "## Summary\n\n| measure | m step 0 | m step 10 | change |" in report
    assert " and seeds (m step 0: 2, m step 10: 2; ±: their standard deviation)" in report
    assert "## Along training" in report


def rows_of(value_SN: list[list[float]], first: int = 0) -> pd.DataFrame:
    unit_N, runs = np.arange(len(value_SN[0])) // 2, enumerate(value_SN, first)
    return pd.concat(pd.DataFrame({"x": x_N, "unit": unit_N, "run": f"{s}"}) for s, x_N in runs)


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
    """Student's over seeds if units are equal; that over units if seeds are equal."""
    error = np.std([1, 2, 4], ddof=1) / np.sqrt(3)
    for units in (6, 1):
        found = estimate(X, rows_of([[x] * units for x in (1.0, 2.0, 4.0)]))[1:3]
        assert found == pytest.approx(t.interval(0.95, 2, 7 / 3, error))
    equal = rows_of([[1.0, 2, 5, 3, 4, 4]] * 3)
    single = equal[equal["run"] == "0"].drop(columns="run")
    found, expected = (estimate(X, rows)[1:3] for rows in (equal, single))
    assert found == pytest.approx(expected)


def test_intervals_of_abstention_hold_the_truth() -> None:
    draw, measures, held = np.random.default_rng(0), ABSTENTION.statistics, list[bool]()
    for _ in range(200):
        unanswerable = draw.random(300) < 0.5
        score = draw.normal(unanswerable, 1)
        rows = pd.DataFrame({"unanswerable": unanswerable, "unknown_score": score}).astype(float)
        recall = estimate(measures["recall_over_10"], rows.assign(unit=range(300)))
        assert (recall.n, recall.units) == (300, 300)
        held.append(recall.low <= norm.cdf(1 - norm.ppf(0.9)) <= recall.high)
    assert 0.91 <= np.mean(held) <= 0.99
    rows = pd.DataFrame(dict.fromkeys(COLUMNS, 0.0), index=range(120)).assign(unit=range(120))
    rows.loc[:5, "unanswerable"] = 1
    for name in ("abstention_f1", "recall_over_05"):
        silent = estimate(measures[name], rows.assign(unknown_score=np.arange(120.0)))
        assert silent.value == 0 < 0.3 < silent.high


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
    Path("link.ckpt").symlink_to(best.format(2))
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
    named = [Model("gpt2", "hf:gpt2"), Model("z", "openai:m@http://h/v1")]
    assert named_models(["hf:gpt2", "z=openai:m@http://h/v1"]) == named
    for mistake, word in (
        ("x=no/*.ckpt", "no/"),
        ("x=b,b/checkpoints/best.ckpt", "mixes"),
        ("x=b,b", "twice"),
        ("x=a/seed_2,a/../a/seed_2,a/seed_10", "twice"),
        (f"x={best.format(2)},hf:{best.format(2)}", "twice"),
        (f"x={best.format(2)},", "matches ''"),
        ("x=a/*/checkpoints/best.ckpt,link.ckpt", "twice"),
    ):
        with pytest.raises(ValueError, match=word):
            named_models([mistake])
    words = f"x={best.format(2)},{best.format(10)} y={best.format(2)},b/checkpoints/best.ckpt"
    both = named_models(words.split())
    assert [*by_label(both).values()] == both


def test_a_change_along_training_is_of_the_seeds_that_have_come_so_far() -> None:
    start, later = rows_of([[1.0, 2.0], [5.0, 9.0]]), rows_of([[2.0, 3.0]])
    change = estimate(X, later, start)
    assert (change.value, change.seeds) == (1, 1)
    turned = start.iloc[::-1]  # in another order of seeds
    assert estimate(X, start, turned).seed_std == 0
