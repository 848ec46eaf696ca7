"""Malformed files through consistency, confusion, feature-bias and train-scorer: each costs one clear line,
and nothing is left behind."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from evaluation.__main__ import main as evaluation_command
from evaluation.scorers.interface import ATTRIBUTES
from tests.malformed.documents import Format
from tests.malformed.mutations import Case, byte_cases, field_cases
from tests.malformed.outcome import check_one_clear_line, everything_in, outcome, refused
from tests.malformed.protocol_documents import ABSENT, FORMATS, JSON_FORMATS, MODEL, TASK, write_companions

_ALIKE = ("demos_0_0.", "testset_1_1.", "testset_0_0.", "testset_0_1.", *(f".{a}." for a in ATTRIBUTES[1:]))
"""Parts of which others of the same shape are tried already."""

CASES = [
    *(
        case
        for form in JSON_FORMATS
        for case in field_cases(form)
        if not any(part in case.name for part in _ALIKE)
    ),
    *(
        case
        for form in FORMATS
        for case in byte_cases(form)
        if not (form.text.isascii() and case.name == "latin-1")  # which are then the same bytes
        and str(case) != "wordings.json: an empty object"  # words nothing, which is no mistake
    ),
]


@pytest.fixture(scope="module")
def companions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("companions")
    write_companions(folder)
    return folder


@pytest.mark.parametrize("case", CASES, ids=str)
def test_one_clear_line(
    case: Case, companions: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = check_one_clear_line(case, companions, tmp_path, ABSENT, capsys)
    assert case.told is None or found.code == 2


Change = Callable[[list[Any]], Any]


def _row(i: int, **changed: Any) -> Change:
    """A change of one of the rows."""
    return lambda rows: [*rows[:i], rows[i] | changed, *rows[i + 1 :]]


def _inside(*path_and_value: Any) -> Callable[[Any], Any]:
    """Another value at a place."""
    *path, last, value = path_and_value

    def change(document: Any) -> Any:
        target = document
        for part in path:
            target = target[part]
        target[last] = value
        return document

    return change


_SELF = ("self",)
CONTRADICTIONS: list[tuple[str, str, Callable[[Any], Any], str]] = [
    ("prompts.jsonl", "an empty prompt", _row(1, prompt={"text": " "}), "line 2"),
    ("prompts.jsonl", "half a surrogate pair", _row(1, prompt={"text": "a \ud800"}), "line 2"),
    (
        "prompts.jsonl",
        "of the other domain",
        lambda rows: [row | {"challenging": False} for row in rows],
        "swapped",
    ),
    ("specifications.json", "a template without a place", _inside(*_SELF, "template", "Here:"), "template"),
    ("specifications.json", "a template of two places", _inside(*_SELF, "template", "{}{}:"), "template"),
    ("specifications.json", "an empty text", _inside(*_SELF, "original", 0, " "), "original"),
    ("specifications.json", "a text twice", _inside(*_SELF, "opposite", ["a", "a"]), "twice"),
    ("specifications.json", "more of one", _inside(*_SELF, "opposite", ["a"]), "2 original"),
    ("specifications.json", "no texts", _inside(*_SELF, "original", []), "original"),
    ("specifications.json", "a blank of nothing", _inside(*_SELF, "blank", ""), "blank"),
    ("specifications.json", "small nonsense", _inside(*_SELF, "nonsense", [["a"], ["b"]]), "nonsense"),
    ("specifications.json", "another method only", lambda d: {"instructive": d["self"]}, "self"),
    ("specifications.json", "another method", lambda d: d | {"other": {}}, "other"),
    ("specifications.json", "another field", _inside(*_SELF, "suffix", "x"), "suffix"),
    ("piqa.jsonl", "a label of no choice", _row(1, label=2), "line 2"),
    ("piqa.jsonl", "no label", _row(1, label=-1), "line 2"),
    ("piqa.jsonl", "a label of 400 digits", _row(1, label=10**400), "line 2"),
    ("piqa.jsonl", "one question", lambda rows: rows[:1], "1 question"),
    ("hellaswag.jsonl", "a choice fewer", _row(2, endings=["a", "b"]), "line 3"),
    ("hellaswag.jsonl", "one choice each", lambda rows: [r | {"endings": ["a"]} for r in rows], "line 1"),
    ("choices.jsonl", "a label of no choice", _row(1, label=2), "line 2"),
    ("choices.jsonl", "one choice", _row(1, choices=["a"]), "line 2"),
    ("choices.jsonl", "another number of choices", _row(1, choices=["a", "b", "c"]), "3 choices"),
    ("choices.jsonl", "nothing to borrow", lambda rows: [rows[0], rows[0] | {"id": "q2"}], "q1"),
    ("choices.jsonl", "another target", _row(1, target="all"), "line 2"),
    ("task.json", "a label of no class", _inside("testset_1_0", 1, "answer", "2"), "testset_1_0[1]"),
    ("task.json", "a label of another cell", _inside("testset_1_0", 1, "answer", "0"), "testset_1_0[1]"),
    ("task.json", "another split", _inside("testset_1_0", 1, "split", "0_1"), "testset_1_0[1]"),
    ("task.json", "an id twice", _inside("testset_1_0", 1, "id", "0"), "testset_1_0[1]"),
    ("task.json", "an empty question", _inside("demos_1_1", 1, "question", " "), "demos_1_1[1]"),
    ("task.json", "nothing to tell by", _inside("testset_0_1", []), "testset_0_1"),
    ("wordings.json", "an explanation without its end", _inside(TASK, "h2", "explanation", ["a", "b"]), "0."),
    ("wordings.json", "three label words", _inside(TASK, "h2", "words", ["a", "b", "c"]), "words"),
    ("wordings.json", "a third feature", _inside(TASK, "h3", {}), TASK),
    ("labelled.jsonl", "a label above 1", _row(1, toxicity=1.5), "line 2"),
    ("labels.lst", "a label fewer", lambda text: "0\n1\n", "2 labels"),
    ("labels.lst", "a label more", lambda text: "0\n1\n0\n1\n", "4 labels"),
    ("labels.lst", "an empty line", lambda text: "0\n\n0\n", "line 2"),
    ("labels.lst", "a fraction", lambda text: "0\n1.5\n0\n", "line 2"),
    ("labels.lst", "a word", lambda text: "0\nyes\n0\n", "line 2"),
    ("labels.lst", "a label of no choice", lambda text: "0\n2\n0\n", "line 2"),
]
"""Files in the right shape that contradict themselves, and what the message names."""


@pytest.mark.parametrize(
    ("name", "change", "told"),
    [(name, change, told) for name, _, change, told in CONTRADICTIONS],
    ids=[f"{name}: {what}" for name, what, *_ in CONTRADICTIONS],
)
def test_a_contradiction(
    name: str,
    change: Callable[[Any], Any],
    told: str,
    companions: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    form = next(form for form in FORMATS if form.name == name)
    path = tmp_path / f"bad_{name}"
    if form.document is None:
        path.write_text(change(form.text))
    else:
        path.write_text(json_text(form, change), encoding="utf-8")
    main, arguments = form.read
    found = outcome(main, arguments(path, companions, tmp_path / "out"), capsys)
    assert found.code == 2
    refused(found, path.name, told)
    assert [one.name for one in tmp_path.iterdir()] == [path.name]


def json_text(form: Format, change: Callable[[Any], Any]) -> str:
    """A changed document, escaped: half of a surrogate pair has no other form."""
    document = change(json.loads(json.dumps(form.document)))
    return "".join(json.dumps(row) + "\n" for row in document) if form.lines else json.dumps(document)


SCORER = "--scorer embedded:{}/scorer.json"
CONSISTENCY = (
    f"consistency --model {MODEL} --method self --adversarial {{}}/prompts.jsonl --neutral {{}}/neutral.jsonl"
)
CONFUSION = f"confusion --checkpoint {ABSENT} --probes no-question --input {{}}/choices.jsonl"
FEATURES = f"feature-bias --model {MODEL} --task {{}}/task.json"
TRAIN = "train-scorer --input {}/labelled.jsonl"
FLAGS: list[tuple[str, str, str]] = [
    # a command, what is wrong, what the message names
    (CONSISTENCY, "--scorer toxic", "'toxic' is no scorer"),
    (CONSISTENCY, "--scorer perspective", "PERSPECTIVE_API_KEY"),
    (CONSISTENCY, "--scorer perspective --scorer-url ftp://x", "ftp://x"),
    (CONSISTENCY, "--scorer perspective --scorer-requests-per-minute nan", "--scorer-requests-per-minute"),
    (CONSISTENCY, "--scorer perspective --scorer-requests-per-minute many", "--scorer-requests-per-minute"),
    (CONSISTENCY, "--scorer hf:/no/such", "/no/such"),
    (CONSISTENCY, "--scorer hf:/no/such --scorer-batch-size 0", "--scorer-batch-size"),
    (CONSISTENCY, "--scorer embedded:{}/none", "{}/none"),
    (CONSISTENCY, "--scorer embedded:{}/task.json", "train-scorer"),
    (CONSISTENCY, f"{SCORER} --scorer-attributes insult", "insult"),
    (CONSISTENCY, f"{SCORER} --scorer-attributes=", "--scorer-attributes"),
    (CONSISTENCY, f"{SCORER} --method both", "--method"),
    (CONSISTENCY, f"{SCORER} --decay nan", "--decay"),
    (CONSISTENCY, f"{SCORER} --beams 0", "--beams"),
    (CONSISTENCY, f"{SCORER} --limit -1", "--limit"),
    (CONSISTENCY, f"{SCORER} --nonsense-groups 3 --specifications {{}}/specifications.json", "nonsense"),
    (CONSISTENCY, f"{SCORER} --model openai:x@http://localhost:9/v1", "--method instructive"),
    (CONSISTENCY, f"{SCORER} --model gpt2", "gpt2"),
    (CONFUSION, "--choices 1", "--choices"),
    (CONFUSION, "--trials 0", "--trials"),
    (CONFUSION, "--probes none", "--probes"),
    (CONFUSION, "--benchmark piqa", "choices.jsonl"),
    (CONFUSION, "--labels {}/labels.lst", "labels.lst"),
    (CONFUSION, "--input {}/unlabelled.jsonl", "unlabelled.jsonl"),
    (CONFUSION, "--sampling random --checkpoint openai:x@http://localhost:9/v1", "endpoint"),
    (FEATURES, "--shots 1", "--shots"),
    (FEATURES, "--shots 100", "demonstrations"),
    (FEATURES, "--words a a", "--words"),
    (FEATURES, "--task {}/task.json {}/task.json", "--task"),
    (FEATURES, "--task {}/choices.jsonl", "choices.jsonl"),
    (FEATURES, "--wording {}/task.json", "task.json"),
    (FEATURES, "--model gpt2", "--checkpoint"),
    (TRAIN, "--held-out 2", "--held-out"),
    (TRAIN, "--label toxicity", "--label"),
    (TRAIN, "--text-field body", "body"),
    (TRAIN, "--input {}", "{}"),
]


@pytest.mark.parametrize(("command", "wrong", "told"), FLAGS)
def test_a_wrong_flag(
    command: str,
    wrong: str,
    told: str,
    companions: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("PERSPECTIVE_API_KEY", raising=False)
    words = f"{command} {wrong} --output {tmp_path / 'out'}".replace("{}", str(companions)).split()
    before = everything_in(companions)
    found = outcome(evaluation_command, words, capsys)
    assert found.code == 2
    refused(found, told.replace("{}", str(companions)))
    assert everything_in(tmp_path) == {}
    assert everything_in(companions) == before
