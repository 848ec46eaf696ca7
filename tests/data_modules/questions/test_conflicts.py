"""CoConflictQA's rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from data_modules.schema.spans import Span
from data_modules.sources import read_questions

ROW = {
    "question": "Where is Ann?",
    "answers": ["Rome", "the city of Rome", "Rome"],
    "context": "Ann left OSLO for the city of Rome.",
    "parametric_answer": " Oslo",
    "majority_res_freq": 4,
}


def saved(folder: Path, *changes: dict[str, Any]) -> Path:
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(ROW | change) + "\n" for change in changes))
    return path


def test_references_and_what_is_remembered(tmp_path: Path) -> None:
    one, two, three = read_questions(
        saved(tmp_path, {}, {"parametric_answer": "Os"}, {"parametric_answer": " ", "answers": ["Rom", "No"]})
    )
    assert one.answers == (Span(30, 34, "Rome"), Span(18, 34, "the city of Rome"))
    assert (one.id, one.references, one.remembered) == ("0", ("Rome", "the city of Rome", "Rome"), ("Oslo",))
    assert (one.dataset, one.domain) == ("coconflictqa", "remembered answer in the text")
    assert (two.id, two.domain) == ("1", "remembered answer not in the text")  # inside a longer word
    assert (three.remembered, [span.text for span in three.answers]) == ((), ["Rom"])


def test_real_files_are_read_whole(shared: Path) -> None:
    for name, count, within in (("squad", 2225, 323), ("nq", 1409, 311)):
        examples = list(read_questions(shared / f"data/conflict/coconflictqa_{name}.jsonl"))
        assert (len(examples), sum("not" not in one.domain for one in examples)) == (count, within)
        assert all(example.answers for example in examples)
