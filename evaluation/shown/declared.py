"""What the report of a protocol shows, from the YAML file with the name of its module."""

from pathlib import Path
from typing import Any

from typing_extensions import TypedDict

from interventune.storage.documents import own_yaml

from .figures import Bars, Lines
from .views import Said, View


class Shown(TypedDict, total=False):
    """The file: arguments of `Protocol`. A clause of the headline has a measure, words, and
    dimensions.
    """

    title: str
    units: str
    failures: str
    console: int
    views: list[View]
    bars: dict[str, Bars]
    """Figures by the name of their file, before `lines`."""
    lines: dict[str, Lines]
    headline: list[dict[str, Any]]
    good: str
    notes: list[str]


def declared(module: str, name: str = "") -> dict[str, Any]:
    """Return arguments of `Protocol` for a module, given as its `__file__`; `name` is that of
    another file in its folder.
    """
    shown = own_yaml(str(Path(module).with_name(name)) if name else module, Shown)
    figures = {**shown.pop("bars", {}), **shown.pop("lines", {})}
    headline = [Said(**clause) for clause in shown["headline"]]
    return {**shown, "headline": headline, "figures": figures}
