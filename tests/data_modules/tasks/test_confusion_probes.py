"""What the confusion probes change, and what they never change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interventune.data_modules.schema.questions import ChoiceQuestion
from interventune.data_modules.tasks.confusion_probes import (
    choice_paralysis,
    draw_instances,
    no_question,
    no_right_answer,
    wrong_question,
)
from interventune.storage.errors import DataError

Probe = Callable[[Sequence[ChoiceQuestion], int, Sequence[int]], list[ChoiceQuestion]]
SEEDED: tuple[Probe, ...] = (wrong_question, no_right_answer)


@st.composite
def sets(draw: st.DrawFn) -> list[ChoiceQuestion]:
    """Questions with different prompts; right choices may be alike, and what is right here be wrong
    there.
    """
    count, n = draw(st.integers(4, 12)), draw(st.integers(2, 4))
    questions = []
    for i in range(count):
        pool = [f"common {k}" for k in range(3)] + [f"own {i} {k}" for k in range(4)]
        choices = tuple(draw(st.permutations(pool))[:n])
        questions.append(
            ChoiceQuestion(str(i), f"prompt {i}", choices, draw(st.integers(0, n - 1)), "toy")
        )
    return questions


@given(examples=sets(), seed=st.integers(0, 99), probe=st.sampled_from(SEEDED))
def test_probes_take_texts_of_others_and_keep_slot_and_number_of_choices(
    examples: list[ChoiceQuestion], seed: int, probe: Probe
) -> None:
    every = range(len(examples))
    try:
        changed = probe(examples, seed, every)
    except DataError:
        rights = [e.choices[e.label] for e in examples]
        assert any(set(rights) <= {*e.choices, rights[i]} for i, e in enumerate(examples))
        return
    assert changed == probe(examples, seed, every)
    for i, (old, new) in enumerate(zip(examples, changed, strict=True)):
        (donor,) = new.donors
        assert donor != i
        texts = replace(new, prompt=old.prompt, choices=old.choices, probe="", donors=())
        assert (texts, new.probe) == (old, probe.__name__)
        if probe is wrong_question:
            assert new.choices == old.choices
            assert new.prompt == examples[donor].prompt != old.prompt
        else:
            right = examples[donor].choices[examples[donor].label]
            assert right not in old.choices
            choices = (*old.choices[: old.label], right, *old.choices[old.label + 1 :])
            assert (new.prompt, new.choices) == (old.prompt, choices)


@given(examples=sets(), seed=st.integers(0, 99), n=st.integers(2, 5), heuristic=st.booleans())
def test_choice_paralysis_holds_the_right_choice_once_among_donors(
    examples: list[ChoiceQuestion], seed: int, n: int, heuristic: bool
) -> None:
    every = range(len(examples))
    similarity = np.random.default_rng(seed).random((len(examples), len(examples)))
    rights = [example.choices[example.label] for example in examples]
    try:
        changed = choice_paralysis(examples, seed, every, n, similarity if heuristic else None)
    except DataError:
        assert len(set(rights)) < n
        return
    for i, (old, new) in enumerate(zip(examples, changed, strict=True)):
        assert new.prompt == old.prompt
        assert new.choices[new.label] == rights[i]
        assert len(set(new.choices)) == len(new.choices) == n
        assert len({i, *new.donors}) == n
        others = [text for k, text in enumerate(new.choices) if k != new.label]
        assert others == [rights[j] for j in new.donors]
        if heuristic:
            scores = [similarity[i, j] for j in new.donors]
            assert scores == sorted(scores, reverse=True)


MANY = [
    ChoiceQuestion(str(i), f"how to {i}", (f"right {i}", f"wrong {i}"), 0, "toy")
    for i in range(200)
]


def test_probes_draw_by_seed_benchmark_and_probe() -> None:
    assert no_question(MANY) == [replace(old, prompt="", probe="no_question") for old in MANY]
    other = [replace(example, benchmark="other") for example in MANY]
    drawn = [(MANY, 0, wrong_question), (MANY, 1, wrong_question), (other, 0, wrong_question)]
    first, *rest = (
        [example.donors[0] for example in probe(examples, seed, range(200))]
        for examples, seed, probe in (*drawn, (MANY, 0, no_right_answer))
    )
    for again in rest:
        assert sum(a == b for a, b in zip(first, again, strict=True)) < 10


def test_choice_paralysis_keeps_the_first_donors_for_more_choices() -> None:
    drawn = draw_instances(MANY, 0, 50)
    assert drawn == sorted(set(drawn)) == draw_instances(MANY, 0, 50)
    few, many = (choice_paralysis(MANY, 0, drawn, n) for n in (5, 15))
    assert len(few) == 50
    assert all(a.donors == b.donors[:4] for a, b in zip(few, many, strict=True))
    slots = np.bincount([example.label for example in few], minlength=5)
    assert slots.min() > 2, "the slot of the own choice is shuffled"


@pytest.mark.parametrize("seed", range(20))
def test_probes_never_take_texts_of_the_same_prompt(seed: int) -> None:
    prompts = ("how to cook", "How to  cook", "how to sing", "how to run")
    examples = [ChoiceQuestion("", text, (f"right {i}", "x"), 0) for i, text in enumerate(prompts)]
    assert wrong_question(examples, seed, [0])[0].donors[0] in (2, 3)
    assert no_right_answer(examples, seed, [1])[0].donors[0] in (2, 3)
    assert set(choice_paralysis(examples, seed, [0], 3)[0].donors) == {2, 3}
    most = choice_paralysis(examples, seed, [0], 3, np.ones((1, 4)))
    assert most[0].donors == (2, 3), "ties go to the lower index"
