"""Every protocol: its files, numbers of examples, mistakes, and resuming."""

import gc
import json
import re
import shlex
from collections.abc import Callable
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import Any
from weakref import WeakSet

import pytest
from matplotlib.figure import Figure
from transformers import PreTrainedModel

from interventune.evaluation.__main__ import main
from interventune.evaluation.commands import PROTOCOLS
from tests.evaluation.cells import Capsys, Cells, Patch, told
from tests.evaluation.conftest import DRAW
from tests.evaluation.page.html_pages import check_self_contained, page_of
from tests.evaluation.protocol_cases import CASE_OF, CASES, Case, Forwards

Reports = Callable[[str], tuple[Path, int]]
NAME = attrgetter("protocol")
EVERY = pytest.mark.parametrize("case", CASES, ids=NAME)
CAUSAL = ["faithfulness causal", "consistency-write causal", "feature-bias causal"]


def contents(folder: Path) -> dict[str, bytes]:
    """The files but for pictures; where the command names the folder itself, as OUTPUT."""
    paths = [path for path in folder.iterdir() if path.suffix not in (".png", ".pdf")]
    texts = {path.name: path.read_bytes().replace(bytes(folder), b"OUTPUT") for path in paths}
    return {name: re.sub(rb'\n +"reused": .*', b"", text) for name, text in texts.items()}


@pytest.fixture(scope="module")
def reports(room: Path, tmp_path_factory: pytest.TempPathFactory) -> Reports:
    """A protocol's report with pictures, made once, and the number of calls of modules for it."""
    folder = tmp_path_factory.mktemp("reports")

    @cache
    def report(protocol: str) -> tuple[Path, int]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Figure, "savefig", DRAW)
            forwards = Forwards(patch)
            assert main(CASE_OF[protocol].command(room, folder / protocol)) == 0
        return folder / protocol, forwards.count

    return report


def test_every_protocol_has_a_case() -> None:
    assert [case.protocol for case in CASES] == [*PROTOCOLS]


@EVERY
def test_its_report_and_page(case: Case, reports: Reports) -> None:
    """Its files, its numbers of examples, and its tables and figures on a page."""
    folder, _ = reports(case.protocol)
    report = json.loads((folder / "report.json").read_text())
    about = report["about"]
    assert (about["protocol"], about["command"][0]) == (case.protocol, case.protocol)
    assert about["files"] == sorted(path.name for path in folder.iterdir())
    assert {"revision", "versions", "interval"} <= about.keys()
    cells = Cells(folder)
    cells.check()
    for cell, n in case.n.items():
        measure, *place = shlex.split(cell)
        assert cells.n(measure, **dict(part.split("=") for part in place)) == n, cell
    rows = [json.loads(line) for line in (folder / "examples.jsonl").read_text().splitlines()]
    assert [type(row) for row in rows] == [dict] * case.examples
    text, page = (folder / "report.md").read_text(), page_of(folder)
    labels = re.findall(r"\\label\{(.*)\}", (folder / "report.tex").read_text())
    assert len({*labels}) == len(report["tables"])
    for table in report["tables"]:
        assert f"## {table['title']}" in text
        assert table["title"] in page.text
        assert all(len(row) == len(table["header"]) for row in table["rows"])
    assert all((folder / name).read_bytes().startswith(b"\x89PNG") for name in report["figures"])
    assert len(page.values("src")) == len(report["figures"])
    captions = re.findall(r"!\[(.*?)\]\(", text)
    assert len({*captions}) == len(captions) == len(report["figures"])
    if captions:
        check_self_contained(page)


@EVERY
def test_it_replaces_a_report(case: Case, reports: Reports, room: Path, capsys: Capsys) -> None:
    """The same to the byte when repeated; nothing changes before all of it is there."""
    folder, _ = reports(case.protocol)
    before = contents(folder)
    assert "--overwrite" in told(capsys, *case.command(room, folder))
    assert contents(folder) == before
    assert main([*case.command(room, folder), "--overwrite"]) == 0
    assert contents(folder) == before


@EVERY
def test_a_bad_model_costs_one_line(case: Case, room: Path, tmp_path: Path, capsys: Capsys) -> None:
    kind, colon, _ = case.model.rpartition(":")
    command = case.command(room, tmp_path / "report", f"{kind}{colon}broken.ckpt")
    assert "broken.ckpt" in told(capsys, *command)
    assert not (tmp_path / "report").exists()


@pytest.mark.parametrize("case", filter(lambda case: case.long, CASES), ids=NAME)
def test_it_resumes(
    case: Case, reports: Reports, room: Path, tmp_path: Path, monkeypatch: Patch
) -> None:
    """Interrupted half-way, the same command does only the rest, and a third time nothing."""
    undisturbed, whole = reports(case.protocol)
    command = case.command(room, report := tmp_path / undisturbed.name)
    with monkeypatch.context() as patch:
        Forwards(patch, stop=whole // 2)
        assert main(command) == 130
    assert not report.exists()
    with monkeypatch.context() as patch:
        rest = Forwards(patch)
        assert main(command) == 0
        assert 0 < rest.count < whole
        assert contents(report) == contents(undisturbed)
        assert "answers from" in (report / "report.json").read_text()
        rest.count = 0
        assert main([*command, "--overwrite"]) == 0
        assert rest.count == 0


@pytest.mark.parametrize("words", ["bias qa", "shift qa", "confusion choice.ckpt", *CAUSAL])
def test_one_model_is_held(words: str, room: Path, tmp_path: Path, monkeypatch: Patch) -> None:
    """Several models take no more memory than one; shift compares each with the first."""
    protocol, model = words.split()
    models: WeakSet[PreTrainedModel] = WeakSet()
    real, held = PreTrainedModel.__init__, list[int]()
    least = 2 if protocol == "shift" else 1

    def counting(model: PreTrainedModel, *arguments: Any, **named: Any) -> None:
        real(model, *arguments, **named)
        models.add(model)
        held.append(len(models))

    monkeypatch.setattr(PreTrainedModel, "__init__", counting)
    most = list[int]()
    gc.disable()
    try:
        for count in (least, least + 1):
            named = [f"{name}={room / model}" for name in "abc"[:count]]
            held.clear()
            assert main(CASE_OF[protocol].asking(room, tmp_path / f"{count}", *named)) == 0
            most.append(max(held))
    finally:
        gc.enable()
    assert most[0] == most[1]
