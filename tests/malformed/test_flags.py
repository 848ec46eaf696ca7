"""Wrong flags and wrong places for output: one line that names the flag or file, and nothing is written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from data_modules.__main__ import main as data_command
from evaluation.__main__ import main as evaluation_command
from models.__main__ import main as models_command
from tests.malformed.documents import ABSENT, MODEL
from tests.malformed.outcome import everything_in, outcome

Refuse = Callable[..., None]
COMMANDS = {"data": data_command, "evaluation": evaluation_command, "models": models_command}
LISTS = "--subjects {}/subjects --templates {}/templates --attributes {}/attributes --output {out}"
LEI = f"lei {LISTS} --interventions {{}}/interventions.json"
PERTURB = "perturb --dataset squad --input {}/squad.json --variant os --output {out}"
TINY = "--checkpoint {}/bert.ckpt --device cpu --output {out}"
BIAS = f"bias --data {{}}/groups.json {TINY}"
PREDICTED = "bias --predictions {}/lei.json --output {out}"
FAITHFUL = f"faithfulness --data {{}}/questions.json {TINY}"
SHIFT = f"shift --data {{}}/questions.json {TINY}"
ASK = f"ask --context Café. --question Who? {TINY}"
CONSISTENCY = (
    f"consistency --model {MODEL} --method self --adversarial {{}}/prompts.jsonl --neutral {{}}/neutral.jsonl"
    " --output {out}"
)
SCORED = f"{CONSISTENCY} --scorer embedded:{{}}/scorer.json"
CONFUSION = (
    f"confusion --checkpoint {ABSENT} --probes no-question --input {{}}/choices.jsonl --output {{out}}"
)
FEATURES = f"feature-bias --model {MODEL} --task {{}}/task.json --output {{out}}"
TRAIN = "train-scorer --input {}/labelled.jsonl --output {out}"
ENDPOINT = "openai:x@http://localhost:9/v1"

FLAGS: dict[str, list[tuple[str, str, str]]] = {
    # of each entry point: good arguments, what is wrong, what the message names
    "data": [
        ("", "", "COMMAND"),
        ("", "sweep", "sweep"),
        (f"unqover {LISTS}", "--no-such-flag 1", "--no-such-flag"),
        (f"unqover {LISTS}", "--subjects {}/subjects {}/subjects {}/subjects", "subjects"),
        ("unqover --templates {}/templates --attributes {}/attributes --output {out}", "", "--subjects"),
        (LEI, "--per-class 0", "--per-class"),
        (LEI, "--per-class 100000", "--per-class"),
        (LEI, "--classes kind", "--classes"),
        (LEI, "--split dev --split-sizes 0 0 0", "--split-sizes"),
        (LEI, "--split dev --split-sizes 99 1 1", "split 'dev'"),
        (LEI, "--like {}/groups.json", "groups.json"),
        (LEI, "--disjoint-from {}/rows.jsonl", "rows.jsonl"),
        (f"lei {LISTS}", "", "--interventions"),
        (PERTURB, "--dataset coqa", "--dataset coqa"),
        (PERTURB, "--input {}/lei.json", "lei.json"),
        (PERTURB, "--input {}/none", "none"),
        (PERTURB, "--input stories:nowhere", "nowhere"),
        (PERTURB, "--input stories:dev?seed=x", "seed"),
        (PERTURB, "--input hub:", "hub:"),
        (PERTURB, "--input hub:no/such:train", "no/such"),
        (PERTURB, "--input {}:train", "{}"),
        (PERTURB, "--generator templates", "--generator"),
        (PERTURB, "--variant os_r_aug --generator gpt", "gpt"),
        (PERTURB, "--variant os_r_aug --generator hf:/no/such", "/no/such"),
        (PERTURB, "--variant os_r_aug --generator openai:x", "OPENAI_API_KEY"),
    ],
    "evaluation": [
        ("", "", "PROTOCOL"),
        ("", "prejudice", "prejudice"),
        ("bias --output {out}", "", "--checkpoint"),
        (PREDICTED, "--predicted", "--predicted"),
        (PREDICTED, "--format unqover", "--format unqover"),
        (PREDICTED, "--predictions {}/lei.json {}/lei.json", "--predictions"),
        (PREDICTED, "--predictions {}/squad.json", "squad.json"),
        (PREDICTED, "--checkpoint {}/bert.ckpt", "--checkpoint"),
        (BIAS, "--checkpoint {}/none.ckpt", "none.ckpt"),
        (BIAS, "--checkpoint {}", "{}"),
        (BIAS, "--checkpoint a={}/bert.ckpt a={}/bert.ckpt", "--checkpoint"),
        (BIAS, "--checkpoint openai:gpt", "openai:gpt"),
        (BIAS, "--data {}/squad.json", "squad.json"),
        (BIAS, "--batch-size 0", "--batch-size"),
        (BIAS, "--device cuda:99", "--device"),
        (FAITHFUL, "--data {}/squad.json {}/coqa.json", "--data"),
        (FAITHFUL, "--data {}/coqa.json --variants os", "bert.ckpt"),
        (FAITHFUL, f"--max-requests -1 --checkpoint {ENDPOINT}", "max"),
        (SHIFT, "--layers some", "--layers"),
        (SHIFT, "--variants os", "--variants"),
        (SHIFT, "--checkpoint hf:gpt2", "hf:gpt2"),
        (ASK, "--question=", "--question"),
        (ASK, "--candidate Zed", "--candidate"),
        ("predicate-argument --checkpoint {}/bert.ckpt --output {out}", "", "bert.ckpt"),
        (CONSISTENCY, "--scorer toxic", "'toxic'"),
        (CONSISTENCY, "--scorer perspective", "PERSPECTIVE_API_KEY"),
        (CONSISTENCY, "--scorer hf:/no/such", "/no/such"),
        (CONSISTENCY, "--scorer embedded:{}/task.json", "train-scorer"),
        (SCORED, "--scorer-attributes insult", "insult"),
        (SCORED, "--decay nan", "--decay"),
        (SCORED, "--nonsense-groups 3 --specifications {}/specifications.json", "nonsense"),
        (SCORED, f"--model {ENDPOINT}", "--method self"),
        (SCORED, "--model gpt2", "gpt2"),
        (CONFUSION, "--choices 1", "--choices"),
        (CONFUSION, "--benchmark piqa", "choices.jsonl"),
        (CONFUSION, "--labels {}/labels.lst", "labels.lst"),
        (CONFUSION, "--input {}/unlabelled.jsonl", "unlabelled.jsonl"),
        (CONFUSION, f"--sampling random --checkpoint {ENDPOINT}", "endpoint"),
        (FEATURES, "--shots 1", "--shots"),
        (FEATURES, "--shots 100", "demonstrations"),
        (FEATURES, "--words a a", "--words"),
        (FEATURES, "--wording {}/task.json", "task.json"),
        (FEATURES, "--model gpt2", "--checkpoint"),
        (TRAIN, "--held-out 2", "--held-out"),
        (TRAIN, "--label toxicity", "--label"),
        (TRAIN, "--input {}", "{}"),
    ],
    "models": [
        ("", "", "command"),
        ("export {}/bert.ckpt", "", "folder"),
        ("export {}/squad.json {out}", "", "squad.json"),
        ("export {}/bert.ckpt {}", "", "{}"),
    ],
}


def words(text: str, given: Path, out: Path) -> list[str]:
    """Arguments from a line of text."""
    return [word.replace("{out}", str(out)).replace("{}", str(given)) for word in text.split()]


ROWS = [(command, *row) for command, listed in FLAGS.items() for row in listed]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[1].split(' ')[0]} {row[2]}")
def test_a_wrong_flag(
    row: tuple[str, str, str, str],
    given: Path,
    tmp_path: Path,
    refuse: Refuse,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    command, good, wrong, named = row
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "PERSPECTIVE_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    before = everything_in(given)
    arguments = words(f"{good} {wrong}", given, tmp_path / "out")
    refuse(COMMANDS[command], arguments, named.replace("{}", str(given)))
    assert everything_in(given) == before


WRITERS = {
    "lei": ("data", LEI),
    "stories": ("data", "stories --split dev --kind qa --output {out}"),
    "perturb": ("data", PERTURB),
    "condaqa": ("data", "condaqa --input {}/condaqa.jsonl --output {out}"),
    "bias": ("evaluation", PREDICTED),
    "ask": ("evaluation", ASK),
    "export": ("models", "export {}/bert.ckpt {out}"),
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
    command, arguments = WRITERS[writer]
    if overwrite and (writer == "export" or (place == "a file" and command == "data")):
        return  # has no such flag; is what it is for
    out = PLACES[place](tmp_path / "out")
    flags = ["--overwrite"] * overwrite
    named = out if place == "too long" else tmp_path / "out"
    refuse(COMMANDS[command], words(arguments, given, out) + flags, str(named))


def test_good_commands_are_good(given: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The flags above are wrong, not what stands before them."""
    for number, (command, arguments) in enumerate([*WRITERS.values(), ("evaluation", BIAS)]):
        result = outcome(COMMANDS[command], words(arguments, given, tmp_path / f"out{number}"), capsys)
        assert result.code == 0, result.text
