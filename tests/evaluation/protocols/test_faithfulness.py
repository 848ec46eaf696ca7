"""The faithfulness protocol: every number against rows counted by hand."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path

import pytest

from interventune.data_modules.interventions.variants import perturb, with_rationale
from interventune.data_modules.schema.questions import QAExample
from interventune.data_modules.schema.spans import Span, write_records
from interventune.data_modules.sources import read_questions
from tests.data_modules.fixtures.coqa_rows import save_file, save_hub_rows
from tests.evaluation.cells import Cells
from tests.evaluation.checkpoints import evaluate, examples_of
from tests.evaluation.fake_answerer import install

STORIES = ("--data", "stories:mixed_dev", "--limit", "60")
EXAMPLES = {example.id: example for example in islice(read_questions("stories:mixed_dev"), 60)}


def stubborn(example: QAExample) -> str:
    """What the original story says, whatever is left of it."""
    return (*example.gold, "unknown")[0]


def breaks_down(example: QAExample) -> bool:
    return len(example.question) % 5 == 4


def faithful(example: QAExample) -> str:
    """Unknown where the rationale is gone; nothing where it breaks down."""
    return (
        "!timeout" if breaks_down(example) else example.gold[0] if example.rationale else "unknown"
    )


def run(output: Path, *arguments: str | Path) -> Cells:
    return evaluate(output, "faithfulness", "--checkpoint", *arguments)


def test_old_answers_and_unknown_by_variant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, {"stubborn": stubborn, "faithful": faithful})
    cells = run(tmp_path / "r", "stubborn", "faithful", *STORIES)
    rationales = sum(bool(example.rationale) for example in EXAMPLES.values())
    for variant in ("os", "ts", "ts_r"):
        assert cells("em", checkpoint="stubborn", variant=variant) == 1
    cell = {"checkpoint": "stubborn", "variant": "ts_r"}
    assert (cells("unknown", **cell), cells.n("unknown", **cell)) == (0, rationales)
    yes = sum(example.answer_type == "yes" for example in EXAMPLES.values())
    assert cells.n("em", **cell, answer_type="yes") == yes > 0  # by the type of the original answer
    cell = {"checkpoint": "faithful", "variant": "ts_r"}
    assert (cells("unknown", **cell), cells("em", **cell), cells("f1", **cell)) == (1, 0, 0)
    cell = {"checkpoint": "faithful", "variant": "os"}
    lost = sum(map(breaks_down, EXAMPLES.values()))
    assert (cells.n("failed", **cell), cells.n("em", **cell)) == (60, 60 - lost)
    assert cells("failed", **cell) == pytest.approx(lost / 60)


def test_rows_show_the_story_and_its_edits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was deleted of the original, and what was put behind, make the story that was read."""
    install(monkeypatch, {"stubborn": stubborn})
    run(tmp_path / "r", "stubborn", *STORIES, "--variants", "os", "ts", "ts_r", "os_r")
    for row in examples_of(tmp_path / "r"):
        assert row["right"] == (row["variant"] in ("os", "ts") or row["prediction"] == "unknown")
        places = [0, *(place for piece in row["deleted"] for place in piece), len(row["story"])]
        kept = zip(places[::2], places[1::2], strict=True)
        left = "".join(row["story"][start:end] for start, end in kept)
        read = perturb(with_rationale(EXAMPLES[row["id"]]), row["variant"])
        assert isinstance(read, QAExample)
        assert left + row["appended"] == read.context


def sees_spaces(example: QAExample) -> str:
    """Unknown for second spaces; fails now and then."""
    if example.id.endswith("3"):
        return "!timeout"
    return "unknown" if "  " in example.question else example.gold[0].upper()


def test_consistency_is_the_share_of_equal_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`os`, which answers are compared with, is asked too; what is equal need not be right."""
    install(monkeypatch, {"one": sees_spaces, "two": lambda example: example.variant})
    variants = ("--variants", "reworded", "spaced")
    cells = run(tmp_path / "r", "one", "two", *STORIES, *variants)
    answered = [example for example in EXAMPLES.values() if not example.id.endswith("3")]
    unknown = sum(example.answer_type == "unknown" for example in answered) / len(answered)
    reworded = sum(isinstance(perturb(example, "reworded"), QAExample) for example in answered)
    assert 0 < unknown < 1
    for variant, share, n in (
        ("reworded", 1, reworded),
        ("spaced", unknown, len(answered)),
    ):
        assert cells("consistency", checkpoint="one", variant=variant) == pytest.approx(share)
        assert cells.n("consistency", checkpoint="one", variant=variant) == n
        assert cells("consistency", checkpoint="two", variant=variant) == 0
    assert "consistency" not in set(cells.frame[cells.frame["variant"] == "os"]["measure"])


def test_following_the_text_and_remembering(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against a count by hand; what is neither counts for no share."""

    def torn(example: QAExample) -> str:
        said = (*example.gold, *example.remembered, "nothing")
        return said[sum(map(ord, example.id)) % 3 if example.remembered else 0]

    keeps = lambda example: f"The {(*example.remembered, *example.gold)[0].upper()}."  # noqa: E731
    install(monkeypatch, {"reads": lambda example: example.gold[0], "keeps": keeps, "torn": torn})
    cells = run(tmp_path / "r", "reads", "keeps", "torn", *STORIES, "--variants", "os", "swap")
    rows = [row for row in examples_of(tmp_path / "r") if row["variant"] == "swap"]
    assert all({*row["references"]}.isdisjoint(row["remembered"]) for row in rows)
    for name in ("reads", "keeps", "torn"):
        said = [row for row in rows if row["checkpoint"] == name]
        new = sum(row["prediction"] == row["references"][0] for row in said)
        old = sum(row["remembered"][0].lower() in row["prediction"].lower() for row in said)
        at = {"checkpoint": name, "variant": "swap"}
        assert [cells(m, **at) for m in ("follows", "remembers")] == [
            new / len(said),
            old / len(said),
        ]
        assert cells("remembers_share", **at) == old / (new + old)
        assert cells.n("remembers_share", **at) == new + old
    assert 0 < cells("remembers_share", checkpoint="torn", variant="swap") < 1
    assert "follows" not in set(cells.frame[cells.frame["variant"] == "os"]["measure"])
    report = (tmp_path / "r" / "report.md").read_text()
    assert "follows the changed text 100 % -> " in report


def test_answers_against_a_models_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CoConflictQA: told apart by whether the text holds the remembered answer, too."""
    install(monkeypatch, {"one": lambda example: "Oslo" if "Oslo" in example.context else "Rome"})
    row = {"question": "Where?", "answers": ["Rome"], "parametric_answer": "Oslo"}
    texts = (
        "Ann sat. She is in Rome.",
        "Ann left Oslo. She is in Rome.",
        "Ben sat. Is he in Rome?",
    )
    (tmp_path / "rows").write_text(
        "".join(json.dumps(row | {"context": text}) + "\n" for text in texts)
    )
    cells = run(tmp_path / "r", "one", "--data", tmp_path / "rows")
    for domain, n, remembers in (("", 3, 1 / 3), ("in the text", 1, 1), ("not in the text", 2, 0)):
        at = {
            "checkpoint": "one",
            "variant": "os",
            "domain": f"remembered answer {domain}" * bool(domain),
        }
        assert cells.n("follows", **at) == n
        measures = ("follows", "remembers", "remembers_share")
        assert [cells(m, **at) for m in measures] == pytest.approx(
            [1 - remembers, remembers, remembers]
        )
    assert "follows" not in set(cells.frame[cells.frame["variant"] == "ts_r"]["measure"])


def test_quotation_marks_cost_no_exact_match(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, {"one": lambda e: e.context[e.answers[0].start : e.answers[0].end]})
    story = QAExample(
        "q", "It was Ana's cat. It slept.", "Whose?", (Span(7, 12, "Ana's"),), dataset="coqa"
    )
    write_records([story], tmp_path / "os.jsonl")
    cells = run(
        tmp_path / "r", "one", "--data", tmp_path / "os.jsonl", "--variants", "os", "quoted"
    )
    assert [cells("em", checkpoint="one", variant=v) for v in ("os", "quoted")] == [1, 1]
    assert cells("consistency", checkpoint="one", variant="quoted") == 1


def test_report_warns_of_single_references_of_coqa(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, {"stubborn": stubborn})
    for name, save in (("hub", save_hub_rows), ("file", save_file)):
        run(tmp_path / name, "stubborn", "--data", save(tmp_path / f"{name}.data"))
        report = (tmp_path / name / "report.md").read_text()
        assert ("against one reference" in report) == (name == "hub")
