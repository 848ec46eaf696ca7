"""The text put before a prompt for debiasing, and for its controls (Morabito et al. 2023, sections
4 and 5).

Self-debiasing gets several descriptions of bad text, one prefix each; instructive debiasing one
instruction. `original` is against bias, `opposite` for it, `nonsense` is random characters in the
same form, and `blank` is empty. The wordings in own.json are this project's; another file of that
form replaces them.

`separator` is put between a filled template and the prompt; the two are joined before tokenisation.
`blank` is put before the prompt unchanged (instructive: with the separator); that of self-debiasing
is a space, as an empty one would change nothing. `nonsense`, optional, lists the random texts,
replacing the seeds: a list for each group.
"""

import random
import string
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

from pydantic import Field

from interventune.metrics.consistency import Variant
from interventune.storage.documents import DataError, load_json

Method = Literal["self", "instructive"]

OWN = Path(__file__).with_name("own.json")
"""This project's wordings, in the form of the papers'."""
ALPHABET = string.ascii_lowercase + string.digits + ";-"


@dataclass(frozen=True)
class Specifications:
    """The texts of one method, before they are put into their template, which contains {} once."""

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid"}

    template: Annotated[str, Field(pattern=r"^[^{}]*\{\}[^{}]*$")]
    separator: str
    original: Annotated[tuple[str, ...], Field(min_length=1)]
    opposite: Annotated[tuple[str, ...], Field(min_length=1)]
    blank: Annotated[str, Field(min_length=1)]
    nonsense: tuple[tuple[str, ...], ...] = ()
    """Given groups; empty: made from seeds."""

    def filled(self, texts: Sequence[str]) -> tuple[str, ...]:
        """Return the strings to put before a prompt, one for each text."""
        return tuple(self.template.replace("{}", text) + self.separator for text in texts)


def nonsense_group(seed: int, count: int) -> tuple[str, ...]:
    """Make `count` pieces, 15 to 45 characters long, of one string of 512 random characters, a
    sixth of them spaces; a seed gives the same everywhere. The paper describes the procedure
    (section 5.3); alphabet and lengths are this project's.

    >>> nonsense_group(0, 2)
    ('w2 a jt 1 90s  8d atn  j904yi0a', 'cq ;qla8 sw   ek27;;dzo7 yqchyqho6g3')
    """
    chance = random.Random(f"nonsense {seed}")
    master = "".join(
        " " if chance.random() < 1 / 6 else ALPHABET[chance.randrange(len(ALPHABET))]
        for _ in range(512)
    )
    pieces = []
    for _ in range(count):
        length = chance.randint(15, 45)
        start = chance.randrange(len(master) - length + 1)
        pieces.append(master[start : start + length])
    return tuple(pieces)


class Part(NamedTuple):
    """The text before all prompts of one variant: prefixes (self), an instruction, or nothing."""

    variant: Variant
    texts: tuple[str, ...] = ()
    group: int | None = None
    """Number of the group of nonsense."""


def parts_of(method: Method, path: str | Path, groups: int) -> list[Part]:
    """Return all parts of a method, from the texts of a file: default, original, opposite, every
    group of nonsense, blank. Nonsense is as the file gives it, or `groups` groups from the seeds 0,
    1, ... DataError names file and field.
    """
    content = load_json(path, dict[Method, Specifications])
    if method not in content:
        raise DataError(f"{path}: the field {method!r} is missing")
    texts = content[method]
    nonsense = texts.nonsense or [
        nonsense_group(seed, len(texts.original)) for seed in range(groups)
    ]
    separator = texts.separator if method == "instructive" else ""
    return [
        Part("default"),
        Part("original", texts.filled(texts.original)),
        Part("opposite", texts.filled(texts.opposite)),
        *(Part("nonsense", texts.filled(group), number) for number, group in enumerate(nonsense)),
        Part("blank", (texts.blank + separator,)),
    ]
