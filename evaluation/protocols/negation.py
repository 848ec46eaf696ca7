"""Does the answer turn with the story? Yes/no questions about a story and about its negation.

python -m evaluation negation --checkpoint ot=A.ckpt ibt=B.ckpt --pairs pairs.jsonl --output DIR
python -m evaluation negation --checkpoint gpt=openai:gpt-4o-mini --pairs condaqa_dev.jsonl --output DIR

Faithfulness spec 5.2. The pairs: data_modules/tasks/condaqa.py.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from evaluation.old_flags import add_answer_arguments, add_checkpoints_argument
from evaluation.old_report import Report
from evaluation.old_tables import Cell, Table

if TYPE_CHECKING:
    from data_modules.tasks.condaqa import ContrastPair, PairSet
    from evaluation.answering.answerers import Answerer, Said
    from metrics.yes_no import ContrastResult, YesNoResult

NOTE = (
    "Each pair asks one question about an original story (Org) and about a story whose meaning was turned "
    "(Mod), so that one answer is yes and the other no. Comb-Acc counts pairs with both right. A model that "
    "ignores the change gets at most Org + Mod = 100 % and always Comb = 0 %; guessing gets 50 %, 50 % and "
    "25 %. A prediction other than yes and no is wrong."
)
FIGURE = "negation.png"
HEADER = ("Org-Acc", "Mod-Acc", "Comb-Acc", "pairs", "no answer")
SIDES = ("prediction_org", "prediction_mod", "answer_org", "answer_mod")


@dataclass(frozen=True)
class Scored:
    """Shares of some pairs, and how many of them got no answer."""

    contrast: ContrastResult
    org: YesNoResult
    mod: YesNoResult
    failures: int


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of this protocol."""
    add_checkpoints_argument(parser, "a .ckpt with heads for yes and no")
    parser.add_argument(
        "--pairs",
        required=True,
        metavar="FILE",
        help="pairs as JSON Lines, or CondaQA's file, whose edits with opposite answers become pairs",
    )
    add_answer_arguments(parser)


def run(args: argparse.Namespace) -> Report:
    """Ask every checkpoint both questions of every pair."""
    from data_modules.tasks.condaqa import read_pairs
    from evaluation.answering.prompting import prompt_record
    from evaluation.answering.yes_no import open_yes_no, warn_of_silence
    from evaluation.protocols.bias.command import named_sources, source_record

    found = read_pairs(args.pairs)
    named = named_sources(args.checkpoint, "--checkpoint")
    rows: list[dict[str, Any]] = []
    for name, path in named:
        rows += pair_rows(name, open_yes_no(path, args), found.pairs)
    warn_of_silence(rows, [name for name, _ in named])
    about = {
        "protocol": "negation",
        "checkpoints": {name: source_record(path) for name, path in named},
        "pairs": source_record(args.pairs),
        "left_out": dict(found.left_out),
        "precision": args.precision,
        "unknown_threshold": args.unknown_threshold,
        "type_threshold": args.type_threshold,
        **prompt_record(dict(named), args),
    }
    return negation_report([name for name, _ in named], found, rows, about)


def pair_rows(name: str, answerer: Answerer, pairs: Sequence[ContrastPair]) -> list[dict[str, Any]]:
    """One row per pair: both predictions, right or wrong; `failure` instead where one side has no answer."""
    from evaluation.answering.yes_no import ask_all

    examples = [example for pair in pairs for example in pair.examples()]
    said = ask_all(answerer, examples, f"asking {name}")
    return [pair_row(name, pair, *said[2 * i : 2 * i + 2]) for i, pair in enumerate(pairs)]


def pair_row(name: str, pair: ContrastPair, org: Said, mod: Said) -> dict[str, Any]:
    """The row of one pair."""
    from metrics.yes_no import yes_or_no

    row: dict[str, Any] = {
        "checkpoint": name,
        "id": pair.id,
        "dataset": pair.dataset,
        "turn_id": pair.turn_id,
        "edit": pair.edit,
        "question": pair.question,
    }
    for side, answer, said in (("org", pair.answer_org, org), ("mod", pair.answer_mod, mod)):
        row |= {f"answer_{side}": answer, f"prediction_{side}": said.text}
    if failure := org.failure or mod.failure:
        return row | {"failure": failure}
    right = {side: yes_or_no(row[f"prediction_{side}"]) == row[f"answer_{side}"] for side in ("org", "mod")}
    return row | {"right_org": right["org"], "right_mod": right["mod"], "right": all(right.values())}


def scored(rows: Sequence[dict[str, Any]]) -> Scored:
    """Shares over the pairs that have both answers."""
    from metrics.yes_no import ContrastAccuracy, YesNoAccuracy

    answered = [row for row in rows if "failure" not in row]
    column = {name: [row[name] for row in answered] for name in SIDES}
    contrast, org, mod = ContrastAccuracy(), YesNoAccuracy(), YesNoAccuracy()
    contrast.update(*(column[name] for name in SIDES))
    org.update(column["prediction_org"], column["answer_org"])
    mod.update(column["prediction_mod"], column["answer_mod"])
    return Scored(contrast.compute(), org.compute(), mod.compute(), len(rows) - len(answered))


def negation_report(
    names: Sequence[str], found: PairSet, rows: Sequence[dict[str, Any]], about: dict[str, Any]
) -> Report:
    """The report of all checkpoints on one set of pairs."""
    from evaluation.answering.yes_no import accuracy_figure, count_failures, failure_note

    by_name = {name: [row for row in rows if row["checkpoint"] == name] for name in names}
    total = {name: scored(its) for name, its in by_name.items()}
    tables = [accuracy_table(total), said_table(total)]
    metrics: dict[str, float | int] = {}
    for name, result in total.items():
        metrics |= dict(metric_keys(result, f"{name}/" if len(names) > 1 else ""))
    for kind, title in (("edit", "By kind of change"), ("dataset", "By data set")):
        values = sorted({row[kind] for row in rows})
        if len(values) < 2:
            continue
        parts = {
            (value, name): scored([row for row in its if row[kind] == value])
            for value in values
            for name, its in by_name.items()
        }
        tables.append(part_table(parts, kind, title))
        for (value, name), result in parts.items():
            at = f"{name}/" if len(names) > 1 else ""
            metrics |= dict(metric_keys(result, f"{at}{kind}/{value or 'other'}/"))
    shares = {name: [float(share) for share in result.contrast[:3]] for name, result in total.items()}
    return Report(
        title="Negation",
        metrics=metrics,
        tables=tuple(tables),
        about=about,
        notes=(NOTE, pairs_note(found), *failure_note(count_failures(rows, names), "pairs")),
        figures={FIGURE: accuracy_figure(("Org-Acc", "Mod-Acc", "Comb-Acc"), shares, (0.5, 0.5, 0.25))},
        examples=rows,
    )


def pairs_note(found: PairSet) -> str:
    """How many pairs there are, what a constant answer gets, and what was left out."""
    yes = sum(pair.answer_org == "yes" for pair in found.pairs) / len(found.pairs)
    note = (
        f"{len(found.pairs)} pairs; the original's answer is yes in {100 * yes:.1f} % of them, which is the "
        "Org-Acc of a model that always says yes."
    )
    if found.left_out:
        told = ", ".join(f"{count} {reason}" for reason, count in found.left_out.items())
        note += f" Edited passages that make no pair: {told}."
    return note


def metric_keys(result: Scored, prefix: str) -> Iterator[tuple[str, float | int]]:
    """Flat keys; shares in [0, 1]."""
    from evaluation.answering.yes_no import said_shares

    for name in ("org", "mod", "comb"):
        yield f"{prefix}{name}_acc", float(getattr(result.contrast, name))
    for side in ("org", "mod"):
        shares = said_shares(getattr(result, side))
        yield from zip((f"{prefix}{side}/{what}" for what in ("yes", "no", "other")), shares, strict=True)
    yield f"{prefix}n", int(result.contrast.n)
    yield f"{prefix}failures", result.failures


def accuracy_table(total: dict[str, Scored]) -> Table:
    """One row per checkpoint, as the paper prints."""
    rows = tuple((name, *accuracies(result), *counts(result)) for name, result in total.items())
    return Table("Accuracy in percent", ("checkpoint", *HEADER), rows)


def accuracies(result: Scored) -> tuple[Cell, ...]:
    """Org-Acc, Mod-Acc and Comb-Acc as cells."""
    from evaluation.answering.yes_no import percent

    return tuple(percent(float(share)) for share in result.contrast[:3])


def counts(result: Scored) -> tuple[Cell, ...]:
    """Pairs with both answers, and without."""
    return int(result.contrast.n), result.failures


def said_table(total: dict[str, Scored]) -> Table:
    """How often a checkpoint says yes, no, and something else."""
    from evaluation.answering.yes_no import percent, said_shares

    rows = tuple(
        (name, *(percent(share) for side in (result.org, result.mod) for share in said_shares(side)))
        for name, result in total.items()
    )
    header = tuple(f"{side}: {what}" for side in ("Org", "Mod") for what in ("yes", "no", "other"))
    return Table("What is said, in percent of pairs", ("checkpoint", *header), rows)


def part_table(parts: dict[tuple[str, str], Scored], kind: str, title: str) -> Table:
    """Accuracy of each part of the pairs, checkpoints of a part together."""
    rows = tuple(
        (value or "other", name, *accuracies(result), *counts(result))
        for (value, name), result in parts.items()
    )
    return Table(f"{title}, in percent", (kind, "checkpoint", *HEADER), rows)
