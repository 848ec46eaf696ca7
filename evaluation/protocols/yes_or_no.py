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
from interventune.evaluation.protocol import Evaluation, Protocol, Row, declared
from interventune.storage.command_line import Named, NamedFile, Source

SAID = ("yes", "no", "other")
"""Fields of the model's answers, right or wrong."""
NEGATION = Protocol(**declared(__file__, "negation.yaml"))
PREDICATE_ARGUMENT = Protocol(**declared(__file__, "predicate_argument.yaml"))


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
            shares = {name: (original[name] + negated[name]) / 2 for name in SAID}
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
