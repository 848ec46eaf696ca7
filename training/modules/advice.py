"""Modules that train on groups: linguistic ethical interventions, which teach a model to follow
advice, and a control with a known answer, which plants a preference among subjects, so that there
is a bias to change.

The starting model's scores of the training groups (for anchoring and dominance) are computed once,
by one process per node, and stored on disk under a fingerprint of all inputs: a changed model, text
or option is scored again, and an interrupted pass stores nothing.

Shape letters: B and N groups (of a batch, of the set; of the planted log-probabilities all variants
of a batch), V variants of a group (4), S subjects (2), E boundaries (start, end).
"""

import logging
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from filelock import FileLock
from jsonargparse.typing import NonNegativeFloat
from pytorch_lightning.utilities import rank_zero_info
from torch import Tensor

from interventune.data_modules.batching.candidates import GroupSet
from interventune.data_modules.batching.data_module import TrainBatch
from interventune.data_modules.encoding.tokenizers import load_tokenizer, tokenizer_files
from interventune.data_modules.schema.groups import ADVICE_CLASSES, Group, latent_strength
from interventune.losses.answers import Losses
from interventune.losses.group import ADVERSARIAL, TERMS, GroupLoss, planted_cross_entropy
from interventune.metrics.bias import group_scores
from interventune.models.backbones import RANDOM, Backbone
from interventune.models.checkpoint import fingerprint
from interventune.models.heads.span import QAModel
from interventune.models.loading import load, read_info
from interventune.storage.documents import read_archive
from interventune.storage.finished_work import work_key
from interventune.training.callbacks.last_checkpoint import AtomicCheckpointIO

from .qa import QAModule

log = logging.getLogger(__name__)

Scope = Literal["category", "subject"]
"""Whether a subject's strength differs between categories, or is the same in all."""


class Reference(NamedTuple):
    """The reference model's scores of the training groups, in their order."""

    log_prob_NVSE: Tensor
    """Boundary log-probabilities, float32; for a decoder log S, and E is 1."""
    pushed_NV: Tensor
    """The subject (0 or 1) that the adversarial loss raises in each variant."""


class LEIModule(QAModule):
    """Linguistic ethical interventions: a loss for each class of advice, and the loss of ordinary
    questions.

    Args:
        backbone: Architecture and starting weights; set by the top-level `backbone`.
        loss: Form and weights of the group losses.
        reference: The model whose scores irrelevant advice must not change, and whose preference
            decides which subject is dominant, the one that adversarial advice pushes: the one that
            it prefers without advice, on average over all groups of the training sources. `start`,
            the model that training starts from, or a checkpoint with the same architecture and
            tokenizer, so that a second stage can keep the scores from before the first.
        reference_cache: Folder for the reference's scores.
        learning_rate: Highest learning rate; it then falls linearly to 0.
        weight_decay: AdamW's weight decay; biases and normalisation weights are not decayed.
        options: as for QAModule.
    """

    reference: Reference
    joined_terms: list[str]
    """Terms of the loss for which there are training groups; the others are 0 and carry no
    information.
    """

    def __init__(
        self,
        *,
        backbone: Backbone,
        loss: GroupLoss,
        reference: str = "start",
        reference_cache: str = "cache/reference",
        learning_rate: NonNegativeFloat = 1e-5,
        weight_decay: NonNegativeFloat = 0.0,
        **options: Any,
    ) -> None:
        super().__init__(
            backbone=backbone, learning_rate=learning_rate, weight_decay=weight_decay, **options
        )
        if backbone.causal and loss.form == "probability":
            raise ValueError(
                "model.loss.form=probability is of start and end: for a decoder score or log"
            )
        self.loss = loss
        self.weights = loss.weights
        means = loss.form != "probability"
        self.mean_over |= {
            name: [ADVICE_CLASSES[code] for code in codes if means] for name, codes in TERMS.items()
        }
        self.reference_path = "" if reference == "start" else reference
        path = self.reference_path or backbone.checkpoint
        self.reads = [path]
        encoding = {} if path == RANDOM else read_info(path).encoding
        self.reference_order = encoding.get("order", "auto")  # as in its training
        self.reference_cache = Path(reference_cache)

    def setup(self, stage: str) -> None:
        """Score the training groups once with the reference. Lightning restores a checkpoint only
        after this hook, so a resumed run also scores the model that training started from.
        """
        super().setup(stage)
        if stage != "fit":
            return
        groups = self.training_groups
        codes = set(groups.advice_class_N.tolist())
        self.joined_terms = self.loss.joined(codes)
        self.reference = self.reference_of(groups, pushes=ADVERSARIAL in codes)

    def reference_of(self, groups: GroupSet, *, pushes: bool) -> Reference:
        """Return reference scores of the training groups and, if a loss raises them, their dominant
        subjects: by the sign of the mean pair score over templates, per pair and attribute, without
        advice (LEI's paper).
        """
        data = self.datamodule
        encoding = replace(self.encoding, order=self.reference_order).resolved(data.architecture)
        bare: GroupSet = data.without_advice(encoding, everything=pushes)
        log_prob_MVSE = self.reference_scores(bare)
        row = {group.unadvised_key: i for i, group in enumerate(bare.groups)}
        keys = [group.unadvised_key for group in groups.groups]
        anchors = log_prob_MVSE[[row[key] for key in keys]].float()
        c_M = group_scores.score_groups(log_prob_MVSE.double().mean(-1).exp()).c_N
        # Both sets have the same subjects and attributes, and therefore the same ids for them.
        ids = [x for part in (bare, groups) for x in (part.subject_NS, part.attribute_N)]
        preferred_N = group_scores.preference(c_M, *map(torch.from_numpy, ids))
        if pushes:
            rank_zero_info(
                f"dominant subjects: by {len(bare)} groups without advice ({len({*keys})} are "
                "trained on)"
            )
            if ties := int((preferred_N == 0).sum()):
                log.warning(
                    "%d groups have subjects with equal scores: the first counts as dominant", ties
                )
        return Reference(anchors, group_scores.pushed_subject((preferred_N < 0).long()))

    def reference_scores(self, bare: GroupSet) -> Tensor:
        """Return the reference's scores (M, V, S, E) of groups without advice, in the reference's
        encoding; from the cache, if they are there.
        """
        model = self.reference_model()
        key = work_key(
            weights=fingerprint(model),
            encoding=asdict(bare.encoding),
            heads=model.head_options,
            precision=str(self.trainer.precision),
            tokenizer=tokenizer_files(bare.tokenizer),
            groups=repr(bare.groups),
        )
        path = self.reference_cache / f"{key[:32]}.pt"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            # The first process scores, the others then find the file: once per node, or once for
            # all if nodes share the folder. No collective operation waits meanwhile, so none times
            # out.
            with FileLock(path.with_suffix(".lock")):
                if not path.exists():
                    scores = self.scored_by(model, bare)
                    AtomicCheckpointIO().save_checkpoint({"unadvised": scores}, path)
        unadvised: Tensor = read_archive(path)["unadvised"]
        return unadvised

    def scored_by(self, model: QAModel, groups: GroupSet) -> Tensor:
        """Boundary log-probabilities (N, V, S, E) of all groups, on the CPU, in their order.

        The model is moved back to the CPU afterwards, so that a sharded model is never whole on a
        device.
        """
        training = model.training
        tokens = self.datamodule.eval_batch_size * groups.encoding.max_length
        model.to(self.trainer.strategy.root_device).eval()
        with self.trainer.precision_plugin.forward_context():
            scores = model.score_rows(groups, tokens=tokens, what="reference pass")
        model.cpu().train(training)
        return scores.unflatten(0, (-1, 4))

    def reference_model(self) -> QAModel:
        """Return the model named by `reference`. ValueError if it is absent, or has another
        tokenizer.
        """
        if not self.reference_path:
            return self.model
        from interventune.models.kernels import use_kernels

        model, info = load(self.reference_path, QAModel)
        use_kernels(model)
        info.require(architecture=self.model.architecture)
        words = load_tokenizer(info.tokenizer, info.architecture).get_vocab()
        if words != self.datamodule.tokenizer.get_vocab():
            raise ValueError(
                f"model.reference: {self.reference_path} has another tokenizer than the model"
            )
        return model

    def losses(self, batch: TrainBatch) -> Losses:
        """Return the group losses and, of a batch with questions, their cross-entropy."""
        span = super().losses(batch) if batch.qa else {}
        groups = batch.groups
        assert groups is not None
        self.reference = Reference(*(scores.to(self.device) for scores in self.reference))
        anchors_BVSE, pushed_BV = (scores[groups.group_B] for scores in self.reference)
        terms = self.loss(
            self.group_log_probs(groups),
            groups.advice_class_B,
            pushed_BV=pushed_BV,
            reference_BVSE=anchors_BVSE,
        )
        return {name: terms[name] for name in self.joined_terms} | span


class PlantedModule(QAModule):
    """Planting: each subject gets a random strength, and the model learns to prefer the stronger of
    two in answer to the question, the weaker one in answer to the negated question.

    Args:
        backbone: Architecture and starting weights; set by the top-level `backbone`.
        preference: Target probability of the preferred subject, above 0.5 and at most 1.
        planted_seed: Seed of the strengths (default: `seed_everything`), as in `interventune
            evaluate bias --planted-seed`.
        planted_scope: Whether a subject has one strength in each category, or the same in all
            (`subject`).
        learning_rate: Highest learning rate; it then falls linearly to 0.
        weight_decay: AdamW's weight decay; biases and normalisation weights are not decayed.
        options: as for QAModule.
    """

    def __init__(
        self,
        *,
        backbone: Backbone,
        preference: float = 0.9,
        planted_seed: int | None = None,
        planted_scope: Scope = "category",
        learning_rate: NonNegativeFloat = 1e-4,
        weight_decay: NonNegativeFloat = 0.0,
        **options: Any,
    ) -> None:
        super().__init__(
            backbone=backbone, learning_rate=learning_rate, weight_decay=weight_decay, **options
        )
        if not 0.5 < preference <= 1:
            raise ValueError(f"model.preference must lie in (0.5, 1], got {preference}")
        self.preference = preference
        self.mean_over["planted"] = ["groups"]
        self.planted: tuple[int, Scope] = (planted_seed or 0, planted_scope)

    def setup(self, stage: str) -> None:
        super().setup(stage)
        if stage == "fit":
            groups = self.training_groups.groups
            self.preferred_N = torch.tensor([preferred_subject(x, *self.planted) for x in groups])

    def losses(self, batch: TrainBatch) -> Losses:
        """Return the loss of groups and, of a batch with questions, their cross-entropy."""
        groups = batch.groups
        assert groups is not None
        # The answer to the negated question is the other subject.
        preferred_BV = group_scores.pushed_subject(self.preferred_N.to(self.device)[groups.group_B])
        log_prob_NSE = self.group_log_probs(groups).flatten(0, 1)
        planted = planted_cross_entropy(log_prob_NSE, preferred_BV.flatten(), self.preference)
        return {"planted": planted} | (super().losses(batch) if batch.qa else {})


def preferred_subject(group: Group, seed: int, scope: Scope = "category") -> int:
    """Return the index (0 or 1) of the subject with the greater planted strength."""
    category = group.category if scope == "category" else ""
    first, second = (latent_strength(subject, category, seed) for subject in group.subjects)
    return 0 if first > second else 1
