"""Embedded stories and everyday domains: deterministic, well-formed, split as promised."""

import re
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interventune.data_modules.encoding.tokenizers import build_tokenizer
from interventune.data_modules.groups.domains import DomainSet, Split, draw, read_library
from interventune.data_modules.groups.unqover import read_subjects
from interventune.data_modules.interventions.edits import FRAMES
from interventune.data_modules.schema.groups import ADVICE_CLASSES, AdviceClass, Group
from interventune.data_modules.schema.questions import QAExample
from interventune.data_modules.sources import read_groups
from interventune.data_modules.stories.groups import advice_on, groups
from interventune.data_modules.stories.questions import qa_examples, vocabulary
from interventune.data_modules.stories.words import WORDS
from interventune.storage.documents import DataError
from tests.data_modules.fixtures.tiny_lists import advice_of

SEEDS = st.integers(0, 2**32)
MINE = Path(__file__).parents[1] / "fixtures" / "domains.yaml"
TRAIN = tuple(islice(qa_examples("mixed_train"), 2000))
OWN: dict[AdviceClass, AdviceClass]
OWN = {"irrelevant": "ethical", "mismatched_adversarial": "adversarial"}
TOKENS = "who has the ball ? SEP anna has the red ball ."
PAIRS = [
    ("bert", f"[CLS] {TOKENS.replace('SEP', '[SEP]')} [SEP]", [0] * 7 + [1] * 7),
    ("roberta", f"<s> {TOKENS.replace('SEP', '</s> </s>')} </s>", None),
    ("xlnet", f"{TOKENS.replace('SEP', '<sep>')} <sep> <cls>", [0] * 6 + [1] * 7 + [2]),
]
DOMAINS = read_library().domains
NUMBERS = {"groups": st.integers(1, 60), "number": st.integers(1, 5), "seed": st.integers(0, 3)}
SPLITS, SOME = st.sampled_from(get_args(Split)), st.none() | st.integers(1, 30)
CLASSES = st.none() | st.lists(st.sampled_from(ADVICE_CLASSES), min_size=1, unique=True)
SET = st.builds(DomainSet, split=st.none() | SPLITS, wordings=SOME, classes=CLASSES, **NUMBERS)


@pytest.mark.parametrize("kind", ["", "conversation_"])
def test_qa_examples_share_no_story_between_train_and_dev(kind: str) -> None:
    train = {example.context for example in qa_examples(f"{kind}train", 1)}
    assert train.isdisjoint(example.context for example in qa_examples(f"{kind}dev"))


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
    _, question = example.question.removesuffix("?").split(maxsplit=1)
    fact = example.rationale[0].text.removesuffix(".").replace(" is in", " in")
    return question.replace("have a", "has a").lower() == fact.lower()


@settings(max_examples=2)
@given(train_seed=SEEDS, test_seed=SEEDS)
def test_groups_heldout_are_new_even_without_their_advice(train_seed: int, test_seed: int) -> None:
    train = {group.unadvised_key for group in groups("train", train_seed)}
    for split in ("heldout", "unseen_advice"):
        assert train.isdisjoint(group.unadvised_key for group in groups(split, test_seed))


def test_vocabulary_holds_every_word_of_the_texts() -> None:
    tokenizer = build_tokenizer("bert", listed := vocabulary())
    examples = [*TRAIN, *qa_examples("dev")]
    texts = {text for e in examples for text in (e.question, e.context)}
    texts |= {"yes no unknown 0 1 bad brief dot long mark"}
    texts |= {f"|Q| {turn.question} |A| {turn.answer}" for e in examples for turn in e.history}
    texts |= {frame.replace("{answer}", "red") for frame in FRAMES}
    for split in ("planting", *WORDS.group_splits):
        variants = (variant for group in groups(split) for variant in group.variants)
        texts |= {text for v in variants for text in (v.advice, v.question, v.context)}
    words = sorted({word for text in texts for word in text.split()})
    used = {token for ids in tokenizer(words)["input_ids"] for token in ids}
    assert set(tokenizer.convert_ids_to_tokens(sorted(used))) == {*listed, "[CLS]", "[SEP]"}


@pytest.mark.parametrize(("architecture", "tokens", "segments"), PAIRS)
def test_layouts_of_pairs(architecture: str, tokens: str, segments: list[int] | None) -> None:
    tokenizer = build_tokenizer(architecture, TOKENS.split())
    encoded = tokenizer("Who has the ball?", "Anna has the red ball.")
    assert tokenizer.convert_ids_to_tokens(encoded["input_ids"]) == tokens.split()
    assert encoded.get("token_type_ids") == segments


def test_nothing_embedded_is_what_models_are_judged_on(shared: Path) -> None:
    judged = {"religion", "ethnicity", "race", "nationality"}
    judged |= {"gender", "age", "disability", "orientation"}
    for path in shared.glob("data/*/**/nouns/subjects/*"):
        if path.name != "ethnicity_bkp":  # lacks a line break
            forms = (form for subject in read_subjects(path) for form in subject.forms.values())
            judged.update(map(str.lower, forms))
    assert len(judged) > 300
    for domain in DOMAINS.values():
        for text in (*domain.nouns, *domain.subjects, *domain.people):
            words = f" {re.sub(r'[^a-z-]+', ' ', text.lower())} "
            assert not [name for name in judged if f" {name} " in words], text


@settings(max_examples=6)
@given(options=SET)
def test_draw_is_balanced_repeatable_and_speaks_of_the_right_domain(options: DomainSet) -> None:
    classes = options.classes or ADVICE_CLASSES
    groups = list(draw(options))
    assert groups == list(draw(options))
    assert len({group.key for group in groups}) == len(groups) == options.groups
    counts = Counter(group.advice_class for group in groups)
    assert max(counts[name] for name in classes) - min(counts[name] for name in classes) <= 1
    for group in groups:
        domain, advice, about = DOMAINS[group.domain], advice_of(group), group.advice_domain
        assert {*group.subjects} <= {subject.lower() for subject in domain.subjects}
        if group.advice_class == "none":
            assert (advice, group.advice_id, about) == ("", "", "")
            continue
        assert re.fullmatch(r"Note that, [a-z][\w ,'-]+\.", advice), advice
        assert re.fullmatch(rf"{group.advice_class}_{about or 'facts'}-\d+", group.advice_id)
        assert bool(about) == (group.advice_class != "facts")
        if about:
            assert (about == group.domain) == (group.advice_class in ("ethical", "adversarial"))
            nouns = (*DOMAINS[about].nouns, *DOMAINS[about].bare)
            assert any(phrase in advice for phrase in nouns)


@pytest.mark.parametrize(("other", "own"), OWN.items())
def test_advice_on_something_else_has_equal_sentences(other: AdviceClass, own: AdviceClass) -> None:
    few = (draw(DomainSet(None, 6, classes=[name], wordings=1)) for name in (other, own))
    numbers = ({group.advice_id.rpartition("-")[2] for group in drawn} for drawn in few)
    assert next(numbers) == next(numbers)
    advice = [item for category in WORDS.categories for item in advice_on(category, own, False)]
    sentences = {f"Note that, {item.sentence}" for item in advice}
    texts = [advice_of(group) for group in groups("scope") if group.advice_class == other]
    for text in texts:
        swapped = {text.replace(trait, WORDS.group_phrases[0]) for trait in WORDS.other_phrases}
        assert swapped - {text} <= sentences
        assert swapped != {text}
    assert texts


@settings(max_examples=2)
@given(seed=st.integers(0, 3), number=st.integers(1, 5), more=st.integers(1, 5))
def test_fewer_domains_and_wordings_lie_in_more(seed: int, number: int, more: int) -> None:
    def drawn(**options: Any) -> list[Group]:
        return draw(DomainSet(groups=120, classes=["ethical", "none"], seed=seed, **options))

    few, many = ({group.domain for group in drawn(number=n)} for n in (number, number + more))
    assert few < many
    few, many = ({g.advice_id for g in drawn(number=1, wordings=n)} - {""} for n in (4, 400))
    assert len(few) <= 4 < len(many)


def test_splits_share_no_domain() -> None:
    drawn = (draw(DomainSet(split, 150)) for split in get_args(Split))
    train, dev, test = ({x for g in part for x in (g.domain, g.advice_domain)} for part in drawn)
    assert train & dev == train & test == dev & test == {""}


def test_domains_of_a_file_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(mine := MINE.read_text())
    source = f"domains:all?domains={path}"
    groups = list(read_groups(f"{source}&groups=12"))
    assert {(g.domain, g.category) for g in groups} == {("badge", "luck"), ("ribbon", "luck")}
    assert any("badge" in advice_of(group) and "luck" in advice_of(group) for group in groups)
    for options, message in (
        ("groups=60&classes=none", "ribbon has fewer than 30 groups of class none"),
        ("number=3", "number=3, but there are 2"),
        ("speed=1", "the field 'speed'"),
        ("groups=1000000000000", "'groups' should be less than or equal to 100000"),
    ):
        with pytest.raises(DataError, match=message):
            list(read_groups(f"{source}&{options}"))
    path.write_text(mine.replace("nouns: [badge]", "noun: [badge]"))
    with pytest.raises(DataError, match=r"domains\.badge\.nouns"):
        list(read_groups(source))
