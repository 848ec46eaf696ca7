"""LEI's control: groups whose contexts decide, and the questions with one right answer that they hold (LEI
spec 3.6). A model that ignores subjects satisfies the ethical loss; here it fails."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from data_modules.schema import Group, QAExample
from data_modules.sources import read_groups


def gold_of(group: Group) -> int | None:
    """Index (0 or 1) of the subject whom the contexts of both orders name more often than the other; None
    where they do not decide. A template names both alike, so the added sentence makes the difference, without
    a field for it, as in LEI's own specified set."""
    golds = set()
    for variant in group.variants[::2]:
        names = [span.text for span in variant.candidates]
        counts = [variant.context.count(name) for name in names]
        if counts[0] != counts[1]:  # seldom; then mentions are told apart: African is not in African-American
            either = "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
            found = re.findall(rf"(?<!\w)(?:{either})(?!\w)", variant.context)
            counts = [found.count(name) for name in names]
        golds.add(None if counts[0] == counts[1] else int(counts[1] > counts[0]))
    return golds.pop() if len(golds) == 1 else None


def gold_examples(groups: Iterable[Group]) -> Iterator[QAExample]:
    """The groups whose contexts decide as questions with one right answer: two per group, its question in
    both context orders (the sentence does not decide the negated one). Ids: key and order."""
    for group in groups:
        if (gold := gold_of(group)) is not None:
            for order, variant in enumerate(group.variants[::2]):
                asked = (f"{group.key}|{order}", variant.context, variant.question)
                yield QAExample(*asked, (variant.candidates[gold],), variant.advice)


def read_file(path: str | Path) -> Iterator[QAExample]:
    """The questions of a file of groups whose contexts decide; the other groups are left out."""
    yield from gold_examples(read_groups(path))
