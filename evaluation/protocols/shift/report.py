"""The long table of the shift protocol, its tables and figures. Shape letters: L layers, H bins, U blocks of
stories, R resamples.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from data_modules.schema import DELETED, Variant
from evaluation.figures import HeatMap, Lines, bare, legend, new_figure, style
from evaluation.protocols.shift.batches import CKA_TOKENS
from evaluation.protocols.shift.sums import BLOCKS, CheckpointShift, Which
from evaluation.report import Drawing, Evaluation, Figure
from evaluation.results import Results
from evaluation.variants import Stories
from evaluation.views import View, make_table, number
from metrics.intervals import NONE, Interval, percentiles, resamples
from metrics.shift import ShiftMeans, ShiftSums, shift_means, shift_result

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

BY = ("checkpoint", "reference", "variant", "stories", "embedding", "layer")
EMBEDDINGS = {"cls": "CLS", "common": "common tokens"}
MOST_BINS = 40
"""Bars over the range that a histogram shows."""

NOTE = (
    "Cosine similarity between the hidden states of the original story and of a variant, in the last "
    "layer: of the classification token (cls), and of the story's tokens that both have (common: over all of "
    "them; std is the standard deviation). `ts` ends the story after the rationale: little should move. "
    "`ts_r` and `os_r` delete the rationale: the paper reads a low cosine there as a sign that the model has "
    "noticed. Variants may cover different stories, see n. Only the first window of a story is compared; "
    "`single window` leaves out the stories that have more. results.csv also has the mean over stories of "
    f"their tokens' means (macro). Stories are resampled in {BLOCKS} blocks, one by one where they are fewer."
)
BETWEEN_NOTE = (
    "Between checkpoints: the same original stories in both, in the tokens and windows of the later one. "
    "Cosine: 1 where fine-tuning left an embedding alone; linear CKA: 1 where it left the arrangement of the "
    "inputs alone, up to rotation and scale (Kornblith et al. 2019). CKA of tokens takes at most "
    f"{CKA_TOKENS} evenly spread tokens of each story. CKA rises towards 1 where there are not many more "
    "inputs than hidden units, so compare values of the same inputs only; resamples, which repeat inputs, "
    "would raise it too: it has no interval. Where all inputs have the same embedding, as CLS has before "
    "the first layer, there is no CKA."
)


def report(
    checkpoints: Sequence[CheckpointShift],
    stories: Stories,
    notes: Sequence[str],
    about: Mapping[str, Any],
    examples: Iterable[Mapping[str, Any]],
) -> Evaluation:
    """The evaluation of all checkpoints; `notes` say what could not be compared."""
    results = Results(BY, "stories")
    results.add("stories", len(stories.stories), n=len(stories.stories))
    for checkpoint in checkpoints:
        add_checkpoint(results, checkpoint)
    frame = results.frame
    last = frame[frame["layer"] == frame["checkpoint"].map({c.name: c.layers[-1] for c in checkpoints})]
    overview = partial(
        View,
        by=("checkpoint", "variant"),
        measures={"cosine": "cosine", "std": "std"},
        across="embedding",
    )
    title = "Cosine similarity with the original, last layer"
    views = [make_table(overview(title, where={"stories": "all", "reference": ""}), last)]
    if any(checkpoint.several_windows for checkpoint in checkpoints):
        title = "The same without stories of more than one window"
        views.append(make_table(overview(title, where={"stories": "single window"}), last))
    between = frame[frame["reference"] != ""].astype({"layer": "int64"}, errors="ignore")
    between = between.sort_values("layer", ascending=False, kind="stable")
    by, measures = ("layer", "checkpoint", "reference"), {"cosine": "cosine", "cka": "CKA"}
    title = "Between checkpoints, by layer (0: embeddings)"
    views.append(make_table(View(title, by, measures, across="embedding", most=26), between))
    return Evaluation(
        title=f"Embedding shift on {stories.dataset or 'this data'}",
        results=results,
        views=views,
        about=about,
        headline=headline(last, checkpoints),
        notes=list(all_notes(checkpoints, stories, notes)),
        figures=figures(frame, checkpoints),
        examples=examples,
        console=len(views),
    )


def add_checkpoint(results: Results, checkpoint: CheckpointShift) -> None:
    """All numbers of one checkpoint."""
    for (variant, which), metric in checkpoint.shift.items():
        cell: dict[str, Any] = {"checkpoint": checkpoint.name, "variant": variant, "stories": which}
        add_cosines(results, metric.sums, checkpoint.layers, **cell)
        result = shift_result(metric.sums)
        results.add("pairs", int(result.pairs), n=int(result.paired), embedding="common", **cell)
        results.add("skipped", int(result.skipped), n=int(result.n), **cell)
    if (between := checkpoint.between) is not None:
        cell = {"checkpoint": checkpoint.name, "reference": between.name}
        if between.shift is not None:
            add_cosines(results, between.shift.sums, range(between.layers), ("cosine",), **cell)
        for embedding, cka in (("cls", between.cls_cka), ("common", between.token_cka)):
            for layer, value in enumerate(cka.compute().tolist()):
                results.add("cka", value, n=between.stories, embedding=embedding, layer=layer, **cell)


def add_cosines(
    results: Results,
    sums: ShiftSums,
    layers: range,
    measures: Sequence[str] = ("cosine", "std", "macro"),
    **cell: str,
) -> None:
    """Means and deviations of the cosines of every layer, with their intervals."""
    result = shift_result(sums)
    intervals = {name: intervals_of(value) for name, value in resampled(sums)._asdict().items()}
    for embedding, prefix, n in (("cls", "cls", result.n), ("common", "token", result.paired)):
        for measure in measures:
            name = f"{prefix}_{'mean' if measure == 'cosine' else measure}_L"
            if name not in intervals:
                continue  # of CLS, a story has one
            for layer, value, interval in zip(
                layers, getattr(result, name).tolist(), intervals[name], strict=True
            ):
                place = {"embedding": embedding, "layer": layer, **cell}
                results.add(measure, value, n=int(n), interval=interval, **place)


def resampled(sums: ShiftSums) -> ShiftMeans:
    """Means and deviations of resamples of blocks, each (R, L); no rows where fewer than two blocks have
    stories."""
    filled = (sums.n_U + sums.pairs_U) > 0
    units = int(filled.sum())
    weights = np.concatenate(list(resamples(units))) if units > 1 else np.zeros((0, units))
    weight_RU = torch.from_numpy(weights)
    by_block = {name: value for name, value in sums._asdict().items() if "_U" in name}
    return shift_means(sums._replace(**{n: weight_RU @ v[filled].double() for n, v in by_block.items()}))


def intervals_of(values_RL: torch.Tensor) -> list[Interval]:
    """The interval of every layer."""
    return [percentiles(values_R.numpy()) if len(values_R) else NONE for values_R in values_RL.T]


def headline(last: DataFrame, checkpoints: Sequence[CheckpointShift]) -> str:
    """How similar CLS stays when the rationale is deleted, and when it is not."""
    variants = checkpoints[0].variants
    chosen = [next((v for v in variants if (v in DELETED) == deleted), None) for deleted in (True, False)]
    cells = last[(last["stories"] == "all") & (last["embedding"] == "cls") & (last["measure"] == "cosine")]
    value = {(row["checkpoint"], row["variant"]): row["value"] for row in cells.to_dict("records")}
    parts = [
        f"{variant}: "
        + ", ".join(f"{number(value.get((c.name, variant), math.nan))} ({c.name})" for c in checkpoints)
        for variant in chosen
        if variant is not None
    ]
    return f"Cosine of CLS with the original story, last layer: {'; '.join(parts)}."


def all_notes(
    checkpoints: Sequence[CheckpointShift], stories: Stories, notes: Sequence[str]
) -> Iterator[str]:
    """Paragraphs under the title."""
    pairs = [checkpoint.between for checkpoint in checkpoints if checkpoint.between is not None]
    yield NOTE
    if pairs:
        yield BETWEEN_NOTE
    yield from notes
    if any(pair.shift is None for pair in pairs):
        yield "Checkpoints of different hidden widths have no cosine between them, only CKA."
    if rejected := stories.rejection_note():
        yield rejected
    every = [metric.sums.skipped_U for c in checkpoints for (_, w), metric in c.shift.items() if w == "all"]
    if skipped := sum(int(skipped_U.sum()) for skipped_U in every):
        yield f"{skipped} stories or tokens are left out, since their embeddings are not finite numbers."


def figures(frame: DataFrame, checkpoints: Sequence[CheckpointShift]) -> dict[str, Figure]:
    """File name to figure: histograms, curves over layers, heat maps between checkpoints."""
    found: dict[str, Figure] = {}
    windows: list[Which] = ["all"]
    if any(checkpoint.several_windows for checkpoint in checkpoints):
        windows.append("single window")
    for variant in checkpoints[0].variants:
        for which in windows:
            suffix = "" if which == "all" else "_single_window"
            draw = partial(draw_histograms, checkpoints, variant, which)
            found[f"histogram_{variant}{suffix}.png"] = Drawing(draw)
        if len(checkpoints[0].layers) > 1:
            found[f"layers_{variant}.png"] = Lines(
                x="layer",
                hue="checkpoint",
                measures={"cosine": ""},
                panels="embedding",
                where={"variant": variant, "stories": "all"},
                label=f"cosine with the original, {variant}",
                x_label="layer (0: embeddings)",
            )
    between = frame[(frame["reference"] != "") & frame["value"].notna()]
    if len(between):
        references = list(dict.fromkeys(between["reference"]))
        several = "each compared with the one before it"
        found["between.png"] = HeatMap(
            x="checkpoint",
            y="layer",
            measures={"cosine": "cosine", "cka": "CKA"},
            panels="embedding",
            where={"reference": references},
            low=min(0.9, math.floor(10 * between["value"].min()) / 10),
            high=1.0,
            x_label=f"compared with {references[0]}" if len(references) == 1 else several,
            y_label="layer (0: embeddings)",
        )
    return found


def draw_histograms(
    checkpoints: Sequence[CheckpointShift], variant: Variant, which: Which, path: Path
) -> None:
    """Histograms of the last layer: CLS beside tokens, one colour a checkpoint, the same bins for all."""
    figure = new_figure(8.5, 3.4)
    results = {c.name: shift_result(c.shift[variant, which].sums) for c in checkpoints}
    for axes, (name, title) in zip(figure.subplots(1, 2), EMBEDDINGS.items(), strict=True):
        kind = "cls" if name == "cls" else "token"
        counts = {run: getattr(r, f"{kind}_histogram_LH")[-1].numpy() for run, r in results.items()}
        draw_histogram(axes, counts, [float(getattr(r, f"{kind}_mean_L")[-1]) for r in results.values()])
        axes.set_xlabel(f"cosine similarity, {title}")
        axes.set_ylabel("% of stories" if name == "cls" else "% of common tokens")
    stories = "" if which == "all" else " (stories of one window)"
    figure.suptitle(f"{variant}{stories}; dotted: means", fontsize=11, x=0.01, ha="left")
    legend(figure, figure.axes[0])
    figure.savefig(path, dpi=150)


def draw_histogram(axes: Axes, counts: Mapping[str, np.ndarray], means: Sequence[float]) -> None:
    """One panel: an outline a checkpoint, with its mean as a dotted line."""
    edges, shares = joined_bins(list(counts.values()))
    for i, (run, share_H, mean) in enumerate(zip(counts, shares, means, strict=True)):
        look = style(i)
        axes.stairs(100 * share_H, edges, fill=True, alpha=0.18, color=look["color"])
        axes.stairs(100 * share_H, edges, label=run, linewidth=1.6, **look)
        if math.isfinite(mean):
            axes.axvline(mean, linewidth=1, linestyle=(0, (1, 2)), color=look["color"])
    axes.set_xlim(edges[0], edges[-1])
    axes.set_ylim(bottom=0)
    axes.locator_params(axis="x", nbins=5)
    bare(axes)


def joined_bins(counts: Sequence[np.ndarray]) -> tuple[np.ndarray, list[np.ndarray]]:
    """Fine histograms over [-1, 1] with shared wider bins over the range where any of them has something.

    Returns:
        The edges, and for each histogram the shares of its own total, 0 where it is empty.
    """
    bins = len(counts[0])
    filled = np.flatnonzero(np.sum(counts, axis=0))
    first, last = (int(filled[0]), int(filled[-1]) + 1) if len(filled) else (0, bins)
    factor = next(f for f in range(1, bins + 1) if bins % f == 0 and last // f - first // f < MOST_BINS)
    low, high = first // factor, -(-last // factor)
    edges = np.linspace(-1, 1, bins // factor + 1)[low : high + 1]
    wide = [count.reshape(-1, factor).sum(1)[low:high] for count in counts]
    return edges, [count / max(1, count.sum()) for count in wide]
