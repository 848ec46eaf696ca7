"""How far interventions move embeddings, and fine-tuning does: Tables 7 to 9 and Figures 1 to 4 of the
faithfulness paper.

interventune evaluate shift --checkpoint ot=A.ckpt ibt=B.ckpt --data coqa-dev.json --output DIR
torchrun --nproc_per_node 2 -m evaluation shift --checkpoint base=roberta-base ot=A.ckpt \
    --data os.jsonl ts_r.jsonl --layers all --output DIR

Shape letters: R resamples, C sums, N stories or tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from evaluation.answering.interface import Compute, named_sources
from evaluation.figures import COLOURS, LEAST_DISTANCE, Bars, Lines, new_figure
from evaluation.frame import Protocol
from evaluation.headlines import Said
from evaluation.report import Evaluation
from evaluation.statistics import Floats, Statistic, mean
from evaluation.variants import VariantOptions, read_stories
from evaluation.views import View
from storage.command_line import Named

if TYPE_CHECKING:
    from pandas import DataFrame

NOTE = (
    "Cosine similarity between the hidden states of the original story and of a variant, in the last layer: "
    "of the classification token (cls), and of the story's tokens that both have (common: over all of them; "
    "std: the standard deviation). `ts` ends the story after the rationale: little should move. `ts_r` and "
    "`os_r` delete the rationale: the paper reads a low cosine there as a sign that the model has noticed. "
    "Only the first window of a story is compared; results.csv also has the stories of one window alone "
    "(`single window`), and the mean over stories of their tokens' means (`macro`)."
)
BETWEEN_NOTE = (
    "Between checkpoints: the same original stories in the first checkpoint and in a later one, in the "
    "tokens of the later. Cosine: 1 where fine-tuning left an embedding alone; linear CKA: 1 where it left "
    "the arrangement of the inputs alone, up to rotation and scale (Kornblith et al. 2019). CKA is no mean "
    "over stories, and resamples, which repeat inputs, would raise it: it has no interval and no change. It "
    "rises towards 1 where there are not many more inputs than hidden units, so compare values of the same "
    "inputs only. Where all inputs have the same embedding, as CLS before the first layer, there is none."
)
LAYERS = frozenset(range(1000))
"""Layers by number; the last one is also called `last`."""


def mean_cosine(sums_RC: Floats) -> Floats:
    """Over all tokens, from how many there are and the sum of their distances."""
    _, tokens_R, distance_R = sums_RC.T
    return np.asarray(1 - distance_R / tokens_R)


def deviation(sums_RC: Floats) -> Floats:
    """The population standard deviation over all tokens; rounding below zero is zero."""
    _, tokens_R, distance_R, square_R = sums_RC.T
    return np.asarray(np.sqrt(np.maximum(square_R / tokens_R - (distance_R / tokens_R) ** 2, 0)))


BY_LAYER = Lines(
    x="layer",
    measures={"cosine": ""},
    panels="variant",
    distance=True,
    label="1 - cosine with the original",
    x_label="layer (0: embeddings)",
)
SHIFT = Protocol(
    title="Embedding shift",
    unit="id",
    units="stories",
    by=("reference", "variant", "stories", "embedding", "layer"),
    cells=[
        ("reference", "variant", "embedding", "layer"),
        ("reference", "variant", "stories", "embedding", "layer"),
    ],
    item=("id", "reference", "variant", "embedding", "layer"),
    measures={
        "cosine": Statistic("cosine", ("tokens", "distance"), mean_cosine),
        "std": Statistic("std", ("tokens", "distance", "square"), deviation),
        "macro": mean("cosine, mean over stories", "cosine"),
    },
    views=[
        View(
            "Cosine similarity with the original, last layer",
            ("variant", "embedding"),
            {"cosine": "cosine", "std": "std"},
            where={"layer": "last"},
        ),
        View(
            "Between checkpoints, by layer (0: embeddings)",
            ("embedding", "layer"),
            {"cosine": "cosine", "cka": "CKA"},
            where={"variant": ""},
        ),
    ],
    figures={
        "shift.png": Bars(
            x="variant",
            measures={"cosine": ""},
            panels="embedding",
            where={"layer": "last"},
            distance=True,
            label="1 - cosine with the original",
        ),
        "layers_cls.png": replace(BY_LAYER, where={"reference": "", "embedding": "cls", "layer": LAYERS}),
        "layers_common.png": replace(
            BY_LAYER, where={"reference": "", "embedding": "common", "layer": LAYERS}
        ),
        "between.png": replace(
            BY_LAYER,
            measures={"cosine": "1 - cosine", "cka": "1 - CKA"},
            panels="embedding",
            where={"variant": ""},
            label="between checkpoints",
        ),
    },
    headline=[Said("cosine", "cosine with the original", embedding="cls", layer="last")],
    good="low where the rationale is deleted (_r), near 1 where it is kept",
    failures="",
)


def evaluate(
    *,
    checkpoint: list[Named],
    variants: VariantOptions,
    layers: Literal["last", "all"] = "last",
    include_question: bool = False,
    compute: Compute,
) -> Evaluation:
    """Cosine similarity of embeddings between originals and variants, and cosine and CKA between the first
    checkpoint and later ones, by layer.

    Args:
        checkpoint: a .ckpt, a Hugging Face folder or a Hub name; several are set side by side, in this order.
        variants: which data in which variants.
        layers: compare originals and variants in the last layer, or in the embeddings and every layer, too.
        include_question: the question's tokens are common tokens, too.
        compute: how models run.
    """
    from evaluation.protocols.shift.measure import Measurement

    named, stories = named_sources(checkpoint, "--checkpoint"), read_stories(variants)
    notes = [NOTE, stories.rejection_note()]
    if len(named) > 1:
        notes.append(BETWEEN_NOTE)
    measurement = Measurement(
        list(named), stories, every_layer=layers == "all", include_question=include_question, notes=notes
    )
    histograms = {
        f"histogram_{variant}.png": partial(draw_histograms, distances, variant)
        for variant, distances in measurement.last_distances.items()
    }
    protocol = replace(
        SHIFT,
        title=f"Embedding shift on {stories.dataset or 'this data'}",
        notes=notes,
        figures={**SHIFT.figures, **histograms},
    )
    return protocol.run(measurement.rows, named, compute, need="states", more=measurement.add_cka)


def draw_histograms(
    distances: Mapping[str, tuple[Floats, Floats]], variant: str, _: DataFrame, path: Path
) -> None:
    """1 - cosine in the last layer on a log axis: an outline a checkpoint, and a dotted line at its mean.

    Args:
        distances: by checkpoint those of CLS and those of common tokens, (N,).
        variant: which is compared with the originals.
        path: of the picture.
    """
    figure = new_figure(8.5, 3.4)
    for which, axes in enumerate(figure.subplots(1, 2)):
        shown = {name: np.maximum(both[which], LEAST_DISTANCE) for name, both in distances.items()}
        every_N = np.concatenate(list(shown.values()))
        edges = np.geomspace(min(every_N, default=0.1), 1.1 * max(every_N, default=1), 41)
        for (name, distance_N), colour in zip(shown.items(), cycle(COLOURS), strict=False):
            if len(distance_N):
                percent_N = np.full(len(distance_N), 100 / len(distance_N))
                axes.hist(distance_N, edges, weights=percent_N, histtype="step", color=colour, label=name)
                axes.axvline(distance_N.mean(), color=colour, linestyle=":", linewidth=1)
        what = ("stories", "common tokens")[which]
        axes.set(xscale="log", xlabel=f"1 - cosine of {('CLS', what)[which]}", ylabel=f"% of {what}")
    figure.suptitle(f"{variant} and the original, last layer", x=0.01, ha="left")
    figure.axes[0].legend(frameon=False)
    figure.savefig(path, dpi=150)
