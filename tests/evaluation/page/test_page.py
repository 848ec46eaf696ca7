"""The HTML page: complete, self-contained, and nobody's text becomes markup."""

from __future__ import annotations

import json
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evaluation.__main__ import main
from evaluation.report import Evaluation, write_report
from evaluation.results import Results
from evaluation.views import Table
from tests.evaluation.checkpoints import told
from tests.evaluation.page.html_pages import (
    HOSTILE,
    PNG,
    Page,
    a_report,
    a_run,
    check_self_contained,
    furnish,
    made,
)


@pytest.fixture
def room(tmp_path: Path) -> Path:
    """Two runs and a report."""
    return furnish(tmp_path)


def test_the_command_writes_one_page_of_everything(room: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = room / "report.html"
    argv = ["report", str(room), "--title", "Two & two", "--output", str(output)]
    assert main(argv) == 0
    text = output.read_text()
    assert text.startswith("<!doctype html>")
    found = Page(text)
    check_self_contained(found)
    parts = ("Two & two", "Faithfulness of two", "By variant", "Before and after are alike.", "EM: exact")
    for part in (*parts, "Answers to os", "0f" * 32):
        assert part in found.text, part
    for part in ("learning_rate: 1.0e-4", "packages.torch", "2.13.0", "ab" * 32, "Settings that differ"):
        assert part in found.text, part
    assert any(b64decode(src.partition(",")[2]) == PNG for src in found.values("src"))
    assert any(src.startswith("data:image/svg+xml") for src in found.values("src"))
    told(capsys, *argv)  # which exists
    assert main([*argv, "--overwrite"]) == 0
    assert output.read_text() == text  # the same folders, the same page
    assert [entry.name for entry in room.glob("*")].count("report.html") == 1
    assert not list(room.glob(".*"))


def test_every_number_is_there_in_full_precision(room: Path) -> None:
    page = made(room / "report", room / "runs")
    titles = page.values("title")
    em = sum(i % 2 for i in range(9)) / 9
    assert any(title.startswith(f"{em}, 95 % interval 0") and title.endswith("n = 9") for title in titles)
    assert {"1.23e-05, n = 9", "–, n = 0", "0.25"} <= set(titles)
    assert {"0.4444", "1.23e-05", "–"} <= {text.strip() for text in page.texts}


def test_reports_of_one_protocol_stand_side_by_side(room: Path) -> None:
    results = Results(("checkpoint", "variant"), unit="questions")
    results.add("em", 0.125, n=8, checkpoint="before", variant="os")
    write_report(a_report(results=results), room / "second")
    text = made(room / "report", room / "second").text
    assert "report: before" in text
    assert "second: before" in text
    alone = made(room / "report").text
    assert "report: before" not in alone


def test_a_number_leads_to_the_rows_behind_it(room: Path) -> None:
    page = made(room / "report", examples=12)
    links = {value for tag, name, value in page.attributes if (tag, name) == ("a", "data-finds")}
    assert 'checkpoint="before" variant="ts_r"' in links
    assert [f"after-ts_r-{i}" in page.text for i in range(4)] == [True, True, True, False]
    assert "before-os-0" not in made(room / "report", examples=0).text


def hostile_results() -> Results:
    results = Results((HOSTILE,), unit="rows")
    results.add(HOSTILE, 0.5, n=1, **{HOSTILE: HOSTILE})
    return results


def test_nobodys_text_becomes_markup(tmp_path: Path) -> None:
    hostile = a_report(
        title=HOSTILE,
        results=hostile_results(),
        headline=HOSTILE,
        views=(Table(HOSTILE, (HOSTILE, "n"), ((HOSTILE, 1),), HOSTILE),),
        about={"protocol": HOSTILE, "checkpoints": {HOSTILE: HOSTILE}, "nested": {HOSTILE: [HOSTILE]}},
        notes=(HOSTILE, "![p](http://example.org/p.png) [l](javascript:alert) <b>x</b>"),
        examples=[{"id": HOSTILE, HOSTILE: [HOSTILE], "half": "\\ud83d"}],
    )
    write_report(hostile, tmp_path / 'r "<b>')
    a_run(tmp_path / "<i>run" / "0", text=HOSTILE)
    found = made(tmp_path)
    check_self_contained(found)
    assert not {"b", "i"} & set(found.tags)
    assert str(71911 * 7) not in found.text
    assert found.text.count(HOSTILE) > 8
    assert "![p](http://example.org/p.png)" in found.text
    assert "\\ud83d" in found.text


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    folder = tmp_path_factory.mktemp("plain") / "report"
    write_report(with_text("x"), folder)
    return folder, made(folder).tags


def with_text(text: str) -> Evaluation:
    return a_report(
        title=text,
        headline=f"x{text}",
        views=(Table(text, ("", text), (("a", text),)),),
        about={"protocol": "p", "said": f"x{text}"},
        notes=(),
        examples=[{"id": "1", "said": f"x{text}"}],
    )


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(max_size=80).filter(lambda text: text.strip()) | st.text("<>&\"'{}%#/-!", min_size=1))
def test_the_tags_do_not_depend_on_the_text(plain: tuple[Path, list[str]], text: str) -> None:
    folder, tags = plain
    write_report(with_text(text), folder, overwrite=True)
    assert made(folder).tags == tags


def test_what_the_folder_lost_is_told(room: Path) -> None:
    (room / "report/em.png").unlink()
    (room / "report/examples.jsonl").unlink()
    found = made(room / "report")
    assert "em.png" in found.text
    assert "0.4444" in found.text


def edit(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_pictures_come_from_the_folder_alone(room: Path) -> None:
    secret = room / "secret.png"
    secret.write_bytes(b"secret")
    edit(room / "report/report.json", figures=["../secret.png", str(secret), "report.json", "em.png"])
    assert [b64decode(src.partition(",")[2]) for src in made(room / "report").values("src")] == [PNG]


@pytest.mark.parametrize(
    ("file", "text", "names"),
    [
        ("report/report.json", '{"a": 1, "ab', "report.json"),
        ("report/report.json", '{"a": 1, "about": {}}', "schema"),
        ("report/examples.jsonl", '{"id": 1}\n{"id"', "examples.jsonl, line 2"),
        ("runs/ot/0/config.yaml", "!!python/name:os.system", "config.yaml"),
        ("runs/ot/0/metrics.json", '{"a": "b"}', "metrics.json"),
    ],
)
def test_damaged_files_cost_one_line(
    file: str, text: str, names: str, room: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (room / file).write_text(text)
    assert names in told(capsys, "report", room, "--output", room / "r.html")
    assert not (room / "r.html").exists()


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"tables": [{"title": "", "header": ["a"], "rows": [[1, 2]], "caption": ""}]}, "tables.0"),
        ({"results": [{"measure": "em"}]}, "results.0"),
    ],
)
def test_damaged_fields_cost_one_line(
    changes: dict[str, Any], names: str, room: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    edit(room / "report/report.json", **changes)
    assert names in told(capsys, "report", room, "--output", room / "r.html")


def test_mistakes_cost_one_line(room: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (room / "photos").mkdir()
    report, page = room / "report", room / "r.html"
    assert "nowhere" in told(capsys, "report", room / "nowhere", "--output", page)
    assert "photos" in told(capsys, "report", report, room / "photos", "--output", page)
    assert "report.json" in told(capsys, "report", report / "report.json", "--output", page)
    assert "photos" in told(capsys, "report", report, "--output", room / "photos")
    told(capsys, "report", report, "--output", room / "no/r.html")
    assert not page.exists()
