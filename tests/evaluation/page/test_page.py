"""The HTML page: complete, self-contained, and nobody's text becomes markup."""

from __future__ import annotations

import json
from base64 import b64decode
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evaluation.__main__ import main
from evaluation.page.page import comparison, find_results
from evaluation.results import Results
from evaluation.views import Table
from tests.evaluation.checkpoints import told
from tests.evaluation.page.html_pages import PNG, Page, a_report, a_run, check_self_contained, page_of

HOSTILE = "</td><script>alert('x')</script> \"'><img src=x onerror=alert(1)> &amp; {{ 71911*7 }} ‮ß→ 🐟"


def test_report_command_writes_one_page_of_runs_and_reports(tmp_path: Path) -> None:
    a_report(tmp_path / "report")
    a_run(tmp_path / "runs/ot/0")
    output = tmp_path / "report.html"
    assert main(["report", str(tmp_path), "--output", str(output)]) == 0
    text = output.read_text()
    found = Page(text)
    check_self_contained(found)
    assert [b64decode(src.partition(",")[2]) for src in found.values("src")] == [PNG]
    for part in ("Faithfulness of two", "By variant", "alike.", "0.500 [0.250, 0.750]", "said-99", "1.0e-4"):
        assert part in found.text, part
    assert "said-100" not in found.text
    assert main(["report", str(tmp_path), "--output", str(output), "--overwrite"]) == 0
    assert output.read_text() == text  # the same folders, the same page


def test_comparison_holds_the_numbers_that_several_folders_have(tmp_path: Path) -> None:
    folders = [a_report(tmp_path / "a"), a_report(tmp_path / "b", value=0.875), a_run(tmp_path / "run")]
    compared = comparison(find_results([f"{folder.name}={folder}" for folder in folders]))
    ((kind, frame),) = compared.items()
    assert (kind, list(frame.index)) == ("faithfulness", [("variant=ts_r", "em")])
    assert list(frame.columns) == [(label, name) for label in "ab" for name in ("before", "after")]
    assert list(frame.iloc[0]) == ["0.500 [0.250, 0.750]"] * 2 + ["0.875 [0.250, 0.750]"] * 2


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(text=st.text(max_size=80) | st.text("<>&\"'{}%#/-![]()*_`|\n", min_size=1) | st.just(HOSTILE))
def test_no_text_becomes_markup(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    folder, text = tmp_path_factory.mktemp("page"), f"x{text}"
    results = Results((text,), unit="rows")
    results.add(text, 0.5, n=1, checkpoint=text, **{text: text})
    a_report(
        folder / "a",
        title=text,
        results=results,
        headline=text,
        views=(Table(text, ("", text), ((text, 1),), text),),
        about={"protocol": text, text: [text]},
        notes=(text, f"![p](http://example.org/p.png) [l](http://example.org) <b>{text}</b>"),
        examples=[{"id": text, text: [text]}],
    )
    (folder / "run").mkdir()
    a_run(folder / "run" / "0", text=text.replace("\r", ""))
    found = page_of(f"a={folder / 'a'}", folder / "run")
    check_self_contained(found)
    assert len(found.values("src")) == 1


def test_hostile_text_is_shown_as_it_is(tmp_path: Path) -> None:
    examples = [{"id": 1, "prediction": HOSTILE}]
    report = a_report(tmp_path / "a", headline=HOSTILE, examples=examples, about={"said": HOSTILE})
    found = page_of(report, a_run(tmp_path / "run", text=HOSTILE))
    assert found.text.count(HOSTILE.partition('"')[0]) == 6
    assert str(71911 * 7) not in found.text


def edit(path: Path, **changes: object) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_files_outside_of_the_folder_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "secret").write_bytes(b"secret")
    for at, name in enumerate(("../secret", str(tmp_path / "secret"))):
        report = a_report(tmp_path / str(at))
        edit(report / "report.json", figures=[name])
        assert "secret" in told(capsys, "report", report, "--output", tmp_path / "r.html")
    for name in ("em.png", "report.md", "examples.jsonl"):
        report = a_report(tmp_path / f"link of {name}")
        (report / name).unlink()
        (report / name).symlink_to(tmp_path / "secret")
        assert name in told(capsys, "report", report, "--output", tmp_path / "r.html")
    assert not (tmp_path / "r.html").exists()


def test_overwrite_replaces_nothing_but_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report, data = a_report(tmp_path / "report"), tmp_path / "data.json"
    data.write_text("{}")
    for flags in ([], ["--overwrite"]):
        assert "data.json" in told(capsys, "report", report, "--output", data, *flags)
    assert data.read_text() == "{}"


def test_bad_folders_cost_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page, report = tmp_path / "r.html", a_report(tmp_path / "report")
    assert "nowhere" in told(capsys, "report", tmp_path / "nowhere", "--output", page)
    assert "a: " in told(capsys, "report", f"a={report}", f"a={a_run(tmp_path / 'run')}", "--output", page)
    edit(report / "report.json", schema=99)
    assert "report.json" in told(capsys, "report", report, "--output", page)
    (report / "report.json").write_text('{"a": 1, "ab')
    assert "report.json" in told(capsys, "report", report, "--output", page)
    assert not page.exists()


def test_find_results_reads_each_folder_once(tmp_path: Path) -> None:
    a_report(tmp_path / "report")
    for name in ("ot", "ibt"):
        a_run(tmp_path / "runs" / name / "0")
    arguments = [f"mine={tmp_path / 'report'}", f"two={tmp_path / 'runs'}", str(tmp_path)]
    assert [found.label for found in find_results(arguments)] == ["mine", "two/ibt/0", "two/ot/0"]
