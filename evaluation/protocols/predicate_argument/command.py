"""Does a model know which thing has which colour? Yes/no questions about two things of two colours.

python -m evaluation predicate-argument --checkpoint ot=A.ckpt ibt=B.ckpt --output DIR
python -m evaluation predicate-argument --checkpoint gpt=openai:gpt-4o-mini --negated --output DIR

Faithfulness spec 5.1. The stories: evaluation/protocols/predicate_argument/stories.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from evaluation.answering.interface import Asking, named_sources
from evaluation.failures import answered_rows, failure_note, warn_of_silence
from evaluation.figures import Bars
from evaluation.report import Evaluation, source_record
from evaluation.results import Results
from evaluation.views import View, number
from evaluation.yes_or_no import SAID, ask_all, measured, record
from storage.command_line import Named

if TYPE_CHECKING:
    from evaluation.protocols.predicate_argument.stories import ProbeRow

Sets = Mapping[str, "Sequence[ProbeRow]"]
"""The stimuli by name: `plain`, and `negated` where asked for."""

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
    checkpoint: list[Named],
    stimuli: Annotated[Path, "FILE"] | None = None,
    negated: bool = False,
    asking: Asking,
) -> Evaluation:
    """Which thing has which colour: accuracy on yes/no questions, and the share of no, in three wordings.

    Args:
        checkpoint: a .ckpt with heads for yes and no, or a language model (hf:PATH, openai:MODEL[@URL]).
        stimuli: JSON list of rows with schema, col1, col2, story, answer, org, mod, new in place of the 130
            stories.
        negated: also 130 stories such as "... a house that was not red".
        asking: how models are asked.
    """
    from evaluation.protocols.predicate_argument.stories import predicate_argument_rows, read_stimuli

    sets = {"plain": read_stimuli(stimuli) if stimuli else predicate_argument_rows()}
    if negated:
        sets["negated"] = predicate_argument_rows(negated=True)
    named = named_sources(checkpoint, "--checkpoint")
    rows = [row for name, path in named.items() for row in answer_rows(name, path, asking, sets)]
    warn_of_silence(rows, named)
    about = {
        "protocol": "predicate-argument",
        "stimuli": source_record(str(stimuli)) if stimuli else "the 130 stories",
        "negated": negated,
        **record(named, asking),
    }
    return report(sets, rows, about)


def answer_rows(name: str, path: str, asking: Asking, sets: Sets) -> Iterator[dict[str, Any]]:
    """One row per question and wording; `failure` in place of `right` where there is no answer."""
    from evaluation.protocols.predicate_argument.stories import WORDINGS

    asked = [
        (data, stimulus, wording, stimulus.example(wording, f"{data} {number}"))
        for data, stimuli in sets.items()
        for number, stimulus in enumerate(stimuli, 1)
        for wording in WORDINGS
    ]
    answers = ask_all(path, asking, [example for *_, example in asked], f"asking {name}")
    for (data, stimulus, wording, example), answer in zip(asked, answers, strict=True):
        row = {"checkpoint": name, "data": data, "id": example.id, "schema": stimulus.schema}
        row |= {"wording": wording, "story": stimulus.story, "question": example.question}
        row |= {"answer": stimulus.answer, "prediction": answer.text}
        if answer.failure:
            yield row | {"failure": answer.failure}
        else:
            yield row | {"right": measured(answer.text, stimulus.answer)["accuracy"]}


def report(sets: Sets, rows: Sequence[dict[str, Any]], about: dict[str, Any]) -> Evaluation:
    """The evaluation of all rows: by wording, then also by schema."""
    results = Results(BY, "stories")
    questions = [
        row | ({} if row["failed"] else measured(row["prediction"], row["answer"]))
        for row in answered_rows(rows)
    ]
    for by in (("checkpoint", "data", "wording"), ("checkpoint", "data", "schema", "wording")):
        results.add_means(questions, ("accuracy", *SAID, "failed"), unit="story", by=by)
    stories = {row["schema"]: row["story"] for row in reversed(rows)}
    examples = "  \n".join(f"{schema}: {story}" for schema, story in sorted(stories.items()))
    first, whole = ("checkpoint", "data"), {"schema": ""}
    right, both = {"accuracy": "right"}, {"accuracy": "right", "no": "says no"}
    views = [
        View(
            "Accuracy and share of no, in percent", first, both, across="wording", where=whole, percent=True
        ),
        View("What is said, in percent", (*first, "wording"), SAID, where=whole, percent=True),
        View(
            "Accuracy by schema, in percent",
            ("schema", *first),
            right,
            across="wording",
            where={"schema": sorted(stories)},
            percent=True,
            caption=examples,
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
    notes = [NOTE, *[NEGATED_NOTE] * ("negated" in sets), chance_note(sets)]
    return Evaluation(
        title="Predicate and argument",
        results=results,
        views=views,
        about=about,
        headline=headline(results, about["checkpoints"]),
        notes=[*notes, *failure_note(rows, "questions")],
        figures={"predicate_argument.png": figure},
        examples=rows,
    )


def headline(results: Results, checkpoints: Sequence[str]) -> str:
    """How often the colour is given to the right thing, by wording."""
    parts = []
    for name in checkpoints:
        cell = {"checkpoint": name, "data": "plain", "schema": ""}
        shares = {
            wording: number(results.value("accuracy", wording=wording, **cell), percent=True)
            for wording in ("org", "mod", "new")
        }
        parts.append(f"{name} in {', '.join(f'{share} % ({wording})' for wording, share in shares.items())}")
    return f"The right colour for the right thing: {'; '.join(parts)}. Guessing gets 50 %."


def chance_note(sets: Sets) -> str:
    """How many stories and questions there are, and what a constant answer gets."""
    parts = []
    for data, rows in sets.items():
        stories, n, yes = len({r.story for r in rows}), len(rows), sum(r.answer == "yes" for r in rows)
        parts.append(
            f"{data.capitalize()}: {stories} stories, {n} questions a wording, {yes} yes and {n - yes} no "
            f"(always yes gets {100 * yes / n:.1f} %)"
        )
    return f"{'. '.join(parts)}. Guessing gets 50 %."
