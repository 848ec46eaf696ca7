"""Wrong flags and wrong places for output: one line that names the flag or file, and nothing is written."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from data_modules.__main__ import main as data_command
from evaluation.__main__ import main as evaluation_command
from models.__main__ import main as models_command
from tests.malformed.documents import FORMATS
from tests.malformed.outcome import accepted, everything_in, outcome

Refuse = Callable[..., None]
ENDPOINT = "openai:x@http://localhost:9/v1"
ENTRIES = {"data": data_command, "evaluation": evaluation_command, "models": models_command}


def reading(name: str) -> str:
    """An entry point and its good arguments: the command that reads a file of given/."""
    (form,) = (form for form in FORMATS if form.name == name)
    entry = "data" if form.main is data_command else "evaluation"
    return f"{entry} {form.command}".replace("{file}", f"{{dir}}/{name}")


TINY = "--checkpoint {dir}/bert.ckpt --device cpu --output {out}"
UNQOVER, LEI, PERTURB = reading("subjects"), reading("interventions.json"), reading("squad.json")
PREDICTED, BIAS = reading("lei.json"), f"evaluation bias --data {{dir}}/groups.json {TINY}"
FAITHFUL = f"evaluation faithfulness --data {{dir}}/questions.json {TINY}"
SHIFT = f"evaluation shift --data {{dir}}/questions.json {TINY}"
ASK = f"evaluation ask --context Café. --question Who? {TINY}"
CONSISTENCY, CONFUSION = reading("prompts.jsonl"), reading("choices.jsonl")
CONTINUATIONS = reading("continuations.jsonl")
FEATURES = reading("task.json")

WRONG = {
    # good arguments, and what is wrong behind them: the message names the last flag or what it was given
    UNQOVER: "--no-such-flag 1",
    LEI: "--per-class 0 | --per-class 100000 | --split some | --disjoint-from {dir}/rows.jsonl",
    PERTURB: "--input {dir}/lei.json | --input {dir}/none | --input stories:nowhere"
    " | --input hub: | --input {dir}:train | --sentences {dir}/squad.json"
    " | --variant os_r_aug --sentences {dir}/squad.json",
    PREDICTED: "--predicted | --predictions {dir}/lei.json {dir}/lei.json"
    " | --predictions {dir}/squad.json | --checkpoint {dir}/bert.ckpt",
    BIAS: "--checkpoint {dir}/none.ckpt | --checkpoint {dir} | --data {dir}/squad.json | --batch-size 0"
    " | --checkpoint a={dir}/bert.ckpt a={dir}/bert.ckpt | --checkpoint openai:gpt | --device cuda:99",
    FAITHFUL: "--data {dir}/squad.json {dir}/coqa.json",
    SHIFT: "--layers some | --variants os | --checkpoint hf:gpt2",
    ASK: "--candidate Zed",
    CONSISTENCY: "--decay nan | --checkpoint hf:/no/such | --draws 3",
    CONTINUATIONS: "--margin nan | --scorer toxic | --scorer hf:/no/such"
    " | --continuations {dir}/prompts.jsonl",
    CONFUSION: "--choices 1 | --input {dir}/unlabelled.jsonl",
    FEATURES: "--shots 1 | --wording {dir}/task.json",
}
NAMED = (
    # ... and what the message names where that is something else
    ("data", "", "COMMAND"),
    ("data", "sweep", "sweep"),
    (
        "data unqover --templates {dir}/templates --attributes {dir}/attributes --output {out}",
        "",
        "--subjects",
    ),
    (UNQOVER, "--subjects {dir}/subjects {dir}/subjects {dir}/subjects", "subjects"),
    (PERTURB, "--input stories:dev?seed=x", "seed"),
    (PERTURB, "--input hub:no/such:train", "no/such"),
    ("evaluation", "", "PROTOCOL"),
    ("evaluation", "prejudice", "prejudice"),
    ("evaluation bias --output {out}", "", "--checkpoint"),
    (FAITHFUL, "--data {dir}/coqa.json --variants os", "bert.ckpt"),
    (FAITHFUL, f"--max-requests -1 --checkpoint {ENDPOINT}", "max"),
    ("evaluation predicate-argument --checkpoint {dir}/bert.ckpt --output {out}", "", "bert.ckpt"),
    (CONSISTENCY, f"--checkpoint {ENDPOINT}", "--method self"),
    (CONFUSION, "--input {dir}/choices.jsonl+{dir}/labels.lst", "labels.lst"),
    (CONFUSION, f"--sampling random --checkpoint {ENDPOINT}", "endpoint"),
    (FEATURES, "--shots 100", "demonstrations"),
    ("models", "", "command"),
    ("models export {dir}/bert.ckpt", "", "folder"),
    ("models export {dir}/squad.json {out}", "", "squad.json"),
    ("models export {dir}/bert.ckpt {dir}", "", "given"),
)
ROWS = [*((good, wrong, "") for good, listed in WRONG.items() for wrong in listed.split(" | ")), *NAMED]


def entry_and_arguments(line: str, given: Path, out: Path) -> tuple[Any, list[str]]:
    entry, *words = (word.format(dir=given, out=out) for word in line.split())
    return ENTRIES[entry], words


@pytest.mark.parametrize(("good", "wrong", "named"), ROWS)
def test_a_wrong_flag(
    good: str,
    wrong: str,
    named: str,
    given: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    refuse: Refuse,
) -> None:
    """A wrong flag of data, evaluate or export"""
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "PERSPECTIVE_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    before = everything_in(given)
    main, arguments = entry_and_arguments(f"{good} {wrong}", given, tmp_path / "out")
    if not named:
        flags = [word.partition("=")[0] for word in arguments if word.startswith("--")]
        value = re.sub("^(hf|stories):", "", arguments[-1])
        named = f"{flags[-1]}|{value}" if len(value) > 2 else flags[-1]
    refuse(main, arguments, named)
    assert everything_in(given) == before


WRITERS = {
    "lei": LEI,
    "perturb": PERTURB,
    "bias": PREDICTED,
    "ask": ASK,
    "export": "models export {dir}/bert.ckpt {out}",
}


def a_file(place: Path) -> Path:
    place.write_text("precious")
    return place


def a_folder(place: Path) -> Path:
    place.mkdir()
    a_file(place / "thesis.txt")
    return place


PLACES: dict[str, Callable[[Path], Path]] = {
    "a file": a_file,
    "a folder": a_folder,
    "behind a file": lambda place: a_file(place) / "out",
    "too long": lambda place: place.with_name("x" * 300),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("overwrite", [False, True])
def test_a_wrong_place_for_output(
    overwrite: bool, writer: str, place: str, given: Path, tmp_path: Path, refuse: Refuse
) -> None:
    """Output in the place of a file, a folder or behind a file"""
    main, _ = entry_and_arguments(WRITERS[writer], given, tmp_path)
    if overwrite and (writer == "export" or (place == "a file" and main is data_command)):
        return  # has no such flag; is what it is for
    out = PLACES[place](tmp_path / "out")
    _, arguments = entry_and_arguments(WRITERS[writer], given, out)
    named = out if place == "too long" else tmp_path / "out"
    refuse(main, arguments + ["--overwrite"] * overwrite, str(named))


def test_good_commands_are_good(given: Path, tmp_path: Path) -> None:
    """The same commands without a mistake

    Promise: end well.
    """
    for number, line in enumerate([*WRITERS.values(), BIAS]):
        accepted(outcome(*entry_and_arguments(line, given, tmp_path / f"out{number}")))
