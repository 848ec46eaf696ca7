"""Named sets to evaluate on, and what they are called."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from data_modules.schema import Variant

if TYPE_CHECKING:
    from data_modules.batching.choice_set import ChoiceSet
    from data_modules.batching.group_rows import GroupSet
    from data_modules.batching.sets import PairSet, QASet

MAIN = "main"
"""The name of a set whose metric keys carry no set name."""


class EvalSet(NamedTuple):
    """A named set to evaluate on, in the order of its data loader."""

    name: str
    data: QASet | GroupSet | PairSet | ChoiceSet


def variant_name(name: str, variant: Variant) -> str:
    """What a variant of an evaluation set is called: the originals keep the set's name."""
    if variant == "os":
        return name
    return variant if name == MAIN else f"{name}/{variant}"
