"""Finished work that is none, or is damaged: one clear line, and the file stays as it is."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from evaluation.__main__ import main as evaluation_command
from tests.evaluation.scorers.labelled import write_rows

LONG = {
    "consistency": "--model hf:{}/model --method instructive --adversarial {}/short.jsonl "
    "--neutral {}/short.jsonl --specifications {}/short.json --scorer embedded:{}/scorer.json "
    "--new-tokens 2 --nonsense-groups 1 --beams 1",
    "confusion": "--checkpoint hf:{}/model --input {}/short_choices.jsonl --probes choice-paralysis "
    "--sampling random --choices 3 --trials 1 --instances 2",
}
"""Protocols that keep finished work, by commands that end at once."""


@pytest.fixture(scope="module")
def finished(given: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """What each of LONG keeps."""
    folder = tmp_path_factory.mktemp("finished")
    for protocol in LONG:
        assert evaluation_command(long_command(protocol, given, folder / protocol)) == 0
    return {protocol: folder / f"{protocol}.work.jsonl" for protocol in LONG}


def long_command(protocol: str, given: Path, output: Path) -> list[str]:
    flags = LONG[protocol].replace("{}", str(given)).split()
    return [protocol, *flags, "--device", "cpu", "--output", str(output)]


NO_WORK = (b'{\n "mu": 1\n}\n', b'{"text": "a"}\n{"text": "b"}\n', b"[" * 100_000 + b"\n{}\n")
"""A report, rows of another file, deeply nested."""


@pytest.mark.parametrize(("protocol", "content"), zip(LONG, NO_WORK, strict=False), ids=LONG)
def test_finished_work_that_is_none(
    protocol: str, content: bytes, given: Path, tmp_path: Path, refuse: Callable[..., None]
) -> None:
    """A file that is no finished work"""
    path = tmp_path / "mine.jsonl"
    path.write_bytes(content)
    command = long_command(protocol, given, tmp_path / "out")
    refuse(evaluation_command, [*command, "--work", str(path)], "mine.jsonl", "line 1")
    assert path.read_bytes() == content


@pytest.mark.parametrize("protocol", LONG)
def test_finished_work_with_damaged_records(
    protocol: str, given: Path, finished: dict[str, Path], tmp_path: Path, refuse: Callable[..., None]
) -> None:
    """Finished work with a record that lacks a field, or has one of another type"""
    records = [json.loads(line) for line in finished[protocol].read_text(encoding="utf-8").splitlines()]
    shapes = {tuple(sorted(record)): i for i, record in reversed(list(enumerate(records)))}
    path, command = tmp_path / "out.work.jsonl", long_command(protocol, given, tmp_path / "out")
    for name, i in [(name, i) for names, i in shapes.items() for name in names if name != "key"]:
        for other in (..., None, [[]], {}):
            record = {key: value for key, value in (records[i] | {name: other}).items() if value is not ...}
            write_rows(path, [*records[:i], record, *records[i + 1 :]])
            refuse(evaluation_command, command, path.name)
