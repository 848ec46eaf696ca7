"""Finished work that is none, or is damaged: one clear line, and the file stays as it is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from evaluation.__main__ import main as evaluation_command
from tests.data_modules.fixtures import tiny_language_models
from tests.evaluation.scorers.labelled import write_rows
from tests.malformed.documents import write_companions
from tests.malformed.outcome import outcome, refused

LONG = {
    "consistency": "--model hf:{}/model --method instructive --adversarial {}/short.jsonl "
    "--neutral {}/short.jsonl --specifications {}/short.json --scorer embedded:{}/scorer.json "
    "--new-tokens 2 --nonsense-groups 1 --beams 1",
    "confusion": "--checkpoint hf:{}/model --input {}/short_choices.jsonl --probes choice-paralysis "
    "--sampling random --choices 3 --trials 1 --instances 2",
    "feature-bias": "--model hf:{}/model --task {}/short_task.json --shots 2 --seeds 1 --no-agreement "
    "--intervention verbalizer --steer h1 --wording {}/short_wording.json",
}
"""Protocols that keep finished work, by commands that end at once."""


@pytest.fixture(scope="module")
def companions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of a few words, and files that fit its context."""
    companions = tmp_path_factory.mktemp("companions")
    write_companions(companions)
    tiny_language_models.save(companions / "model", "gpt2")
    write_rows(companions / "short.jsonl", [{"text": "the cat sat"}, {"text": "a dog ran"}])
    short = {"template": "who is {} :", "separator": " ", "nonsense": ["not not"]}
    short |= {"original": "the cat", "opposite": "the dog"}
    (companions / "short.json").write_text(json.dumps({"instructive": short}))
    choices = [f"on the {a} {b}" for a in ("red", "blue") for b in ("mat", "cat", "dog")]
    rows = [
        {"id": str(i), "prompt": f"where {i} ?", "choices": choices[i : i + 2], "label": 0}
        for i in range(0, 5, 2)
    ]
    write_rows(companions / "short_choices.jsonl", rows)
    words = {"key": "who ?", "words": ["cat", "dog"]}
    (companions / "short_wording.json").write_text(json.dumps({"*": {"h1": words}}))
    task = json.loads((companions / "task.json").read_text(encoding="utf-8"))
    for part in (value for key, value in task.items() if key[:4] in ("demo", "test")):
        for i, row in enumerate(part):
            row["question"] = f"the {'cat' if row['answer'] == '1' else 'dog'} {'not ' * i}"
    (companions / "short_task.json").write_text(json.dumps(task))
    return companions


@pytest.fixture(scope="module")
def finished(companions: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """What each of LONG keeps."""
    folder = tmp_path_factory.mktemp("finished")
    for protocol in LONG:
        assert evaluation_command(long_command(protocol, companions, folder / protocol)) == 0
    return {protocol: folder / f"{protocol}.work.jsonl" for protocol in LONG}


def long_command(protocol: str, companions: Path, output: Path) -> list[str]:
    flags = LONG[protocol].replace("{}", str(companions)).split()
    return [protocol, *flags, "--device", "cpu", "--output", str(output)]


WORK: dict[str, bytes] = {
    "a report": b'{\n "mu": 1\n}\n',
    "rows of another file": b'{"text": "a"}\n{"text": "b"}\n',
    "zeros": bytes(300) + b"\n" + bytes(300),
    "deeply nested": b"[" * 100_000 + b"\n{}\n",
}


@pytest.mark.parametrize("content", WORK)
@pytest.mark.parametrize("protocol", LONG)
def test_finished_work_that_is_none(
    protocol: str, content: str, companions: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_bytes(WORK[content])
    command = long_command(protocol, companions, tmp_path / "out")
    result = outcome(evaluation_command, [*command, "--work", str(path)], capsys)
    refused(result, "mine.jsonl", "line 1")
    assert path.read_bytes() == WORK[content]
    assert [one.name for one in tmp_path.iterdir()] == ["mine.jsonl"]


@pytest.mark.parametrize("protocol", LONG)
def test_finished_work_with_damaged_records(
    protocol: str,
    companions: Path,
    finished: dict[str, Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Records of this very run, one of each shape without a field, or with one of another type."""
    records = [json.loads(line) for line in finished[protocol].read_text(encoding="utf-8").splitlines()]
    shapes = {tuple(sorted(record)): i for i, record in reversed(list(enumerate(records)))}
    path = tmp_path / "out.work.jsonl"
    for name, i in [(name, i) for names, i in shapes.items() for name in names if name != "key"]:
        for other in (..., None, [[]], {}):
            record = {key: value for key, value in (records[i] | {name: other}).items() if value is not ...}
            write_rows(path, [*records[:i], record, *records[i + 1 :]])
            command = long_command(protocol, companions, tmp_path / "out")
            refused(outcome(evaluation_command, command, capsys), path.name)
            assert [one.name for one in tmp_path.iterdir()] == [path.name]
