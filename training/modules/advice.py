"""Linguistic ethical interventions: fine-tune so that a model does what the advice says.

Shape letters: B groups, V variants of a group (4), S subjects (2), E boundaries (start, end).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from torch import Tensor

from data_modules.batching.collate import TrainBatch
from data_modules.schema import ADVICE_CLASSES
from losses.group import GroupLoss
from models.backbones import Backbone
from training.modules.qa import QAModule
from training.modules.reference import Reference, reference_pass


class LEIModule(QAModule):
    """Group losses per class of advice, beside the loss of ordinary questions.

    Args:
        backbone: Encoder and starting weights; linked from the top-level `backbone`.
        loss: Form and weights of the group losses.
        irrelevant_target: What irrelevant advice anchors scores to: those of the starting model without
            advice (the paper), or with that same advice (the authors' code).
        qa_weight: Weight of the cross-entropy of ordinary questions.
        reference_cache: Folder in which the starting model's scores are kept.
        learning_rate: Peak of the linear schedule.
        weight_decay: Of weights; biases and normalisation weights are not decayed.
        options: Those of `QAModule`.
    """

    reference: Reference
    logged_terms: list[str]
    """Terms of the loss that the training groups have a class for; the others are 0 and mean nothing."""

    def __init__(
        self,
        *,
        backbone: Backbone,
        loss: GroupLoss,
        irrelevant_target: Literal["no_advice", "same_advice"] = "no_advice",
        qa_weight: float = 1.0,
        reference_cache: str = "cache/reference",
        learning_rate: float = 1e-5,
        weight_decay: float = 0.0,
        **options: Any,
    ) -> None:
        super().__init__(backbone=backbone, learning_rate=learning_rate, weight_decay=weight_decay, **options)
        self.loss = loss
        self.irrelevant_target = irrelevant_target
        self.qa_weight = qa_weight
        self.reference_cache = Path(reference_cache)

    def setup(self, stage: str) -> None:
        """Score the training groups once with the starting weights, before any of them changes.

        Lightning restores a checkpoint after this hook, so that a resumed run, too, measures the model that
        training started from (and finds its scores in the cache).
        """
        super().setup(stage)
        if stage != "fit":
            return
        groups = self.datamodule.train_set.groups
        if groups is None:
            raise ValueError("data.train_groups: the group losses need groups to train on")
        classes = {ADVICE_CLASSES[k] for k in set(groups.ids.advice_class_N.tolist())}
        self.logged_terms = [name for name in ("ethical", "adversarial", "irrelevant") if name in classes]
        if self.loss.mass_weight and "ethical" in classes:
            self.logged_terms.append("mass")
        self.reference = reference_pass(
            self,
            groups,
            target=self.irrelevant_target,
            rows_per_batch=self.datamodule.eval_batch_size,
            cache=self.reference_cache,
        )

    def training_step(self, batch: TrainBatch, batch_idx: int) -> Tensor:
        """The weighted sum of the group losses and of the questions' cross-entropy."""
        span = self.span_loss(batch.qa) if batch.qa is not None else None
        if span is not None:
            self.log("train/loss/span", span)
        assert batch.groups is not None
        groups = batch.groups
        self.reference = self.reference.to(self.device)
        terms = self.loss(
            self.group_log_probs(groups),
            groups.advice_class_B,
            pushed_BV=self.reference.pushed_NV[groups.group_B],
            reference_BVSE=self.reference.log_prob_NVSE[groups.group_B],
            span_loss=None if span is None else self.qa_weight * span,
        )
        for name in self.logged_terms:
            self.log(f"train/loss/{name}", getattr(terms, name))
        self.log("train/loss/total", terms.total, prog_bar=True)
        return terms.total
