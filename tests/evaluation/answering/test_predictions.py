"""External answers: the same report as of the model that gave them; mistakes name the line."""

import tracemalloc
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from interventune.data_modules.schema.questions import QAExample, Span, Variant, write_records
from interventune.evaluation.answering.interface import Asking
from interventune.evaluation.answering.predictions import MISSING, Predictions
from interventune.evaluation.protocols.faithfulness.command import evaluate as faithfulness
from interventune.evaluation.variants import VariantOptions
from interventune.storage.documents import DataError
from tests.evaluation.cells import evaluate, examples_of
from tests.evaluation.checkpoints import QUESTIONS
from tests.evaluation.protocol_cases import CASE_OF, write_rows

VARIANTS: list[Variant] = ["os", "ts_r"]
SCORES = {"unknown_score", "guess", "guess_f1"}


def answers_in(row: dict[str, Any]) -> list[dict[str, Any]]:
    """The answers that a row of examples.jsonl holds."""
    if "prediction" in row:
        same = {name: row[name] for name in ("id", "variant") if name in row}
        return [{**same, "answer": row["prediction"]}]
    sides = ("org", "mod")
    return [{"id": row["id"], "variant": x, "answer": row[f"prediction_{x}"]} for x in sides]


@pytest.mark.parametrize("protocol", ["faithfulness", "negation", "predicate-argument"])
def test_the_same_answers_make_the_same_report(protocol: str, room: Path, tmp_path: Path) -> None:
    name, *flags = CASE_OF[protocol].command(room, tmp_path / "model")[:-2]
    report = evaluate(tmp_path / "model", name, *flags)
    examples = examples_of(tmp_path / "model")
    write_rows(tmp_path / "typed.jsonl", [answer for row in examples for answer in answers_in(row)])
    at = flags.index("--checkpoint")
    rest = [*flags[:at], *flags[at + 2 :], "--predictions", str(tmp_path / "typed.jsonl")]
    answered = evaluate(tmp_path / "file", name, *rest)
    frame = report.frame  # but for what needs scores of unknown, which a file does not have
    if "coverage" in report.by:
        frame = frame[(frame["coverage"] == "") & ~frame["measure"].str.startswith("recall_over")]
        frame = frame.reset_index(drop=True)
    pd.testing.assert_frame_equal(answered.frame, frame, check_dtype=False)
    for row, of_file in zip(examples, examples_of(tmp_path / "file"), strict=True):
        assert of_file == {name: row[name] for name in row if name not in SCORES}


def test_a_question_without_a_row_is_a_failure(tmp_path: Path) -> None:
    rows = [{"id": QUESTIONS[0].id, "answer": "attic"}, {"id": "b", "variant": "ts", "answer": "x"}]
    write_rows(tmp_path / "some.jsonl", rows)
    answerer = Predictions(str(tmp_path / "some.jsonl"))
    answers = [(answer.text, answer.failure) for answer in answerer.answers(QUESTIONS[:3])]
    assert answers == [("attic", ""), ("", MISSING), ("", MISSING)]


@pytest.mark.parametrize(
    "row",
    [{"id": "p0 org", "answer": "no"}, {"id": "1", "answer": "the right one", "prediction": "no"}],
)
def test_two_answers_to_one_question_are_an_error(row: dict[str, str], tmp_path: Path) -> None:
    write_rows(tmp_path / "mine.jsonl", [{"id": "p0", "variant": "org", "answer": "yes"}, row])
    with pytest.raises(DataError, match=r"mine.jsonl, line 2: a second answer"):
        Predictions(str(tmp_path / "mine.jsonl"))


def test_a_question_takes_at_most_ten_kilobytes(tmp_path: Path) -> None:
    """Two files of answers, two variants, a hundred words a question."""
    data, *files = (tmp_path / f"{name}.jsonl" for name in ("questions", "a", "b"))

    def peak(questions: int) -> int:
        asked = []
        for name in map(str, range(questions)):
            story = f"It is late. Box {name} is in hall {name}. {'All was quiet. ' * 30}"
            span = Span.locate(f"hall {name}", story, "")
            asked.append(QAExample(name, story, f"Where is the box {name}?", (span,)))
        write_records(asked, data)
        rows = [{"id": one.id, "variant": x, "answer": "hall"} for one in asked for x in VARIANTS]
        for file in files:
            write_rows(file, rows)
        del asked, rows
        options = VariantOptions([str(data)], VARIANTS)
        for trace in (list, tracemalloc.start):  # imports and caches are not counted
            trace()
            faithfulness(predictions=[*map(str, files)], variants=options, asking=Asking())
        highest = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return highest

    assert peak(600) - peak(200) < 400 * 10_000
