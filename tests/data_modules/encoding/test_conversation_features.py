"""Questions with history, types of answer, rationales and windows, as the papers' models see them."""

from __future__ import annotations

import numpy as np
import pytest

from data_modules.encoding.questions import WINDOW_TYPES, max_context
from data_modules.encoding.windows import EncodedRow, Encoding, full_query
from data_modules.schema import QAExample, Span, Turn
from tests.data_modules.fixtures.encoded import windows_of
from tests.data_modules.fixtures.small_tokenizers import tokenizer

STORY = "Anna is in the kitchen. Ben has a red ball. Clara is in the garden."
TURNS = (Turn("Where is Anna?", "kitchen"), Turn("Who is rude?", "unknown"), Turn("Who has the ball?", "Ben"))


def example(**changes: object) -> QAExample:
    fields = {
        "id": "q",
        "context": STORY,
        "question": "What colour is it?",
        "answers": (Span.locate("red", STORY, "q"),),
        "history": TURNS,
        "rationale": (Span.locate("Ben has a red ball.", STORY, "q"),),
        "references": ("red",),
        "dataset": "coqa",
    }
    return QAExample(**(fields | changes))  # type: ignore[arg-type]


def test_history_is_written_as_each_paper_model_reads_it() -> None:
    def written(architecture: str) -> str:
        encoding = Encoding().resolved(architecture)
        return full_query(example(), encoding, tokenizer(f"words_{architecture}"))

    assert written("bert") == "Who is rude? unknown Who has the ball? Ben What colour is it?"
    assert (
        written("roberta") == "|Q| Who is rude?|A| unknown|Q| Who has the ball?|A| Ben|Q| What colour is it?"
    )
    assert written("xlnet") == (
        "<s> Where is Anna? </s> kitchen <s> Who has the ball? </s> Ben <s> What colour is it?"
    )


@pytest.mark.parametrize("unknown", ["unknown", " Unknown."])
def test_xlnet_leaves_out_turns_without_an_answer(unknown: str) -> None:
    asked = example(history=(TURNS[0], Turn("Why?", unknown)))
    text = full_query(asked, Encoding().resolved("xlnet"), tokenizer("xlnet_pieces"))
    assert text.count("<s>") == 2
    assert "Why?" not in text


def test_the_first_turn_of_a_conversation_is_marked_and_squad_never_is() -> None:
    encoding = Encoding().resolved("roberta")
    first = example(history=())
    assert full_query(first, encoding, None) == "|Q| What colour is it?"
    assert full_query(example(history=(), dataset="squad"), encoding, None) == "What colour is it?"


@pytest.mark.parametrize("architecture", ["bert", "roberta", "xlnet"])
def test_targets_of_a_row(architecture: str) -> None:
    words = tokenizer(f"words_{architecture}")
    encoding = Encoding(order="auto").resolved(architecture)
    (span,) = windows_of([example()], words, encoding)
    assert WINDOW_TYPES[span.answer_type] == "span"
    assert words.decode(span.row.input_ids_T[span.start : span.end + 1]) == "red"
    assert words.decode(span.row.input_ids_T[span.rationale_T]) == "ben has a red ball ."
    assert (span.max_context_T == (span.row.offsets_TE[:, 0] >= 0)).all()
    for kind in ("yes", "no", "unknown"):
        (feature,) = windows_of([example(answers=(), answer_type=kind)], words, encoding)
        assert WINDOW_TYPES[feature.answer_type] == kind
        assert feature.start == feature.end == feature.row.cls


def test_auto_follows_the_architecture() -> None:
    auto = Encoding(order="auto", max_query="auto")
    found = {name: auto.resolved(name) for name in ("bert", "roberta", "xlnet")}
    assert {name: encoding.max_query for name, encoding in found.items()} == {
        "bert": 64,
        "roberta": 64,
        "xlnet": 128,
    }
    assert found["bert"].order == "question_first"
    assert found["xlnet"].order == "context_first"


def test_numbers_and_options_are_spans_with_a_class() -> None:
    words = tokenizer("words_bert")
    asked = {"question": "Is it red or blue?", "references": ("red",), "answer_type": "option"}
    (feature,) = windows_of([example(**asked)], words, Encoding())
    assert (WINDOW_TYPES[feature.answer_type], feature.number, feature.option) == ("span", 0, 1)
    (feature,) = windows_of([example(references=("two",), answer_type="number")], words, Encoding())
    assert (feature.number, feature.option) == (3, 0)


def test_a_window_without_the_answer_is_unknown_but_yes_stays_yes() -> None:
    words = tokenizer("words_bert")
    encoding = Encoding(max_length=22, doc_stride=12)
    features = windows_of([example(history=())], words, encoding)
    assert len(features) > 1
    kinds = [WINDOW_TYPES[feature.answer_type] for feature in features]
    assert kinds.count("span") == 1
    assert set(kinds) == {"span", "unknown"}
    yes = windows_of([example(answers=(), answer_type="yes")], words, encoding)
    assert {WINDOW_TYPES[feature.answer_type] for feature in yes} == {"yes"}


def test_a_rationale_that_a_window_cuts_is_not_tagged() -> None:
    pieces = tuple(Span.locate(text, STORY, "q") for text in ("Anna is", "has a red"))
    encoding = Encoding(max_length=22, doc_stride=12)
    tagged = 0
    for window in windows_of([example(rationale=pieces, history=())], tokenizer("words_bert"), encoding):
        shown = window.row.offsets_TE[window.row.offsets_TE[:, 0] >= 0]
        whole = all(shown[0, 0] <= piece.start and shown[-1, 1] >= piece.end for piece in pieces)
        assert window.rationale_T.sum() == (5 if whole else 0)
        tagged += whole
    assert tagged == 1


def test_max_context_follows_squads_rule() -> None:
    """Against the rule as a loop: smaller margin, plus a hundredth of the window's length."""
    starts, length = (0, 4, 8), 8
    windows = [
        EncodedRow(
            np.zeros(length), np.zeros(length), np.array([[t, t + 1] for t in range(s, s + length)]), 0, 0
        )
        for s in starts
    ]
    found = max_context(windows)
    for token in range(16):
        scored = [
            (min(token - s, s + length - 1 - token) + 0.01 * length, -w)
            for w, s in enumerate(starts)
            if s <= token < s + length
        ]
        best = -max(scored)[1]
        for w, s in enumerate(starts):
            if s <= token < s + length:
                assert found[w][token - s] == (w == best)
