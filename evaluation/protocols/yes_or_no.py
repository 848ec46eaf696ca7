"""Two probes of yes/no questions: does the answer change with the story, and which thing has which
colour?

Faithfulness spec 5.1 and 5.2. The questions: data_modules/tasks/predicate_argument.py, condaqa.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from interventune.evaluation.answering.asking import Asking
from interventune.evaluation.answering.interface import Answer, Answerer
from interventune.evaluation.answering.predictions import AnswerFile, named_answerers
from interventune.evaluation.protocol import Protocol
from interventune.evaluation.report import Evaluation
from interventune.evaluation.shown.figures import Bars
from interventune.evaluation.shown.headlines import Said
from interventune.evaluation.shown.views import View
from interventune.storage.command_line import Input, Named

if TYPE_CHECKING:
    from interventune.data_modules.tasks.condaqa import ContrastPair

ANSWER_SHARES = {"yes": "says yes", "no": "says no", "other": "says other"}
"""Measures of the model's answers, right or wrong."""
RIGHT = {"comb": "both stories right", "org": "original right (org)", "mod": "negation right (mod)"}
NEGATION = Protocol(
    title="Negation",
    unit="story_org",
    units="stories",
    item=("data", "id", "turn_id", "edit"),
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
    good="high shares; guessing gets both right in 25 %, and each in 50 %",
    failures="pairs",
    notes=[
        "Each pair asks one question about an original story (org) and about its negation (mod): "
        "one answer is yes, the other no. Both right is the paper's Comb-Acc. Any other answer "
        "is wrong."
    ],
)
PREDICATE_ARGUMENT = Protocol(
    title="Predicate and argument",
    unit="story",
    units="stories",
    item=("id",),
    by=("schema", "wording"),
    cells=[("wording",), ("schema", "wording")],
    measures={"accuracy": "right", **ANSWER_SHARES},
    views=[
        View("By wording", ("wording",)),
        View("By schema", ("schema", "wording"), {"accuracy": "right"}),
    ],
    figures={
        "predicate_argument.png": Bars(x="wording", measures={"accuracy": "right"}, chance=0.5)
    },
    headline=[Said("accuracy", "right")],
    good="a high share; guessing gets 50 %",
    notes=[
        'Three wordings of each question: org ("Was the car red?"), mod ("Was there a red car?") '
        "and new "
        '("Was the a red car?", which is not grammatical). Both colours are in the story, so its '
        "words alone "
        "do not tell the answer. Schemas: 1 car and house, 2 ball and bat, 3 shirt and jacket, 4 "
        "window and "
        "door, 5 glass and table."
    ],
)


def negation(
    *,
    checkpoint: list[Named] | None = None,
    predictions: list[AnswerFile] | None = None,
    pairs: Annotated[Path, Input("FILE")],
    asking: Asking,
) -> Evaluation:
    """Measure whether the answer changes when the story is negated: on each story of a pair, and on
    both.

    Example: interventune evaluate negation --checkpoint A.ckpt --pairs pairs.jsonl \\
        --output report

    Args:
        checkpoint: a .ckpt that answers yes and no, or a language model (hf:PATH,
            openai:MODEL[@URL]).
        predictions: answers from elsewhere, with or without --checkpoint: JSON Lines of id (of the
            pair; a turn_id follows after a space), variant (org or mod) and answer.
        pairs: pairs as JSON Lines, or CondaQA's file, whose edits that reverse the answer become
            pairs.
        asking: model options.
    """
    from interventune.data_modules.tasks.condaqa import read_pairs

    found, none = read_pairs(pairs)
    questions = [example for pair in found for example in pair.examples()]

    def rows(answerer: Answerer) -> Iterator[dict[str, Any]]:
        answers = sorted(answerer.answers(questions))
        for pair, org, mod in zip(found, answers[::2], answers[1::2], strict=True):
            names = {"data": pair.dataset or "other", "edit": pair.edit or "other"}
            said = {"prediction_org": org.text, "prediction_mod": mod.text}
            yield {**asdict(pair), **names, **said, **pair_scores(pair, org, mod)}

    left_out = (
        f"{none} edited passages were left out: paraphrases, and edits that keep the answer."
        if none
        else ""
    )
    protocol = replace(NEGATION, notes=[*NEGATION.notes, left_out])
    return protocol.run(rows, named_answerers(checkpoint, predictions), asking, need="types")


def pair_scores(pair: ContrastPair, org: Answer, mod: Answer) -> dict[str, Any]:
    """Return which predictions are right, and the shares of answers to both stories together;
    `failure` if one has no answer.
    """
    if failure := org.failure or mod.failure:
        return {"failure": failure}
    sides = scores(org.text, pair.answer_org), scores(mod.text, pair.answer_mod)
    org_right, mod_right = (side["accuracy"] for side in sides)
    shares = {name: sum(side[name] for side in sides) / 2 for name in ANSWER_SHARES}
    return {"comb": org_right and mod_right, "org": org_right, "mod": mod_right, **shares}


def predicate_argument(
    *,
    checkpoint: list[Named] | None = None,
    predictions: list[AnswerFile] | None = None,
    asking: Asking,
) -> Evaluation:
    """Measure whether a model binds each colour to the right object: yes/no questions in three
    wordings.

    Example: interventune evaluate predicate-argument --checkpoint A.ckpt --output report

    Args:
        checkpoint: a .ckpt that answers yes and no, or a language model (hf:PATH,
            openai:MODEL[@URL]).
        predictions: answers from elsewhere, with or without --checkpoint: JSON Lines of id (as in
            examples.jsonl of any report) and answer.
        asking: model options.
    """
    from interventune.data_modules.tasks.predicate_argument import predicate_argument_questions

    questions = [*predicate_argument_questions()]

    def rows(answerer: Answerer) -> Iterator[dict[str, Any]]:
        answers = sorted(answerer.answers([example for *_, example in questions]))
        for (schema, wording, example), answer in zip(questions, answers, strict=True):
            (right,) = example.references
            yield {
                "id": example.id,
                "schema": schema,
                "wording": wording,
                "story": example.context,
                "question": example.question,
                "answer": right,
                "prediction": answer.text,
                **({"failure": answer.failure} if answer.failure else scores(answer.text, right)),
            }

    return PREDICATE_ARGUMENT.run(
        rows, named_answerers(checkpoint, predictions), asking, need="types"
    )


def scores(prediction: str, answer: str) -> dict[str, bool]:
    """Return whether a prediction is right, and which answer it is; anything but yes and no is
    wrong.
    """
    from interventune.metrics.answers import yes_or_no

    word = yes_or_no(prediction)
    return {"accuracy": word == answer, "yes": word == "yes", "no": word == "no", "other": not word}
