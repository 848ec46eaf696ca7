"""Reproduces a table or figure of a paper: runs its commands, then compares our numbers with the
paper's.

interventune reproduce lei_sizes --data FOLDER --use backbone=minilm start=mine.ckpt

Each recipe is a file in configs/reproduce/; recipe.py describes the format.
"""

import shlex
import subprocess
import sys
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path
from typing import Annotated

from interventune.evaluation.report import claimed, write_report
from interventune.evaluation.shown.views import print_table
from interventune.storage.documents import load_yaml, write_text

from .compare import compare
from .recipe import Recipe, recipes

LEGEND = """
exact: the paper's own data and definition; simplified: a part of it, or smaller;
variant: another model, scorer, data set or definition (the report says which)"""


def run(
    name: str = "",
    *,
    data: Path = Path("data"),
    use: list[Annotated[str, "NAME=VALUE"]] | None = None,
    work: Path | None = None,
    tiny: bool = False,
    overwrite: bool = False,
) -> None:
    """Compute a table or figure of a paper and compare it with the paper's numbers. The same
    command resumes after the last finished step. Without NAME, list all tables and figures.

    Example: interventune reproduce sf_coqa --tiny

    Args:
        name: name of a file in configs/reproduce, or the path of one.
        data: folder of the data files. An error says which are missing and where to get them.
        use: other values for settings or files, such as backbone=bert_base. The report has the
            numbers that are printed for them, if any.
        work: folder for runs and the report (default: runs/reproduce/NAME, with --tiny NAME-tiny).
        tiny: run the same commands with tiny models on built-in data, to see that they work.
        overwrite: run finished steps again.
    """
    known = recipes()
    if not name:
        for name, path in known.items():
            recipe = load_yaml(path, Recipe)
            about = f"{recipe.title} ({recipe.paper}{'' if recipe.has_tiny else '; no --tiny'})"
            print(f"{name:{max(map(len, known))}}  {recipe.match:10}  {about}")
        print(LEGEND)
        return
    path = known.get(name, Path(name))
    if not path.is_file():
        raise ValueError(f"reproduce {name}: no such recipe; choose from {', '.join(known)}")
    recipe = load_yaml(path, Recipe)
    if tiny and not recipe.has_tiny:
        raise ValueError(f"reproduce {name} has no --tiny: no embedded data can replace its files")
    if wrong := [text for text in use or [] if "=" not in text]:
        raise ValueError(f"--use {wrong[0]}: write NAME=VALUE")
    chosen = dict(text.split("=", 1) for text in use or [])
    home = (
        work or Path("runs", "reproduce", f"{path.stem}-tiny" if tiny else path.stem)
    ).absolute()
    values = recipe.values(data.absolute(), chosen, home, tiny=tiny)
    for key, setting in recipe.settings.items():
        file = values[key]
        if setting.where and not tiny and ":" not in file and not Path(file).exists():
            raise ValueError(f"--data {data}: {file} does not exist; get it from {setting.where}")
    report = home / "report"
    with claimed(report, overwrite=True):
        run_steps(recipe.commands(values, tiny=tiny), home, overwrite=overwrite)
        evaluation = compare(recipe, values, home, tiny=tiny)
        write_report(evaluation, report, command=["reproduce", name])
    for table in evaluation.tables():
        print_table(table)
    print(*evaluation.notes, f"report: {report / 'report.md'}", evaluation.headline, sep="\n")


def run_steps(commands: Sequence[tuple[list[str], str]], home: Path, *, overwrite: bool) -> None:
    """Run the commands in order, starting after the last one whose file exists. ValueError if a
    command fails, or if `home` holds the results of other commands.
    """
    record = home / "commands.sh"
    lines = [f"python -m interventune.{shlex.join(command)}" for command, _ in commands]
    text = "".join(f"{line}\n" for line in lines)
    finished = [i for i, (_, file) in enumerate(commands, 1) if file and (home / file).exists()]
    ours = record.exists() and record.read_text(encoding="utf-8") == text
    if not ours and (finished or record.exists()):
        raise ValueError(f"{home} holds the results of other commands; choose another --work")
    write_text(record, text)
    for i, (command, _) in enumerate(commands, 1):
        if overwrite or i > max(finished, default=0):
            shown = takewhile(lambda word: not word.startswith("--"), command)
            print(f"step {i} of {len(commands)}: {shlex.join(shown)}", flush=True)
            if code := run_step(command):
                raise ValueError(f"step {i} failed (exit code {code}): {lines[i - 1]}")


def run_step(command: Sequence[str]) -> int:
    """Run a command in its own process; return its exit code."""
    room, *arguments = command
    return subprocess.run([sys.executable, "-m", f"interventune.{room}", *arguments]).returncode
