"""`consistency` of what was written elsewhere, by several scorers, systems, thresholds and draws."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from sklearn.metrics import cohen_kappa_score

from evaluation.protocols.consistency.continuation_rows import read_written
from metrics.consistency import DOMAINS, VARIANTS
from models.language.text_models import TextFailure
from storage.errors import DataError
from tests.evaluation.checkpoints import told
from tests.evaluation.protocols.consistency.conftest import PROMPTS, WORDS, Run, WordScorer
from tests.evaluation.scorers.labelled import write_rows

Files = dict[str, Path]


def bare(rows: list[dict[str, Any]], *kept: str) -> list[dict[str, Any]]:
    """Rows as somebody else would write them."""
    return [
        {"domain": row["domain"], "specification": row["variant"], "group": row["group"]}
        | {"prompt": row["prompt"], "text": row["continuation"]}
        | {name: row[name] for name in kept}
        for row in rows
    ]


def text_of(run: Run) -> str:
    """The report without where it came from."""
    return json.dumps([run.report[part] for part in ("headline", "results", "tables")])


def test_the_same_outputs_give_the_same_report(
    scorer: WordScorer, folder: Path, files: Files, tmp_path: Path
) -> None:
    """Written by our model, or elsewhere; scored by us, or elsewhere."""
    ours = Run(folder, files, tmp_path / "ours")
    system = ("checkpoint", "method")
    texts = write_rows(tmp_path / "texts.jsonl", bare(ours.rows, *system))
    scored = write_rows(tmp_path / "scored.jsonl", bare(ours.rows, *system, "scores"))
    asked = len(scorer.asked)
    elsewhere = [
        Run(texts, {}, tmp_path / "texts", "--scorer", "words"),
        Run(scored, {}, tmp_path / "scored"),
        Run(ours.output, {}, tmp_path / "report"),
        Run(ours.output, {}, tmp_path / "rescored", "--rescore", "--scorer", "words"),
    ]
    assert len(scorer.asked) > asked
    for run in elsewhere:
        assert text_of(run) == text_of(ours)
        assert (run.output / "results.csv").read_bytes() == (ours.output / "results.csv").read_bytes()
    assert elsewhere[2].about["scorers"][0]["name"] == "words"
    assert elsewhere[1].about["scorers"][0]["name"] == "given"
    named = Run(
        f"mine={write_rows(tmp_path / 'bare.jsonl', bare(ours.rows, 'scores'))}", {}, tmp_path / "bare"
    )
    assert named.place == {"checkpoint": "mine", "method": "given"}
    assert (
        Run(ours.output, {}, tmp_path / "few", "--limit", "2").n("average", domain="neutral", variant="blank")
        == 2
    )


def test_several_continuations_of_a_prompt(
    scorer: WordScorer, folder: Path, files: Files, tmp_path: Path
) -> None:
    """Rates pool them, maxima take the worst, a prompt stays one unit; the first draw is that of one draw."""
    one = Run(folder, files, tmp_path / "one", "--sample")
    run = Run(folder, files, tmp_path / "three", "--sample", "--draws", "3")
    assert len(run.rows) == 3 * len(one.rows)
    assert [row["continuation"] for row in run.rows[::3]] == [row["continuation"] for row in one.rows]
    for domain in DOMAINS:
        for variant in VARIANTS:
            rows = [row for row in run.rows if (row["domain"], row["variant"]) == (domain, variant)]
            cell = {"domain": domain, "variant": variant, "attribute": "threat"}
            rate = sum(row["scores"]["threat"] >= 0.5 for row in rows) / len(rows)
            assert run.value("rate", **cell) == pytest.approx(rate)
            assert run.n("rate", **cell) == len(rows)
            worst: dict[Any, float] = {}
            for row in rows:
                key = row["line"], row["group"]
                worst[key] = max(worst.get(key, 0), row["scores"]["threat"])
            assert run.value("expected_maximum", **cell) == pytest.approx(sum(worst.values()) / len(worst))
        assert run.n("minus_default", domain=domain, variant="blank") == len(PROMPTS[domain])
    texts = write_rows(tmp_path / "texts.jsonl", bare(run.rows, "checkpoint", "method", "scores"))
    assert text_of(Run(texts, {}, tmp_path / "given")) == text_of(run)


def test_several_scorers_agree_or_not(
    scorer: WordScorer, strict: WordScorer, folder: Path, files: Files, tmp_path: Path
) -> None:
    """Kept scores beside new ones; over the attributes that all have."""
    alone = Run(folder, files, tmp_path / "alone")
    run = Run(folder, files, tmp_path / "both", "--scorer", "words", "strict")
    again = Run(alone.output, {}, tmp_path / "again", "--scorer", "strict")
    assert text_of(again) == text_of(run)
    assert run.about["attributes"] == ["toxicity", "threat"]
    assert run.rows[0]["other_scores"]["strict"].keys() == {"toxicity", "threat"}
    for domain in DOMAINS:
        for name in ("toxicity", "threat"):
            rows = [row for row in run.rows if row["domain"] == domain]
            pair = [
                [row["scores"][name] >= 0.5 for row in rows],
                [row["other_scores"]["strict"][name] >= 0.5 for row in rows],
            ]
            kappa = run.value("kappa", scorer="strict", domain=domain, attribute=name)
            if len({*pair[0], *pair[1]}) > 1:
                assert kappa == pytest.approx(cohen_kappa_score(*pair))
        cell = {"domain": domain, "variant": "opposite", "attribute": "threat"}
        assert run.value("rate", scorer="words", **cell) == alone.value("rate", **cell)
        assert run.value("failed", scorer="strict") == 0
    judged = run.table("Verdicts by scorer and threshold")
    assert [row[0] for row in judged] == ["model0, words", "model0, strict"]
    assert {row[0] for row in run.table("Rates by scorer, in percent")} == {"words", "strict"}


def test_a_sweep_of_thresholds(scorer: WordScorer, folder: Path, files: Files, tmp_path: Path) -> None:
    one = Run(folder, files, tmp_path / "one")
    run = Run(folder, files, tmp_path / "sweep", "--threshold", "0.5", "0.3", "1")
    for domain in DOMAINS:
        for threshold in (0.5, 0.3, 1.0):
            rows = [row for row in run.rows if (row["domain"], row["variant"]) == (domain, "opposite")]
            rate = sum(row["scores"][a] >= threshold for row in rows for a in WORDS) / len(rows) / len(WORDS)
            found = run.value("average", domain=domain, variant="opposite", threshold=str(threshold))
            assert found == pytest.approx(rate)
    assert run.table("Checklist") == one.table("Checklist")  # the first decides
    assert len(run.table("Verdicts by scorer and threshold")) == 3


def test_a_grid_of_strengths_and_methods_by_criteria(
    scorer: WordScorer, folder: Path, files: Files, tmp_path: Path
) -> None:
    """Tables 8 to 11 and Table 5; each system as in a run of its own."""
    work = ["--work", str(tmp_path / "work.jsonl")]
    grid = ["--method", "self", "instructive", "--decay", "10", "100"]
    specifications = files
    run = Run(folder, specifications, tmp_path / "grid", *grid, *work)
    alone = Run(folder, files, tmp_path / "alone", "--method", "self", "--decay", "100", *work)
    for domain in DOMAINS:
        for variant in VARIANTS:
            cell = {"domain": domain, "variant": variant}
            assert run.value("average", **cell, decay="100.0") == alone.value("average", **cell)
    rates = run.table("Rates on adversarial prompts, in percent")
    assert [row[1] for row in rates[:5]] == ["10.0"] * 5
    assert len(rates) == 3 * 5
    checklist = run.table("Checklist")
    assert len(checklist) == 3 * 4
    assert [row[0].partition(", ")[2] for row in checklist[::4]] == [
        "self, lambda 10",
        "self, lambda 100",
        "instructive",
    ]
    assert [row[1] for row in checklist[:4]] == ["evidence", "literal", "section6", "parity"]
    assert text_of(Run(run.output, {}, tmp_path / "given")) == text_of(run)


def test_few_prompts_decide_nothing_and_say_so(
    scorer: WordScorer, folder: Path, files: Files, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Four prompts and three: what the paper's readings tick is marked."""
    run = Run(folder, files, tmp_path / "r", "--margin", "3")
    evidence, *readings = run.table("Checklist")
    assert evidence[2:4] == ["not decidable", "not decidable"]
    assert all("(no power)" in cell for row in readings for cell in (row[3], *row[5:]))
    assert "Without power" in caplog.text
    assert "margin 3 points: polarity not decidable (opposite - default " in run.report["headline"]
    assert run.report["headline"].count("], n 4)") == 2
    assert math.isnan(run.value("polarity", reading="evidence"))
    shares = {
        variant: [
            sum(
                row["scores"][a] >= 0.5
                for row in run.rows
                if row["line"] == line and at(row, variant)
                for a in WORDS
            )
            / sum(len(WORDS) for row in run.rows if row["line"] == line and at(row, variant))
            for line in range(1, 5)
        ]
        for variant in VARIANTS
    }
    for variant, against in (("opposite", "default"), ("nonsense", "original")):
        gaps = [a - b for a, b in zip(shares[variant], shares[against], strict=True)]
        cell = {"domain": "adversarial", "variant": variant}
        assert run.value(f"minus_{against}", **cell) == pytest.approx(sum(gaps) / 4)


def at(row: dict[str, Any], variant: str) -> bool:
    return (row["domain"], row["variant"]) == ("adversarial", variant)


ROW = {"domain": "neutral", "specification": "blank", "prompt": "a", "text": "b"}
EVERY = [
    {"domain": domain, "specification": variant, "prompt": f"{domain} {n}", "text": "x"}
    for domain in DOMAINS
    for variant in VARIANTS
    for n in range(3)
]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "holds no row"),
        ([ROW | {"domain": "nasty"}], "line 1.*domain"),
        ([ROW | {"specification": "noise"}], "line 1.*specification"),
        ([{key: value for key, value in ROW.items() if key != "specification"}], "specification"),
        ([{key: value for key, value in ROW.items() if key != "text"}], "'text'"),
        ([ROW | {"scores": {"rudeness": 0.5}}], "no attribute 'rudeness'"),
        ([ROW | {"scores": {"toxicity": 2}}], "line 1.*toxicity"),
        ([ROW], "'default'"),
        (EVERY[:-3], "neutral prompts with the specification 'blank'"),
        ([EVERY[0] | {"scores": {"toxicity": 0.1}}, *EVERY[1:]], "line 2: only some rows"),
        (
            [EVERY[0] | {"scores": {"threat": 0.1}}, *(r | {"scores": {"toxicity": 0.1}} for r in EVERY[1:])],
            "have no attribute in common",
        ),
        (
            [row | {"prompt": row["prompt"] + "x" * (row["specification"] == "blank")} for row in EVERY],
            "adversarial: no prompt is continued with both 'blank' and 'default'",
        ),
    ],
)
def test_mistakes_in_rows(tmp_path: Path, rows: list[dict[str, Any]], message: str) -> None:
    path = write_rows(tmp_path / "rows.jsonl", rows)
    with pytest.raises(DataError, match=rf"rows\.jsonl.*{message}"):
        read_written({"rows": str(path)})


def test_rows_of_failures_and_of_two_files(tmp_path: Path) -> None:
    unwritten = {**EVERY[0], "failure": "no continuation: empty"}
    del unwritten["text"]
    some = [row | {"scores": {"toxicity": 0.1}, "method": "m"} for row in EVERY[2:]]
    failing = EVERY[1] | {"failure": "no score: throttled", "method": "m"}
    path = write_rows(tmp_path / "a.jsonl", [unwritten | {"method": "m"}, failing, *some])
    found = read_written({"a": str(path)})
    assert isinstance(found.rows[0]["failure"], TextFailure)
    assert isinstance(found.rows[1]["judged"]["given"], TextFailure)
    assert read_written(
        {"a": str(write_rows(tmp_path / "n.jsonl", [row | {"group": "n"} for row in EVERY]))}
    ).rows
    assert found.rows[2]["judged"] == {"given": {"toxicity": 0.1}}
    assert [row["judged"] for row in read_written({"a": str(path)}, rescore=True).rows] == [{}] * len(EVERY)
    both = {"a": str(path), "b": str(write_rows(tmp_path / "b.jsonl", [*EVERY]))}
    with pytest.raises(DataError, match="only some rows"):
        read_written(both)
    rows = [row | {"checkpoint": "a", "method": "m"} for row in EVERY]
    write_rows(tmp_path / "b.jsonl", rows)
    with pytest.raises(DataError, match=r"b\.jsonl: .*a\.jsonl holds a m, too"):
        read_written(both, rescore=True)


NONSENSE = [row for row in EVERY if row["specification"] == "nonsense"]
GROUPS = [row | ({"group": 1} if row in NONSENSE else {}) for row in EVERY]


@pytest.mark.parametrize(
    ("rows", "warning"),
    [
        ([*EVERY, *EVERY], ""),
        (
            [*EVERY, EVERY[3], EVERY[3]],
            "original: adversarial prompts have different numbers of continuations (2 with 1, 1 with 3)",
        ),
        (EVERY[:3] + EVERY[5:], "original: 2 of 3 adversarial prompts have no continuation"),
        (
            [*EVERY, *NONSENSE],
            "nonsense without 'group': up to 2 continuations of one of the neutral prompts",
        ),
        ([*GROUPS, *(row | {"group": "1", "text": "y"} for row in NONSENSE)], ""),
        (
            [*GROUPS, *(row | {"group": 2} for row in NONSENSE[:3])],
            "on prompts of one domain only: nonsense (group 2)",
        ),
    ],
)
def test_rows_that_do_not_go_together_are_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, rows: list[dict[str, Any]], warning: str
) -> None:
    found = read_written({"rows": str(write_rows(tmp_path / "rows.jsonl", rows))})
    assert warning in caplog.text
    assert bool(caplog.records) == bool(warning)
    assert [record.message for record in caplog.records] == list(found.warnings)
    assert {row["group"] for row in found.rows if row["variant"] == "nonsense"} <= {None, "1", "2"}


def test_fields_that_are_not_read_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rows = [EVERY[0], *(row | {"scroes": {"toxicity": 0.1}} for row in EVERY[1:])]
    read_written({"rows": str(write_rows(tmp_path / "rows.jsonl", rows))})
    assert "rows.jsonl, line 2: fields that are not read: 'scroes'" in caplog.text


def test_warnings_stand_in_the_report(scorer: WordScorer, tmp_path: Path) -> None:
    path = write_rows(tmp_path / "rows.jsonl", [*EVERY, EVERY[3]])
    run = Run(path, {}, tmp_path / "r", "--scorer", "words")
    notes = " ".join(run.report["notes"])
    assert "rows given: original: adversarial prompts have different numbers of continuations" in notes
    assert "no difference, however large, would show" not in notes


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--method self", "--method goes with --model"),
        ("--decay 5", "--decay goes with --model"),
        ("--margin 0", "--margin 0"),
        ("--threshold 0.5 0.5", "--threshold 0.5"),
        ("--threshold 1.5", "--threshold 1.5"),
        ("--model hf:x", "either --model or --continuations"),
        ("--scorer given", "--rescore"),
    ],
)
def test_flags_that_do_not_go_together(
    scorer: WordScorer, tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: str, message: str
) -> None:
    scorer.name = "given"
    path = write_rows(tmp_path / "rows.jsonl", [row | {"scores": {"toxicity": 0.1}} for row in EVERY])
    command = ["consistency", "--continuations", str(path), "--output", str(tmp_path / "r")]
    assert message in told(capsys, *command, *flags.split())
