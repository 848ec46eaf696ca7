"""A paper's table or figure in one command: runs what it needs, then sets ours beside theirs.

interventune reproduce                                   lists what there is
interventune reproduce lei_zero_shot --data FOLDER
interventune reproduce lei_sizes --data FOLDER --use backbone=minilm start=mine.ckpt
interventune reproduce sf_coqa --tiny                    the same commands in minutes, to see that they run

Each is a file in configs/reproduce/; recipe.py says how such a file is written.
"""

from __future__ import annotations

import difflib
import shlex
from pathlib import Path
from typing import Annotated

from filelock import FileLock, Timeout

from evaluation.report import claimed, write_report
from evaluation.reproduce.compare import compare
from evaluation.reproduce.recipe import check_files, placeholder_values, read_recipe, recipes
from evaluation.reproduce.steps import run_steps
from evaluation.views import print_table


def run(
    name: str = "",
    *,
    data: Path | None = None,
    use: list[Annotated[str, "NAME=VALUE"]] | None = None,
    work: Path | None = None,
    tiny: bool = False,
    show: bool = False,
) -> None:
    """A paper's table or figure: runs its commands one after another, then prints our numbers beside the
    paper's. The same command goes on where it stopped; a step that is finished is not run again. Without a
    name it lists what there is.

    Args:
        name: of a file in configs/reproduce, or its path.
        data: folder of the files that it needs; which and from where is told where one is missing.
        use: other values of its settings or files, such as backbone=bert_base.
        work: folder of runs, logs and the report (default: runs/reproduce/NAME, with --tiny NAME-tiny).
        tiny: the same commands with tiny models on embedded data, to see that they run.
        show: print the commands and run nothing.
    """
    if not name:
        width = max(map(len, recipes())) + 2
        for name, path in recipes().items():
            recipe = read_recipe(path)
            print(f"{name:{width}}{recipe.paper}: {recipe.title}")
        return
    path = recipe_path(name)
    if wrong := [text for text in use or [] if "=" not in text]:
        raise ValueError(f"--use {wrong[0]}: write NAME=VALUE")
    recipe, chosen = read_recipe(path), dict(text.split("=", 1) for text in use or [])
    home = work or Path("runs") / "reproduce" / (path.stem + "-tiny" * tiny)
    values = placeholder_values(recipe, data, chosen, home.absolute(), tiny=tiny)
    commands = recipe.commands(values, tiny=tiny)
    if show:
        print(*(f"python -m {shlex.join(command)}" for command in commands), sep="\n")
        return
    check_files(recipe, values, data, chosen, tiny=tiny)
    home.mkdir(parents=True, exist_ok=True)
    report = home / "report"
    command = ["reproduce", name, *(["--data", str(data)] if data else []), *["--tiny"] * tiny]
    command += ["--use", *use] if use else []
    try:
        lock = FileLock(home / ".lock").acquire(timeout=0)
    except Timeout:
        raise ValueError(
            f"{home}: another reproduce works there; wait until it ends, or choose another --work"
        ) from None
    with lock:
        run_steps(recipe, commands, values, home)
        evaluation = compare(recipe, values, home, chosen, tiny=tiny)
        with claimed(report, overwrite=True):
            write_report(evaluation, report, command=command)
    for table in evaluation.tables():
        print_table(table)
    print(*evaluation.notes, f"report: {report / 'report.md'}", evaluation.headline, sep="\n")


def recipe_path(name: str) -> Path:
    """The file of a name, or at a path; ValueError where there is none."""
    known = recipes()
    if name not in known and not Path(name).is_file():
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
        raise ValueError(f"reproduce {name}: no such table or figure; {hint}")
    return known.get(name, Path(name))
