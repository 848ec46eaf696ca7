"""Selection: the best trials by a metric of their own, mean and sample deviation on every test set."""

from __future__ import annotations

import csv
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy

from tests.training.conftest import SmallData
from tests.training.sweep.fake_sweep import fake_study
from training.sweep import selection
from training.sweep.selection import main as select
from training.sweep.selection import parse_tests, summarise

FAKE = (sys.executable, "-S", str(Path(__file__).with_name("fake_test.py")))


@pytest.fixture
def study(tmp_path: Path, written_study: Path) -> Path:
    """One of its own for every test."""
    return Path(shutil.copytree(written_study, tmp_path / "study"))


@pytest.fixture(scope="module")
def written_study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve hand-written points: x (1, 4, 16) times y; dev score 10 y + x / 100, checkpoint y + x; one
    failed."""
    home = tmp_path_factory.mktemp("written")
    study = fake_study(home, space={"x": [16, 4, 1], "y": [0.3, 0.1, 0.2, 0.4]}, direction="minimize")
    (home / "sweep.json").write_text(json.dumps(study.sweep.description()))
    for number in range(study.sweep.count()):
        parameters = study.sweep.fixed_parameters(number)
        x, y = float(str(parameters["x"])), float(str(parameters["y"]))
        folder = study.point_folder(number)
        (folder / "0" / "checkpoints").mkdir(parents=True)
        (folder / "0" / "checkpoints" / "last.ckpt").write_text(str(y + x))
        (folder / "0" / "config.yaml").write_text("")
        (folder / "0" / "metrics.json").write_text(json.dumps({"val/score": 10 * y + x / 100, "val/same": 1}))
        (folder / "point.json").write_text(json.dumps({"parameters": parameters}))
        (folder / "exit_code").write_text("1" if (x, y) == (4, 0.1) else "0")
    return home


def arguments(study: Path, data: SmallData, *more: str, metric: str = "val/score") -> list[str]:
    """`more` may begin with further test sets."""
    tests = [f"far={data.groups_dev}", str(data.qa_dev)]
    return ["--study", str(study), "--metric", metric, "--test", *tests, *more]


def calls(study: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (study / "trials" / "calls.txt").read_text().splitlines()]


def test_mean_and_deviation_of_the_best_are_numpys(study: Path, small_data: SmallData) -> None:
    assert select(arguments(study, small_data, "--top", "3"), FAKE) == 0
    kept = np.array([1.1, 16.1, 1.2])  # by 10 y + x / 100; the failed trial would have been second
    written = json.loads((study / "selection" / "selection.json").read_text())
    chosen = written["selections"][0]
    points = [(m["parameters"]["x"], m["parameters"]["y"]) for m in chosen["models"]]
    assert points == [(1, 0.1), (16, 0.1), (1, 0.2)]
    for i, advice in enumerate(("ethical", "adversarial", "irrelevant")):
        found, values = chosen["results"]["far"][f"bias/{advice}/mu"], kept * (i + 1)
        assert found["mean"] == pytest.approx(np.mean(values))
        assert found["std"] == pytest.approx(np.std(values, ddof=1))
        assert found["models"] == 3
        low, high = scipy.stats.t.interval(0.95, 2, loc=np.mean(values), scale=scipy.stats.sem(values))
        assert (found["low"], found["high"]) == pytest.approx((low, high))
    f1 = chosen["results"]["qa_dev"]["qa/f1"]
    assert f1["mean"] == pytest.approx(np.mean(kept + len(str(small_data.qa_dev))))
    assert f1["values"] == pytest.approx(kept + len(str(small_data.qa_dev)))

    rows = list(csv.DictReader((study / "selection" / "selection.csv").open()))
    assert {(row["test_set"], row["n"]) for row in rows} == {("far", "9"), ("qa_dev", "13")}


def test_what_was_tested_once_is_not_tested_again(study: Path, small_data: SmallData) -> None:
    assert select(arguments(study, small_data, "--top", "2"), FAKE) == 0
    assert select(arguments(study, small_data, "--top", "2"), FAKE) == 0
    assert len(calls(study)) == 2
    assert select(arguments(study, small_data, "--top", "3"), FAKE) == 0
    assert len(calls(study)) == 3

    again = arguments(study, small_data, "near=stories:unseen", "--top", "2")
    assert select(again, FAKE) == 0
    assert [call["data.test_groups"] for call in calls(study)[3:]] == ['{"set0": "stories:unseen"}'] * 2
    assert not any("data.test_qa" in call for call in calls(study)[3:])

    assert select([*again, "--data.eval_batch_size=3"], FAKE) == 0
    assert [call["data.eval_batch_size"] for call in calls(study)[5:]] == ["3", "3"]


def test_each_value_of_a_swept_key_has_its_own_best(study: Path, small_data: SmallData) -> None:
    assert select(arguments(study, small_data, "--top", "2", "--by", "x"), FAKE) == 0
    written = json.loads((study / "selection" / "selection.json").read_text())
    assert [s["value"] for s in written["selections"]] == [1, 4, 16]
    best = [[m["parameters"]["y"] for m in s["models"]] for s in written["selections"]]
    assert best == [[0.1, 0.2], [0.2, 0.3], [0.1, 0.2]]
    means = [s["results"]["far"]["bias/ethical/mu"]["mean"] for s in written["selections"]]
    assert means == pytest.approx([1.15, 4.25, 16.15])
    assert (study / "selection" / "selection.png").read_bytes().startswith(b"\x89PNG")


def test_an_axis_has_a_title_values_of_its_own_and_the_model_before(
    study: Path, small_data: SmallData, monkeypatch: pytest.MonkeyPatch
) -> None:
    described = json.loads((study / "sweep.json").read_text())
    axis = {"key": "x", "title": "questions", "values": {"1": 64, "4": 256}, "zero_shot": True}
    config = "data: {init_args: {encoding: {order: context_first}}}\nbackbone: {checkpoint: owner/name}\n"
    for file in study.glob("trials/*/0/config.yaml"):
        file.write_text(config)
    (study / "sweep.json").write_text(json.dumps(described | {"axis": axis}))
    drawn: list[Any] = []
    monkeypatch.setattr(selection, "save_figure", lambda figure, path: drawn.append(figure))
    for _ in range(2):
        assert select(arguments(study, small_data, "--top", "2", "--by", "x"), FAKE) == 0
    (start,) = (call for call in calls(study) if "ckpt_path" not in call)  # asked once, and as it was trained
    assert start["data.encoding.order"] == "auto"
    assert sum("data.encoding.order" in call for call in calls(study)) == 1
    rows = list(csv.DictReader((study / "selection" / "selection.csv").open()))
    mu = [row for row in rows if row["metric"] == "bias/ethical/mu"]
    assert [row["questions"] for row in mu] == ["0", "64", "256", "16"]
    assert [float(row["mean"]) for row in mu] == pytest.approx([0.25, 1.15, 4.25, 16.15])
    (panel, questions) = drawn[-1].axes
    assert (panel.get_xlabel(), panel.get_xscale()) == ("questions", "log")
    assert [tick.get_text() for tick in panel.get_xticklabels()] == ["0", "64", "256", "16"]
    assert list(panel.get_lines()[0].get_xdata()) == [0.25, 1, 4, 16], "0 stands left of all others"
    assert panel.get_legend_handles_labels()[1][0] == "ethical (n 9)"
    assert questions.get_legend_handles_labels()[1] == [f"{small_data.qa_dev.stem} (n 13)"]
    assert "zero-shot" in (study / "selection" / "selection.md").read_text()


def test_of_a_sweep_that_keeps_the_best_these_are_tested(study: Path, small_data: SmallData) -> None:
    described = json.loads((study / "sweep.json").read_text())
    (study / "sweep.json").write_text(json.dumps(described | {"keep": "best"}))
    for path in study.glob("trials/*/0/checkpoints/last.ckpt"):
        path.rename(path.with_name("best.ckpt"))
    assert select(arguments(study, small_data, "--top", "1"), FAKE) == 0
    assert calls(study)[0]["ckpt_path"].endswith("best.ckpt")


def test_a_single_model_has_no_deviation(study: Path, small_data: SmallData) -> None:
    assert select(arguments(study, small_data, "--top", "1"), FAKE) == 0
    written = json.loads((study / "selection" / "selection.json").read_text())
    assert written["selections"][0]["results"]["far"]["bias/ethical/mu"]["std"] is None
    assert summarise([1.0])["std"] is None


def test_interval_of_a_share_stays_within_0_and_1() -> None:
    share = summarise([0.05, 0.3], share=True)
    assert (share["low"], share["high"]) == (0.0, 1.0)
    assert summarise([0.05, 0.3])["low"] < 0


def test_equal_scores_go_by_number_and_fewer_trials_are_said(
    study: Path, small_data: SmallData, capsys: pytest.CaptureFixture[str]
) -> None:
    equal = arguments(study, small_data, "--mode", "max", "--top", "20", metric="val/same")
    assert select(equal, FAKE) == 0
    written = json.loads((study / "selection" / "selection.json").read_text())
    names = [model["name"] for model in written["selections"][0]["models"]]
    assert names == [f"trial_{i:04d}" for i in range(12) if i != 5]
    assert "only 11 complete trials" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("more", "word"),
    [
        (["--by", "z"], "--by z"),
        (["--metric", "val/other"], "--mode"),
        (["--metric", "val/other", "--mode", "min"], "val/other"),
        (["--checkpoint", "best"], "best.ckpt"),
        (["--study", "/tmp"], "--study /tmp"),
        (["--test", "a=stories:dev", "a=stories:train"], "called a"),
        (["--test", "stories:nowhere"], "nowhere"),
        (["--fast"], "--fast"),
    ],
)
def test_one_line_says_what_is_wrong(
    study: Path, small_data: SmallData, capsys: pytest.CaptureFixture[str], more: list[str], word: str
) -> None:
    assert select(arguments(study, small_data, *more), FAKE) == 2
    error = capsys.readouterr().err
    assert word in error
    assert error.count("\n") == 1
    assert not (study / "selection").exists()


def test_a_model_that_cannot_be_tested_is_named(
    study: Path, small_data: SmallData, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint = study / "trials" / "trial_0009" / "0" / "checkpoints" / "last.ckpt"
    checkpoint.write_text("99")
    assert select(arguments(study, small_data), FAKE) == 2
    error = capsys.readouterr().err
    assert str(checkpoint) in error
    assert "the file is damaged" in error


def test_names_and_kinds_of_test_sets(small_data: SmallData) -> None:
    tests = parse_tests(["stories:unseen?seed=3", "dev=stories:dev", "hub:rajpurkar/squad:validation"])
    assert [(test.name, test.source, test.kind) for test in tests] == [
        ("unseen_seed_3", "stories:unseen?seed=3", "groups"),
        ("dev", "stories:dev", "qa"),
        ("rajpurkar_squad_validation", "hub:rajpurkar/squad:validation", "qa"),
    ]


def test_models_that_answer_multiple_choice_questions_are_ranked(study: Path) -> None:
    for path in study.glob("trials/*/0/metrics.json"):
        path.write_text(json.dumps({"val/score": 1.0, "val/choices/accuracy": 0.5}))
    tests = ["--test", "near=stories:choices_dev"]
    assert select(["--study", str(study), "--metric", "val/score", *tests], FAKE) == 0
    assert calls(study)[0]["data.test_choices"] == '{"set0": "stories:choices_dev"}'
    assert "data.test_qa" not in calls(study)[0]
    written = json.loads((study / "selection" / "selection.json").read_text())
    assert written["selections"][0]["results"]["near"]["choices/accuracy"]["models"] == 5
