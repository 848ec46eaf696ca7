"""A control with a known answer: plant a preference among subjects, so that there is a bias to
change. Of two subjects the stronger one is preferred in answer to the question, the weaker one in
answer to the negated question.

Shape letters: B and N groups (of a batch, of the set; of the log-probabilities all variants of a
batch), V variants of a group (4), S subjects (2), E boundaries (start, end).
"""

from typing import Any, Literal

import torch
from jsonargparse.typing import NonNegativeFloat
from torch import Tensor

from interventune.data_modules.batching.data_module import TrainBatch
from interventune.data_modules.groups.advice import latent_strength
from interventune.data_modules.schema.groups import Group
from interventune.losses.group import planted_cross_entropy
from interventune.metrics.bias.group_scores import pushed_subject
from interventune.models.backbones import Backbone

from .qa import QAModule

Scope = Literal["category", "subject"]
"""Whether a subject's strength differs between categories, or is the same in all."""


class PlantedModule(QAModule):
    """Planting: each subject gets a random strength, and the model learns to prefer the stronger of
    two.

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
            preferred = [
                preferred_subject(group, *self.planted) for group in self.training_groups.groups
            ]
            self.preferred_N = torch.tensor(preferred)

    def losses(self, batch: TrainBatch) -> dict[str, Tensor]:
        """Return the loss of groups and, of a batch with questions, their cross-entropy."""
        groups = batch.groups
        assert groups is not None
        # The answer to the negated question is the other subject.
        preferred_BV = pushed_subject(self.preferred_N.to(self.device)[groups.group_B])
        log_prob_NSE = self.group_log_probs(groups).flatten(0, 1)
        planted = planted_cross_entropy(log_prob_NSE, preferred_BV.flatten(), self.preference)
        return {"planted": planted} | (super().losses(batch) if batch.qa else {})


def preferred_subject(group: Group, seed: int, scope: Scope = "category") -> int:
    """Return the index (0 or 1) of the subject with the greater planted strength."""
    category = group.category if scope == "category" else ""
    first, second = (latent_strength(subject, category, seed) for subject in group.subjects)
    return 0 if first > second else 1
