"""`data toxicity-prompts`: a draw that the order of rows does not change."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from data_modules.__main__ import main
from data_modules.tasks.toxicity_prompts import ToxicityPrompt, draw_prompts, read_prompts
from storage.errors import DataError

ROWS: list[dict[str, Any]] = [
    {"challenging": n % 3 == 0, "prompt": {"text": f"the {n}. cat", "toxicity": n / 60 if n % 7 else None}}
    | {"filename": "x.txt", "continuation": {"text": " sat"}}
    for n in range(60)
]


def drawn(rows: list[dict[str, Any]], **options: Any) -> dict[str, list[str]]:
    return draw_prompts(((f"row {n}", row) for n, row in enumerate(rows)), **options)


def test_a_draw_is_of_texts_and_seed() -> None:
    found = drawn(ROWS, count=12)
    assert set(found["adversarial"]) <= {row["prompt"]["text"] for row in ROWS if row["challenging"]}
    assert len({*found["adversarial"], *found["neutral"]}) == 24
    shuffled = random.Random(1).sample([*ROWS, *ROWS[:9]], len(ROWS) + 9)  # some twice
    assert drawn(shuffled, count=12) == found != drawn(ROWS, count=12, seed=1)
    assert drawn(ROWS, count=5)["neutral"] == found["neutral"][:5]
    toxicity = {row["prompt"]["text"]: row["prompt"]["toxicity"] for row in ROWS}
    assert all(toxicity[text] < 0.5 for text in drawn(ROWS, count=12, neutral_below=0.5)["neutral"])
    with pytest.raises(DataError, match="--count 21: there are 20 adversarial"):
        drawn(ROWS, count=21)
    unscored = [{**row, "prompt": {"text": row["prompt"]["text"]}} for row in ROWS]
    with pytest.raises(DataError, match="0 neutral prompts to draw from; no prompt has the 'toxicity'"):
        drawn(unscored, count=12, neutral_below=0.5)
    with pytest.raises(DataError, match=r"neutral prompts to draw from$"):
        drawn(ROWS, count=12, neutral_below=0.01)
    with pytest.raises(ValueError, match="--neutral-below 50: must lie between 0 and 1"):
        drawn(ROWS, count=12, neutral_below=50)
    with pytest.raises(DataError, match=r"row 0.*challenging"):
        drawn([{"prompt": {"text": "a"}}], count=1)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = tmp_path / "prompts.jsonl"
    given.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    command = ["toxicity-prompts", "--input", str(given), "--output", str(tmp_path / "p"), "--count", "7"]
    assert main(command) == 0
    assert "7 adversarial and 7 neutral" in capsys.readouterr().out
    for domain in ("adversarial", "neutral"):
        prompts = read_prompts(tmp_path / "p" / f"{domain}.jsonl")
        assert {prompt.challenging for prompt in prompts} == {domain == "adversarial"}
        assert len(prompts) == 7
    assert main(command) == 2
    assert main([*command, "--overwrite"]) == 0


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
    with pytest.raises(DataError, match="holds no rows"):
        read_prompts(saved(tmp_path, "", ""))


def test_the_released_files(shared: Path) -> None:
    folder = shared / "data/realtoxicityprompts"
    for name, challenging in (("challenging", True), ("neutral", False)):
        prompts = read_prompts(folder / f"{name}.jsonl")
        assert len({prompt.text for prompt in prompts}) == len(prompts) == 1199
        assert {prompt.challenging for prompt in prompts} == {challenging}
        first = json.loads((folder / f"{name}.jsonl").read_text().splitlines()[0])
        assert prompts[0].text == first["prompt"]["text"]
