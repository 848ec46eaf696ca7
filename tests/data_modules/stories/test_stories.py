"""The embedded data: deterministic, well-formed, and split as promised; its word-level tokenizer."""

from __future__ import annotations

from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_modules.interventions.augmentation import FRAMES
from data_modules.schema.questions import QAExample
from data_modules.stories.groups import groups
from data_modules.stories.questions import qa_examples, vocabulary
from data_modules.stories.word_tokenizer import build_tokenizer
from data_modules.stories.words import WORDS

SEEDS = st.integers(0, 2**32)
TRAIN = tuple(islice(qa_examples("mixed_train"), 2000))
ALL = {name: tuple(groups(name)) for name in ("planting", *WORDS.group_splits)}


@pytest.mark.parametrize("kind", ["", "conversation_"])
def test_qa_examples_share_no_story_between_train_and_dev(kind: str) -> None:
    train = {example.context for example in qa_examples(f"{kind}train", 1)}
    for seed in (0, 1):
        assert train.isdisjoint(example.context for example in qa_examples(f"{kind}dev", seed))


def test_qa_examples_have_rationales_that_state_the_answer() -> None:
    for example in TRAIN:
        if example.answer_type == "span":
            assert example.rationale[0].start <= example.answers[0].start
            assert example.answers[0].end <= example.rationale[0].end
        if example.answer_type in ("yes", "no"):
            assert stated(example) == (example.answer_type == "yes"), example
        assert bool(example.rationale) == (example.answer_type != "unknown")
        assert all(turn.answer in example.context for turn in example.history)
        assert example.question not in {turn.question for turn in example.history}


def stated(example: QAExample) -> bool:
    """Whether the rationale says what the question asks, word by word."""
    question = example.question.removesuffix("?").split(maxsplit=1)[1].replace("have a", "has a").lower()
    said = example.rationale[0].text.removesuffix(".").replace(" is in", " in").lower()
    return question == said


@settings(max_examples=4)
@given(train_seed=SEEDS, test_seed=SEEDS)
def test_groups_heldout_are_new_even_without_their_advice(train_seed: int, test_seed: int) -> None:
    train = {group.unadvised_key for group in groups("train", train_seed)}
    for split in ("heldout", "unseen_advice"):
        assert train.isdisjoint(group.unadvised_key for group in groups(split, test_seed))


def test_vocabulary_holds_every_word_of_the_texts() -> None:
    tokenizer = build_tokenizer("bert", listed := vocabulary())
    examples = [*qa_examples("train"), *qa_examples("dev"), *qa_examples("mixed_train")]
    texts = {text for e in examples for text in (e.question, e.context)} | {"yes no unknown"}
    texts |= {f"|Q| {turn.question} |A| {turn.answer}" for e in examples for turn in e.history}
    texts |= {frame.replace("{answer}", "red") for frame in FRAMES}
    for split in ALL.values():
        texts |= {t for g in split for v in g.variants for t in (v.advice, v.question, v.context)}
    used = {token for ids in tokenizer(sorted(texts))["input_ids"] for token in ids}
    assert set(tokenizer.convert_ids_to_tokens(sorted(used))) == {*listed, "[CLS]", "[SEP]"}


PIECES = ["who", "has", "the", "red", "ball", "anna", "?", ".", "'", "-"]
QUESTION, CONTEXT = "Who has the ball?", "Anna has the red ball."
PAIRS = [
    ("bert", "[CLS] who has the ball ? [SEP] anna has the red ball . [SEP]", [0] * 7 + [1] * 7),
    ("roberta", "<s> who has the ball ? </s> </s> anna has the red ball . </s>", None),
    ("xlnet", "who has the ball ? <sep> anna has the red ball . <sep> <cls>", [0] * 6 + [1] * 7 + [2]),
]


@pytest.mark.parametrize(("architecture", "tokens", "segments"), PAIRS)
def test_build_tokenizer_lays_pairs_out_as_the_architecture(
    architecture: str, tokens: str, segments: list[int] | None
) -> None:
    tokenizer = build_tokenizer(architecture, PIECES)
    encoded = tokenizer(QUESTION, CONTEXT)
    assert tokenizer.convert_ids_to_tokens(encoded["input_ids"]) == tokens.split()
    assert encoded.get("token_type_ids") == segments
