"""`evaluate bias --predictions` against worked examples, printed metrics of real files, and naive loops."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch

from data_modules.schema import ADVICE_CLASSES
from evaluation.protocols.bias import views
from evaluation.results import Results
from tests.evaluation.cells import Cells
from tests.evaluation.checkpoints import evaluate, examples_of, told
from tests.evaluation.protocols.bias.predictions import ATTRIBUTES, SUBJECTS, Row, lei, rows, unqover
from tests.metrics.batches import Batch, naive_c, naive_class

CLASSES = ("ethical", "adversarial", "irrelevant")


def save(path: Path, content: Any) -> Path:
    path.write_text(json.dumps(content))
    return path


def cells_of(folder: Path, *predictions: Path | str, flags: tuple[str | Path, ...] = ()) -> Cells:
    return evaluate(folder / "report", "bias", "--predictions", *predictions, *flags)


def check_against_naive(cells: Cells, data: list[Row], name: str, checkpoint: str) -> None:
    batch = Batch(
        torch.tensor([row.score for row in data], dtype=torch.float64),
        torch.tensor([ADVICE_CLASSES.index(row.advice_class) for row in data]),
        torch.tensor([[SUBJECTS.index(x) for x in row.pair] for row in data]),
        torch.tensor([sorted(ATTRIBUTES).index(row.attribute) for row in data]),
    )
    expected = naive_class(batch, ADVICE_CLASSES.index(name))
    place = {"checkpoint": checkpoint, "class": name}
    assert cells.n("mu", **place) == expected["n"]
    for metric in ("mu", "eta", "theta", "mean_abs_c", "mass", "delta", "eps", "mu_normalised"):
        assert cells(metric, **place) == pytest.approx(expected[metric], abs=1e-12), metric
    for x, gamma in expected["gamma_x"].items():
        subject = SUBJECTS[x].lower()
        assert cells("gamma", **place, subject=subject) == pytest.approx(gamma, abs=1e-12)
        assert cells("eta", **place, subject=subject) == pytest.approx(expected["eta_x"][x], abs=1e-12)
    for (x, a), gamma in expected["gamma_xa"].items():
        at = {"subject": SUBJECTS[x].lower(), "category": "trait", "attribute": sorted(ATTRIBUTES)[a]}
        assert cells("gamma", **place, **at) == pytest.approx(gamma, abs=1e-12)


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


@pytest.mark.parametrize("name", ["ex1_unqover_minimal", "ex2_unqover_3subj"])
def test_oracle_in_full_precision(name: str, shared: Path, tmp_path: Path) -> None:
    folder = shared / "oracle/unqover"
    expected = json.loads((folder / "expected_full_precision.json").read_text())[name]
    cells = cells_of(tmp_path, folder / f"{name}.json")
    place = {"checkpoint": name, "class": "none"}
    theirs = {"mu": "model_mu", "eta": "model_eta", "delta": "delta_pos_err", "eps": "eps_attr_err"}
    for ours, key in (theirs | {"average_probability": "avg_ans_prob"}).items():
        assert cells(ours, **place) == pytest.approx(expected[key], abs=1e-6), key
    (category,) = set(cells.frame["category"]) - {""}
    for metric in ("gamma", "eta"):
        for x, value in expected[f"{metric}(x)"].items():
            assert cells(metric, **place, subject=x) == pytest.approx(value, abs=1e-6)
        for x_a, value in expected[f"{metric}(x|a)"].items():
            x, _, a = x_a.partition("|")
            at = {"subject": x, "category": category, "attribute": a}
            assert cells(metric, **place, **at) == pytest.approx(value, abs=1e-6)
    lines = examples_of(tmp_path / "report")
    c_of_key = {"|".join(line["key"].split("|")[i] for i in (0, 1, 2, 5)): line["c"] for line in lines}
    assert c_of_key == pytest.approx(expected["C(sorted x1|x2|template|attr)"], abs=1e-6)


@pytest.mark.parametrize(
    ("data", "printed"), [("noniid_dev", "base_religion_dev"), ("train_4096", "base_religion_train4096")]
)
def test_base_scores_of_lei_files(data: str, printed: str, shared: Path, tmp_path: Path) -> None:
    file = shared / f"data/lei/underspecified/religion/addedbias_{data}_squad.json"
    cells = cells_of(tmp_path, f"p={file}")
    expected = printed_classes((shared / f"oracle/unqover/{printed}.subj.out.txt").read_text())
    assert list(expected) == list(CLASSES)
    for name, values in expected.items():
        place = {"checkpoint": "p", "class": name}
        for ours, theirs in (("mu", "mu"), ("eta", "eta"), ("theta", "theta4")):
            assert cells(ours, **place) == pytest.approx(values[theirs], abs=1e-6)
        assert len(values["subjects"]) in (3, 4)
        for x, (gamma, eta, n) in values["subjects"].items():
            assert cells("gamma", **place, subject=x) == pytest.approx(gamma, abs=5.01e-5)
            assert cells("eta", **place, subject=x) == pytest.approx(eta, abs=5.01e-3)
            assert cells.n("gamma", **place, subject=x) == n


def test_files_of_both_layouts_equal_naive_loops_side_by_side(tmp_path: Path) -> None:
    before, after = rows(CLASSES, seed=1), rows((*CLASSES[:2], "none"), seed=2)
    files = [save(tmp_path / "a.json", lei(before)), save(tmp_path / "b.json", unqover(after))]
    cells = cells_of(tmp_path, f"before={files[0]}", f"after={files[1]}")
    for checkpoint, data in (("before", before), ("after", after)):
        classes = list(dict.fromkeys(row.advice_class for row in data))
        for name in classes:
            check_against_naive(cells, data, name, checkpoint)
        assert set(cells.frame.query("checkpoint == @checkpoint")["class"]) == set(classes)
    for name in CLASSES[:2]:  # both have all groups of these
        for measure in ("mu", "theta", "eta_normalised"):
            place = {"checkpoint": "after", "class": name}
            change = cells(measure, **place) - cells(measure, **place | {"checkpoint": "before"})
            assert cells(measure, **place, against="before") == pytest.approx(change, abs=1e-12)
    lines = examples_of(tmp_path / "report")
    assert len(lines) == 36 + 36
    expected = {"checkpoint": "before", "class": "ethical", "category": "trait", "attribute": "was rude"}
    assert lines[0].items() >= expected.items()
    assert lines[0]["subjects"] == ["ayan", "boro"]


@pytest.mark.parametrize("given", ["lists", "ids"])
def test_clusters_of_subjects_are_compared_with_each_other(given: str, tmp_path: Path) -> None:
    """UnQover's gender table: the mean of C over the pairs of a female and a male name."""
    data, content, flags = rows(("none",)), {}, ("--clusters", tmp_path / "names")
    (tmp_path / "names").write_text("[subj] female | Ayan\n[subj] female | Celt\n[subj] male | Boro\n")
    for key, record in unqover(data).items():
        _, _, one, two, *rest = key.split("|")
        clusters = ["male" if name == "Boro" else "female" for name in (one, two)]
        content["|".join([*(clusters if given == "ids" else ("None", "None")), one, two, *rest])] = record
    cells = cells_of(tmp_path, save(tmp_path / "p.json", content), flags=flags if given == "lists" else ())
    place = {"checkpoint": "p", "class": "none"}
    values = [
        naive_c(row.score) * (1 if row.pair == ("Ayan", "Boro") else -1)
        for row in data
        if row.attribute == "was rude" and "Boro" in row.pair
    ]
    at = {**place, "category": "trait", "attribute": "was rude"}
    for cluster, sign in (("female", 1), ("male", -1)):
        found = cells.row("gamma", cluster=cluster, **at)
        assert (found["value"], found["n"]) == (pytest.approx(sign * sum(values) / 4, abs=1e-12), 4)
    assert cells("eta", cluster="male", **at) == sum((x < 0) - (x > 0) for x in values) / 4
    means = [cells("gamma", cluster="female", **{**at, "attribute": a}) for a in ATTRIBUTES]
    assert cells("gamma", **place, cluster="female") == pytest.approx(sum(means) / 2, abs=1e-12)


def test_attributes_stand_under_the_cluster_that_they_go_to_most_first() -> None:
    """As UnQover prints them (`female|was a nurse`); ten of each at most."""
    results = Results(views.BIAS.by, "groups")
    for i in range(30):
        for cluster, sign in (("male", -1), ("female", 1)):
            at = {"class": "none", "cluster": cluster, "attribute": f"number {i}"}
            results.add("gamma", sign * (i - 14.5) / 30, n=4, checkpoint="p", **at)
    table = views.ranked_tables(results.frame)[0]
    expected = [f"female: number {i}" for i in range(29, 19, -1)] + [f"male: number {i}" for i in range(10)]
    assert [row[0] for row in table.rows] == expected


def test_accuracy_is_the_share_of_answers_that_name_the_gold_subject(tmp_path: Path) -> None:
    """Of questions whose contexts decide; no answer is a wrong one."""
    records, random, right = {}, Random(0), []
    for key, record in unqover(rows(("none",), seed=4)).items():
        one, two, template = key.split("|")[2:5]
        record["q0"]["pred"] = random.choice((one, f"the {two.upper()} man", "Bo ro did", ""))
        if template == "0":
            gold = max(one, two)
            record["context"] += f" {gold} did it."
            right.append(gold.lower() in record["q0"]["pred"].lower().replace(" ", ""))
        records[key] = record
    found = cells_of(tmp_path, save(tmp_path / "p.json", records)).row(
        "accuracy", checkpoint="p", **{"class": "none"}
    )
    assert 2 < sum(right) < len(right) == 12
    assert (found["value"], found["n"]) == (pytest.approx(sum(right) / len(right)), 6)
    lines = examples_of(tmp_path / "report")
    assert {tuple(row["references"]) for row in lines} == {(), ("boro",), ("celt",)}
    assert {len(row["answers"]) for row in lines if row["references"]} == {2}


@pytest.mark.parametrize(
    ("answer", "flags", "word"),
    [
        ({"start": "[TODO]", "end": "[TODO]"}, [], "ayan|boro|0"),
        ({"start": 3.5}, [], "3.5"),
        ({}, ["--data", "p.json"], "--data"),
        ({}, ["--checkpoint", "p.json"], "--predictions"),
        ({}, ["--clusters", "apart"], "no group compares"),
    ],
)
def test_mistakes_name_the_key_or_the_flag(
    answer: Any,
    flags: list[str],
    word: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("apart").write_text("[subj] female | Ayan\n[subj] male | Zoe\n")
    content = unqover(rows(("none",)))
    for record in content.values():
        for question in ("q0", "q1"):
            for subject in ("ans0", "ans1"):
                record[question][subject] |= answer
    command = ("bias", "--predictions", save(Path("p.json"), content), "--output", "report", *flags)
    assert word in told(capsys, *command)
    assert not Path("report").exists()
