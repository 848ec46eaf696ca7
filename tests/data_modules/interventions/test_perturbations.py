"""Worked examples of what interventions delete, append, reword and leave alone."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interventune.data_modules.interventions.variants import (
    answer_sentence,
    bare_answer,
    perturb,
    with_rationale,
)
from interventune.data_modules.schema.questions import QAExample, Rejected, Span, Variant
from interventune.data_modules.sources import read_questions

BELL = "Her cat Moro wore a blue bell."
STORY = f"Ida sat by the well. {BELL} They left at ten.\n\nNobody came back. It snowed."


def example(
    rationale: str = BELL,
    answer: str = "",
    kind: Any = "span",
    story: str = STORY,
    references: tuple[str, ...] = (),
    **more: Any,
) -> QAExample:
    answers, why = ((Span.locate(text, story, ""),) if text else () for text in (answer, rationale))
    references = references or (answer or kind,)
    more |= {"answer_type": kind, "rationale": why, "references": references}
    return QAExample("q1", story, "Who?", answers, **more)


def made(original: QAExample, variant: Variant) -> QAExample:
    result = perturb(original, variant)
    assert isinstance(result, QAExample), result
    return result


def squeezed(text: str) -> str:
    return "".join(text.split())


@pytest.mark.parametrize("name", ["coqa/TS", "coqa/TS-R", "hotpot/OS-R"])
def test_the_worked_examples(oracle: Path, name: str) -> None:
    dataset, _, label = name.partition("/")
    variant: Any = label.lower().replace("-", "_")
    rows = json.loads((oracle / "expected_words.json").read_text())[name]
    expected = {row["id"]: row for row in rows}
    results = [perturb(x, variant) for x in read_questions(oracle / f"{dataset}_tiny.json")]
    kept = {result.id: result for result in results if isinstance(result, QAExample)}
    assert kept.keys() == expected.keys()
    for key, row in expected.items():
        found, words = kept[key], row["words"]
        assert squeezed(found.context) == squeezed("".join(words))
        if variant != "ts":
            assert (row["label"], found.answer_type, found.answers) == ("unknown", "unknown", ())
        elif found.answers:
            label = "".join(words[row["start_word"] : row["end_word"] + 1])
            assert squeezed(found.answers[0].text) == label
        else:
            assert found.answer_type == row["label"]


def test_ts_looks_again_for_an_answer_beyond_the_cut() -> None:
    beyond = replace(example("Her cat Moro"), answers=(Span.locate("Nobody", STORY, ""),))
    nowhere = made(replace(beyond, references=("Nobody",)), "ts")
    # The last word of the rationale stands for it.
    assert [span.text for span in nowhere.answers] == ["Moro"]
    found = made(replace(beyond, references=("the cat",)), "ts")
    assert [(span.text, span.start) for span in found.answers] == [("cat", STORY.index("cat"))]
    assert found.references == ("the cat",)


@pytest.mark.parametrize(
    ("asked", "appended"),
    [
        *((example(kind=kind), "") for kind in ("yes", "no", "unknown")),
        (example(references=("the well",), answer="Moro"), ""),  # still there
        (example(references=("The well",), answer="Moro"), "The well"),
        (example(references=("he",), answer="Moro"), "he"),
        (example("They left at ten.", "ten", "number"), "ten"),
    ],
)
def test_what_is_appended(asked: QAExample, appended: str) -> None:
    result = made(asked, "ts_r")
    assert (result.appended, result.answer_type) == (appended, "unknown")
    assert result.context.endswith(appended or ".")


@pytest.mark.parametrize(("story", "start"), [(STORY + " \n", len(STORY)), (STORY, 3), (STORY, 69)])
def test_a_rationale_of_white_space_is_none(story: str, start: int) -> None:
    asked = example("", "blue", story=story, dataset="coqa")
    asked = replace(asked, rationale=(Span(start, start + 1, story[start : start + 1]),))
    results = {perturb(asked, variant) for variant in ("ts", "ts_r", "os_r")}
    assert results == {Rejected("no rationale")}


def test_no_answer_that_anyone_annotated_outlives_its_deletion() -> None:
    asked = example("", "blue")
    others = (Span.locate(text, STORY, "") for text in ("ten", "snow"))
    asked = replace(asked, answers=(*asked.answers, *others))
    with_all = with_rationale(asked)
    assert [span.text for span in with_all.rationale] == [BELL, "They left at ten.", "It snowed."]
    assert made(with_all, "ts_r").context == "Ida sat by the well. blue"
    assert made(with_all, "os_r").context == "Ida sat by the well.\n\nNobody came back. blue"
    annotated = replace(asked, rationale=with_all.rationale[:1])
    assert perturb(annotated, "os_r") == Rejected("an annotated answer is left")


def test_the_rationale_of_extractive_data_is_the_sentence_of_its_answer() -> None:
    asked = example("", "blue")
    assert [span.text for span in with_rationale(asked).rationale] == [BELL]
    across = example("", "bell. They")
    assert [span.text for span in with_rationale(across).rationale] == [f"{BELL} They left at ten."]
    annotated = replace(asked, dataset="coqa")  # a question without a rationale has none
    for same in (example("cat", "blue"), example("", kind="unknown"), annotated):
        assert with_rationale(same) == same


CAT = 'Ana\'s cat sat. It was "old". Later it slept.'


def asked(question: str, story: str = CAT, answer: str = "It was") -> QAExample:
    return replace(example(answer, answer, story=story, dataset="coqa"), question=question)


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("Why did she go?", "For what reason did she go?"),
        ("How many cats came?", "What number of cats came?"),
        ("how many were there?", ""),
        ("When was it?", "At what time was it?"),
        ("Where is the cat?", "In what place is the cat?"),
        ("Where did it come from?", ""),
        ("whose cat is it?", "which person's cat is it?"),
        ("Who owned the cat?", "Which person owned the cat?"),
        ("Who are they?", ""),
        ("Which cat sat?", "What cat sat?"),
        ("Which of them sat?", ""),
        ("What color was it?", "Which color was it?"),
        ("What did it do?", "What exactly did it do?"),
        ("Was it old?", "Tell me, was it old?"),
        ("And then?", ""),
    ],
)
def test_question_words(question: str, expected: str) -> None:
    found = perturb(asked(question), "reworded")
    if not expected:
        assert found == Rejected("begins with no question word of the list")
        return
    assert isinstance(found, QAExample)
    assert found.question == expected
    assert (found.context, found.kept) == (CAT, ((0, len(CAT)),))


def test_spaces_and_quotation_marks() -> None:
    spaced, quoted = made(asked("Was it old?"), "spaced"), made(asked("Was it Ana's?"), "quoted")
    assert spaced.context == 'Ana\'s cat sat.  It was "old".  Later it slept.'
    assert spaced.question == "Was  it old?"
    spans = [spaced.context[s.start : s.end] for s in (*spaced.answers, *spaced.rationale)]
    assert spans == ["It was"] * 2
    assert quoted.context == "Ana’s cat sat. It was “old”. Later it slept."
    assert quoted.question == "Was it Ana’s?"
    assert made(asked("Was it Ana’s?", quoted.context), "quoted").context == CAT  # and back
    assert spaced.kept == quoted.kept == ()
    for question, variant in (("Why?", "spaced"), ("Why is it?", "quoted")):
        assert isinstance(perturb(asked(question, "One cat.", "cat"), variant), Rejected)


CONTEXT = "Anna met Tom. The red ball was in the garden. It rained."
BALL = "The red ball was in the garden"
WHY = Span.locate(BALL, CONTEXT, "test")


def answered(answer: str) -> QAExample:
    return QAExample("q", CONTEXT, "Where?", (WHY,), rationale=(WHY,), references=(answer,))


@given(st.text(min_size=1).filter(str.strip))
def test_a_template_keeps_any_answer_but_for_stray_punctuation(answer: str) -> None:
    bare = bare_answer(answer)
    assert bare
    assert bare.rstrip(".!?") in " ".join(answer.split())
    sentence = answer_sentence(answered(answer))
    assert isinstance(sentence, str)
    assert bare in sentence
    assert "{" not in sentence.replace(bare, "")


@pytest.mark.parametrize(
    ("sentence", "answer", "reason"),
    [
        ("My uncle painted THE GARDEN wall.", "the garden", ""),
        ("My uncle painted the gardener.", "the garden", "the sentence lacks the answer"),
        ("My uncle painted the garden", "the garden", "the sentence has no end"),
        (f"Yes,  {BALL} now.", "the garden", "the sentence repeats the rationale"),
        (f"A note said {BALL}.", BALL, ""),
        ("She said he went home, and left.", "He went home.", ""),
        ("The price was $5 then.", "$5", ""),
        ("", "$5", "no sentence"),
    ],
)
def test_sentences_of_a_file_are_checked(sentence: str, answer: str, reason: str) -> None:
    expected = Rejected(reason) if reason else sentence
    assert answer_sentence(answered(answer), {"q": sentence}) == expected
