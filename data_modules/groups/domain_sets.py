"""Groups drawn from domains: how many domains, which classes of advice, which splits.

    for group in draw(DomainSet(number=32, groups=3072, split="train")): ...
    read_groups("domains:train?number=32&groups=3072&seed=1")          # the same, as a source

What differs between two sets is what their options name. Of one seed, fewer domains lie in more, and fewer
wordings in more; which split a domain, a wording or a name is in follows from its file alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from itertools import zip_longest
from random import Random
from typing import Annotated, Literal
from urllib.parse import parse_qsl
from zlib import crc32

from data_modules.groups import sets
from data_modules.groups.advice import Advice, drop_advice, with_advice
from data_modules.groups.domains import FACTS, Domain, Library, Wording, embedded_library, read_library
from data_modules.groups.unqover import Expansion
from data_modules.groups.word_lists import Subject
from data_modules.schema import ADVICE_CLASSES, LEAD_IN, NO_CLUSTER, AdviceClass, Group
from data_modules.sources import read_groups
from storage.command_line import Count
from storage.errors import DataError
from storage.json_files import check

_TRIES = 200
"""Draws in a row that give nothing new, after which a pool counts as empty."""


@dataclass(frozen=True)
class DomainSet:
    """which groups

    Args:
        groups: how many, spread evenly over the classes and, within each, over the domains.
        number: how many domains; all by default. Of one seed, fewer lie in more.
        classes: classes of advice; all six by default.
        wordings: at most N wordings of each kind of sentence, spread over its forms; all by default.
        names: the domains' own subjects, or invented words, drawn anew for every group.
        contexts: as they are, or behind a sentence that says which domain it is about (named).
        mismatched: whose advice mismatched advice is: any other domain's, or one's that resembles it (near).
        paired: ask the same questions in every class.
        split: only this split of what --split-by names.
        split_by: what no two splits share.
        split_sizes: proportions of train, dev and test.
        domains: your own domains (YAML); the embedded ones by default.
        exclude: leave out the groups (keys) of these files.
        disjoint_from: leave out the domains, subjects and advice of these files.
        lead_in: words before the advice.
        seed: seed of all draws but splits.
    """

    groups: Count = 3072
    number: Count | None = None
    classes: list[AdviceClass] | None = None
    wordings: Count | None = None
    names: Literal["fixed", "invented"] = "fixed"
    contexts: Literal["plain", "named"] = "plain"
    mismatched: Literal["any", "near"] = "any"
    paired: bool = False
    split: sets.Split | None = None
    split_by: Literal["domain", "wording", "name"] = "domain"
    split_sizes: tuple[int, int, int] = (2, 1, 1)
    domains: Annotated[str, "FILE"] | None = None
    exclude: list[Annotated[str, "FILE"]] | None = None
    disjoint_from: list[Annotated[str, "FILE"]] | None = None
    lead_in: str = LEAD_IN
    seed: int = 0

    def part(self, items: Sequence[str], by: str) -> list[str]:
        """Those of `items` that are in the split, if that is `by` them."""
        if self.split is None or self.split_by != by:
            return list(items)
        if len(self.split_sizes) != 3 or min(self.split_sizes) < 0 or not any(self.split_sizes):
            raise DataError(
                f"--split-sizes: expected three numbers of at least 0, not all 0, found {self.split_sizes}"
            )
        placed = sets.apportion(items, self.split_sizes, Random(f"{by}/{'/'.join(items)}"))
        return [item for item in items if placed[item] == self.split]


def read_source(source: str) -> Iterator[Group]:
    """The groups of `domains:SPLIT?OPTION=VALUE&...`; the split is train, dev, test or all."""
    split, _, rest = source.removeprefix("domains:").partition("?")
    options: dict[str, object] = dict(parse_qsl(rest, keep_blank_values=True))
    known = [field.name for field in fields(DomainSet)]
    if unknown := set(options) - set(known):
        raise DataError(f"{source}: no option {min(unknown)!r}; choose from {', '.join(known)}")
    if split not in ("all", *sets.SPLITS):
        raise DataError(f"{source}: write domains:SPLIT, which is all, {', '.join(sets.SPLITS)}")
    for name in {"classes", "exclude", "disjoint_from", "split_sizes"} & set(options):
        options[name] = str(options[name]).split(",")
    chosen = check(options | {"split": None if split == "all" else split}, DomainSet, source)
    for name in ("groups", "number", "wordings"):
        if (value := getattr(chosen, name)) is not None and value < 1:
            raise DataError(f"{source}: {name} must be at least 1, found {value}")
    yield from draw(chosen)


def draw(options: DomainSet) -> Iterator[Group]:
    """The groups, in random order.

    Raises:
        DataError: fewer domains, names, wordings or groups than are asked for.
    """
    library = read_library(options.domains) if options.domains else embedded_library()
    others = [list(read_groups(source)) for source in options.disjoint_from or ()]
    without = [sets.parts_of(groups) for groups in others]
    named = {name for groups in others for group in groups for name in (group.domain, group.advice_domain)}
    listed = [name for name in options.part(list(library.domains), "domain") if name not in named]
    order = Random(f"{options.seed}/domains").sample(listed, len(listed))
    number = len(order) if options.number is None else options.number
    if not 0 < number <= len(order):
        raise DataError(f"--number: {number} domains are asked for, there are {len(order)} to choose from")
    # Nouns that are only ever mismatched would tell the class: they come from the chosen domains, if others.
    chosen = order[:number]
    pool = [library.domains[name] for name in (chosen if number > 1 else order)]
    drawer = _Drawer(library, options, without)
    held_out = sets.HeldOut(group for source in options.exclude or () for group in read_groups(source))
    classes: Sequence[AdviceClass] = list(dict.fromkeys(options.classes or ADVICE_CLASSES))
    drawn: dict[tuple[str, str], Group] = {}
    for advice_class, count in zip(classes, sets.shares(options.groups, len(classes)), strict=True):
        for name, share in zip(chosen, sets.shares(count, number), strict=True):
            domain = library.domains[name]
            made = drawer.groups(domain, advice_class, pool)
            found = failed = 0
            while found < share:
                group = next(made)
                # Questions that are asked in every class are left out of all or of none.
                asked = drop_advice(group) if options.paired else group
                identity = (advice_class, asked.key)
                failed = failed + 1 if identity in drawn or asked in held_out else 0
                if failed > _TRIES:
                    raise DataError(
                        f"--groups: domain {name!r}, class {advice_class!r}: {share} groups are asked for, "
                        f"{found} were found; ask for fewer, or exclude less"
                    )
                if not failed:
                    drawn[identity], found = group, found + 1
    result = list(drawn.values())
    Random(f"{options.seed}/order").shuffle(result)
    yield from result


class _Drawer:
    """Draws groups of a domain and class, without end."""

    def __init__(self, library: Library, options: DomainSet, without: Sequence[sets.Parts]) -> None:
        self.library, self.options, self.without = library, options, without
        self.known = {name.lower() for domain in library.domains.values() for name in domain.subjects}
        self.known_sentences = {sentence for parts in without for sentence in parts.sentences}
        self.numbers = cache(self._numbers)
        self.expansion = cache(self._expansion)

    def groups(self, domain: Domain, advice_class: AdviceClass, pool: Sequence[Domain]) -> Iterator[Group]:
        """Groups of one domain; advice that speaks of another one's noun takes it from `pool`."""
        options, expansion = self.options, self.expansion(domain.name)
        asked = "" if options.paired else advice_class
        questions = Random(f"{options.seed}/questions/{domain.name}/{asked}")
        advice = Random(f"{options.seed}/advice/{domain.name}/{advice_class}")
        others = [other for other in pool if other.name != domain.name]
        if options.mismatched == "near":
            others = [other for other in others if other.kin and other.kin == domain.kin] or others
        while True:
            pair = questions.choice(expansion.pairs)
            if options.names == "invented":
                pair = self._invented(questions, like=pair[0].name)
            cell = questions.choice(expansion.cells)
            opening, template = "", str(cell.template.number)
            if options.contexts == "named":
                i = questions.randrange(len(self.library.openings))
                opening = (
                    self.library.openings[i].replace("{noun}", domain.nouns[i % len(domain.nouns)]) + " "
                )
                template += f"+{i}"  # another context has another name
            group = Expansion([pair], [cell], opening)[0]
            group = replace(group, template=template, domain=domain.name)
            if advice_class == "none":
                yield group
            elif advice_class == "irrelevant":
                yield self._advised(group, advice_class, "irrelevant", None, advice)
            elif advice_class == "ethical" or advice_class == "adversarial":
                yield self._advised(group, advice_class, advice_class, domain, advice)
            elif others:
                wording: Wording = "ethical" if advice_class == "mismatched_ethical" else "adversarial"
                yield self._advised(group, advice_class, wording, advice.choice(others), advice)
            else:
                raise DataError(f"--classes: {advice_class} needs a second domain")

    def _advised(
        self, group: Group, advice_class: AdviceClass, wording: Wording, about: Domain | None, rng: Random
    ) -> Group:
        for _ in range(_TRIES):
            number = rng.choice(rng.choice(self.numbers(wording)))
            sentence = self.library.sentence(wording, number, about, group.category)
            name = about.name if about else FACTS
            advice = Advice(advice_class, name, number, sentence)
            if advice.text() not in self.known_sentences:
                advised = with_advice(group, advice.text(self.options.lead_in), advice_class, advice.id)
                return replace(advised, advice_domain=about.name if about else "")
        raise DataError("--disjoint-from: its advice leaves no wording")

    def _numbers(self, wording: Wording) -> list[list[int]]:
        """The wordings to draw from, by form."""
        options, forms = self.options, self.library.forms[wording]
        by_form: list[list[int]] = [[] for _ in forms]
        for number, (form, _) in enumerate(self.library.wordings[wording]):
            by_form[form].append(number)
        kept = set(options.part(forms, "wording"))
        listed = [numbers for text, numbers in zip(forms, by_form, strict=True) if text in kept]
        rng = Random(f"{options.seed}/wordings/{wording}")
        listed = [rng.sample(numbers, len(numbers)) for numbers in rng.sample(listed, len(listed))]
        # One of every form first, then the second of each: few wordings are as different as can be.
        rounds = [n for column in zip_longest(*listed) for n in column if n is not None]
        allowed = set(rounds[: options.wordings])
        numbers = [[n for n in numbers if n in allowed] for numbers in listed]
        if not any(numbers):
            raise DataError(f"--split: no {wording} wording falls to {self.options.split}")
        return [found for found in numbers if found]

    def _expansion(self, name: str) -> Expansion:
        domain = self.library.domains[name]
        subjects = self.options.part(domain.subjects, "name")
        named = {name.lower() for parts in self.without for name in parts.subjects or ()}
        left = [subject for subject in subjects if subject.lower() not in named]
        if len(left) < 2:
            raise DataError(
                f"domain {name!r}: the restrictions leave {len(left)} subject(s), which make no pair"
            )
        return domain.expansion(left)

    def _invented(self, rng: Random, like: str) -> tuple[Subject, Subject]:
        """Two words that no domain has, of this split, with a capital if `like` has one."""
        found: list[str] = []
        while len(found) < 2:
            word = rng.choice(_ONSETS)
            for _ in range(rng.choice((1, 2))):
                word += rng.choice("aeiou") + rng.choice(_MIDDLES)
            word += rng.choice(_ENDS)
            word = word.capitalize() if like[0].isupper() else word
            if word.lower() not in self.known and word not in found and self._in_split(word.lower()):
                found.append(word)
        one, two = (Subject(NO_CLUSTER, {"": word}) for word in found)
        return one, two

    def _in_split(self, word: str) -> bool:
        if self.options.split is None or self.options.split_by != "name":
            return True
        of_split = [
            name
            for name, size in zip(sets.SPLITS, self.options.split_sizes, strict=True)
            for _ in range(size)
        ]
        return of_split[crc32(word.encode()) % len(of_split)] == self.options.split


# All begin with a consonant, so that "a" is right; no real name or people comes out.
_ONSETS = (
    *("b", "br", "d", "dr", "f", "fl", "g", "gr", "k", "kr"),
    *("l", "m", "n", "p", "pl", "r", "t", "v", "w", "z"),
)
_MIDDLES = ("v", "z", "lm", "rn", "sk", "lt", "br", "nd", "gl", "tr")
_ENDS = ("ak", "eb", "ib", "ok", "ush", "az", "ev", "un", "im", "og")
