"""What a pass over the data sums up: the shift of one checkpoint, and how it compares with another.

Shape letters: B stories, R those with a variant, P common tokens, C context tokens, S those of them in CKA,
T tokens, D hidden, L layers.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from data_modules.schema import QAExample, Variant
from evaluation.answering.predictor import Predictor
from evaluation.protocols.shift.batches import StoryBatch, StoryBatcher, VariantHalf
from metrics.cka import LinearCKA
from metrics.shift import EmbeddingShift, ShiftResult, cosine, pair_cosines

BINS = 2000
"""Bins over [-1, 1]: cosines crowd near 1, and the figures join bins as their range allows."""


Place = tuple[int, int]
"""Where a row stands among those of a checkpoint: the story's number and the variant's."""


class Between(NamedTuple):
    """The same inputs in two checkpoints, layer by layer as far as both have them."""

    first: str
    second: str
    shift: ShiftResult | None
    """Cosines; None where the hidden widths differ."""
    cls_cka_L: Tensor
    token_cka_L: Tensor


class CheckpointShift(NamedTuple):
    """All about one checkpoint."""

    name: str
    shift: dict[Variant, ShiftResult]
    single: dict[Variant, ShiftResult]
    """Of the stories that fit into one window."""
    between: Between | None


MEASURES = {
    ("cls", "cosine"): "CLS cosine",
    ("tokens", "cosine"): "token cosine",
    ("cls", "cka"): "CLS CKA",
    ("tokens", "cka"): "token CKA",
}
"""What is measured between checkpoints: where and what, as in the keys of report.json, to its title."""


def measured(pair: Between, where: str, what: str) -> Tensor | None:
    """One of MEASURES, by layer; None for cosines of different widths."""
    if what == "cka":
        return pair.cls_cka_L if where == "cls" else pair.token_cka_L
    if pair.shift is None:
        return None
    return pair.shift.cls_mean_L if where == "cls" else pair.shift.token_mean_L


class BetweenSums:
    """Cosine and linear CKA between a reference and another checkpoint, on the same inputs.

    Args:
        names: of the two.
        reference: the one; its hidden states are made here.
        other: the other, whose tokens and encoding the inputs are in.
    """

    def __init__(self, names: tuple[str, str], reference: Predictor, other: Predictor) -> None:
        self.names, self.reference = names, reference
        configs = reference.model.config, other.model.config
        self.layers = min(config.num_hidden_layers for config in configs) + 1
        widths = configs[0].hidden_size, configs[1].hidden_size
        same = widths[0] == widths[1]
        self.shift = EmbeddingShift(self.layers, BINS).to(other.device) if same else None
        self.cls_cka, self.token_cka = (LinearCKA(self.layers, *widths).to(other.device) for _ in range(2))

    def update(self, batch: StoryBatch, other_LBTD: Sequence[Tensor]) -> None:
        """Add a batch; `other_LBTD` is what the other checkpoint makes of it."""
        device = other_LBTD[0].device
        reference_LBTD = self.reference.hidden_states(batch.inputs)[: self.layers]
        other_LBTD = other_LBTD[: self.layers]
        row_B, cls_B = torch.arange(len(batch.cls_B), device=device), batch.cls_B.to(device)
        row_C, at_C = batch.row_C.to(device), batch.at_C.to(device)
        sample_S = batch.sample_S.to(device)
        sides = (reference_LBTD, other_LBTD)
        a_LBD, b_LBD = (torch.stack([h[row_B, cls_B].float() for h in side]) for side in sides)
        row_S, at_S = row_C[sample_S], at_C[sample_S]
        self.cls_cka.update(a_LBD, b_LBD)
        self.token_cka.update(*(torch.stack([h[row_S, at_S].float() for h in side]) for side in sides))
        if self.shift is not None:
            pairs = zip(*sides, strict=True)
            token_cos_CL = torch.stack([cosine(a[row_C, at_C], b[row_C, at_C]) for a, b in pairs], -1)
            self.shift.update(cosine(a_LBD, b_LBD).T, token_cos_CL, row_C, len(cls_B))

    def result(self) -> Between:
        """Over all processes."""
        shift = computed(self.shift) if self.shift is not None else None
        return Between(*self.names, shift, computed(self.cls_cka), computed(self.token_cka))


class CheckpointSums:
    """The shift of one checkpoint under every variant, and how it compares with a reference.

    Args:
        name: of the checkpoint.
        predictor: the checkpoint.
        variants: that the data is looked at in.
        layers: the last so many are compared.
        between: sums of a comparison with another checkpoint.
    """

    def __init__(
        self,
        name: str,
        predictor: Predictor,
        variants: Sequence[Variant],
        *,
        layers: int,
        between: BetweenSums | None = None,
    ) -> None:
        self.name, self.predictor, self.layers, self.between = name, predictor, layers, between
        self.shift, self.single = (
            {variant: EmbeddingShift(layers, BINS).to(predictor.device) for variant in variants}
            for _ in range(2)
        )

    @torch.inference_mode()
    def update(self, batch: StoryBatch) -> list[tuple[Place, dict[str, Any]]]:
        """Add a batch; one row for each of its stories and variants, with its place among all rows.

        The device is waited for once.
        """
        hidden_LBTD = self.predictor.hidden_states(batch.inputs)
        if self.between is not None:
            self.between.update(batch, hidden_LBTD)
        if not batch.halves:
            return []
        told = [self._variant(v, half, batch, hidden_LBTD) for v, half in batch.halves.items()]
        values = iter(torch.cat(told).tolist())
        rows = []
        order = list(self.shift)
        for variant, half in batch.halves.items():
            pairs_R = torch.bincount(half.half_P, minlength=len(half.row_R)).tolist()
            for b, pairs in zip(half.row_R.tolist(), pairs_R, strict=True):
                cls_cos, token_cos = next(values)
                story = batch.stories[b]
                row: dict[str, Any] = {"checkpoint": self.name, "variant": variant, "id": story.original.id}
                row |= {"windows": batch.windows[b], "cls": cls_cos}
                row |= {"tokens": token_cos if pairs else None, "pairs": pairs}
                rows.append(((story.number, order.index(variant)), row))
        return rows

    def _variant(
        self, variant: Variant, half: VariantHalf, batch: StoryBatch, hidden_LBTD: Sequence[Tensor]
    ) -> Tensor:
        """Add one variant; cosines of its stories in the last layer, of CLS and of the mean token: (R, 2)."""
        device, count = hidden_LBTD[0].device, len(half.row_R)
        row_R, half_P = half.row_R.to(device), half.half_P.to(device)
        original_LRTD = hidden_LBTD[-self.layers :]
        if count < len(batch.stories):
            original_LRTD = [h[row_R] for h in original_LRTD]
        variant_LRTD = self.predictor.hidden_states(half.inputs)[-self.layers :]
        cls_cos_RL, token_cos_PL = pair_cosines(
            original_LRTD,
            variant_LRTD,
            batch.cls_B.to(device)[row_R],
            half.cls_R.to(device),
            half.original_P.to(device),
            half.variant_P.to(device),
            half_P,
        )
        self.shift[variant].update(cls_cos_RL, token_cos_PL, half_P, count)
        kept_R, kept_P, renamed_P = single_windows(
            [batch.windows[b] for b in half.row_R.tolist()], half.half_P
        )
        self.single[variant].update(
            cls_cos_RL[kept_R.to(device)], token_cos_PL[kept_P.to(device)], renamed_P.to(device), len(kept_R)
        )
        pairs_R = torch.bincount(half.half_P, minlength=count).clamp(min=1).to(device)
        sum_R = torch.zeros(count, device=device).index_add_(0, half_P, token_cos_PL[:, -1])
        return torch.stack((cls_cos_RL[:, -1], sum_R / pairs_R), -1)

    def result(self) -> CheckpointShift:
        """Over all processes: every one has to call it."""
        return CheckpointShift(
            self.name,
            {variant: computed(metric) for variant, metric in self.shift.items()},
            {variant: computed(metric) for variant, metric in self.single.items()},
            self.between.result() if self.between is not None else None,
        )


def single_windows(windows: Sequence[int], half_P: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Which of R stories have one window, which tokens are theirs, and whose those are among the kept.

    >>> [found.tolist() for found in single_windows([2, 1, 1], torch.tensor([0, 1, 2, 2]))]
    [[1, 2], [1, 2, 3], [0, 1, 1]]
    """
    single_R = torch.tensor(windows) == 1
    kept_P = single_R[half_P].nonzero().flatten()
    return single_R.nonzero().flatten(), kept_P, (single_R.cumsum(0) - 1)[half_P[kept_P]]


def computed(metric: Any) -> Any:
    """`metric.compute()` on the host.

    A process that had no batch takes part in the sum all the same: torchmetrics need not warn of it. It also
    makes scalars of values by layer where there is one layer, which is undone here.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The ``compute`` method")
        result = metric.compute()
    if isinstance(result, Tensor):
        return torch.atleast_1d(result.cpu())
    values = (value.cpu() for value in result)
    named = zip(result._fields, values, strict=True)
    return type(result)(*(torch.atleast_1d(value) if name.endswith("_L") else value for name, value in named))


def incomparable(reference: Predictor, other: Predictor, examples: Sequence[QAExample]) -> str:
    """Why two checkpoints cannot be given the same tokens; empty if they can.

    The other's tokens and encoding are used, so a reference that was not fine-tuned (and has no encoding of
    its own) compares with any of its descendants.
    """
    if reference.tokenizer.get_vocab() != other.tokenizer.get_vocab():
        return "their tokenizers have different vocabularies"
    longest, rows = reference.model.max_tokens, other.encoding.max_length
    if longest is not None and longest < rows:
        return f"the one takes {longest} tokens at most, the other's rows have up to {rows}"
    tokenised = [
        StoryBatcher(predictor.tokenizer, other.encoding, batch_size=1).encode(examples)
        for predictor in (reference, other)
    ]
    for (one, _), (another, _) in zip(*tokenised, strict=True):
        if one.input_ids_T.tolist() != another.input_ids_T.tolist():
            return "their tokenizers cut the same text differently"
    return ""
