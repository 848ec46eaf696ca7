"""What language models are asked, and what their words mean."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interventune.data_modules.encoding.prompts import group_prompts, question_prompts, short_answer
from interventune.data_modules.schema.groups import Group, UnderspecifiedQuestion
from interventune.data_modules.schema.questions import QAExample, Span, Turn
from interventune.evaluation.answering.language_model import STYLES, in_style

STORY, TURNS = "Tom has a {red} bike.", (Turn("q1", "a1"), Turn("Who came?", "Tom"))
TURNS += (Turn("Why?", "unknown"),)
EXAMPLE = QAExample("1", STORY, "What has Tom?", advice="Note that, X.", history=TURNS)
PAPER = f"{STORY}\n\nQ: Who came?\nA: Tom\nQ: Why?\nA: unknown\nQ: Note that, X. What has Tom?\nA:"
UNIFIEDQA = r"who came? tom why? unknown what has tom? \n tom has a {red} bike. note that, x."


@pytest.mark.parametrize(("style", "expected"), [("paper", PAPER), ("unifiedqa", UNIFIEDQA)])
def test_question_prompt_is_that_of_the_style(style: str, expected: str) -> None:
    (prompt,) = question_prompts([EXAMPLE], STYLES[style], answers=False)
    assert in_style(prompt.messages[0]["content"], style) == expected


@pytest.mark.parametrize("story", ["A Tolin met a Kessar.", "A Kessar met a Tolin."])
def test_subject_prompt_is_leis_for_unifiedqa(story: str) -> None:
    """`question \\n (a) x1 (b) x2 \\n context. advice`; options are in the order of the context."""
    spans = (Span.locate("Kessar", story, "t"), Span.locate("Tolin", story, "t"))
    question = UnderspecifiedQuestion(story, "Who ran?", spans, "Note that, X.")
    one, two = ("kessar", "tolin") if story.startswith("A K") else ("tolin", "kessar")
    expected = rf"who ran? \n (a) {one} (b) {two} \n a {one} met a {two}. note that, x."
    group = Group(("Kessar", "Tolin"), "", "", "", "none", "", (question,) * 4)
    prompt, *_ = group_prompts([group], STYLES["unifiedqa"])
    assert in_style(prompt.messages[0]["content"], "unifiedqa") == expected


SHORT = {"Yes, he did so.": "yes", '"No," she said': "no", "Yes - it was": "yes", " \n ": ""}
SHORT |= {"Unknown (not stated).": "Unknown (not stated)", "the answer is: 'red.'": "red"}
SHORT |= {"\n Answer:\n a red bike.\nQuestion: Why?": "a red bike"}
SHORT |= {text: text for text in ("No one", "No. 5", 'the "Red Lion"', "wait...")}


def test_short_answer_of_examples() -> None:
    assert {text: short_answer(text) for text in SHORT} == SHORT


WORDS = ["red", "no", "bike", "yes", "Tom's", "unknown", "U.S", "5", "—", "(a)"]
words = st.lists(st.sampled_from(WORDS), min_size=1, max_size=4)
wrappings = st.sampled_from(["{}", '"{}"', "{}.", "Answer: {}", " {}\nMore: text", "**{}**"])


@given(words.map(" ".join), wrappings)
def test_short_answer_does_not_depend_on_wrapping(text: str, wrapping: str) -> None:
    assert short_answer(wrapping.format(text)) == short_answer(text)
