"""`python -m evaluation shift` under interventions, against transformers' own model, one text at a time."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_modules.questions.rows import write_rows
from data_modules.schema import QAExample
from evaluation.answering.interface import Asking
from evaluation.protocols.shift.measure import BINS, measure
from evaluation.protocols.shift.report import MOST_BINS, joined_bins
from evaluation.variants import VariantOptions, read_stories
from metrics.intervals import mean_interval
from metrics.shift import histogram_edges
from tests.evaluation.checkpoints import examples_of, save_ckpt, save_folder, told
from tests.evaluation.protocols.shift.shift_oracle import (
    DATA,
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
def test_every_layer_equals_a_loop_over_single_texts(room: Path, tmp_path: Path, architecture: str) -> None:
    folder = room / {"bert": "a"}.get(architecture, architecture)
    cells = shift(tmp_path / "out", "--checkpoint", f"m={folder}", "--layers", "all", "--batch-size", "5")
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
            every = [(cos[layer], i) for i, story in enumerate(tokens) for cos in story]
            expected = {
                ("cls", "cosine"): fmean(cos[layer] for cos in cls),
                ("cls", "std"): pstdev(cos[layer] for cos in cls),
                ("common", "cosine"): fmean(cos for cos, _ in every),
                ("common", "std"): pstdev(cos for cos, _ in every),
                ("common", "macro"): fmean(fmean(cos[layer] for cos in s) for s in tokens),
            }
            cell = {"checkpoint": "m", "variant": variant, "layer": layer}
            for (embedding, name), value in expected.items():
                for stories in ("all", "single window"):
                    row = cells.row(name, embedding=embedding, stories=stories, **cell)
                    assert row["value"] == pytest.approx(value, abs=1e-5)
                    assert row["n"] == len(cls)
            for embedding, (_, interval, _) in (
                ("cls", mean_interval([cos[layer] for cos in cls], range(len(cls)))),
                ("common", mean_interval([cos for cos, _ in every], [i for _, i in every])),
            ):
                row = cells.row("cosine", embedding=embedding, stories="all", **cell)
                assert (row["low"], row["high"]) == pytest.approx(interval, abs=1e-5)
        cell = {"checkpoint": "m", "variant": variant, "stories": "all", "embedding": "common"}
        assert cells("pairs", **cell) == len(every)


def test_neither_chunks_nor_batches_nor_prepared_rows_change_a_number(room: Path, tmp_path: Path) -> None:
    flags = ("--checkpoint", *(f"{name}={room / name}" for name in "ab"), "--variants", "ts_r")
    whole = shift(tmp_path / "whole", *flags, "--layers", "all")
    rows = examples_of(tmp_path / "whole")
    for data in ((DATA,), (room / "ts_r.jsonl", room / "os.jsonl")):
        output = tmp_path / f"{len(data)}"
        parts = shift(output, *flags, "--layers", "all", "--chunk", "5", "--batch-size", "3", data=data)
        assert_same(parts, whole, 1e-6)
        pairs = zip(rows, examples_of(output), strict=True)
        assert all(
            one[name] == other[name] for one, other in pairs for name in ("checkpoint", "id", "variant")
        )


def test_stories_of_several_windows_are_reported_apart(tmp_path: Path) -> None:
    checkpoint = save_ckpt(tmp_path / "short.ckpt", max_length=44, stride=8)
    cells = shift(tmp_path / "out", "--checkpoint", checkpoint, "--variants", "ts")
    rows = examples_of(tmp_path / "out")
    single = [row for row in rows if row["windows"] == 1]
    assert 0 < len(single) < len(rows)
    for stories, chosen in (("all", rows), ("single window", single)):
        cell = {"checkpoint": "short", "variant": "ts", "stories": stories}
        row = cells.row("cosine", embedding="cls", layer=2, **cell)
        # Rows and report are sums in float64 of the same cosines.
        assert row["value"] == pytest.approx(fmean(r["cls"] for r in chosen), abs=1e-13)
        assert row["n"] == len(chosen)
        macro = cells("macro", embedding="common", layer=2, **cell)
        assert macro == pytest.approx(fmean(r["tokens"] for r in chosen), abs=1e-13)
        assert cells("pairs", embedding="common", **cell) == sum(row["pairs"] for row in chosen)


def test_question_tokens_and_generated_sentences(room: Path, tmp_path: Path) -> None:
    flags = ("--checkpoint", f"m={room / 'a'}", "--variants", "ts_r", "ts_r_aug")
    plain = shift(tmp_path / "plain", *flags)
    asked = shift(tmp_path / "asked", *flags, "--include-question")
    cell = {"checkpoint": "m", "stories": "all"}
    pairs = {"measure": "pairs", "embedding": "common", **cell}
    cosine = {"measure": "cosine", "embedding": "cls", "layer": 2, **cell}
    assert asked(variant="ts_r", **pairs) > plain(variant="ts_r", **pairs)
    assert asked(variant="ts_r", **cosine) == plain(variant="ts_r", **cosine)
    # What is appended is no common token, be it the bare answer or a sentence around it.
    assert plain(variant="ts_r_aug", **pairs) == plain(variant="ts_r", **pairs)
    assert plain(variant="ts_r_aug", **cosine) != plain(variant="ts_r", **cosine)


def test_edits_that_keep_the_meaning_are_compared_by_cls(room: Path, tmp_path: Path) -> None:
    """Their stories may share no place with the original; where the question alone is another, tokens do."""
    variants = ("reworded", "spaced")
    cells = shift(tmp_path / "out", "--checkpoint", f"m={room / 'a'}", "--variants", *variants)
    cell = {"checkpoint": "m", "stories": "all", "embedding": "cls", "layer": 2}
    assert cells("cosine", variant="reworded", **cell) < 1 - 1e-4
    assert cells("cosine", variant="spaced", **cell) == pytest.approx(
        1, abs=1e-6
    )  # BERT's tokens are the same
    pairs = [cells("pairs", checkpoint="m", stories="all", embedding="common", variant=v) for v in variants]
    assert pairs[0] > 0 == pairs[1]


def test_mistakes_cost_one_line(room: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made_here = made("ts_r")
    for name, rows in (
        ("strange", [replace(example, id="x" + example.id) for example in made_here]),
        ("changed", [replace(example, context="Z" + example.context) for example in made_here]),
    ):
        write_rows(rows, tmp_path / f"{name}.jsonl")
    os = room / "os.jsonl"
    for word, arguments in (
        ("without an original", (os, tmp_path / "strange.jsonl")),
        ("not made from the story", (os, tmp_path / "changed.jsonl")),
        ("originals", (room / "ts_r.jsonl",)),
        ("--variants", (os, "--variants", "os")),
        ("two checkpoints", (os, "--between", "first")),
    ):
        checkpoint = ("--checkpoint", f"m={room / 'a'}", "--output", tmp_path / "no")
        assert word in told(capsys, "shift", *checkpoint, "--data", *arguments)
    assert not (tmp_path / "no").exists()


def test_memory_does_not_grow_with_the_number_of_stories(room: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python's own memory (records, tokens, rows); torch's holds one batch and sums of fixed size."""
    monkeypatch.setattr("evaluation.protocols.shift.measure.STATES", 32)  # the bound of what figures keep

    def peak(limit: int, chunk: int) -> int:
        options = VariantOptions(data=["stories:conversation_train"], variants=["ts_r"], limit=limit)
        named, asking = {"a": str(room / "a")}, Asking(device="cpu")
        flags = {"every_layer": False, "between": None, "include_question": False}
        tracemalloc.start()
        measure(named, read_stories(options), asking, chunk=chunk, **flags)  # type: ignore[arg-type]
        _, highest = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return highest

    peak(32, 32)  # imports and caches
    peak(224, 32)  # the cache of sentence boundaries, which has a bound
    few, many, at_once = peak(64, 32), peak(224, 32), peak(224, 224)
    assert many < 1.3 * few
    assert at_once > 1.6 * few  # so that the bound above means something


def test_states_are_those_that_cosines_are_of(room: Path, tmp_path: Path) -> None:
    """The figure of CLS states stands on the same embeddings as the rows, for every story and variant."""
    stories = read_stories(VariantOptions(data=[str(DATA)], variants=["ts", "ts_r"]))
    flags: dict[str, Any] = {"every_layer": False, "between": "none", "include_question": False, "chunk": 7}
    (found,), _, rows = measure({"a": str(room / "a")}, stories, Asking(device="cpu"), **flags)
    state = {(number, variant): vector for number, variant, vector in found.states}
    assert [state[:2] for state in found.states] == sorted(state)
    assert len(found.states) == len(stories.stories) + len(rows)
    number_of = {story.original.id: story.number for story in stories.stories}
    for row in rows:
        number = number_of[row["id"]]
        os, other = state[number, "os"], state[number, row["variant"]]
        cosine = os @ other / np.sqrt((os @ os) * (other @ other))
        assert row["cls"] == pytest.approx(cosine, abs=1e-5)


@given(
    st.lists(
        st.dictionaries(st.integers(0, BINS - 1), st.integers(1, 50), max_size=6), min_size=1, max_size=3
    )
)
def test_joined_bins_keep_every_count_in_its_place(sparse: list[dict[int, int]]) -> None:
    counts = [np.bincount(list(c), list(c.values()), minlength=BINS) if c else np.zeros(BINS) for c in sparse]
    edges, shares = joined_bins(counts)
    assert len(edges) - 1 <= MOST_BINS
    assert (np.diff(edges) > 0).all()
    assert edges[0] > 0  # on a log axis
    fine = 1 - histogram_edges(BINS, log=True).numpy()[::-1]
    fine[0] = fine[1] * 10 ** (-1 / 50)
    for count, share in zip(counts, shares, strict=True):
        assert share.sum() == pytest.approx(1 if count.sum() else 0)
        for k in np.flatnonzero(share):
            inside = (fine[:-1] >= edges[k] - 1e-9) & (fine[1:] <= edges[k + 1] + 1e-9)
            assert share[k] == pytest.approx(count[::-1][inside].sum() / count.sum())
