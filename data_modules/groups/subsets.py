"""Fewer groups than there are, in equal shares of their classes: drawn, or evenly spread."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from data_modules.schema import ADVICE_CLASSES, Group
from storage.errors import DataError


def balanced_sample(groups: Sequence[Group], total: int, seed: int) -> list[Group]:
    """At most `total` groups, drawn evenly over the advice classes that occur, in the order given.

    A class with too few leaves its share to the others. Samples of one seed are nested: a smaller one lies in
    every larger one, so that a curve over sizes shows the size and not the luck of the draw.

    Raises:
        DataError: `total` is negative, or has not one group for each class.
    """
    members = _by_class(groups)
    if total < len(members):
        raise DataError(
            f"data.limit_train_groups: {total} is too few for {len(members)} classes of advice; "
            "0 takes all groups"
        )
    kept: list[int] = []
    by_size = sorted(members, key=lambda name: (len(members[name]), ADVICE_CLASSES.index(name)))
    for i, name in enumerate(by_size):
        share = (total - len(kept)) // (len(by_size) - i)
        order = np.random.default_rng([seed, ADVICE_CLASSES.index(name)]).permutation(len(members[name]))
        kept += [members[name][j] for j in order[:share]]
    return [groups[i] for i in sorted(kept)]


def spread(groups: list[Group], per_class: int) -> list[Group]:
    """At most `per_class` groups of each advice class, evenly spread over the file."""
    kept: list[Group] = []
    for members in _by_class(groups).values():
        step = max(1.0, len(members) / per_class)
        kept += [groups[members[int(i * step)]] for i in range(min(per_class, len(members)))]
    return kept


def _by_class(groups: Sequence[Group]) -> dict[str, list[int]]:
    members: dict[str, list[int]] = {}
    for i, group in enumerate(groups):
        members.setdefault(group.advice_class, []).append(i)
    return members
