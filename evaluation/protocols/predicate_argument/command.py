"""Does a model know which thing has which colour? Yes/no questions about two things of two colours.

python -m evaluation predicate-argument --checkpoint ot=A.ckpt ibt=B.ckpt --output DIR
python -m evaluation predicate-argument --checkpoint gpt=openai:gpt-4o-mini --negated --output DIR

Faithfulness spec 5.1. The stories: evaluation/protocols/predicate_argument/stories.py.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from evaluation.old_flags import add_answer_arguments, add_checkpoints_argument
from evaluation.old_report import Report
from evaluation.old_tables import Cell, Table

if TYPE_CHECKING:
    from evaluation.answering.answerers import Answerer
    from evaluation.protocols.predicate_argument.stories import ProbeRow
    from metrics.yes_no import YesNoResult

Sets = Mapping[str, "Sequence[ProbeRow]"]
"""The stimuli by name: `plain`, and `negated` where asked for."""

NOTE = (
    'Three wordings of each question: Org ("Was the car red?"), Mod ("Was there a red car?") and New ("Was '
    'the a red car?", which is not grammatical). Both colours are in the story: its words alone do not '
    "tell the answer. A prediction other than yes and no is wrong."
)
NEGATED_NOTE = (
    'Negated stories deny the second thing its colour ("a house that was not red"); they are asked the two '
    "questions that such a story decides, one of them yes. A model that passes over the *not* gets 50 %."
)
FIGURE = "predicate_argument.png"
LABELS = {"org": "Org", "mod": "Mod", "new": "New"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of this protocol."""
    add_checkpoints_argument(parser, "a .ckpt with heads for yes and no")
    parser.add_argument(
        "--stimuli",
        metavar="FILE",
        help="JSON list of rows with schema, col1, col2, story, answer, org, mod, new in place of the 130 "
        "stories",
    )
    parser.add_argument(
        "--negated", action="store_true", help='also 130 stories such as "... a house that was not red"'
    )
    add_answer_arguments(parser)


def run(args: argparse.Namespace) -> Report:
    """Ask every checkpoint every question in every wording."""
    from evaluation.answering.prompting import prompt_record
    from evaluation.answering.yes_no import open_yes_no, warn_of_silence
    from evaluation.protocols.bias.command import named_sources, source_record
    from evaluation.protocols.predicate_argument.stories import predicate_argument_rows, read_stimuli

    sets = {"plain": read_stimuli(args.stimuli) if args.stimuli else predicate_argument_rows()}
    if args.negated:
        sets["negated"] = predicate_argument_rows(negated=True)
    named = named_sources(args.checkpoint, "--checkpoint")
    rows: list[dict[str, Any]] = []
    for name, path in named:
        rows += answer_rows(name, open_yes_no(path, args), sets)
    warn_of_silence(rows, [name for name, _ in named])
    about = {
        "protocol": "predicate-argument",
        "checkpoints": {name: source_record(path) for name, path in named},
        "stimuli": source_record(args.stimuli) if args.stimuli else "the 130 stories",
        "negated": args.negated,
        "precision": args.precision,
        "unknown_threshold": args.unknown_threshold,
        "type_threshold": args.type_threshold,
        **prompt_record(dict(named), args),
    }
    return probe_report([name for name, _ in named], sets, rows, about)


def answer_rows(name: str, answerer: Answerer, sets: Sets) -> list[dict[str, Any]]:
    """One row per question and wording; `failure` in place of `right` where there is no answer."""
    from evaluation.answering.yes_no import ask_all
    from evaluation.protocols.predicate_argument.stories import WORDINGS
    from metrics.yes_no import yes_or_no

    asked = [
        (kind, number, row, wording)
        for kind, rows in sets.items()
        for number, row in enumerate(rows, 1)
        for wording in WORDINGS
    ]
    examples = [row.example(wording, f"{kind} {number}") for kind, number, row, wording in asked]
    found = []
    for (kind, _, row, wording), example, said in zip(
        asked, examples, ask_all(answerer, examples, f"asking {name}"), strict=True
    ):
        record = {"checkpoint": name, "set": kind, "id": example.id, "schema": row.schema, "wording": wording}
        record |= {"story": row.story, "question": example.question, "answer": row.answer}
        record["prediction"] = said.text
        outcome = {"failure": said.failure} if said.failure else {"right": yes_or_no(said.text) == row.answer}
        found.append(record | outcome)
    return found


def scored(rows: Sequence[dict[str, Any]]) -> YesNoResult:
    """Accuracy and shares of yes and no over the questions that have an answer."""
    from metrics.yes_no import YesNoAccuracy

    metric = YesNoAccuracy()
    answered = [row for row in rows if "failure" not in row]
    metric.update([row["prediction"] for row in answered], [row["answer"] for row in answered])
    return metric.compute()


def select(rows: Sequence[dict[str, Any]], **wanted: Any) -> list[dict[str, Any]]:
    """The rows whose fields have these values."""
    return [row for row in rows if all(row[name] == value for name, value in wanted.items())]


def probe_report(
    names: Sequence[str], sets: Sets, rows: Sequence[dict[str, Any]], about: dict[str, Any]
) -> Report:
    """The report of all checkpoints on all sets of stories."""
    from evaluation.answering.yes_no import accuracy_figure, count_failures, failure_note

    shares: dict[str, list[float]] = {name: [] for name in names}
    groups: list[str] = []
    first: list[Table] = []
    second: list[Table] = []
    for kind in sets:
        its = select(rows, set=kind)
        title = "" if kind == "plain" else f", {kind} stories"
        first.append(accuracy_table(names, its, title))
        second += [said_table(names, its, title), schema_table(names, its, title)]
        groups += [f"{label}\n{kind}" if len(sets) > 1 else label for label in LABELS.values()]
        for name in names:
            shares[name] += [float(scored(select(its, checkpoint=name, wording=w)).accuracy) for w in LABELS]
    notes = [NOTE, *[NEGATED_NOTE] * ("negated" in sets), chance_note(sets)]
    return Report(
        title="Predicate and argument",
        metrics=dict(metric_keys(names, sets, rows)),
        tables=(*first, *second),
        about=about,
        notes=(*notes, *failure_note(count_failures(rows, names), "questions")),
        figures={FIGURE: accuracy_figure(groups, shares, [0.5] * len(groups))},
        examples=rows,
        console=len(first),
    )


def metric_keys(
    names: Sequence[str], sets: Sets, rows: Sequence[dict[str, Any]]
) -> Iterator[tuple[str, float | int]]:
    """Flat keys: `[CHECKPOINT/][negated/][schema/1/]org/accuracy`; shares in [0, 1]."""
    for name in names:
        for kind, stimuli in sets.items():
            its = select(rows, checkpoint=name, set=kind)
            prefix = (f"{name}/" if len(names) > 1 else "") + ("" if kind == "plain" else f"{kind}/")
            yield from wording_keys(its, prefix)
            for schema in sorted({row.schema for row in stimuli}):
                yield from wording_keys(select(its, schema=schema), f"{prefix}schema/{schema}/")


def wording_keys(rows: Sequence[dict[str, Any]], prefix: str) -> Iterator[tuple[str, float | int]]:
    """The keys of some questions of one checkpoint, wording by wording."""
    from evaluation.answering.yes_no import said_shares

    for wording in LABELS:
        its = select(rows, wording=wording)
        result = scored(its)
        values = (float(result.accuracy), *said_shares(result), int(result.n))
        for name, value in zip(("accuracy", "yes", "no", "other", "n"), values, strict=True):
            yield f"{prefix}{wording}/{name}", value
        yield f"{prefix}{wording}/failures", len(its) - int(result.n)


def chance_note(sets: Sets) -> str:
    """How many stories and questions there are, and what a constant answer gets."""
    parts = []
    for kind, rows in sets.items():
        stories, n, yes = (
            len({row.story for row in rows}),
            len(rows),
            sum(row.answer == "yes" for row in rows),
        )
        parts.append(
            f"{kind.capitalize()}: {stories} stories, {n} questions a wording, {yes} yes and {n - yes} no "
            f"(always yes gets {100 * yes / n:.1f} %)"
        )
    return f"{'. '.join(parts)}. Guessing gets 50 %."


def accuracy_table(names: Sequence[str], rows: Sequence[dict[str, Any]], title: str) -> Table:
    """Accuracy and, in brackets, the share of no, as the paper prints; one row per checkpoint."""
    from evaluation.answering.yes_no import percent

    table: list[tuple[Cell, ...]] = []
    for name in names:
        results = [scored(select(rows, checkpoint=name, wording=wording)) for wording in LABELS]
        cells = [f"{percent(float(r.accuracy))} ({percent(float(r.no))})" for r in results]
        failures = sum("failure" in row for row in select(rows, checkpoint=name))
        table.append((name, *cells, counts(results), failures))
    header = ("checkpoint", *LABELS.values(), "n", "no answer")
    caption = "n: questions in a wording that got an answer."
    return Table(f"Accuracy (share of no) in percent{title}", header, tuple(table), caption)


def counts(results: Sequence[YesNoResult]) -> Cell:
    """Questions that got an answer: one number, or one per wording where they differ."""
    n = [int(result.n) for result in results]
    return n[0] if len(set(n)) == 1 else "/".join(map(str, n))


def said_table(names: Sequence[str], rows: Sequence[dict[str, Any]], title: str) -> Table:
    """How often a checkpoint says yes, no, and something else, by wording."""
    from evaluation.answering.yes_no import percent, said_shares

    table: list[tuple[Cell, ...]] = []
    for name in names:
        cells: list[Cell] = [name]
        for wording in LABELS:
            result = scored(select(rows, checkpoint=name, wording=wording))
            cells += [percent(share) for share in said_shares(result)]
        table.append(tuple(cells))
    header = tuple(f"{label}: {what}" for label in LABELS.values() for what in ("yes", "no", "other"))
    return Table(f"What is said, in percent{title}", ("checkpoint", *header), tuple(table))


def schema_table(names: Sequence[str], rows: Sequence[dict[str, Any]], title: str) -> Table:
    """Accuracy by kind of story, checkpoints of a kind together."""
    from evaluation.answering.yes_no import percent

    stories: dict[int, str] = {}
    for row in rows:
        stories.setdefault(row["schema"], row["story"])
    table: list[tuple[Cell, ...]] = []
    for schema in stories:
        for name in names:
            its = select(rows, checkpoint=name, schema=schema)
            results = [scored(select(its, wording=wording)) for wording in LABELS]
            n = counts(results)
            table.append((str(schema), name, *(percent(float(r.accuracy)) for r in results), n))
    caption = "  \n".join(f"{schema}: {story}" for schema, story in stories.items())
    header = ("schema", "checkpoint", *LABELS.values(), "n")
    return Table(f"Accuracy by schema, in percent{title}", header, tuple(table), caption)
