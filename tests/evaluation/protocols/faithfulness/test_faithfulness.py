"""The faithfulness protocol: every number against rows counted by hand, and mistakes told in a line."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path

import pytest

from data_modules.interventions.deletion import perturb, with_rationale
from data_modules.questions.rows import write_rows
from data_modules.questions.squad import write_squad
from data_modules.schema import QAExample, Span
from data_modules.sources import read_questions
from tests.data_modules.fixtures.coqa_rows import save_file, save_hub_rows
from tests.evaluation.cells import Cells
from tests.evaluation.checkpoints import evaluate, told
from tests.evaluation.fake_answerer import install

Prepared = tuple[list[QAExample], list[QAExample]]


def stubborn(example: QAExample) -> str:
    """What the original story says, whatever is left of it."""
    return (*example.gold, "unknown")[0]


def breaks_down(example: QAExample) -> bool:
    return len(example.question) % 5 == 4


def faithful(example: QAExample) -> str:
    """Unknown where the rationale is gone; nothing where it breaks down."""
    return "!timeout" if breaks_down(example) else example.gold[0] if example.rationale else "unknown"


def silent(_: QAExample) -> str:
    """An endpoint that is not there."""
    return "!no connection"


@pytest.fixture
def models(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, {"stubborn": stubborn, "faithful": faithful, "silent": silent})


def run(output: Path, *arguments: str) -> Cells:
    return evaluate(output, "faithfulness", *arguments)


def test_old_answers_and_unknown_by_variant(models: None, tmp_path: Path) -> None:
    data = ["--data", "stories:mixed_dev", "--limit", "60"]
    cells = run(tmp_path / "r", "--checkpoint", "stubborn", "faithful", *data)
    examples = list(islice(read_questions("stories:mixed_dev"), 60))
    with_rationale = sum(bool(example.rationale) for example in examples)
    for variant in ("os", "ts", "ts_r"):
        assert cells("em", checkpoint="stubborn", variant=variant) == 1
    cell = {"checkpoint": "stubborn", "variant": "ts_r"}
    assert (cells("unknown", **cell), cells.n("unknown", **cell)) == (0, with_rationale)
    yes = sum(example.answer_type == "yes" for example in examples)
    assert cells.n("em", **cell, answer_type="yes") == yes > 0  # by the type of the original answer
    cell = {"checkpoint": "faithful", "variant": "ts_r"}
    assert (cells("unknown", **cell), cells("em", **cell), cells("f1", **cell)) == (1, 0, 0)
    cell = {"checkpoint": "faithful", "variant": "os"}
    lost = sum(map(breaks_down, examples))
    assert (cells.n("failed", **cell), cells.n("em", **cell)) == (60, 60 - lost)
    assert cells("failed", **cell) == pytest.approx(lost / 60)
    rows = [json.loads(line) for line in (tmp_path / "r" / "examples.jsonl").read_text().splitlines()]
    assert len(rows) == 2 * (60 + 60 + with_rationale)
    assert cells("em", checkpoint="faithful", against="stubborn", variant="ts_r") == -1
    assert cells.n("em", checkpoint="faithful", against="stubborn", variant="os") == 60 - lost


def test_rows_show_what_was_read(models: None, tmp_path: Path) -> None:
    """Question, original story, what was deleted of it and what was put behind."""
    variants = ("os", "ts", "ts_r", "os_r", "ts_r_aug")
    limits = ("--data", "stories:mixed_dev", "--limit", "30", "--variants", *variants)
    run(tmp_path / "r", "--checkpoint", "stubborn", *limits)
    originals = {example.id: example for example in islice(read_questions("stories:mixed_dev"), 30)}
    rows = [json.loads(line) for line in (tmp_path / "r" / "examples.jsonl").read_text().splitlines()]
    assert {row["variant"] for row in rows} == set(variants)
    for row in rows:
        original = originals[row["id"]]
        assert (row["question"], row["story"]) == (original.question, original.context)
        assert row["right"] == (row["variant"] in ("os", "ts") or row["prediction"] == "unknown")
        places = [0, *(place for piece in row["deleted"] for place in piece), len(row["story"])]
        kept = zip(places[::2], places[1::2], strict=True)
        left = "".join(row["story"][start:end] for start, end in kept)
        if row["variant"] == "ts_r_aug":
            assert original.context.startswith(left)  # and a sentence, where the answer is lacking there
        else:
            made = perturb(with_rationale(original), row["variant"])
            assert isinstance(made, QAExample)
            assert left + row["appended"] == made.context


def sees_spaces(example: QAExample) -> str:
    """Unknown for second spaces; fails now and then."""
    if example.id.endswith("3"):
        return "!timeout"
    return "unknown" if "  " in example.question else example.gold[0].upper()


def test_consistency_is_the_share_of_equal_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`os`, which answers are compared with, is asked too; what is equal need not be right."""
    install(monkeypatch, {"one": sees_spaces, "two": lambda _: "", "three": lambda e: e.variant})
    data = ["--data", "stories:mixed_dev", "--limit", "40", "--variants", "reworded", "spaced", "reformatted"]
    cells = run(tmp_path / "r", "--checkpoint", "one", "two", "three", *data)
    examples = list(islice(read_questions("stories:mixed_dev"), 40))
    answered = [example for example in examples if not example.id.endswith("3")]
    unknown = sum(example.answer_type == "unknown" for example in answered) / len(answered)
    reworded = sum(isinstance(perturb(example, "reworded"), QAExample) for example in answered)
    assert 0 < unknown < 1
    for variant, share, n in (
        ("reworded", 1, reworded),
        ("spaced", unknown, len(answered)),
        ("reformatted", unknown, len(answered)),
    ):
        assert cells("consistency", checkpoint="one", variant=variant) == pytest.approx(share)
        assert cells.n("consistency", checkpoint="one", variant=variant) == n
        assert cells("consistency", checkpoint="two", variant=variant) == 1
        assert cells("consistency", checkpoint="three", variant=variant) == 0
    assert cells.n("em", checkpoint="two", variant="os") == 40
    assert "consistency" not in set(cells.frame[cells.frame["variant"] == "os"]["measure"])
    report = (tmp_path / "r" / "report.md").read_text()
    assert "`reworded` leaves out" in report


def test_quotation_marks_cost_no_exact_match(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, {"one": lambda e: e.context[e.answers[0].start : e.answers[0].end]})
    story = QAExample("q", "It was Ana's cat. It slept.", "Whose?", (Span(7, 12, "Ana's"),), dataset="coqa")
    write_rows([story], tmp_path / "os.jsonl")
    data = ["--data", str(tmp_path / "os.jsonl"), "--variants", "os", "quoted"]
    cells = run(tmp_path / "r", "--checkpoint", "one", *data)
    assert [cells("em", checkpoint="one", variant=v) for v in ("os", "quoted")] == [1, 1]
    assert cells("consistency", checkpoint="one", variant="quoted") == 1


@pytest.fixture
def prepared(tmp_path: Path) -> Prepared:
    """Twenty stories and their variants ts_r; also as files of rows."""
    examples = list(islice(read_questions("stories:conversation_dev"), 20))
    made = [result for e in examples if isinstance(result := perturb(e, "ts_r"), QAExample)]
    write_rows(examples, tmp_path / "os.jsonl")
    write_rows(made, tmp_path / "ts_r.jsonl")
    write_rows([*examples, *made], tmp_path / "both.jsonl")
    return examples, made


def test_rows_of_perturb_are_taken_as_they_are(models: None, prepared: Prepared, tmp_path: Path) -> None:
    write_rows(prepared[1][:7], tmp_path / "few.jsonl")
    data = ["--data", str(tmp_path / "os.jsonl"), str(tmp_path / "few.jsonl")]
    for flags, first in ((), "os"), (("--variants", "ts", "ts_r"), "ts"):
        cells = run(tmp_path / first, "--checkpoint", "stubborn", *data, *flags)
        assert [cells.n("em", checkpoint="stubborn", variant=v) for v in (first, "ts_r")] == [20, 7]
        assert set(cells.frame["variant"]) == {first, "ts_r"}


@pytest.mark.parametrize("names", ["os.jsonl ts_r.jsonl", "ts_r.jsonl os.jsonl", "both.jsonl"])
def test_a_limit_counts_originals_and_keeps_their_variants(
    names: str, models: None, prepared: Prepared, tmp_path: Path
) -> None:
    """Also where the variants are in another file, which comes first or last."""
    first = {example.id for example in prepared[0][:6]}
    wanted = sum(row.id in first for row in prepared[1])
    assert 0 < wanted < len(prepared[1])
    data = ["--data", *(str(tmp_path / name) for name in names.split()), "--limit", "6"]
    cells = run(tmp_path / "r", "--checkpoint", "stubborn", *data)
    assert [cells.n("em", checkpoint="stubborn", variant=v) for v in ("os", "ts_r")] == [6, wanted]
    assert set(cells.frame["variant"]) == {"os", "ts_r"}  # nothing is made beside the rows


def test_types_are_those_of_the_originals_also_without_os(models: None, tmp_path: Path) -> None:
    data = ["--data", "stories:mixed_dev", "--limit", "60", "--variants"]
    tables = [
        run(tmp_path / str(i), "--checkpoint", "stubborn", *data, *variants).frame.query("variant == 'ts_r'")
        for i, variants in enumerate((["os", "ts_r"], ["ts_r"]))
    ]
    assert "yes" in set(tables[0]["answer_type"])
    assert tables[0].to_dict("records") == tables[1].to_dict("records")


def test_a_model_that_answers_nothing_is_warned_of(
    models: None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = ["--data", "stories:mixed_dev", "--limit", "9"]
    cells = run(tmp_path / "r", "--checkpoint", "faithful", "silent", *data)
    assert cells.n("em", checkpoint="silent", variant="os") == 0
    assert cells("failed", checkpoint="silent", variant="os") == 1
    assert [text.partition(":")[0] for text in caplog.messages if "answered nothing" in text] == ["silent"]


def test_if_nobody_answers_there_is_no_report(
    models: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["faithfulness", "--checkpoint", "silent", "--data", "stories:mixed_dev", "--limit", "9"]
    assert "silent: answered nothing (27 no connection)" in told(capsys, *command, "--output", tmp_path / "r")
    assert not (tmp_path / "r").exists()


def test_hotpotqa_and_coqa_from_their_files(models: None, shared: Path, tmp_path: Path) -> None:
    data = str(shared / "data/hotpotqa/distractor-100.json")
    hotpot = run(tmp_path / "h", "--checkpoint", "stubborn", "--data", data)
    assert hotpot.n("em", checkpoint="stubborn", variant="os") == 100
    assert hotpot("em", checkpoint="stubborn", variant="os_r") == 1
    data = str(shared / "data/coqa/dev-1-story.json")
    coqa = run(tmp_path / "c", "--checkpoint", "stubborn", "--data", data)
    assert coqa.n("em", checkpoint="stubborn", variant="os") == 12
    # Leave-one-out: the first human answer against the others.
    assert 0 < coqa("em", checkpoint="stubborn", variant="os") < 1


def test_one_reference_is_said_where_scores_are_printed(
    models: None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The Hub's CoQA has no additional answers, its own file has three: EM and F1 do not compare."""
    for name, save in {"hub": save_hub_rows, "file": save_file}.items():
        caplog.clear()
        run(tmp_path / name, "--checkpoint", "stubborn", "--data", str(save(tmp_path / f"{name}.data")))
        report = (tmp_path / name / "report.md").read_text()
        for said in (report, " ".join(caplog.messages)):
            assert ("against one reference a question" in said) == (name == "hub")
            assert ("give the file coqa-dev-v1.0.json" in said) == (name == "hub")


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (["stubborn", "--data", "stories:mixed_dev", "squad.json"], "--data"),
        (["stubborn", "--data", "ts_r.jsonl", "--variants", "ts"], "--variants ts"),
        (["stubborn", "stubborn", "--data", "stories:mixed_dev"], "--checkpoint"),
    ],
)
def test_mistakes_are_one_line(
    arguments: list[str],
    names: str,
    models: None,
    prepared: Prepared,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    write_squad(islice(read_questions("stories:dev"), 5), Path("squad.json"))
    assert names in told(capsys, "faithfulness", "--checkpoint", *arguments, "--output", "out")
    assert not Path("out").exists()
