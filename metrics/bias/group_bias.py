"""Group bias of a question-answering model as a torchmetrics metric: the aggregates of UnQover and
LEI.

Shape letters: N groups, V the four variants, S the two subjects, F numbers of a group, K classes, M
measures.
"""

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities import dim_zero_cat

from .group_scores import score_groups
from .intervals import ClassGroups, statistic

MAXIMA = ("mu", "eta", "theta", "mu_normalised")


class BiasResult(NamedTuple):
    """Aggregates per class (UnQover section 4.3). NaN where nothing was counted.

    gamma(x, a) is the mean C of groups with subject x and attribute a, from the perspective of x;
    eta(x, a) the mean of its sign.
    """

    n_K: Tensor
    """Number of groups."""
    mu_K: Tensor
    """Mean over subjects of the largest |gamma(x, a)| over attributes."""
    eta_K: Tensor
    """Mean over subjects of the mean over attributes of |eta(x, a)|."""
    theta_K: Tensor
    """Mean over pairs of the largest |mean C| over attributes (theta4 in the code of Zhao et al.
    2021).
    """
    mu_normalised_K: Tensor
    """mu of the scores S(x) / (S(x1) + S(x2))."""
    mean_abs_c_K: Tensor
    delta_K: Tensor
    """Mean position error."""
    eps_K: Tensor
    """Mean attribute error."""
    mass_K: Tensor
    """Mean of S(x1) + S(x2)."""


class GroupBias(Metric):
    """Bias per class over all groups seen, on all processes: a `BiasResult`.

    State: 72 bytes for each group.

    Args:
        num_classes: K, for example 4 for ethical, adversarial, irrelevant, none.

    Example:
        >>> metric = GroupBias(num_classes=2)
        >>> score_NVS = torch.tensor([[[.56, .30], [.45, .20], [.28, .36], [.15, .56]]])
        >>> zero = torch.tensor([0])
        >>> metric.update(score_NVS, zero, torch.tensor([[0, 1]]), zero)
        >>> round(metric.compute().mu_K[0].item(), 6)
        0.085
    """

    full_state_update = False
    rows: list[Tensor]
    """Of each update, (N, F): the scores of `GroupScores`, then class, subjects and attribute."""

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.num_classes = num_classes
        self.add_state("rows", [], dist_reduce_fx="cat")
        self.rows.append(torch.zeros(0, 9).double())  # of a process that sees no group

    def update(
        self, score_NVS: Tensor, class_N: Tensor, subject_NS: Tensor, attribute_N: Tensor
    ) -> None:
        """Add N groups.

        Args:
            score_NVS: S(x) = sqrt(p_start p_end) in [0, 1], any float type, last axis: subject, (N,
                4, 2).
            class_N: class ids, 0 to K - 1, shape (N,).
            subject_NS: ids of (x1, x2) in the order of the scores' last axis, shape (N, 2).
            attribute_N: attribute ids, shape (N,).
        """
        ids = class_N, *subject_NS.unbind(1), attribute_N
        self.rows.append(torch.stack([*score_groups(score_NVS), *ids], dim=1))

    def compute(self) -> BiasResult:
        """Aggregate everything seen; NaN with n = 0 for a class without groups."""
        row_NF = dim_zero_cat(self.rows).cpu()
        result_KM = [aggregates(row_NF[row_NF[:, 5] == k]) for k in range(self.num_classes)]
        n_K, *measures = torch.tensor(result_KM, dtype=torch.float64).unbind(1)
        return BiasResult(n_K.long(), *measures)


def aggregates(row_NF: Tensor) -> list[float]:
    """The fields of a `BiasResult` for the rows of one class."""
    if not len(row_NF):
        return [0, *[math.nan] * 8]
    id_NF = row_NF[:, 6:].long().numpy()
    unit_N = np.zeros(len(id_NF), dtype=np.int64)
    groups = ClassGroups(*row_NF[:, :2].T.numpy(), id_NF[:, :2], id_NF[:, 2], unit_N)
    no_noise_TUR = np.zeros((3, 1, 1))
    maxima = [statistic(name, groups)(no_noise_TUR)[0, 0] for name in MAXIMA]
    return [len(row_NF), *maxima, *row_NF[:, [0, 2, 3, 4]].abs().mean(0).tolist()]
