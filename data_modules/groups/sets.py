"""LEI sets from UnQover's expansion and advice (LEI spec 3.2 to 3.6), and the commands `unqover` and `lei`.

A pool is the cross product of groups and the advice of their category, addressed by index: the 672,000 groups
of LEI's gender domain are never built to draw 400 of each class.
"""

from __future__ import annotations

import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Annotated, Any, Literal, NamedTuple, get_args

from data_modules.groups.advice import Advice, category_name, read_advice
from data_modules.groups.unqover import Expansion, listed, read_expansion, repair_articles
from data_modules.groups.unqover_source import write_source
from data_modules.records import write_records
from data_modules.schema import ADVICE_CLASSES, AdviceClass, Group
from data_modules.sources import read_groups
from storage.command_line import Count
from storage.errors import DataError
from storage.files import refuse_existing

Split = Literal["train", "dev", "test"]
SPLITS: tuple[Split, ...] = get_args(Split)
WEIGHTS = (4, 3, 4)
"""LEI's religion subjects: 4 train, 3 dev, 4 test."""


class Parts(NamedTuple):
    """What groups are made of; names are lower-case as in keys."""

    subjects: set[str]
    attributes: set[str]
    advice: set[str] | None
    """Ids, and sentences as they stand before the question; None restricts nothing."""


def parts_of(groups: Iterable[Group]) -> Parts:
    """Everything that occurs in `groups`; `advice` is None where none has any."""
    subjects, attributes, advice = set[str](), set[str](), set[str]()
    for group in groups:
        subjects.update(group.subjects)
        attributes.add(group.attribute)
        advice.update((group.advice_id, *(variant.advice for variant in group.variants)))
    return Parts(subjects, attributes, advice - {""} or None)


def restrict(
    expansion: Expansion, advice: Iterable[Advice], parts: Parts, *, without: bool = False
) -> tuple[Expansion, tuple[Advice, ...]]:
    """Only the subjects, attributes and advice in `parts`; or, `without`, none of them, nor their sentences
    under another id."""

    def kept(names: set[str] | None, *called: str) -> bool:
        return names is None or names.isdisjoint(called) == without

    pairs = [pair for pair in expansion.pairs if all(kept(parts.subjects, one.name.lower()) for one in pair)]
    cells = [cell for cell in expansion.cells if kept(parts.attributes, cell.attribute.name.lower())]
    rest = (item for item in advice if kept(parts.advice, item.id, *([item.text] if without else [])))
    return Expansion(pairs, cells), tuple(rest)


def advised_pools(expansion: Expansion, advice: Sequence[Advice]) -> dict[AdviceClass, Expansion]:
    """Class -> its pool, for the classes that `advice` has, in the papers' order; `none` without advice."""
    of_class = {name: [item for item in advice if item.advice_class == name] for name in ADVICE_CLASSES}
    pools = {name: Expansion(expansion.pairs, expansion.cells, x) for name, x in of_class.items() if x}
    return pools or {"none": expansion}


def sample(
    pools: Mapping[AdviceClass, Sequence[Group]], per_class: int | None, *, seed: int
) -> Iterator[Group]:
    """`per_class` groups of each pool, drawn without replacement, by the seed and this pool alone; None takes
    everything in order. DataError when a pool is too small."""
    for name, pool in pools.items():
        if per_class is None:
            yield from pool
        elif per_class > len(pool):
            raise DataError(f"--per-class: {per_class} groups are asked for, class {name} has {len(pool)}")
        else:
            yield from (pool[i] for i in Random(f"{seed}/{name}").sample(range(len(pool)), per_class))


def split_parts(expansion: Expansion, advice: Sequence[Advice], *, seed: int = 0) -> dict[Split, Parts]:
    """The parts of each split, in proportion to `WEIGHTS`: each list of subjects is divided, attributes
    within their category, advice within its class and category. No subject, attribute or sentence is in two
    splits; groups whose parts do not fall into one belong to none. Templates are shared, as in LEI's files.
    """
    # One list, or two where subjects of the first are only ever paired with subjects of the second.
    lists = [[pair[i].name.lower() for pair in expansion.pairs] for i in (0, 1)]
    if set(lists[0]) & set(lists[1]):
        lists = [lists[0] + lists[1]]
    attributes, sentences = defaultdict[str, list[str]](list), defaultdict[str, list[str]](list)
    for cell in expansion.cells:
        attributes[f"attributes/{category_name(cell.attribute.category)}"].append(cell.attribute.name.lower())
    for item in advice:
        sentences[f"advice/{item.advice_class}/{item.category}"].append(item.text)
    kinds = []
    for strata in ({f"subjects/{i}": names for i, names in enumerate(lists)}, attributes, sentences):
        placed: dict[str, Split] = {}
        for stratum, names in strata.items():
            fresh = [name for name in dict.fromkeys(names) if name not in placed]
            placed |= apportion(fresh, WEIGHTS, Random(f"{seed}/{stratum}"))
        kinds.append(placed)
    kinds[2] = {item.id: kinds[2][item.text] for item in advice}
    return {
        split: Parts(*({name for name, place in placed.items() if place == split} for placed in kinds))
        for split in SPLITS
    }


def apportion(items: Sequence[str], weights: Sequence[int], random: Random) -> dict[str, Split]:
    """Each item's split: shuffled, then cut in proportion to `weights` by largest remainder, ties broken at
    random."""
    shares = [len(items) * weight / sum(weights) for weight in weights]
    counts = [int(share) for share in shares]
    order = sorted(range(len(weights)), key=lambda i: (counts[i] - shares[i], random.random()))
    for i in order[: len(items) - sum(counts)]:
        counts[i] += 1
    labels = [split for split, count in zip(SPLITS, counts, strict=True) for _ in range(count)]
    return dict(zip(random.sample(list(items), len(items)), labels, strict=True))


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
    variants: Any = []
    for variant in group.variants:
        decisive = repair_articles(sentence.replace("[subj]", variant.candidates[gold].text))
        variants.append(replace(variant, context=f"{variant.context} {decisive}"))
    return replace(group, variants=tuple(variants))


File = Annotated[str, "FILE"]


def write_unqover(
    *, output: Path, overwrite: bool = False, subjects: list[File], templates: File, attributes: File
) -> str:
    """Write UnQover's source.json from word lists.

    example:
      interventune data unqover --subjects nouns/subjects/religion --templates slots/religion_noact \\
          --attributes activities/biased_religion --output source.json

    Args:
        output: file to write.
        overwrite: replace the output if it exists.
        subjects: one list, or two to be paired with each other (female male).
        templates: contexts and questions with slots.
        attributes: attributes and their negations.
    """
    refuse_existing(output, overwrite=overwrite)
    records = write_source(read_expansion(subjects, templates, attributes), output)
    return f"{output}: {records} records, {2 * records} questions, {records // 2} groups"


def write_groups(
    *,
    output: Path,
    overwrite: bool = False,
    subjects: list[File],
    templates: File,
    attributes: File,
    interventions: File | None = None,
    specified: File | None = None,
    split: Split | None = None,
    like: File | None = None,
    disjoint_from: list[File] | None = None,
    per_class: Count | None = None,
    seed: int = 0,
) -> str:
    """Write groups (JSON Lines) from word lists and interventions.

    examples:
      400 groups a class, of parts that no group of train.json has:
        interventune data lei --subjects nouns/subjects/religion --templates slots/religion_noact \\
            --attributes activities/biased_religion --interventions religion_interventions.json \\
            --disjoint-from train.json --per-class 400 --output test.jsonl
      the test part of everything:  ... --split test --output test.jsonl

    Args:
        output: file to write.
        overwrite: replace the output if it exists.
        subjects: one list, or two to be paired with each other (female male).
        templates: contexts and questions with slots.
        attributes: attributes and their negations.
        interventions: JSON {class: {category: [sentence, ...]}}; groups without advice by default.
        specified: TSV: attribute, sentence with [subj] that decides the question.
        split: only the parts of this split; splits share nothing but templates.
        like: only subjects, attributes and advice that this file of groups has.
        disjoint_from: leave out subjects, attributes and advice of these files.
        per_class: sample N groups of each class; all by default.
        seed: seed of --split and --per-class.
    """
    refuse_existing(output, overwrite=overwrite)
    expansion = read_expansion(subjects, templates, attributes)
    advice = read_advice(interventions) if interventions else ()
    unadvised = {category_name(cell.attribute.category) for cell in expansion.cells}
    if advice and (unadvised := unadvised - {item.category for item in advice}):
        raise DataError(f"{interventions}: no advice for the category {min(unadvised)!r} of {attributes}")
    if split:
        parts = split_parts(expansion, advice, seed=seed)[split]
        expansion, advice = restrict(expansion, advice, parts)
    if like:
        expansion, advice = restrict(expansion, advice, parts_of(read_groups(like)))
    for source in disjoint_from or ():
        expansion, advice = restrict(expansion, advice, parts_of(read_groups(source)), without=True)
    if not len(expansion) or (interventions and not advice):
        raise DataError("no group is left: the restrictions exclude every subject pair, attribute or advice")
    sentences, counts = read_sentences(specified) if specified else {}, Counter[str]()

    def groups() -> Iterator[Group]:
        for group in sample(advised_pools(expansion, advice), per_class, seed=seed):
            counts[group.advice_class] += 1
            if specified and group.attribute not in sentences:
                raise DataError(f"{specified}: no sentence for the attribute {group.attribute!r}")
            yield specify(group, sentences[group.attribute]) if specified else group

    written = write_records(groups(), output)
    return f"{output}: {written} groups ({', '.join(f'{n} {name}' for name, n in counts.items())})"
