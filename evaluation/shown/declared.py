"""What is data in the declaration of a protocol, from a YAML file next to its module."""

from typing import Any

from typing_extensions import TypedDict

from interventune.evaluation.statistics import Statistic
from interventune.storage.documents import own_yaml

from .figures import Lines, Points
from .views import Said, View


class Declaration(TypedDict, total=False):
    """The file: arguments of `Protocol`."""

    title: str
    unit: str | tuple[str, ...]
    units: str
    item: tuple[str, ...]
    more: tuple[str, ...]
    by: tuple[str, ...]
    cells: list[tuple[str, ...]]
    compared: tuple[str, ...]
    measures: dict[str, str | Statistic]
    failures: str
    tallies: dict[str, str]
    console: int
    views: list[View]
    points: dict[str, Points]
    """Figures by the name of their file, before `lines`."""
    lines: dict[str, Lines]
    headline: list[Said]
    good: str
    notes: list[str]


def declared(module: str, name: str = "") -> dict[str, Any]:
    """Return arguments of `Protocol` from the YAML file with the name of a module, given as its
    `__file__`; or with another `name` in its folder.
    """
    fields = own_yaml(module, Declaration, name)
    figures = {**fields.pop("points", {}), **fields.pop("lines", {})}
    return {**fields, "figures": figures}
