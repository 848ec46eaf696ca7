"""metrics.csv: the curves of a run, which survive a resume and a kill."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from pytorch_lightning.loggers import CSVLogger
from pytorch_lightning.loggers.csv_logs import ExperimentWriter
from pytorch_lightning.loggers.logger import rank_zero_experiment
from pytorch_lightning.utilities import rank_zero_only

from storage.files import write_text


class CurveWriter(ExperimentWriter):
    """Lightning's writer of metrics.csv, but without its ways to lose the file: it deletes the one of a run
    that goes on, and rewrites it in place when a new column appears."""

    def _check_log_dir_exists(self) -> None:
        """`keep_curves` decides whether an old file goes on."""

    def _rewrite_with_new_header(self, fieldnames: list[str]) -> None:
        rows = list(read_curves(Path(self.metrics_file_path)))
        write_curves(Path(self.metrics_file_path), fieldnames, rows)


class CurveLogger(CSVLogger):
    """CSVLogger with a `CurveWriter`."""

    _experiment: CurveWriter | None

    @property
    @rank_zero_experiment
    def experiment(self) -> CurveWriter:
        """The writer; made when first asked for."""
        if self._experiment is None:
            Path(self.log_dir).mkdir(parents=True, exist_ok=True)
            self._experiment = CurveWriter(log_dir=self.log_dir)
        return self._experiment


@rank_zero_only
def keep_curves(logger: CurveLogger, step: int) -> None:
    """Go on in metrics.csv after the rows below `step`, where a file is."""
    path = Path(logger.log_dir) / "metrics.csv"
    if not path.exists():
        return
    rows = [row for row in read_curves(path) if int(row.get("step") or 0) < step]
    if not rows:
        path.unlink()
        return
    keys = list(rows[0])
    write_curves(path, keys, rows)
    logger.experiment.metrics_keys = keys


def read_curves(path: Path) -> Iterator[dict[str, str]]:
    """The rows of a metrics.csv; not a last one that a killed writer left unfinished."""
    with open(path, newline="") as file:
        text = file.read()
    return csv.DictReader(text[: text.rfind("\n") + 1].splitlines())


def write_curves(path: Path, keys: Sequence[str], rows: Iterable[Mapping[str, str]]) -> None:
    """Write a metrics.csv whole."""
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=keys, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_text(path, text.getvalue())
