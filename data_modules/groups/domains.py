"""Everyday domains: traits that people may be judged by, their wording in sentences, and advice
about them.

    read_groups("domains:train?number=32&groups=3072&seed=1")

Domains and attributes are in domains.yaml, the grammar of advice in advice.yaml. With one seed,
smaller numbers of domains or wordings are subsets of larger ones; a domain's split depends only on
its file.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, count, islice, product, zip_longest
from random import Random
from typing import Annotated, Literal
from urllib.parse import parse_qsl
from zlib import crc32

import numpy as np
from annotated_types import Le
from pydantic import BaseModel, PositiveInt, with_config

from interventune.data_modules.schema.groups import ADVICE_CLASSES, Advice, AdviceClass, Group
from interventune.storage.documents import DataError, Values, check, load_yaml, own_yaml

from .unqover import Cell, Subject, repair_articles

Split = Literal["train", "dev", "test"]

_TRIES = 200  # consecutive draws without a new item after which a pool counts as empty
_ELSEWHERE = {"irrelevant": "ethical", "mismatched_adversarial": "adversarial"}
"""Classes of advice about another domain, and their kind of sentence."""
_Wordings = list[list[tuple[int, str]]]  # by form: (number, text with slots for noun and topic)


class _Domain(BaseModel, extra="forbid"):
    nouns: list[str]  # its names in advice
    people: list[str]  # phrases that contain the subjects
    subjects: list[str]
    bare: list[str] = []


class _Library(BaseModel, extra="forbid"):
    domains: dict[str, _Domain]
    contexts: list[str]
    attributes: dict[str, dict[str, str]]  # by topic; shared by domains
    topics: dict[str, dict[str, list[str]]]
    words: dict[str, list[str]]
    ethical: list[str]
    adversarial: list[str]
    facts: list[str]


@with_config(extra="forbid")
@dataclass(frozen=True)
class DomainSet:
    """Selection of groups; None means no limit."""

    split: Split | None = None  # split of the domains
    groups: Annotated[PositiveInt, Le(10**5)] = 3072  # even over classes, then domains
    number: PositiveInt | None = None  # number of domains
    classes: list[AdviceClass] | None = None
    wordings: PositiveInt | None = None  # limit per kind of sentence, spread over its forms
    domains: str = ""  # your own YAML file; missing parts are the built-in ones
    seed: int = 0  # seed of all draws except splits


def read_source(source: str) -> list[Group]:
    """Return the groups of `domains:SPLIT?OPTION=VALUE&...`; the split is a Split or all."""
    split, _, rest = source.removeprefix("domains:").partition("?")
    options: Values = dict(parse_qsl(rest, keep_blank_values=True))
    options["split"] = None if split == "all" else split
    if "classes" in options:
        options["classes"] = options["classes"].split(",")
    return draw(check(options, DomainSet, source))


def draw(options: DomainSet) -> list[Group]:
    """Return the groups in random order. DataError if there are fewer domains or groups than
    requested.
    """
    library = read_library(options.domains)
    names = list(library.domains)
    if options.split:
        split_of = _splits(names)
        names = [name for name in names if split_of[name] == options.split]
    order = Random(f"{options.seed}/domains").sample(names, len(names))
    if (options.number or 0) > len(order):
        raise DataError(
            f"domains: number={options.number}, but there are {len(order)} to choose from"
        )
    chosen = order[: options.number]
    # Nouns that occur only in other domains' advice would reveal the class: prefer the chosen.
    pool = chosen if len(chosen) > 1 else order
    classes = list(dict.fromkeys(options.classes or ADVICE_CLASSES))
    sizes = np.array_split(range(options.groups), len(classes))
    drawn: dict[str, Group] = {}
    for advice_class, of_class in zip(classes, sizes, strict=True):
        wordings = _wordings(library, _ELSEWHERE.get(advice_class, advice_class), options)
        for name, share in zip(chosen, np.array_split(of_class, len(chosen)), strict=True):
            candidates = _groups(library, wordings, name, advice_class, pool, options.seed)
            for _ in share:
                new = (group for group in islice(candidates, _TRIES) if group.key not in drawn)
                group = next(new, None)
                if group is None:
                    raise DataError(
                        f"domains: {name} has fewer than {len(share)} groups of class "
                        f"{advice_class}"
                    )
                drawn[group.key] = group
    groups = list(drawn.values())
    Random(f"{options.seed}/order").shuffle(groups)
    return groups


def _splits(domains: Sequence[str]) -> dict[str, Split]:
    """Half of the domains in train, a quarter each in dev and test (largest remainder, random
    ties).
    """
    random = Random(f"domain/{'/'.join(domains)}")
    size = len(domains)
    shares: dict[Split, float] = {"train": size / 2, "dev": size / 4, "test": size / 4}
    counts = Counter({split: int(share) for split, share in shares.items()})
    order = sorted(counts, key=lambda split: (counts[split] - shares[split], random.random()))
    counts.update(order[: size - counts.total()])
    return dict(zip(random.sample(domains, size), counts.elements(), strict=True))


def _groups(
    library: _Library,
    wordings: _Wordings,
    name: str,
    advice_class: AdviceClass,
    pool: list[str],
    seed: int,
) -> Iterator[Group]:
    """Groups of one domain and class, without end; advice about another domain speaks of one of
    `pool`.
    """
    questions = Random(f"{seed}/questions/{name}/{advice_class}")
    rng = Random(f"{seed}/advice/{name}/{advice_class}")
    domain = library.domains[name]
    subjects = [Subject({"": text}) for text in domain.subjects]
    pairs = list(combinations(subjects, 2))
    cells = list(_cells(library, domain))
    others = [other for other in pool if other != name]
    if advice_class in _ELSEWHERE and not others:
        raise DataError(f"domains: classes: {advice_class} needs a second domain")
    while True:
        pair = questions.choice(pairs)
        cell = questions.choice(cells)
        about = ""
        if advice_class != "none":
            if advice_class != "facts":
                about = rng.choice(others) if advice_class in _ELSEWHERE else name
            number, text = rng.choice(rng.choice(wordings))
            sentence = _sentence(library, text, number, about, cell.category.lower())
            cell = replace(cell, advice=Advice(advice_class, about or "facts", number, sentence))
        yield replace(cell.group(*pair), domain=name, advice_domain=about)


def _cells(library: _Library, domain: _Domain) -> Iterator[Cell]:
    for number, (context, phrase) in enumerate(product(library.contexts, domain.people)):
        for side in "12":
            context = context.replace(f"{{{side}}}", phrase.replace("{}", f"[subj{side}]"))
        for topic, attributes in library.attributes.items():
            for text, negation in attributes.items():
                yield Cell(number, topic, text, f"{context}\tWho {text}?\tWho {negation}?")


def _wordings(library: _Library, kind: str, options: DomainSet) -> _Wordings:
    """The wordings to draw from; without advice there are none."""
    numbers = count()
    forms = [
        [(next(numbers), text) for text in _alternatives(form, library.words)]
        for form in getattr(library, kind, ())
    ]
    rng = Random(f"{options.seed}/wordings/{kind}")
    forms = [rng.sample(wordings, len(wordings)) for wordings in rng.sample(forms, len(forms))]
    # First one of every form, then the second of each, so that few wordings differ as much as
    # possible.
    rounds = [wording for column in zip_longest(*forms) for wording in column if wording]
    allowed = set(rounds[: options.wordings])
    forms = [[wording for wording in wordings if wording in allowed] for wordings in forms]
    return [wordings for wordings in forms if wordings]


def _sentence(library: _Library, text: str, number: int, name: str, topic: str) -> str:
    """A wording about a domain ("": a plain fact) and a topic, with its full stop."""
    phrases = dict(library.topics.get(topic, {}))
    if domain := library.domains.get(name):
        phrases |= {"noun": domain.nouns, "bare": domain.bare or domain.nouns}

    def fill(slot: re.Match[str]) -> str:
        if slot[1] not in phrases:
            raise DataError(f"domains: nothing fills {slot[0]} in {text!r} for the topic {topic}")
        options = phrases[slot[1]]
        return options[crc32(f"{number}|{slot[1]}|{name}|{topic}".encode()) % len(options)]

    return repair_articles(re.sub(r"\{(\w+)\}", fill, text)) + "."


def read_library(path: str = "") -> _Library:
    """Read the built-in domains and advice, replaced where a file defines its own."""
    library = own_yaml(__file__, Values) | own_yaml(__file__, Values, "advice.yaml")
    if path:
        library |= load_yaml(path, Values)
    return check(library, _Library, path or "domains.yaml")


def _alternatives(form: str, words: dict[str, list[str]]) -> list[str]:
    """Every text of a form: (one|two) and {name of words} stand for any of theirs."""
    for name, texts in words.items():
        form = form.replace(f"{{{name}}}", f"({'|'.join(texts)})")
    parts = re.split(r"\(([^()]*)\)", form)
    choices = [part.split("|") if i % 2 else [part] for i, part in enumerate(parts)]
    return ["".join(chosen) for chosen in product(*choices)]
