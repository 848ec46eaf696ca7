from __future__ import annotations

import csv
import hashlib
import json
from pathlib import Path
from typing import Any, get_args

import pytest

from data_modules.__main__ import main
from data_modules.interventions.perturb_command import summary_of
from data_modules.questions.rows import read_file
from data_modules.schema import REFORMATTED, Deletion, Rejected
from data_modules.sources import read_questions

STORY = "Ida sat by the well. Her cat Moro wore a blue bell. They left at ten."
QUESTIONS = (
    ("Who sat?", "Ida", "Ida sat by the well"),
    ("What did the cat wear?", "a blue bell", "Moro wore a blue bell."),
    ("Did they leave?", "Yes.", "They left at ten."),
    ("When?", "ten", "at ten"),
    ("Who fell?", "unknown", ""),
)


def coqa(path: Path, *, shift: int = 0) -> Path:
    """A file in CoQA's layout; `shift` moves the second rationale to a wrong place."""
    questions, answers = [], []
    for turn, (question, answer, rationale) in enumerate(QUESTIONS, 1):
        start = STORY.index(rationale) + shift * (turn == 2) if rationale else -1
        end = start + len(rationale) if rationale else -1
        questions.append({"input_text": question, "turn_id": turn})
        answers.append(
            {
                "input_text": answer,
                "turn_id": turn,
                "span_start": start,
                "span_end": end,
                "span_text": rationale or "unknown",
            }
        )
    story = {"source": "mctest", "id": "s", "story": STORY, "questions": questions, "answers": answers}
    path.write_text(json.dumps({"version": "1.0", "data": [story]}))
    return path


def squad(path: Path) -> Path:
    qas = [
        {"id": name, "question": f"{name}?", "answers": [{"text": text, "answer_start": STORY.index(text)}]}
        for name, text in (("q1", "Ida"), ("q2", "Moro"), ("q3", "ten"))
    ]
    path.write_text(json.dumps({"data": [{"paragraphs": [{"context": STORY, "qas": qas}]}]}))
    return path


def run(source: Path | str, variant: str, output: Path, *more: object, dataset: str = "coqa") -> int:
    flags = ["--dataset", dataset, "--input", source, "--variant", variant, "--output", output, *more]
    return main(["perturb", *(str(flag) for flag in flags)])


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_ts_r_of_coqa_and_its_summary(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, output = coqa(tmp_path / "in"), tmp_path / "out.jsonl"
    assert run(source, "ts_r", output) == 0
    assert capsys.readouterr().out == (
        f"{output}: 3 questions in ts_r; "
        "2 rejected (1 rationale begins in the first sentence, 1 no rationale)\n"
    )
    found = rows(output)
    assert [row["id"] for row in found] == ["s 2", "s 3", "s 4"]
    assert [row["context"].removeprefix("Ida sat by the well. ") for row in found] == [
        "a blue bell",
        "Her cat Moro wore a blue bell.",
        "Her cat Moro wore a blue bell. ten",
    ]
    assert [row["appended"] for row in found] == ["a blue bell", "", "ten"]
    for row in found:
        assert (row["answer_type"], row["answers"], row["rationale"]) == ("unknown", ["unknown"], [])
    assert [row["references"][0] for row in found] == ["a blue bell", "Yes.", "ten"]
    assert len(found[-1]["history"]) == 3
    summary = json.loads((tmp_path / "out.summary.json").read_text())
    assert summary.pop("sentence_library").startswith("sentencex ")
    assert summary == {
        "dataset": "coqa",
        "input": str(source),
        "sha256": hashlib.sha256(source.read_bytes()).hexdigest(),
        "variant": "ts_r",
        "seed": 0,
        "rules": {"presence_test": "token", "append_types": "all_but_yes_no_unknown"},
        "generator": None,
        "kept": 3,
        "rejected": {"rationale begins in the first sentence": 1, "no rationale": 1},
        "generation_failures": {},
    }
    assert {path.name for path in tmp_path.iterdir()} == {"in", "out.jsonl", "out.summary.json"}


def test_statistics_count_what_perturb_keeps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Stories, questions and answer types of the paper's Table 2, and why questions are left out."""
    source, output = coqa(tmp_path / "in"), tmp_path / "counts.csv"
    assert main(["statistics", "--data", f"dev={source}", "--output", str(output)]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0] == (
        "| data | variant | stories | questions | yes % | no % | unknown % | span % | number % | option % "
        "| left out |"
    )
    assert said[2:] == [
        "| dev | os | 1 | 5 | 20.0 | 0.0 | 20.0 | 40.0 | 20.0 | 0.0 | 0 |",
        "| dev | ts | 1 | 5 | 20.0 | 0.0 | 20.0 | 40.0 | 20.0 | 0.0 | 0 |",
        "| dev | ts_r | 1 | 3 | 33.3 | 0.0 | 0.0 | 33.3 | 33.3 | 0.0 | 2 (1 rationale begins in the first "
        "sentence, 1 no rationale) |",
    ]
    with open(output, newline="") as file:
        table = list(csv.DictReader(file))
    assert {row["n"] for row in table} == {"5"}
    assert all(row["low"] == row["value"] == row["high"] for row in table)
    of = {(row["variant"], row["reason"], row["measure"]): int(row["value"]) for row in table}
    assert [of[variant, "", "appended"] for variant in ("os", "ts", "ts_r")] == [0, 0, 2]
    for variant in ("os", "ts", "ts_r"):
        perturbed = tmp_path / f"{variant}.jsonl"
        assert run(source, variant, perturbed) == 0
        summary = json.loads(summary_of(perturbed).read_text())
        assert of[variant, "", "questions"] == summary["kept"]
        left = {why: count for (v, why, what), count in of.items() if (v, what) == (variant, "left_out")}
        assert left == summary["rejected"]
    assert main(["statistics", "--data", str(source), "--output", str(output)]) == 2
    assert "already exists" in capsys.readouterr().err


def test_the_public_sets_are_counted_in_their_own_variants(
    shared: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sources = ("hotpotqa/distractor-100.json", "coqa/dev-1-story.json")
    assert main(["statistics", "--data", *(str(shared / "data" / name) for name in sources)]) == 0
    rows = [line.split(" | ") for line in capsys.readouterr().out.splitlines()[2:]]
    assert [row[1] for row in rows] == ["os", "os_r", "os", "ts", "ts_r"]
    assert [int(row[3]) for row in rows if row[1] == "os"] == [100, 12]
    assert [int(row[2]) for row in rows if row[1] == "os"] == [100, 1]


@pytest.mark.parametrize("variant", [*get_args(Deletion), "spaced", "reformatted"])
@pytest.mark.parametrize("dataset", ["coqa", "squad", "stories"])
def test_every_variant_of_every_data_set_reads_back(tmp_path: Path, dataset: str, variant: str) -> None:
    sources = {"coqa": coqa, "squad": squad}
    source = sources[dataset](tmp_path / "in") if dataset in sources else "stories:conversation_dev"
    output = tmp_path / "out.jsonl"
    assert run(source, variant, output, dataset=dataset) == 0
    originals = {example.id: example for example in read_questions(source)}
    found = list(read_file(output))
    summary = json.loads(summary_of(output).read_text())
    assert len(found) == summary["kept"] == len(originals) - sum(summary["rejected"].values()) > 0
    for example in found:
        original = originals[example.id]
        assert (example.variant, example.dataset, example.gold) == (variant, dataset, original.gold)
        kept = "".join(original.context[start:end] for start, end in example.kept)
        if kept or variant not in REFORMATTED:
            assert example.context == (f"{kept} {example.appended}" if example.appended else kept)


def test_squad_takes_the_sentence_of_the_answer_as_rationale(tmp_path: Path) -> None:
    assert run(squad(tmp_path / "in"), "os_r", tmp_path / "out", dataset="squad") == 0
    assert [row["context"] for row in rows(tmp_path / "out")] == [
        "Her cat Moro wore a blue bell. They left at ten. Ida",
        "Ida sat by the well. They left at ten. Moro",
        "Ida sat by the well. Her cat Moro wore a blue bell. ten",
    ]


def test_only_examples_that_lost_their_answer_cost_a_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: dict[str, Any] = {}

    def generate(examples: list[Any], *, open_generator: Any, **settings: Any) -> Any:

        seen.update(settings, ids=[example.id for example in examples])
        return {"s 2": "A note said a blue bell.", "s 4": Rejected("s 4", "timed out")}

    monkeypatch.setattr("data_modules.interventions.augmentation.generate_sentences", generate)
    more = ("--generator", "openai:m", "--cache", tmp_path / "c", "--max-requests", 9)
    assert run(coqa(tmp_path / "in"), "ts_r_aug", tmp_path / "out", *more) == 0
    wanted = {"ids": ["s 2", "s 4"], "generator": "openai:m", "max_requests": 9, "seed": 0}
    assert seen == {**wanted, "cache": tmp_path / "c"}
    summary = json.loads(summary_of(tmp_path / "out").read_text())
    assert summary["rejected"]["timed out"] == summary["generation_failures"]["timed out"] == 1
    assert "1 timed out" in capsys.readouterr().out


def test_nothing_left_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    story = coqa(tmp_path / "in").read_text()
    document = json.loads(story)
    for part in ("questions", "answers"):
        document["data"][0][part] = document["data"][0][part][:1]
    (tmp_path / "in").write_text(json.dumps(document))
    assert run(tmp_path / "in", "ts_r", tmp_path / "out") == 2
    assert "no question is left in ts_r: 1 rejected (1 rationale begins" in capsys.readouterr().err
    assert {path.name for path in tmp_path.iterdir()} == {"in"}


def test_bad_records_are_skipped_on_request(tmp_path: Path) -> None:
    assert run(coqa(tmp_path / "in", shift=900), "ts", tmp_path / "out", "--skip-bad") == 0
    assert [row["id"] for row in rows(tmp_path / "out")] == ["s 1", "s 3", "s 4", "s 5"]


def test_overwrite_replaces_neither_the_input_nor_a_file_of_others(tmp_path: Path) -> None:
    source, checkpoint = coqa(tmp_path / "in"), tmp_path / "best.ckpt"
    checkpoint.write_bytes(b"PK weights")
    assert run(source, "ts", checkpoint, "--overwrite") == 2
    assert checkpoint.read_bytes() == b"PK weights"
    rows_of_it = tmp_path / "os.jsonl"
    assert run(source, "os", rows_of_it) == 0
    before = rows_of_it.read_bytes()
    assert run(rows_of_it, "ts", rows_of_it, "--overwrite") == 2
    assert rows_of_it.read_bytes() == before


def test_outputs_are_overwritten_only_on_request(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, output = coqa(tmp_path / "in"), tmp_path / "out.jsonl"
    summary = tmp_path / "out.summary.json"
    summary.write_text("mine")
    assert run(source, "ts", output) == 2
    assert "out.summary.json: already exists" in capsys.readouterr().err
    assert summary.read_text() == "mine"
    assert run(source, "ts", output, "--overwrite") == 0
    assert json.loads(summary.read_text())["kept"] == 5
