"""Domains as data: what people may be told apart by, how that stands in a sentence, and advice about it.

    library = embedded_library()    # about 70 everyday domains (domains.yaml, advice.yaml)
    library.domains["instrument"].expansion()    # its questions, as of UnQover's lists
    library.sentence("ethical", 17, library.domains["instrument"], "manners")

A domain is a noun (what advice calls it), subjects, and the phrases in which these stand. Attributes, which
the questions ask about, stand under the topic of advice that they belong to; domains share them. Advice comes
from a small grammar, into which the noun and the topic are put.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import combinations, product
from pathlib import Path
from typing import Annotated, Literal, NotRequired
from zlib import crc32

from pydantic import ConfigDict, Field, with_config
from typing_extensions import TypedDict

from data_modules.groups.advice import Advice
from data_modules.groups.unqover import Cell, Expansion, repair_articles
from data_modules.groups.word_lists import Attribute, Subject, Template, slot_order
from data_modules.schema import NO_CLUSTER
from storage.errors import DataError
from storage.json_files import check, load_yaml

EMBEDDED = tuple(Path(__file__).with_name(name) for name in ("domains.yaml", "advice.yaml"))

FACTS = "facts"
"""What the ids of irrelevant advice name."""

Wording = Literal["ethical", "adversarial", "irrelevant"]
"""What a sentence says, whatever it speaks of."""

_Text = Annotated[str, Field(pattern=r"^[^|.\n]*[^|.\s][^|.\n]*$")]
"""Part of a sentence; `|` divides the parts of keys, and a full stop ends advice."""
_Texts = Annotated[list[_Text], Field(min_length=1)]
_Contexts = Annotated[list[str], Field(min_length=1)]
_Forms = Annotated[list[Annotated[str, Field(pattern=r"^[^.\n]*\S[^.\n]*$")]], Field(min_length=1)]
_Pairs = Annotated[dict[_Text, _Text], Field(min_length=1)]
_Attributes = Annotated[dict[_Text, _Pairs], Field(min_length=1)]
_EXACT = ConfigDict(extra="forbid")


@with_config(_EXACT)
class _Domain(TypedDict):
    nouns: _Texts
    people: list[Annotated[str, Field(pattern=r"^[^|{}]*\{\}[^|{}]*$")]]
    subjects: Annotated[list[_Text], Field(min_length=2)]
    bare: NotRequired[_Texts]
    kin: NotRequired[str]
    contexts: NotRequired[_Contexts]
    attributes: NotRequired[_Attributes]


@with_config(_EXACT)
class _Topic(TypedDict):
    topic: _Texts
    whether: _Texts
    being: _Texts


@with_config(_EXACT)
class _Library(TypedDict):
    domains: Annotated[dict[_Text, _Domain], Field(min_length=1)]
    contexts: _Contexts
    openings: Annotated[list[Annotated[str, Field(pattern=r"\{noun\}")]], Field(min_length=1)]
    attributes: _Attributes
    topics: dict[str, _Topic]
    words: dict[str, _Texts]
    ethical: _Forms
    adversarial: _Forms
    irrelevant: _Forms


@dataclass(frozen=True)
class Domain:
    """What people are told apart by: `subjects` as texts; `kin`, the group of domains that resemble it."""

    name: str
    kin: str
    nouns: tuple[str, ...]
    bare: tuple[str, ...]
    subjects: tuple[str, ...]
    people: tuple[str, ...]
    contexts: tuple[str, ...]
    attributes: Mapping[str, Mapping[str, str]]

    def expansion(self, subjects: Sequence[str] | None = None) -> Expansion:
        """Every pair of subjects in every context, phrase and attribute; the category is the topic."""
        named = [Subject(NO_CLUSTER, {"": name}) for name in subjects or self.subjects]
        return Expansion(list(combinations(named, 2)), self.cells)

    @cached_property
    def cells(self) -> tuple[Cell, ...]:
        """What pairs of subjects are put into."""
        cells = []
        for number, (context, phrase) in enumerate(product(self.contexts, self.people)):
            for side in "12":
                context = context.replace(f"{{{side}}}", phrase.replace("{}", f"[subj{side}]"))
            template, order = Template(number, context, ("", "")), tuple(slot_order(context))
            for topic, attributes in self.attributes.items():
                for text, negation in attributes.items():
                    attribute = Attribute("p_act", topic, text, text, negation)
                    line = f"{context}\tWho {text}?\tWho {negation}?"
                    cells.append(Cell(template, attribute, line, order))
        return tuple(cells)


@dataclass(frozen=True)
class Library:
    """Domains, and the grammar of advice about them."""

    domains: Mapping[str, Domain]
    forms: Mapping[Wording, Sequence[str]]
    words: Mapping[str, Sequence[str]]
    topics: Mapping[str, _Topic]
    openings: Sequence[str]

    @cached_property
    def wordings(self) -> dict[Wording, list[tuple[int, str]]]:
        """Every wording of a class as (number of its form, sentence with the slots of noun and topic)."""
        return {
            name: [(i, text) for i, form in enumerate(forms) for text in _alternatives(form, self.words)]
            for name, forms in self.forms.items()
        }

    def sentence(self, wording: Wording, number: int, domain: Domain | None = None, topic: str = "") -> str:
        """One wording about a domain (none: a plain fact) and a topic, from a capital letter to the full
        stop. Which of the domain's nouns and of the topic's phrases it has follows from all three."""
        _, text = self.wordings[wording][number]
        phrases: dict[str, Sequence[str]] = {}
        if domain:
            about = self.topics[topic]
            phrases = {"noun": domain.nouns, "bare": domain.bare}
            phrases |= {"topic": about["topic"], "whether": about["whether"], "being": about["being"]}

        def fill(slot: re.Match[str]) -> str:
            name = slot[1]
            options = phrases[name]
            return options[crc32(f"{number}|{name}|{domain and domain.name}|{topic}".encode()) % len(options)]

        filled = repair_articles(re.sub(r"\{(\w+)\}", fill, text))
        return f"{filled[0].upper()}{filled[1:]}."


@cache
def embedded_library() -> Library:
    """Our own domains and advice."""
    return read_library()


def read_library(path: str | Path | None = None) -> Library:
    """The embedded domains and advice, or a file's, which may leave out all but `domains`: what it lacks is
    the embedded. DataError names the file and the field."""
    raw = {name: part for file in EMBEDDED for name, part in load_yaml(file, dict[str, object]).items()}
    where = str(path or EMBEDDED[0])
    if path is not None:
        raw |= {"domains": None} | load_yaml(path, dict[str, object])
    document = check(raw, _Library, where)
    domains: dict[str, Domain] = {}
    for name, given in document["domains"].items():
        place = f"{where}: domains.{name}"
        attributes = given.get("attributes", document["attributes"])
        contexts = given.get("contexts", document["contexts"])
        subjects = given["subjects"]
        if len({subject.lower() for subject in subjects}) < len(subjects):
            raise DataError(f"{place}.subjects: a subject occurs twice")
        if unknown := [topic for topic in attributes if topic not in document["topics"]]:
            raise DataError(f"{place}: no advice speaks of the topic {unknown[0]!r}; add it to 'topics'")
        for context in contexts:
            if any(context.count(slot) != 1 for slot in ("{1}", "{2}")):
                raise DataError(f"{place}: the context {context!r} needs {{1}} and {{2}}, each once")
        nouns, kin = tuple(given["nouns"]), given.get("kin", "")
        bare, people = tuple(given.get("bare", nouns)), tuple(given["people"])
        domains[name] = Domain(name, kin, nouns, bare, tuple(subjects), people, tuple(contexts), attributes)
    forms: dict[Wording, Sequence[str]] = {
        "ethical": document["ethical"],
        "adversarial": document["adversarial"],
        "irrelevant": document["irrelevant"],
    }
    library = Library(domains, forms, document["words"], document["topics"], document["openings"])
    for wording, listed in library.wordings.items():
        slots = {"noun", "bare", "topic", "whether", "being"} if wording != "irrelevant" else set()
        for i, text in listed:
            if unknown_slots := set(re.findall(r"\{([^}]*)\}", text)) - slots:
                raise DataError(
                    f"{where}: {wording}[{i}]: {{{min(unknown_slots)}}} is no slot of such advice"
                )
    return library


def plain_facts() -> list[Advice]:
    """The embedded facts as irrelevant advice for groups of any category."""
    library = embedded_library()
    numbers = range(len(library.wordings["irrelevant"]))
    texts = (library.sentence("irrelevant", number) for number in numbers)
    return [Advice("irrelevant", FACTS, i, text, everywhere=True) for i, text in enumerate(texts)]


def _alternatives(form: str, words: Mapping[str, Sequence[str]]) -> list[str]:
    """Every text of a form: (one|two) and {name of words} stand for any of theirs."""
    for name, texts in words.items():
        form = form.replace(f"{{{name}}}", f"({'|'.join(texts)})")
    parts = re.split(r"\(([^()]*)\)", form)
    choices = [part.split("|") if i % 2 else [part] for i, part in enumerate(parts)]
    return ["".join(chosen) for chosen in product(*choices)]
