"""What an evaluation writes: the numbers of results.csv by cell, rows of examples, mistakes."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from interventune.evaluation import results
from interventune.evaluation.__main__ import main

Capsys = pytest.CaptureFixture[str]
Patch = pytest.MonkeyPatch
NUMBERS = ["measure", *results.NUMBERS, "unit"]


class Cells:
    """The long table of a report; a dimension that a call does not name must be empty there."""

    def __init__(self, folder: Path) -> None:
        frame = pd.read_csv(folder / "results.csv", keep_default_na=False)
        assert list(frame.columns[-len(NUMBERS) :]) == NUMBERS
        self.by = list(frame.columns[: -len(NUMBERS)])
        frame[NUMBERS[1:-1]] = frame[NUMBERS[1:-1]].apply(pd.to_numeric, errors="coerce")
        self.frame, keys = frame, frame[["measure", *self.by]].astype(str)
        rows = map(dict, frame.to_dict("records"))
        self.rows = dict(zip(keys.itertuples(index=False, name=None), rows, strict=True))

    def row(self, measure: str, **cell: Any) -> dict[str, Any]:
        """The one row at a cell."""
        place = [str(cell.pop(name, "")) for name in self.by]
        assert not cell, f"no such dimension: {cell}"
        return self.rows[measure, *place]

    def __call__(self, measure: str, **cell: Any) -> float:
        return float(self.row(measure, **cell)["value"])

    def n(self, measure: str, **cell: Any) -> int:
        return int(self.row(measure, **cell)["n"])

    def check(self) -> None:
        """Every number has n, an interval around it or none, and a place of its own."""
        assert not self.frame.duplicated([*self.by, "measure"]).any()
        assert (self.frame["n"] >= self.frame["units"]).all()
        assert (self.frame["units"] >= 0).all()
        assert (self.frame["unit"] != "").all()
        assert (self.frame["low"].isna() == self.frame["high"].isna()).all()
        assert not (self.frame["low"] > self.frame["high"]).any()


def evaluate(output: Path, *arguments: str | Path) -> Cells:
    """What `python -m interventune.evaluation ...` writes: its long table."""
    assert main([*map(str, arguments), "--device", "cpu", "--output", str(output)]) == 0
    cells = Cells(output)
    cells.check()
    return cells


def examples_of(output: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (output / "examples.jsonl").read_text().splitlines()]


def told(capsys: Capsys, *arguments: str | Path) -> str:
    """The one line that a mistake costs."""
    capsys.readouterr()
    assert main([str(argument) for argument in arguments]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert [line for line in lines if line.startswith(("error: ", "Traceback"))] == lines[-1:]
    return lines[-1]
