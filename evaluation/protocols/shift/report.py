"""Tables and numbers of the shift protocol. Shape letters: L layers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torch import Tensor

from evaluation.old_report import Report
from evaluation.old_tables import Cell, Table
from evaluation.protocols.shift.batches import CKA_TOKENS
from evaluation.protocols.shift.checkpoints import ShiftResults
from evaluation.protocols.shift.figures import figures
from evaluation.protocols.shift.scores import MEASURES, Between, CheckpointShift, measured
from metrics.shift import ShiftResult

NOTE = (
    "Cosine similarity between the hidden states of the original story and of a variant, in the last "
    "layer: of the classification token (CLS), and of the story's tokens that both have (tokens; std over"
    " all of them, macro: mean over stories of their means). `ts` ends the story after the rationale: "
    "little should move. `ts_r` and `os_r` delete the rationale: the paper reads a low cosine there as a sign"
    " that the model has noticed. Variants may cover different stories, see N. Only the first window of a "
    "story is compared; `single_window` leaves out the stories that have more."
)

BETWEEN_NOTE = (
    "Between checkpoints: the same original stories in both, in the tokens and windows of the later one. "
    "Cosine: 1 where fine-tuning left an embedding alone; linear CKA: 1 where it left the arrangement of the "
    "inputs alone, up to rotation and scale (Kornblith et al. 2019). CKA of tokens takes at most "
    f"{CKA_TOKENS} evenly spread tokens of each story. CKA rises towards 1 where there are not many more "
    "inputs than hidden units, so compare values of the same inputs only. Where all inputs have the same "
    "embedding, as CLS has before the first layer, there is no CKA."
)


def shift_report(results: ShiftResults, about: Mapping[str, Any]) -> Report:
    """The report on all checkpoints."""
    checkpoints = results.checkpoints
    pairs = [checkpoint.between for checkpoint in checkpoints if checkpoint.between is not None]
    tables = [overview(checkpoints, "shift", "Cosine similarity with the original, last layer")]
    if has_several_windows(checkpoints):
        title = "The same without stories of more than one window"
        tables.append(overview(checkpoints, "single", title))
    shown = len(tables)
    if pairs:
        tables += between_tables(pairs)
        shown = len(tables)
    tables += layer_tables(checkpoints)
    return Report(
        title=f"Embedding shift on {results.dataset or 'this data'}",
        metrics=dict(metrics(checkpoints)) | {"stories": results.stories},
        tables=tuple(tables),
        about=about,
        notes=tuple(notes(results, pairs)),
        figures=figures(results.variants, checkpoints, pairs),
        examples=results.rows,
        console=shown,
    )


def notes(results: ShiftResults, pairs: Sequence[Between]) -> Iterator[str]:
    """Paragraphs under the title."""
    yield NOTE
    if pairs:
        yield BETWEEN_NOTE
    yield from results.notes
    if any(pair.shift is None for pair in pairs):
        yield "Checkpoints of different hidden widths have no cosine between them, only CKA."
    lost = [
        f"`{variant}` leaves out {reasons.total()} of {results.stories} stories "
        f"({', '.join(f'{count} {reason}' for reason, count in reasons.most_common())})."
        for variant, reasons in results.rejected.items()
        if reasons
    ]
    if lost:
        yield " ".join(lost)
    skipped = sum(int(result.skipped) for c in results.checkpoints for result in c.shift.values())
    if skipped:
        yield f"{skipped} stories or tokens are left out, since their embeddings are not finite numbers."


def has_several_windows(checkpoints: Sequence[CheckpointShift]) -> bool:
    """Whether some story has more than one window in some checkpoint's tokens."""
    return any(
        int(c.single[variant].n) != int(result.n) for c in checkpoints for variant, result in c.shift.items()
    )


def overview(checkpoints: Sequence[CheckpointShift], which: str, title: str) -> Table:
    """The last layer: a row for each checkpoint and variant."""
    rows: list[tuple[Cell, ...]] = []
    for checkpoint in checkpoints:
        for variant, result in getattr(checkpoint, which).items():
            values = [float(value) for value in of_layer(result, -1).values()]
            rows.append((checkpoint.name, variant, *values, int(result.n), int(result.pairs)))
    numbers = ("CLS", "CLS std", "tokens", "tokens std", "macro", "stories", "token pairs")
    return Table(title, ("checkpoint", "variant", *numbers), tuple(rows))


def of_layer(result: ShiftResult, layer: int) -> dict[str, float]:
    """The numbers of one layer, by the end of their metric keys."""
    return {
        "cls/mean": float(result.cls_mean_L[layer]),
        "cls/std": float(result.cls_std_L[layer]),
        "tokens/mean": float(result.token_mean_L[layer]),
        "tokens/std": float(result.token_std_L[layer]),
        "tokens/macro": float(result.token_macro_L[layer]),
    }


def layer_tables(checkpoints: Sequence[CheckpointShift]) -> Iterator[Table]:
    """Where every layer was measured: for each variant the mean cosines, layers by checkpoints."""
    for variant in checkpoints[0].shift:
        found = {c.name: c.shift[variant] for c in checkpoints}
        depth = max(len(result.cls_mean_L) for result in found.values())
        if depth == 1:
            continue
        for name, title in (("cls_mean_L", "CLS"), ("token_mean_L", "tokens")):
            values = {checkpoint: getattr(result, name) for checkpoint, result in found.items()}
            yield by_layer(f"Cosine similarity by layer: {variant}, {title}", values, depth)


def between_tables(pairs: Sequence[Between]) -> list[Table]:
    """Layers by measures for one pair; for several, layers by pairs, a table for each measure."""
    depth = max(len(pair.cls_cka_L) for pair in pairs)
    if len(pairs) == 1:
        named = {title: measured(pairs[0], *key) for key, title in MEASURES.items()}
        title = f"Between {pairs[0].first} and {pairs[0].second}, by layer"
        return [by_layer(title, {name: v for name, v in named.items() if v is not None}, depth)]
    tables = []
    for key, title in MEASURES.items():
        found = {f"{pair.first} – {pair.second}": measured(pair, *key) for pair in pairs}
        values = {name: value for name, value in found.items() if value is not None}
        if values:
            tables.append(by_layer(f"Between checkpoints, by layer: {title}", values, depth))
    return tables


def by_layer(title: str, columns: Mapping[str, Tensor], depth: int) -> Table:
    """Columns of layers, the last at the top; a dash where a model has no such layer."""
    rows: tuple[tuple[Cell, ...], ...] = tuple(
        (
            layer_name(layer),
            *(float(v[layer]) if layer < len(v) else float("nan") for v in columns.values()),
        )
        for layer in reversed(range(depth))
    )
    return Table(title, ("layer", *columns), rows)


def layer_name(layer: int) -> str:
    """Layer 0 is what the embeddings give."""
    return "embeddings" if layer == 0 else str(layer)


def metrics(checkpoints: Sequence[CheckpointShift]) -> Iterator[tuple[str, float | int]]:
    """Flat keys: `[CHECKPOINT/]shift/cls/ts/mean` of the last layer, `.../layer_03/mean` of the others,
    `[CHECKPOINT/]shift/single_window/...`, and `between/A_B/cls/layer_03/cosine`."""
    for checkpoint in checkpoints:
        prefix = f"{checkpoint.name}/shift" if len(checkpoints) > 1 else "shift"
        for family, found in ((prefix, checkpoint.shift), (f"{prefix}/single_window", checkpoint.single)):
            for variant, result in found.items():
                yield from shift_metrics(family, variant, result)
    for checkpoint in checkpoints:
        if (pair := checkpoint.between) is not None:
            for where, what in MEASURES:
                values = measured(pair, where, what)
                for layer, value in enumerate(values if values is not None else ()):
                    yield f"between/{pair.first}_{pair.second}/{where}/layer_{layer:02d}/{what}", float(value)


def shift_metrics(family: str, variant: str, result: ShiftResult) -> Iterator[tuple[str, float | int]]:
    """The numbers of one checkpoint under one variant."""
    layers = len(result.cls_mean_L)
    for layer in range(layers):
        at = "" if layer == layers - 1 else f"layer_{layer:02d}/"
        for name, value in of_layer(result, layer).items():
            where, _, what = name.partition("/")
            yield f"{family}/{where}/{variant}/{at}{what}", value
    yield f"{family}/cls/{variant}/n", int(result.n)
    yield f"{family}/tokens/{variant}/n", int(result.paired)
    yield f"{family}/tokens/{variant}/pairs", int(result.pairs)
    yield f"{family}/{variant}/skipped", int(result.skipped)
