"""`python -m evaluation shift` under interventions, against transformers' own model, one text at a time."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import fmean, pstdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_modules.questions.rows import write_rows
from data_modules.schema import QAExample
from evaluation.protocols.shift.measure import spread
from metrics.intervals import mean_interval
from tests.evaluation.checkpoints import examples_of, save_ckpt, save_folder, told
from tests.evaluation.protocols.shift.shift_oracle import (
    STORIES,
    Naive,
    assert_same,
    cosines,
    made,
    related,
    shift,
)


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
def test_cosines_match_transformers_on_single_texts(room: Path, tmp_path: Path, architecture: str) -> None:
    folder = room / {"bert": "a"}.get(architecture, architecture)
    cells = shift(tmp_path / "out", "--checkpoint", f"m={folder}", "--layers", "all", "--batch-size", "5")
    rows = {(row["variant"], row["id"], row["embedding"]): row for row in examples_of(tmp_path / "out")}
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
            row = rows[variant, example.id, "common"]
            assert (row["tokens"], row["stories"]) == (len(shared), "single window")
            assert row["cosine"][-1] == pytest.approx(fmean(cos[-1] for cos in tokens[-1]), abs=1e-5)
        for layer, name in enumerate((0, 1, "last")):
            every = [(cos[layer], i) for i, story in enumerate(tokens) for cos in story]
            expected = {
                ("cls", "cosine"): fmean(cos[layer] for cos in cls),
                ("cls", "std"): pstdev(cos[layer] for cos in cls),
                ("common", "cosine"): fmean(cos for cos, _ in every),
                ("common", "std"): pstdev(cos for cos, _ in every),
                ("common", "macro"): fmean(fmean(cos[layer] for cos in s) for s in tokens),
            }
            cell = {"checkpoint": "m", "variant": variant, "layer": name}
            for (embedding, measure), value in expected.items():
                for stories in ("", "single window"):
                    row = cells.row(measure, embedding=embedding, stories=stories, **cell)
                    assert row["value"] == pytest.approx(value, abs=1e-5)
                    assert row["n"] == len(cls)
            _, interval, _ = mean_interval([cos for cos, _ in every], [i for _, i in every])
            row = cells.row("cosine", embedding="common", **cell)
            assert (row["low"], row["high"]) == pytest.approx(interval, abs=1e-5)


def test_prepared_rows_and_batch_sizes_give_the_same_numbers(room: Path, tmp_path: Path) -> None:
    flags = ("--checkpoint", *(f"{name}={room / name}" for name in "ab"), "--variants", "ts_r")
    whole = shift(tmp_path / "whole", *flags, "--layers", "all")
    rows = (room / "ts_r.jsonl", room / "os.jsonl")
    assert_same(shift(tmp_path / "rows", *flags, "--layers", "all", data=rows), whole, 1e-12)
    assert_same(shift(tmp_path / "small", *flags, "--layers", "all", "--batch-size", "3"), whole, 1e-6)
    place = {"variant": "ts_r", "embedding": "cls", "layer": "last"}
    change = whole("cosine", checkpoint="b", against="a", **place)
    values = (whole("cosine", checkpoint=name, **place) for name in "ba")
    assert change == pytest.approx(next(values) - next(values), abs=1e-12)


def test_stories_of_one_window_are_counted_apart(tmp_path: Path) -> None:
    checkpoint = save_ckpt(tmp_path / "short.ckpt", max_length=44, stride=8)
    cells = shift(tmp_path / "out", "--checkpoint", checkpoint, "--variants", "ts")
    rows = examples_of(tmp_path / "out")
    single = [row for row in rows if row["stories"]]
    assert 0 < len(single) < len(rows)
    for stories, chosen in (("", rows), ("single window", single)):
        cell = {"checkpoint": "short", "variant": "ts", "stories": stories, "layer": "last"}
        for embedding, measure in (("cls", "cosine"), ("common", "macro")):
            cosine = [row["cosine"][-1] for row in chosen if row["embedding"] == embedding]
            row = cells.row(measure, embedding=embedding, **cell)
            assert row["value"] == pytest.approx(fmean(cosine), abs=1e-13)
            assert row["n"] == len(cosine)


def test_include_question_adds_common_tokens(room: Path, tmp_path: Path) -> None:
    flags = ("--checkpoint", f"m={room / 'a'}", "--variants", "ts_r", "ts_r_aug")
    shift(tmp_path / "plain", *flags)
    shift(tmp_path / "asked", *flags, "--include-question")
    plain, asked = (
        {(row["variant"], row["id"], row["embedding"]): row for row in examples_of(tmp_path / name)}
        for name in ("plain", "asked")
    )
    for key, row in plain.items():
        _, name, embedding = key
        assert asked[key]["tokens"] > row["tokens"] if embedding == "common" else asked[key] == row
        # What is appended is no common token, be it the bare answer or a sentence around it.
        assert plain["ts_r_aug", name, embedding]["tokens"] == plain["ts_r", name, embedding]["tokens"]


def test_reformatted_variants_are_compared_by_cls(room: Path, tmp_path: Path) -> None:
    """Their stories may share no place with the original; where the question alone is another, tokens do."""
    variants = ("reworded", "spaced")
    cells = shift(tmp_path / "out", "--checkpoint", f"m={room / 'a'}", "--variants", *variants)
    cell = {"checkpoint": "m", "embedding": "cls", "layer": "last"}
    assert cells("cosine", variant="reworded", **cell) < 1 - 1e-4
    # BERT's tokens are the same.
    assert cells("cosine", variant="spaced", **cell) == pytest.approx(1, abs=1e-6)
    assert {row["variant"] for row in examples_of(tmp_path / "out") if row["embedding"] == "common"} == {
        "reworded"
    }


def test_rows_of_other_stories_are_refused(
    room: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_rows([replace(row, id="x" + row.id) for row in made("ts_r")], tmp_path / "strange.jsonl")
    write_rows([replace(row, context="Z" + row.context) for row in made("ts_r")], tmp_path / "changed.jsonl")
    for name, word in (("strange", "without their originals"), ("changed", "not made from the story")):
        data = ("--data", room / "os.jsonl", tmp_path / f"{name}.jsonl")
        flags = ("--checkpoint", f"m={room / 'a'}", "--output", tmp_path / "no")
        assert word in told(capsys, "shift", *flags, *data)


@given(st.lists(st.integers(0, 90), min_size=1, max_size=8), st.integers(2, 40))
def test_spread_takes_both_ends_and_even_steps(counts: list[int], most: int) -> None:
    chosen = spread(counts, most).tolist()
    start = 0
    for count in counts:
        own = [index - start for index in chosen if start <= index < start + count]
        assert len(own) == min(count, most)
        if count:
            assert (own[0], own[-1]) == (0, count - 1)
            steps = {after - before for before, after in pairwise(own)}
            assert not steps or max(steps) - min(steps) <= 1
        start += count
