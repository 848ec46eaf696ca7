"""Character spans to token spans, windows, and errors that name the record."""

from __future__ import annotations

import dataclasses
from itertools import islice
from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_modules.encoding.groups import encode_groups
from data_modules.encoding.windows import EncodedRow, Encoding, encode_texts, token_span, whole_span
from data_modules.schema import QAExample, Span, query_text
from data_modules.stories.groups import groups
from data_modules.stories.questions import qa_examples
from storage.errors import DataError
from tests.data_modules.fixtures.encoded import windows_of
from tests.data_modules.fixtures.small_tokenizers import KINDS, tokenizer

CONTEXTS = st.text(alphabet="ab tolkesTéß.,'\n  ", min_size=1, max_size=40)
GROUPS = list(islice(groups("heldout"), 6))
QUESTIONS = list(islice(qa_examples("dev"), 20))
ORDERS: tuple[Literal["question_first", "context_first"], ...] = ("question_first", "context_first")


def rows_of(
    context: str, kind: str, encoding: Encoding | None = None, query: str = "who?"
) -> list[EncodedRow]:
    return list(encode_texts([(context, query, "record")], tokenizer(kind), encoding or Encoding()))


def covered(row: EncodedRow, position: int) -> bool:
    return bool(((row.offsets_TE[:, 0] <= position) & (row.offsets_TE[:, 1] > position)).any())


@pytest.mark.parametrize("kind", KINDS)
@given(context=CONTEXTS, data=st.data())
def test_a_token_span_is_the_shortest_that_covers_its_characters(
    kind: str, context: str, data: st.DataObject
) -> None:
    start = data.draw(st.integers(0, len(context) - 1))
    end = data.draw(st.integers(start + 1, len(context)))
    (row,) = rows_of(context, kind)
    found = token_span(row.offsets_TE, Span(start, end, "x" * (end - start)))
    assert (found is not None) == (covered(row, start) and covered(row, end - 1))
    if found is not None:
        first, last = found
        assert row.offsets_TE[first, 0] <= start < row.offsets_TE[first, 1]
        assert row.offsets_TE[last, 0] < end <= row.offsets_TE[last, 1]
        assert first == 0 or row.offsets_TE[first - 1, 1] <= start


@pytest.mark.parametrize("kind", KINDS)
@given(context=CONTEXTS, data=st.data())
def test_a_whole_span_is_exactly_the_text_or_an_error(kind: str, context: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(context) - 1))
    end = data.draw(st.integers(start + 1, len(context)))
    (row,) = rows_of(context, kind)
    span = Span(start, end, context[start:end])
    tokens = token_span(row.offsets_TE, span)
    text = context[row.offsets_TE[tokens[0], 0] : row.offsets_TE[tokens[1], 1]] if tokens else ""
    if tokens and text.strip() != span.text.strip():
        with pytest.raises(DataError, match=r"^record: the tokenizer cuts"):
            whole_span(span, context, row, "record")
    else:
        assert whole_span(span, context, row, "record") == tokens


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("order", ORDERS)
def test_every_window_that_holds_a_word_finds_it(
    kind: str, order: Literal["question_first", "context_first"]
) -> None:
    context = " ".join(f"a tol met kess{'.' * (i % 3)}" for i in range(30)) + " rude"
    rows = rows_of(context, kind, Encoding(order=order, max_length=48, stride=12), "who was?")
    assert len(rows) > 3
    assert max(len(row.input_ids_T) for row in rows) == 48
    assert {row.example for row in rows} == {0}
    start = context.index("kess", len(context) // 2)
    for row in rows:
        inside = row.offsets_TE[row.offsets_TE[:, 0] >= 0]
        found = token_span(row.offsets_TE, Span(start, start + 4, "kess"))
        assert (found is not None) == (inside[0, 0] <= start and inside[-1, 1] >= start + 4)
    assert any(token_span(row.offsets_TE, Span(start, start + 4, "kess")) is not None for row in rows)
    last = token_span(rows[-1].offsets_TE, Span(len(context) - 4, len(context), "rude"))
    assert last is not None
    # Consecutive windows share `stride` tokens of the context.
    one, two = (row.offsets_TE[row.offsets_TE[:, 0] >= 0] for row in rows[:2])
    np.testing.assert_array_equal(one[-12:], two[:12])


@pytest.mark.parametrize("order", ORDERS)
def test_windows_are_a_step_apart_whatever_the_question(
    order: Literal["question_first", "context_first"],
) -> None:
    """The faithfulness specification's worked example (7): 700 words, a question of 5, and one of 9."""
    context = " ".join(["tol"] * 600 + ["kess"] + ["tol"] * 99)
    questions, answer = (
        ("who was met ? ?", "who was met ? who was met ? ?"),
        Span.locate("kess", context, "t"),
    )
    examples = [
        QAExample("long", context, questions[0], (answer,)),
        QAExample("short", "a tol met kess", questions[0]),
        QAExample("longer", context, questions[1]),
    ]
    windows = windows_of(examples, tokenizer("words_bert"), Encoding(order=order, max_length=512, step=128))
    assert [window.row.example for window in windows] == [0] * 3 + [1] + [2] * 3
    for window in windows:
        at = int(window.row.offsets_TE[window.row.offsets_TE[:, 0] >= 0][0, 0])
        assert at in (0, 4 * 128, 4 * 256)
    assert [len(window.row.input_ids_T) for window in windows] == [512, 512, 452, 12, 512, 512, 456]
    if order == "question_first":
        assert [window.start for window in windows[:3]] == [0, 479, 351]
    with pytest.raises(DataError, match=r"far too long.*encoding\.max_length"):
        windows_of(
            [QAExample("far too long", "a tol " * 50, "who " * 60)],
            tokenizer("words_bert"),
            Encoding(max_length=32, stride=16, step=8),
        )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("order", ORDERS)
def test_offsets_are_of_the_context_alone(
    kind: str, order: Literal["question_first", "context_first"]
) -> None:
    (row,) = rows_of("was rude", kind, Encoding(order=order), "was rude")
    inside = np.flatnonzero(row.offsets_TE[:, 0] >= 0)
    np.testing.assert_array_equal(inside, np.arange(inside[0], inside[-1] + 1))
    texts = tokenizer(kind)("was rude", add_special_tokens=False)["input_ids"]
    assert row.input_ids_T[inside].tolist() == texts
    outside = [i for i in row.input_ids_T.tolist() if i in tokenizer(kind).all_special_ids]
    assert len(row.input_ids_T) == 2 * len(texts) + len(outside)
    question_is_first = row.input_ids_T.tolist().index(texts[0]) != inside[0]
    assert question_is_first == (order == "question_first")
    assert row.input_ids_T[row.cls] == tokenizer(kind).cls_token_id


def test_advice_stands_right_before_the_question() -> None:
    assert query_text("Who?", "Note that, all are kind.") == "Note that, all are kind. Who?"
    assert query_text("Who?", "") == "Who?"
    example = QAExample("1", "a rude tol", "Who was rude?", advice="Met a tol.")
    (feature,) = windows_of([example], tokenizer("words_bert"), Encoding())
    text = tokenizer("words_bert").decode(feature.row.input_ids_T)
    assert text.startswith(
        "[CLS] met a [UNK]. who was rude? [SEP] a rude".replace(".", " .").replace("?", " ?")
    )


@pytest.mark.parametrize("kind", KINDS)
def test_white_space_around_an_answer_costs_nothing(kind: str) -> None:
    """SQuAD's annotators sometimes marked the blank beside the answer, which is part of no token."""
    context = "a tol met kess ."
    spans = [Span(2, 5, "tol"), Span(1, 5, " tol"), Span(2, 6, "tol "), Span(1, 6, " tol ")]
    features = windows_of([QAExample("1", context, "who?", (s,)) for s in spans], tokenizer(kind), Encoding())
    assert len({(f.start, f.end) for f in features}) == 1
    assert features[0].start != features[0].row.cls


def test_a_query_without_room_for_its_context_is_named() -> None:
    examples = [
        QAExample("short", "a tol " * 50, "who?"),
        QAExample("far too long", "a tol " * 50, "who " * 60 + "?"),
    ]
    for kind in KINDS:
        with pytest.raises(
            DataError, match=r"^far too long: .*32 tokens with stride 16.*encoding.max_length"
        ):
            windows_of(examples, tokenizer(kind), Encoding(max_length=32, stride=16))


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"stride": 384}, "encoding.stride"),
        ({"stride": -1}, "encoding.stride"),
        ({"max_length": 100, "stride": 100}, "encoding.stride"),
        ({"pad_to_multiple_of": 0}, "encoding.pad_to_multiple_of"),
    ],
)
def test_impossible_encodings_are_refused(values: dict[str, int], words: str) -> None:
    with pytest.raises(DataError, match=words):
        Encoding(**values)  # type: ignore[arg-type]


def test_chunks_keep_the_order() -> None:
    texts = [(f"{'tol ' * (i % 5 + 1)}", "who?", str(i)) for i in range(1100)]
    rows = list(encode_texts(texts, tokenizer("wordpiece"), Encoding()))
    assert [row.example for row in rows] == list(range(1100))
    assert [int((row.offsets_TE[:, 0] >= 0).sum()) for row in rows] == [i % 5 + 1 for i in range(1100)]


def test_a_group_that_does_not_fit_is_named() -> None:
    group = GROUPS[1]
    longer = dataclasses.replace(group.variants[3], context=group.variants[3].context + " a baker" * 100)
    long_group = dataclasses.replace(group, variants=(*group.variants[:3], longer))
    with pytest.raises(DataError, match="does not fit into 96 tokens") as caught:
        encode_groups(
            [GROUPS[0], long_group, GROUPS[2]], tokenizer("words_bert"), Encoding(max_length=96, stride=8)
        )
    assert str(caught.value).startswith(group.key)


def test_a_subject_glued_to_its_neighbour_is_named() -> None:
    group = GROUPS[0]
    variant = group.variants[0]
    span = variant.candidates[0]
    context = variant.context[: span.end] + "ish" + variant.context[span.end :]
    second = Span.locate(variant.candidates[1].text, context, "")
    glued = dataclasses.replace(variant, context=context, candidates=(span, second))
    with pytest.raises(
        DataError, match=f"tokenizer cuts '{span.text}': its tokens cover '{span.text}ish'"
    ) as caught:
        encode_groups(
            [dataclasses.replace(group, variants=(glued, *group.variants[1:]))],
            tokenizer("words_bert"),
            Encoding(),
        )
    assert str(caught.value).startswith(group.key)
