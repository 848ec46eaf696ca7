"""What the confusion probes change, and what they never change."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from data_modules.choices.probes import (
    choice_paralysis,
    draw_instances,
    no_question,
    no_right_answer,
    wrong_question,
)
from data_modules.schema import ChoiceQuestion
from storage.errors import DataError

Probe = Callable[[Sequence[ChoiceQuestion], int], list[ChoiceQuestion]]
SEEDED: tuple[Probe, ...] = (wrong_question, no_right_answer)


def question(i: int, prompt: str, *choices: str, label: int = 0, benchmark: str = "toy") -> ChoiceQuestion:
    return ChoiceQuestion(str(i), prompt, choices, label, benchmark)


@st.composite
def sets(draw: st.DrawFn, least: int = 4) -> list[ChoiceQuestion]:
    """Questions with different prompts; right choices may be alike, and what is right here be wrong there."""
    count, n = draw(st.integers(least, 12)), draw(st.integers(2, 4))
    found = []
    for i in range(count):
        pool = [f"common {k}" for k in range(3)] + [f"own {i} {k}" for k in range(4)]
        choices = draw(st.permutations(pool))[:n]
        label = draw(st.integers(0, n - 1))
        found.append(question(i, f"prompt {i}", *choices, label=label))
    return found


@given(examples=sets(), seed=st.integers(0, 99), probe=st.sampled_from(SEEDED))
def test_probes_take_texts_of_others_and_keep_slot_and_number_of_choices(
    examples: list[ChoiceQuestion], seed: int, probe: Probe
) -> None:
    try:
        changed = probe(examples, seed)
    except DataError:
        rights = [e.choices[e.label] for e in examples]
        assert any(set(rights) <= {*e.choices, rights[i]} for i, e in enumerate(examples))
        return
    for i, (old, new) in enumerate(zip(examples, changed, strict=True)):
        (donor,) = new.donors
        assert donor != i
        assert (new.id, new.label, len(new.choices)) == (old.id, old.label, len(old.choices))
        assert new.probe == probe.__name__
        if probe is wrong_question:
            assert new.choices == old.choices
            assert new.prompt == examples[donor].prompt != old.prompt
        else:
            assert new.prompt == old.prompt
            assert new.choices[new.label] == examples[donor].choices[examples[donor].label]
            assert new.choices[new.label] not in old.choices
            kept = [k for k in range(len(old.choices)) if k != old.label]
            assert [new.choices[k] for k in kept] == [old.choices[k] for k in kept]


@given(examples=sets(), seed=st.integers(0, 99), n=st.integers(2, 5), heuristic=st.booleans())
def test_choice_paralysis_holds_the_right_choice_once_among_donors(
    examples: list[ChoiceQuestion], seed: int, n: int, heuristic: bool
) -> None:
    similarity = np.random.default_rng(seed).random((len(examples), len(examples)))
    try:
        changed = choice_paralysis(examples, seed, n, similarity if heuristic else None)
    except DataError:
        assert len({example.choices[example.label] for example in examples}) < n
        return
    for i, (old, new) in enumerate(zip(examples, changed, strict=True)):
        own = old.choices[old.label]
        assert new.prompt == old.prompt
        assert len(new.choices) == n
        assert new.choices.count(own) == 1
        assert new.choices[new.label] == own
        assert len(set(new.choices)) == n
        assert len(set(new.donors)) == n - 1
        assert i not in new.donors
        others = [text for k, text in enumerate(new.choices) if k != new.label]
        assert others == [examples[j].choices[examples[j].label] for j in new.donors]
        if heuristic:
            scores = [similarity[i, j] for j in new.donors]
            assert scores == sorted(scores, reverse=True)


@given(examples=sets(), seed=st.integers(0, 9))
def test_no_question_changes_nothing_but_the_prompt(examples: list[ChoiceQuestion], seed: int) -> None:
    for old, new in zip(examples, no_question(examples), strict=True):
        assert (new.prompt, new.donors) == ("", ())
        assert (new.choices, new.label, new.id) == (old.choices, old.label, old.id)
    assert wrong_question(examples, seed) == wrong_question(examples, seed)
    assert draw_instances(examples, seed, 3) == draw_instances(examples, seed, 3)


MANY = [question(i, f"how to do thing number {i}", f"right {i}", f"wrong {i}") for i in range(200)]


def test_probes_draw_by_seed_benchmark_and_probe() -> None:
    def donors(examples: Sequence[ChoiceQuestion], seed: int, probe: Probe) -> list[int]:
        return [example.donors[0] for example in probe(examples, seed)]

    other = [ChoiceQuestion(e.id, e.prompt, e.choices, e.label, "other") for e in MANY]
    first = donors(MANY, 0, wrong_question)
    for again in (donors(MANY, 1, wrong_question), donors(other, 0, wrong_question)):
        assert sum(a == b for a, b in zip(first, again, strict=True)) < 10
    assert sum(a == b for a, b in zip(first, donors(MANY, 0, no_right_answer), strict=True)) < 10


def test_choice_paralysis_keeps_the_first_donors_for_more_choices() -> None:
    drawn = draw_instances(MANY, 0, 50)
    assert len(set(drawn)) == 50
    assert drawn == sorted(drawn)
    few, many = (choice_paralysis(MANY, 0, n, targets=drawn) for n in (5, 15))
    assert all(a.donors == b.donors[:4] for a, b in zip(few, many, strict=True))
    slots = np.bincount([example.label for example in few], minlength=5)
    assert slots.min() > 2, "the slot of the own choice is shuffled"


def test_probes_never_take_texts_of_the_same_prompt() -> None:
    prompts = ("how to cook", "How to  cook", "how to sing", "how to run")
    examples = [question(i, text, f"right {i}", f"wrong {i}") for i, text in enumerate(prompts)]
    similarity = np.ones((1, 4))
    for seed in range(20):
        assert wrong_question(examples, seed)[0].donors[0] in (2, 3)
        assert no_right_answer(examples, seed)[1].donors[0] in (2, 3)
        assert set(choice_paralysis(examples, seed, 3, targets=[0])[0].donors) == {2, 3}
        most = choice_paralysis(examples, seed, 3, similarity, targets=[0])
        assert most[0].donors == (2, 3), "ties go to the lower index"
