"""What files and terminals of others can do: run no code, fill no memory, count nothing twice."""

import ast
import json
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from interventune.data_modules.encoding.windows import EncodedRow, max_context
from interventune.data_modules.sources import read_groups, read_questions
from interventune.data_modules.tasks.bbq import read_bbq
from interventune.evaluation.report import claimed
from interventune.storage.documents import DataError, load_json, load_yaml, write_text
from tests.data_modules.fixtures.tiny_lists import make_group
from tests.evaluation.bbq_files import bbq_rows
from tests.evaluation.checkpoints import save_groups
from tests.mistakes.conftest import refused

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("data_modules", "models", "training", "evaluation", "interventune")
OWN = {"from_pretrained(model.eval(), name)", "PeftConfig.from_pretrained(path)"}
"""Calls that open no files, or files without classes."""
BOMB = "a: &a [1, 1, 1, 1, 1, 1, 1, 1]\n" + "".join(
    f"{new}: &{new} [{', '.join([f'*{old}'] * 8)}]\n"
    for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)


def test_no_call_runs_the_code_of_a_folder() -> None:
    files = [path.read_text() for room in ROOMS for path in (ROOT / room).rglob("*.py")]
    calls = [x for file in files for x in ast.walk(ast.parse(file)) if isinstance(x, ast.Call)]
    texts = [ast.unparse(x) for x in calls if ast.unparse(x.func).endswith("from_pretrained")]
    assert len(texts) >= 6
    assert {text for text in texts if "trust_remote_code=False" not in text} == OWN


def test_processes_are_started_without_the_current_folder() -> None:
    for path in ("training/sweep/study.py", "training/sweep/select.py", "training/sweep/run.py"):
        text = (ROOT / path).read_text()
        assert text.count("sys.executable, ") == text.count('sys.executable, "-P", "-m"') > 0
    assert 'sys.executable, "-P", "-m"' in (ROOT / "evaluation/reproduce/run.py").read_text()


@pytest.mark.parametrize("text", [BOMB, "a: &a {b: *a}", "a: &a [*a]", "a: 1\nb: 2\na: 3"])
def test_yaml_stands_for_what_it_says(text: str, tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text(text)
    with pytest.raises(DataError, match=r"bad\.yaml"):
        load_yaml(tmp_path / "bad.yaml", Any)


def test_a_doubled_json_key_is_named(tmp_path: Path) -> None:
    for text in ('{"a": "Rome", "a": "Oslo"}', '{"x": [{"b": 1, "b": 1}]}'):
        (tmp_path / "bad.json").write_text(text)
        with pytest.raises(DataError, match=r'bad\.json: not JSON: .*"[ab]"'):
            load_json(tmp_path / "bad.json")


def test_the_best_windows_of_a_long_story_take_little_memory() -> None:
    """3,000 windows of 2.3 million characters, of which a token each would be 28 GB."""

    def window(number: int) -> EncodedRow:
        start_T = 6 * (128 * number + np.arange(384))
        ids_T = np.zeros(384, np.int32)
        return EncodedRow(ids_T, ids_T, np.stack([start_T, start_T + 5], 1), 0, 0)

    windows = [window(number) for number in range(3000)]
    tracemalloc.start()
    best = max_context(windows)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 2e8
    assert sum(map(np.sum, best)) == 128 * 2999 + 384


def test_groups_are_read_once(given_files: Path) -> None:
    groups = str(given_files / "groups.json")
    with pytest.raises(DataError, match="a second time"):
        list(read_groups(groups, groups))


def test_groups_without_answers_count(given_files: Path, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(DataError):
        list(read_questions(given_files / "groups.json"))
    assert "groups are left out" in caplog.text


def test_no_folder_is_made_on_the_way(tmp_path: Path) -> None:
    with claimed(tmp_path / "a" / ".." / "b", overwrite=False):
        assert [path.name for path in tmp_path.iterdir()] == ["b"]
    write_text(tmp_path / "a" / ".." / "c" / "file", "")
    assert [path.name for path in tmp_path.iterdir()] == ["c"]


@pytest.mark.parametrize("advice", ["no_such_file.txt", "fair=advice.json"])
def test_a_file_is_no_advice(advice: str, given_files: Path, tmp_path: Path) -> None:
    words = f"bbq --data {given_files}/bbq.jsonl --predictions x.jsonl --output {tmp_path}/x"
    refused("evaluation", [*words.split(), "--advice", advice], "NAME=SENTENCE")


def test_a_reader_that_has_gone_ends_a_command_quietly() -> None:
    code = "from interventune.storage.command_line import guarded; import sys; "
    code += "sys.exit(guarded(lambda: print('x' * 10**6)))"
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", code], **pipes) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141


def test_a_person_is_not_compared_with_itself(tmp_path: Path) -> None:
    path = save_groups(tmp_path / "groups.jsonl", [make_group("Anna", "Ivan")])
    path.write_text(path.read_text().replace("Ivan", "ANNA"))
    with pytest.raises(DataError, match=r"groups\.jsonl, line 1: .* subjects are equal"):
        list(read_groups(path))


@pytest.mark.parametrize("change", [{"label": True}, {"label": 3}, {"ans0": "the  CELLIST"}, {}])
def test_a_bbq_example_is_whole_and_read_once(change: dict[str, Any], tmp_path: Path) -> None:
    rows = bbq_rows(1)
    rows = [rows[0] | change, *rows[bool(change) :]]  # unchanged, it is there twice
    path = tmp_path / "bbq.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(DataError, match=r"bbq|Music-0: has 3 choices"):
        read_bbq([str(path)])
