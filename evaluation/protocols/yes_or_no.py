"""Two probes of yes/no questions: does the answer change when the story is negated, and which thing
has which colour?

Chaturvedi et al. 2023, sections 6 and 7. The questions: data_modules/tasks/yes_no.py.
"""

from collections.abc import Iterator
from dataclasses import asdict, replace

from interventune.data_modules.schema.questions import Answer
from interventune.data_modules.tasks.yes_no import NEGATED, predicate_argument_questions, read_pairs
from interventune.evaluation.answering.interface import Answerer, Asking
from interventune.evaluation.answering.predictions import named_answerers
from interventune.evaluation.protocol import Bars, Evaluation, Protocol, Row, Said, View
from interventune.storage.command_line import Named, NamedFile, Source

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
    measures={"accuracy": "right", **ANSWER_SHARES, "agreement": "answers as org"},
    views=[
        View("By wording", ("wording",)),
        View("By schema", ("schema", "wording"), {"accuracy": "right"}),
    ],
    figures={
        "predicate_argument.png": Bars(x="wording", measures={"accuracy": "right"}, chance=0.5)
    },
    headline=[
        Said("accuracy", "right"),
        Said("agreement", "same answer to an equal question", wording="mod"),
    ],
    good="high shares; guessing gets 50 %",
    notes=[
        'Three wordings of each question: org ("Was the car red?"), mod ("Was there a red car?"), '
        'and new ("Was the a red car?", which is not grammatical). org and mod ask the same: a '
        "faithful model answers them alike (the paper's Equation 2). negated: org about stories "
        'with "a house that was not red". Both colours are in the story, '
        "so its words alone do not tell the answer. Schemas: 1 car and house, 2 ball and bat, 3 "
        "shirt and jacket, 4 window and door, 5 glass and table."
    ],
)


def negation(
    *,
    checkpoint: list[Named] | None = None,
    predictions: list[NamedFile] | None = None,
    pairs: Source,
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
        pairs: pairs as JSON Lines; CondaQA's file, whose edits that reverse the answer become
            pairs; or stories:colours, where two colours change places.
        asking: model options.
    """
    contrasts, unpaired = read_pairs(pairs)
    questions = [example for pair in contrasts for example in pair.examples()]

    def rows(answerer: Answerer) -> Iterator[Row]:
        answers = sorted(answerer.answers(questions))
        for pair, org, mod in zip(contrasts, answers[::2], answers[1::2], strict=True):
            row = {
                **asdict(pair),
                "data": pair.dataset or "other",
                "edit": pair.edit or "other",
                "prediction_org": org.text,
                "prediction_mod": mod.text,
            }
            if failure := org.failure or mod.failure:
                yield row | {"failure": failure}
                continue
            original = scores(org, pair.answer_org)
            negated = scores(mod, pair.answer_mod)
            right = {"org": original["accuracy"], "mod": negated["accuracy"]}
            shares = {name: (original[name] + negated[name]) / 2 for name in ANSWER_SHARES}
            yield {**row, "comb": all(right.values()), **right, **shares}

    left_out = (
        f"{unpaired} edited passages were left out: paraphrases, and edits that keep the answer."
        if unpaired
        else ""
    )
    protocol = replace(NEGATION, notes=[*NEGATION.notes, left_out])
    return protocol.run(rows, named_answerers(checkpoint, predictions), asking, need="types")


def predicate_argument(
    *,
    checkpoint: list[Named] | None = None,
    predictions: list[NamedFile] | None = None,
    asking: Asking,
) -> Evaluation:
    """Measure whether a model binds each colour to the right object, and gives equal questions the
    same answer: yes/no questions in three wordings, and about negated stories.

    Example: interventune evaluate predicate-argument --checkpoint A.ckpt --output report

    Args:
        checkpoint: a .ckpt that answers yes and no, or a language model (hf:PATH,
            openai:MODEL[@URL]).
        predictions: answers from elsewhere, with or without --checkpoint: JSON Lines of id (as in
            examples.jsonl of any report) and answer.
        asking: model options.
    """
    from interventune.metrics.answers import same_answer

    questions = [*predicate_argument_questions()]

    def rows(answerer: Answerer) -> Iterator[Row]:
        answers = sorted(answerer.answers([example for *_, example in questions]))
        original = answers[0]
        for (schema, wording, example), answer in zip(questions, answers, strict=True):
            (right,) = example.references
            equal = dict[str, bool]()
            if wording == "org":
                original = answer
            elif wording != NEGATED and not (answer.failure or original.failure):
                equal = {"agreement": same_answer(answer.text, original.text)}
            yield {
                "id": example.id,
                "schema": schema,
                "wording": wording,
                "story": example.context,
                "question": example.question,
                "answer": right,
                "prediction": answer.text,
                **scores(answer, right),
                **equal,
            }

    return PREDICATE_ARGUMENT.run(
        rows, named_answerers(checkpoint, predictions), asking, need="types"
    )


def scores(answer: Answer, right: str) -> Row:
    """Return whether an answer is right, and which it is, or its `failure`; anything but yes and no
    is wrong.
    """
    from interventune.metrics.answers import yes_or_no

    if answer.failure:
        return {"failure": answer.failure}
    word = yes_or_no(answer.text)
    return {"accuracy": word == right, "yes": word == "yes", "no": word == "no", "other": not word}
