"""Protocols: each declares how it makes its rows and what they show; everything else is done here.

    LENGTH = Protocol("Length", unit="id", by=("variant",), cells=[("variant",)], measures={...})

    def evaluate(*, checkpoint: list[Named], qa: str, asking: Asking) -> Evaluation:
        def rows(answerer): ...      # a dict for each question: id, variant, long; or failure
        return LENGTH.run(rows, checkpoint, asking)

What is data in a long declaration is in a YAML file next to it: `Protocol(**declared(__file__))`.

A row is written to examples.jsonl: the dimensions of its cell, its unit, its fields, or `failure`,
the reason why there is no answer, and any other information for readers. A row with a list for a
dimension, such as layers, represents one row per element: its fields are lists too, or equal for
all elements. Rows of a name with several seeds have the `run` of each, those of several checkpoints
of a run the `step`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any

from .answering.interface import Ability, Compute, open_answerer
from .answering.sources import Model, by_label, named_models
from .answering.work import StoredRows, once
from .report import Evaluation, failure_note, tally_note

# Protocols import from here all that they declare, and the numbers that they compute.
from .results import Estimate, Number, Results, Row, plain  # noqa: F401
from .shown.declared import declared  # noqa: F401
from .shown.figures import Lines, Points
from .shown.views import Said, Table, View, about_intervals, cells_of
from .statistics import Comparison, OfRows, Statistic, compared, estimate, share  # noqa: F401
from .steps import Numbers, latest, numbers_along, over_steps

log = logging.getLogger(__name__)

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True)
class Protocol:
    """How rows become the numbers of a report, and what the report shows.

    Args:
        title: heading of the report.
        measures: field to heading, for means of values in [0, 1]; or other statistics by name.
        also: functions of the table of all rows and the checkpoints' names to numbers that are not
            statistics of cells.
        more: other fields of rows that `also` needs.
        unit: the field or fields of a row whose rows are not independent: the unit of intervals.
        by: the dimensions: columns of results.csv after `checkpoint` and `against`.
        cells: ways of splitting rows into cells, each a tuple of dimensions. The first is the
            whole: its dimensions are in every entry. A row counts for the entries whose dimensions
            it has.
        units: the units of intervals, a plural noun.
        views: tables (default: one of the whole); a view without measures shows all. Or functions
            of the shown cells to a table.
        figures: file name to figure.
        headline: the rows of the summary; the first is the headline.
        good: a sentence that says which numbers would be good.
        remarks: functions of the results and the checkpoints' names to sentences under the summary,
            or "".
        notes: paragraphs above the tables.
        console: number of tables on the console.
        compared: dimensions of the whole, other than the checkpoint, whose values are compared with
            that of the first row.
        item: the fields that identify a question, equal for all that is compared (default: the unit
            and the dimensions that are not compared). Of several rows with the same question, the
            n-th is compared with the n-th.
        failures: a plural noun for unanswered rows; empty if rows cannot fail.
        tallies: field to the beginning of a note, which counts its values.

    Raises:
        ValueError: a dimension is missing from an entry of `cells` or from `by`.
    """

    title: str
    _: KW_ONLY
    measures: Mapping[str, str | Statistic]
    also: Sequence[Numbers] = ()
    more: Sequence[str] = ()
    unit: str | tuple[str, ...]
    by: tuple[str, ...] = ()
    cells: Sequence[tuple[str, ...]] = ((),)
    units: str = "questions"
    views: Sequence[View | Callable[[DataFrame], Table]] = ()
    figures: Mapping[str, Points] = field(default_factory=dict)
    headline: Sequence[Said] = ()
    good: str = ""
    remarks: Sequence[Callable[[Results, Sequence[str]], str]] = ()
    notes: Sequence[str] = ()
    console: int = 1
    compared: tuple[str, ...] = ()
    item: tuple[str, ...] = ()
    failures: str = "questions"
    tallies: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        whole = {*self.cells[0], *self.compared}
        for entry in self.cells:
            if not whole <= {*entry} <= {*self.by}:
                raise ValueError(
                    f"{self.title}: cells: {entry} must have {whole}, and others of {self.by} only"
                )

    def run(
        self,
        rows: Callable[[Any], Iterable[Row]],
        checkpoint: Sequence[str | Model],
        asking: Compute = Compute(),  # noqa: B008  frozen
        *,
        need: Ability = "spans",
        opened: Callable[[Model], Any] | None = None,
    ) -> Evaluation:
        """Evaluate all models, one after the other, and make the report.

        Args:
            rows: makes the rows of all questions for an answerer, which it must not store: a model
                is freed before the next one.
            checkpoint: the models, or arguments of `--checkpoint`. The first name is compared with
                others at the same step, the first step of each name with its later ones.
            asking: how they are queried.
            need: the required ability.
            opened: opens a model, instead of `open_answerer`.

        Raises:
            ValueError: a model cannot be used, or none answers.
        """
        import pandas as pd

        models = named_models(checkpoint)
        names = [*dict.fromkeys(model.name for model in models)]
        examples = StoredRows()
        columns = {
            name: list[Any]() for name in (*self.fields[2], "step", *self.more, *self.tallies)
        }
        identities = dict[str, Any]()
        first_with = dict[str, str]()
        for label, model in by_label(models).items():

            def made(model: Model = model) -> Iterator[Any]:
                answerer = opened(model) if opened else open_answerer(model.path, asking, need=need)
                yield getattr(answerer, "identity", None)
                yield from rows(answerer)

            own = once(model.path, made)
            if identity := next(own):
                first = first_with.setdefault(f"{model.name} {model.step} {identity}", model.path)
                if first != model.path:
                    log.warning("%s: is a copy of %s, but counts as another seed", label, first)
                identities[label] = identity
            for row in own:
                examples.keep(row := {**model.place, **row})
                for name, column in columns.items():
                    column.append(row.get(name))
        # Of a name with one checkpoint, whose seed is not known, `run` is empty.
        every = pd.DataFrame(columns, dtype=object).dropna(axis=1, how="all").fillna({"run": ""})
        del columns
        about = {"identities": identities} if identities else {}
        return self.report(every, examples, names, about)

    @cached_property
    def statistics(self) -> dict[str, Statistic]:
        """All measures by name and, if rows can fail, the share of those without an answer."""
        statistics = {
            name: share(measure, name) if isinstance(measure, str) else measure
            for name, measure in self.measures.items()
        }
        if self.failures:
            statistics["failed"] = share("without an answer", "failed")
        return statistics

    @cached_property
    def fields(self) -> tuple[list[str], list[str], list[str]]:
        """The fields of a row that identify its unit and its question, and all that `numbers`
        needs.
        """
        unit = [self.unit] if isinstance(self.unit, str) else [*self.unit]
        item = self.item or (*unit, *(name for name in self.by if name not in self.compared))
        fields = (statistic.fields for statistic in self.statistics.values())
        every = chain(["checkpoint", "run", "failure"], self.by, unit, item, *fields)
        return unit, [*item], [*dict.fromkeys(every)]

    def results(self, rows: DataFrame, names: Sequence[str]) -> Results:
        """Compute all numbers of these checkpoints."""
        if "step" in rows:
            along = numbers_along(rows, names, self.every)
            return Results(("step", *self.by), self.units, along)
        return Results(self.by, self.units, self.every(rows, names))

    def every(self, rows: DataFrame, names: Sequence[str]) -> Iterator[Number]:
        """Yield all numbers of checkpoints, those that are not statistics of cells too."""
        for numbers in (self.numbers, *self.also):
            yield from numbers(rows, names)

    def numbers(self, rows: DataFrame, names: Sequence[str]) -> Iterator[Number]:
        """Yield every cell of every checkpoint, then its changes along each compared dimension."""
        frame = self.frame(rows)
        starts = {"checkpoint": names[0]} | {
            name: next(iter(frame[name]), "") for name in self.compared
        }
        for entry in self.cells:
            finer = [name for name in entry if name not in self.cells[0]]
            by = ["checkpoint", *entry]
            members = frame[(frame[finer] != "").all(axis=1)]
            parts = [*members.groupby(by, sort=False)]
            pairs = [pair for start in starts.items() for pair in compared(members, *start, by)]
            for measure, statistic in self.statistics.items():
                counted = members.loc[members[[*statistic.fields]].notna().all(axis=1), by]
                # A measure is reported where any checkpoint has it.
                cells = {key[1:] for key, _ in counted.groupby(by, sort=False)}
                for key, part in parts:
                    if key[1:] in cells and not statistic.change_only:
                        place = dict(zip(by, key, strict=True))
                        yield Number(measure, place, estimate(statistic, part), self.units)
                for place, first, other in pairs:
                    change = estimate(statistic, other, first)
                    if change.n or estimate(statistic, other).n:
                        yield Number(measure, place, change, self.units)

    def frame(self, rows: DataFrame) -> DataFrame:
        """Return the data for numbers, per row: its dimensions, its fields as float64 (NaN: none),
        `failed`, `unit`, and as the index its question.
        """
        unit, item, columns = self.fields
        statistics = self.statistics.values()
        fields = {name for statistic in statistics for name in statistic.fields}
        numeric = {name for one in statistics if one.numeric for name in one.fields}
        frame = rows.reindex(columns=columns).reset_index(drop=True)
        frame["failed"] = frame["failure"].notna()
        frame = frame.where(frame.notna() | frame.columns.isin(fields), "")
        lists = [
            name
            for name, column in frame.items()
            if column.dtype == object and any(isinstance(value, list) for value in column)
        ]
        if lists:
            frame = frame.explode(lists, ignore_index=True)
        frame = frame.astype(dict.fromkeys([*numeric, "failed"], "float64"))
        frame["unit"] = frame.groupby(unit, sort=False).ngroup()
        question = frame.groupby(item, sort=False).ngroup()
        again = frame.groupby(["checkpoint", "run", *self.compared, question]).cumcount()
        if (frame["run"] == "").all():
            del frame["run"]
        return frame.set_index(question + again * (question.max() + 1))

    def report(
        self,
        rows: DataFrame,
        examples: Iterable[Row],
        names: Sequence[str],
        about: Mapping[str, Any],
    ) -> Evaluation:
        """Make the evaluation: from the table of all `rows`, `names` of the checkpoints, of which
        the first is compared with the others, and `examples` and `about` as for `Evaluation`.
        """
        results = self.results(rows, names)
        shares = {name for name, statistic in self.statistics.items() if statistic.share}
        headings = {name: statistic.heading for name, statistic in self.statistics.items()}
        without = headings.pop("failed", "")
        failed = {"failed": without} if "failure" in rows else {}
        views = [
            replace(
                view,
                measures={**(view.measures or headings), **failed},
                where={**self.place(*view.by, view.across), **view.where},
                percent=shares if view.percent is None else view.percent,
            )
            if isinstance(view, View)
            else view
            for view in self.views or [View(self.title, self.cells[0])]
        ]
        drawn: dict[str, tuple[Points, DataFrame]] = {}
        shown = results
        if "step" in results.by:
            steps = over_steps(results, self.headline, names, self.cells[0])
            clauses = {words: words for words in steps["measure"].unique()}
            in_percent = {*steps["measure"][steps["of"].isin(shares)]}
            by = ("checkpoint", "step")
            along = View("Along training", by, clauses, "measure", {}, in_percent)
            views.append(lambda _: along(steps))
            if clauses:
                drawn["steps.png"] = Lines("step", clauses, percent=in_percent), steps
            shown, names = latest(results, names)
        for name, figure in self.figures.items():
            cells = (results if figure.x == "step" else shown).frame
            where = {**self.place(figure.x, figure.hue, figure.panels), **figure.where}
            figure = replace(figure, where=where, percent=shares)
            if figure.x in cells and figure.parts(cells):
                drawn[name] = figure, cells
        lacking = [
            f"{headings[name]} since {start}" for name, start in results.lacking if name in headings
        ]
        changes = "Some changes are missing, because no question has both numbers: {}."
        headline, summary = self.conclusion(shown, names, shares)
        return Evaluation(
            self.title,
            results,
            views,
            about,
            headline,
            [
                *self.notes,
                changes.format(", ".join(lacking)) if lacking else "",
                *(tally_note(rows, *tally) for tally in self.tallies.items()),
                failure_note(rows, self.failures),
            ],
            drawn,
            examples,
            self.console,
            shown,
            summary,
        )

    def conclusion(
        self, results: Results, names: Sequence[str], shares: Collection[str]
    ) -> tuple[str, list[Table]]:
        """The headline, and the summary: its first twelve rows, the aim, and the remarks."""
        ends = [*dict.fromkeys([*names[:1], *names[-1:]])]
        about = results, ends, self.cells[0]
        every = (part.rows(*about, percent=part.measure in shares) for part in self.headline)
        rows = (*chain.from_iterable(every),)[:12]
        if not rows:
            return "", []
        frame = cells_of(results.frame, {"measure": [part.measure for part in self.headline]})
        seeds = frame[frame["against"] == ""].groupby("checkpoint")["seeds"].max().min()
        several = f", {seeds} seeds" if seeds > 1 else ""
        at = len(ends) + 1
        words, *numbers = rows[0][:at]
        parts = [" -> ".join(filter(None, numbers)), *rows[0][at:-2], f"n {rows[0][-1]}"]
        headline = f"{' -> '.join(ends)}{several}: {words} {', '.join(filter(None, parts))}."
        sentences = [f"Aim: {self.good}." if self.good else ""]
        sentences += [remark(results, names) for remark in self.remarks]
        header = ("measure", *ends, "change", "toward the aim")[: len(rows[0]) - 1]
        caption = " ".join(filter(None, (*sentences, about_intervals(frame))))
        return headline, [Table("Summary", (*header, "n"), rows, caption)]

    def place(self, *shown: str) -> Row:
        """Return the place of the cells that have the dimensions `shown`, without others beyond the
        first entry's.
        """
        return {
            name: None if name in shown else "" for name in self.by if name not in self.cells[0]
        }
