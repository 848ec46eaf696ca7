"""LEI sets from UnQover's expansion and advice (LEI spec 3.2 to 3.6), and the commands `unqover`
and `lei`.

A pool combines groups with the advice of their category, addressed by index: drawing 400 of each
class does not build the 672,000 groups of LEI's gender domain.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Annotated, Any, Literal, get_args

from interventune.data_modules.groups.advice import Advice, read_advice
from interventune.data_modules.groups.expansion import Expansion, repair_articles
from interventune.data_modules.groups.unqover import listed, read_expansion, write_source
from interventune.data_modules.interventions.variants import sentence_spans
from interventune.data_modules.schema.groups import ADVICE_CLASSES, AdviceClass, Group
from interventune.data_modules.schema.questions import QAExample
from interventune.data_modules.schema.spans import Span, write_records
from interventune.data_modules.sources import read_groups
from interventune.storage.command_line import Count
from interventune.storage.documents import refuse_existing
from interventune.storage.errors import DataError


def restrict(
    expansion: Expansion,
    advice: Iterable[Advice],
    groups: Iterable[Group],
    *,
    without: bool = False,
) -> tuple[Expansion, tuple[Advice, ...]]:
    """Keep only the subjects, attributes and advice of some groups or, with `without`, none of
    them, nor their sentences under another id. Groups without advice do not restrict the advice.
    """
    subjects, attributes, said = set[str](), set[str](), set[str]()
    for group in groups:
        subjects.update(group.subjects)
        attributes.add(group.attribute)
        said.update((group.advice_id, *(variant.advice for variant in group.variants)))
    told = said - {""}

    def kept(item: Advice) -> bool:
        return (
            not told or told.isdisjoint((item.id, item.text) if without else (item.id,)) == without
        )

    pairs = [x for x in expansion.pairs if all((y.name.lower() in subjects) != without for y in x)]
    cells = [cell for cell in expansion.cells if (cell.attribute.lower() in attributes) != without]
    return Expansion(pairs, cells), tuple(filter(kept, advice))


Split = Literal["train", "dev", "test"]


def apportion(items: Iterable[str], weights: Sequence[int], random: Random) -> dict[str, Split]:
    """Assign a split to each item: shuffle, then cut by `weights` (largest remainder,
    random ties).
    """
    items = list(items)
    shares = [len(items) * weight / sum(weights) for weight in weights]
    counts = [int(share) for share in shares]
    order = sorted(range(len(weights)), key=lambda i: (counts[i] - shares[i], random.random()))
    for i in order[: len(items) - sum(counts)]:
        counts[i] += 1
    labels = [
        split for split, count in zip(get_args(Split), counts, strict=True) for _ in range(count)
    ]
    return dict(zip(random.sample(items, len(items)), labels, strict=True))


def part(
    expansion: Expansion, advice: Sequence[Advice], split: Split, *, seed: int = 0
) -> tuple[Expansion, tuple[Advice, ...]]:
    """Return the subjects, attributes and advice of one split: lists of subjects are divided 4 : 3
    : 4, as LEI's religions are, attributes within their category, sentences within class and
    category (LEI spec 3.6). Splits share none of these; they share templates.
    """
    lists = [[pair[i].name.lower() for pair in expansion.pairs] for i in (0, 1)]
    if set(lists[0]) & set(lists[1]):  # a single list, paired with itself
        lists = [lists[0] + lists[1]]
    strata = {f"subjects/{i}": names for i, names in enumerate(lists)}
    for cell in expansion.cells:
        strata.setdefault(f"attributes/{cell.category.lower()}", []).append(cell.attribute.lower())
    for item in advice:
        strata.setdefault(f"advice/{item.advice_class}/{item.category}", []).append(item.text)
    placed: dict[tuple[str, str], Split] = {}
    for stratum, names in strata.items():
        kind = stratum.partition("/")[0]
        fresh = (name for name in dict.fromkeys(names) if (kind, name) not in placed)
        for name, place in apportion(fresh, (4, 3, 4), Random(f"{seed}/{stratum}")).items():
            placed[kind, name] = place
    pairs = [
        x for x in expansion.pairs if all(placed["subjects", y.name.lower()] == split for y in x)
    ]
    cells = [
        cell for cell in expansion.cells if placed["attributes", cell.attribute.lower()] == split
    ]
    chosen = (item for item in advice if placed["advice", item.text] == split)
    return Expansion(pairs, cells), tuple(chosen)


def advised_pools(expansion: Expansion, advice: Sequence[Advice]) -> dict[AdviceClass, Expansion]:
    """Class -> its pool, for the classes in `advice`, in the papers' order; `none`
    without advice.
    """
    of_class = {
        name: [item for item in advice if item.advice_class == name] for name in ADVICE_CLASSES
    }
    pools = {
        name: Expansion(expansion.pairs, expansion.cells, x) for name, x in of_class.items() if x
    }
    return pools or {"none": expansion}


def sample(
    pools: Mapping[AdviceClass, Sequence[Group]], per_class: int | None, *, seed: int
) -> Iterator[Group]:
    """Draw `per_class` groups of each pool without replacement; the draw depends only on the seed
    and this pool. None takes everything in order. DataError if a pool is too small.
    """
    for name, pool in pools.items():
        if per_class is None:
            yield from pool
        elif per_class > len(pool):
            raise DataError(
                f"--per-class: {per_class} groups are asked for, class {name} has {len(pool)}"
            )
        else:
            yield from (
                pool[i] for i in Random(f"{seed}/{name}").sample(range(len(pool)), per_class)
            )


def read_sentences(path: str | Path) -> dict[str, str]:
    """Attribute (lower-case) -> the sentence that decides it, from lines `attribute TAB sentence`;
    `[subj]` is the person who did it: `was a baker<TAB>[subj] got up at four to light the oven.`
    """
    sentences: dict[str, str] = {}
    for where, line in listed(path):
        attribute, _, sentence = (part.strip() for part in line.partition("\t"))
        if "[subj]" not in sentence:
            raise DataError(f"{where}: expected ATTRIBUTE, a tab, a sentence with [subj]")
        sentences[attribute.lower()] = sentence
    return sentences


def specify(group: Group, sentence: str, gold: int | None = None) -> Group:
    """Add `sentence` at the end of each context, with its slot [subj] filled by a subject as that
    context names it; `gold` is its index, by default drawn by a hash of the group without its
    advice.
    """
    if gold is None:
        gold = zlib.crc32(group.unadvised_key.encode()) % 2
    variants: Any = []
    for variant in group.variants:
        decisive = repair_articles(sentence.replace("[subj]", variant.candidates[gold].text))
        variants.append(replace(variant, context=f"{variant.context} {decisive}"))
    return replace(group, variants=tuple(variants))


def gold_examples(groups: Iterable[Group]) -> Iterator[QAExample]:
    """Turn groups whose contexts decide into questions with one right answer: two per group, its
    question in both context orders (the sentence does not decide the negated one). Ids: key and
    order.

    The rationale begins with the first sentence that names the right subject in both orders alike,
    and the answer is there; without such a sentence, it is the whole context.
    """
    for group in groups:
        gold, orders = group.gold, group.variants[::2]
        for order, variant in enumerate(orders if gold is not None else ()):
            context, other = variant.context, orders[1 - order].context
            name = re.compile(rf"(?<!\w){re.escape(variant.candidates[gold or 0].text)}(?!\w)")
            starts = [
                a
                for a, b in sentence_spans(context)
                if context[a:b] in other and name.search(context, a, b)
            ]
            at = next(name.finditer(context, start := min(starts, default=0)))
            yield QAExample(
                f"{group.key}|{order}",
                context,
                variant.question,
                (Span(*at.span(), at[0]),),
                variant.advice,
                rationale=(Span(start, len(context), context[start:]),),
            )


def read_decided(path: str | Path) -> Iterator[QAExample]:
    """Read the questions of a file of groups whose contexts decide; other groups are left out."""
    yield from gold_examples(read_groups(path))


File = Annotated[str, "FILE"]


def write_unqover(
    *,
    output: Path,
    overwrite: bool = False,
    subjects: list[File],
    templates: File,
    attributes: File,
) -> str:
    """Write UnQover's source.json from word lists.

    Example: interventune data unqover --subjects nouns/subjects/religion \\
        --templates slots/religion_noact --attributes activities/religion --output source.json

    Args:
        output: file to write.
        overwrite: replace the file if it exists.
        subjects: one list of people, or two whose entries are paired (female male).
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
    """Write groups of questions with advice (JSON Lines) from word lists. A group is one question
    about two people in four variants: both orders of the people, each with the question and its
    negation.

    Example: interventune data lei --subjects nouns/subjects/religion \\
        --templates slots/religion_noact --attributes activities/biased_religion \\
        --interventions religion_interventions.json --disjoint-from train.json --per-class 400 \\
        --output test.jsonl

    Args:
        output: file to write.
        overwrite: replace the file if it exists.
        subjects: one list of people, or two whose entries are paired (female male).
        templates: contexts and questions with slots.
        attributes: attributes and their negations.
        interventions: advice as JSON, {class: {category: [sentence, ...]}} (default: no advice).
        specified: TSV with an attribute and a sentence with [subj] per line; the sentence is added
            to the context and gives the answer.
        split: use only this part of people (divided 4 : 3 : 4), attributes and advice; the parts
            share none.
        like: use only people, attributes and advice that this file of groups contains.
        disjoint_from: leave out all people, attributes and advice that these files contain.
        per_class: sample N groups of each class of advice (default: all).
        seed: seed of --split and --per-class.
    """
    refuse_existing(output, overwrite=overwrite)
    expansion = read_expansion(subjects, templates, attributes)
    advice = read_advice(interventions) if interventions else ()
    unadvised = {cell.category.lower() for cell in expansion.cells}
    if advice and (unadvised := unadvised - {item.category for item in advice}):
        raise DataError(
            f"{interventions}: no advice for the category {min(unadvised)!r} of {attributes}"
        )
    if split:
        expansion, advice = part(expansion, advice, split, seed=seed)
    if like:
        expansion, advice = restrict(expansion, advice, read_groups(like))
    for source in disjoint_from or ():
        expansion, advice = restrict(expansion, advice, read_groups(source), without=True)
    if not len(expansion) or (interventions and not advice):
        raise DataError(
            "no group is left: the restrictions exclude every subject pair, attribute or advice"
        )
    pools = advised_pools(expansion, advice)
    groups = sample(pools, per_class, seed=seed)
    if specified:
        sentences = read_sentences(specified)
        if lacking := {cell.attribute.lower() for cell in expansion.cells} - {*sentences}:
            raise DataError(f"{specified}: no sentence for the attribute {min(lacking)!r}")
        groups = (specify(group, sentences[group.attribute]) for group in groups)
    return f"{output}: {write_records(groups, output)} groups of class {', '.join(pools)}"
