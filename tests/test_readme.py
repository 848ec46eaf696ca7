"""Commands of the pages are understood by their programs; files that the pages name exist."""

import re
import shlex
from collections.abc import Callable, Iterable
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, get_args

import pytest

import interventune.command
from interventune.command import COMMANDS as COMMANDS_OF
from interventune.command import main
from interventune.data_modules import __main__ as data
from interventune.data_modules.interventions.variants import made_of
from interventune.data_modules.sources import read_choices, read_groups, read_questions
from interventune.data_modules.tasks.features import Recipe, Wordings
from interventune.data_modules.tasks.toxicity_prompts import read_prompts
from interventune.data_modules.tasks.yes_no import read_pairs
from interventune.evaluation import commands as evaluation
from interventune.evaluation.commands import COMMANDS as EVALUATION
from interventune.evaluation.commands import PROTOCOLS
from interventune.evaluation.protocols.consistency.specifications import Method, parts_of
from interventune.models.__main__ import export
from interventune.storage.command_line import Parser
from interventune.storage.documents import load_json
from interventune.training import __main__ as training
from interventune.training.sweep.run import Options as Sweep
from interventune.training.sweep.select import Options as Select
from tests.understood import understood

ROOT = Path(__file__).resolve().parents[1]
ROOMS = "configs|docs|data_modules|models|losses|metrics|evaluation"
TRAIN = "--trainer.max_steps=2 --trainer.enable_progress_bar=false"
TRAIN += " --data.limit_train_qa=64 --data.limit_val_qa=16"
SMALL = {"train": TRAIN, "evaluate": "--limit=12 --device=cpu"}
"""Flags that make commands short."""


def quoted(flags: str) -> str:
    """Flags of a variable, whose quotation marks the shell leaves as they are."""
    return shlex.join(flags.split())


def shell_blocks(page: str) -> str:
    """The shell blocks of a page, with a command a line."""
    blocks = re.findall(r"```(\w*)\n(.*?)```", (ROOT / page).read_text(), re.S)
    shell = "\n".join(text for language, text in blocks if language in ("", "bash"))
    return shell.replace("\\\n", " ")


def commands_of(shell: str) -> list[list[str]]:
    """Module and arguments of every `interventune ...` and `python -m ...`."""
    flags = dict(re.findall(r"^(\w+)='(.*)'$", shell, re.M))  # variables that the page sets
    commands = []
    for line in map(str.strip, shell.splitlines()):
        line = re.sub(r" \$(\w+)", lambda name: f" {quoted(flags.get(name[1], ''))}", line)
        if line.startswith("interventune ") and not line.startswith("interventune --help"):
            _, name, *arguments = shlex.split(line, comments=True)
            commands.append([*COMMANDS_OF[name][0].split(), *arguments])
        elif line.startswith("python -m "):
            commands.append(shlex.split(line, comments=True)[2:])
    return commands


PAGES = ("README.md", *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md"))))
COMMANDS = [command for page in PAGES for command in commands_of(shell_blocks(page))]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join(command)[:60])
def test_a_command_is_understood(command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    understood(command)


FUNCTIONS = [
    *(row.function for row in (PROTOCOLS | EVALUATION).values()),
    *(resolve_name(f"interventune.data_modules.{path}") for path, _ in data.COMMANDS.values()),
    *(export, Sweep, Select),
]
EPILOGS = [Parser(function).epilog for function in FUNCTIONS] + [
    str(text)[str(text).index("example:") :]
    for text in (interventune.command.__doc__, training.__doc__, evaluation.EXAMPLE, data.EXAMPLE)
]


@pytest.mark.parametrize("epilog", EPILOGS, ids=lambda epilog: str(epilog)[10:60])
def test_examples_of_help_are_understood(epilog: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    (command,) = commands_of(epilog.replace("\\\n", " "))
    understood(command)


def test_every_file_that_the_pages_name_exists() -> None:
    for page in (*PAGES, "CONTRIBUTING.md"):
        text = re.sub(r"^```\w+ \S+$", "```", (ROOT / page).read_text(), flags=re.M)  # new files
        for path in re.findall(rf"(?:tests/)?(?:{ROOMS})/[\w/]+(?:\.\w+)+", text):
            assert (ROOT / path).exists(), f"{page}: {path}"


def test_the_first_two_pages_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("mine.json", "my_dev.json"):
        Path(name).write_text(SHOWN_FILES[0][1])
    shell = shell_blocks("README.md") + shell_blocks("docs/quickstart.md")
    lines = shell.replace("roberta_base", "tiny_roberta").splitlines()
    commands = [line for line in dict.fromkeys(lines) if line.startswith("interventune ")]
    for line in commands:
        _, name, *arguments = shlex.split(line, comments=True)
        assert main([name, *arguments, *SMALL.get(name, "").split()]) == 0, line
    assert sum(line.startswith("interventune evaluate") for line in commands) == 4
    assert "Embedding shift" in Path("reports/stories.html").read_text()


def test_the_files_that_a_page_shows_are_read(tmp_path: Path) -> None:
    pages = [(ROOT / f"docs/{name}.md").read_text() for name in ("consistency", "feature_bias")]
    specifications, wording = re.findall(r"```json\n(.*?)```", "".join(pages), re.S)
    path = tmp_path / "shown.json"
    path.write_text(specifications)
    for method in get_args(Method):
        assert parts_of(method, path, groups=1)
    path.write_text(wording)
    assert load_json(path, Wordings)["task"]["h2"].words == ("no", "yes")


READERS: dict[str, Callable[[str], Iterable[Any]]] = {
    "questions": read_questions,
    "groups": read_groups,
    "choices": read_choices,
    "prompts": read_prompts,
    "texts": lambda path: Recipe(feature="uppercase").read([path]),
    "pairs": lambda path: read_pairs(path)[0],
}
SHOWN_FILES = re.findall(r"```json (\w+)\n(.*?)```", (ROOT / "docs/your_data.md").read_text(), re.S)


@pytest.mark.parametrize(("kind", "text"), SHOWN_FILES)
def test_the_smallest_files_are_read(kind: str, text: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_text(text)
    (row,) = READERS[kind](str(path))
    if kind == "questions":  # it can lose its evidence
        (deleted,), rejected = made_of([row], "ts_r")
        assert not rejected
        assert deleted.context.startswith("Ben")
        assert "in Rome" not in deleted.context
