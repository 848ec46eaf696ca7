"""The long table of the shift protocol, its tables and figures. Shape letters: L layers, H bins, U blocks of
stories, R resamples.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from data_modules.schema import DELETED, Variant
from evaluation.conclusions import change, headline
from evaluation.figures import COLOURS, MARKERS, Bars, HeatMap, Lines, bare, legend, new_figure, style
from evaluation.protocols.shift.measure import BLOCKS, CKA_TOKENS, STATES, WHICH, CheckpointShift, Which
from evaluation.report import Evaluation, Figure
from evaluation.results import Results
from evaluation.variants import Stories
from evaluation.views import View, make_table
from metrics.intervals import percentiles_of_each, resamples
from metrics.shift import DECADE, ShiftSums, histogram_edges, shift_result

if TYPE_CHECKING:
    from pandas import DataFrame

BY = ("checkpoint", "reference", "variant", "stories", "embedding", "layer")
COSINES = (
    ("cls", "cosine", "cls_mean_L"),
    ("cls", "std", "cls_std_L"),
    ("common", "cosine", "token_mean_L"),
    ("common", "std", "token_std_L"),
    ("common", "macro", "token_macro_L"),
)
"""Embedding, measure, and the field of `ShiftResult`; of CLS, a story has one."""
MOST_BINS = 40
"""Bars over the range that a histogram shows."""

NOTE = (
    "Cosine similarity between the hidden states of the original story and of a variant, in the last "
    "layer: of the classification token (cls), and of the story's tokens that both have (common: over all of "
    "them; std is the standard deviation). `ts` ends the story after the rationale: little should move. "
    "`ts_r` and `os_r` delete the rationale: the paper reads a low cosine there as a sign that the model has "
    "noticed. Variants may cover different stories, see n. Only the first window of a story is compared; "
    "`single window` leaves out the stories that have more. results.csv also has the mean over stories of "
    f"their tokens' means (macro). Stories are resampled in {BLOCKS} blocks, one by one where they are "
    "fewer. Figures show 1 - cosine on a log axis: how far an embedding moved. states.png: CLS in the last "
    f"layer of the first {STATES} stories and their variants, on two principal components; lines join their "
    "means, the checkpoint's mean of the originals taken off."
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
    results, skipped, compared = Results(BY, "stories"), 0, Counter[Which]()
    results.add("stories", len(stories.stories), n=len(stories.stories))
    for checkpoint in checkpoints:
        for which in WHICH:
            for variant, metrics in checkpoint.shift.items():
                cell: dict[str, Any] = {"checkpoint": checkpoint.name, "variant": variant, "stories": which}
                add_cosines(results, metrics[which].sums, checkpoint.layers, **cell)
                result = shift_result(metrics[which].sums.total())
                results.add("pairs", int(result.pairs), n=int(result.paired), embedding="common", **cell)
                results.add("skipped", int(result.skipped), n=int(result.n), **cell)
                compared[which] += int(result.n)
                skipped += int(result.skipped) * (which == "all")
        if (between := checkpoint.between) is not None:
            cell = {"checkpoint": checkpoint.name, "reference": between.name}
            if between.shift is not None:
                add_cosines(results, between.shift.sums, range(between.layers), only="cosine", **cell)
            n = int(between.cka["cls"].count)
            for embedding, cka in between.cka.items():
                for layer, value in enumerate(cka.compute().tolist()):
                    results.add("cka", value, n=n, embedding=embedding, layer=layer, **cell)
    several_windows = compared["all"] > compared["single window"]
    frame = results.frame
    last = frame[frame["layer"] == frame["checkpoint"].map({c.name: c.layers[-1] for c in checkpoints})]
    between_layers = frame[frame["reference"] != ""].astype({"layer": "int64"}, errors="ignore")
    by, cosines = ("variant", "embedding"), {"cosine": "cosine", "std": "std"}
    title = "Cosine similarity with the original, last layer"
    where = {"stories": "all", "reference": ""}
    views = [make_table(View(title, by, cosines, where=where), last)]
    if several_windows:
        title, where = "The same without stories of more than one window", {"stories": "single window"}
        views.append(make_table(View(title, by, cosines, where=where), last))
    views.append(
        make_table(
            View(
                "Between checkpoints, by layer (0: embeddings)",
                ("embedding", "layer"),
                {"cosine": "cosine", "cka": "CKA"},
            ),
            between_layers.sort_values("layer", ascending=False, kind="stable"),
        )
    )
    pairs = [checkpoint.between for checkpoint in checkpoints if checkpoint.between is not None]
    notes = [NOTE, *[BETWEEN_NOTE] * bool(pairs), *notes]
    if any(pair.shift is None for pair in pairs):
        notes.append("Checkpoints of different hidden widths have no cosine between them, only CKA.")
    if rejected := stories.rejection_note():
        notes.append(rejected)
    if skipped:
        notes.append(
            f"{skipped} stories or tokens are left out, since their embeddings are not finite numbers."
        )
    # How similar CLS stays when the rationale is deleted, and when it is not.
    cls = last[(last["stories"] == "all") & (last["embedding"] == "cls") & (last["measure"] == "cosine")]
    of_variant = {(row["checkpoint"], row["variant"]): row for row in cls.to_dict("records")}
    names = [c.name for c in checkpoints]
    parts = [
        change(variant, [of_variant.get((name, variant)) for name in names])
        for variant in sorted(checkpoints[0].shift, key=lambda variant: variant not in DELETED)
    ]
    return Evaluation(
        title=f"Embedding shift on {stories.dataset or 'this data'}",
        results=results,
        views=views,
        about=about,
        headline=headline(
            [f"{' -> '.join(names)}, cosine of CLS with the original story, last layer: {'; '.join(parts)}"],
            "low where the rationale is deleted (_r), near 1 where it is kept",
        ),
        notes=notes,
        figures=figures(frame, checkpoints, WHICH[: 1 + several_windows]),
        examples=examples,
        console=1,
    )


def add_cosines(results: Results, sums: ShiftSums, layers: range, *, only: str = "", **cell: Any) -> None:
    """Means and deviations of the cosines of every layer (or `only` one measure), with intervals from
    resamples of blocks."""
    result = shift_result(sums.total())
    filled_U = (sums.n_U + sums.pairs_U) > 0
    units, intervals = int(filled_U.sum()), {}
    if units > 1:
        weight_RU = torch.from_numpy(np.concatenate(list(resamples(units))))
        by_block = {name: value for name, value in sums._asdict().items() if "_U" in name}
        drawn = sums._replace(**{n: weight_RU @ value[filled_U].double() for n, value in by_block.items()})
        means = shift_result(drawn)
        intervals = {name: percentiles_of_each(getattr(means, name).numpy()) for *_, name in COSINES}
    for embedding, measure, name in COSINES:
        if measure == only or not only:
            n = int(result.n if embedding == "cls" else result.paired)
            low_L, high_L = intervals.get(name, np.full((2, len(layers)), np.nan))
            for layer, *ends, value in zip(
                layers, low_L, high_L, getattr(result, name).tolist(), strict=True
            ):
                place: dict[str, Any] = {"embedding": embedding, "layer": layer, **cell}
                results.add(measure, value, n=n, interval=(ends[0], ends[1]), **place)


def figures(
    frame: DataFrame, checkpoints: Sequence[CheckpointShift], windows: Sequence[Which]
) -> dict[str, Figure]:
    """File name to figure: means, heat maps between checkpoints, CLS states, histograms, curves by layer."""
    deepest = frame["checkpoint"].map({c.name: c.layers[-1] for c in checkpoints})
    means = Bars(
        x="variant",
        hue="checkpoint",
        measures={"cosine": "1 - cosine"},
        panels="embedding",
        where={"stories": "all", "reference": ""},
        distance=True,
        label="how far the variant moved",
        note="last layer, log axis; lower: less moved",
    )
    found: dict[str, Figure] = {"shift.png": lambda _, path: means(frame[frame["layer"] == deepest], path)}
    between = frame[(frame["reference"] != "") & frame["value"].notna()]
    if len(between):
        references = list(dict.fromkeys(between["reference"]))
        several = "each compared with the one before it"
        found["between.png"] = HeatMap(
            x="checkpoint",
            hue="layer",
            measures={"cosine": "1 - cosine", "cka": "1 - CKA"},
            panels="embedding",
            where={"reference": references},
            distance=True,
            x_label=f"compared with {references[0]}" if len(references) == 1 else several,
            label="layer (0: embeddings)",
        )
    if all("os" in {state[1] for state in c.states} and len(c.states) > 2 for c in checkpoints):
        found["states.png"] = partial(draw_states, checkpoints)
    for variant in checkpoints[0].shift:
        for which in windows:
            suffix = "" if which == "all" else "_single_window"
            found[f"histogram_{variant}{suffix}.png"] = partial(draw_histograms, checkpoints, variant, which)
        if len(checkpoints[0].layers) > 1:
            found[f"layers_{variant}.png"] = Lines(
                x="layer",
                hue="checkpoint",
                measures={"cosine": ""},
                panels="embedding",
                where={"variant": variant, "stories": "all"},
                distance=True,
                label=f"1 - cosine with the original, {variant}",
                x_label="layer (0: embeddings)",
            )
    return found


def draw_states(checkpoints: Sequence[CheckpointShift], _: DataFrame, path: Path) -> None:
    """CLS in the last layer, less the checkpoint's mean of the originals, on two principal components.

    A panel a checkpoint, a colour a variant, lines to the variants' means; one width, the same axes.
    """
    from sklearn.decomposition import PCA

    states = []
    for checkpoint in checkpoints:
        state_ND = np.stack([state for *_, state in checkpoint.states])
        states.append(state_ND - state_ND[[variant == "os" for _, variant, _ in checkpoint.states]].mean(0))
    shared = len({state.shape[1] for state in states}) == 1
    across = min(4, len(states))
    down = -(-len(states) // across)
    figure = new_figure(max(4.4, 2.9 * across), 0.6 + 2.8 * down)
    grid = figure.subplots(down, across, squeeze=False, sharex=shared, sharey=shared)
    for axes in grid.flat[len(states) :]:
        axes.set_axis_off()
    for axes, checkpoint, state_ND in zip(grid.flat, checkpoints, states, strict=False):
        pca = PCA(2, svd_solver="full").fit(np.concatenate(states) if shared else state_ND)
        place_N2 = pca.transform(state_ND)
        variant_N = np.array([variant for _, variant, _ in checkpoint.states])
        middle = place_N2[variant_N == "os"].mean(0)
        for i, variant in enumerate(("os", *checkpoint.shift)):
            points_N2, colour = place_N2[variant_N == variant], COLOURS[i % len(COLOURS)]
            if len(points_N2):
                axes.plot(*points_N2.T, ".", markersize=3, alpha=0.4, color=colour)
                axes.plot(*np.stack([middle, points_N2.mean(0)]).T, linewidth=1, color="black", zorder=3)
                axes.plot(
                    *points_N2.mean(0), MARKERS[i % len(MARKERS)], color=colour, mec="black", label=variant
                )
        axes.set_title(checkpoint.name, fontsize=10, loc="left")
        bare(axes)
        first, second = (f"PC {i} ({share:.0%})" for i, share in enumerate(pca.explained_variance_ratio_, 1))
        axes.set_xlabel(first, fontsize=8)
        axes.set_ylabel(second, fontsize=8)
    legend(figure, grid[0][0])
    figure.savefig(path, dpi=150)


def draw_histograms(
    checkpoints: Sequence[CheckpointShift], variant: Variant, which: Which, _: DataFrame, path: Path
) -> None:
    """Histograms of the last layer on a log axis: CLS beside tokens, an outline a checkpoint, dotted its
    mean, the same bins for all."""
    figure = new_figure(8.5, 3.4)
    results = [shift_result(c.shift[variant][which].sums.total()) for c in checkpoints]
    for axes, kind, title, unit in zip(
        figure.subplots(1, 2),
        ("cls", "token"),
        ("CLS", "common tokens"),
        ("stories", "common tokens"),
        strict=True,
    ):
        edges, shares = joined_bins([getattr(r, f"{kind}_histogram_LH")[-1].numpy() for r in results])
        for i, (checkpoint, result, share_H) in enumerate(zip(checkpoints, results, shares, strict=True)):
            look, mean = style(i), float(getattr(result, f"{kind}_mean_L")[-1])
            axes.stairs(100 * share_H, edges, fill=True, alpha=0.18, color=look["color"])
            axes.stairs(100 * share_H, edges, label=checkpoint.name, linewidth=1.6, **look)
            if 1 - mean >= edges[0]:
                axes.axvline(1 - mean, linewidth=1, linestyle=(0, (1, 2)), color=look["color"])
        axes.set_xscale("log")
        axes.set_xlim(edges[0], edges[-1])
        axes.set_ylim(bottom=0)
        bare(axes)
        axes.set_xlabel(f"1 - cosine, {title}")
        axes.set_ylabel(f"% of {unit}")
    stories = "" if which == "all" else " (stories of one window)"
    figure.suptitle(f"{variant}{stories}; dotted: means", fontsize=11, x=0.01, ha="left")
    legend(figure, figure.axes[0])
    figure.savefig(path, dpi=150)


def joined_bins(counts: Sequence[np.ndarray]) -> tuple[np.ndarray, list[np.ndarray]]:
    """Fine histograms with shared wider bins over the range where any of them has something.

    Returns:
        The edges as 1 - cosine, from small to large, and for each histogram the shares of its own total, 0
        where it is empty.
    """
    counts = [count[::-1] for count in counts]
    bins = len(counts[0])
    fine = 1 - histogram_edges(bins, log=True).numpy()[::-1]
    fine[0] = fine[1] * 10 ** (-1 / DECADE)  # for an axis without 0
    filled = np.flatnonzero(np.sum(counts, axis=0))
    first, last = (int(filled[0]), int(filled[-1]) + 1) if len(filled) else (0, bins)
    factor = next(f for f in range(1, bins + 1) if bins % f == 0 and last // f - first // f < MOST_BINS)
    low, high = first // factor, -(-last // factor)
    edges = fine[::factor][low : high + 1]
    wide = [count.reshape(-1, factor).sum(1)[low:high] for count in counts]
    return edges, [count / max(1, count.sum()) for count in wide]
