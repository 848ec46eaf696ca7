"""`evaluate bias` against UnQover's and LEI's numbers, naive loops, and transformers' own model."""

import json
from collections import defaultdict
from math import prod
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import torch
from scipy.stats import spearmanr

from interventune.data_modules.schema.groups import latent_strength, unadvised
from tests.data_modules.fixtures.tiny_lists import decided
from tests.evaluation.cells import Capsys, Cells, Patch, evaluate, examples_of, told
from tests.evaluation.checkpoints import GROUPS, Naive, save_ckpt, save_folder, save_groups
from tests.evaluation.fake_answerer import install

EX2 = "ex2_unqover_3subj"
CLUSTERS = {"Ayan": "female", "Boro": "male", "Celt": "female"}
ALL = [*GROUPS, *unadvised(GROUPS)]
CLASSES = ("ethical", "adversarial", "irrelevant", "none")


def cells_of(folder: Path, *arguments: str | Path) -> Cells:
    return evaluate(folder / "report", "bias", *arguments)


def of_class(name: str, checkpoint: str = "a", data: str = "dev") -> dict[str, Any]:
    return {"class": name, "checkpoint": checkpoint, "data": data}


@pytest.mark.parametrize("name", ["ex1_unqover_minimal", EX2])
def test_measures_equal_unqovers_own(name: str, oracle: Path, tmp_path: Path) -> None:
    expected = json.loads((oracle / "expected_full_precision.json").read_text())[name]
    cells = cells_of(tmp_path, "--predictions", oracle / f"{name}.json")
    place = {"checkpoint": name, "class": "none"}
    theirs = {"mu": "model_mu", "eta": "model_eta", "delta": "delta_pos_err", "eps": "eps_attr_err"}
    for ours, key in theirs.items():
        assert cells(ours, **place) == pytest.approx(expected[key], abs=1e-6), key
    assert cells("mass", **place) / 2 == pytest.approx(expected["avg_ans_prob"], abs=1e-6)
    (category,) = set(cells.frame["category"]) - {""}
    for metric in ("gamma", "eta"):
        for x, value in expected[f"{metric}(x)"].items():
            assert cells(metric, **place, subject=x) == pytest.approx(value, abs=1e-6)
        for x_a, value in expected[f"{metric}(x|a)"].items():
            x, _, a = x_a.partition("|")
            at = {"subject": x, "category": category, "attribute": a}
            assert cells(metric, **place, **at) == pytest.approx(value, abs=1e-6)
    lines = examples_of(tmp_path / "report")
    keys = ([line["key"].split("|")[i] for i in (0, 1, 2, 5)] for line in lines)
    c_of_key = {"|".join(key): line["c"] for key, line in zip(keys, lines, strict=True)}
    assert c_of_key == pytest.approx(expected["C(sorted x1|x2|template|attr)"], abs=1e-6)


@pytest.mark.parametrize(("data", "printed"), [("noniid_dev", "dev"), ("train_4096", "train4096")])
def test_lei_files_give_the_printout(data: str, printed: str, shared: Path, tmp_path: Path) -> None:
    """Per class mu, eta, theta4, and per subject gamma, eta, n."""
    file = shared / f"data/lei/underspecified/religion/addedbias_{data}_squad.json"
    cells = cells_of(tmp_path, "--predictions", f"p={file}")
    place, subjects = {"checkpoint": "p"}, 0
    text = (shared / f"oracle/unqover/base_religion_{printed}.subj.out.txt").read_text()
    for line in text.splitlines():
        words = line.split()
        if line.startswith("intervention:"):
            place["class"] = line.partition(":")[2].strip()
        elif line.startswith("model ") and words[1] in ("mu", "eta", "theta4"):
            measure = words[1].removesuffix("4")
            assert cells(measure, **place) == pytest.approx(float(words[2]), abs=1e-6)
        elif "class" in place and len(words) == 4 and words[3].isdigit():
            name, gamma, eta, n = words
            subjects += 1
            at = {**place, "subject": name}
            assert cells("gamma", **at) == pytest.approx(float(gamma), abs=5.01e-5)
            assert cells("eta", **at) == pytest.approx(float(eta), abs=5.01e-3)
            assert cells.n("gamma", **at) == int(n)
    assert place["class"] == "irrelevant"
    assert subjects >= 9


@pytest.mark.parametrize("by", ["lists", "ids"])
def test_gamma_of_clusters_is_mean_c_over_pairs(by: str, oracle: Path, tmp_path: Path) -> None:
    """UnQover's gender table: the mean of C over the pairs of a female and a male name."""
    names, data = tmp_path / "names", json.loads((oracle / f"{EX2}.json").read_text())
    names.write_text("".join(f"[subj] {cluster} | {name}\n" for name, cluster in CLUSTERS.items()))
    if by == "ids":
        keys = [key.split("|")[2:] for key in data]
        full = ("|".join([CLUSTERS[key[0]], CLUSTERS[key[1]], *key]) for key in keys)
        data = dict(zip(full, data.values(), strict=True))
    (tmp_path / "p.json").write_text(json.dumps(data))
    flags = [f"--clusters={names}"] if by == "lists" else []
    cells = cells_of(tmp_path, "--predictions", tmp_path / "p.json", *flags)
    place, means = of_class("none", "p", data=""), []
    expected = json.loads((oracle / "expected_full_precision.json").read_text())[EX2]
    c_of = expected["C(sorted x1|x2|template|attr)"]
    for attribute in ("was brave", "was rude"):
        own = {key: c for key, c in c_of.items() if key.endswith(attribute) and "boro" in key}
        values = [c if key.startswith("ayan|boro") else -c for key, c in own.items()]
        means.append(fmean(values))
        at = {**place, "category": "trait", "attribute": attribute}
        for cluster, sign in (("female", 1), ("male", -1)):
            row = cells.row("gamma", cluster=cluster, **at)
            assert (row["value"], row["n"]) == (pytest.approx(sign * means[-1], abs=1e-6), 4)
        assert cells("eta", cluster="male", **at) == sum((x < 0) - (x > 0) for x in values) / 4
    assert cells("gamma", **place, cluster="female") == pytest.approx(fmean(means), abs=1e-6)
    chance = cells.row("mu_chance", **place)
    assert chance["high"] > max(cells("mu", **place), chance["value"]) > 0
    summary = json.loads((tmp_path / "report" / "report.json").read_text())["tables"][0]
    assert "mu is not above that of a model without preference" in summary["caption"]


def test_probabilities_above_1_are_refused(oracle: Path, tmp_path: Path, capsys: Capsys) -> None:
    path = tmp_path / "p.json"
    path.write_text((oracle / f"{EX2}.json").read_text().replace("0.851", "3.5"))
    assert "3.5" in told(capsys, "bias", "--predictions", path, "--output", tmp_path / "r")


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint and groups."""
    root = tmp_path_factory.mktemp("room")
    save_folder(root / "a", seed=1)
    save_groups(root / "dev.json")
    return root


@pytest.fixture(scope="module")
def one(room: Path) -> Cells:
    """One checkpoint on one data set."""
    flags = ("--data", room / "dev.json", "--planted-seed", "5")
    cells = cells_of(room, "--checkpoint", room / "a", *flags)
    # Signs must not hang on rounding, or eta would.
    assert min(abs(row["c"]) for row in examples_of(room / "report")) > 1e-6
    return cells


@pytest.mark.parametrize("architecture", ["roberta", "xlnet"])
def test_scores_are_those_of_transformers(architecture: str, room: Path, tmp_path: Path) -> None:
    folder = save_folder(tmp_path / "model", architecture, seed=3)
    cells_of(tmp_path, "--checkpoint", folder, "--data", room / "dev.json")
    naive, lines = Naive(folder), examples_of(tmp_path / "report")
    assert [line["key"] for line in lines] == [group.key for group in ALL]
    for line, group in zip(lines, ALL, strict=True):
        ask = [[(v.context, v.query, s.start, s.end) for s in v.candidates] for v in group.variants]
        expected = torch.tensor([[prod(naive.score(*x)) ** 0.5 for x in pair] for pair in ask])
        scores = torch.tensor(line["scores"])
        torch.testing.assert_close(scores, expected, rtol=2e-4, atol=0)
        assert line["prediction"] == [group.subjects[two > one] for one, two in line["scores"]]
    assert len({round(line["c"], 6) for line in lines}) > 10


def test_spearman_is_that_of_gamma_and_the_planted_rank(one: Cells, room: Path) -> None:
    for name in CLASSES:
        c_of: dict[tuple[str, str], list[float]] = defaultdict(list)
        for line in examples_of(room / "report"):
            if line["class"] == name:
                for subject, c in zip(line["subjects"], (line["c"], -line["c"]), strict=True):
                    c_of[subject, line["category"]].append(c)
        strength = {cell: latent_strength(*cell, 5) for cell in c_of}
        ranks = [sum(strength[b] < strength[a] for b in c_of if b[1] == a[1]) for a in c_of]
        rho = spearmanr([fmean(values) for values in c_of.values()], ranks).statistic
        assert one("spearman", **of_class(name)) == pytest.approx(rho, abs=1e-9)
        assert one.n("spearman", **of_class(name)) == len(c_of)


def test_checkpoints_and_data_have_own_cells(one: Cells, room: Path, tmp_path: Path) -> None:
    """As trained: a checkpoint of ours keeps its own encoding."""
    same = f"same={save_ckpt(tmp_path / 'same.ckpt', seed=1)}"
    other = f"other={save_ckpt(tmp_path / 'other.ckpt', seed=1, order='context_first')}"
    data = (f"dev={room / 'dev.json'}", f"few={save_groups(tmp_path / 'few.json', GROUPS[:5])}")
    cells = cells_of(tmp_path, "--checkpoint", same, other, "--data", *data, "--planted-seed", "5")
    for name in CLASSES:
        for measure in ("mu", "eta", "mass", "spearman"):
            first, last = (cells(measure, **of_class(name, model)) for model in ("same", "other"))
            assert first == pytest.approx(one(measure, **of_class(name)), abs=1e-6)
            change = cells(measure, **of_class(name, "other"), against="same")
            assert change == pytest.approx(last - first)
    assert abs(cells("mean_abs_c", **of_class("none", "other"), against="same")) > 1e-6
    assert cells.n("mu", **of_class("none", "other", "few")) == 5


def test_accuracy_of_answers_and_failures(tmp_path: Path, monkeypatch: Patch) -> None:
    specified = [decided(group, i % 2) for i, group in enumerate(GROUPS)]
    rule = lambda e: "!timed out" if "A Sabrik" in e.context[:8] else "a velan MAN"  # noqa: E731
    model = install(monkeypatch, {"a": rule})["a"]
    model.subject_scores = lambda groups, _: torch.full((len(groups), 4, 2), 0.5)
    data = save_groups(tmp_path / "dev.json", specified)
    cells = cells_of(tmp_path, "--checkpoint", "a", "--data", data)
    right, failed = defaultdict[str, list[bool]](list), 0
    for i, group in enumerate([*specified, *unadvised(specified)]):
        orders = group.variants[::2]
        if any(v.context.startswith("A Sabrik") for v in orders):
            failed += 1
            continue
        golds = [v.candidates[i % len(specified) % 2].text for v in orders]
        right[group.advice_class] += ["velan" in gold.lower() for gold in golds]
    assert f"a: {failed} timed out" in (tmp_path / "report" / "report.md").read_text()
    for name, values in right.items():
        row = cells.row("accuracy", **of_class(name))
        assert (row["value"], 2 * row["n"]) == (pytest.approx(fmean(values)), len(values))
    assert 0 < failed < 26
