"""Does the answer turn with the story? Yes/no questions about a story and about its negation.

interventune evaluate negation --checkpoint ot=A.ckpt ibt=B.ckpt --pairs pairs.jsonl --output DIR
interventune evaluate negation --checkpoint gpt=openai:gpt-4o-mini --pairs condaqa_dev.jsonl --output DIR
interventune evaluate negation --predictions elsewhere=answers.jsonl --pairs pairs.jsonl --output DIR

Faithfulness spec 5.2. The pairs: data_modules/tasks/condaqa.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from evaluation.answering.interface import AnswerFile, Asking, named_answerers
from evaluation.answering.open import asking_record
from evaluation.answering.yes_or_no import ANSWER_SHARES, ask_all, measured, untrained
from evaluation.conclusions import answered_rows, change, check_silence, failure_note, headline
from evaluation.figures import Bars
from evaluation.report import Evaluation, source_record
from evaluation.results import Results
from evaluation.views import View
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


def evaluate(
    *,
    checkpoint: list[Named] | None = None,
    predictions: list[AnswerFile] | None = None,
    pairs: Annotated[Path, "FILE"],
    asking: Asking,
) -> Evaluation:
    """Whether answers turn when the story is negated: accuracy on either story of a pair, and on both.

    Args:
        checkpoint: a .ckpt with heads for yes and no, or a language model (hf:PATH, openai:MODEL[@URL]).
        predictions: beside checkpoints or in their place: rows with id (the pair's, and its turn_id behind a
            space where it has one), variant (org or mod) and answer.
        pairs: pairs as JSON Lines, or CondaQA's file, whose edits with opposite answers become pairs.
        asking: how models are asked.
    """
    from data_modules.tasks.condaqa import read_pairs

    data = read_pairs(pairs)
    named = named_answerers(checkpoint, predictions)
    questions = [example for pair in data.pairs for example in pair.examples()]
    rows: list[dict[str, Any]] = []
    for name, path in named.items():
        answers = ask_all(path, asking, questions, f"asking {name}")
        rows += (pair_row(name, pair, *answers[2 * i : 2 * i + 2]) for i, pair in enumerate(data.pairs))
    check_silence(rows, named)
    results = Results(BY, "pairs")
    edits, sets = (sorted({row[kind] for row in rows}) for kind in ("edit", "data"))
    pairs_asked = [{**row, "pair": (row["data"], row["id"], row["turn_id"])} for row in answered_rows(rows)]
    stories = [
        {**row, "story": side}
        | ({} if row["failed"] else measured(row[f"prediction_{side}"], row[f"answer_{side}"]))
        for row in pairs_asked
        for side in SIDES
    ]
    both = [{**row, "story": "comb", "accuracy": row.get("right")} for row in pairs_asked]
    for kind in [(), *[("edit",)] * (len(edits) > 1), *[("data",)] * (len(sets) > 1)]:
        by = ("checkpoint", *kind, "story")
        results.add_means(stories, ("accuracy", *ANSWER_SHARES), unit="pair", by=by)
        results.add_means(both, ("accuracy", "failed"), unit="pair", by=by)
    lost = untrained(stories, named)
    shown = [name for name in named if name not in lost]
    org, mod, comb = (results.rows("accuracy", shown, story=s, edit="", data="") for s in CHANCE)
    sides = {"both right (comb)": comb, "the original (org)": org, "the negation (mod)": mod}
    rights = ", ".join(change(text, found, percent=True) for text, found in sides.items() if shown)
    sentences = [f"{' -> '.join(shown)}, of a story and its negation: {rights}"] if shown else []
    whole, right = {"edit": "", "data": ""}, {"accuracy": "right"}
    figure = Bars(
        x="story",
        hue="checkpoint",
        measures={"accuracy": "right"},
        where=whole,
        percent=True,
        label="accuracy (%)",
        chance=CHANCE,
    )
    return Evaluation(
        title="Negation",
        results=results,
        views=[
            View("Accuracy in percent", ("story",), right, where=whole, percent=True),
            View("What is said, in percent of pairs", ("story",), ANSWER_SHARES, where=whole, percent=True),
            *(
                View(
                    f"By {title}, in percent",
                    (kind, "story"),
                    right,
                    where=whole | {kind: values},
                    percent=True,
                )
                for title, kind, values in (("kind of change", "edit", edits), ("data set", "data", sets))
            ),
        ],
        about={
            "protocol": "negation",
            "pairs": source_record(str(pairs)),
            "left_out": dict(data.left_out),
            **asking_record(named, asking),
        },
        headline=headline([*sentences, *lost.values()], "many both right; guessing gets 25 %"),
        notes=[NOTE, pairs_note(data), *failure_note(rows, "pairs")],
        figures={"negation.png": figure} if shown else {},
        examples=rows,
    )


def pair_row(name: str, pair: ContrastPair, org: Answer, mod: Answer) -> dict[str, Any]:
    """Both predictions of a pair, right or wrong; `failure` instead where one side has no answer."""
    row: dict[str, Any] = {
        "checkpoint": name,
        "id": pair.id,
        "data": pair.dataset or "other",
        "turn_id": pair.turn_id,
        "edit": pair.edit or "other",
        "question": pair.question,
        "story_org": pair.story_org,
        "story_mod": pair.story_mod,
        "answer_org": pair.answer_org,
        "answer_mod": pair.answer_mod,
        "prediction_org": org.text,
        "prediction_mod": mod.text,
    }
    if failure := org.failure or mod.failure:
        return row | {"failure": failure}
    right = [measured(row[f"prediction_{side}"], row[f"answer_{side}"])["accuracy"] for side in SIDES]
    return row | {"right_org": right[0], "right_mod": right[1], "right": all(right)}


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
