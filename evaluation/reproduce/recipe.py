"""A recipe, a file of configs/reproduce/: data, commands and printed numbers of a table or figure.

title: Semantic faithfulness on CoQA
paper: Chaturvedi et al. 2023, Table 4
source: paper                # whose numbers are printed: the paper, its authors' script, or our earlier run
match: exact                 # or simplified, or variant (run.py defines them), for a reason given in `notes`
data:                        # {dev} in a command is this file (or FILE+LABELS) below --data; * is any text
  dev: {file: coqa-dev-v1.0.json, where: "stanfordnlp.github.io/coqa", tiny: "stories:conversation_dev"}
settings:                    # {backbone} is the paper's value, or --use backbone=VALUE
  backbone: {paper: roberta_large, tiny: tiny_bert}
steps:                       # as after `python -m`; {runs} is the folder of this reproduction
  - command: training fit -c coqa_ot -c {backbone} --run.root={runs} --run.name=ot --run.version=0 ...
    tiny: --trainer.max_steps=2                # added with --tiny (`only: tiny`: a step of --tiny alone)
  - command: evaluation faithfulness --checkpoint ot={runs}/ot/0/... --output {runs}/table --overwrite
printed:                     # what the paper prints, and the file that holds ours
  - results: table/results.csv                 # or a selection.csv of `training select`
    by: [backbone, checkpoint, variant]        # settings choose among the rows, dimensions name a cell
    measures: [f1, em, unknown]
    percent: true                              # the paper prints percent, our file has shares
    rows: [[roberta_large, ot, os, 87.0, 77.7, 1.74]]    # null, or a shorter row: the paper prints none
                                               # no `rows`: it prints nothing; all our cells are shown
                                               # other settings or files, not in `by`: none are shown
notes: Why `match`, and what to know before comparing the numbers.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import BaseModel

RECIPES = Path(__file__).resolve().parents[2] / "configs" / "reproduce"


class Strict(BaseModel, extra="forbid"):
    """A part of the file; an unknown field is an error."""


class DataFile(Strict):
    file: str
    where: str
    tiny: str = ""

    def paths(self, source: str) -> list[Path]:
        """The files of FILE, or of FILE+LABELS if this is such a file."""
        return [Path(name) for name in source.rsplit("+", self.file.count("+"))]

    def below(self, data: Path) -> str:
        """Where it is in a folder, or would be."""
        return "+".join(
            str(min(data.rglob(str(name)), default=data / name)) for name in self.paths(self.file)
        )

    def is_named_by(self, source: str) -> bool:
        """Whether a source has its name, in any folder."""
        return all(map(Path.match, self.paths(source), map(str, self.paths(self.file))))


class Setting(Strict):
    paper: str
    tiny: str = ""


class Step(Strict):
    command: str
    tiny: str = ""
    only: Literal["paper", "tiny"] | None = None


class Printed(Strict):
    results: str
    by: list[str]
    measures: list[str]
    rows: list[list[str | int | float | None]] = []
    percent: bool = False
    title: str = ""


class Recipe(Strict):
    """A file of configs/reproduce/; see the module's docstring."""

    title: str
    paper: str
    match: Literal["exact", "simplified", "variant"]
    source: Literal["paper", "authors", "earlier"] = "paper"
    steps: list[Step]
    printed: list[Printed]
    data: dict[str, DataFile] = {}
    settings: dict[str, Setting] = {}
    notes: str

    @property
    def has_tiny(self) -> bool:
        """Whether each file has an embedded source."""
        return all(file.tiny for file in self.data.values())

    def values(self, data: Path, chosen: Mapping[str, str], home: Path, *, tiny: bool) -> dict[str, str]:
        """The value of every placeholder: the user's, else the paper's or, with `tiny`, that of --tiny."""
        if unknown := set(chosen) - set(self.data) - set(self.settings):
            names = ", ".join([*self.settings, *self.data])
            raise ValueError(f"--use {min(unknown)}: no such setting or file; choose from {names}")
        found = {name: one.paper for name, one in self.settings.items()}
        found |= {name: one.below(data) for name, one in self.data.items()}
        if tiny:
            found = {name: one.tiny for name, one in (self.settings | self.data).items()}
        runs = {"runs": str(home)}
        return {**runs, **{name: value.format_map(runs) for name, value in found.items()}, **chosen}

    def changed(self, values: Mapping[str, str], *, tiny: bool) -> dict[str, str]:
        """Return what differs from the run of the printed numbers, as NAME=VALUE by name: other settings and
        files, or --tiny."""
        if tiny:
            return {"tiny": "--tiny"}
        same = {name for name, one in self.settings.items() if values[name] == one.paper.format_map(values)}
        same |= {name for name, one in self.data.items() if one.is_named_by(values[name])}
        return {name: f"{name}={values[name]}" for name in (self.settings | self.data) if name not in same}

    def commands(self, values: Mapping[str, str], *, tiny: bool) -> list[list[str]]:
        """Return module and arguments of every step, with all placeholders replaced."""
        steps = [step for step in self.steps if step.only in (None, "tiny" if tiny else "paper")]
        texts = [f"{step.command} {step.tiny if tiny else ''}" for step in steps]
        return [[word.format_map(values) for word in shlex.split(text)] for text in texts]


def recipes() -> dict[str, Path]:
    """Return the built-in files, by name."""
    return {path.stem: path for path in sorted(RECIPES.glob("*.yaml"))}
