"""Groups whose contexts decide, LEI's control (spec 3.6): a model that ignores subjects fails there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from data_modules.schema.groups import Group
from data_modules.schema.questions import QAExample
from data_modules.sources import read_groups


def gold_examples(groups: Iterable[Group]) -> Iterator[QAExample]:
    """The groups whose contexts decide as questions with one right answer: two per group, its question in
    both context orders (the sentence does not decide the negated one). Ids: key and order."""
    for group in groups:
        if (gold := group.gold) is not None:
            for order, variant in enumerate(group.variants[::2]):
                asked = (f"{group.key}|{order}", variant.context, variant.question)
                yield QAExample(*asked, (variant.candidates[gold],), variant.advice)


def read_decided(path: str | Path) -> Iterator[QAExample]:
    """The questions of a file of groups whose contexts decide; the other groups are left out."""
    yield from gold_examples(read_groups(path))
