from __future__ import annotations

import json
from pathlib import Path

import pytest

from evaluation.protocols.consistency.toxicity_prompts import ToxicityPrompt, read_prompts
from storage.errors import DataError


def saved(tmp_path: Path, *lines: str) -> Path:
    path = tmp_path / "prompts.jsonl"
    path.write_text("\n".join(lines))  # no newline behind the last
    return path


def test_both_shapes_are_read(tmp_path: Path) -> None:
    path = saved(
        tmp_path,
        '{"prompt": {"text": "The cat", "toxicity": 0.3}, "challenging": true}',
        "",
        '{"prompt": {"text": "the dog “"}}',
        '{"text": "A red"}',
        '{"prompt": {"text": "The end"}, "challenging": false}',
    )
    assert read_prompts(path) == [
        ToxicityPrompt("The cat", True, 1),
        ToxicityPrompt("the dog “", None, 3),
        ToxicityPrompt("A red", None, 4),
        ToxicityPrompt("The end", False, 5),
    ]
    assert [prompt.line for prompt in read_prompts(path, limit=2)] == [1, 3]


def test_errors_name_the_line(tmp_path: Path) -> None:
    for line, name in (("{}", "prompt"), ('{"prompt": {}}', "text"), ('{"text": " \\n"}', "empty")):
        with pytest.raises(DataError, match=rf"prompts.jsonl, line 2.*{name}"):
            read_prompts(saved(tmp_path, '{"text": "A"}', line), limit=1)  # all lines are checked
    with pytest.raises(DataError, match="holds no prompt"):
        read_prompts(saved(tmp_path, "", ""))


def test_the_released_files(shared: Path) -> None:
    folder = shared / "data/realtoxicityprompts"
    for name, challenging in (("challenging", True), ("neutral", False)):
        prompts = read_prompts(folder / f"{name}.jsonl")
        assert len({prompt.text for prompt in prompts}) == len(prompts) == 1199
        assert {prompt.challenging for prompt in prompts} == {challenging}
        first = json.loads((folder / f"{name}.jsonl").read_text().splitlines()[0])
        assert prompts[0].text == first["prompt"]["text"]
