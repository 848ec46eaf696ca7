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
SMALL = Encoding(max_length=22, doc_stride=12)
BERT = tokenizer("words_bert")


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
    """XLNet leaves out turns without an answer; RoBERTa marks a first turn too, but not SQuAD's questions."""

    def written(architecture: str, **changes: object) -> str:
        encoding = Encoding().resolved(architecture)
        return full_query(example(**changes), encoding, tokenizer(f"words_{architecture}"))

    earlier = "|Q| Who is rude?|A| unknown|Q| Who has the ball?|A| Ben"
    assert written("bert") == "Who is rude? unknown Who has the ball? Ben What colour is it?"
    assert written("roberta") == f"{earlier}|Q| What colour is it?"
    assert written("xlnet") == (
        "<s> Where is Anna? </s> kitchen <s> Who has the ball? </s> Ben <s> What colour is it?"
    )
    assert written("roberta", history=()) == "|Q| What colour is it?"
    assert written("roberta", history=(), dataset="squad") == "What colour is it?"


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


def test_numbers_and_options_are_spans_with_a_class() -> None:
    asked = {"question": "Is it red or blue?", "references": ("red",), "answer_type": "option"}
    (option,) = windows_of([example(**asked)], BERT, Encoding())
    assert (WINDOW_TYPES[option.answer_type], option.number, option.option) == ("span", 0, 1)
    (number,) = windows_of([example(references=("two",), answer_type="number")], BERT, Encoding())
    assert (number.number, number.option) == (3, 0)


def test_a_window_without_the_answer_is_unknown_but_yes_stays_yes() -> None:
    kinds = [WINDOW_TYPES[w.answer_type] for w in windows_of([example(history=())], BERT, SMALL)]
    assert (kinds.count("span"), set(kinds)) == (1, {"span", "unknown"})
    yes = windows_of([example(answers=(), answer_type="yes")], BERT, SMALL)
    assert {WINDOW_TYPES[window.answer_type] for window in yes} == {"yes"}


def test_a_rationale_that_a_window_cuts_is_not_tagged() -> None:
    pieces = tuple(Span.locate(text, STORY, "q") for text in ("Anna is", "has a red"))
    tagged = 0
    for window in windows_of([example(rationale=pieces, history=())], BERT, SMALL):
        shown = window.row.offsets_TE[window.row.offsets_TE[:, 0] >= 0]
        whole = all(shown[0, 0] <= piece.start and shown[-1, 1] >= piece.end for piece in pieces)
        assert window.rationale_T.sum() == (5 if whole else 0)
        tagged += whole
    assert tagged == 1


def test_max_context_follows_squads_rule() -> None:
    """Against the rule as a loop: smaller margin, plus a hundredth of the window's length."""
    starts, length = (0, 4, 8), 8
    zeros = np.zeros(length)
    windows = [
        EncodedRow(zeros, zeros, np.array([[t, t + 1] for t in range(s, s + length)]), 0, 0) for s in starts
    ]
    found = max_context(windows)
    for token in range(16):
        shown = [(w, token - s) for w, s in enumerate(starts) if s <= token < s + length]
        best = max(shown, key=lambda at: (min(at[1], length - 1 - at[1]) + 0.01 * length, -at[0]))
        assert all(found[w][i] == ((w, i) == best) for w, i in shown)
