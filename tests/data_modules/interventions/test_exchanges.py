"""Another answer, paragraph or word of a question: laws against naive loops, and reasons."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from interventune.data_modules.interventions.edits import Pool, pool_of, shape
from interventune.data_modules.interventions.variants import made_of, perturb, with_rationale
from interventune.data_modules.schema.questions import QAExample, Rejected, Span, Turn
from interventune.data_modules.sources import read_questions
from interventune.storage.documents import DataError

ANSWERS = ("Rome", "New York", "7", "1,200", "in 1998", "May 5", "a red bike", "blue")
WORDS = (*ANSWERS, "Ann", "rode", "rome", "Romes", "Rome-based", "17", "and then", ".", "é😀", "a")


def question_on(story: str, answer: str, question: str = "What is it?", **more: Any) -> QAExample:
    """A question whose answer is the first place of `answer`."""
    return QAExample("q", story, question, (Span.locate(answer, story, "q"),), **more)


def pool(*answers: str, **more: Any) -> Pool:
    return pool_of([question_on(answer, answer, **more) for answer in answers])


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[str], int, QAExample]:
    """The words of a story, which of them is the answer, and the question with a rationale."""
    words = draw(st.lists(st.sampled_from(WORDS), min_size=1, max_size=12))
    assume({*words} & {*ANSWERS})
    at = draw(st.sampled_from([i for i, word in enumerate(words) if word in ANSWERS]))
    places = [sum(len(word) + 1 for word in words[:i]) for i in range(len(words) + 1)]
    first = draw(st.integers(0, len(words) - 1))
    last = draw(st.integers(first + 1, len(words)))
    story = " ".join(words)
    spans = (places[at], places[at + 1] - 1), (places[first], places[last] - 1)
    answer, why = (Span(start, end, story[start:end]) for start, end in spans)
    name = draw(st.text("abc", max_size=2))
    return words, at, QAExample(name, story, "Why is it so?", (answer,), rationale=(why,))


@given(cases())
def test_only_the_answer_is_exchanged(case: tuple[list[str], int, QAExample]) -> None:
    words, at, original = case
    old, others = words[at], pool(*ANSWERS)
    result = perturb(original, "swap", pool=others)
    assert perturb(original, "swap", pool=others) == result
    spoilt = any(old.lower() in word.lower() and word != old for word in words)
    if isinstance(result, Rejected):
        likes = [word for word in ANSWERS if shape(word) == shape(old) and word != old]
        assert spoilt or all(word.lower() in original.context.lower() for word in likes)
        return
    (new,), (answer,), (why,) = result.references, result.answers, result.rationale
    exchanged = [new if word == old else word for word in words]
    assert result.context == " ".join(exchanged)
    assert (answer.start, answer.text) == (sum(len(word) + 1 for word in exchanged[:at]), new)
    assert why.text == re.sub(rf"\b{re.escape(old)}\b", new, original.rationale[0].text)
    assert (new in ANSWERS, shape(new), new in original.context) == (True, shape(old), False)
    assert (result.gold, result.remembered, result.id) == ((new,), (old,), original.id)
    with pytest.raises(DataError, match="is a variant already"):
        perturb(result, "swap", pool=others)


INSIDE = "answer stands inside a longer word"
LEFT = "answer is left in the story in other words"
NO_OTHER = "no other answer of its shape that the story lacks"


@pytest.mark.parametrize(
    ("story", "question", "reason"),
    [
        ("Ann is in Rome.", "Is Ann in rome?", "answer occurs in the question"),
        ("Ann is in Rome, Ben in Romeville.", "Where?", INSIDE),
        ("Ann is in Rome, a Rome-based firm.", "Where?", INSIDE),
        ("Ann is in Rome, in ROME!", "Where?", LEFT),
        ("Ann is in Rome, the eternal city.", "Where?", LEFT),
        ("Ann is in Rome, not in Oslo.", "Where?", NO_OTHER),
        ("Ann is in Rome.", "Is it Oslo?", NO_OTHER),
    ],
)
def test_stories_that_cannot_be_swapped(story: str, question: str, reason: str) -> None:
    example = question_on(story, "Rome", question, references=("Rome", "the eternal city"))
    others = pool("Rome", "Oslo", "7", "a red bike", "the Rome of old")
    assert perturb(example, "swap", pool=others) == Rejected(reason)


def test_history_counts_as_asked_and_a_cut_answer_is_widened() -> None:
    more = {"rationale": (Span(9, 12, "New"),), "history": (Turn("Whence?", "New York"),)}
    example = question_on("Ann left New York.", "New York", **more)
    assert perturb(example, "swap", pool=pool("Oslo")) == Rejected("answer occurs in the question")
    result = perturb(replace(example, history=()), "swap", pool=pool("Oslo"))
    assert isinstance(result, QAExample)
    assert (result.context, result.rationale) == ("Ann left Oslo.", (Span(9, 13, "Oslo"),))
    for variant in ("swap", "near_miss"):
        assert perturb(replace(example, answers=()), variant) == Rejected("no answer span")


@given(st.text("abc", max_size=3), st.booleans(), st.sampled_from(["saw", "left"]))
def test_one_thing_of_a_question_is_changed(name: str, article: bool, verb: str) -> None:
    story = f"In 1998 Ann Lee left Rome. Ben {verb} Oslo in 1960."
    question = "Who left Rome before 1998 or 2001?"
    why = (Span(0, 26, story[:26]),)
    original = question_on(story, "Ann Lee", question, rationale=why, article="A" * article)
    original = replace(original, id=name)
    others = pool("Oslo", "Kiev", "1975", "Ann", "a bike", "Rome", "Ann Lee", article="A")
    result = perturb(original, "near_miss", pool=others)
    assert isinstance(result, QAExample)
    assert perturb(original, "near_miss", pool=others) == result
    changed = {question.replace("before", "after")}
    if verb == "saw":  # of the story's own names it does not say that they were left
        changed |= {question.replace("Rome", "Oslo"), question.replace("1998", "1960")}
    elif article:
        changed |= {question.replace("Rome", "Kiev"), question.replace("1998", "1975")}
    assert result.question in changed
    assert (result.context, result.gold, result.answers) == (story, ("Ann Lee",), ())
    assert (result.answer_type, result.rationale, result.variant) == ("unknown", (), "near_miss")


@pytest.mark.parametrize(
    "question", ["Who saw {}?", "Cay saw {}?", "It was 1998. Who saw {}?", "Cay, Where is {}?"]
)
@pytest.mark.parametrize("lead", ["", " ", "\t", "¿", '"', "- ", "(¡", "...", "\u2014 "])
def test_the_word_that_asks_is_no_name(lead: str, question: str) -> None:
    original = question_on("Ann saw Rome.", "Ann", lead + question.format("Rome"), article="A")
    result = perturb(with_rationale(original), "near_miss", pool=pool("Ann", "Oslo", article="A"))
    assert isinstance(result, QAExample)
    assert result.question == lead + question.format("Oslo")


def test_questions_without_names_and_opposites_are_negated_or_rejected() -> None:
    result = perturb(question_on("Ann is here.", "here", "Where is she?"), "near_miss")
    assert isinstance(result, QAExample)
    assert result.question in ("Where isn't she?", "Where is not she?")
    nothing = Rejected("nothing in the question to change")
    for question in ("Who sat?", "Who is here?", "Who is here first?"):
        story = question_on("Ann sat, Ben last.", "Ann", question)
        assert perturb(story, "near_miss") == nothing


def test_a_file_offers_its_own_answers(tmp_path: Path) -> None:
    def paragraph(story: str, answer: str) -> dict[str, object]:
        span = {"text": answer, "answer_start": story.index(answer)}
        asked = {"id": story[:3], "question": "What?", "answers": [span]}
        return {"context": story, "qas": [asked]}

    places = [paragraph("Ann is in Rome. She sat.", "Rome"), paragraph("Ben is in Oslo.", "Oslo")]
    years = [paragraph("Cay was born in 1960.", "1960"), paragraph("Dan left in 1975.", "1975")]
    data = [{"title": "Places", "paragraphs": places}, {"paragraphs": years}]
    (tmp_path / "squad.json").write_text(json.dumps({"data": data}))
    examples = list(read_questions(tmp_path / "squad.json"))
    assert [example.article for example in examples] == ["Places", "Places", "1", "1"]
    swapped, rejected = made_of(iter(examples), "swap")
    assert [example.references[0] for example in swapped] == ["Oslo", "Rome", "1975", "1960"]
    assert [example.remembered[0] for example in swapped] == ["Rome", "Oslo", "1960", "1975"]
    assert not rejected
