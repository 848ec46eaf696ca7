"""Does the answer turn with the story? Yes/no questions about a story and about its negation.

interventune evaluate negation --checkpoint ot=A.ckpt ibt=B.ckpt --pairs pairs.jsonl --output DIR
interventune evaluate negation --checkpoint gpt=openai:gpt-4o-mini --pairs condaqa_dev.jsonl --output DIR
interventune evaluate negation --predictions elsewhere=answers.jsonl --pairs pairs.jsonl --output DIR

Faithfulness spec 5.2. The pairs: data_modules/tasks/condaqa.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from evaluation.answering.interface import Answer, Answerer, AnswerFile, Asking, named_answerers
from evaluation.answering.yes_or_no import ANSWER_SHARES, measured, with_untrained_note
from evaluation.figures import Bars
from evaluation.frame import Protocol
from evaluation.headlines import Said
from evaluation.report import Evaluation
from evaluation.views import View
from storage.command_line import Named

if TYPE_CHECKING:
    from data_modules.tasks.condaqa import ContrastPair, PairSet

RIGHT = {"comb": "both right", "org": "original right (org)", "mod": "negation right (mod)"}
NOTE = (
    "Each pair asks one question about an original story (org) and about a story whose meaning was turned "
    "(mod), so that one answer is yes and the other no. comb counts pairs with both right (Org-, Mod- and "
    "Comb-Acc of the paper). A model that ignores the change gets at most org + mod = 100 % and always "
    "comb = 0 %. A prediction other than yes and no is wrong. What is said is of both stories together."
)
NEGATION = Protocol(
    title="Negation",
    unit=("data", "id", "turn_id"),
    units="pairs",
    by=("data", "edit"),
    cells=[(), ("edit",), ("data",)],
    measures={**RIGHT, **ANSWER_SHARES},
    views=[
        View("All pairs", ()),
        View("By kind of change", ("edit",), RIGHT),
        View("By data set", ("data",), RIGHT),
    ],
    figures={"negation.png": Bars(x="edit", measures=RIGHT)},
    headline=[Said(name, heading) for name, heading in RIGHT.items()],
    good="many both right; guessing gets 25 %, and 50 % of either",
    failures="pairs",
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
    questions = [example for pair in data.pairs for example in pair.examples()]

    def rows(answerer: Answerer) -> Iterator[dict[str, Any]]:
        answers = sorted(answerer.answers(questions))
        for pair, org, mod in zip(data.pairs, answers[::2], answers[1::2], strict=True):
            yield {
                **asdict(pair),
                "data": pair.dataset or "other",
                "edit": pair.edit or "other",
                "prediction_org": org.text,
                "prediction_mod": mod.text,
                **scores(pair, org, mod),
            }

    named = named_answerers(checkpoint, predictions)
    protocol = replace(NEGATION, notes=[NOTE, pairs_note(data)])
    return with_untrained_note(protocol.run(rows, named, asking, need="types"))


def scores(pair: ContrastPair, org: Answer, mod: Answer) -> dict[str, Any]:
    """Which predictions are right, and the share of each thing said; `failure` where one side has no
    answer."""
    if failure := org.failure or mod.failure:
        return {"failure": failure}
    sides = measured(org.text, pair.answer_org), measured(mod.text, pair.answer_mod)
    org_right, mod_right = (side["accuracy"] for side in sides)
    shares = {name: sum(side[name] for side in sides) / 2 for name in ANSWER_SHARES}
    return {"comb": org_right and mod_right, "org": org_right, "mod": mod_right, **shares}


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
