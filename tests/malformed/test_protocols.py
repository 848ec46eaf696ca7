"""Malformed files through consistency, confusion, feature-bias and train-scorer: each costs one clear line,
and nothing is left behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from evaluation.__main__ import main as evaluation_command
from evaluation.scorers.interface import ATTRIBUTES
from tests.malformed.mutations import Case, byte_cases, field_cases, sample
from tests.malformed.outcome import check_one_clear_line, everything_in, outcome, refused
from tests.malformed.protocol_documents import ABSENT, FORMATS, JSON_FORMATS, MODEL, write_companions

_ALIKE = ("demos_0_0.", "testset_1_1.", "testset_0_0.", "testset_0_1.", *(f".{a}." for a in ATTRIBUTES[1:]))
"""Parts of which others of the same shape are tried already."""

CASES = sample(
    [
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
)


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
    (CONSISTENCY, f"{SCORER} --model openai:x@http://localhost:9/v1", "--method self"),
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
