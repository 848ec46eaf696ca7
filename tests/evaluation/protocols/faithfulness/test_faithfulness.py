"""The faithfulness protocol: every number against rows counted by hand, and mistakes told in a line."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import pytest

import evaluation.answering.answerers
import evaluation.answering.yes_no  # before answerers are replaced: it keeps the real opener
from data_modules.interventions.variants import Interventions, intervene
from data_modules.questions.rows import write_rows
from data_modules.questions.squad import write_squad
from data_modules.schema import QAExample
from data_modules.sources import read_qa
from evaluation.__main__ import main
from evaluation.answering.answerers import Said


class Stubborn:
    """Answers what the original story says, whatever is left of it."""

    typed = True

    def said(self, examples: Sequence[QAExample], what: str = "") -> Iterator[Said]:
        for i in reversed(range(len(examples))):
            yield Said(i, (*examples[i].gold, "unknown")[0])


class Faithful(Stubborn):
    """Says unknown where the rationale is gone, and breaks down at every fifth question."""

    def said(self, examples: Sequence[QAExample], what: str = "") -> Iterator[Said]:
        for i, example in enumerate(examples):
            if i % 5 == 4:
                yield Said(i, "", "timeout")
            else:
                yield Said(i, example.gold[0] if example.rationale else "unknown")


class Silent(Stubborn):
    """An endpoint that is not there."""

    def said(self, examples: Sequence[QAExample], what: str = "") -> Iterator[Said]:
        return (Said(i, "", "no connection") for i in range(len(examples)))


class Plain(Stubborn):
    typed = False


@pytest.fixture
def models(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = {"stubborn": Stubborn, "faithful": Faithful, "plain": Plain, "silent": Silent}
    monkeypatch.setattr(evaluation.answering.answerers, "open_answerer", lambda path, args: kinds[path]())


def run(output: Path, *arguments: str) -> dict:
    assert main(["faithfulness", *arguments, "--output", str(output)]) == 0
    return json.loads((output / "report.json").read_text())


def test_old_answers_and_unknown_by_variant(models: None, tmp_path: Path) -> None:
    data = ["--data", "stories:mixed_dev", "--limit", "60"]
    found = run(tmp_path / "r", "--checkpoint", "stubborn", "faithful", *data)
    examples = list(islice(read_qa("stories:mixed_dev"), 60))
    told = sum(bool(example.rationale) for example in examples)
    assert found["stubborn/os/em"] == found["stubborn/ts/em"] == found["stubborn/ts_r/em"] == 1
    assert found["stubborn/ts_r/unknown"] == 0
    assert found["stubborn/ts_r/n"] == told
    assert found["faithful/ts_r/unknown"] == 1
    assert found["faithful/ts_r/em"] == found["faithful/ts_r/f1"] == 0
    assert found["faithful/os/failures"] == 12
    assert found["faithful/os/n"] == 48
    yes = sum(example.answer_type == "yes" for example in examples)
    assert yes > 0
    assert found["stubborn/ts_r/yes/n"] == yes  # by the type of the original answer
    rows = [json.loads(line) for line in (tmp_path / "r" / "examples.jsonl").read_text().splitlines()]
    mine = [row for row in rows if row["checkpoint"] == "faithful" and row["variant"] == "ts_r"]
    assert sum(row.get("unknown", False) for row in mine) == found["faithful/ts_r/n"]
    assert sum("failure" in row for row in mine) == found["faithful/ts_r/failures"]
    text = (tmp_path / "r" / "report.md").read_text()
    assert f"`ts_r` leaves out {60 - told} questions" in text
    assert (
        "Without an answer, counted apart and in no share (questions, over all variants): faithful: " in text
    )
    assert "| no answer |" in text
    assert (tmp_path / "r" / "faithfulness.png").stat().st_size > 0


def test_rows_of_perturb_are_taken_as_they_are(models: None, tmp_path: Path) -> None:
    examples = list(islice(read_qa("stories:conversation_dev"), 20))
    made = intervene(examples, "ts_r", Interventions(), "dev").examples
    write_rows(examples, tmp_path / "os.jsonl")
    write_rows(made[:7], tmp_path / "ts_r.jsonl")
    data = ["--data", str(tmp_path / "os.jsonl"), str(tmp_path / "ts_r.jsonl")]
    found = run(tmp_path / "r", "--checkpoint", "stubborn", *data)
    assert (found["os/n"], found["ts_r/n"]) == (20, 7)
    assert "ts/n" not in found
    found = run(tmp_path / "s", "--checkpoint", "stubborn", *data, "--variants", "ts", "ts_r")
    assert (found["ts/n"], found["ts_r/n"]) == (20, 7)


def test_a_limit_counts_originals_and_keeps_their_variants(models: None, tmp_path: Path) -> None:
    """Also where the variants are in another file, which comes first or last."""
    examples = list(islice(read_qa("stories:conversation_dev"), 20))
    made = intervene(examples, "ts_r", Interventions(), "dev").examples
    first = {example.id for example in examples[:6]}
    wanted = sum(row.id in first for row in made)
    assert 0 < wanted < len(made)
    write_rows(examples, tmp_path / "os.jsonl")
    write_rows(made, tmp_path / "ts_r.jsonl")
    (tmp_path / "both.jsonl").write_text(
        (tmp_path / "os.jsonl").read_text() + (tmp_path / "ts_r.jsonl").read_text()
    )
    for i, names in enumerate((["os.jsonl", "ts_r.jsonl"], ["ts_r.jsonl", "os.jsonl"], ["both.jsonl"])):
        data = ["--data", *(str(tmp_path / name) for name in names), "--limit", "6"]
        found = run(tmp_path / f"r{i}", "--checkpoint", "stubborn", *data)
        assert (found["os/n"], found["ts_r/n"]) == (6, wanted)
        assert "ts/n" not in found  # nothing is made beside the rows
    data = ["--data", str(tmp_path / "ts_r.jsonl"), "--limit", "3"]
    assert run(tmp_path / "s", "--checkpoint", "stubborn", *data)["ts_r/n"] == 3


def test_types_are_those_of_the_originals_also_without_os(models: None, tmp_path: Path) -> None:
    data = ["--data", "stories:mixed_dev", "--limit", "60", "--variants"]
    both = run(tmp_path / "r", "--checkpoint", "stubborn", *data, "os", "ts_r")
    alone = run(tmp_path / "s", "--checkpoint", "stubborn", *data, "ts_r")
    keys = {key for key in both if key.startswith("ts_r/") and key.endswith("/n")}
    assert "ts_r/yes/n" in keys
    assert {key: alone[key] for key in alone if key.startswith("ts_r/") and key.endswith("/n")} == {
        key: both[key] for key in keys
    }


def test_types_are_not_told_where_no_original_is(models: None, tmp_path: Path) -> None:
    examples = list(islice(read_qa("stories:conversation_dev"), 5))
    write_rows(intervene(examples, "ts_r", Interventions(), "dev").examples, tmp_path / "ts_r.jsonl")
    run(tmp_path / "r", "--checkpoint", "stubborn", "--data", str(tmp_path / "ts_r.jsonl"))
    assert "By type of the original answer" not in (tmp_path / "r" / "report.md").read_text()


def test_a_model_that_answers_nothing_is_warned_of(
    models: None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = ["--data", "stories:mixed_dev", "--limit", "9"]
    found = run(tmp_path / "r", "--checkpoint", "faithful", "silent", *data)
    assert found["silent/os/n"] == 0
    assert found["silent/os/em"] is None
    (message,) = (record.getMessage() for record in caplog.records if "answered nothing" in record.message)
    assert message.startswith("silent: ")
    assert "no connection" in message


def test_hotpotqa_and_coqa_from_their_files(models: None, shared: Path, tmp_path: Path) -> None:
    hotpot = run(
        tmp_path / "h",
        "--checkpoint",
        "stubborn",
        "--data",
        str(shared / "data/hotpotqa/distractor-100.json"),
    )
    assert hotpot["os/n"] == 100
    assert hotpot["os_r/em"] == 1
    assert "ts/n" not in hotpot
    coqa = run(
        tmp_path / "c", "--checkpoint", "stubborn", "--data", str(shared / "data/coqa/dev-1-story.json")
    )
    assert coqa["os/n"] == 12
    assert 0 < coqa["os/em"] < 1  # leave-one-out: the first human answer against the others


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--checkpoint", "plain", "--data", "stories:mixed_dev"], "no heads for yes and no"),
        (["--checkpoint", "stubborn", "--data", "absent.json"], "absent.json"),
        (["--checkpoint", "stubborn", "--data", "stories:mixed_dev", "squad.json"], "different data sets"),
        (["--checkpoint", "stubborn", "--data", "ts.jsonl", "--variants", "ts_r"], "no original stories"),
        (["--checkpoint", "stubborn", "stubborn", "--data", "stories:mixed_dev"], "two are called"),
        (
            ["--checkpoint", "stubborn", "--data", "stories:mixed_dev", "--limit", "-3"],
            "--limit: must not be",
        ),
    ],
)
def test_mistakes_are_one_line(
    arguments: list[str],
    told: str,
    models: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    write_squad(islice(read_qa("stories:dev"), 5), Path("squad.json"))
    examples = list(islice(read_qa("stories:conversation_dev"), 5))
    write_rows(intervene(examples, "ts", Interventions(), "dev").examples, Path("ts.jsonl"))
    assert main(["faithfulness", *arguments, "--output", "out"]) == 2
    errors = capsys.readouterr().err.strip().splitlines()
    assert told in errors[-1]
    assert not Path("out").exists()
