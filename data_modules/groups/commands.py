"""The commands `unqover` and `lei`, which write underspecified questions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from data_modules.groups import sets
from data_modules.groups.advice import category_name, read_advice
from data_modules.groups.specified import read_sentences, specify
from data_modules.groups.unqover import read_expansion
from data_modules.groups.unqover_source import write_source
from data_modules.records import write_records
from data_modules.schema import Group
from data_modules.sources import read_groups
from storage.command_line import Count
from storage.errors import DataError
from storage.files import refuse_existing

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
    split: sets.Split | None = None,
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
        parts = sets.split_parts(expansion, advice, seed=seed)[split]
        expansion, advice = sets.restrict(expansion, advice, parts)
    if like:
        expansion, advice = sets.restrict(expansion, advice, sets.parts_of(read_groups(like)))
    for source in disjoint_from or ():
        expansion, advice = sets.restrict(expansion, advice, sets.parts_of(read_groups(source)), without=True)
    if not len(expansion) or (interventions and not advice):
        raise DataError("no group is left: the restrictions exclude every subject pair, attribute or advice")
    sentences, counts = read_sentences(specified) if specified else {}, Counter[str]()

    def groups() -> Iterator[Group]:
        for group in sets.sample(sets.advised_pools(expansion, advice), per_class, seed=seed):
            counts[group.advice_class] += 1
            if specified and group.attribute not in sentences:
                raise DataError(f"{specified}: no sentence for the attribute {group.attribute!r}")
            yield specify(group, sentences[group.attribute]) if specified else group

    written = write_records(groups(), output)
    return f"{output}: {written} groups ({', '.join(f'{n} {name}' for name, n in counts.items())})"
