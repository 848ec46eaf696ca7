"""Cosines between originals and variants in one checkpoint, and between two checkpoints on the originals.

Of each story and layer its sums are kept, and for histograms the cosines of the last layer: no hidden states
beyond those of a batch.

Shape letters: B pairs of stories in a batch, P their common tokens, S those in CKA, L layers, T tokens, D
hidden.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from tqdm.auto import tqdm

from data_modules.batching.sets import PairBatch, PairSet
from data_modules.encoding.pairs import encode_pairs
from data_modules.encoding.tables import in_memory
from data_modules.schema import QAExample, Variant
from evaluation.answering.checkpoint import QuestionCheckpoint
from evaluation.processes import shared
from evaluation.results import Results
from evaluation.variants import Stories
from metrics.cka import LinearCKA
from metrics.shift import pair_cosines
from storage.errors import DataError

Floats = NDArray[np.float64]
OriginalPair = tuple[QAExample, QAExample]

CKA_TOKENS = 32
"""Context tokens of a story that enter CKA at most, evenly spread: its cost grows with the square of the
width for each of them."""


class Distances(NamedTuple):
    """How far apart the two stories of a pair are, by layer, as u = 1 - cosine.

    Cosines are close to 1: their squares would cancel in the variance, those of u do not.
    """

    pair: int
    cls_L: Floats
    token_sum_L: Floats
    """Over the common tokens, as the next."""
    token_square_L: Floats
    last_P: Floats
    """Of each common token in the last layer."""


class Measurement:
    """Measures one checkpoint after the other; the first stays open, since later ones are compared with it.

    Args:
        names: of the checkpoints, in the order in which they come.
        stories: originals and variants.
        every_layer: compare with variants in the embeddings and all layers, not in the last layer alone.
        include_question: tokens of the question are common tokens, too.
        notes: gets a sentence for each checkpoint that cannot be compared with the first.

    Raises:
        DataError: no variants, or rows of one without their originals.
    """

    def __init__(
        self,
        names: Sequence[str],
        stories: Stories,
        *,
        every_layer: bool,
        include_question: bool,
        notes: list[str],
    ) -> None:
        self.names, self.first = iter(names), names[0]
        self.every_layer, self.include_question, self.notes = every_layer, include_question, notes
        self.originals = [(one, replace(one, kept=((0, len(one.context)),))) for one in stories.originals]
        self.pairs: dict[Variant, list[OriginalPair]] = {
            variant: [(original, example) for original, example in pairs if original is not None]
            for variant, pairs in stories.pairs.items()
            if variant != "os"
        }
        if not self.pairs:
            raise DataError("--variants: name one beside os, which the others are compared with")
        for variant, pairs in self.pairs.items():
            if len(pairs) < len(stories.pairs[variant]):
                raise DataError(f"--data: rows of {variant} without their originals; name these, too")
        self.reference: QuestionCheckpoint | None = None
        self.last_distances: dict[Variant, dict[str, tuple[Floats, Floats]]] = {v: {} for v in self.pairs}
        """By variant and checkpoint those of CLS and of common tokens in the last layer."""
        self.cka: list[tuple[float, dict[str, Any]]] = []
        """Values with their cells."""

    def rows(self, model: QuestionCheckpoint) -> Iterator[dict[str, Any]]:
        """A row for each story, variant and embedding, and for each story and embedding as the first
        checkpoint and this one see it; what depends on the layer is a list."""
        name = next(self.names)
        every = range(model.model.config.num_hidden_layers + 1) if self.every_layer else ()
        special = frozenset(model.tokenizer.all_special_ids) if self.include_question else None
        for variant, pairs in self.pairs.items():
            data = pair_set(pairs, model, special)
            found = distances(model, data, model, [*every, -1], f"{name}: {variant}")
            cls_N, token_P = [one.cls_L[-1] for one in found], [one.last_P for one in found]
            self.last_distances[variant][name] = np.array(cls_N), np.concatenate(token_P)
            windows = data.table.data.column("windows").to_pylist()
            for one in found:
                single = "single window" if windows[one.pair] == 1 else ""
                place = {"variant": variant, "id": pairs[one.pair][0].id, "stories": single}
                yield from embedding_rows(one, [*every, "last"], **place)
        if self.reference is None:
            self.reference = model
        else:
            yield from self.between(self.reference, name, model)

    def between(
        self, reference: QuestionCheckpoint, name: str, model: QuestionCheckpoint
    ) -> Iterator[dict[str, Any]]:
        """Rows of the originals in the tokens of `model`, by layer as far as both checkpoints have them."""
        longest, row = reference.model.max_tokens, model.encoding.max_length
        problem = ""
        if reference.tokenizer.get_vocab() != model.tokenizer.get_vocab():
            problem = "has another vocabulary"
        elif longest is not None and longest < row:
            problem = f"has rows of up to {row} tokens, of which the other takes {longest}"
        if problem:
            self.notes.append(f"{name} is not compared with {self.first}: it {problem}.")
            return
        configs = reference.model.config, model.model.config
        layers = range(min(config.num_hidden_layers for config in configs) + 1)
        widths = [config.hidden_size for config in configs]
        cka = {
            embedding: LinearCKA(len(layers), *widths, sync_on_compute=False).to(model.device)
            for embedding in ("cls", "common")
        }
        data, what = pair_set(self.originals, model, None), f"{self.first} and {name}"
        for one in distances(model, data, reference, layers, what, cka):
            yield from embedding_rows(one, layers, reference=self.first, id=self.originals[one.pair][0].id)
        for embedding, metric in cka.items():
            metric.sync()  # over all processes
            cell = {"checkpoint": name, "reference": self.first, "embedding": embedding}
            self.cka += [(value, {**cell, "layer": i}) for i, value in enumerate(metric.compute().tolist())]

    def add_cka(self, results: Results) -> None:
        """Linear CKA between the first checkpoint and each later one."""
        for value, place in self.cka:
            results.add("cka", value, n=len(self.originals), **place)


def pair_set(
    pairs: Sequence[OriginalPair], model: QuestionCheckpoint, special: frozenset[int] | None
) -> PairSet:
    """Pairs in the tokens of a checkpoint."""
    encode = partial(encode_pairs, tokenizer=model.tokenizer, encoding=model.encoding, special=special)
    return PairSet(in_memory(pairs, encode), model.tokenizer, model.encoding, pairs[0][1].variant)


def distances(
    model: QuestionCheckpoint,
    data: PairSet,
    reference: QuestionCheckpoint,
    layers: Sequence[int],
    what: str,
    cka: Mapping[str, LinearCKA] | None = None,
) -> list[Distances]:
    """The distances of all pairs, in their order (`batch_distances`)."""
    found = batch_distances(model, data.batches(model.batch_size), data, reference, layers, what, cka)
    return sorted((one for batch in found for one in batch), key=lambda one: one.pair)


@shared
def batch_distances(
    model: QuestionCheckpoint,
    batches: Sequence[list[int]],
    data: PairSet,
    reference: QuestionCheckpoint,
    layers: Sequence[int],
    what: str,
    cka: Mapping[str, LinearCKA] | None,
) -> Iterator[list[Distances]]:
    """The distances of the pairs of each batch in some layers, none where hidden widths differ: `reference`
    reads the originals, `model` the variants. Where these are the originals, their states go into `cka`."""
    for index in tqdm(batches, what, unit="batch", disable=None):
        batch, found = data[index], list[Distances]()
        with torch.inference_mode():
            original_LBTD, variant_LBTD = (
                [states[layer] for layer in layers]
                for states in (reference.hidden_states(batch.original), model.hidden_states(batch.variant))
            )
            if cka is not None:
                add_states(cka, batch, original_LBTD, variant_LBTD)
            if original_LBTD[0].shape[-1] == variant_LBTD[0].shape[-1]:
                places = (place.to(model.device) for place in batch[2:7])
                cosines = pair_cosines(original_LBTD, variant_LBTD, *places)
                cls_BL, token_PL = ((1 - cos.double()).cpu().numpy() for cos in cosines)
                for b, pair in enumerate(index):
                    u_PL = token_PL[batch.row_P == b]
                    found.append(Distances(pair, cls_BL[b], u_PL.sum(0), (u_PL**2).sum(0), u_PL[:, -1]))
        yield found


def embedding_rows(one: Distances, layers: Sequence[int | str], **place: str) -> Iterator[dict[str, Any]]:
    """A row for CLS, and one for the common tokens where there are some."""
    common = "common", len(one.last_P), one.token_sum_L, one.token_square_L
    for embedding, tokens, sum_L, square_L in (("cls", 1, one.cls_L, one.cls_L**2), common):
        if tokens:
            row = {**place, "embedding": embedding, "layer": [*layers], "tokens": tokens}
            numbers = {"cosine": 1 - sum_L / tokens, "distance": sum_L, "square": square_L}
            yield row | {name: value_L.tolist() for name, value_L in numbers.items()}


def add_states(
    cka: Mapping[str, LinearCKA], batch: PairBatch, one_LBTD: Sequence[Tensor], other_LBTD: Sequence[Tensor]
) -> None:
    """Add what two checkpoints make of the same inputs: of CLS, and of some context tokens of each story."""
    rows_B, count_B = torch.arange(len(batch.pair_B)), batch.row_P.bincount(minlength=len(batch.pair_B))
    sample_S = spread(count_B.tolist(), CKA_TOKENS)
    sampled = batch.row_P[sample_S], batch.original_P[sample_S]
    for embedding, place in {"cls": (rows_B, batch.original_cls_B), "common": sampled}.items():
        sides = (torch.stack([h_BTD[place].float() for h_BTD in side]) for side in (one_LBTD, other_LBTD))
        cka[embedding].update(*sides)


def spread(counts: Sequence[int], most: int) -> Tensor:
    """At most `most` items of each of several groups that lie behind one another, evenly spread.

    >>> spread([2, 5], 3).tolist()
    [0, 1, 2, 4, 6]
    """
    starts = np.cumsum([0, *counts[:-1]])
    chosen = [
        start + np.linspace(0, count - 1, min(count, most)).round().astype(np.int64)
        for start, count in zip(starts, counts, strict=True)
    ]
    return torch.from_numpy(np.concatenate(chosen))
