"""What a pass over the stories sums up: the shift of one checkpoint, and how it compares with another.

Shape letters: B stories, R those with a variant, P common tokens, C context tokens, S those of them in CKA,
T tokens, D hidden, L layers, U blocks of stories.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from data_modules.encoding.tokenizers import tokenizer_id
from data_modules.schema import QAExample, Variant
from evaluation.answering.checkpoint import QuestionCheckpoint
from evaluation.protocols.shift.batches import StoryBatch, StoryBatcher, VariantHalf
from metrics.cka import LinearCKA
from metrics.shift import EmbeddingShift, cosine, pair_cosines

BINS = 2000
"""Bins over [-1, 1]: cosines crowd near 1, and the figures join bins as their range allows."""

BLOCKS = 500
"""Blocks of stories that intervals are bootstrapped over: a story counts for the block of its number modulo
this, so that with fewer stories each is a block."""

Place = tuple[int, int]
"""Where a row stands among those of a checkpoint: the numbers of the story and the variant."""

Which = Literal["all", "single window"]
"""Of the stories: all, or those that fit into one window."""

WHICH: tuple[Which, ...] = get_args(Which)


class Between:
    """Cosine and linear CKA between a reference and another checkpoint, on the same originals, layer by layer
    as far as both have them.

    Args:
        name: of the reference.
        reference: the one.
        other: the other, whose tokens and encoding the inputs are in.
    """

    def __init__(self, name: str, reference: QuestionCheckpoint, other: QuestionCheckpoint) -> None:
        self.name = name
        configs = reference.model.config, other.model.config
        self.layers = min(config.num_hidden_layers for config in configs) + 1
        widths = configs[0].hidden_size, configs[1].hidden_size
        same = widths[0] == widths[1]
        self.shift = EmbeddingShift(self.layers, BINS, BLOCKS).to(other.device) if same else None
        """Cosines; None where the hidden widths differ."""
        self.cls_cka, self.token_cka = (
            LinearCKA(self.layers, *widths, sync_on_compute=False).to(other.device) for _ in range(2)
        )

        self.stories = 0
        """How many were compared; known when they are added up."""

    def update(
        self, batch: StoryBatch, reference_LBTD: Sequence[Tensor], other_LBTD: Sequence[Tensor]
    ) -> None:
        """Add what both checkpoints make of a batch."""
        device = other_LBTD[0].device
        row_B, cls_B = torch.arange(len(batch.cls_B), device=device), batch.cls_B.to(device)
        row_C, at_C = batch.row_C.to(device), batch.at_C.to(device)
        sample_S = batch.sample_S.to(device)
        sides = (reference_LBTD[: self.layers], other_LBTD[: self.layers])
        a_LBD, b_LBD = (torch.stack([h[row_B, cls_B].float() for h in side]) for side in sides)
        row_S, at_S = row_C[sample_S], at_C[sample_S]
        self.cls_cka.update(a_LBD, b_LBD)
        self.token_cka.update(*(torch.stack([h[row_S, at_S].float() for h in side]) for side in sides))
        if self.shift is not None:
            pairs = zip(*sides, strict=True)
            token_cos_CL = torch.stack([cosine(a[row_C, at_C], b[row_C, at_C]) for a, b in pairs], -1)
            block_B = blocks_of(batch).to(device)
            self.shift.update(cosine(a_LBD, b_LBD).T, token_cos_CL, row_C, len(cls_B), block_B)

    def metrics(self) -> list[Any]:
        """All that is summed."""
        return [metric for metric in (self.shift, self.cls_cka, self.token_cka) if metric is not None]


class CheckpointShift:
    """The shift of one checkpoint under every variant, and how it compares with a reference.

    Args:
        name: of the checkpoint.
        model: the checkpoint.
        variants: that the data is looked at in.
        every_layer: the embeddings and every layer, not the last alone.
    """

    def __init__(
        self, name: str, model: QuestionCheckpoint, variants: Sequence[Variant], *, every_layer: bool
    ) -> None:
        self.name, self.variants = name, list(variants)
        depth = model.model.config.num_hidden_layers
        self.layers = range(0 if every_layer else depth, depth + 1)
        self.shift: dict[tuple[Variant, Which], EmbeddingShift] = {
            (variant, which): EmbeddingShift(len(self.layers), BINS, BLOCKS).to(model.device)
            for which in WHICH
            for variant in variants
        }
        self.between: Between | None = None

    @torch.inference_mode()
    def update(
        self, batch: StoryBatch, model: QuestionCheckpoint, reference: QuestionCheckpoint | None
    ) -> list[tuple[Place, dict[str, Any]]]:
        """Add a batch; one row for each of its stories and variants. The device is waited for once."""
        hidden_LBTD = model.hidden_states(batch.inputs)
        if self.between is not None and reference is not None:
            self.between.update(batch, reference.hidden_states(batch.inputs), hidden_LBTD)
        if not batch.halves:
            return []
        layers = len(self.layers)
        cosines = [
            self._variant(v, half, batch, hidden_LBTD[-layers:], model.hidden_states(half.inputs)[-layers:])
            for v, half in batch.halves.items()
        ]
        values = iter(torch.cat(cosines).tolist())
        rows = []
        for variant, half in batch.halves.items():
            pairs_R = torch.bincount(half.half_P, minlength=len(half.row_R)).tolist()
            for b, pairs in zip(half.row_R.tolist(), pairs_R, strict=True):
                cls_cos, token_cos = next(values)
                story = batch.stories[b]
                row: dict[str, Any] = {"checkpoint": self.name, "variant": variant, "id": story.original.id}
                row |= {"windows": batch.windows[b], "cls": cls_cos}
                row |= {"tokens": token_cos if pairs else None, "pairs": pairs}
                rows.append(((story.number, self.variants.index(variant)), row))
        return rows

    def _variant(
        self,
        variant: Variant,
        half: VariantHalf,
        batch: StoryBatch,
        original_LBTD: Sequence[Tensor],
        variant_LRTD: Sequence[Tensor],
    ) -> Tensor:
        """Add one variant; cosines of its stories in the last layer, of CLS and of the mean token: (R, 2)."""
        device, count = variant_LRTD[0].device, len(half.row_R)
        row_R, half_P = half.row_R.to(device), half.half_P.to(device)
        whole = count == len(batch.stories)
        original_LRTD = original_LBTD if whole else [h[row_R] for h in original_LBTD]
        cls_cos_RL, token_cos_PL = pair_cosines(
            original_LRTD,
            variant_LRTD,
            batch.cls_B.to(device)[row_R],
            half.cls_R.to(device),
            half.original_P.to(device),
            half.variant_P.to(device),
            half_P,
        )
        block_R = blocks_of(batch)[half.row_R].to(device)
        self.shift[variant, "all"].update(cls_cos_RL, token_cos_PL, half_P, count, block_R)
        kept_R, kept_P, renamed_P = (
            index.to(device)
            for index in single_windows([batch.windows[b] for b in half.row_R.tolist()], half.half_P)
        )
        self.shift[variant, "single window"].update(
            cls_cos_RL[kept_R], token_cos_PL[kept_P], renamed_P, len(kept_R), block_R[kept_R]
        )
        pairs_R = torch.bincount(half.half_P, minlength=count).clamp(min=1).to(device)
        sum_R = torch.zeros(count, device=device).index_add_(0, half_P, token_cos_PL[:, -1])
        return torch.stack((cls_cos_RL[:, -1], sum_R / pairs_R), -1)

    def add_up(self) -> None:
        """Over all processes, each of which has to call it; the sums then lie on the CPU."""
        for metric in [*self.shift.values(), *(self.between.metrics() if self.between else [])]:
            metric.sync()
            metric.to("cpu")
        if self.between is not None:
            self.between.stories = int(self.between.cls_cka.count)

    @property
    def several_windows(self) -> bool:
        """Whether some story has more than one window in this checkpoint's tokens."""
        counts = {
            which: sum(int(self.shift[v, which].sums.n_U.sum()) for v in self.variants) for which in WHICH
        }
        return counts["all"] != counts["single window"]


def blocks_of(batch: StoryBatch) -> Tensor:
    """The block of every story, (B,)."""
    return torch.tensor([story.number % BLOCKS for story in batch.stories])


def single_windows(windows: Sequence[int], half_P: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Which of R stories have one window, which tokens are theirs, and whose those are among the kept.

    >>> [found.tolist() for found in single_windows([2, 1, 1], torch.tensor([0, 1, 2, 2]))]
    [[1, 2], [1, 2, 3], [0, 1, 1]]
    """
    single_R = torch.tensor(windows) == 1
    kept_P = single_R[half_P].nonzero().flatten()
    return single_R.nonzero().flatten(), kept_P, (single_R.cumsum(0) - 1)[half_P[kept_P]]


def incomparable(
    reference: QuestionCheckpoint, other: QuestionCheckpoint, examples: Sequence[QAExample]
) -> str:
    """Why two checkpoints cannot be given the same tokens; empty if they can.

    The other's tokens and encoding are used, so a reference that was not fine-tuned (and has no encoding of
    its own) compares with any of its descendants.
    """
    if reference.tokenizer.get_vocab() != other.tokenizer.get_vocab():
        return "their tokenizers have different vocabularies"
    longest, rows = reference.model.max_tokens, other.encoding.max_length
    if longest is not None and longest < rows:
        return f"the one takes {longest} tokens at most, the other's rows have up to {rows}"
    if tokenizer_id(reference.tokenizer) == tokenizer_id(other.tokenizer):
        return ""
    tokenised = [
        StoryBatcher(model.tokenizer, other.encoding, batch_size=1).encode(examples)
        for model in (reference, other)
    ]
    for (one, _), (another, _) in zip(*tokenised, strict=True):
        if one.input_ids_T.tolist() != another.input_ids_T.tolist():
            return "their tokenizers cut the same text differently"
    return ""
