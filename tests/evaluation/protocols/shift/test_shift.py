"""`python -m evaluation shift` against transformers' own model, one text at a time."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import fmean, pstdev

import numpy as np
import pandas as pd
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
    built,
    cosines,
    made,
    shift,
)


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three BERTs, an XLNet, and prepared rows."""
    root = tmp_path_factory.mktemp("room")
    for seed, name in enumerate("abc"):
        save_folder(root / name, seed=seed)
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
    whole = shift(tmp_path / "whole", *flags)
    rows = (room / "ts_r.jsonl", room / "os.jsonl")
    read = shift(tmp_path / "rows", *flags, data=rows)
    pd.testing.assert_frame_equal(read.frame, whole.frame)
    small = shift(tmp_path / "small", *flags, "--batch-size", "3")
    pd.testing.assert_frame_equal(small.frame, whole.frame, atol=1e-6)
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
    flags = ("--checkpoint", f"m={room / 'a'}", "--output", tmp_path / "no", "--data", room / "os.jsonl")
    assert "without their originals" in told(capsys, "shift", *flags, tmp_path / "strange.jsonl")


def naive_cka(x_ND: np.ndarray, y_ND: np.ndarray) -> float:
    """By centred Gram matrices: the other way to write it."""
    n = len(x_ND)
    centre = np.eye(n) - 1 / n
    k, m = centre @ x_ND @ x_ND.T @ centre, centre @ y_ND @ y_ND.T @ centre
    return float((k * m).sum() / np.sqrt((k * k).sum() * (m * m).sum()))


def test_cosine_and_cka_between_checkpoints_match_transformers(room: Path, tmp_path: Path) -> None:
    named = [f"{name}={room / name}" for name in "abc"]
    flags = ("--variants", "ts_r", "--batch-size", "5")
    cells = shift(tmp_path / "out", "--checkpoint", *named, *flags)
    states = {name: [Naive(room / name, "bert").states(story) for story in STORIES] for name in "abc"}
    for other in "bc":
        for layer in range(3):
            pairs = list(zip(states["a"], states[other], strict=True))
            cell = {"checkpoint": other, "reference": "a", "layer": layer}
            row = cells.row("cosine", embedding="cls", **cell)
            mean = fmean(cosines(x, y)[layer] for (x, _), (y, _) in pairs)
            assert (row["value"], row["n"]) == (pytest.approx(mean, abs=1e-5), len(STORIES))
            every = [cosines(x[at], y[at])[layer] for (_, x), (_, y) in pairs for at in x]
            assert cells("cosine", embedding="common", **cell) == pytest.approx(fmean(every), abs=1e-5)
            # At most 32 tokens of a story take part: these have fewer than 32 or an even choice of 32.
            chosen = [[list(x)[i] for i in evenly(len(x))] for _, x in states["a"]]
            x_ND, y_ND = (
                np.array([x[at][layer].numpy() for (_, x), c in zip(side, chosen, strict=True) for at in c])
                for side in (states["a"], states[other])
            )
            assert cells("cka", embedding="common", **cell) == pytest.approx(naive_cka(x_ND, y_ND), abs=1e-5)
            found = cells("cka", embedding="cls", **cell)
            if layer == 0:  # the same for every story
                assert math.isnan(found)
            else:
                x_ND, y_ND = (np.array([cls[layer].numpy() for cls, _ in states[n]]) for n in ("a", other))
                assert found == pytest.approx(naive_cka(x_ND, y_ND), abs=1e-5)


def evenly(count: int, most: int = 32) -> list[int]:
    step = (count - 1) / (most - 1)
    return list(range(count)) if count <= most else [round(i * step) for i in range(most)]


def test_a_checkpoint_equals_itself(room: Path, tmp_path: Path) -> None:
    named = [f"one={room / 'a'}", f"again={room / 'a'}"]
    frame = shift(tmp_path / "out", "--checkpoint", *named, "--variants", "ts").frame
    between = frame[(frame["reference"] == "one") & frame["measure"].isin(["cosine", "cka"])]
    assert list(between["value"].dropna()) == pytest.approx([1] * 11, abs=1e-6)
    changes = frame[(frame["against"] == "one") & (frame["measure"] == "cosine")]
    assert len(changes) > 0
    assert (changes["value"] == 0).all()


def test_models_of_other_depths_and_widths_are_compared_as_far_as_they_go(tmp_path: Path) -> None:
    paths = {
        "base": built(tmp_path / "base.ckpt"),
        "deep": built(tmp_path / "deep.ckpt", num_hidden_layers=4),
        "wide": built(tmp_path / "wide.ckpt", hidden_size=48),
    }
    named = [f"{name}={path}" for name, path in paths.items()]
    frame = shift(tmp_path / "out", "--checkpoint", *named, "--variants", "ts", "--layers", "all").frame
    between = frame[frame["reference"] == "base"]
    assert set(between[between["checkpoint"] == "deep"]["layer"]) == {"0", "1", "2"}
    assert set(between[between["checkpoint"] == "wide"]["measure"]) == {"cka"}
    deep = frame[(frame["checkpoint"] == "deep") & (frame["reference"] == "")]
    assert set(deep["layer"]) == {"0", "1", "2", "3", "4", "last"}
    assert set(deep[deep["against"] == "base"]["layer"]) == {"0", "1", "2", "last"}


def test_checkpoints_with_other_vocabularies_are_not_compared(room: Path, tmp_path: Path) -> None:
    named = [f"bert={room / 'a'}", f"xlnet={room / 'xlnet'}"]
    cells = shift(tmp_path / "out", "--checkpoint", *named, "--variants", "ts")
    assert set(cells.frame["reference"]) == {""}
    assert "another vocabulary" in (tmp_path / "out" / "report.md").read_text()


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
