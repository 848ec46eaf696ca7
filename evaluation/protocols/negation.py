"""Does the answer turn with the story? Yes/no questions about a story and about its negation.

python -m evaluation negation --checkpoint ot=A.ckpt ibt=B.ckpt --pairs pairs.jsonl --output DIR
python -m evaluation negation --checkpoint gpt=openai:gpt-4o-mini --pairs condaqa_dev.jsonl --output DIR

Faithfulness spec 5.2. The pairs: data_modules/tasks/condaqa.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from evaluation.answering.interface import Asking, named_sources
from evaluation.failures import failure_note, warn_of_silence
from evaluation.figures import Bars
from evaluation.report import Evaluation, source_record
from evaluation.results import Results
from evaluation.views import View, number
from evaluation.yes_or_no import SAID, ask_all, measured, record
from storage.command_line import Named

if TYPE_CHECKING:
    from data_modules.tasks.condaqa import ContrastPair, PairSet
    from evaluation.answering.interface import Answer

BY = ("checkpoint", "data", "edit", "story")
SIDES = ("org", "mod")
CHANCE = {"org": 0.5, "mod": 0.5, "comb": 0.25}
NOTE = (
    "Each pair asks one question about an original story (org) and about a story whose meaning was turned "
    "(mod), so that one answer is yes and the other no. comb counts pairs with both right (Org-, Mod- and "
    "Comb-Acc of the paper). A model that ignores the change gets at most org + mod = 100 % and always "
    "comb = 0 %; guessing gets 50 %, 50 % and 25 %. A prediction other than yes and no is wrong."
)


def evaluate(*, checkpoint: list[Named], pairs: Annotated[Path, "FILE"], asking: Asking) -> Evaluation:
    """Whether answers turn when the story is negated: accuracy on either story of a pair, and on both.

    Args:
        checkpoint: a .ckpt with heads for yes and no, or a language model (hf:PATH, openai:MODEL[@URL]).
        pairs: pairs as JSON Lines, or CondaQA's file, whose edits with opposite answers become pairs.
        asking: how models are asked.
    """
    from data_modules.tasks.condaqa import read_pairs

    data = read_pairs(pairs)
    named = named_sources(checkpoint, "--checkpoint")
    questions = [example for pair in data.pairs for example in pair.examples()]
    rows: list[dict[str, Any]] = []
    for name, path in named.items():
        answers = ask_all(path, asking, questions, f"asking {name}")
        rows += (pair_row(name, pair, *answers[2 * i : 2 * i + 2]) for i, pair in enumerate(data.pairs))
    warn_of_silence(rows, named)
    about = {
        "protocol": "negation",
        "pairs": source_record(str(pairs)),
        "left_out": dict(data.left_out),
        **record(named, asking),
    }
    return report(data, rows, about)


def pair_row(name: str, pair: ContrastPair, org: Answer, mod: Answer) -> dict[str, Any]:
    """Both predictions of a pair, right or wrong; `failure` instead where one side has no answer."""
    row: dict[str, Any] = {
        "checkpoint": name,
        "id": pair.id,
        "data": pair.dataset or "other",
        "turn_id": pair.turn_id,
        "edit": pair.edit or "other",
        "question": pair.question,
    }
    for side, answer, given in (("org", pair.answer_org, org), ("mod", pair.answer_mod, mod)):
        row |= {f"answer_{side}": answer, f"prediction_{side}": given.text}
    if failure := org.failure or mod.failure:
        return row | {"failure": failure}
    right = [measured(row[f"prediction_{side}"], row[f"answer_{side}"])["accuracy"] for side in SIDES]
    return row | {"right_org": right[0], "right_mod": right[1], "right": all(right)}


def story_rows(rows: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The measures of each pair: of either story, and of both together."""
    for row in rows:
        pair = {**row, "pair": (row["data"], row["id"], row["turn_id"])}
        failed = "failure" in row
        for side in SIDES:
            said = {} if failed else measured(row[f"prediction_{side}"], row[f"answer_{side}"])
            yield {**pair, "story": side, **said}
        yield {**pair, "story": "comb", "accuracy": row.get("right"), "failed": failed}


def report(data: PairSet, rows: Sequence[dict[str, Any]], about: dict[str, Any]) -> Evaluation:
    """The evaluation of all pairs, then by kind of change and by data set where there are several."""
    results = Results(BY, "pairs")
    edits, sets = (sorted({row[kind] for row in rows}) for kind in ("edit", "data"))
    stories = list(story_rows(rows))
    for kind in [(), *[("edit",)] * (len(edits) > 1), *[("data",)] * (len(sets) > 1)]:
        by = ("checkpoint", *kind, "story")
        for sides, measures in ((SIDES, ("accuracy", *SAID)), (("comb",), ("accuracy", "failed"))):
            cells = [row for row in stories if row["story"] in sides]
            results.add_means(cells, measures, unit="pair", by=by)
    whole = {"edit": "", "data": ""}
    right = {"accuracy": "right"}
    views = [
        View("Accuracy in percent", ("checkpoint",), right, across="story", where=whole, percent=True),
        View("What is said, in percent of pairs", ("checkpoint", "story"), SAID, where=whole, percent=True),
        View(
            "By kind of change, in percent",
            ("edit", "checkpoint"),
            right,
            across="story",
            where={"edit": edits, "data": ""},
            percent=True,
        ),
        View(
            "By data set, in percent",
            ("data", "checkpoint"),
            right,
            across="story",
            where={"edit": "", "data": sets},
            percent=True,
        ),
    ]
    figure = Bars(
        x="story",
        hue="checkpoint",
        measures=right,
        where=whole,
        percent=True,
        label="accuracy (%)",
        chance=CHANCE,
    )
    return Evaluation(
        title="Negation",
        results=results,
        views=views,
        about=about,
        headline=headline(results, about["checkpoints"]),
        notes=[NOTE, pairs_note(data), *failure_note(rows, "pairs")],
        figures={"negation.png": figure},
        examples=rows,
    )


def headline(results: Results, checkpoints: Sequence[str]) -> str:
    """In how many pairs the answer turns with the story."""
    parts = []
    for name in checkpoints:
        cell = {"checkpoint": name, "edit": "", "data": ""}
        shares = [number(results.value("accuracy", story=s, **cell), percent=True) for s in CHANCE]
        parts.append(f"{name} is right about both in {shares[2]} % (org {shares[0]} %, mod {shares[1]} %)")
    return f"Of a story and its negation, {'; '.join(parts)}. Guessing gets 25 %."


def pairs_note(data: PairSet) -> str:
    """How many pairs there are, what a constant answer gets, and what was left out."""
    yes = sum(pair.answer_org == "yes" for pair in data.pairs) / len(data.pairs)
    note = (
        f"{len(data.pairs)} pairs; the original's answer is yes in {100 * yes:.1f} % of them, which is the "
        "Org-Acc of a model that always says yes."
    )
    if data.left_out:
        reasons = ", ".join(f"{count} {reason}" for reason, count in data.left_out.items())
        note += f" Edited passages that make no pair: {reasons}."
    return note
