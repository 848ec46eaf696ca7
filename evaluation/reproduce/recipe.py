"""A paper's table or figure as a file of configs/reproduce/: what it needs, what is run, what is printed.

title: Semantic faithfulness on CoQA
paper: Chaturvedi et al. 2023, Table 4
data:                        # {dev} in a command is this file under --data; with --tiny its stand-in
  dev: {file: coqa-dev-v1.0.json, where: "stanfordnlp.github.io/coqa", tiny: "stories:conversation_dev"}
settings:                    # {backbone} is the paper's value, or --use backbone=VALUE
  backbone: {paper: roberta_large, tiny: tiny_bert}
steps:                       # commands as the README shows them; {runs} is the folder of this reproduction
  - command: training fit -c coqa_ot -c {backbone} --run.root={runs} --run.name=ot --run.version=0 ...
    tiny: --trainer.max_steps=2                # behind the command with --tiny (`only: tiny`: there alone)
  - command: evaluation faithfulness --checkpoint ot={runs}/ot/0/... --output {runs}/table --overwrite
printed:                     # what the paper prints, beside cells of a results.csv or selection.csv
  - results: table/results.csv
    by: [backbone, checkpoint, variant]        # settings choose among the rows, dimensions lead to a cell
    measures: [f1, em, unknown]
    percent: true
    rows: [[roberta_large, ot, os, 87.0, 77.7, 1.74]]    # null: the paper prints none
notes: What to know before the numbers are compared.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from storage.json_files import load_yaml

RECIPES = Path(__file__).resolve().parents[2] / "configs" / "reproduce"
PLACEHOLDER = re.compile(r"\{(\w+)\}")
STRICT = {"extra": "forbid"}


@dataclass(frozen=True)
class DataFile:
    """A file that a reproduction needs.

    Args:
        file: its path under --data, or under a folder below.
        where: where it comes from, in words.
        tiny: the embedded source that stands in for it; empty: there is none, and no --tiny.
    """

    __pydantic_config__ = STRICT

    file: str
    where: str
    tiny: str = ""


@dataclass(frozen=True)
class Setting:
    """A part of the commands that may be chosen.

    Args:
        paper: the paper's value.
        tiny: that of --tiny.
        machine: it says where and how fast the commands run; no number depends on it.
    """

    __pydantic_config__ = STRICT

    paper: str
    tiny: str
    machine: bool = False


@dataclass(frozen=True)
class Step:
    """A command.

    Args:
        command: as the README shows them, without `python -m`.
        tiny: what stands behind it with --tiny.
        only: a command of the paper's way alone, or of --tiny, such as a model to start from.
    """

    __pydantic_config__ = STRICT

    command: str
    tiny: str = ""
    only: Literal["paper", "tiny"] | None = None


@dataclass(frozen=True)
class Printed:
    """Numbers of the paper beside the cells that they are compared with.

    Args:
        results: a results.csv, or a selection.csv of `training select`, under {runs}.
        by: settings and dimensions, the first entries of each row; a dimension that is not named is empty
            in the cell, or has one value only.
        measures: of the other entries.
        rows: the numbers; null where the paper prints none, as of what it draws: there ours stands alone.
        percent: the paper prints percent, the file holds shares.
        title: over the table.
    """

    __pydantic_config__ = STRICT

    results: str
    by: list[str]
    measures: list[str]
    rows: list[list[str | int | float | None]]
    percent: bool = False
    title: str = ""


@dataclass(frozen=True)
class Recipe:
    """A file of configs/reproduce/; see the module."""

    __pydantic_config__ = STRICT

    title: str
    paper: str
    steps: list[Step]
    printed: list[Printed]
    data: dict[str, DataFile] = field(default_factory=dict)
    settings: dict[str, Setting] = field(default_factory=dict)
    notes: str = ""

    def commands(self, values: Mapping[str, str], *, tiny: bool) -> list[list[str]]:
        """Module and arguments of every step, with the placeholders filled in.

        Raises:
            ValueError: a placeholder without a value.
        """
        wanted = [step for step in self.steps if step.only in (None, "tiny" if tiny else "paper")]
        texts = [f"{step.command} {step.tiny if tiny else ''}" for step in wanted]
        return [[fill(word, values) for word in shlex.split(text)] for text in texts]


def fill(text: str, values: Mapping[str, str]) -> str:
    """A text with its placeholders filled in; ValueError for one without a value."""
    for name in PLACEHOLDER.findall(text):
        if name not in values:
            raise ValueError(f"{{{name}}} stands for nothing; there are {', '.join(sorted(values))}")
    return PLACEHOLDER.sub(lambda match: values[match[1]], text)


def recipes() -> dict[str, Path]:
    """The shipped files, by name."""
    return {path.stem: path for path in sorted(RECIPES.glob("*.yaml"))}


def read_recipe(path: Path) -> Recipe:
    """A file of configs/reproduce/. DataError names it and the field that is wrong."""
    return load_yaml(path, Recipe)


def placeholder_values(
    recipe: Recipe, data: Path | None, chosen: Mapping[str, str], home: Path, *, tiny: bool
) -> dict[str, str]:
    """The value of every placeholder: `chosen` by `--use`, else the paper's or, with `tiny`, the stand-in.

    Raises:
        ValueError: `--use` names something that the recipe does not have, or nothing stands in for a file.
    """
    if unknown := set(chosen) - set(recipe.data) - set(recipe.settings):
        known = ", ".join([*recipe.settings, *recipe.data])
        raise ValueError(f"--use {min(unknown)}: is none of {known}")
    values = {"runs": str(home)}
    for name, setting in recipe.settings.items():
        values[name] = fill(setting.tiny if tiny else setting.paper, values)
    for name, need in recipe.data.items():
        if tiny and not need.tiny and name not in chosen:
            raise ValueError(f"--tiny: nothing embedded stands for {need.file}; write --use {name}=FILE")
        file = str(found_below(data, need.file).absolute()) if data else f"DATA/{need.file}"
        values[name] = fill(need.tiny, values) if tiny else file
    return {**values, **chosen}


def check_files(
    recipe: Recipe, values: Mapping[str, str], data: Path | None, chosen: Collection[str], *, tiny: bool
) -> None:
    """ValueError where files are missing; names all of them, with where they come from."""
    missing = [
        f"{need.file}, which comes from {need.where}"
        for name, need in recipe.data.items()
        if not (tiny or name in chosen or (data and Path(values[name]).exists()))
    ]
    at = f"{data} has no" if data else "name the folder that holds"
    errors = [f"--data: {at} {'; '.join(missing)} (--tiny needs no data)"] if missing else []
    for name in chosen:
        value = values[name]
        if (name in recipe.data or value.startswith("/")) and ":" not in value:  # no source as hub:...
            gone = [part for part in value.split("+") if not Path(part).exists()]
            errors += [f"--use {name}={value}: there is no {part}" for part in gone]
    if errors:
        raise ValueError("; ".join(errors))


def found_below(folder: Path, file: str) -> Path:
    """A file at its path under a folder, or in one of the folders below: the least deep."""
    if (folder / file).exists() or folder == Path():
        return folder / file
    return min(folder.rglob(file), key=lambda path: len(path.parts), default=folder / file)
