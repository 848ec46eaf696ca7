"""`data toxicity-prompts`: a draw that the order of rows does not change."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from data_modules.__main__ import main
from data_modules.tasks.toxicity_prompts import ToxicityPrompt, read_prompts
from storage.errors import DataError

ROWS: list[dict[str, Any]] = [
    {"challenging": n % 3 == 0, "prompt": {"text": f"the {n}. cat", "toxicity": n / 60}} for n in range(60)
]


def drawn(folder: Path, rows: list[dict[str, Any]], count: int, seed: int = 0) -> dict[str, list[str]]:
    """What the command writes."""
    (given := folder / "prompts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    flags = ["--count", str(count), "--seed", str(seed), "--overwrite", "--debug"]
    assert main(["toxicity-prompts", "--input", str(given), "--output", str(folder), *flags]) == 0
    prompts = {name: read_prompts(folder / f"{name}.jsonl") for name in ("adversarial", "neutral")}
    assert all(p.challenging == (name == "adversarial") for name in prompts for p in prompts[name])
    return {name: [prompt.text for prompt in found] for name, found in prompts.items()}


def test_the_draw_depends_on_texts_and_seed_alone(tmp_path: Path) -> None:
    found = drawn(tmp_path, ROWS, 12)
    assert set(found["adversarial"]) <= {row["prompt"]["text"] for row in ROWS if row["challenging"]}
    assert len({*found["adversarial"], *found["neutral"]}) == 24
    shuffled = random.Random(1).sample([*ROWS, *ROWS[:9]], len(ROWS) + 9)  # some twice
    assert drawn(tmp_path, shuffled, 12) == found != drawn(tmp_path, ROWS, 12, seed=1)
    assert drawn(tmp_path, ROWS, 5)["neutral"] == found["neutral"][:5]
    with pytest.raises(DataError, match=r"--count 21: .* 20 prompts for adversarial"):
        drawn(tmp_path, ROWS, 21)


def test_read_prompts_reads_both_shapes_and_names_the_line(tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"prompt": {"text": "The cat", "a": 0.3}, "challenging": true}\n{"text": "A “red"}\n')
    assert read_prompts(path) == [ToxicityPrompt("The cat", True), ToxicityPrompt("A “red", None)]
    for other in ('[{"text": "A"}]', "text,label\nA,1\n", '{"prompt": "A"}'):
        path.write_text(other)
        assert read_prompts(path) == [ToxicityPrompt("A")]
    path.write_text('{"text": "A"}\n{"text": " "}')
    with pytest.raises(DataError, match="line 2: the field"):
        read_prompts(path, limit=1)  # all lines are checked


def test_read_prompts_reads_the_released_files(shared: Path) -> None:
    for name, challenging in (("challenging", True), ("neutral", False)):
        prompts = read_prompts(shared / f"data/realtoxicityprompts/{name}.jsonl")
        assert len({prompt.text for prompt in prompts}) == len(prompts) == 1199
        assert {prompt.challenging for prompt in prompts} == {challenging}
