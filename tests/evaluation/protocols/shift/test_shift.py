"""`python -m evaluation shift` under interventions, against transformers' own model, one text at a time."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from pathlib import Path
from statistics import fmean, pstdev

import pytest

from data_modules.questions.rows import write_rows
from data_modules.schema import QAExample
from evaluation.__main__ import main
from tests.evaluation.checkpoints import examples_of, numbers, report_of, save_ckpt, save_folder, told
from tests.evaluation.protocols.shift.shift_oracle import STORIES, Naive, cosines, made, related, shift


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three related BERTs, an XLNet, and prepared rows."""
    root = tmp_path_factory.mktemp("room")
    related(root)
    save_folder(root / "xlnet", "xlnet")
    write_rows(STORIES, root / "os.jsonl")
    write_rows(made("ts_r"), root / "ts_r.jsonl")
    return root


def common(example: QAExample) -> int:
    """Characters that a variant's context shares with the original's beginning (ts and ts_r only)."""
    assert len(example.kept) == 1
    assert example.kept[0][0] == 0
    return example.kept[0][1]


@pytest.mark.parametrize("architecture", ["bert", "xlnet"])
def test_every_layer_equals_a_loop_over_single_texts(room: Path, tmp_path: Path, architecture: str) -> None:
    folder = room / {"bert": "a"}.get(architecture, architecture)
    report = shift(tmp_path / "out", "--checkpoint", folder, "--layers", "all", "--batch-size", "5")
    rows = {(row["variant"], row["id"]): row for row in examples_of(tmp_path / "out")}
    naive = Naive(folder, architecture)
    for variant in ("ts", "ts_r"):
        cls: list[list[float]] = []
        tokens: list[list[list[float]]] = []
        for example in made(variant):  # type: ignore[arg-type]
            original = next(story for story in STORIES if story.id == example.id)
            (first, places), (second, others) = naive.states(original), naive.states(example)
            cls.append(cosines(first, second))
            shared = [at for at in others if at[1] <= common(example)]
            tokens.append([cosines(places[at], others[at]) for at in shared])
            row = rows[variant, example.id]
            assert (row["pairs"], row["windows"]) == (len(shared), 1)
            assert row["cls"] == pytest.approx(cls[-1][-1], abs=1e-5)
            assert row["tokens"] == pytest.approx(fmean(cos[-1] for cos in tokens[-1]), abs=1e-5)
        for layer in range(3):
            at = "" if layer == 2 else f"layer_{layer:02d}/"
            every = [cos[layer] for story in tokens for cos in story]
            expected = {
                f"cls/{variant}/{at}mean": fmean(cos[layer] for cos in cls),
                f"cls/{variant}/{at}std": pstdev(cos[layer] for cos in cls),
                f"tokens/{variant}/{at}mean": fmean(every),
                f"tokens/{variant}/{at}std": pstdev(every),
                f"tokens/{variant}/{at}macro": fmean(fmean(cos[layer] for cos in s) for s in tokens),
            }
            for key, value in expected.items():
                assert report[f"shift/{key}"] == pytest.approx(value, abs=1e-5), key
                assert report[f"shift/single_window/{key}"] == report[f"shift/{key}"]
        assert report[f"shift/cls/{variant}/n"] == len(cls)
        assert report[f"shift/tokens/{variant}/pairs"] == len(every)


def test_neither_chunks_nor_batches_change_a_number(room: Path, tmp_path: Path) -> None:
    named = [f"{name}={room / name}" for name in "ab"]
    flags = ("--checkpoint", *named, "--layers", "all")
    whole = shift(tmp_path / "whole", *flags)
    parts = shift(tmp_path / "parts", *flags, "--chunk", "5", "--batch-size", "3")
    assert numbers(parts) == pytest.approx(numbers(whole), abs=1e-6, nan_ok=True)
    ids = [
        [(r["checkpoint"], r["id"], r["variant"]) for r in examples_of(tmp_path / n)]
        for n in ("whole", "parts")
    ]
    assert ids[0] == ids[1]
    assert ids[0][:2] == [("a", STORIES[0].id, "ts"), ("a", STORIES[0].id, "ts_r")]


def test_prepared_rows_give_the_same_numbers(room: Path, tmp_path: Path) -> None:
    checkpoint = ("--checkpoint", str(room / "a"))
    here = shift(tmp_path / "here", *checkpoint, "--variants", "ts_r")
    files = [str(room / "os.jsonl"), str(room / "ts_r.jsonl")]
    rows = report_of(tmp_path / "rows", "shift", *checkpoint, "--data", *files, "--chunk", "4")
    assert numbers(rows) == pytest.approx(numbers(here), abs=1e-6)


def test_stories_of_several_windows_are_reported_apart(tmp_path: Path) -> None:
    checkpoint = save_ckpt(tmp_path / "short.ckpt", max_length=44, stride=8)
    report = shift(tmp_path / "out", "--checkpoint", checkpoint, "--variants", "ts")
    rows = examples_of(tmp_path / "out")
    single = [row for row in rows if row["windows"] == 1]
    assert 0 < len(single) < len(rows) == report["shift/cls/ts/n"]
    assert report["shift/single_window/cls/ts/n"] == len(single)
    for key, chosen in (("shift", rows), ("shift/single_window", single)):
        assert report[f"{key}/cls/ts/mean"] == pytest.approx(fmean(row["cls"] for row in chosen), abs=1e-6)
        assert report[f"{key}/tokens/ts/macro"] == pytest.approx(fmean(r["tokens"] for r in chosen), abs=1e-6)
        assert report[f"{key}/tokens/ts/pairs"] == sum(row["pairs"] for row in chosen)
    assert (tmp_path / "out" / "histogram_ts_single_window.png").exists()
    assert (
        "## The same without stories of more than one window" in (tmp_path / "out" / "report.md").read_text()
    )


def test_question_tokens_and_generated_sentences(room: Path, tmp_path: Path) -> None:
    flags = ("--checkpoint", str(room / "a"), "--variants", "ts_r", "ts_r_aug")
    plain = shift(tmp_path / "plain", *flags)
    asked = shift(tmp_path / "asked", *flags, "--include-question")
    assert asked["shift/tokens/ts_r/pairs"] > plain["shift/tokens/ts_r/pairs"]
    assert asked["shift/cls/ts_r/mean"] == plain["shift/cls/ts_r/mean"]
    # What is appended is no common token, be it the bare answer or a sentence around it.
    assert plain["shift/tokens/ts_r_aug/pairs"] == plain["shift/tokens/ts_r/pairs"]
    assert plain["shift/cls/ts_r_aug/mean"] != plain["shift/cls/ts_r/mean"]


def test_mistakes_cost_one_line(room: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = write_named(tmp_path / "other.jsonl", [replace(e, dataset="coqa") for e in made("ts_r")])
    strange = write_named(tmp_path / "strange.jsonl", [replace(e, id="x" + e.id) for e in made("ts_r")])
    mixed = write_named(tmp_path / "mixed.jsonl", [*STORIES, *made("ts_r")])
    edited = [replace(example, context="Z" + example.context) for example in made("ts_r")]
    changed = write_named(tmp_path / "changed.jsonl", edited)
    os = str(room / "os.jsonl")

    def error(*arguments: str) -> str:
        common = ["shift", "--checkpoint", f"m={room / 'a'}", "--output", str(tmp_path / "no")]
        return told(capsys, *common, *arguments)

    assert "different data sets (coqa in" in error("--data", os, other)
    assert "without an original" in error("--data", os, strange)
    assert "originals (variant os)" in error("--data", str(room / "ts_r.jsonl"))
    assert "a file of its own" in error("--data", mixed)
    assert "not made from the story" in error("--data", os, changed)
    assert "--variants" in error("--data", os, "--variants", "os")
    assert "at least 1" in error("--data", os, "--chunk", "0")
    assert "two checkpoints" in error("--data", os, "--between", "first")
    assert "language models" in told(
        capsys, "shift", "--checkpoint", "openai:gpt", "--data", os, "--output", tmp_path / "no"
    )
    assert not (tmp_path / "no").exists()


def write_named(path: Path, rows: list[QAExample]) -> str:
    write_rows(rows, path)
    return str(path)


def test_memory_does_not_grow_with_the_number_of_stories(room: Path, tmp_path: Path) -> None:
    """Python's own memory (records, tokens, lines); torch's holds one batch and sums of fixed size."""

    def peak(limit: int, chunk: int) -> int:
        flags = ["--variants", "ts_r", "--chunk", str(chunk), "--limit", str(limit), "--device", "cpu"]
        data = ["--data", "stories:conversation_train", "--output", str(tmp_path / "out"), "--overwrite"]
        tracemalloc.start()
        assert main(["shift", "--checkpoint", str(room / "a"), *data, *flags]) == 0
        _, highest = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return highest

    peak(32, 32)  # imports and caches
    few, many, at_once = peak(64, 32), peak(384, 32), peak(384, 384)
    assert many < 1.3 * few
    assert at_once > 1.6 * few  # so that the bound above means something


def test_help_answers_without_torch(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["shift", "--help"])
    assert stopped.value.code == 0
    assert "--between" in capsys.readouterr().out
