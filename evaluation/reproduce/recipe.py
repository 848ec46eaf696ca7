"""A recipe, a file of configs/reproduce/: settings, commands and printed numbers of a table or
figure.

title: Semantic faithfulness on CoQA
paper: Chaturvedi et al. 2023, Table 4
source: paper       # whose numbers are printed: the paper, its authors' script, or our earlier run
match: exact        # or simplified, or variant (run.py defines them), for a reason given in `notes`
settings:           # {backbone} in a command: the paper's value, --tiny's, or --use backbone=VALUE
  backbone: {paper: roberta_large, tiny: tiny_bert}
  dev:              # with `where`, a file below --data
    paper: coqa-dev-v1.0.json
    where: stanfordnlp.github.io/coqa
    tiny: stories:conversation_dev
steps:              # as after `python -m interventune.`; {runs} is the folder of this reproduction
  - command: training fit -c coqa_ot -c {backbone} --run.root={runs} --run.name=ot ...
    tiny: --trainer.max_steps=2       # added with --tiny (`only: tiny`: a step of --tiny alone)
  - command: evaluation faithfulness --checkpoint ot={runs}/ot/0/... --output {runs}/table
    writes: table/results.csv         # of the files below: where it exists, the step is finished
printed:            # what the paper prints, and the file that holds ours
  - results: table/results.csv        # or a selection.csv of `interventune select`
    by: [backbone, checkpoint, variant]  # settings choose among the rows, dimensions name a cell
    measures: [f1, em, unknown]
    percent: true                     # the paper prints percent, our file has shares
    rows: [[roberta_large, ot, os, 87.0, 77.7, 1.74]]  # null, or a shorter row: it prints none
                                      # no `rows`: it prints nothing; all our cells are shown
                                      # with other settings: only if these are in a row
notes: Why `match`, and what to know before comparing the numbers.
"""

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import BaseModel

FOLDER = Path(__file__).resolve().parents[2] / "configs" / "reproduce"
RECIPES = {path.stem: path for path in sorted(FOLDER.glob("*.yaml"))}
"""The built-in files, by name."""


class Strict(BaseModel, extra="forbid"):
    """A part of the file; an unknown field is an error."""


class Setting(Strict):
    paper: str
    tiny: str = ""
    where: str = ""


class Step(Strict):
    command: str
    tiny: str = ""
    only: Literal["paper", "tiny"] | None = None
    writes: str = ""


class Printed(Strict):
    results: str
    by: list[str]
    measures: list[str]
    rows: list[list[str | int | float | None]] = []
    percent: bool = False
    title: str = ""


class Plan(NamedTuple):
    """A recipe whose placeholders are replaced."""

    values: dict[str, str]
    """Of every placeholder."""
    changed: dict[str, str]
    """How the run differs from that of the printed numbers, as NAME=VALUE by name, or --tiny; a
    file differs by its name.
    """
    commands: list[tuple[list[str], str]]
    """Module and arguments of every step, and the file that it writes."""


class Recipe(Strict):
    """A file of configs/reproduce/; see the module's docstring."""

    title: str
    paper: str
    match: Literal["exact", "simplified", "variant"]
    source: Literal["paper", "authors", "earlier"] = "paper"
    steps: list[Step]
    printed: list[Printed]
    settings: dict[str, Setting] = {}
    notes: str

    @property
    def has_tiny(self) -> bool:
        """Whether each file has an embedded source."""
        return all(setting.tiny or not setting.where for setting in self.settings.values())

    def plan(self, data: Path, chosen: Mapping[str, str], home: Path, *, tiny: bool) -> Plan:
        """Replace all placeholders: by the user's values, else the paper's or, with `tiny`, those
        of --tiny; files are below `data`. ValueError: an unknown setting.
        """
        if unknown := set(chosen) - set(self.settings):
            raise ValueError(
                f"--use {min(unknown)}: no such setting; choose from {', '.join(self.settings)}"
            )
        values = {"runs": str(home)}
        changed = {"tiny": "--tiny"} if tiny else {}
        for name, setting in self.settings.items():
            value = (setting.tiny if tiny else setting.paper).format(runs=home)
            if setting.where and not tiny:
                value = str(min(data.rglob(setting.paper), default=data / setting.paper))
            values[name] = chosen.get(name, value)
            same_file = setting.where and Path(values[name]).match(setting.paper)
            if values[name] != value and not tiny and not same_file:
                changed[name] = f"{name}={values[name]}"
        commands = []
        for step in self.steps:
            if step.only in (None, "tiny" if tiny else "paper"):
                words = shlex.split(f"{step.command} {step.tiny if tiny else ''}")
                commands.append(([word.format_map(values) for word in words], step.writes))
        return Plan(values, changed, commands)
