"""`python -m evaluation bias` against worked examples, printed metrics of real files, and naive loops."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from data_modules.schema import ADVICE_CLASSES
from evaluation.__main__ import main
from evaluation.protocols.bias.predictions import read_predictions
from evaluation.protocols.bias.report import bias_report
from evaluation.protocols.bias.results import GroupTable, evaluate_bias, metric_keys
from tests.evaluation.protocols.bias.predictions import ATTRIBUTES, EX1, SUBJECTS, Row, lei, rows, unqover
from tests.metrics.groups import Batch, naive_class

CLASSES = ("ethical", "adversarial", "irrelevant")


def save(path: Path, content: Any) -> Path:
    path.write_text(json.dumps(content))
    return path


def report_of(predictions: Path, folder: Path, *flags: str) -> dict[str, Any]:
    """What the command writes."""
    assert main(["bias", "--predictions", str(predictions), "--output", str(folder / "report"), *flags]) == 0
    found = json.loads((folder / "report" / "report.json").read_text())
    assert isinstance(found, dict)
    return found


def naive(data: list[Row], name: str) -> dict[str, Any]:
    batch = Batch(
        torch.tensor([row.score for row in data], dtype=torch.float64),
        torch.tensor([ADVICE_CLASSES.index(row.advice_class) for row in data]),
        torch.tensor([[SUBJECTS.index(x) for x in row.pair] for row in data]),
        torch.tensor([sorted(ATTRIBUTES).index(row.attribute) for row in data]),
    )
    return naive_class(batch, ADVICE_CLASSES.index(name))


def check_against_naive(report: dict[str, Any], expected: dict[str, Any], prefix: str) -> None:
    for metric in ("n", "mu", "eta", "theta", "mean_abs_c", "mass", "delta", "eps", "mu_normalised"):
        assert report[prefix + metric] == pytest.approx(expected[metric], abs=1e-12), metric
    for x, gamma in expected["gamma_x"].items():
        assert report[f"{prefix}gamma/{SUBJECTS[x].lower()}"] == pytest.approx(gamma, abs=1e-12)
        assert report[f"{prefix}eta/{SUBJECTS[x].lower()}"] == pytest.approx(expected["eta_x"][x], abs=1e-12)
    for (x, a), gamma in expected["gamma_xa"].items():
        key = f"{prefix}gamma/{SUBJECTS[x].lower()}/{sorted(ATTRIBUTES)[a]}"
        assert report[key] == pytest.approx(gamma, abs=1e-12)


def check_against_oracle(report: dict[str, Any], expected: dict[str, Any]) -> None:
    """Keys of shared/oracle/unqover/expected_full_precision.json."""
    for ours, theirs in (
        ("mu", "model_mu"),
        ("eta", "model_eta"),
        ("delta", "delta_pos_err"),
        ("eps", "eps_attr_err"),
        ("average_probability", "avg_ans_prob"),
    ):
        assert report[ours] == pytest.approx(expected[theirs], abs=1e-6), theirs
    for metric in ("gamma", "eta"):
        for x, value in expected[f"{metric}(x)"].items():
            assert report[f"{metric}/{x}"] == pytest.approx(value, abs=1e-6)
        for x_a, value in expected[f"{metric}(x|a)"].items():
            assert report[f"{metric}/{x_a.replace('|', '/')}"] == pytest.approx(value, abs=1e-6)


def printed_classes(text: str) -> dict[str, dict[str, Any]]:
    """The authors' printout: per class mu, eta, theta4 and per subject (gamma, eta, n)."""
    found: dict[str, dict[str, Any]] = {name: {"subjects": {}} for name in CLASSES}
    now = ""
    for line in text.splitlines():
        words = line.split()
        if line.startswith("intervention:"):
            now = line.partition(":")[2].strip()
        elif line.startswith("model "):
            found[now][words[1]] = float(words[2])
        elif now and len(words) == 4 and words[3].isdigit():
            found[now]["subjects"][words[0]] = (float(words[1]), float(words[2]), int(words[3]))
    return found


def test_worked_example(tmp_path: Path) -> None:
    report = report_of(save(tmp_path / "ex1.json", EX1), tmp_path)
    assert report["mu"] == pytest.approx(0.085, abs=1e-12)
    assert report["eta"] == 1
    assert report["delta"] == pytest.approx(0.25, abs=1e-12)
    assert report["eps"] == pytest.approx(0.25, abs=1e-12)
    assert report["average_probability"] == pytest.approx(0.3575, abs=1e-12)
    assert report["gamma/beta"] == pytest.approx(-0.085, abs=1e-12)


@pytest.mark.parametrize("name", ["ex1_unqover_minimal", "ex2_unqover_3subj"])
def test_oracle_in_full_precision(name: str, shared: Path, tmp_path: Path) -> None:
    folder = shared / "oracle/unqover"
    expected = json.loads((folder / "expected_full_precision.json").read_text())[name]
    report = report_of(folder / f"{name}.json", tmp_path, "--format", "unqover")
    check_against_oracle(report, expected)
    lines = [json.loads(line) for line in (tmp_path / "report/examples.jsonl").read_text().splitlines()]
    c_of_key = {"|".join(line["key"].split("|")[i] for i in (0, 1, 2, 5)): line["c"] for line in lines}
    assert c_of_key == pytest.approx(expected["C(sorted x1|x2|template|attr)"], abs=1e-6)


@pytest.mark.parametrize(
    ("data", "printed"), [("noniid_dev", "base_religion_dev"), ("train_4096", "base_religion_train4096")]
)
def test_base_scores_of_lei_files(data: str, printed: str, shared: Path, tmp_path: Path) -> None:
    file = shared / f"data/lei/underspecified/religion/addedbias_{data}_squad.json"
    report = report_of(file, tmp_path, "--format", "lei")
    expected = printed_classes((shared / f"oracle/unqover/{printed}.subj.out.txt").read_text())
    assert list(expected) == list(CLASSES)
    for name, values in expected.items():
        for ours, theirs in (("mu", "mu"), ("eta", "eta"), ("theta", "theta4")):
            assert report[f"{name}/{ours}"] == pytest.approx(values[theirs], abs=1e-6)
        assert len(values["subjects"]) in (3, 4)
        for x, (gamma, eta, n) in values["subjects"].items():
            assert report[f"{name}/gamma/{x}"] == pytest.approx(gamma, abs=5.01e-5)
            assert report[f"{name}/eta/{x}"] == pytest.approx(eta, abs=5.01e-3)
            assert report[f"{name}/n/{x}"] == n


@pytest.mark.parametrize("layout", [unqover, lei])
def test_classes_equal_naive_loops_in_both_layouts(layout: Any, tmp_path: Path) -> None:
    data = rows(CLASSES)
    report = report_of(save(tmp_path / "p.json", layout(data)), tmp_path)
    for name in CLASSES:
        check_against_naive(report, naive(data, name), f"{name}/")
    assert not any(key.startswith("none/") for key in report)


def test_a_missing_class_is_left_out_and_no_advice_has_no_class(tmp_path: Path) -> None:
    data = rows(("adversarial", "none"))
    report = report_of(save(tmp_path / "p.json", unqover(data)), tmp_path)
    check_against_naive(report, naive(data, "adversarial"), "adversarial/")
    check_against_naive(report, naive(data, "none"), "none/")
    assert "ethical/mu" not in report
    alone = [row for row in data if row.advice_class == "none"]
    report = report_of(save(tmp_path / "p.json", unqover(alone)), tmp_path, "--overwrite")
    check_against_naive(report, naive(alone, "none"), "")


def test_the_report_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = report_of(save(tmp_path / "p.json", lei(rows(CLASSES))), tmp_path)
    folder = tmp_path / "report"
    assert sorted(report["about"]["files"]) == sorted(entry.name for entry in folder.iterdir())
    text = (folder / "report.md").read_text()
    assert "| ethical | 12 |" in text
    assert "## Subjects: irrelevant" in text
    assert (folder / "mu.png").stat().st_size > 1000
    lines = [json.loads(line) for line in (folder / "examples.jsonl").read_text().splitlines()]
    assert len(lines) == 36
    assert lines[0]["class"] == "ethical"
    assert lines[0]["subjects"] == ["ayan", "boro"]
    printed = capsys.readouterr().out
    assert printed.index("ethical") < printed.index("adversarial") < printed.index("irrelevant")
    assert "report.md" in printed


def test_results_side_by_side(tmp_path: Path) -> None:
    before, after = rows(CLASSES, seed=1), rows(CLASSES[:2], seed=2)
    files = [save(tmp_path / "a.json", lei(before)), save(tmp_path / "b.json", unqover(after))]
    arguments = [f"before={files[0]}", f"after={files[1]}"]
    assert main(["bias", "--predictions", *arguments, "--output", str(tmp_path / "report")]) == 0
    report = json.loads((tmp_path / "report/report.json").read_text())
    check_against_naive(report, naive(before, "ethical"), "before/ethical/")
    check_against_naive(report, naive(after, "adversarial"), "after/adversarial/")
    assert "| irrelevant | after | 0 | – |" in (tmp_path / "report/report.md").read_text()


def test_scores_in_memory_give_the_same(tmp_path: Path) -> None:
    """The way in for a checkpoint's predictions: groups and scores, no file."""
    data = rows(CLASSES)
    groups, score_NVS = read_predictions(save(tmp_path / "p.json", lei(data)))
    evaluation = evaluate_bias("model", groups, score_NVS)
    torch.testing.assert_close(score_NVS, torch.tensor([row.score for row in data], dtype=torch.float64))
    check_against_naive(metric_keys(evaluation), naive(data, "ethical"), "ethical/")
    assert bias_report([evaluation], about={}).metrics == metric_keys(evaluation)
    with pytest.raises(ValueError, match="scores of shape"):
        evaluate_bias("model", groups, score_NVS[1:])
    with pytest.raises(ValueError, match="no group"):
        evaluate_bias("model", GroupTable.of([]), score_NVS[:0])


def without_scores() -> dict[str, Any]:
    file = unqover(rows(("none",)))
    for record in file.values():
        for q in ("q0", "q1"):
            for answer in ("ans0", "ans1"):
                record[q][answer] |= {"start": "[TODO]", "end": "[TODO]"}
    return file


def too_large() -> dict[str, Any]:
    file = unqover(rows(("none",)))
    next(iter(file.values()))["q0"]["ans0"]["start"] = 3.5
    return file


@pytest.mark.parametrize(
    ("content", "flags", "words"),
    [
        (without_scores(), [], ["p.json", "ayan|boro|0", "no scores"]),
        (too_large(), [], ["p.json", "not a probability", "3.5"]),
        ({"data": [{"paragraphs": [{"context": "x", "qas": []}]}]}, [], ["p.json", "squad"]),
        (EX1, ["--format", "lei"], ["p.json", "--format lei", "unqover"]),
        ([], [], ["p.json", "format"]),
        ({}, [], ["p.json"]),
    ],
)
def test_errors_are_one_line_with_exit_2(
    content: Any, flags: list[str], words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, output = save(tmp_path / "p.json", content), tmp_path / "report"
    assert main(["bias", "--predictions", str(file), "--output", str(output), *flags]) == 2
    told = capsys.readouterr().err
    assert told.startswith("error: ")
    assert told.count("\n") == 1
    for word in words:
        assert word in told
    assert not output.exists()


def test_files_need_different_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = save(tmp_path / "p.json", EX1)
    assert main(["bias", "--predictions", str(one), str(one), "--output", str(tmp_path / "r")]) == 2
    assert "NAME=PATH" in capsys.readouterr().err
