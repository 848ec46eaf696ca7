"""The bins of the histograms, and figures of few and of many checkpoints."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure

from data_modules.schema import Variant
from evaluation.figures import COLOURS, style
from evaluation.protocols.shift.figures import MOST_BINS, figures, joined_bins
from evaluation.protocols.shift.scores import BINS, Between, CheckpointShift, computed
from metrics.shift import EmbeddingShift, ShiftResult


@given(
    st.lists(
        st.dictionaries(st.integers(0, BINS - 1), st.integers(1, 50), max_size=6), min_size=1, max_size=3
    )
)
def test_joined_bins_keep_every_count_in_its_place(sparse: list[dict[int, int]]) -> None:
    counts = [np.bincount(list(c), list(c.values()), minlength=BINS) if c else np.zeros(BINS) for c in sparse]
    edges, shares = joined_bins(counts)
    assert len(edges) - 1 <= MOST_BINS
    assert np.allclose(np.diff(edges), edges[1] - edges[0])
    fine = np.linspace(-1, 1, BINS + 1)
    for count, share in zip(counts, shares, strict=True):
        assert share.sum() == pytest.approx(1 if count.sum() else 0)
        for k in range(len(share)):
            inside = (fine[:-1] >= edges[k] - 1e-9) & (fine[1:] <= edges[k + 1] + 1e-9)
            assert share[k] == pytest.approx(count[inside].sum() / max(1, count.sum()))


def result(layers: int, mean: float, n: int = 20) -> ShiftResult:
    metric = EmbeddingShift(layers, BINS)
    cos_NL = mean + 0.01 * torch.linspace(-1, 1, n)[:, None].expand(n, layers)
    metric.update(cos_NL, cos_NL, torch.arange(n), n)
    return computed(metric)


def drawn(
    monkeypatch: pytest.MonkeyPatch, folder: Path, checkpoints: int, layers: int, single: int = 20
) -> dict[str, Figure]:
    """Every figure as matplotlib has it, written for real."""
    kept: dict[str, Figure] = {}
    save = Figure.savefig

    def keep(self: Figure, path: Path, **options: object) -> None:
        kept[Path(path).name] = self
        save(self, path, **options)

    monkeypatch.setattr(Figure, "savefig", keep)
    variants: list[Variant] = ["ts", "os_r"]
    found = [
        CheckpointShift(
            f"step{i}",
            {variant: result(layers, 0.9 - 0.1 * i) for variant in variants},
            {variant: result(layers, 0.9 - 0.1 * i, single) for variant in variants},
            None,
        )
        for i in range(checkpoints)
    ]
    pairs = []
    for i in range(1, checkpoints):
        cka_L = torch.linspace(1, 1 - 0.1 * i, layers)
        first_nan_L = torch.where(torch.arange(layers) == 0, torch.nan, cka_L)
        pairs.append(Between("step0", f"step{i}", result(layers, 1 - 0.1 * i), first_nan_L, cka_L))
    for name, draw in figures(variants, found, pairs).items():
        draw(folder / name)
        assert (folder / name).stat().st_size > 0
    return kept


def test_one_checkpoint_in_its_last_layer_has_histograms_only(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    kept = drawn(monkeypatch, tmp_path, checkpoints=1, layers=1)
    assert set(kept) == {"histogram_ts.png", "histogram_os_r.png"}


def test_several_checkpoints_have_curves_and_heat_maps(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    kept = drawn(monkeypatch, tmp_path, checkpoints=3, layers=4, single=10)
    names = {"histogram_ts.png", "histogram_ts_single_window.png", "layers.png", "between.png"}
    assert names <= set(kept)
    maps = [axes for axes in kept["between.png"].axes if axes.get_images()]
    assert [axes.get_title(loc="left") for axes in maps] == [
        "CLS cosine",
        "token cosine",
        "CLS CKA",
        "token CKA",
    ]
    for axes in maps:
        grid_LK = axes.get_images()[0].get_array()
        assert grid_LK is not None
        assert grid_LK.shape == (4, 2)
        told = [text.get_text() for text in axes.texts]
        assert told == [
            f"{value:.3f}" if np.isfinite(value) else "–" for value in np.ma.filled(grid_LK, np.nan).flat
        ]
    curves = kept["layers.png"].axes[0].get_lines()
    assert [len(line.get_xdata()) for line in curves] == [4, 4, 4]  # type: ignore[arg-type]


def test_checkpoints_differ_in_colour_or_in_dashes() -> None:
    looks = [tuple(style(i).values()) for i in range(3 * len(COLOURS))]
    assert len(set(looks)) == len(looks)
