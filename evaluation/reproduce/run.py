"""Reproduces a paper's table or figure: runs its commands, then compares our numbers with theirs.

Each recipe is a file of configs/reproduce/ with settings, commands and printed numbers:

title: Semantic faithfulness on CoQA
paper: Chaturvedi et al. 2023, Table 4
source: paper       # whose numbers are printed: the paper, its authors' script, or our earlier run
match: exact        # or simplified, or variant (run.py defines them), for a reason given in `notes`
settings:           # {backbone} in a command: the paper's value, --tiny's, or --use backbone=VALUE
  backbone: {paper: roberta_large, tiny: tiny_bert}  # with `where`, a file below --data:
  dev: {paper: coqa-dev-v1.0.json, where: stanfordnlp.github.io/coqa, tiny: stories:...}
steps:              # as after `python -m interventune.`, in {runs}; {configs}: the shipped ones
  - command: training fit -c coqa_ot -c {backbone} --run.root={runs} --run.name=ot ...
    tiny: --trainer.max_steps=2       # added with --tiny (`only: tiny`: a step of --tiny alone)
  - command: evaluation faithfulness --checkpoint ot={runs}/ot/0/... --output {runs}/table
    writes: table/results.csv         # of the files below: where it exists, the step is finished
printed:            # what the paper prints, and the file that holds ours
  - results: table/results.csv        # or a selection.csv; of several files, the mean
    by: [backbone, checkpoint, variant]  # settings choose among the rows, dimensions name a cell
    measures: [f1, em, unknown]
    percent: true                     # the paper prints percent, our file has shares
    rows: [[roberta_large, ot, os, 87.0, 77.7, 1.74]]  # null, or a shorter row: it prints none
                                      # for other settings; without `rows`, all our cells are shown
notes: Why `match`, and what to know before comparing the numbers.
"""

from __future__ import annotations

import math
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

from pydantic import BaseModel

from interventune.data_modules.tables import opened
from interventune.evaluation.answering.interface import named_sources
from interventune.evaluation.report import Evaluation, claimed, write_report
from interventune.evaluation.results import NO_INTERVAL, NUMBERS, Estimate, Number, Results
from interventune.evaluation.shown.views import View, cells_of, print_table
from interventune.storage.command_line import did_you_mean
from interventune.storage.documents import as_data_error, load_yaml, source_digest, write_text

if TYPE_CHECKING:
    from pandas import DataFrame

LEGEND = """
exact: the paper's own data and definition; simplified: a part of it, or smaller;
variant: another model, scorer, data set or definition (the report says which)"""
SELECTION = {"metric": "measure", "mean": "value", "std": "seed_std", "test_set": "data"}
"""Columns of selection.csv, and their names in results.csv."""
SOURCES = {"paper": "the paper", "authors": "the authors' script", "earlier": "our earlier run"}
"""The names of the sources of printed numbers."""
NO_DIMENSIONS = {*NUMBERS, "unit", "measure", "values"}
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
    """What differs from the run of the printed numbers: NAME=VALUE by name, or --tiny."""
    commands: list[tuple[list[str], str]]
    """Module and arguments of every step, and the file that it writes."""


class Recipe(Strict):
    """A file of configs/reproduce/, as the module describes it."""

    title: str
    paper: str
    match: Literal["exact", "simplified", "variant"]
    source: Literal["paper", "authors", "earlier"] = "paper"
    steps: list[Step]
    printed: list[Printed]
    settings: dict[str, Setting] = {}
    notes: str

    def plan(self, data: Path, chosen: Mapping[str, str], home: Path, *, tiny: bool) -> Plan:
        """Replace all placeholders: by the user's values, else the paper's or, with `tiny`, those
        of --tiny; files are below `data`. ValueError: an unknown setting.
        """
        if unknown := set(chosen) - set(self.settings):
            raise ValueError(
                f"--use {min(unknown)}: no such setting; choose from {', '.join(self.settings)}"
            )
        values = {"runs": str(home), "configs": str(FOLDER.parent)}
        changed = {"tiny": "--tiny"} if tiny else {}
        for name, setting in self.settings.items():
            value = (setting.tiny if tiny else setting.paper).format_map(values)
            if setting.where and not tiny:
                value = str(min(data.rglob(setting.paper), default=data / setting.paper))
            values[name] = chosen.get(name, value)
            same_file = setting.where and Path(values[name]).match(setting.paper)
            if values[name] != value and not tiny and not same_file:
                changed[name] = f"{name}={values[name]}"
        commands = []
        for step in self.steps:
            if step.only in (None, "tiny" if tiny else "paper"):
                with as_data_error(f"the step {step.command!r}"):
                    words = shlex.split(f"{step.command} {step.tiny if tiny else ''}")
                    commands.append(([word.format_map(values) for word in words], step.writes))
        return Plan(values, changed, commands)


def run(
    name: str = "",
    *,
    data: Path = Path("data"),
    use: list[Annotated[str, "NAME=VALUE"]] | None = None,
    work: Path | None = None,
    tiny: bool = False,
) -> None:
    """Compute a paper's table or figure and compare the numbers; without NAME, list all. The same
    command resumes after the last finished step; to begin again, delete the folder.

    Example: interventune reproduce lei_sizes --data FOLDER --use backbone=minilm start=mine.ckpt

    Args:
        name: name of a file in configs/reproduce, or the path of one.
        data: folder of the data files. An error says which are missing and where to get them.
        use: other values for settings or files, such as backbone=bert_base.
        work: folder for runs and the report (default: runs/reproduce/NAME, with --tiny NAME-tiny).
        tiny: run the same commands with tiny models on built-in data, to see that they work.
    """
    if not name:
        for name, path in RECIPES.items():
            recipe = load_yaml(path, Recipe)
            about = f"{recipe.title} ({recipe.paper})"
            print(f"{name:{max(map(len, RECIPES))}}  {recipe.match:10}  {about}")
        print(LEGEND)
        return
    path = RECIPES.get(name, Path(name))
    if not path.is_file():
        hint = did_you_mean(name, RECIPES) or f"; choose from {', '.join(RECIPES)}"
        raise ValueError(f"reproduce {name}: no such recipe{hint}")
    recipe = load_yaml(path, Recipe)
    chosen = named_sources(use or [], "--use")
    if wrong := [text for text in use or [] if "=" not in text]:
        raise ValueError(f"--use {wrong[0]}: write NAME=VALUE")
    home = work or Path("runs", "reproduce", f"{path.stem}-tiny" if tiny else path.stem)
    home = home.absolute()
    plan = recipe.plan(data.absolute(), chosen, home, tiny=tiny)
    inputs = {plan.values[key]: one.where for key, one in recipe.settings.items()}
    missing = {*filter(None, () if tiny else map(lacking, inputs, inputs.values()))}
    if missing:
        raise ValueError(f"--data {data}, or the Hub, lacks: {'; '.join(sorted(missing))}")
    report = home / "report"
    with claimed(report, overwrite=True):
        files = [file for file, where in inputs.items() if where]
        run_steps(plan, home, files)
        evaluation = compare(recipe, plan, home)
        write_report(evaluation, report, command=["reproduce", name])
    for table in evaluation.tables():
        print_table(table)
    print(*evaluation.notes, f"report: {report / 'report.md'}", evaluation.headline, sep="\n")


def lacking(value: str, where: str) -> str:
    """Return what a file (from `where`), dataset or model lacks; empty if it can be read."""
    backbone = FOLDER.parent / "backbones" / f"{value}.yaml"
    if backbone.exists():
        value = load_yaml(backbone, dict)["backbone"]["checkpoint"]
    if Path(value).exists():
        return ""
    if where and ":" not in value:
        return f"{value} does not exist; get it from {where}"
    from interventune.models.adapters import read_config  # with torch, which takes seconds
    from interventune.models.language.endpoint import ChatModel

    model = re.fullmatch(r"(?:hf:)?([\w.-]+/[\w.-]+)(?:@\w+)?", value)
    try:
        if value.startswith("hub:"):
            opened(value)
        elif value.startswith("openai:"):
            ChatModel(value.removeprefix("openai:"))
        elif model:
            read_config(model[1])
        return ""
    except ValueError as error:
        return str(error)


def run_steps(plan: Plan, home: Path, files: Sequence[str]) -> None:
    """Run the commands in order, starting after the last one whose file exists. ValueError if a
    command fails, or if `home` holds the results of other commands, or of other content of `files`.
    """
    commands = plan.commands
    record = home / "commands.sh"
    lines = [f"python -m interventune.{shlex.join(command)}" for command, _ in commands]
    digests = [f"# {file}: {digest}" for file in files if (digest := source_digest(file))]
    text = "\n".join([*lines, *digests, ""])
    written = [i for i, (_, file) in enumerate(commands, 1) if file and (home / file).exists()]
    finished = max(written, default=0)
    ours = record.exists() and record.read_text(encoding="utf-8") == text
    if not ours and (finished or record.exists()):
        raise ValueError(f"{home} has results of other commands or data; choose another --work")
    write_text(record, text)
    for i, (command, _) in enumerate(commands[finished:], finished + 1):
        shown = takewhile(lambda word: not word.startswith("--"), command)
        print(f"step {i} of {len(commands)}: {shlex.join(shown)}", flush=True)
        if code := call_step(*command, here="tiny" in plan.changed):
            raise ValueError(f"step {i} failed (exit code {code}): {lines[i - 1]}")


def call_step(room: str, *arguments: str, here: bool) -> int:
    """Run one command in a process of its own or, to save seconds, `here`; return its exit code."""
    if here:
        return int(import_module(f"interventune.{room}.__main__").main([*arguments]))
    return subprocess.call([sys.executable, "-P", "-m", f"interventune.{room}", *arguments])


def compare(recipe: Recipe, plan: Plan, home: Path) -> Evaluation:
    """Compare the results in `home` with the printed numbers of the same settings. In the long
    table, `table` is the title over the numbers, and `source` is ours, the recipe's, or difference
    (ours minus theirs). ValueError if several of our numbers belong in one place.
    """
    dimensions = {name for printed in recipe.printed for name in printed.by} - set(recipe.settings)
    results = Results(("table", *sorted(dimensions), "source"), "units of the evaluations")
    theirs = recipe.source
    origin = SOURCES[recipe.source]
    views = list[View]()
    hidden = list[str]()
    inside = 0
    counted = 0
    for printed in recipe.printed:
        title = printed.title or recipe.paper
        by = [name for name in printed.by if name in dimensions]
        files = [home / file for file in printed.results.split()]
        ours = our_numbers(files, by, printed.measures)
        numbers = printed_numbers(recipe, printed, plan)
        frame = numbers.merge(ours, "left" if printed.rows else "right", [*by, "measure"])
        if printed.rows and numbers[theirs].isna().all():
            hidden.append(title)
        frame["difference"] = frame["ours"] - frame[theirs]
        inside += frame[theirs].between(frame["low"], frame["high"]).sum()
        counted += len(frame.dropna(subset=[theirs, "low"]))
        for row in frame.fillna({"n": 0}).to_dict("records"):
            place = {name: row[name] for name in by} | {"table": title}
            for source in ("ours", theirs, "difference"):
                if math.isfinite(row[source]):
                    low, high = (row["low"], row["high"]) if source == "ours" else NO_INTERVAL
                    n = int(row["n"])
                    estimate = Estimate(row[source], low, high, n, n)
                    results.add(Number(row["measure"], place | {"source": source}, estimate))
        where = {"table": title, "against": None if "against" in by else ""}
        headings = {measure: measure for measure in printed.measures}
        percent, caption = (printed.measures, "In percent.") if printed.percent else ((), "")
        views.append(View(title, tuple(by), headings, "source", where, percent, caption=caption))
    headline = f"{inside} of {counted} numbers of {origin} lie within our 95 % intervals."
    if not counted:
        headline = f"There is no number of {origin} to compare with our intervals."
    about = {
        "protocol": "reproduce",
        "tiny": "tiny" in plan.changed,
        "values": plan.values,
        "commands": [shlex.join(command) for command, _ in plan.commands],
    }
    notes = [f"Match with {origin}: {recipe.match}. {recipe.notes}"]
    if plan.changed:
        note = f"Run with {', '.join(plan.changed.values())}."
        if hidden:
            titles = "; ".join(hidden)
            note += f" Numbers of {origin} are of other settings or data, and not shown: {titles}."
        notes.append(note)
    return Evaluation(f"{recipe.title} ({recipe.paper})", results, views, about, headline, notes)


def printed_numbers(recipe: Recipe, printed: Printed, plan: Plan) -> DataFrame:
    """Return the numbers of the rows with these settings, as columns dimensions, measure and the
    recipe's source. If none are printed for what changed, they are those of the paper's settings,
    undefined.
    """
    import pandas as pd

    columns = [*printed.by, *printed.measures]
    frame = (
        pd.DataFrame(printed.rows).reindex(columns=range(len(columns))).set_axis(columns, axis=1)
    )
    frame[printed.by] = frame[printed.by].astype(str)
    own = {name: setting.paper for name, setting in recipe.settings.items() if name in printed.by}
    rows = cells_of(frame, {name: plan.values[name] for name in own})
    if rows.empty or set(plan.changed) - set(own):
        rows = cells_of(frame, own).assign(**dict.fromkeys(printed.measures, math.nan))
    by = [name for name in printed.by if name not in own]
    frame = rows.melt(by, printed.measures, "measure", recipe.source, ignore_index=False)
    number = pd.to_numeric(frame[recipe.source]) / (100 if printed.percent else 1)
    return frame.assign(**{recipe.source: number}).sort_index(kind="stable")


def our_numbers(paths: Sequence[Path], by: list[str], measures: list[str]) -> DataFrame:
    """Return the numbers of a long table, or the means of several; of several in one place, that
    with the fewest other dimensions.
    """
    import pandas as pd

    tables = [pd.read_csv(path, dtype=str, keep_default_na=False) for path in paths]
    frame = pd.concat(tables).rename(columns=SELECTION)
    frame = frame[frame["measure"].isin(measures)]
    others = [name for name in frame if name not in NO_DIMENSIONS and name not in by]
    filled = (frame[others] != "").sum(axis=1)
    least = filled.groupby([frame[name] for name in [*by, "measure"]]).transform("min")
    frame = frame[filled == least]
    numbers = frame[["value", "low", "high", "n"]].apply(pd.to_numeric)
    frame = frame.assign(**numbers).rename(columns={"value": "ours"})
    if len(paths) > 1:
        frame = frame.groupby([*by, "measure"], as_index=False).agg({"ours": "mean", "n": "sum"})
        frame[["low", "high"]] = math.nan
    return frame
