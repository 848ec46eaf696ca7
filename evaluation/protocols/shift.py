"""How far interventions and fine-tuning move embeddings (faithfulness paper, Tables 7 to 9, Figures
1 to 4).

Shape letters: R sets of rows, C columns of sums, B pairs of stories in a batch, P their common
tokens, N tokens of one story, L layers, T tokens, D hidden.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from interventune.data_modules.schema.questions import Deletion, QAExample, Variant
from interventune.evaluation.answering.interface import Compute, open_answerer
from interventune.evaluation.answering.sources import Model, named_models
from interventune.evaluation.answering.work import shared
from interventune.evaluation.protocol import Evaluation, Protocol, Row, Statistic, declared
from interventune.evaluation.statistics import Floats
from interventune.evaluation.variants import Stories, VariantOptions, passage, read_stories
from interventune.storage.command_line import Named
from interventune.storage.documents import DataError
from interventune.storage.progress import progress

if TYPE_CHECKING:
    from torch import Tensor

    from interventune.data_modules.batching.pair_set import PairBatch
    from interventune.evaluation.answering.checkpoint import QuestionCheckpoint
    from interventune.metrics.cka import LinearCKA

Pair = tuple[QAExample, QAExample]
"""A story and its variant."""
CKA_TOKENS = 32
"""Maximum number of context tokens of a story in CKA, evenly spread: each costs the square of the
width.
"""


def deviation(sums_RC: Floats) -> Floats:
    """The population standard deviation over all tokens; negative rounding errors become 0."""
    _, tokens_R, distance_R, square_R = sums_RC.T
    return np.sqrt(np.maximum(square_R / tokens_R - (distance_R / tokens_R) ** 2, 0))


cosine = partial(Statistic, limits=(-1, 1), continuous=True)
positive = partial(Statistic, limits=(0, 1), continuous=True)
SHIFT = Protocol(
    measures={
        "cosine": cosine(  # the mean over all tokens
            "cosine", ("tokens", "distance"), lambda sums_RC: 1 - sums_RC[:, 2] / sums_RC[:, 1]
        ),
        "std": positive("std", ("tokens", "distance", "square"), deviation),
        "macro": cosine("cosine, mean over stories", ("cosine",)),
        "cka": positive("CKA", ("cka", "stories"), n=lambda sum_C: sum_C[2]),
    },
    **declared(__file__),
)


def evaluate(
    *,
    checkpoint: list[Named],
    variants: VariantOptions,
    layers: Literal["last", "all"] = "last",
    compute: Compute,
) -> Evaluation:
    """Measure how far embeddings move: from a story to its variants (cosine similarity), and from
    the first checkpoint to later ones (cosine similarity and CKA, by layer).

    Example: interventune evaluate shift --checkpoint ot=A.ckpt ibt=B.ckpt --data dev.json \\
        --output report

    Args:
        checkpoint: a .ckpt, a Hugging Face folder or a Hub name. Each is compared with the first.
        variants: data and variants.
        layers: where stories and variants are compared: in the last layer, or the embeddings and
            all layers.
        compute: model options.
    """
    models = named_models(checkpoint)
    stories = read_stories(variants)
    originals = originals_by_id(stories)
    pairs = pairs_of(stories, originals)
    current = models[0]
    starts: dict[str, QuestionCheckpoint] = {}
    """The last start by its path; it stays open, for comparisons with later models."""

    def opened(model: Model) -> Any:
        nonlocal current
        current = model
        return open_answerer(model.path, compute, need="states")

    def rows(model: QuestionCheckpoint) -> Iterator[Row]:
        every = range(model.model.config.num_hidden_layers + 1) if layers == "all" else ()
        for variant, both in pairs.items():
            by_pair = measured(model, both, model, [*every, -1], f"{current.name}: {variant}")
            for (_, example), own in zip(both, by_pair, strict=True):
                about = {"variant": variant, "id": example.id, "passage": passage(example)}
                about |= {"question": example.question, "story": example.context}
                reason = f"questions in {variant} (too long for the model, or equal for it)"
                left_out = {"left_out": reason}
                yield from ({**about, **row} for row in own or [left_out])
        start = start_of(current, models)
        same = start == current
        if start.path not in starts:
            starts.clear()  # before another one is opened
            other: Any = model if same else open_answerer(start.path, compute, need="states")
            starts[start.path] = other
        if not same:
            reference = start.name if start.step is None else f"step {start.step}"
            yield from since(reference, starts[start.path], model, [*originals.values()])

    title = f"Embedding shift on {variants.name}"
    note, between_note = SHIFT.notes if len(models) > 1 else (SHIFT.notes[0], "")
    protocol = replace(SHIFT, title=title, notes=[note, stories.rejected, between_note])
    return protocol.run(rows, models, compute, opened=opened)


def start_of(model: Model, models: Sequence[Model]) -> Model:
    """Return what a model is compared with: the first step of its run, or the first model; a model
    of the first name only with itself.
    """
    if model.step is None:
        return model if model.name == models[0].name else models[0]
    return next(other for other in models if (other.name, other.seed) == (model.name, model.seed))


def originals_by_id(stories: Stories) -> dict[str, QAExample]:
    """Return the originals as variants of themselves, which keep the whole story."""
    return {one.id: replace(one, kept=((0, len(one.context)),)) for one in stories.originals}


def pairs_of(stories: Stories, originals: Mapping[str, QAExample]) -> dict[Variant, list[Pair]]:
    """Return each original with its variant, by variant. DataError: no variants, or rows of one
    that are without their originals or not made from them.
    """
    pairs: dict[Variant, list[Pair]] = {}
    for variant, examples in stories.examples.items():
        if variant == "os":
            continue
        if any(example.id not in originals for example in examples):
            raise DataError(f"--data: rows of {variant} without their originals; name these, too")
        pairs[variant] = [(originals[example.id], example) for example in examples]
        for original, row in pairs[variant]:
            rest = "".join(original.context[start:end] for start, end in row.kept)
            # The tokens of others need not have a place in the original.
            if not row.context.startswith(rest) or (not rest and variant in get_args(Deletion)):
                raise DataError(f"{row.id}: this {variant} row is not made from its original")
    if not pairs:
        raise DataError(
            "--variants: add a variant other than os, which the others are compared with"
        )
    return pairs


def since(
    reference: str,
    first: QuestionCheckpoint,
    later: QuestionCheckpoint,
    originals: Sequence[QAExample],
) -> Iterator[Row]:
    """Compare two models on the same stories, by layer: yield rows as from `measured`, and linear
    CKA over all stories.
    """
    same_words = first.tokenizer.get_vocab() == later.tokenizer.get_vocab()
    if not same_words or later.encoding.max_length > (first.model.max_tokens or math.inf):
        reason = "longer rows" if same_words else "another vocabulary"
        text = f"of the comparisons with {reference} ({reason})"
        yield {"variant": "", "passage": "", "left_out": text}
        return
    layers = range(min(one.model.config.num_hidden_layers for one in (first, later)) + 1)
    rows, cka = between(first, later, originals, layers, f"comparing with {reference}")
    yield from ({**row, "reference": reference} for row in rows)
    stories = sum(map(later.fits, originals))
    for embedding, values in cka.items():
        place = {"reference": reference, "embedding": embedding, "passage": "all"}
        for layer, value in enumerate(values):
            yield {**place, "layer": layer, "cka": value, "stories": stories}


def between(
    first: QuestionCheckpoint,
    later: QuestionCheckpoint,
    originals: Sequence[QAExample],
    layers: Sequence[int],
    what: str,
) -> tuple[list[Row], dict[str, list[float]]]:
    """Compare two models on the same stories, in the tokens of the later one: rows as from
    `measured`, and linear CKA by embedding and layer.
    """
    from interventune.metrics.cka import LinearCKA

    width_x, width_y = (one.model.config.hidden_size for one in (first, later))
    cka = {
        which: LinearCKA(len(layers), width_x, width_y, device=later.device)
        for which in ("cls", "common")
    }
    by_pair = measured(later, [(one, one) for one in originals], first, layers, what, cka)
    values = {embedding: metric.compute().reshape(-1).tolist() for embedding, metric in cka.items()}
    return [*chain.from_iterable(by_pair)], values  # over all processes


@shared
def measured(
    model: QuestionCheckpoint,
    pairs: Sequence[Pair],
    reference: QuestionCheckpoint,
    layers: Sequence[int],
    what: str,
    cka: Mapping[str, LinearCKA] | None = None,
) -> list[list[Row]]:
    """Return for each pair, in the tokens of `model`, a row for CLS, and one for its common tokens
    if there are any; values by layer are lists, and -1 is called `last`.

    `reference` reads the originals, `model` the variants; there are no rows if their hidden widths
    differ, for a story that is longer than the model's context, or for equal tokens. If the
    variants are the originals, both models' states are added to `cka` for CLS and for common
    tokens.
    """
    import torch

    from interventune.data_modules.batching.pair_set import PairSet
    from interventune.metrics.shift import pair_cosines

    rows: list[list[Row]] = [[] for _ in pairs]
    readable = [i for i, pair in enumerate(pairs) if all(map(model.fits, pair))]
    if not readable:
        return rows
    originals = model.question_set([pairs[i][0] for i in readable])
    variants = model.question_set([pairs[i][1] for i in readable]) if cka is None else originals
    data = PairSet(originals, variants)
    labels = ["last" if layer == -1 else layer for layer in layers]
    for index in progress(data.batches(model.batch_size), what):
        batch = data[index]
        read = (reference, batch.original), (model, batch.variant)
        with torch.inference_mode():
            states = [one.hidden_states(half.inputs) for one, half in read]
            original_LBTD, variant_LBTD = ([every[layer] for layer in layers] for every in states)
            if cka is not None:
                add_states(cka, batch, [original_LBTD, variant_LBTD])
            if original_LBTD[0].shape[-1] != variant_LBTD[0].shape[-1]:
                continue
            cosines = pair_cosines(original_LBTD, variant_LBTD, batch)
        # In terms of u = 1 - cosine: squares of cosines close to 1 would cancel in the deviation.
        cls_BL, token_PL = ((1 - cosine.double()).cpu().numpy() for cosine in cosines)
        for b, at in enumerate(data.question_N[index]):
            original, _ = pairs[readable[at]]
            place = {"id": original.id, "passage": passage(original)}
            for embedding, u_NL in (("cls", cls_BL[[b]]), ("common", token_PL[batch.row_P == b])):
                if len(u_NL):
                    numbers = {
                        "cosine": (1 - u_NL.mean(0)).tolist(),
                        "distance": u_NL.sum(0).tolist(),
                        "square": (u_NL**2).sum(0).tolist(),
                    }
                    about = {"embedding": embedding, "layer": labels, "tokens": len(u_NL)}
                    rows[readable[at]].append({**place, **about, **numbers})
    return rows


def add_states(
    cka: Mapping[str, LinearCKA], batch: PairBatch, sides: Sequence[Sequence[Tensor]]
) -> None:
    """Add two checkpoints' states of the same inputs, by layer: of CLS, and of some context tokens
    of each story.
    """
    import torch

    rows_B = torch.arange(len(batch.original.cls_B))
    counts = batch.row_P.bincount(minlength=len(rows_B)).tolist()
    stories = torch.arange(len(batch.row_P)).split(counts)
    samples = [torch.linspace(0, n - 1, min(n, CKA_TOKENS)).round().long() for n in counts]
    sample_P = torch.cat([place_P[at] for place_P, at in zip(stories, samples, strict=True)])
    common = batch.row_P[sample_P], batch.original_P[sample_P]
    for embedding, place in {"cls": (rows_B, batch.original.cls_B), "common": common}.items():
        states_LND = (torch.stack([h_BTD[place].float() for h_BTD in side]) for side in sides)
        cka[embedding].update(*states_LND)
