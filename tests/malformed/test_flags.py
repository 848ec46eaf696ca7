"""Wrong flags and wrong places for output, through the commands that write data and probe models."""

from __future__ import annotations

from pathlib import Path

import pytest

from data_modules.__main__ import main as data_command
from evaluation.__main__ import main as evaluation_command
from models.__main__ import main as models_command
from tests.data_modules.tiny_lists import write_lists
from tests.evaluation.checkpoints import save_ckpt, save_groups, save_questions
from tests.malformed.documents import FORMATS
from tests.malformed.outcome import everything_in, outcome, refused

COMMANDS = {"data": data_command, "evaluation": evaluation_command, "models": models_command}


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Good files of every kind."""
    folder = tmp_path_factory.mktemp("given")
    write_lists(folder)
    save_ckpt(folder / "bert.ckpt")
    save_groups(folder / "groups.json")
    save_questions(folder / "questions.json")
    for form in FORMATS:
        (folder / form.name).write_text(form.text, encoding="utf-8")
    return folder


LISTS = "--subjects {}/subjects --templates {}/templates --attributes {}/attributes --output {out}"
LEI = f"lei {LISTS} --interventions {{}}/interventions.json"
PERTURB = "perturb --dataset squad --input {}/squad.json --variant os --output {out}"
BIAS = "bias --checkpoint {}/bert.ckpt --data {}/groups.json --device cpu --output {out}"
PREDICTED = "bias --predictions {}/lei.json --output {out}"
FAITHFUL = "faithfulness --checkpoint {}/bert.ckpt --data {}/questions.json --device cpu --output {out}"
SHIFT = "shift --checkpoint {}/bert.ckpt --data {}/questions.json --device cpu --output {out}"
ASK = "ask --checkpoint {}/bert.ckpt --context Café. --question Who? --device cpu --output {out}"
PAIRS = "negation --checkpoint {}/bert.ckpt --pairs {}/pairs.jsonl --device cpu --output {out}"

FLAGS: list[tuple[str, str, str, str]] = [
    # command, its good arguments, what is wrong, what the message names
    ("data", "", "", "COMMAND"),
    ("data", "", "sweep", "sweep"),
    ("data", f"unqover {LISTS}", "--no-such-flag 1", "--no-such-flag"),
    ("data", f"unqover {LISTS}", "--subjects", "--subjects"),
    ("data", f"unqover {LISTS}", "--subjects {}/subjects {}/subjects {}/subjects", "subjects"),
    ("data", f"unqover {LISTS}", "--filler {}/none", "none"),
    ("data", "unqover --templates {}/templates --attributes {}/attributes --output {out}", "", "--subjects"),
    ("data", LEI, "--per-class 0", "--per-class"),
    ("data", LEI, "--per-class many", "--per-class"),
    ("data", LEI, "--per-class -5", "--per-class"),
    ("data", LEI, "--per-class 100000", "--per-class"),
    ("data", LEI, "--classes kind", "--classes"),
    ("data", LEI, "--split all", "--split"),
    ("data", LEI, "--split dev --split-sizes 0 0 0", "--split-sizes"),
    ("data", LEI, "--split dev --split-sizes 1 -2 3", "--split-sizes"),
    ("data", LEI, "--split dev --split-sizes 1 2", "--split-sizes"),
    ("data", LEI, "--split dev --split-sizes 99 1 1", "split 'dev'"),
    ("data", LEI, "--seed 1.5", "--seed"),
    ("data", LEI, "--like {}/squad.json", "squad.json"),
    ("data", LEI, "--like {}/groups.json", "groups.json"),
    ("data", LEI, "--exclude {}/none", "none"),
    ("data", LEI, "--disjoint-from {}/rows.jsonl", "rows.jsonl"),
    ("data", LEI, "--gold third", "--gold"),
    ("data", LEI, "--specified {}/none", "none"),
    ("data", f"lei {LISTS}", "", "--interventions"),
    ("data", "stories --split nowhere --kind qa --output {out}", "", "nowhere"),
    ("data", "stories --split dev --kind both --output {out}", "", "--kind"),
    ("data", "stories --split dev --kind qa --seed one --output {out}", "", "--seed"),
    ("data", "stories --split dev --kind qa", "", "--output"),
    ("data", PERTURB, "--variant tsr", "--variant"),
    ("data", PERTURB, "--dataset triviaqa", "--dataset"),
    ("data", PERTURB, "--dataset coqa", "--dataset coqa"),
    ("data", PERTURB, "--input {}/lei.json", "lei.json"),
    ("data", PERTURB, "--input {}/none", "none"),
    ("data", PERTURB, "--input stories:nowhere", "nowhere"),
    ("data", PERTURB, "--input stories:", "stories:"),
    ("data", PERTURB, "--input stories:dev?seed=x", "seed"),
    ("data", PERTURB, "--input hub:", "hub:"),
    ("data", PERTURB, "--input hub:no/such:train", "no/such"),
    ("data", PERTURB, "--input hub:no:such:train", "no"),
    ("data", PERTURB, "--input {}:train", "{}"),
    ("data", PERTURB, "--generator templates", "--generator"),
    ("data", PERTURB, "--cache {out}.jsonl", "--cache"),
    ("data", PERTURB, "--max-requests 3", "--max-requests"),
    ("data", PERTURB, "--variant os_r_aug --generator gpt", "gpt"),
    ("data", PERTURB, "--variant os_r_aug --generator hf:/no/such", "/no/such"),
    ("data", PERTURB, "--variant os_r_aug --generator openai:x", "OPENAI_API_KEY"),
    ("data", PERTURB, "--presence-test words", "--presence-test"),
    ("data", "condaqa --input {}/pairs.jsonl --output {out}", "", "PassageID"),
    ("evaluation", "", "", "PROTOCOL"),
    ("evaluation", "", "prejudice", "prejudice"),
    ("evaluation", "bias --output {out}", "", "--checkpoint"),
    ("evaluation", PREDICTED, "--predicted", "--predicted"),
    ("evaluation", PREDICTED, "--format xml", "--format"),
    ("evaluation", PREDICTED, "--format unqover", "--format unqover"),
    ("evaluation", PREDICTED, "--data {}/groups.json", "--data"),
    ("evaluation", PREDICTED, "--qa {}/squad.json", "--qa"),
    ("evaluation", PREDICTED, "--predictions {}/lei.json {}/lei.json", "--predictions"),
    ("evaluation", PREDICTED, "--predictions {}/groups.json", "groups.json"),
    ("evaluation", PREDICTED, "--predictions {}/squad.json", "squad.json"),
    ("evaluation", PREDICTED, "--checkpoint {}/bert.ckpt", "--checkpoint"),
    ("evaluation", "bias --checkpoint {}/bert.ckpt --output {out}", "", "--data"),
    ("evaluation", BIAS, "--checkpoint {}/none.ckpt", "none.ckpt"),
    ("evaluation", BIAS, "--checkpoint {}/squad.json", "squad.json"),
    ("evaluation", BIAS, "--checkpoint {}", "{}"),
    ("evaluation", BIAS, "--checkpoint a={}/bert.ckpt a={}/bert.ckpt", "--checkpoint"),
    ("evaluation", BIAS, "--checkpoint openai:gpt", "openai:gpt"),
    ("evaluation", BIAS, "--data {}/squad.json", "squad.json"),
    ("evaluation", BIAS, "--data stories:nowhere", "nowhere"),
    ("evaluation", BIAS, "--qa {}/groups.json", "groups.json"),
    ("evaluation", BIAS, "--batch-size 0", "--batch-size"),
    ("evaluation", BIAS, "--batch-size -4", "--batch-size"),
    ("evaluation", BIAS, "--batch-size many", "--batch-size"),
    ("evaluation", BIAS, "--device tpu9", "--device"),
    ("evaluation", BIAS, "--device cuda:99", "--device"),
    ("evaluation", BIAS, "--precision 16", "--precision"),
    ("evaluation", BIAS, "--planted-seed one", "--planted-seed"),
    ("evaluation", BIAS, "--planted-scope all", "--planted-scope"),
    ("evaluation", FAITHFUL, "--data {}/groups.json", "groups.json"),
    ("evaluation", FAITHFUL, "--data {}/squad.json {}/coqa.json", "--data"),
    ("evaluation", FAITHFUL, "--variants tsr", "--variants"),
    ("evaluation", FAITHFUL, "--limit -1", "--limit"),
    ("evaluation", FAITHFUL, "--variants ts_r_aug --generator gpt", "gpt"),
    ("evaluation", FAITHFUL, "--data {}/coqa.json --variants os", "bert.ckpt"),
    ("evaluation", FAITHFUL, "--unknown-threshold high", "--unknown-threshold"),
    ("evaluation", FAITHFUL, "--unknown-threshold nan", "--unknown-threshold"),
    ("evaluation", FAITHFUL, "--type-threshold nan", "--type-threshold"),
    ("evaluation", FAITHFUL, "--max-requests -1 --checkpoint openai:x@http://localhost:9/v1", "max"),
    ("evaluation", FAITHFUL, "--max-new-tokens 0 --checkpoint openai:x@http://localhost:9/v1", "max"),
    ("evaluation", SHIFT, "--chunk 0", "--chunk"),
    ("evaluation", SHIFT, "--layers some", "--layers"),
    ("evaluation", SHIFT, "--between first", "--between"),
    ("evaluation", SHIFT, "--limit -1", "--limit"),
    ("evaluation", SHIFT, "--variants os", "--variants"),
    ("evaluation", SHIFT, "--checkpoint hf:gpt2", "hf:gpt2"),
    ("evaluation", SHIFT, "--data {}/rows.jsonl {}/squad.json", "--data"),
    ("evaluation", ASK, "--question=", "--question"),
    ("evaluation", ASK, "--context=", "--context"),
    ("evaluation", ASK, "--candidate Zed", "--candidate"),
    ("evaluation", ASK, "--candidate=", "--candidate"),
    ("evaluation", PAIRS, "", "bert.ckpt"),
    ("evaluation", "predicate-argument --checkpoint {}/bert.ckpt --output {out}", "", "bert.ckpt"),
    ("models", "", "", "command"),
    ("models", "", "import", "import"),
    ("models", "export {}/bert.ckpt", "", "folder"),
    ("models", "export {}/none.ckpt {out}", "", "none.ckpt"),
    ("models", "export {}/squad.json {out}", "", "squad.json"),
    ("models", "export {} {out}", "", "{}"),
    ("models", "export {}/bert.ckpt {}", "", "{}"),
    ("models", "export {}/bert.ckpt {}/squad.json/x", "", "squad.json"),
]


def words(text: str, given: Path, out: Path) -> list[str]:
    """Arguments from a line of text."""
    return [word.replace("{out}", str(out)).replace("{}", str(given)) for word in text.split()]


@pytest.mark.parametrize(("command", "good", "wrong", "told"), FLAGS)
def test_a_wrong_flag(
    command: str,
    good: str,
    wrong: str,
    told: str,
    given: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    before = everything_in(given)
    arguments = words(good, given, tmp_path / "out") + words(wrong, given, tmp_path / "out")
    found = outcome(COMMANDS[command], arguments, capsys)
    refused(found, told.replace("{}", str(given)))
    assert everything_in(tmp_path) == {}
    assert everything_in(given) == before


WRITERS = {
    "lei": ("data", LEI),
    "unqover": ("data", f"unqover {LISTS}"),
    "stories": ("data", "stories --split dev --kind qa --output {out}"),
    "perturb": ("data", PERTURB),
    "condaqa": ("data", "condaqa --input {}/condaqa.jsonl --output {out}"),
    "bias": ("evaluation", PREDICTED),
    "ask": ("evaluation", ASK),
    "export": ("models", "export {}/bert.ckpt {out}"),
}


def _a_file(place: Path) -> Path:
    place.write_text("precious")
    return place


def _a_folder(place: Path) -> Path:
    place.mkdir()
    (place / "thesis.txt").write_text("precious")
    return place


def _behind_a_file(place: Path) -> Path:
    return _a_file(place) / "out"


def _too_long(place: Path) -> Path:
    return place.with_name("x" * 300)


PLACES = {"a file": _a_file, "a folder": _a_folder, "behind a file": _behind_a_file, "too long": _too_long}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("overwrite", [False, True])
def test_a_wrong_place_for_output(
    overwrite: bool,
    writer: str,
    place: str,
    given: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    command, arguments = WRITERS[writer]
    if overwrite and (writer == "export" or (place == "a file" and command == "data")):
        return  # has no such flag; is what it is for
    out = PLACES[place](tmp_path / "out")
    before = everything_in(tmp_path)
    flags = ["--overwrite"] * overwrite
    found = outcome(COMMANDS[command], words(arguments, given, out) + flags, capsys)
    refused(found, str(out if place == "too long" else tmp_path / "out"))
    assert everything_in(tmp_path) == before


def test_good_commands_are_good(given: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The flags above are wrong, not what stands before them."""
    for number, (command, arguments) in enumerate([*WRITERS.values(), ("evaluation", BIAS)]):
        found = outcome(COMMANDS[command], words(arguments, given, tmp_path / f"out{number}"), capsys)
        assert found.code == 0, found.text
