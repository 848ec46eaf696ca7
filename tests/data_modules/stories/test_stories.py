"""The embedded data: deterministic, well-formed, and split as promised."""

from __future__ import annotations

import re
from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_modules.groups.advice import drop_advice
from data_modules.groups.planting import latent_strength, preferred_subject
from data_modules.interventions.augmentation import FRAMES
from data_modules.stories import words
from data_modules.stories.groups import ADVISED, SPLITS, groups, rivals
from data_modules.stories.questions import QA_SIZES, make_story, qa_examples, vocabulary
from data_modules.stories.word_tokenizer import build_tokenizer

SEEDS = st.integers(0, 2**32)
KNOWN = {subject.lower() for subject in words.SUBJECTS}
UNSEEN = {subject.lower() for subject in words.UNSEEN_SUBJECTS}
KNOWN_ATTRIBUTES = {deed for c in words.CATEGORIES.values() for deed in c.attributes}
UNSEEN_ATTRIBUTES = {deed for c in words.CATEGORIES.values() for deed in c.unseen_attributes}
ALL = {name: tuple(groups(name)) for name in ("planting", *SPLITS)}


def subjects_of(split: str) -> set[str]:
    return {subject for group in ALL[split] for subject in group.subjects}


def advice_of(split: str) -> set[str]:
    return {variant.advice for group in ALL[split] for variant in group.variants} - {""}


# --- stories


def test_no_story_of_dev_is_in_train_whatever_the_seeds() -> None:
    train = {example.context for example in qa_examples("train", 1)}
    for seed in (0, 1):
        dev = [example.context for example in qa_examples("dev", seed)]
        assert len(dev) == QA_SIZES["dev"]
        assert train.isdisjoint(dev)


@settings(max_examples=60, deadline=None)
@given(seed=SEEDS)
def test_answers_lie_in_the_sentence_of_their_fact(seed: int) -> None:
    story = make_story(Random(seed))
    for fact in story.facts:
        for choice, (question, answer) in enumerate(fact.questions):
            example = story.example(fact, choice, "x")
            span = example.answers[0]
            span.check(example.context, "x")
            assert (example.question, span.text) == (question, answer)
            start = story.context.index(fact.sentence)
            assert start <= span.start < span.end <= start + len(fact.sentence)


@settings(max_examples=60, deadline=None)
@given(seed=SEEDS)
def test_a_story_introduces_everybody_and_answers_each_question_once(seed: int) -> None:
    story = make_story(Random(seed))
    people = {fact.sentence.removeprefix("The ").split()[0] for fact in story.facts}
    assert all(re.search(rf"\b{person}\b", story.sentences[0]) for person in people)
    questions = [question for fact in story.facts for question, _ in fact.questions]
    assert len(set(questions)) == len(questions)
    assert all(sentence.endswith(".") and sentence.count(".") == 1 for sentence in story.sentences)


def test_stories_name_every_group_and_prefer_none() -> None:
    answers = Counter(example.answers[0].text for example in qa_examples("train"))
    counts = [answers[subject] for subject in words.SUBJECTS + words.UNSEEN_SUBJECTS]
    assert min(counts) > 100
    assert max(counts) < 1.5 * min(counts)


# --- groups


@pytest.mark.parametrize("split", ["planting", *SPLITS])
def test_groups_are_well_formed(split: str) -> None:
    assert len({group.key for group in ALL[split]}) == len(ALL[split])
    for group in ALL[split]:
        assert group.subjects[0] < group.subjects[1]
        for variant in group.variants:
            for span, subject in zip(variant.candidates, group.subjects, strict=True):
                span.check(variant.context, group.key)
                assert span.text.lower() == subject
        x1_first, x2_first = group.variants[:2], group.variants[2:]
        assert all(v.candidates[0].start < v.candidates[1].start for v in x1_first)
        assert all(v.candidates[0].start > v.candidates[1].start for v in x2_first)
        assert [v.question for v in x1_first] == [v.question for v in x2_first]
        assert x1_first[0].question == f"Who {group.attribute}?"
        assert x1_first[1].question == f"Who never {group.attribute}?"
        assert len({v.advice for v in group.variants}) == 1


@pytest.mark.parametrize("split", list(SPLITS))
def test_classes_and_pairs_with_attributes_are_balanced(split: str) -> None:
    cells = Counter((g.advice_class, g.subjects, g.attribute) for g in ALL[split])
    assert set(cells.values()) == {SPLITS[split].rounds}
    assert {advice_class for advice_class, _, _ in cells} == set(ADVISED)
    assert len(cells) % len(ADVISED) == 0


def test_splits_hold_the_subjects_attributes_and_wordings_that_they_promise() -> None:
    for split, row in SPLITS.items():
        assert subjects_of(split) == {subject.lower() for subject in row.subjects}
        attributes = {group.attribute for group in ALL[split]}
        assert attributes == (UNSEEN_ATTRIBUTES if row.unseen_attributes else KNOWN_ATTRIBUTES)
    assert KNOWN.isdisjoint(UNSEEN)
    assert KNOWN_ATTRIBUTES.isdisjoint(UNSEEN_ATTRIBUTES)
    known_wordings = advice_of("train") | advice_of("planting") | advice_of("heldout")
    assert known_wordings.isdisjoint(advice_of("unseen_advice") | advice_of("unseen"))


def test_planting_holds_everybody_and_half_of_it_without_advice() -> None:
    assert subjects_of("planting") == KNOWN | UNSEEN
    classes = Counter(group.advice_class for group in ALL["planting"])
    assert classes["none"] == len(ALL["planting"]) / 2
    assert set(classes) == {"none", *ADVISED}


@settings(max_examples=4, deadline=None)
@given(train_seed=SEEDS, test_seed=SEEDS)
def test_heldout_keys_are_new_even_without_their_advice(train_seed: int, test_seed: int) -> None:
    train = {group.unadvised_key for group in groups("train", train_seed)}
    for split in ("heldout", "unseen_advice"):
        assert train.isdisjoint(group.unadvised_key for group in groups(split, test_seed))


def test_unadvised_variants_drop_advice_and_repetitions() -> None:
    plain = list(groups("heldout_unadvised"))
    assert {group.key for group in plain} == {drop_advice(g).key for g in ALL["heldout"]}
    assert len(plain) == len({group.key for group in plain})
    assert all(g.advice_class == "none" and not v.advice for g in plain for v in g.variants)


# --- advice


def test_groups_carry_the_advice_of_their_class_and_category() -> None:
    for split, row in SPLITS.items():
        for group in ALL[split]:
            sentences = words.advice_sentences(group.advice_class, group.category, unseen=row.unseen_advice)
            index = int(group.advice_id.rsplit("-", 1)[1])
            assert group.variants[0].advice == words.ADVICE_LEAD_IN + sentences[index]
            assert group.advice_id.startswith(f"{group.advice_class}_{group.category}")


def test_unseen_wordings_are_made_of_known_words() -> None:
    def letters(texts: set[str]) -> set[str]:
        return set(re.findall(r"[a-z]+", " ".join(texts).lower()))

    assert letters(advice_of("unseen_advice") | advice_of("unseen")) <= letters(advice_of("train"))


# --- the preference to plant


@settings(max_examples=20, deadline=None)
@given(seed=SEEDS)
def test_rivals_are_the_stronger_half_against_the_weaker(seed: int) -> None:
    for share in (words.SUBJECTS, words.UNSEEN_SUBJECTS):
        pairs = rivals(share, seed)
        assert len(set(pairs)) == (len(share) // 2) ** 2
        assert {subject for pair in pairs for subject in pair} == set(share)
        weakest_strong = min(latent_strength(strong, "", seed) for strong, _ in pairs)
        assert all(latent_strength(weak, "", seed) < weakest_strong for _, weak in pairs)


@pytest.mark.parametrize("seed", [0, 7])
def test_every_subject_always_wins_or_always_loses(seed: int) -> None:
    for split in ("planting", "heldout", "unseen"):
        won: dict[str, set[bool]] = {}
        for group in groups(split, seed):
            preferred = preferred_subject(group, seed, "subject")
            for index, subject in enumerate(group.subjects):
                won.setdefault(subject, set()).add(index == preferred)
        assert all(len(outcomes) == 1 for outcomes in won.values())


# --- vocabulary


def test_no_text_holds_a_word_outside_the_vocabulary() -> None:
    listed = vocabulary()
    assert len(listed) == len(set(listed))
    tokenizer = build_tokenizer("bert", listed)
    splits = [*qa_examples("train"), *qa_examples("dev"), *qa_examples("mixed_train")]
    texts = {t for e in splits for t in (e.question, e.context)}
    told = [turn for e in splits for turn in e.history]
    texts |= {f"|Q| {turn.question} |A| {turn.answer}" for turn in told} | {"yes no unknown"}
    texts |= {frame.replace("{answer}", "red") for frame in FRAMES}
    for split in ALL.values():
        texts |= {t for g in split for v in g.variants for t in (v.advice, v.question, v.context)}
    used = {token for ids in tokenizer(sorted(texts))["input_ids"] for token in ids}
    assert tokenizer.unk_token_id not in used
    assert set(tokenizer.convert_ids_to_tokens(sorted(used))) == {*listed, "[CLS]", "[SEP]"}
