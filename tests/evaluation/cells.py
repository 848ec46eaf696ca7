"""Numbers of a report, by cell: what results.csv holds."""

from pathlib import Path
from typing import Any

import pandas as pd

from interventune.evaluation import results

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
