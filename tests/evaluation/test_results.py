"""The long table, its views, and the folder that a report is."""

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from matplotlib.figure import Figure

from interventune.evaluation.report import Evaluation, claimed, write_report
from interventune.evaluation.results import NUMBERS, Estimate, Number, Results, plain
from interventune.evaluation.shown.figures import Points
from interventune.evaluation.shown.views import Table, View, latex_table, markdown_table
from tests.evaluation.conftest import DRAW
from tests.evaluation.page.html_pages import Page

EM = {"ot os": 1.0, "ot ts": 0.5, "ibt os": 0.75, "ibt ts": 0.0}


@pytest.fixture
def results() -> Results:
    results = Results(("variant",), unit="questions")
    for cell, value in EM.items():
        place = dict(zip(("checkpoint", "variant"), cell.split(), strict=True))
        results.add(Number("em", place, Estimate(value, 0.0, 1.0, n=4, units=2)))
    results.add(plain("em", -0.25, 4, checkpoint="ibt", against="ot", variant="os"))
    results.add(plain("mu", 0.25, 7, checkpoint="ot"))
    return results


def test_results_hold_one_number_a_cell(results: Results) -> None:
    numbers = ["measure", *NUMBERS, "unit"]
    assert list(results.frame.columns) == ["checkpoint", "against", "variant", *numbers]
    row = results.at("em", checkpoint="ot", variant="ts")
    assert row is not None
    values = [row[name] for name in numbers if row[name] == row[name]]
    assert values == ["em", 0.5, 0.0, 1.0, 4, 2, 1, "questions"]
    assert results.at("em", checkpoint="ot") is None  # no cell of all variants
    with pytest.raises(ValueError, match="variety"):
        results.add(plain("em", 1, 1, variety="os"))
    with pytest.raises(ValueError, match="second number"):
        results.add(plain("em", 1, 4, checkpoint="ot", variant="os"))


def test_views_are_lines_of_cells_with_changes_as_columns(results: Results) -> None:
    def table(*by: str, **how: Any) -> Table:
        return View("T", by, **{"measures": {"em": "EM"}, **how})(results.frame)

    percent = table("variant", percent={"em"}, interval=False)
    assert percent.header == ("variant", "ot", "ibt", "ibt - ot", "n")
    assert percent.rows == (("os", "100", "75.0", "-25.0", 4), ("ts", "50.0", "0", "", 4))
    several = table("variant", measures={"mu": "mu", "em": "EM"})
    assert several.header[:2] == ("measure", "variant")
    assert several.rows[0][:3] == ("mu", "all", "0.250")
    across = table("checkpoint", "variant", across="measure")
    assert across.header == ("checkpoint", "variant", "EM", "n")
    assert across.rows[1] == ("ot", "ts", "0.500 [0, 1]", "4 (2 questions)")
    latex = latex_table(across, "R: 1", "a_b c")
    assert "{R: 1: T. Brackets: 95 \\% interval over questions, of one seed; fewer than" in latex
    assert "\\label{tab:a_b-c-t}" in latex
    assert table("variant", where={"variant": "ts_r"}).rows == ()
    short = table("variant", most=1)
    assert (len(short.rows), "results.csv" in short.caption) == (1, True)
    with pytest.raises(ValueError, match="two numbers"):
        table()


def test_the_snippet_of_the_docs_reads_numbers_and_names(tmp_path: Path) -> None:
    """Also if a number is undefined, or a name looks like a missing value."""
    results = Results(("variant", "answer_type", "domain"), unit="questions")
    for name, value in (("NA", 0.5), ("None", math.nan), ("null", 0.25)):
        results.add(plain("em", value, 3, checkpoint=name, variant="nan"))
        results.add(plain("em", 0.0, 1, checkpoint=name, variant="nan", domain="NA"))
    results.add(plain("em", -0.25, 3, checkpoint="null", variant="nan", against="NA"))
    write_report(Evaluation(title="R", results=results, views=[]), tmp_path / "DIR")
    frame = pd.read_csv(tmp_path / "DIR/results.csv")
    assert all(pd.api.types.is_numeric_dtype(frame[name]) for name in NUMBERS)
    page = (Path(__file__).parents[2] / "docs/outputs.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", page, re.S)
    *steps, last = code.replace('"DIR/', f'"{tmp_path}/DIR/').strip().splitlines()
    names: dict[str, object] = {}
    exec("\n".join(steps), names)
    table = eval(last, names)
    assert list(table.index) == ["nan"]
    content = table.loc["nan"].to_dict()
    assert content == pytest.approx({"NA": 0.5, "None": math.nan, "null": 0.25}, nan_ok=True)


@given(st.text(max_size=30) | st.text("|\\`*<>&;#[]()!~$_\n\r\t ab", max_size=30))
@example("Judge\nno | one\r\n\\| `x` __init__ <b>*y*</b> ![p](http://e/x.png) &lt; &#60;")
def test_any_text_is_one_cell_of_a_table_in_report_md(text: str) -> None:
    cells = (("x", text, "n"), (text, "0.5 [0.2, 0.7]", "2"), ("ts_r", text, "3"))
    table = Table("T", cells[0], cells[1:], lead=2)
    page = Page(MarkdownIt("commonmark").enable("table").render(markdown_table(table)))
    assert page.tags == {"table", "thead", "tbody", "tr", "th", "td"}
    shown = [" ".join(cell.replace("\0", "\ufffd").split()) for row in cells for cell in row]
    assert [line for line in page.text.split("\n") if line] == [cell for cell in shown if cell]


def test_a_report_counts_changes_that_exclude_0_by_chance(results: Results, tmp_path: Path) -> None:
    evaluation, output = Evaluation("T\n# x", results, [], headline="a\n\nb"), tmp_path / "r"
    write_report(evaluation, output)
    assert "by chance" not in (output / "report.md").read_text()
    for i, (low, high) in enumerate([(0.1, 0.2), (-0.2, -0.1), (-0.1, 0.1)]):
        place = {"checkpoint": str(i), "against": "ot"}
        results.add(Number("em", place, Estimate(0, low, high, 4, 4)))
    write_report(evaluation, output)
    title, headline, changes, _ = (output / "report.md").read_text().split("\n\n")
    assert (title, headline) == ("# T # x", "**a b**")
    assert changes == "By chance about 0.2 of 3 intervals of changes exclude 0; here 2 do."


def test_zeros_and_names_like_formulas_are_drawn(results: Results, tmp_path: Path) -> None:
    frame = results.frame.assign(value=0.0, low=0.0, high=0.0)
    frame["variant"] += "\n$\\frac$"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Figure, "savefig", DRAW)
        Points(x="variant", measures={"em": ""})(frame, tmp_path / "zeros.png")
    assert (tmp_path / "zeros.png").stat().st_size > 1000


def test_two_commands_never_write_to_one_folder(results: Results, tmp_path: Path) -> None:
    """The second is refused while the first works; the folder of a failed command is gone."""
    output = tmp_path / "r"
    with claimed(output, overwrite=False):
        with pytest.raises(ValueError, match="another command"), claimed(output, overwrite=True):
            pass
        unpaired = Table("Ready", ("a",), (("\ud800",),))  # half of a surrogate pair
        write_report(Evaluation("A", results, [lambda _: unpaired]), output)
    assert (output / "report.md").exists()
    with pytest.raises(KeyError), claimed(tmp_path / "other", overwrite=False):
        raise KeyError
    assert not (tmp_path / "other").exists()


def test_a_failure_leaves_the_other_report_or_nothing(results: Results, tmp_path: Path) -> None:
    def examples() -> Iterator[dict[str, int]]:
        yield {"a": 1}
        raise KeyboardInterrupt

    output = tmp_path / "r"
    for before in ([], ["r"]):
        with pytest.raises(KeyboardInterrupt):
            write_report(Evaluation("B", results, [], examples=examples()), output)
        assert [path.name for path in tmp_path.iterdir()] == before
        write_report(Evaluation("A", results, []), output)
    assert (output / "report.md").read_text().startswith("# A")
