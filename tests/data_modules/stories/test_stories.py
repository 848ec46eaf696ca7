"""The embedded data: deterministic, well-formed, and split as promised."""

from __future__ import annotations

import re
from collections import Counter
from itertools import islice
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_modules.groups.advice import drop_advice
from data_modules.groups.planting import latent_strength, preferred_subject
from data_modules.interventions.augmentation import FRAMES
from data_modules.interventions.deletion import perturb
from data_modules.schema import LEAD_IN, QAExample
from data_modules.stories import words
from data_modules.stories.groups import ADVISED, SPLITS, groups, rivals
from data_modules.stories.questions import MAX_TURNS, QA_SIZES, make_story, qa_examples, vocabulary
from data_modules.stories.word_tokenizer import build_tokenizer

SEEDS = st.integers(0, 2**32)
KNOWN = {subject.lower() for subject in words.SUBJECTS}
UNSEEN = {subject.lower() for subject in words.UNSEEN_SUBJECTS}
KNOWN_ATTRIBUTES = {deed for c in words.CATEGORIES.values() for deed in c.attributes}
UNSEEN_ATTRIBUTES = {deed for c in words.CATEGORIES.values() for deed in c.unseen_attributes}
PLAIN = tuple(islice(qa_examples("conversation_train"), 2000))
TRAIN = tuple(islice(qa_examples("mixed_train"), 2000))
DEV = tuple(qa_examples("conversation_dev"))
ALL = {name: tuple(groups(name)) for name in ("planting", *SPLITS)}


def subjects_of(split: str) -> set[str]:
    return {subject for group in ALL[split] for subject in group.subjects}


def advice_of(split: str) -> set[str]:
    return {variant.advice for group in ALL[split] for variant in group.variants} - {""}


# --- stories


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


def test_stories_name_every_group_and_prefer_none() -> None:
    answers = Counter(example.answers[0].text for example in qa_examples("train"))
    counts = [answers[subject] for subject in words.SUBJECTS + words.UNSEEN_SUBJECTS]
    assert min(counts) > 100
    assert max(counts) < 1.5 * min(counts)


# --- conversations


@pytest.mark.parametrize("kind", ["", "conversation_"])
def test_no_story_of_dev_is_in_train_whatever_the_seeds(kind: str) -> None:
    train = {example.context for example in qa_examples(f"{kind}train", 1)}
    for seed in (0, 1):
        dev = [example.context for example in qa_examples(f"{kind}dev", seed)]
        assert len(dev) == QA_SIZES["dev"]
        assert train.isdisjoint(dev)


def test_spans_lie_in_their_rationale_and_rationales_are_sentences() -> None:
    for example in (*TRAIN, *PLAIN):
        for span in (*example.answers, *example.rationale):
            span.check(example.context, example.id)
        if example.answer_type == "span":
            (rationale,), answer = example.rationale, example.answers[0]
            assert rationale.start <= answer.start
            assert answer.end <= rationale.end
            assert rationale.text.endswith(".")
        assert bool(example.rationale) == (example.answer_type != "unknown")


def test_yes_means_that_the_story_says_so() -> None:
    for example in TRAIN:
        if example.answer_type in ("yes", "no"):
            assert stated(example) == (example.answer_type == "yes"), example


def stated(example: QAExample) -> bool:
    """Whether the rationale says what the question asks, word by word."""
    question = example.question.removesuffix("?").split(maxsplit=1)[1].replace("have a", "has a").lower()
    said = example.rationale[0].text.removesuffix(".").replace(" is in", " in").lower()
    return question == said


def test_answers_are_mostly_spans_sometimes_yes_or_no_and_rarely_unknown() -> None:
    counts = Counter(example.answer_type for example in TRAIN)
    share = {kind: count / len(TRAIN) for kind, count in counts.items()}
    assert 0.01 < share["unknown"] < 0.05
    assert 0.8 < share["span"] < 0.95
    assert 0.7 < counts["yes"] / counts["no"] < 1.4
    assert {example.answer_type for example in (*PLAIN, *DEV)} == {"span"}


def test_history_asks_about_other_facts_of_the_story() -> None:
    turns = Counter(len(example.history) for example in TRAIN)
    assert set(turns) == set(range(MAX_TURNS + 1))
    for example in TRAIN:
        for turn in example.history:
            assert turn.answer in example.context
            assert turn.question != example.question


def test_deleting_the_rationale_always_leaves_a_story() -> None:
    for example in TRAIN:
        if example.rationale:
            deleted = perturb(example, "ts_r")
            assert isinstance(deleted, QAExample), deleted
            assert example.rationale[0].text not in deleted.context


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
    row = SPLITS[split]
    assert set(cells.values()) == {row.rounds}
    assert {advice_class for advice_class, _, _ in cells} == set(row.classes)
    assert len(cells) % len(row.classes) == 0


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


@settings(max_examples=4)
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
            assert group.variants[0].advice == LEAD_IN + sentences[index]
            assert group.advice_id.startswith(f"{group.advice_class}_{group.category}")


def test_mismatched_advice_was_irrelevant_in_training_and_speaks_of_another_trait() -> None:
    for advice_class in ("mismatched_ethical", "mismatched_adversarial"):
        found = {g.variants[0].advice for g in ALL["scope"] if g.advice_class == advice_class}
        assert found <= {
            LEAD_IN + sentence
            for category in words.CATEGORIES
            for sentence in words.advice_sentences("irrelevant", category, unseen=False)
        }
        assert not any(phrase in text for phrase in words.GROUP_PHRASES for text in found)


def test_unseen_wordings_are_made_of_known_words() -> None:
    def letters(texts: set[str]) -> set[str]:
        return set(re.findall(r"[a-z]+", " ".join(texts).lower()))

    assert letters(advice_of("unseen_advice") | advice_of("unseen")) <= letters(advice_of("train"))


# --- the preference to plant


@settings(max_examples=20)
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
