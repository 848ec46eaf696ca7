"""The declared content of a report: headline, tables and figures of a long table from any source.

BIAS = Layout("Group bias", by=("class",), cells=[("class",)], views=[View(...)], headline=[Said(...)])

BIAS.report(results, rows, names, about)                                      # an Evaluation
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from evaluation.report import Evaluation, Figure
from evaluation.results import Results, Row
from evaluation.shown.bars import Bars
from evaluation.shown.headlines import Said
from evaluation.shown.views import View
from evaluation.statistics import Statistic, share

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True)
class Layout:
    """The content of a report.

    Args:
        title: heading of the report.
        measures: field to heading, for means of values in [0, 1]; or other statistics by name.
        by: the dimensions: columns of results.csv after `checkpoint` and `against`.
        cells: ways of splitting rows into cells, each a tuple of dimensions. The first is the whole: its
            dimensions are in every entry. A row counts for the entries whose dimensions it has.
        units: the units of intervals, a plural noun.
        views: tables (default: one of the whole); a view without measures shows all.
        figures: file name to figure.
        headline: its clauses.
        good: a sentence that says which numbers would be good.
        notes: paragraphs above the tables.
        console: number of tables on the console.
    """

    title: str
    measures: Mapping[str, str | Statistic]
    by: tuple[str, ...] = ()
    cells: Sequence[tuple[str, ...]] = ((),)
    units: str = "questions"
    views: Sequence[View] = ()
    figures: Mapping[str, Bars | Figure] = field(default_factory=dict)
    headline: Sequence[Said] = ()
    good: str = ""
    notes: Sequence[str] = ()
    console: int = 1

    def statistics(self) -> dict[str, Statistic]:
        """All measures by name."""
        measures = self.measures.items()
        return {name: share(what, name) if isinstance(what, str) else what for name, what in measures}

    def report(
        self, results: Results, rows: Sequence[Row], names: Sequence[str], about: Mapping[str, Any]
    ) -> Evaluation:
        """Make the evaluation from finished numbers: `rows` of all examples, `names` of the checkpoints, of
        which the first is compared with the others, and `about` as for `Evaluation`."""
        frame, statistics = results.frame, self.statistics()
        shares = {name for name, statistic in statistics.items() if statistic.share}
        headings = {name: statistic.heading for name, statistic in statistics.items() if name != "failed"}
        views, figures = list[View](), dict[str, Figure]()
        for view in self.views or [View(self.title, self.cells[0])]:
            if all(len(values) > 1 for values in self.place(frame, view.by).values() if values != ""):
                where = {**self.place(frame, (*view.by, view.across)), **view.where}
                percent = shares if view.percent is None else view.percent
                views.append(replace(view, measures=view.measures or headings, where=where, percent=percent))
        for name, figure in self.figures.items():
            if isinstance(figure, Bars):
                where = {**self.place(frame, (figure.x, figure.hue, figure.panels)), **figure.where}
                figure = replace(figure, where=where, percent=shares.issuperset(figure.measures))
                if not figure.parts(frame):
                    continue
            figures[name] = figure
        said = self.conclusion(results, names, shares)
        return Evaluation(self.title, results, views, about, said, self.notes, figures, rows, self.console)

    def conclusion(self, results: Results, names: Sequence[str], shares: Collection[str]) -> str:
        """The headline: its first six clauses, followed by the aim."""
        about = results, names, self.cells[0]
        found = (said.clauses(*about, percent=said.measure in shares) for said in self.headline)
        clauses = "; ".join(islice(chain.from_iterable(found), 6))
        who = " -> ".join(dict.fromkeys([names[0], names[-1]]))
        good = f" Aim: {self.good}." if self.good else ""
        return f"{who}: {clauses}.{good}" if clauses else ""

    def place(self, frame: DataFrame, shown: Sequence[str]) -> dict[str, Any]:
        """Return the place of the cells that differ in the dimensions `shown`, without others beyond the
        first entry's."""
        return {
            name: sorted(set(frame[name]) - {""}, key=str) if name in shown else ""
            for name in self.by
            if name not in self.cells[0]
        }
