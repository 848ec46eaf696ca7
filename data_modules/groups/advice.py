"""LEI's interventions, which are ethical, adversarial or irrelevant advice, and its groups (Zhao et
al. 2021, section 2.2).

A file is one JSON object `{class: {category: [sentence, ...]}}`; advice applies to groups of its
category.
"""

import hashlib
import logging
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from interventune.data_modules.schema.groups import LEAD_IN, AdviceClass, Group
from interventune.storage.documents import load_json
from interventune.storage.files import StrPath

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Advice:
    """One sentence of advice; `number` is its index in the file's list."""

    advice_class: AdviceClass
    category: str
    number: int
    sentence: str

    @property
    def id(self) -> str:
        """`{class}_{category}-{number}`, as in LEI's keys."""
        return f"{self.advice_class}_{self.category}-{self.number}"

    @property
    def text(self) -> str:
        """The text before a question: the lead-in, then the sentence with a lower-case first
        letter.
        """
        return f"{LEAD_IN}{self.sentence[0].lower()}{self.sentence[1:]}"


def read_advice(path: StrPath) -> tuple[Advice, ...]:
    """Read the advice in file order, without NaN (the authors' empty cells), null and empty text.

    Irrelevant sentences beyond a category's number of ethical ones are left out, with a warning, as
    in LEI's released files: the second eight of religion are about religion.
    """
    kind = dict[
        Literal["ethical", "adversarial", "irrelevant"], dict[str, list[str | float | None]]
    ]
    file = load_json(path, kind)
    surplus = list[Any]()
    for category, sentences in file.get("irrelevant", {}).items():
        most = len(file.get("ethical", {}).get(category, sentences))
        surplus += sentences[most:]
        del sentences[most:]
    if surplus:
        logger.warning(
            "%s: left out %d irrelevant sentences beyond the number of ethical ones",
            path,
            len(surplus),
        )
    return tuple(
        Advice(name, category.strip().lower(), number, sentence.strip())
        for name, categories in file.items()
        for category, sentences in categories.items()
        for number, sentence in enumerate(sentences)
        if isinstance(sentence, str) and sentence.strip()
    )


def with_advice(group: Group, text: str, advice_class: AdviceClass, advice_id: str) -> Group:
    """Put `text`, of no domain, before the questions of all four variants."""
    variants: Any = tuple(replace(variant, advice=text) for variant in group.variants)
    return replace(
        group, variants=variants, advice_class=advice_class, advice_id=advice_id, advice_domain=""
    )


def with_unadvised(groups: list[Group]) -> list[Group]:
    """Add a copy without advice, as class `none`, of every group, unless some groups already have
    none.
    """
    if any(group.advice_class == "none" for group in groups):
        return groups
    return groups + unadvised(groups)


def unadvised(groups: Iterable[Group]) -> list[Group]:
    """Return every distinct group without its advice, as class `none`, in order of first
    appearance.
    """
    first: dict[str, Group] = {}
    for group in groups:
        first.setdefault(group.unadvised_key, group)
    return [with_advice(group, "", "none", "") for group in first.values()]


def spread(groups: Sequence[Group], per_class: int) -> list[Group]:
    """Return at most `per_class` groups of each class of advice, evenly spread over the file;
    without advice, the groups with the same questions, or as many others.
    """
    members_of = by_class(groups)
    bare = members_of.pop("none", [])
    chosen = [i for members in members_of.values() for i in evenly(members, per_class)]
    questions = {groups[i].unadvised_key for i in chosen}
    same = [i for i in bare if groups[i].unadvised_key in questions]
    others = [i for i in bare if groups[i].unadvised_key not in questions]
    chosen += same + evenly(others, per_class - len(same))
    return [groups[i] for i in chosen]


def evenly(members: Sequence[int], most: int) -> list[int]:
    """Return at most that many members, evenly spaced: four of 0 to 9 are 0, 2, 5, 7."""
    step = max(1.0, len(members) / max(1, most))
    return [members[int(i * step)] for i in range(min(most, len(members)))]


def by_class(groups: Sequence[Group]) -> dict[AdviceClass, list[int]]:
    """Return the indices of the groups of each class."""
    members = defaultdict(list)
    for i, group in enumerate(groups):
        members[group.advice_class].append(i)
    return members


def latent_strength(subject: str, category: str, seed: int) -> float:
    """The planted strength of a subject in a category of attributes ("" for all), uniform in [0,
    1): a function of names and seed, so it is defined for any file of groups.
    """
    digest = hashlib.sha256(f"{seed}|{subject.lower()}|{category}".encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2**64
