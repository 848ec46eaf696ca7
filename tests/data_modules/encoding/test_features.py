"""Windows, the places of character spans in them, targets, and pairs of originals and variants."""

from dataclasses import replace
from itertools import islice, pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from interventune.data_modules.batching import sets
from interventune.data_modules.batching.candidates import encode_groups
from interventune.data_modules.batching.pair_set import PairSet
from interventune.data_modules.encoding.windows import (
    EncodedRow,
    Encoding,
    encode_texts,
    max_context,
)
from interventune.data_modules.interventions.variants import perturb
from interventune.data_modules.schema.questions import QAExample, Span, Turn, Variant
from interventune.data_modules.stories.groups import groups
from interventune.data_modules.stories.questions import qa_examples
from interventune.storage.documents import DataError
from tests.data_modules.fixtures.small_tokenizers import KINDS, tokenizer

ORDERS = ("question_first", "context_first")
BERT = tokenizer("words_bert")
GROUPS = list(islice(groups("heldout"), 2))
MARKS = (" ", "\u0301", "\u200b", "\u00ad", "\ufe0f", "\u05b7", "\u0e31\u200d")
STORY = "Anna is in the kitchen. Ben has a red ball. Clara is in the garden."
TURNS = (("Where is Anna?", "kitchen"), ("Who is rude?", "unknown"), ("Who has the ball?", "Ben"))
SMALL = Encoding(max_length=22, doc_stride=12)
EXAMPLES = list(islice(qa_examples("conversation_dev"), 40))


def rows_of(context: str, kind: str, query: str = "who?", **options: Any) -> list[EncodedRow]:
    return list(encode_texts([(context, query, "record")], tokenizer(kind), Encoding(**options)))


def windows_of(examples: list[QAExample], words: Any, encoding: Encoding) -> list[SimpleNamespace]:
    """Every window of some questions: `row`, `rationale_T` and the targets."""
    windows = []
    for row in sets.encode_questions(examples, words, encoding).to_list():
        ids_T, types_T = np.array(row["input_ids"]), np.array(row["token_type_ids"])
        encoded = EncodedRow(ids_T, types_T, np.reshape(row["offsets"], (-1, 2)), row["cls"], 0)
        targets = {name: row[name] for name in sets.TARGETS}
        rationale_T = np.array(row["rationale"])
        windows.append(SimpleNamespace(row=encoded, rationale_T=rationale_T, **targets))
    return windows


def context_of(row: EncodedRow) -> np.ndarray:
    """Offsets of the context's tokens."""
    return row.offsets_TE[row.offsets_TE[:, 0] >= 0]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("order", ORDERS)
def test_windows_are_those_of_transformers(kind: str, order: Any) -> None:
    context = " ".join(f"a tol met kess{'.' * (i % 3)}" for i in range(30)) + " rude"
    query = "who was?"
    rows = rows_of(context, kind, query, order=order, max_length=48, doc_stride=12)
    single, first = tokenizer(kind), order == "question_first"
    others = len(single.tokenize(query)) + single.num_special_tokens_to_add(pair=True)
    how = {"truncation": "only_second" if first else "only_first", "stride": 48 - others - 12}
    how |= {"max_length": 48, "return_overflowing_tokens": True, "return_offsets_mapping": True}
    expected = single(*((query, context) if first else (context, query)), **how)
    assert len(rows) > 3
    assert [row.input_ids_T.tolist() for row in rows] == expected["input_ids"]
    for i, row in enumerate(rows):
        pairs = zip(expected["offset_mapping"][i], expected.sequence_ids(i), strict=True)
        offsets = [list(offset) for offset, side in pairs if side == int(first)]
        assert context_of(row).tolist() == offsets
        assert row.input_ids_T[row.cls] == single.cls_token_id
        assert kind not in ("bytes", "words_roberta") or not row.token_type_ids_T.any()


def test_last_tokens_of_a_query_are_kept_as_they_are() -> None:
    """Not those of the text that begins there: " was" of a byte-level tokenizer is not "was"."""
    (whole,) = rows_of("a tol", "bytes", "who was rude?")
    (cut,) = rows_of("a tol", "bytes", "who was rude?", max_query=3)
    query = whole.input_ids_T[1 : len(whole.input_ids_T) - len(context_of(whole)) - 3]
    assert cut.input_ids_T[1:4].tolist() == query[-3:].tolist()


@pytest.mark.parametrize("mark", MARKS)
@pytest.mark.parametrize("answer", ["{}met tol", "met tol{}", "{}met tol{}"])
def test_a_character_without_a_token_at_an_answers_edge_is_ignored(mark: str, answer: str) -> None:
    """In none of the windows, which cut the answer or not: marks, and spaces as SQuAD has some."""
    words, small = tokenizer("wordpiece"), Encoding(max_length=12, doc_stride=3)
    targets = []
    for written in (mark, ""):
        text = answer.replace("{}", written)
        context = f"a tol kess {text} who was rude a kess tol"
        span = (Span.locate(text, context, ""),)
        windows = windows_of([QAExample("1", context, "who?", span, rationale=span)], words, small)
        targets.append([(w.start, w.end, w.answer_type, w.rationale_T.tolist()) for w in windows])
    assert targets[0] == targets[1]
    assert {sets.WINDOW_TYPES[kind] for _, _, kind, _ in targets[0]} == {"span", "unknown"}


@pytest.mark.parametrize("stride", [9, 128])
def test_windows_overlap_whatever_the_stride(stride: int) -> None:
    rows = rows_of("a tol met kess " * 8, "words_bert", max_length=13, doc_stride=stride)
    shown = [{*map(tuple, context_of(row).tolist())} for row in rows]
    assert len(shown) > 2
    assert all(len(one & other) >= len(one) // 2 for one, other in pairwise(shown))


def test_a_query_without_room_for_its_context_is_named() -> None:
    examples = [QAExample("short", "a tol", "who?"), QAExample("too long", "a tol", "who " * 60)]
    with pytest.raises(DataError, match=r"^too long: .*no room.*raise encoding\.max_length"):
        windows_of(examples, BERT, Encoding(max_length=32))
    with pytest.raises(DataError, match=r"encoding\.doc_stride"):
        Encoding(doc_stride=0)


def test_a_group_that_cannot_be_scored_is_named() -> None:
    first, group = GROUPS
    longer = replace(group.variants[3], context=group.variants[3].context + " a baker" * 100)
    long_group = replace(group, variants=(*group.variants[:3], longer))
    with pytest.raises(DataError, match=rf"^{group.key}: .*does not fit into 96 tokens"):
        encode_groups([first, long_group, first], BERT, Encoding(max_length=96))
    one, two = group.variants[3].candidates
    cut = replace(group.variants[3], candidates=(Span(one.start, one.end - 1, one.text[:-1]), two))
    with pytest.raises(DataError, match=rf"^{group.key}: no tokens cover just"):
        encode_groups([replace(group, variants=(*group.variants[:3], cut))], BERT, Encoding())


def example(**changes: Any) -> QAExample:
    answer, why = (Span.locate(text, STORY, "q") for text in ("red", "Ben has a red ball."))
    asked = QAExample("q", STORY, "What colour is it?", (answer,), rationale=(why,), dataset="coqa")
    history = tuple(Turn(*texts) for texts in TURNS)
    return replace(asked, **({"history": history, "references": ("red",)} | changes))


def test_history_is_written_as_each_paper_model_reads_it() -> None:
    """XLNet leaves out turns without an answer; RoBERTa marks first turns, but not of SQuAD."""

    def written(architecture: str, **changes: object) -> str:
        encoding = Encoding().resolved(architecture)
        return sets.full_query(example(**changes), encoding, tokenizer(f"words_{architecture}"))

    earlier = "|Q| Who is rude?|A| unknown|Q| Who has the ball?|A| Ben"
    assert written("bert") == "Who is rude? unknown Who has the ball? Ben What colour is it?"
    assert written("roberta") == f"{earlier}|Q| What colour is it?"
    with_answers = "<s> Where is Anna? </s> kitchen <s> Who has the ball? </s> Ben"
    assert written("xlnet") == f"{with_answers} <s> What colour is it?"
    assert written("roberta", history=()) == "|Q| What colour is it?"
    for dataset in ("squad", "boolq", ""):  # no conversations
        assert written("roberta", history=(), dataset=dataset) == "What colour is it?"


@pytest.mark.parametrize("architecture", ["bert", "xlnet"])
def test_targets_of_a_row(architecture: str) -> None:
    words = tokenizer(f"words_{architecture}")
    encoding = Encoding(order="auto").resolved(architecture)
    (span,) = windows_of([example()], words, encoding)
    assert sets.WINDOW_TYPES[span.answer_type] == "span"
    assert words.decode(span.row.input_ids_T[span.start : span.end + 1]) == "red"
    assert words.decode(span.row.input_ids_T[span.rationale_T]) == "ben has a red ball ."
    for kind in ("yes", "no", "unknown"):
        (feature,) = windows_of([example(answers=(), answer_type=kind)], words, encoding)
        assert sets.WINDOW_TYPES[feature.answer_type] == kind
        assert feature.start == feature.end == feature.row.cls
    asked = {"question": "Is it red or blue?", "references": ("red",), "answer_type": "option"}
    (option,) = windows_of([example(**asked)], words, encoding)
    assert (sets.WINDOW_TYPES[option.answer_type], option.number, option.option) == ("span", 0, 1)
    (number,) = windows_of([example(references=("two",), answer_type="number")], words, encoding)
    assert (number.number, number.option) == (3, 0)


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
    offsets = (np.array([[t, t + 1] for t in range(s, s + length)]) for s in starts)
    windows = [EncodedRow(zeros, zeros, offsets_TE, 0, 0) for offsets_TE in offsets]
    found = max_context(windows)
    for token in range(16):
        shown = [(w, token - s) for w, s in enumerate(starts) if s <= token < s + length]
        best = max(shown, key=lambda at: (min(at[1], length - 1 - at[1]) + 0.01 * length, -at[0]))
        assert all(found[w][i] == ((w, i) == best) for w, i in shown)


def perturbed(examples: list[QAExample], variant: Variant) -> list[QAExample]:
    return [new for old in examples if isinstance(new := perturb(old, variant), QAExample)]


@pytest.mark.parametrize("kind", ["words_bert", "words_roberta", "words_xlnet"])
@pytest.mark.parametrize("variant", ["ts", "ts_r", "os_r"])
def test_common_tokens_are_the_same_words_in_the_same_places(kind: str, variant: Variant) -> None:
    tok, encoding = tokenizer(kind), Encoding(order="auto").resolved(kind.removeprefix("words_"))
    variants = perturbed(EXAMPLES[::-2], variant)
    data = PairSet(sets.QASet(EXAMPLES, tok, encoding), sets.QASet(variants, tok, encoding))
    batch = data[range(len(data.question_N))]
    places = (batch.original, batch.original_P), (batch.variant, batch.variant_P)
    original_P, changed_P = (half.inputs["input_ids"][batch.row_P, at_P] for half, at_P in places)
    assert torch.equal(original_P, changed_P)
    counts = torch.bincount(batch.row_P, minlength=len(data.question_N)).tolist()
    contexts = {example.id: example.context for example in EXAMPLES}
    assert counts
    for example, count in zip([variants[q] for q in data.question_N], counts, strict=True):
        kept = "".join(contexts[example.id][a:b] for a, b in example.kept)
        assert count == len(tok(kept, add_special_tokens=False)["input_ids"]), example


@pytest.mark.parametrize("variant", ["ts", "os_r", "reworded", "spaced"])
def test_the_first_window_that_differs_is_read(variant: Variant) -> None:
    """A deletion at the end of a long story is not in the first one; `ts` may cut nothing."""
    tok, encoding = tokenizer("words_bert"), Encoding(max_length=40, doc_stride=10)
    variants = perturbed(EXAMPLES, variant)
    data = PairSet(sets.QASet(EXAMPLES, tok, encoding), sets.QASet(variants, tok, encoding))
    same = {(ex.context, ex.question) for ex in EXAMPLES}
    texts = ((new.context, new.question) for new in variants if variant != "spaced")
    changed = [i for i, text in enumerate(texts) if text not in same]
    assert data.question_N.tolist() == changed
    ids = data.originals.token_ids(), data.variants.token_ids()
    for one, other in zip(data.original_N, data.variant_N, strict=True):
        assert not np.array_equal(ids[0][one], ids[1][other])
    later = data.variant_N > data.variants.first_Q[data.question_N]
    assert later.any() == (variant in ("ts", "os_r"))
    without_one = sets.QASet(EXAMPLES[1:], tok, encoding)
    fewer = PairSet(without_one, data.variants)
    assert len(fewer.question_N) == len(changed) - (0 in changed)


def test_originals_of_one_id_cannot_be_told_apart() -> None:
    data = sets.QASet(EXAMPLES[:1] * 2, tokenizer("words_bert"), Encoding())
    with pytest.raises(DataError, match="2 questions have the id"):
        PairSet(data, data)
