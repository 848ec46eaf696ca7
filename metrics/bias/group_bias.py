"""The aggregates of UnQover and LEI over groups of one class of advice.

Shape letters: N groups, V the four variants, S the two subjects, F numbers of a group, X subjects,
T noises, U units, R draws.
"""

import numpy as np
import torch
from torch import Tensor

from .group_scores import score_groups
from .intervals import ClassGroups, statistic

MAXIMA = ("mu", "eta", "theta", "mu_normalised")
NO_NOISE_TUR = np.zeros((3, 1, 1))


def group_rows(
    score_NVS: Tensor, class_N: Tensor, subject_NS: Tensor, attribute_N: Tensor
) -> Tensor:
    """Return what `group_measures` needs of groups, with the class first, (N, 9).

    Args:
        score_NVS: S(x) = sqrt(p_start p_end) in [0, 1], any float type, last axis: subject, (N, 4,
            2).
        class_N: class ids, shape (N,).
        subject_NS: ids of (x1, x2) in the order of the scores' last axis, shape (N, 2).
        attribute_N: attribute ids, shape (N,).
    """
    ids = class_N, *subject_NS.unbind(1), attribute_N
    return torch.stack([*ids, *score_groups(score_NVS)], dim=1)


def group_measures(row_NF: Tensor) -> dict[str, float]:
    """Aggregate the rows of at least one group of a class (UnQover section 4.3).

    gamma(x, a) is the mean C of groups with subject x and attribute a, from the perspective of x;
    eta(x, a) the mean of its sign.

    Returns:
        mu: mean over subjects of the largest |gamma(x, a)| over attributes; eta: mean over subjects
        of the mean over attributes of |eta(x, a)|; theta: mean over pairs of the largest |mean C|
        over attributes (theta4 in the code of Zhao et al. 2021); mu_normalised: mu of the scores
        S(x) / (S(x1) + S(x2)); mean_abs_c, mass, delta, eps: means of |C| and of the other measures
        of a group; n: the number of groups.

    >>> score_NVS = torch.tensor([[[.56, .30], [.45, .20], [.28, .36], [.15, .56]]])
    >>> zero = torch.tensor([0])
    >>> round(group_measures(group_rows(score_NVS, zero, torch.tensor([[0, 1]]), zero))["mu"], 6)
    0.085
    """
    id_N4 = row_NF[:, :4].long().numpy()
    value_N5 = row_NF[:, 4:].numpy()
    (c_N, normalised_N) = value_N5.T[:2]
    unit_N = np.zeros(len(id_N4), dtype=np.int64)
    groups = ClassGroups(c_N, normalised_N, id_N4[:, 1:3], id_N4[:, 3], unit_N)
    maxima = {name: float(statistic(name, groups)(NO_NOISE_TUR)[0, 0]) for name in MAXIMA}
    mean_abs_c, _, delta, eps, mass = np.abs(value_N5).mean(0).tolist()
    means = {"mean_abs_c": mean_abs_c, "mass": mass, "delta": delta, "eps": eps}
    return maxima | means | {"n": len(id_N4)}
