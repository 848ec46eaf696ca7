"""Selection: the best points by their metric, mean and sample deviation on every test set."""

import itertools
import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy

from interventune.storage.documents import source_digest
from interventune.training.sweep.select import main as select

SETS = ("--data.test_groups.far=stories:unseen", "--data.test_qa.main=stories:dev")


def fake_test(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
    """What `train test` leaves, by the number in the checkpoint."""
    flags = dict(word[2:].split("=", 1) for word in command if "=" in word)
    root, score = Path(flags["run.root"]), float(Path(flags["ckpt_path"]).read_text())
    with (root.parent / "calls.txt").open("a") as file:
        file.write(json.dumps(flags) + "\n")
    folder = root / flags["run.name"] / flags["run.version"]
    folder.mkdir(parents=True)
    config = "data: {test_groups: {far: a}, test_qa: {main: b}, val_qa: null}"
    (folder / "config.yaml").write_text(config)
    metrics = {"epoch": 0.0, "test/bias/far/ethical/mu": score / 20, "test/bias/far/ethical/n": 9.0}
    data = {"data": {"dev.json": source_digest(root.parent / "dev.json")}}
    (folder / "environment.json").write_text(json.dumps(data))
    metrics |= {"test/qa/f1": score, "test/qa/n": 13.0, "test/qa/em": None}
    (folder / "metrics.json").write_text(json.dumps(metrics))
    return subprocess.CompletedProcess(command, int(score > 90), stderr="error: file is damaged")


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Twelve points, one failed: score 10 y + x / 100, less is better; checkpoint y + x."""
    monkeypatch.setattr("interventune.training.sweep.select.subprocess.run", fake_test)
    rows: list[dict[str, Any]] = []
    for x, y in itertools.product((16, 4, 1), (0.3, 0.1, 0.2, 0.4)):
        name, state = f"x={x},y={y}", "fail" if (x, y) == (4, 0.1) else "complete"
        rows.append({"point": name, "state": state, "val/score": 10 * y + x / 100, "x": x, "y": y})
        checkpoints = tmp_path / "study" / "points" / name / "run" / "checkpoints"
        checkpoints.mkdir(parents=True)
        (checkpoints / "last.ckpt").write_text(str(y + x))
        (checkpoints / "best.ckpt").write_text(str(y))
    pd.DataFrame(rows).to_csv(tmp_path / "study" / "study.csv", index=False)
    about = {"metric": "val/score", "direction": "minimize", "keep": "all"}
    about |= {"space": {"x": [], "y": []}}
    (tmp_path / "study" / "sweep.json").write_text(json.dumps(about))
    return tmp_path / "study"


def selection(study: Path, top: int, *flags: str) -> pd.DataFrame:
    """The table of the best `top` points."""
    assert select(["--study", str(study), "--top", str(top), *SETS, *flags]) == 0
    return pd.read_csv(study / "selection" / "selection.csv").set_index(["test_set", "metric"])


def test_mean_and_deviation_of_the_best_are_numpys(study: Path) -> None:
    table = selection(study, 3)
    models = list(pd.read_csv(study / "selection" / "models.csv")["point"])
    assert models == ["x=1,y=0.1", "x=16,y=0.1", "x=1,y=0.2"]
    f1, mu = np.array([1.1, 16.1, 1.2]), np.array([1.1, 16.1, 1.2]) / 20
    for key, values, n in ((("main", "qa/f1"), f1, 13), (("far", "bias/ethical/mu"), mu, 9)):
        cell = table.loc[key]
        assert cell["mean"] == pytest.approx(np.mean(values))
        assert cell["std"] == pytest.approx(np.std(values, ddof=1))
        low, high = scipy.stats.t.interval(0.95, 2, np.mean(values), scipy.stats.sem(values))
        low, high = (max(low, 0), min(high, 1)) if max(values) < 1 else (low, high)  # of a share
        assert (cell["low"], cell["high"]) == pytest.approx((low, high))
        assert (cell["n"], cell["models"]) == (n, 3)
        assert list(map(float, cell["values"].split())) == pytest.approx(values)
    assert pd.isna(table.loc[("main", "qa/em"), "mean"])


def test_each_value_of_a_swept_key_has_its_own_best(study: Path) -> None:
    f1 = selection(study, 2, "--by=x").loc[("main", "qa/f1")]
    assert list(f1["x"]) == [1, 4, 16]
    assert list(f1["mean"]) == pytest.approx([1.15, 4.25, 16.15])


def test_null_is_a_value_of_a_swept_key_and_so_is_a_text_like_it(study: Path) -> None:
    table = pd.read_csv(study / "study.csv")
    numbers, texts = {1: None, 4: 2.5, 16: 7.0}, {1: "NA", 4: "b", 16: None}
    for values, in_order in ((numbers, ["2.5", "7.0", ""]), (texts, ["NA", "b", ""])):
        table.assign(x=table["x"].map(values)).to_csv(study / "study.csv", index=False)
        selection(study, 2, "--by=x")
        rows = pd.read_csv(study / "selection/selection.csv", dtype=str, keep_default_na=False)
        rows = rows[rows["metric"] == "qa/f1"].set_index("x")
        assert list(rows.index) == in_order
        assert list(rows["models"]) == ["2"] * 3


def test_the_weights_that_the_sweep_kept_are_tested(study: Path) -> None:
    """Also if a point was stopped before the others were removed."""
    about = json.loads((study / "sweep.json").read_text())
    (study / "sweep.json").write_text(json.dumps(about | {"keep": "best"}))
    assert selection(study, 3).loc[("main", "qa/f1"), "values"] == "0.1 0.1 0.2"


def test_a_flag_of_any_length_is_no_file(study: Path) -> None:
    for value in ("a" * 300, "/".join(["b" * 300] * 20), "c\0d"):
        selection(study, 1, f"--data.encoding.prompts={value}")


def test_other_data_and_weights_are_tested(study: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(study / "points")
    flags = ("--data.test_qa.main", "dev.json")
    best = study / "points/x=1,y=0.1/run/checkpoints/last.ckpt"
    for file, text, calls in (("dev.json", "a", 1), ("dev.json", "a", 1), ("dev.json", "b", 2)):
        Path(file).write_text(text)
        selection(study, 1, *flags)
        assert len(Path("calls.txt").read_text().splitlines()) == calls
    best.write_text("2.5")
    assert selection(study, 1, *flags).loc[("main", "qa/f1"), "mean"] == 2.5


def test_what_was_tested_once_is_not_tested_again(study: Path) -> None:
    limit = ["--data.limit_val_groups=5"]
    for top, flags, limits in ((2, [], "00"), (2, [], "00"), (3, [], "000"), (1, limit, "0005")):
        table = selection(study, top, *flags)
        calls = map(json.loads, (study / "points" / "calls.txt").open())
        assert [call["data.limit_val_groups"] for call in calls] == [*limits]
    assert table[["std", "low", "high"]].isna().all(axis=None), "of a single model"


def test_one_line_says_what_is_wrong(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path in study.glob("points/*/run/checkpoints/last.ckpt"):
        path.write_text("99")
    for arguments, word in (
        (["--by", "z", *SETS], "--by z"),
        (["--study", "/tmp", *SETS], "--study /tmp"),
        ([], "--data.test_groups.NAME"),
        (SETS, "file is damaged"),
    ):
        assert select(["--study", str(study), *arguments]) == 2
        said = capsys.readouterr().err
        assert word in said
        assert said.count("\n") == 1
