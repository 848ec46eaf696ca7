"""Does a model know which thing has which colour? Yes/no questions about two things of two colours.

interventune evaluate predicate-argument --checkpoint ot=A.ckpt ibt=B.ckpt --output DIR
interventune evaluate predicate-argument --checkpoint gpt=openai:gpt-4o-mini --negated --output DIR
interventune evaluate predicate-argument --predictions elsewhere=answers.jsonl --output DIR

Faithfulness spec 5.1. The stories: data_modules/tasks/predicate_argument.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from evaluation.answering.interface import AnswerFile, Asking, named_answerers
from evaluation.answering.open import asking_record
from evaluation.answering.yes_or_no import ANSWER_SHARES, ask_all, measured, untrained
from evaluation.conclusions import answered_rows, change, check_silence, failure_note, headline
from evaluation.figures import Bars
from evaluation.report import Evaluation, source_record
from evaluation.results import Results
from evaluation.views import View
from storage.command_line import Named

BY = ("checkpoint", "data", "schema", "wording")
NOTE = (
    'Three wordings of each question: org ("Was the car red?"), mod ("Was there a red car?") and new ("Was '
    'the a red car?", which is not grammatical). Both colours are in the story: its words alone do not '
    "tell the answer. A prediction other than yes and no is wrong."
)
NEGATED_NOTE = (
    'Negated stories deny the second thing its colour ("a house that was not red"); they are asked the two '
    "questions that such a story decides, one of them yes. A model that passes over the *not* gets 50 %."
)


def evaluate(
    *,
    checkpoint: list[Named] | None = None,
    predictions: list[AnswerFile] | None = None,
    stimuli: Annotated[Path, "FILE"] | None = None,
    negated: bool = False,
    asking: Asking,
) -> Evaluation:
    """Which thing has which colour: accuracy on yes/no questions, and the share of no, in three wordings.

    Args:
        checkpoint: a .ckpt with heads for yes and no, or a language model (hf:PATH, openai:MODEL[@URL]).
        predictions: beside checkpoints or in their place: rows with id (as in examples.jsonl of any report)
            and answer.
        stimuli: JSON list of rows with schema, col1, col2, story, answer, org, mod, new in place of the 130
            stories.
        negated: also 130 stories such as "... a house that was not red".
        asking: how models are asked.
    """
    from data_modules.tasks.predicate_argument import (
        WORDINGS,
        predicate_argument_rows,
        read_stimuli,
    )

    sets = {"plain": read_stimuli(stimuli) if stimuli else predicate_argument_rows()}
    if negated:
        sets["negated"] = predicate_argument_rows(negated=True)
    named = named_answerers(checkpoint, predictions)
    cases = [
        (data, row, wording, row.example(wording, f"{data} {at}"))
        for data, listed in sets.items()
        for at, row in enumerate(listed, 1)
        for wording in WORDINGS
    ]
    rows: list[dict[str, Any]] = []
    for name, path in named.items():
        answers = ask_all(path, asking, [example for *_, example in cases], f"asking {name}")
        for (data, stimulus, wording, example), answer in zip(cases, answers, strict=True):
            row = {"checkpoint": name, "data": data, "id": example.id, "schema": stimulus.schema}
            row |= {"wording": wording, "story": stimulus.story, "question": example.question}
            row |= {"answer": stimulus.answer, "prediction": answer.text}
            if answer.failure:
                rows.append(row | {"failure": answer.failure})
            else:
                rows.append(row | {"right": measured(answer.text, stimulus.answer)["accuracy"]})
    check_silence(rows, named)
    results = Results(BY, "stories")
    questions = [
        row | ({} if row["failed"] else measured(row["prediction"], row["answer"]))
        for row in answered_rows(rows)
    ]
    for by in (("checkpoint", "data", "wording"), ("checkpoint", "data", "schema", "wording")):
        results.add_means(questions, ("accuracy", *ANSWER_SHARES, "failed"), unit="story", by=by)
    lost = untrained(questions, named)
    shown = [name for name in named if name not in lost]
    sentences = []
    for data in sets if shown else ():
        cells = {w: results.rows("accuracy", shown, data=data, wording=w, schema="") for w in WORDINGS}
        rights = (change(wording, cell, percent=True) for wording, cell in cells.items())
        sentences.append(f"{' -> '.join(shown)}, {data} stories, right: {', '.join(rights)}")
    counts = []
    for data, listed in sets.items():
        n, yes = len(listed), sum(row.answer == "yes" for row in listed)
        counts.append(
            f"{data.capitalize()}: {len({row.story for row in listed})} stories, {n} questions a wording, "
            f"{yes} yes and {n - yes} no (always yes gets {100 * yes / n:.1f} %)"
        )
    chance = f"{'. '.join(counts)}. Guessing gets 50 %."
    stories = {row["schema"]: row["story"] for row in reversed(rows)}
    lines, whole = ("data", "wording"), {"schema": ""}
    right, both = {"accuracy": "right"}, {"accuracy": "right", "no": "says no"}
    views = [
        View("Accuracy and share of no, in percent", lines, both, where=whole, percent=True),
        View("What is said, in percent", lines, ANSWER_SHARES, where=whole, percent=True),
        View(
            "Accuracy by schema, in percent",
            ("schema", *lines),
            right,
            where={"schema": sorted(stories)},
            percent=True,
            caption="  \n".join(f"{schema}: {story}" for schema, story in sorted(stories.items())),
        ),
    ]
    figure = Bars(
        x="wording",
        hue="checkpoint",
        measures=right,
        panels="data" if len(sets) > 1 else "",
        where=whole,
        percent=True,
        label="accuracy (%)",
        chance=0.5,
    )
    return Evaluation(
        title="Predicate and argument",
        results=results,
        views=views,
        about={
            "protocol": "predicate-argument",
            "stimuli": source_record(str(stimuli)) if stimuli else "the 130 stories",
            "negated": negated,
            **asking_record(named, asking),
        },
        headline=headline([*sentences, *lost.values()], "many right; guessing gets 50 %"),
        notes=[NOTE, *[NEGATED_NOTE] * negated, chance, *failure_note(rows, "questions")],
        figures={"predicate_argument.png": figure} if shown else {},
        examples=rows,
    )
