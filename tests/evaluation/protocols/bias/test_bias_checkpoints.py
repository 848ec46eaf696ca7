"""`python -m evaluation bias --checkpoint` against transformers' own model, one text at a time."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import torch
from matplotlib.figure import Figure
from scipy.stats import spearmanr

from data_modules.encoding.windows import query_text
from data_modules.groups.advice import unadvised
from data_modules.groups.lei import write_lei
from data_modules.groups.pairing import ScoredGroup
from data_modules.groups.planting import latent_strength
from data_modules.stories.word_tokenizer import build_tokenizer
from evaluation.__main__ import main
from evaluation.protocols.bias.results import CLASS_METRICS
from metrics.answers import score_answer
from tests.evaluation.checkpoints import (
    GROUPS,
    QUESTIONS,
    Naive,
    examples_of,
    numbers,
    report_of,
    save_ckpt,
    save_folder,
    save_groups,
    save_questions,
    told,
)

ALL = [*GROUPS, *unadvised(GROUPS)]
CLASSES = ("ethical", "adversarial", "irrelevant", "none")


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two checkpoints, groups and questions."""
    root = tmp_path_factory.mktemp("room")
    save_folder(root / "a", seed=1)
    save_folder(root / "b", seed=2)
    save_groups(root / "dev.json")
    save_questions(root / "qa.json")
    return root


@pytest.fixture(scope="module")
def one(room: Path) -> dict[str, Any]:
    """The report of one checkpoint on one data set; its folder is `room / "one"`."""
    flags = ("--qa", room / "qa.json", "--planted-seed", 5)
    arguments = ["bias", "--checkpoint", room / "a", "--data", room / "dev.json", *map(str, flags)]
    report = report_of(room / "one", *arguments)
    # Signs must not hang on rounding, or eta would.
    assert min(abs(row["c"]) for row in examples_of(room / "one")) > 1e-6
    return report


@pytest.mark.parametrize("architecture", ["bert", "roberta", "xlnet"])
def test_scores_are_those_of_transformers(architecture: str, room: Path, tmp_path: Path) -> None:
    """And all metrics follow: as predictions of our own file format they give the same report."""
    folder = save_folder(tmp_path / "model", architecture, seed=3)
    report = report_of(tmp_path / "r", "bias", "--checkpoint", folder, "--data", room / "dev.json")
    naive = Naive(folder)
    rows = examples_of(tmp_path / "r")
    assert [row["key"] for row in rows] == [group.key for group in ALL]
    scored = []
    for row, group in zip(rows, ALL, strict=True):
        probabilities = tuple(
            tuple(
                naive.score(v.context, query_text(v.question, v.advice), s.start, s.end) for s in v.candidates
            )
            for v in group.variants
        )
        for v in range(4):
            for s in range(2):
                start, end = probabilities[v][s]
                assert row["scores"][v][s] == pytest.approx((start * end) ** 0.5, rel=2e-4)
        scored.append(ScoredGroup(group, probabilities))  # type: ignore[arg-type]
    assert len({round(row["c"], 6) for row in rows}) > 10
    write_lei(scored, tmp_path / "naive.json")
    args = ("bias", "--predictions", str(tmp_path / "naive.json"), "--output", str(tmp_path / "n"))
    assert main(args) == 0
    expected = json.loads((tmp_path / "n" / "report.json").read_text())
    assert set(numbers(report)) == set(numbers(expected))
    for name in CLASSES:
        for metric in CLASS_METRICS:
            if metric not in ("eta", "eta_normalised"):  # a sign of almost nothing may turn
                assert report[f"{name}/{metric}"] == pytest.approx(
                    expected[f"{name}/{metric}"], rel=1e-3, abs=1e-6
                )


def test_every_group_counts_once(one: dict[str, Any], room: Path) -> None:
    expected = Counter(group.advice_class for group in ALL)
    assert {name: one[f"{name}/n"] for name in CLASSES} == expected
    rows = examples_of(room / "one")
    assert Counter(row["class"] for row in rows) == expected
    assert len({row["key"] for row in rows}) == len(rows)


def test_keys_of_one_checkpoint_have_no_prefix(one: dict[str, Any], room: Path) -> None:
    for key in (
        "ethical/mu",
        "adversarial/eta",
        "irrelevant/theta",
        "none/mean_abs_c",
        "none/spearman",
        "qa/f1",
    ):
        assert isinstance(one[key], float)
    known = (*(f"{name}/" for name in CLASSES), "qa/", "about")
    assert all(key.startswith(known) for key in one)
    assert one["about"]["checkpoints"]["a"]["path"] == str(room / "a")
    assert len(one["about"]["data"]["dev"]["sha256"]) == 64
    assert one["about"]["planted_seed"] == 5
    text = (room / "one" / "report.md").read_text()
    for title in ("Bias per class", "Ordinary questions", "Rank correlation", "Subjects: none"):
        assert f"## {title}" in text


def test_answers_are_those_of_transformers(one: dict[str, Any], room: Path) -> None:
    naive = Naive(room / "a")
    answers = [naive.answer(q.context, q.question) for q in QUESTIONS]
    scores = [score_answer(text, q.gold, "max") for text, q in zip(answers, QUESTIONS, strict=True)]
    assert one["qa/n"] == len(QUESTIONS)
    assert one["qa/em"] == pytest.approx(fmean(em for em, _ in scores))
    assert one["qa/f1"] == pytest.approx(fmean(f1 for _, f1 in scores))


@pytest.mark.parametrize("scope", ["category", "subject"])
def test_spearman_is_that_of_gamma_and_the_planted_rank_within_the_category(
    scope: str, one: dict[str, Any], room: Path, tmp_path: Path
) -> None:
    category_of = {group.key: group.category for group in ALL}
    if scope == "subject":
        flags = ("--planted-seed", "5", "--planted-scope", scope)
        one = report_of(
            tmp_path / "r", "bias", "--checkpoint", room / "a", "--data", room / "dev.json", *flags
        )
    for name in CLASSES:
        cells: dict[tuple[str, str], list[float]] = defaultdict(list)
        for row in examples_of(room / "one"):
            if row["class"] == name:
                for subject, c in zip(row["subjects"], (row["c"], -row["c"]), strict=True):
                    cells[subject, category_of[row["key"]]].append(c)
        strength = {
            (x, category): latent_strength(x, category if scope == "category" else "", 5)
            for x, category in cells
        }
        planted = [
            sum(strength[other] < strength[cell] for other in cells if other[1] == cell[1]) for cell in cells
        ]
        rho = spearmanr([fmean(values) for values in cells.values()], planted).statistic
        assert one[f"{name}/spearman"] == pytest.approx(rho, abs=1e-9)


@pytest.mark.parametrize("batch_size", ["1", "6", "1000"])
def test_batch_size_changes_nothing(batch_size: str, one: dict[str, Any], room: Path, tmp_path: Path) -> None:
    flags = ("--qa", room / "qa.json", "--planted-seed", "5", "--batch-size", batch_size)
    again = report_of(tmp_path / "r", "bias", "--checkpoint", room / "a", "--data", room / "dev.json", *flags)
    assert numbers(again) == pytest.approx(numbers(one), abs=1e-6)
    rows = zip(examples_of(tmp_path / "r"), examples_of(room / "one"), strict=True)
    for found, expected in rows:
        assert found["key"] == expected["key"]
        torch.testing.assert_close(torch.tensor(found["scores"]), torch.tensor(expected["scores"]))


def test_two_checkpoints_side_by_side(one: dict[str, Any], room: Path, tmp_path: Path) -> None:
    arguments = ("--checkpoint", f"before={room / 'a'}", f"after={room / 'b'}", "--data", room / "dev.json")
    flags = ("--qa", room / "qa.json", "--planted-seed", "5")
    report = report_of(tmp_path / "r", "bias", *arguments, *flags)
    for key, value in numbers(one).items():
        assert report[f"before/{key}"] == pytest.approx(value, abs=1e-9), key
    assert set(numbers(report)) == {f"{run}/{key}" for run in ("before", "after") for key in numbers(one)}
    assert report["before/ethical/mu"] != report["after/ethical/mu"]
    text = (tmp_path / "r" / "report.md").read_text()
    table = text.split("## Bias per class of advice")[1].split("##")[0]
    labels = [line.split(" | ")[:2] for line in table.splitlines() if line.startswith("| ")][2:]
    assert labels == [[f"| {name}", run] for name in CLASSES for run in ("before", "after")]
    assert (tmp_path / "r" / "mu.png").read_bytes().startswith(b"\x89PNG")
    runs = Counter(row["run"] for row in examples_of(tmp_path / "r"))
    assert runs == {"before": len(ALL), "after": len(ALL)}


def test_panels_without_a_data_set_are_not_drawn(
    room: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four data sets stand in two rows of three."""
    drawn: list[int] = []
    save = Figure.savefig
    monkeypatch.setattr(
        Figure,
        "savefig",
        lambda self, *a, **k: (drawn.append(sum(x.axison for x in self.axes)), save(self, *a, **k)),
    )
    data = [f"set{i}={room / 'dev.json'}" for i in range(4)]
    report_of(tmp_path / "r", "bias", "--checkpoint", room / "a", "--data", *data, "--advised-only")
    assert drawn == [4]


@pytest.mark.parametrize("sets", [2, 4])
def test_several_data_sets_each_on_its_own(
    sets: int, one: dict[str, Any], room: Path, tmp_path: Path
) -> None:
    data = [f"first={room / 'dev.json'}"]
    for i in range(1, sets):
        data.append(f"set{i}={save_groups(tmp_path / f'{i}.json', GROUPS[i : i + 6])}")
    report = report_of(tmp_path / "r", "bias", "--checkpoint", room / "a", "--data", *data)
    keys = [key for key in numbers(one) if not key.startswith("qa/") and not key.endswith("spearman")]
    for key in keys:
        assert report[f"first/a/{key}"] == pytest.approx(one[key], abs=1e-9)
    prefixes = {"/".join(key.split("/")[:2]) for key in numbers(report)}
    assert prefixes == {f"{name.split('=')[0]}/a" for name in data}
    assert (tmp_path / "r" / "mu.png").read_bytes().startswith(b"\x89PNG")


def test_two_checkpoints_on_two_data_sets(one: dict[str, Any], room: Path, tmp_path: Path) -> None:
    data = (f"x={room / 'dev.json'}", f"y={save_groups(tmp_path / 'y.json', GROUPS[:5])}")
    flags = ("--qa", room / "qa.json", "--planted-seed", "5")
    report = report_of(
        tmp_path / "r", "bias", "--checkpoint", room / "a", room / "b", "--data", *data, *flags
    )
    prefixes = {"/".join(key.split("/")[:2]) for key in numbers(report)}
    assert prefixes == {"x/a", "x/b", "y/a", "y/b", "a/qa", "b/qa"}
    assert report["x/a/ethical/mu"] == pytest.approx(one["ethical/mu"], abs=1e-9)
    assert report["x/a/none/spearman"] == pytest.approx(one["none/spearman"], abs=1e-9)
    assert report["a/qa/f1"] == one["qa/f1"]


def test_our_own_checkpoint_is_scored_as_it_was_trained(
    one: dict[str, Any], room: Path, tmp_path: Path
) -> None:
    same = save_ckpt(tmp_path / "same.ckpt", seed=1)
    other = save_ckpt(tmp_path / "other.ckpt", seed=1, order="context_first")
    report = report_of(tmp_path / "r", "bias", "--checkpoint", same, other, "--data", room / "dev.json")
    assert report["same/none/mean_abs_c"] == pytest.approx(one["none/mean_abs_c"], abs=1e-9)
    assert report["other/none/mean_abs_c"] != pytest.approx(one["none/mean_abs_c"], abs=1e-6)
    assert len(report["about"]["checkpoints"]["same"]["sha256"]) == 64


def test_groups_without_advice(room: Path, one: dict[str, Any], tmp_path: Path) -> None:
    bare = save_groups(tmp_path / "bare.json", unadvised(GROUPS))
    report = report_of(tmp_path / "bare", "bias", "--checkpoint", room / "a", "--data", bare)
    # In other company a row meets other rows in its batch, and float32 rounds otherwise.
    assert report["mu"] == pytest.approx(one["none/mu"], abs=1e-7)
    assert report["n"] == one["none/n"]
    both = save_groups(tmp_path / "both.json", ALL)
    report = report_of(tmp_path / "both", "bias", "--checkpoint", room / "a", "--data", both)
    assert {name: report[f"{name}/n"] for name in CLASSES} == {name: one[f"{name}/n"] for name in CLASSES}
    report = report_of(
        tmp_path / "advised",
        "bias",
        "--checkpoint",
        room / "a",
        "--data",
        room / "dev.json",
        "--advised-only",
    )
    assert "none/n" not in report
    assert report["ethical/mu"] == pytest.approx(one["ethical/mu"], abs=1e-7)


def test_half_precision_is_close(one: dict[str, Any], room: Path, tmp_path: Path) -> None:
    report = report_of(
        tmp_path / "r", "bias", "--checkpoint", room / "a", "--data", room / "dev.json", "--precision", "bf16"
    )
    assert report["none/mass"] == pytest.approx(one["none/mass"], rel=0.05)
    assert report["none/mass"] != one["none/mass"]
    assert report["about"]["precision"] == "bf16"


def test_embedded_groups_need_no_file(room: Path, tmp_path: Path) -> None:
    """The planted control's classes come in equal number."""
    flags = ("--advised-only", "--batch-size", "256")
    report = report_of(tmp_path / "r", "bias", "--checkpoint", room / "a", "--data", "stories:unseen", *flags)
    assert report["ethical/n"] == report["adversarial/n"] == report["irrelevant/n"] > 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--checkpoint", "a"], ["--checkpoint needs --data"]),
        (["--predictions", "dev.json", "--data", "dev.json"], ["--data"]),
        (["--checkpoint", "none.ckpt", "--data", "dev.json"], ["none.ckpt"]),
        (["--checkpoint", "x=none", "--data", "dev.json"], ["none:"]),
        (["--checkpoint", "dev.json", "--data", "dev.json"], ["dev.json", "not a readable checkpoint"]),
        (["--checkpoint", "a", "--data", "none.json"], ["none.json", "no such file"]),
        (["--checkpoint", "a", "--data", "qa.json"], ["qa.json", "groups"]),
        (["--checkpoint", "a", "--data", "stories:no"], ["'no'", "heldout"]),
        (
            ["--checkpoint", "a", "--data", "dev.json", "--qa", "dev.json"],
            ["dev.json", "questions about a text"],
        ),
        (["--checkpoint", "a", "--data", "dev.json", "--device", "nonsense"], ["--device nonsense"]),
        (["--checkpoint", "a", "--data", "dev.json", "--batch-size", "0"], ["--batch-size"]),
        (["--checkpoint", "a", "./a", "--data", "dev.json"], ["--checkpoint", "'a'", "NAME=PATH"]),
        (["--checkpoint", "a", "--data", "dev.json", "./dev.json"], ["--data", "'dev'", "NAME=PATH"]),
    ],
)
def test_mistakes_cost_one_line(
    arguments: list[str],
    words: list[str],
    room: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(room)
    message = told(capsys, "bias", *arguments, "--output", "mistake")
    for word in words:
        assert word in message
    assert not Path("mistake").exists()


def test_broken_checkpoints_cost_one_line(
    room: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def message(path: Path) -> str:
        return told(
            capsys, "bias", "--checkpoint", path, "--data", room / "dev.json", "--output", tmp_path / "r"
        )

    ckpt = save_ckpt(tmp_path / "cut.ckpt")
    ckpt.write_bytes(ckpt.read_bytes()[:5000])
    assert "cut.ckpt" in message(ckpt)
    folder = save_folder(tmp_path / "no_tokenizer")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).unlink()
    assert "has no vocabulary" in message(folder)
    other = save_folder(tmp_path / "other_tokenizer")
    build_tokenizer("bert", [f"word{i}" for i in range(400)]).save_pretrained(other)
    assert "405 tokens" in message(other)
