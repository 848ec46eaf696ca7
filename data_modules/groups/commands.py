"""The commands `unqover`, `lei`, `domains` and `stories`, which write underspecified questions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

from data_modules.groups import sets
from data_modules.groups import specified as specifying
from data_modules.groups.advice import (
    CLASSES,
    MISMATCHED,
    Advice,
    category_name,
    mismatched_advice,
    read_advice,
)
from data_modules.groups.domain_sets import DomainSet, draw
from data_modules.groups.domains import plain_facts
from data_modules.groups.lei import write_lei
from data_modules.groups.unqover import Expansion, read_expansion
from data_modules.groups.unqover_source import write_source
from data_modules.groups.word_lists import read_attributes, read_subjects
from data_modules.questions.squad import write_squad
from data_modules.schema import LEAD_IN, AdviceClass, Group
from data_modules.sources import read_groups, read_questions
from storage.command_line import Count
from storage.errors import DataError
from storage.files import refuse_existing

File = Annotated[str, "FILE"]


@dataclass(frozen=True)
class WordLists:
    """word lists, in UnQover's format

    Args:
        subjects: one list, or two to be paired with each other (female male).
        templates: contexts and questions with slots.
        attributes: attributes and their negations.
        filler: one line that goes before every context.
    """

    subjects: list[File]
    templates: File
    attributes: File
    filler: File | None = None

    def expansion(self, mask: str | None = None) -> Expansion:
        """The groups that the lists make."""
        return read_expansion(self.subjects, self.templates, self.attributes, filler=self.filler, mask=mask)


@dataclass(frozen=True)
class Interventions:
    """advice

    Args:
        interventions: JSON {class: {category: [sentence, ...]}}.
        facts: plain facts of our own as the irrelevant advice, in place of the file's.
        domain: what the subjects are instances of (religion), and matched advice speaks of.
        mismatched: other domains' files: their ethical and adversarial advice, of any category, as classes of
            its own.
        no_advice: groups without any advice (class none).
        classes: classes of advice to use; by default all that the files hold.
        lead_in: words before the advice.
    """

    interventions: File | None = None
    facts: bool = False
    domain: str = ""
    mismatched: list[Annotated[str, "NAME=FILE"]] | None = None
    no_advice: bool = False
    classes: list[AdviceClass] | None = None
    lead_in: str = LEAD_IN

    def read(self) -> tuple[Advice, ...]:
        """The sentences."""
        if self.no_advice:
            return ()
        if self.mismatched and not self.domain:
            raise DataError("--mismatched: name the subjects' own domain too, as --domain religion")
        wanted = self.classes or [*CLASSES, *(MISMATCHED if self.mismatched else ())]
        domain = category_name(self.domain)
        own = [name for name in wanted if name in CLASSES and not (self.facts and name == "irrelevant")]
        other = [name for name in MISMATCHED if name in wanted]
        if own and self.interventions is None:
            raise DataError(
                "--interventions: give the file of advice sentences, or --no-advice to do without"
            )
        if other and not self.mismatched:
            raise DataError(f"--classes: {other[0]} needs --mismatched NAME=FILE, another domain's advice")
        advice: list[Advice] = []
        for item in read_advice(self.interventions, own) if self.interventions and own else ():
            advice.append(replace(item, domain="" if item.advice_class == "irrelevant" else domain))
        if self.facts and "irrelevant" in wanted:
            advice += plain_facts()
        for text in self.mismatched or ():
            name, equals, path = text.partition("=")
            name = category_name(name)
            if not equals or not name or "|" in name or not path:
                raise DataError(f"--mismatched: write NAME=FILE, as gender=gender.json, not {text!r}")
            if name in (domain, *(item.domain for item in advice if item.everywhere)):
                raise DataError(f"--mismatched: {name} is the subjects' domain, or given twice")
            advice += mismatched_advice(name, path, other)
        return tuple(advice)


@dataclass(frozen=True)
class Selection:
    """which groups

    Args:
        like: only subjects, attributes and advice that this file of groups has.
        exclude: leave out the groups (keys) of these files.
        disjoint_from: leave out subjects, attributes and advice of these files.
        split: only the parts of this split; splits share nothing but templates.
        split_sizes: proportions of train, dev and test.
        per_class: sample N groups of each class; all by default.
        seed: seed of --split and --per-class.
    """

    like: File | None = None
    exclude: list[File] | None = None
    disjoint_from: list[File] | None = None
    split: Literal["train", "dev", "test"] | None = None
    split_sizes: tuple[int, int, int] = (4, 3, 4)
    per_class: Count | None = None
    seed: int = 0

    def groups(
        self, expansion: Expansion, advice: tuple[Advice, ...], lead_in: str, *, unadvised: bool = False
    ) -> Iterator[Group]:
        """The groups, with `unadvised` some without advice too; nothing is built before it is drawn."""
        if advice:
            sets.check_categories(expansion, advice)
        advised = bool(advice)
        if self.split:
            parts = sets.split_parts(expansion, advice, seed=self.seed, weights=self.split_sizes)
            expansion, advice = sets.restrict(expansion, advice, to=parts[self.split])
        forbidden = [sets.parts_of(read_groups(source)) for source in self.disjoint_from or ()]
        expansion, advice = sets.restrict(expansion, advice, without=forbidden)
        if self.like:
            wanted = sets.parts_of(read_groups(self.like))
            wanted = replace(wanted, advice_ids=_wanted_advice(wanted.advice_ids, advice))
            sets.check_known(wanted, expansion, advice if advised else None, f"--like {self.like}")
            expansion, advice = sets.restrict(expansion, advice, to=wanted)
        about: dict[str, list[Advice]] = {"": []}  # the file's own, then what speaks of each other domain
        for item in advice:
            about.setdefault(item.domain if item.advice_class in MISMATCHED else "", []).append(item)
        pools = [sets.advised_pools(expansion, items, lead_in) for items in about.values()]
        if not advised or unadvised:
            pools[0]["none"] = expansion
        counts: list[int | None] = [self.per_class] * len(pools)
        if self.per_class:  # a domain with more sentences than another must not prevail
            counts[1:] = sets.shares(self.per_class, len(pools) - 1)
        held_out = sets.HeldOut(group for source in self.exclude or () for group in read_groups(source))
        if not any(len(pool) for some in pools for pool in some.values()):
            raise DataError(
                "no group is left: the restrictions exclude every subject pair, attribute or advice"
            )
        for some, count in zip(pools, counts, strict=True):
            yield from sets.sample(some, count, seed=self.seed, exclude=held_out)


def _wanted_advice(liked: frozenset[str] | None, advice: tuple[Advice, ...]) -> frozenset[str] | None:
    """The ids of `advice` that a file with the ids `liked` allows; None, all, for a file without any.

    The file says nothing about classes that are not asked for, nor about facts and other domains' advice that
    it does not know.
    """
    if not liked:
        return None
    matched = tuple({f"{item.advice_class}_" for item in advice if not item.everywhere})
    everywhere = {item.id: item.id.rpartition("-")[0] for item in advice if item.everywhere}
    known = {name.rpartition("-")[0] for name in liked}
    wanted = {name for name in liked if name.startswith(matched) or name in everywhere}
    return frozenset(wanted | {name for name, stem in everywhere.items() if stem not in known})


def write_unqover(
    *,
    output: Path,
    overwrite: bool = False,
    lists: WordLists,
    mask: Annotated[str, "TOKEN"] | None = None,
) -> str:
    """Write UnQover's source.json from word lists.

    example:
      interventune data unqover --subjects nouns/subjects/religion --templates slots/religion_noact \\
          --attributes activities/biased_religion --output source.json

    Args:
        output: file to write.
        overwrite: replace the output if it exists.
        mask: put in place of [mask] in language-model templates.
    """
    refuse_existing(output, overwrite=overwrite)
    records = write_source(lists.expansion(mask), output)
    return f"{output}: {records} records, {2 * records} questions, {records // 2} groups"


def write_groups(
    *,
    output: Path,
    overwrite: bool = False,
    lists: WordLists,
    advice: Interventions,
    selection: Selection,
    specified: File | None = None,
    gold: Literal["balanced", "first", "second"] = "balanced",
    qa_output: Path | None = None,
) -> str:
    """Write a LEI file from word lists and interventions.

    examples:
      400 groups a class, of parts that no group of train.json has:
        interventune data lei --subjects nouns/subjects/religion --templates slots/religion_noact \\
            --attributes activities/biased_religion --interventions religion_interventions.json \\
            --disjoint-from train.json --per-class 400 --output test.json
      the test third of everything:  ... --split test --output test.json
      held-out keys of the same parts:  ... --like train.json --exclude train.json --output held_out.json

    Args:
        output: file to write.
        overwrite: replace the outputs if they exist.
        specified: TSV: attribute, sentence with [subj] that decides the question.
        gold: with --specified: whom the sentence names (first, second: of two subject lists).
        qa_output: with --specified: also write questions with answers, as SQuAD.
    """
    refuse_existing(output, qa_output, overwrite=overwrite)
    unadvised = "none" in (advice.classes or ())
    made = selection.groups(lists.expansion(), advice.read(), advice.lead_in, unadvised=unadvised)
    groups = (replace(group, domain=category_name(advice.domain)) for group in made)
    if specified is None:
        return summary(output, write_lei(groups, output))
    sentences = specifying.read_sentences(specified)
    names = {subject.name.lower() for subject in read_subjects(lists.subjects[0])}
    first_list = names if len(lists.subjects) == 2 else set()
    plain = list(groups)
    known = {attribute.name.lower() for attribute in read_attributes(lists.attributes)}
    specifying.check_sentences(sentences, {group.attribute for group in plain}, known, specified)
    items = list(specifying.specify_all(plain, sentences, gold=gold, first_list=first_list))
    written = summary(output, write_lei((item.group for item in items), output))
    if qa_output is None:
        return written
    questions = write_squad(specifying.gold_examples(items), qa_output)
    return f"{written}; {qa_output}: {questions} questions with answers"


def write_domains(*, output: Path, overwrite: bool = False, which: DomainSet) -> str:
    """Write a LEI file of everyday domains (instruments, towns, diets), or your own, with advice.

    examples:
      512 groups a class about 32 domains, half of whose wordings are held out:
        interventune data domains --number 32 --groups 3072 --split train --split-by wording \\
            --output train.json
      groups of your own domains, with advice of their nearest neighbours as the mismatched one:
        interventune data domains --domains mine.yaml --mismatched near --groups 600 --output mine.json

    Args:
        output: file to write.
        overwrite: replace the output if it exists.
    """
    refuse_existing(output, overwrite=overwrite)
    groups = list(draw(which))
    domains = len({group.domain for group in groups})
    sentences = len({group.variants[0].advice for group in groups} - {""})
    return f"{summary(output, write_lei(groups, output))}; {domains} domains, {sentences} sentences"


def write_stories(
    *, output: Path, overwrite: bool = False, split: str, kind: Literal["qa", "groups"], seed: int = 0
) -> str:
    """Write the embedded data to a file.

    example:
      interventune data stories --split dev --kind groups --seed 0 --output stories_dev.json

    Args:
        output: file to write.
        overwrite: replace the output if it exists.
        split: split of the embedded data, such as train or dev.
        kind: questions (SQuAD) or groups (LEI).
        seed: seed of the generator.
    """
    refuse_existing(output, overwrite=overwrite)
    source = f"stories:{split}?seed={seed}"
    if kind == "qa":
        return f"{output}: {write_squad(read_questions(source), output)} questions"
    return summary(output, write_lei(read_groups(source), output))


def summary(output: Path, counts: Counter[str]) -> str:
    """How many groups of which classes a file got."""
    classes = ", ".join(f"{count} {name}" for name, count in counts.items())
    return f"{output}: {counts.total()} groups ({classes})"
