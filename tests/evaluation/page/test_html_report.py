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
from evaluation.old_report import Report, write_report
from evaluation.old_tables import Table
from tests.evaluation.checkpoints import told
from tests.evaluation.page.html_pages import (
    HOSTILE,
    METRICS,
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
    assert "3 runs and reports" in capsys.readouterr().out
    text = output.read_text()
    assert text.startswith("<!doctype html>")
    found = Page(text)
    check_self_contained(found)
    for part in ("Two & two", "Faithfulness of two", "By variant", "Answers to os", "EM: exact", "0f" * 32):
        assert part in found.text, part
    for part in ("learning_rate: 1.0e-4", "packages.torch", "2.13.0", "ab" * 32, "Settings that differ"):
        assert part in found.text, part
    assert any(b64decode(src.partition(",")[2]) == PNG for src in found.values("src"))
    assert any(src.startswith("data:image/svg+xml") for src in found.values("src"))
    assert "exists" in told(capsys, *argv)
    assert main([*argv, "--overwrite"]) == 0
    assert output.read_text() == text  # the same folders, the same page
    assert [entry.name for entry in room.glob("*")].count("report.html") == 1
    assert not list(room.glob(".*"))


def test_every_number_is_there_in_full_precision(room: Path) -> None:
    found = made(room / "report", room / "runs")
    for key, value in {**METRICS, "val/qa/f1": 0.25}.items():
        assert f"{key} = {'–' if value != value else value}" in found.values("title")
    cells = [text.strip() for text in found.texts]
    assert {"0.5000", "0.3333", "0.7500", "1.23e-05", "9"} <= set(cells)


def test_a_number_leads_to_the_rows_behind_it(room: Path) -> None:
    found = made(room / "report", examples=12)
    links = {value for tag, name, value in found.attributes if (tag, name) == ("a", "data-finds")}
    assert 'checkpoint="before" variant="ts_r"' in links
    assert "said" not in " ".join(links)  # what is said is no name of a number
    assert "12 of 36 rows" in found.text
    assert "The first 3 rows of each checkpoint and variant" in found.text
    assert [f"after-ts_r-{i}" in found.text for i in range(4)] == [True, True, True, False]
    assert "all 36" in made(room / "report").text
    assert "before-os-0" not in made(room / "report", examples=0).text
    assert "36 examples are in" in made(room / "report", examples=0).text


def test_nobodys_text_becomes_markup(tmp_path: Path) -> None:
    hostile = a_report(
        title=HOSTILE,
        metrics={f"a/{HOSTILE}": 0.5},
        tables=(Table(HOSTILE, (HOSTILE, "n"), ((HOSTILE, 1),), HOSTILE),),
        about={"protocol": HOSTILE, "checkpoints": {HOSTILE: HOSTILE}, "nested": {HOSTILE: [HOSTILE]}},
        notes=(HOSTILE, "![p](http://example.org/p.png) [l](javascript:alert) <b>x</b>"),
        examples=[{"id": HOSTILE, HOSTILE: [HOSTILE], "half": "\ud83d"}],
    )
    write_report(hostile, tmp_path / 'r "<b>')
    a_run(tmp_path / "<i>run" / "0", text=HOSTILE)
    found = made(tmp_path)
    check_self_contained(found)
    assert not {"b", "i"} & set(found.tags)
    assert "49" not in found.text
    assert found.text.count(HOSTILE) > 8
    assert "![p](http://example.org/p.png)" in found.text
    assert "\\ud83d" in found.text


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    folder = tmp_path_factory.mktemp("plain") / "report"
    write_report(with_text("x"), folder)
    return folder, made(folder).tags


def with_text(text: str) -> Report:
    return a_report(
        title=text,
        tables=(Table(text, ("", text), (("a", text),)),),
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
    assert "Not in the folder any more: em.png." in found.text
    assert "0.7500" in found.text


def test_pictures_come_from_the_folder_alone(room: Path) -> None:
    secret = room / "secret.png"
    secret.write_bytes(b"secret")
    path = room / "report/report.json"
    content = json.loads(path.read_text())
    content["about"]["page"]["figures"] = ["../secret.png", str(secret), "report.json", "em.png"]
    path.write_text(json.dumps(content))
    assert [b64decode(src.partition(",")[2]) for src in made(room / "report").values("src")] == [PNG]


def test_a_report_of_an_older_version(room: Path) -> None:
    path = room / "report/report.json"
    content = json.loads(path.read_text())
    del content["about"]["page"]
    path.write_text(json.dumps(content))
    found = made(room / "report")
    assert "its tables are in report.md" in found.text
    assert "before/os/em = 0.5" in found.values("title")
    assert len(found.values("src")) == 1


@pytest.mark.parametrize(
    ("damage", "part"),
    [
        (
            lambda room: (room / "report/report.json").write_text('{"a": 1, "ab'),
            "report.json: not JSON (line 1",
        ),
        (lambda room: (room / "report/report.json").write_text("[1]"), "no report of `python -m evaluation`"),
        (lambda room: (room / "report/report.json").write_text('{"a": 1}'), "'about'"),
        (lambda room: (room / "report/report.json").write_text('{"a": "x", "about": {}}'), "the metric 'a'"),
        (
            lambda room: (room / "report/report.json").write_text(
                '{"about": {"page": {"tables": [{"header": ["a"], "rows": [[1, 2]]}]}}}'
            ),
            "about.page.tables[0]: row 0",
        ),
        (
            lambda room: (room / "report/examples.jsonl").write_text('{"id": 1}\n{"id"'),
            "examples.jsonl, line 2",
        ),
        (lambda room: (room / "runs/ot/0/config.yaml").write_text("a: [1"), "config.yaml: not YAML"),
        (lambda room: (room / "runs/ot/0/config.yaml").write_text("!!python/name:os.system"), "not YAML"),
        (lambda room: (room / "runs/ot/0/environment.json").write_text("{"), "environment.json: not JSON"),
        (lambda room: (room / "runs/ot/0/metrics.json").write_text('{"a": "b"}'), "the metric 'a'"),
    ],
)
def test_damaged_files_cost_one_line(
    damage: Any, part: str, room: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damage(room)
    assert part in told(capsys, "report", room, "--output", room / "r.html")
    assert not (room / "r.html").exists()


def test_mistakes_cost_one_line(room: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (room / "photos").mkdir()
    assert "no such folder" in told(capsys, "report", room / "nowhere", "--output", room / "r.html")
    message = told(capsys, "report", room / "report", room / "photos", "--output", room / "r.html")
    assert "photos: holds neither a report" in message
    assert "is a file" in told(capsys, "report", room / "report/report.json", "--output", room / "r.html")
    assert "is a folder" in told(capsys, "report", room / "report", "--output", room / "photos")
    assert "does not exist" in told(capsys, "report", room / "report", "--output", room / "no/r.html")
    assert "--examples" in told(
        capsys, "report", room / "report", "--output", room / "r.html", "--examples", "-1"
    )
    assert not (room / "r.html").exists()
