"""LEI sets from UnQover's expansion and advice (Zhao et al. 2021, section 2.2), and the commands
`unqover` and `lei`.

Groups are drawn by index, before they are made: drawing 400 of each class does not build the
672,000 groups of LEI's gender domain.
"""

import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

from interventune.data_modules.interventions.variants import sentence_spans
from interventune.data_modules.schema.groups import (
    ADVICE_CLASSES,
    Advice,
    AdviceClass,
    Group,
    read_advice,
)
from interventune.data_modules.schema.questions import QAExample, Span, write_records
from interventune.data_modules.sources import read_groups
from interventune.storage.command_line import Count, InputFile
from interventune.storage.documents import DataError, refuse_existing

from .unqover import Cell, Expansion, Subject, read_expansion, write_source

logger = logging.getLogger(__name__)


def restrict(expansion: Expansion, groups: Iterable[Group], *, without: bool = False) -> Expansion:
    """Keep only the subjects, attributes and advice of some groups or, with `without`, none of
    them, nor their sentences under another id. Groups without advice do not restrict the advice.
    """
    names = set[str]()
    advised = set[str]()
    for group in groups:
        names.update((*group.subjects, group.attribute))
        advised.update((group.advice_id, *(variant.advice for variant in group.variants)))
    advised.discard("")
    allows = set.isdisjoint if without else set.issuperset
    pairs = [
        pair
        for pair in expansion.pairs
        if allows(names, [subject.name.lower() for subject in pair])
    ]
    cells = [cell for cell in expansion.cells if allows(names, [cell.attribute.lower()])]
    advice = expansion.advice
    if advised:
        advice = [
            item
            for item in advice
            if allows(advised, [item.id, item.text] if without else [item.id])
        ]
    return Expansion(pairs, cells, advice)


def advised_cells(
    cells: Sequence[Cell], advice: Sequence[Advice]
) -> dict[AdviceClass, Sequence[Cell]]:
    """Class -> the cells with each advice of their category, for the classes in `advice`, in the
    papers' order; `none` without advice.
    """
    pools: dict[AdviceClass, Sequence[Cell]] = {}
    for name in ADVICE_CLASSES:
        if of_class := [item for item in advice if item.advice_class == name]:
            pools[name] = [
                replace(cell, advice=item)
                for cell in cells
                for item in of_class
                if item.category == cell.category.lower()
            ]
    return pools or {"none": cells}


def sample(
    pairs: Sequence[Sequence[Subject]],
    pools: dict[AdviceClass, Sequence[Cell]],
    per_class: int | None,
    *,
    seed: int,
) -> Iterator[Group]:
    """Draw `per_class` groups of each pool of cells without replacement; the draw depends only on
    the seed and this pool. None takes everything in order. DataError if a pool is too small.
    """
    for name, cells in pools.items():
        count = len(pairs) * len(cells)
        indices: Sequence[int] = range(count)
        if per_class is not None:
            if per_class > count:
                raise DataError(
                    f"--per-class: {per_class} groups are asked for, class {name} has {count}"
                )
            indices = Random(f"{seed}/{name}").sample(indices, per_class)
        for index in indices:
            pair, cell = divmod(index, len(cells))
            yield cells[cell].group(*pairs[pair])


def gold_examples(groups: Iterable[Group], source: str = "") -> Iterator[QAExample]:
    """Turn groups whose contexts decide into questions with one right answer: two per group, its
    question in both context orders (the sentence does not decide the negated one). Ids: key and
    order.

    The rationale begins with the first sentence that names the right subject in both orders alike,
    and the answer is there; without such a sentence, it is the whole context. Of a `source` of
    questions, a warning says how many groups are left out.
    """
    left_out = 0
    for group in groups:
        gold = group.gold
        orders = group.variants[::2]
        if gold is None:
            left_out += 1
            continue
        for order, (variant, other) in enumerate(zip(orders, orders[::-1], strict=True)):
            context = variant.context
            name = re.compile(rf"(?<!\w){re.escape(variant.candidates[gold].text)}(?!\w)")
            deciding = (
                start
                for start, end in sentence_spans(context)
                if context[start:end] in other.context and name.search(context, start, end)
            )
            start = next(deciding, 0)
            answer = next(name.finditer(context, start))
            yield QAExample(
                f"{group.key}|{order}",
                context,
                variant.question,
                (Span(*answer.span(), answer[0]),),
                variant.advice,
                rationale=(Span(start, len(context), context[start:]),),
            )
    if source and left_out:
        logger.warning(
            f"{source}: {left_out} groups are left out: their contexts do not give the answer"
        )


def write_unqover(
    *,
    output: Path,
    overwrite: bool = False,
    subjects: list[InputFile],
    templates: InputFile,
    attributes: InputFile,
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
    subjects: list[InputFile],
    templates: InputFile,
    attributes: InputFile,
    interventions: InputFile | None = None,
    like: InputFile | None = None,
    disjoint_from: list[InputFile] | None = None,
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
        interventions: advice as JSON, {class: {category: [sentence, ...]}}, at most as much
            irrelevant as ethical advice in a category (default: no advice).
        like: use only people, attributes and advice that this file of groups contains.
        disjoint_from: leave out all people, attributes and advice that these files contain.
        per_class: sample N groups of each class of advice (default: all).
        seed: seed of --per-class.
    """
    refuse_existing(output, overwrite=overwrite)
    expansion = read_expansion(subjects, templates, attributes)
    if interventions:
        expansion = expansion._replace(advice=read_advice(interventions))
    categories = {cell.category.lower() for cell in expansion.cells}
    unadvised = categories - {item.category for item in expansion.advice}
    if expansion.advice and unadvised:
        raise DataError(
            f"{interventions}: no advice for the category {min(unadvised)!r} of {attributes}"
        )
    if like:
        expansion = restrict(expansion, read_groups(like))
    for source in disjoint_from or ():
        expansion = restrict(expansion, read_groups(source), without=True)
    pairs, cells, advice = expansion
    if not (pairs and cells) or (interventions and not advice):
        raise DataError(
            "no group is left: the restrictions exclude every subject pair, attribute or advice"
        )
    pools = advised_cells(cells, advice)
    count = write_records(sample(pairs, pools, per_class, seed=seed), output)
    return f"{output}: {count} groups of class {', '.join(pools)}"
