"""Domains as data: the embedded ones are clean and leak nothing, and sets drawn keep what they promise."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from itertools import chain
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_modules.groups.domain_sets import DomainSet, draw
from data_modules.groups.domains import embedded_library, read_library
from data_modules.groups.lei import write_lei
from data_modules.groups.planting import randomly_advised
from data_modules.groups.word_lists import read_attributes, read_subjects, read_templates
from data_modules.schema import ADVICE_CLASSES, Group
from data_modules.sources import read_groups
from storage.errors import DataError

LIBRARY = embedded_library()
JUDGED = """religion religious faith church belief creed ethnicity ethnic race racial nationality nation gay
country gender sex male female man men woman women boy girl age aged old elderly disability orientation
immigrant native christian muslim jewish african asian european american arab black white"""
SET = st.builds(
    DomainSet,
    groups=st.integers(1, 60),
    number=st.integers(1, 5),
    wordings=st.none() | st.integers(1, 30),
    classes=st.none() | st.lists(st.sampled_from(ADVICE_CLASSES), min_size=1, unique=True),
    names=st.sampled_from(("fixed", "invented")),
    contexts=st.sampled_from(("plain", "named")),
    mismatched=st.sampled_from(("any", "near")),
    paired=st.booleans(),
    split=st.none() | st.sampled_from(("train", "dev", "test")),
    split_by=st.sampled_from(("domain", "wording", "name")),
    seed=st.integers(0, 3),
)


def advice_of(group: Group) -> str:
    (advice,) = {variant.advice for variant in group.variants}
    return advice


def words_of(text: str) -> set[str]:
    return set(re.findall(r"[a-z'-]+", text.lower()))


def embedded_texts() -> list[str]:
    """Everything that the embedded domains can put into a group."""
    texts = [text for pairs in LIBRARY.wordings.values() for _, text in pairs]
    for domain in LIBRARY.domains.values():
        texts += [domain.name, domain.kin, *domain.nouns, *domain.bare, *domain.subjects, *domain.people]
        texts += [
            *domain.contexts,
            *LIBRARY.openings,
            *chain(*(chain(*rows.items()) for rows in domain.attributes.values())),
        ]
    for topic in LIBRARY.topics.values():
        texts += chain(*topic.values())  # type: ignore[arg-type]
    return texts


def test_there_are_many_domains_and_they_differ() -> None:
    domains = LIBRARY.domains.values()
    assert len(domains) >= 60
    assert all(8 <= len(domain.subjects) <= 14 for domain in domains)
    names = Counter(name.lower() for domain in domains for name in domain.subjects)
    assert max(names.values()) == 1
    nouns = Counter(noun for domain in domains for noun in {*domain.nouns, *domain.bare})
    assert max(nouns.values()) == 1
    assert min(Counter(domain.kin for domain in domains).values()) >= 2


def test_nothing_embedded_is_what_models_are_judged_on(shared: Path) -> None:
    subjects = [
        subject
        for path in sorted(shared.glob("data/*/**/nouns/subjects/*"))
        if path.name != "ethnicity_bkp"  # lacks a line break
        for subject in read_subjects(path)
    ]
    assert len(subjects) > 300
    judged = set(JUDGED.split()) | {form.lower() for subject in subjects for form in subject.forms.values()}
    found: list[tuple[str, str]] = []
    for text in embedded_texts():
        padded = f" {re.sub(r'[^a-z-]+', ' ', text.lower())} "
        found += [(name, text) for name in judged if f" {name} " in padded]
    assert not found


def test_no_attribute_or_context_is_the_papers(shared: Path) -> None:
    theirs = {
        text
        for path in shared.glob("data/*/**/activities/*")
        for attribute in read_attributes(path)
        for text in (attribute.text, attribute.negation)
    }
    slots = {
        re.sub(r"\[subj.*?\]\s*\w+", "X", template.line.partition("\t")[0])
        for path in shared.glob("data/*/**/slots/*")
        for template in read_templates(path)
    }
    ours = {
        text for rows in LIBRARY.domains["town"].attributes.values() for pair in rows.items() for text in pair
    }
    assert not ours & theirs
    assert not {re.sub(r"\{\d\}", "X", context) for context in LIBRARY.domains["town"].contexts} & slots


def test_no_advice_is_the_papers(shared: Path) -> None:
    """Not even with their nouns and topics put into our forms."""
    theirs = {
        " ".join(sentence.lower().split()).rstrip(".")
        for path in shared.glob("data/lei/interventions/*")
        for categories in json.loads(path.read_text()).values()
        for sentences in categories.values()
        for sentence in sentences
        if isinstance(sentence, str)
    }
    assert len(theirs) > 200
    for wording, listed in LIBRARY.wordings.items():
        for noun in ("religion", "ethnicity", "gender", "age", "race", "nationality"):
            domain = replace(LIBRARY.domains["town"], nouns=(noun,), bare=(noun,))
            for number in range(len(listed)):
                for topic in ("manners", "decency", "money", "success", "law", "ability")[number % 3 :: 3]:
                    sentence = LIBRARY.sentence(wording, number, domain, topic)
                    assert sentence.lower().rstrip(".") not in theirs


@pytest.mark.parametrize("wording", ["ethical", "adversarial", "irrelevant"])
def test_every_sentence_is_clean(wording: str) -> None:
    domains, topics = list(LIBRARY.domains.values()), list(LIBRARY.topics)
    listed = LIBRARY.wordings[wording]  # type: ignore[index]
    assert len(listed) >= 200
    assert len(LIBRARY.forms[wording]) >= 30  # type: ignore[index]
    openings = Counter(text.split()[0] for _, text in listed)
    assert max(openings.values()) < 0.3 * len(listed)
    for number in range(len(listed)):
        for topic in topics:
            domain = domains[(number * len(topics) + topics.index(topic)) % len(domains)]
            sentence = LIBRARY.sentence(wording, number, domain, topic)  # type: ignore[arg-type]
            assert re.fullmatch(r"[A-Z][\w ,'-]+\.", sentence), sentence
            assert "  " not in sentence


def test_no_single_word_tells_ethical_from_adversarial_advice() -> None:
    """A classifier that looks for one word gets at most so many right, forms counting alike."""
    shares = {}
    for wording in ("ethical", "adversarial"):
        listed = LIBRARY.wordings[wording]  # type: ignore[index]
        size = Counter(form for form, _ in listed)
        share = shares[wording] = Counter[str]()
        for form, text in listed:
            for word in words_of(text):
                share[word] += 1 / size[form] / len(size)  # type: ignore[assignment]
    ethical, adversarial = shares["ethical"], shares["adversarial"]
    right = {word: 0.5 + abs(ethical[word] - adversarial[word]) / 2 for word in {*ethical, *adversarial}}
    assert max(right.values()) < 0.65, max(right, key=right.__getitem__)
    negations = {"not", "no", "never", "nobody", "nothing", "cannot", "hardly", "little"}
    for wording in ("ethical", "adversarial"):
        denying = [bool(words_of(text) & negations) for _, text in LIBRARY.wordings[wording]]  # type: ignore[index]
        assert 0.25 < sum(denying) / len(denying) < 0.75


@settings(max_examples=15)
@given(options=SET)
def test_sets_are_balanced_repeatable_and_cut_names(options: DomainSet) -> None:
    asked = options.classes or ADVICE_CLASSES
    groups = list(draw(options))
    assert groups == list(draw(options))
    assert len(groups) == options.groups
    counts = Counter(group.advice_class for group in groups)
    assert max(counts[name] for name in asked) - min(counts[name] for name in asked) <= 1
    assert len({group.key for group in groups}) == len(groups)
    assert len({group.domain for group in groups}) <= (options.number or 99)
    for group in groups:
        domain = LIBRARY.domains[group.domain]
        for variant in group.variants:
            for name, span in zip(group.subjects, variant.candidates, strict=True):
                span.check(variant.context, group.key)
                assert span.text.lower() == name
                assert (name in {subject.lower() for subject in domain.subjects}) == (
                    options.names == "fixed"
                )
            if options.contexts == "named":
                opening = variant.context.partition(".")[0]
                assert any(opening.endswith(noun) for noun in domain.nouns)
        advice = advice_of(group)
        if group.advice_class == "none":
            assert (advice, group.advice_id, group.advice_domain) == ("", "", "")
            continue
        assert advice.startswith("Note that, ")
        assert advice.count(".") == 1
        about = "facts" if group.advice_class == "irrelevant" else group.advice_domain
        assert re.fullmatch(rf"{group.advice_class}_{about}-\d+", group.advice_id)
        if group.advice_class in ("ethical", "adversarial"):
            assert group.advice_domain == group.domain
        elif group.advice_class != "irrelevant":
            other = LIBRARY.domains[group.advice_domain]
            assert other != domain
            assert any(phrase in advice for phrase in (*other.nouns, *other.bare))
            assert not any(f" {phrase} " in f"{advice[:-1]} " for phrase in domain.nouns)


@settings(max_examples=10)
@given(options=SET)
def test_sets_survive_leis_layout(options: DomainSet, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("written") / "groups.json"
    groups = list(draw(options))
    write_lei(groups, path)
    assert list(read_groups(path)) == groups


@settings(max_examples=5)
@given(options=SET, more=st.integers(1, 5))
def test_fewer_domains_and_wordings_lie_in_more(options: DomainSet, more: int) -> None:
    assert options.number is not None
    options = replace(options, classes=["ethical", "none"], groups=120)
    few, many = (
        {group.domain for group in draw(replace(options, number=number))}
        for number in (options.number, options.number + more)
    )
    assert few < many
    some = {g.advice_id.rpartition("-")[2] for g in draw(replace(options, wordings=4, number=1, groups=120))}
    assert len(some - {""}) <= 4


@pytest.mark.parametrize("by", ["domain", "wording", "name"])
@pytest.mark.parametrize("names", ["fixed", "invented"])
def test_splits_share_nothing_of_what_they_are_named_after(by: str, names: str) -> None:
    found: dict[str, set[object]] = {}
    for split in ("train", "dev", "test"):
        options = DomainSet(groups=150, number=5, split=split, split_by=by, names=names, seed=len(split))  # type: ignore[arg-type]
        groups = list(draw(options))
        found[split] = {
            "domain": {name for group in groups for name in (group.domain, group.advice_domain)} - {""},
            "wording": {
                (kind, LIBRARY.wordings[kind][int(group.advice_id.rpartition("-")[2])][0])  # type: ignore[index]
                for group in groups
                if (kind := group.advice_class.removeprefix("mismatched_")) != "none"
            },
            "name": {name for group in groups for name in group.subjects},
        }[by]  # type: ignore[assignment]
        assert found[split]
    assert not found["train"] & found["dev"]
    assert not found["train"] & found["test"]
    assert not found["dev"] & found["test"]


def test_invented_names_are_fresh_and_near_advice_is_of_kin() -> None:
    groups = list(draw(DomainSet(groups=300, names="invented", mismatched="near")))
    names = [name for group in groups for name in group.subjects]
    assert len(set(names)) > 0.95 * len(names)
    assert {name[0].isupper() for name in names} == {False}  # as keys have them
    kin = {name: domain.kin for name, domain in LIBRARY.domains.items()}
    mismatched = [group for group in groups if group.advice_class.startswith("mismatched_")]
    assert all(kin[group.domain] == kin[group.advice_domain] for group in mismatched)


def test_paired_classes_ask_the_same_questions() -> None:
    asked: dict[str, set[str]] = {}
    for group in draw(DomainSet(groups=360, number=4, paired=True)):
        asked.setdefault(group.advice_class, set()).add(group.unadvised_key)
    assert len(asked) == 6
    assert all(questions == asked["none"] for questions in asked.values())


def test_what_another_file_holds_is_left_out(tmp_path: Path) -> None:
    first, second = tmp_path / "first.json", tmp_path / "second.json"
    write_lei(draw(DomainSet(groups=300, number=5)), first)
    write_lei(draw(DomainSet(groups=300, number=9, exclude=[str(first)])), second)
    keys = {group.key for group in read_groups(first)}
    assert not keys & {group.key for group in read_groups(second)}
    apart = list(draw(DomainSet(groups=60, number=9, disjoint_from=[str(first)], domains=None, seed=5)))
    known = list(read_groups(first))
    for part in (
        lambda group: {group.domain, group.advice_domain} - {""},
        lambda group: set(group.subjects),
        lambda group: {advice_of(group)} - {""},
    ):
        assert not set().union(*map(part, known)) & set().union(*map(part, apart))


def test_a_source_is_the_same_set() -> None:
    options = DomainSet(groups=60, number=7, seed=3, split="dev", classes=["none", "irrelevant"])
    source = "domains:dev?groups=60&number=7&seed=3&classes=none,irrelevant"
    assert list(read_groups(source)) == list(draw(options))


MINE = """
domains:
  badge: {nouns: [badge], people: ["member with {}"], subjects: [star badge, moon badge, sun badge]}
  ribbon: {nouns: [ribbon], people: ["guest with {}"], subjects: [wide ribbon, thin ribbon],
    attributes: {luck: {won the raffle: lost the raffle}}, contexts: ["{1} saw {2}."]}
topics:
  luck: {topic: [luck], whether: [is lucky], being: [being lucky]}
attributes:
  luck: {found a coin: lost a coin}
"""


def test_a_file_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(MINE, encoding="utf-8")
    groups = list(draw(DomainSet(groups=12, domains=str(path))))
    assert {group.domain for group in groups} == {"badge", "ribbon"}
    assert {group.category for group in groups} == {"luck"}
    assert any("badge" in advice_of(group) and "luck" in advice_of(group) for group in groups)
    with pytest.raises(DataError, match=r"domain 'ribbon', class 'none': 30 groups are asked for, 1 were"):
        list(draw(DomainSet(groups=60, domains=str(path), classes=["none"])))


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("nouns: [badge]", "noun: [badge]", r"domains\.badge\.nouns"),
        ("nouns: [badge]", "nouns: badge", r"domains\.badge\.nouns"),
        ('"member with {}"', "member", r"domains\.badge\.people\[0\]"),
        ("[wide ribbon, thin ribbon]", "[wide ribbon]", r"domains\.ribbon\.subjects"),
        ("thin ribbon", "Wide Ribbon", "a subject occurs twice"),
        ("{1} saw {2}.", "{1} saw it.", r"needs \{1\} and \{2\}"),
        ("topic: [luck]", "topic: [lu|ck]", r"topics\.luck\.topic\[0\]"),
        ("attributes: {luck", "attributes: {chance", "topic 'chance'"),
        ("  badge:", "  badge", "line"),
        ("topics:", "ethical: ['{name} says nothing.']\ntopics:", r"\{name\}"),
        ("topics:", "colour: x\ntopics:", "colour"),
    ],
)
def test_a_mistake_in_such_a_file_is_named(old: str, new: str, named: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    assert old in MINE
    path.write_text(MINE.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(DataError, match=f"mine.yaml.*{named}"):
        read_library(path)


def test_planted_advice_is_drawn_from_every_domain_of_a_file() -> None:
    groups = list(draw(DomainSet(groups=240, number=4)))
    sentences = {advice_of(group): group for group in groups if group.advice_id}
    planted = [group for group in randomly_advised(groups, share=1.0, copies=3, seed=0) if group.advice_id]
    pairs = {(group.domain, sentences[advice_of(group)].advice_domain) for group in planted}
    assert len(pairs) == 4 * 5  # any domain of the four, or plain facts
    assert {(group.category, sentences[advice_of(group)].category) for group in planted} >= {("law", "money")}
