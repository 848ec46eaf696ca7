"""LEI's control: groups whose contexts decide, and the questions with one right answer that they hold (LEI
spec 3.6). A model that ignores subjects satisfies the ethical loss; here it fails."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from data_modules.groups.unqover import listed, repair_articles
from data_modules.schema import Group, QAExample
from data_modules.sources import read_groups
from storage.errors import DataError


def read_sentences(path: str | Path) -> dict[str, str]:
    """Attribute (lower-case) -> the sentence that decides it, of lines `attribute TAB sentence`; `[subj]` is
    the one who did it: `was a baker<TAB>[subj] got up at four to light the oven.`"""
    sentences: dict[str, str] = {}
    for where, line in listed(path):
        attribute, _, sentence = (part.strip() for part in line.partition("\t"))
        if "[subj]" not in sentence:
            raise DataError(f"{where}: expected ATTRIBUTE, a tab, a sentence with [subj]")
        sentences[attribute.lower()] = sentence
    return sentences


def specify(group: Group, sentence: str, gold: int | None = None) -> Group:
    """The group with `sentence` at the end of each context, its slot [subj] filled with a subject as that
    context calls it; `gold` is its index, by default drawn by a hash of the group without its advice."""
    if gold is None:
        gold = zlib.crc32(group.unadvised_key.encode()) % 2
    variants = []
    for variant in group.variants:
        decisive = repair_articles(sentence.replace("[subj]", variant.candidates[gold].text))
        variants.append(replace(variant, context=f"{variant.context} {decisive}"))
    one, two, three, four = variants
    return replace(group, variants=(one, two, three, four))


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
