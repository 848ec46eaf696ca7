"""Several checkpoints side by side: cosine and CKA between them, layer by layer."""

from __future__ import annotations

import math
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest

from tests.evaluation.checkpoints import save_folder, told
from tests.evaluation.protocols.shift.shift_oracle import DATA, STORIES, Naive, built, cosines, related, shift


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three related BERTs."""
    root = tmp_path_factory.mktemp("room")
    related(root)
    return root


def naive_cka(x_ND: np.ndarray, y_ND: np.ndarray) -> float:
    """By centred Gram matrices: the other way to write it."""
    n = len(x_ND)
    centre = np.eye(n) - 1 / n
    k, m = centre @ x_ND @ x_ND.T @ centre, centre @ y_ND @ y_ND.T @ centre
    return float((k * m).sum() / np.sqrt((k * k).sum() * (m * m).sum()))


def test_three_checkpoints_are_compared_with_the_first_by_layer(room: Path, tmp_path: Path) -> None:
    named = [f"{name}={room / name}" for name in "abc"]
    flags = ("--variants", "ts_r", "--batch-size", "5", "--layers", "all")
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


def test_a_checkpoint_is_equal_to_itself_and_its_neighbour_is_the_one_before(
    room: Path, tmp_path: Path
) -> None:
    named = [f"one={room / 'a'}", f"again={room / 'a'}", f"b={room / 'b'}"]
    cells = shift(tmp_path / "out", "--checkpoint", *named, "--variants", "ts", "--between", "consecutive")
    between = cells.frame[cells.frame["reference"] != ""].dropna(subset="value")
    pairs = between.groupby(["reference", "checkpoint"])["value"]
    assert set(pairs.groups) == {("one", "again"), ("again", "b")}
    assert list(pairs.get_group(("one", "again"))) == pytest.approx([1] * 11, abs=1e-6)
    assert pairs.get_group(("again", "b")).min() < 0.999


def test_models_of_other_depths_and_widths_are_compared_as_far_as_they_go(tmp_path: Path) -> None:
    paths = {
        "base": built(tmp_path / "base.ckpt"),
        "deep": built(tmp_path / "deep.ckpt", num_hidden_layers=4),
        "wide": built(tmp_path / "wide.ckpt", hidden_size=48),
    }
    named = [f"{name}={path}" for name, path in paths.items()]
    frame = shift(tmp_path / "out", "--checkpoint", *named, "--layers", "all").frame
    between = frame[frame["reference"] == "base"]
    assert set(between[between["checkpoint"] == "deep"]["layer"].astype(str)) == {"0", "1", "2"}
    assert set(between[between["checkpoint"] == "wide"]["measure"]) == {"cka"}
    deep = frame[(frame["checkpoint"] == "deep") & (frame["reference"] == "")]
    assert set(deep["layer"].astype(str)) - {""} == {"0", "1", "2", "3", "4"}


def test_other_tokens_cannot_be_compared(
    room: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    named = [f"bert={room / 'a'}", f"xlnet={save_folder(tmp_path / 'xlnet', 'xlnet')}"]
    cells = shift(tmp_path / "out", "--checkpoint", *named, "--variants", "ts")
    assert set(cells.frame["reference"]) == {""}
    asked = ["shift", "--checkpoint", *named, "--data", DATA, "--limit", "4", "--between", "first"]
    assert "--between none" in told(capsys, *asked, "--output", tmp_path / "no")
    assert not (tmp_path / "no").exists()
