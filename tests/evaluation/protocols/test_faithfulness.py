"""The faithfulness protocol: every number against rows counted by hand."""

from collections.abc import Callable
from itertools import chain, islice
from pathlib import Path

import pytest

from interventune.data_modules.interventions.variants import perturb, with_rationale
from interventune.data_modules.schema.questions import (
    DELETED,
    REFORMATTED,
    VARIANTS,
    QAExample,
    Span,
    write_records,
)
from interventune.data_modules.sources import read_questions
from interventune.evaluation.protocols.faithfulness.abstention import VIEW
from interventune.evaluation.protocols.faithfulness.command import FAITHFULNESS
from interventune.evaluation.protocols.shift import SHIFT
from tests.data_modules.fixtures.coqa_rows import save_file, save_hub_rows
from tests.evaluation.cells import Cells, evaluate, examples_of
from tests.evaluation.fake_answerer import Rule, install
from tests.evaluation.protocol_cases import write_rows

STORIES = ("--data", "stories:mixed_dev", "--limit", "60")
EXAMPLES = {example.id: example for example in islice(read_questions("stories:mixed_dev"), 60)}
Ask = Callable[..., Cells]


def stubborn(example: QAExample) -> str:
    """What the original story says, whatever is left of it."""
    return (*example.gold, "unknown")[0]


def breaks_down(example: QAExample) -> bool:
    return len(example.question) % 5 == 4


def faithful(example: QAExample) -> str:
    """Unknown where the rationale is gone; nothing where it breaks down."""
    if breaks_down(example):
        return "!timeout"
    return example.gold[0] if example.rationale else "unknown"


@pytest.fixture
def ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ask:
    """Evaluate answerers with these rules into `tmp_path / "r"`."""

    def run(*flags: str | Path, **rules: Rule) -> Cells:
        install(monkeypatch, rules)
        command = ("faithfulness", "--overwrite", "--checkpoint", *rules)
        return evaluate(tmp_path / "r", *command, *flags)

    return run


def test_old_answers_and_unknown_by_variant(ask: Ask) -> None:
    cells = ask(*STORIES, stubborn=stubborn, faithful=faithful)
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


def test_rows_show_the_story_and_its_edits(ask: Ask, tmp_path: Path) -> None:
    """What was deleted of the original, and what was appended, make the story that was read."""
    ask(*STORIES, "--variants", "os", "ts", "ts_r", "os_r", stubborn=stubborn)
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


def test_consistency_is_the_share_of_equal_answers(ask: Ask) -> None:
    """`os`, which answers are compared with, is asked too; what is equal need not be right."""
    variants = ("--variants", "reworded", "spaced")
    cells = ask(*STORIES, *variants, one=sees_spaces, two=lambda example: example.variant)
    answered = [example for example in EXAMPLES.values() if not example.id.endswith("3")]
    unknown = sum(example.answer_type == "unknown" for example in answered) / len(answered)
    reworded = sum(isinstance(perturb(example, "reworded"), QAExample) for example in answered)
    assert 0 < unknown < 1
    for variant, share, n in (("reworded", 1, reworded), ("spaced", unknown, len(answered))):
        row = cells.row("consistency", checkpoint="one", variant=variant)
        assert (row["value"], row["n"]) == (pytest.approx(share), n)
        assert cells("consistency", checkpoint="two", variant=variant) == 0
    assert "consistency" not in set(cells.frame[cells.frame["variant"] == "os"]["measure"])


def test_following_the_text_and_remembering(ask: Ask, tmp_path: Path) -> None:
    """Against a count by hand; what is neither counts for no share."""

    def torn(example: QAExample) -> str:
        answers = (*example.gold, *example.remembered, "nothing")
        return answers[sum(map(ord, example.id)) % 3 if example.remembered else 0]

    keeps = lambda example: f"The {(*example.remembered, *example.gold)[0].upper()}."  # noqa: E731
    variants = ("--variants", "os", "swap")
    cells = ask(*STORIES, *variants, reads=lambda e: e.gold[0], keeps=keeps, torn=torn)
    rows = [row for row in examples_of(tmp_path / "r") if row["variant"] == "swap"]
    assert all({*row["references"]}.isdisjoint(row["remembered"]) for row in rows)
    for name in ("reads", "keeps", "torn"):
        own = [row for row in rows if row["checkpoint"] == name]
        new = sum(row["prediction"] == row["references"][0] for row in own)
        old = sum(row["remembered"][0].lower() in row["prediction"].lower() for row in own)
        at = {"checkpoint": name, "variant": "swap"}
        assert cells("follows", **at) == new / len(own)
        assert cells("remembers", **at) == old / len(own)
        assert cells("remembers_share", **at) == old / (new + old)
        assert cells.n("remembers_share", **at) == new + old
    assert 0 < cells("remembers_share", checkpoint="torn", variant="swap") < 1
    assert "follows" not in set(cells.frame[cells.frame["variant"] == "os"]["measure"])
    assert "| follows the changed text | 100 % | " in (tmp_path / "r" / "report.md").read_text()


def test_answers_against_a_models_memory(ask: Ask, tmp_path: Path) -> None:
    """CoConflictQA: also by whether the text holds the remembered answer."""
    row = {"question": "Where?", "answers": ["Rome"], "parametric_answer": "Oslo"}
    texts = ("Ann sat. She is in Rome.", "Ann left Oslo. She is in Rome.", "Al sat. Is he in Rome?")
    write_rows(tmp_path / "rows", [row | {"context": text} for text in texts])
    one = lambda example: "Oslo" if "Oslo" in example.context else "Rome"  # noqa: E731
    cells = ask("--data", tmp_path / "rows", one=one)
    for domain, n, remembers in (("", 3, 1 / 3), ("in the text", 1, 1), ("not in the text", 2, 0)):
        place = f"remembered answer {domain}" if domain else ""
        at = {"checkpoint": "one", "variant": "os", "domain": place}
        assert cells.n("follows", **at) == n
        shares = [cells(measure, **at) for measure in ("follows", "remembers", "remembers_share")]
        assert shares == pytest.approx([1 - remembers, remembers, remembers])
    assert "follows" not in set(cells.frame[cells.frame["variant"] == "ts_r"]["measure"])


def test_quotation_marks_cost_no_exact_match(ask: Ask, tmp_path: Path) -> None:
    answers = (Span(7, 12, "Ana's"),)
    story = QAExample("q", "It was Ana's cat. It slept.", "Whose?", answers, dataset="coqa")
    write_records([story], tmp_path / "os.jsonl")
    one = lambda e: e.context[e.answers[0].start : e.answers[0].end]  # noqa: E731
    cells = ask("--data", tmp_path / "os.jsonl", "--variants", "os", "quoted", one=one)
    assert [cells("em", checkpoint="one", variant=v) for v in ("os", "quoted")] == [1, 1]
    assert cells("consistency", checkpoint="one", variant="quoted") == 1


def test_report_warns_of_single_references_of_coqa(ask: Ask, tmp_path: Path) -> None:
    for name, save in (("hub", save_hub_rows), ("file", save_file)):
        ask("--data", save(tmp_path / f"{name}.data"), stubborn=stubborn)
        report = (tmp_path / "r" / "report.md").read_text()
        assert ("against one reference" in report) == (name == "hub")


def test_clauses_name_all_variants() -> None:
    unknown, old, _, f1, same, *_ = ({*clause.where["variant"]} for clause in FAITHFULNESS.headline)
    assert unknown == old == DELETED
    assert f1 == {*VIEW.where["variant"]} == {"os", *(f"os+{variant}" for variant in DELETED)}
    assert same == REFORMATTED
    of_shift = chain(*(clause.where["variant"] for clause in SHIFT.headline))
    assert sorted(of_shift) == sorted(VARIANTS[1:])
