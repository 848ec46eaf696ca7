"""Does a model know which thing has which colour? Yes/no questions about two things of two colours.

interventune evaluate predicate-argument --checkpoint ot=A.ckpt ibt=B.ckpt --output DIR
interventune evaluate predicate-argument --predictions elsewhere=answers.jsonl --output DIR

Faithfulness spec 5.1. The stories: data_modules/tasks/predicate_argument.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from evaluation.answering.interface import Answerer, AnswerFile, Asking, named_answerers
from evaluation.answering.yes_or_no import ANSWER_SHARES, measured, with_untrained_note
from evaluation.figures import Bars
from evaluation.frame import Protocol
from evaluation.headlines import Said
from evaluation.report import Evaluation
from evaluation.views import View
from storage.command_line import Named

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
    figures={"predicate_argument.png": Bars(x="wording", measures={"accuracy": "right"}, chance=0.5)},
    headline=[Said("accuracy", "right")],
    good="many right; guessing gets 50 %",
    notes=[
        'Three wordings of each question: org ("Was the car red?"), mod ("Was there a red car?") and new '
        '("Was the a red car?", which is not grammatical). Both colours are in the story, so its words alone '
        "do not tell the answer; always yes gets 50 %. A prediction other than yes and no is wrong. Schemas: "
        "1 car and house, 2 ball and bat, 3 shirt and jacket, 4 window and door, 5 glass and table."
    ],
)


def evaluate(
    *,
    checkpoint: list[Named] | None = None,
    predictions: list[AnswerFile] | None = None,
    asking: Asking,
) -> Evaluation:
    """Which thing has which colour: accuracy on yes/no questions, and the share of no, in three wordings.

    Args:
        checkpoint: a .ckpt with heads for yes and no, or a language model (hf:PATH, openai:MODEL[@URL]).
        predictions: beside checkpoints or in their place: rows with id (as in examples.jsonl of any report)
            and answer.
        asking: how models are asked.
    """
    from data_modules.tasks.predicate_argument import WORDINGS, predicate_argument_rows

    cases = [
        (stimulus, wording, stimulus.example(wording, str(number)))
        for number, stimulus in enumerate(predicate_argument_rows(), 1)
        for wording in WORDINGS
    ]

    def rows(answerer: Answerer) -> Iterator[dict[str, Any]]:
        answers = sorted(answerer.answers([example for *_, example in cases]))
        for (stimulus, wording, example), answer in zip(cases, answers, strict=True):
            yield {
                "id": example.id,
                "schema": stimulus.schema,
                "wording": wording,
                "story": stimulus.story,
                "question": example.question,
                "answer": stimulus.answer,
                "prediction": answer.text,
                **({"failure": answer.failure} if answer.failure else measured(answer.text, stimulus.answer)),
            }

    named = named_answerers(checkpoint, predictions)
    return with_untrained_note(PREDICATE_ARGUMENT.run(rows, named, asking, need="types"))
