"""The HTML page: complete, self-contained, and no text becomes markup."""

import json
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from interventune.evaluation.__main__ import main
from interventune.evaluation.page.page import comparison, find_results
from interventune.evaluation.report import Evaluation, write_report
from interventune.evaluation.results import Estimate, Number, Results, plain
from interventune.evaluation.shown.views import Table, View
from tests.evaluation.cells import Capsys, told
from tests.evaluation.page.html_pages import Page, check_self_contained, page_of

PNG = b"\x89PNG\r\n\x1a\n and so on"
HOSTILE = (
    "</td><script>alert('x')</script> \"'><img src=x onerror=alert(1)> &amp; {{ 71911*7 }} ‮ß→ 🐟"
)


def save_report(folder: Path, value: float = 0.5, **changes: Any) -> Path:
    """A report of faithfulness, in short."""
    place, estimate = {"variant": "ts_r"}, Estimate(value, 0.25, 0.75, 9, 9)
    numbers = [Number("em", place | {"checkpoint": x}, estimate) for x in ("before", "after")]
    numbers.append(plain("em", 0.125, 9, checkpoint="after", against="before", **place))
    content: dict[str, Any] = {
        "title": "Faithfulness of two",
        "results": Results(("variant",), "questions", numbers),
        "views": (View("By variant", ("variant",), {"em": "EM"}),),
        "headline": "Before and after are alike.",
        "figures": {"em.png": (lambda _, path: path.write_bytes(PNG), None)},
        "examples": [{"id": i, "prediction": f"said-{i}"} for i in range(120)],
    }
    write_report(Evaluation(**content | changes), folder)
    return folder


def save_run(folder: Path, text: str = "plain") -> None:
    """What `train fit` leaves, in short."""
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_bytes(f"learning_rate: 1.0e-4\nnote: {text}\n".encode())
    (folder / "environment.json").write_text(json.dumps({"command": ["fit", text]}))
    (folder / "metrics.json").write_text(json.dumps({"val/qa/f1": 0.25, "step": None}))


def test_report_command_writes_one_page_of_runs_and_reports(tmp_path: Path) -> None:
    save_report(tmp_path / "report")
    for name in ("ot", "ibt"):
        save_run(tmp_path / "runs" / name / "0")
    output = tmp_path / "report.html"
    command = ["report", f"mine={tmp_path / 'report'}", str(tmp_path), "--output", str(output)]
    assert main(command) == 0
    text = output.read_text()
    parsed = Page(text)
    check_self_contained(parsed)
    assert [b64decode(image.partition(",")[2]) for image in parsed.values("src")] == [PNG]
    shown = ("val/qa/f1", "By variant", "alike.", "0.500 [0.250, 0.750]", "said-99", "1.0e-4")
    for part in (*shown, "mine, Faithfulness of two", "ibt/0, training"):
        assert part in parsed.text, part
    assert "said-100" not in parsed.text
    assert main([*command, "--overwrite"]) == 0
    assert output.read_text() == text  # the same folders, the same page


def test_comparison_holds_the_numbers_that_several_folders_have(tmp_path: Path) -> None:
    save_report(tmp_path / "a")
    save_report(tmp_path / "b", value=0.875)
    save_run(tmp_path / "c")
    compared = comparison(find_results([f"{name}={tmp_path / name}" for name in "abc"]))
    ((kind, frame),) = compared.items()
    columns = [f"{label}: {name}" for label in "ab" for name in ("before", "after")]
    assert (kind, list(frame)) == ("Faithfulness of two", ["where", "measure", *columns])
    numbers = ["0.500 [0.250, 0.750]"] * 2 + ["0.875 [0.250, 0.750]"] * 2
    assert frame.to_numpy().tolist() == [["variant=ts_r", "em", *numbers]]


@settings(
    max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(text=st.text(max_size=80) | st.text("<>&\"'{}%#/-![]()*_`|\n", min_size=1))
@example(text=HOSTILE)
def test_no_text_becomes_markup(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    folder, text = tmp_path_factory.mktemp("page"), f"x{text}"
    results = Results((text,), unit="rows")
    results.add(plain(text, 0.5, 1, checkpoint=text, **{text: text}))
    save_report(
        folder / "a",
        title=text,
        results=results,
        headline=text,
        views=[lambda _: Table(text, ("", text), ((text, 1),), text)],
        about={"protocol": text, text: [text]},
        notes=(text, f"![p](http://example.org/p.png) [l](http://example.org) <b>{text}</b>"),
        examples=[{"id": text, text: [text]}],
    )
    save_run(folder / "run" / "0", text=text.replace("\r", ""))
    parsed = page_of(f"a={folder / 'a'}", folder / "run")
    check_self_contained(parsed)
    assert len(parsed.values("src")) == 1
    assert str(71911 * 7) not in parsed.text


def test_overwrite_replaces_nothing_but_pages(tmp_path: Path, capsys: Capsys) -> None:
    report, other = save_report(tmp_path / "report"), tmp_path / "best.ckpt"
    other.write_text("weights")
    for flags in ([], ["--overwrite"]):
        assert "best.ckpt" in told(capsys, "report", report, "--output", other, *flags)
    (report / "em.png").unlink()
    (report / "em.png").symlink_to(other)
    assert "em.png" in told(capsys, "report", report, "--output", tmp_path / "page.html")
    assert other.read_text() == "weights"
    save_run(tmp_path / "run")
    (tmp_path / "run/config.yaml").unlink()
    (tmp_path / "run/config.yaml").symlink_to(other)
    told_of = told(capsys, "report", tmp_path / "run", "--output", tmp_path / "page.html")
    assert "config.yaml: a link" in told_of


def test_a_story_shows_what_was_deleted_and_appended(tmp_path: Path) -> None:
    row = {"story": "Kept. Gone <b>. Kept.", "deleted": [[6, 15]], "appended": " blue", "id": 1}
    html = page_of(save_report(tmp_path / "r", examples=[row]))
    assert {"del", "ins"} <= html.tags
    assert "Kept. Gone <b>. Kept. blue" in html.text
    assert "b" not in html.tags


def test_a_run_shows_its_curves(tmp_path: Path) -> None:
    save_run(tmp_path / "run")
    lines = [f"{step},0,val/qa/f1,{step / 100}" for step in (10, 20)]
    (tmp_path / "run/metrics.csv").write_text("step,epoch,metric,value\n" + "\n".join(lines))
    assert len(page_of(tmp_path / "run").values("src")) == 1
