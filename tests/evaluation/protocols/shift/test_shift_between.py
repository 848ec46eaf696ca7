"""Several checkpoints side by side: cosine and CKA between them, layer by layer."""

from __future__ import annotations

import math
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest

from tests.evaluation.checkpoints import save_folder
from tests.evaluation.protocols.shift.shift_oracle import STORIES, Naive, built, cosines, related, shift


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


def test_cosine_and_cka_between_checkpoints_match_transformers(room: Path, tmp_path: Path) -> None:
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
    frame = shift(tmp_path / "out", "--checkpoint", *named, "--layers", "all").frame
    between = frame[frame["reference"] == "base"]
    assert set(between[between["checkpoint"] == "deep"]["layer"]) == {"0", "1", "2"}
    assert set(between[between["checkpoint"] == "wide"]["measure"]) == {"cka"}
    deep = frame[(frame["checkpoint"] == "deep") & (frame["reference"] == "")]
    assert set(deep["layer"]) == {"0", "1", "2", "3", "4", "last"}
    assert set(deep[deep["against"] == "base"]["layer"]) == {"0", "1", "2", "last"}


def test_checkpoints_with_other_vocabularies_are_not_compared(room: Path, tmp_path: Path) -> None:
    named = [f"bert={room / 'a'}", f"xlnet={save_folder(tmp_path / 'xlnet', 'xlnet')}"]
    cells = shift(tmp_path / "out", "--checkpoint", *named, "--variants", "ts")
    assert set(cells.frame["reference"]) == {""}
    assert "another vocabulary" in (tmp_path / "out" / "report.md").read_text()
