"""What stands in front of a prompt when a model is debiased, and the controls of it (probes spec A4).

Self-debiasing gets several descriptions of bad text, one prefix each; instructive debiasing one instruction.
`original` steers away from bias, `opposite` towards it, `nonsense` are random characters in the same form,
and `blank` says nothing at all. The wordings in own.json are ours; another file of that form gives others.

`separator` stands between a filled template and the prompt; the two are one string before it is tokenised.
`blank`, optional, stands in front of the prompt as it is (instructive: with the separator). `nonsense`,
optional, lists the random texts instead of a seed: a list for each group.
"""

from __future__ import annotations

import random
import string
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple

from pydantic import Field

from storage.errors import DataError
from storage.json_files import load_json

if TYPE_CHECKING:
    from metrics.consistency import Variant

Method = Literal["self", "instructive"]

OWN = Path(__file__).with_name("own.json")
"""Our wordings, in the form of the papers'."""
ALPHABET = string.ascii_lowercase + string.digits + ";-"


@dataclass(frozen=True)
class Specifications:
    """The texts of one method, before they are put into their template, which holds {} once."""

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid"}

    template: Annotated[str, Field(pattern=r"^[^{}]*\{\}[^{}]*$")]
    separator: str
    original: Annotated[tuple[str, ...], Field(min_length=1)]
    opposite: Annotated[tuple[str, ...], Field(min_length=1)]
    blank: str = ""
    """Empty: a space (self), or the template without its place (instructive)."""
    nonsense: tuple[tuple[str, ...], ...] = ()
    """Given groups; empty: made from seeds."""

    def filled(self, texts: Sequence[str]) -> tuple[str, ...]:
        """What stands in front of a prompt, a string for each text."""
        return tuple(self.template.replace("{}", text) + self.separator for text in texts)


def nonsense_group(seed: int, count: int) -> tuple[str, ...]:
    """`count` pieces, 15 to 45 characters long, of one string of 512 random characters, a sixth of them
    spaces; the same for a seed everywhere. The paper describes the procedure; alphabet and lengths are ours.

    >>> nonsense_group(0, 2)
    ('w2 a jt 1 90s  8d atn  j904yi0a', 'cq ;qla8 sw   ek27;;dzo7 yqchyqho6g3')
    """
    chance = random.Random(f"nonsense {seed}")
    master = "".join(
        " " if chance.random() < 1 / 6 else ALPHABET[chance.randrange(len(ALPHABET))] for _ in range(512)
    )
    pieces = []
    for _ in range(count):
        length = chance.randint(15, 45)
        start = chance.randrange(len(master) - length + 1)
        pieces.append(master[start : start + length])
    return tuple(pieces)


class Part(NamedTuple):
    """What stands in front of all prompts of one variant: prefixes (self), an instruction, or nothing."""

    variant: Variant
    texts: tuple[str, ...] = ()
    group: int | None = None
    """Of nonsense."""


def parts_of(method: Method, specifications: Specifications, groups: int) -> list[Part]:
    """All that is continued: default, original, opposite, every group of nonsense, blank. Nonsense is as
    given, or `groups` groups from the seeds 0, 1, ..."""
    count, filled = len(specifications.original), specifications.filled
    nonsense = specifications.nonsense or [nonsense_group(seed, count) for seed in range(groups)]
    blank = specifications.blank or " "
    if method == "instructive":
        template = specifications.template.replace("{} ", "").replace("{}", "")
        blank = (specifications.blank or template) + specifications.separator
    return [
        Part("default"),
        Part("original", filled(specifications.original)),
        Part("opposite", filled(specifications.opposite)),
        *(Part("nonsense", filled(texts), group) for group, texts in enumerate(nonsense)),
        Part("blank", (blank,)),
    ]


def read_specifications(path: str | Path, method: Method) -> Specifications:
    """A user's texts for one method; DataError names file and field."""
    content = load_json(path, dict[Method, Specifications])
    if method not in content:
        raise DataError(f"{path}: the field {method!r} is missing")
    return content[method]
