"""What the confusion probes change, and what they never change."""

from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interventune.data_modules.schema.questions import ChoiceQuestion
from interventune.data_modules.tasks import confusion_probes as probes
from interventune.storage.documents import DataError

TEXTS = [(f"how to {i}", (f"right {i}", f"wrong {i}")) for i in range(200)]
MANY = [ChoiceQuestion(prompt, prompt, choices, 0, "toy") for prompt, choices in TEXTS]


@st.composite
def sets(draw: st.DrawFn) -> list[ChoiceQuestion]:
    """Questions with different prompts; what is right here may be right or wrong there."""
    count, n = draw(st.integers(4, 12)), draw(st.integers(2, 4))
    questions = []
    for i in range(count):
        pool = [f"common {k}" for k in range(3)] + [f"own {i} {k}" for k in range(4)]
        choices, label = tuple(draw(st.permutations(pool))[:n]), draw(st.integers(0, n - 1))
        questions.append(ChoiceQuestion(str(i), f"prompt {i}", choices, label, "toy"))
    return questions


@given(sets(), st.integers(0, 99), st.sampled_from(get_args(probes.OtherText)))
def test_one_text_is_exchanged(examples: list[ChoiceQuestion], seed: int, probe: Any) -> None:
    every = range(len(examples))
    try:
        changed = probes.with_other_text(examples, probe, seed, every)
    except DataError:
        rights = [e.choices[e.label] for e in examples]
        assert any(set(rights) <= {*e.choices, rights[i]} for i, e in enumerate(examples))
        return
    assert changed == probes.with_other_text(examples, probe, seed, every)
    for i, (old, new) in enumerate(zip(examples, changed, strict=True)):
        (donor,) = new.donors
        assert donor != i
        texts = replace(new, prompt=old.prompt, choices=old.choices, probe="", donors=())
        assert (texts, new.probe) == (old, probe)
        if probe == "wrong_question":
            assert new.choices == old.choices
            assert new.prompt == examples[donor].prompt != old.prompt
        else:
            right = examples[donor].choices[examples[donor].label]
            assert right not in old.choices
            choices = (*old.choices[: old.label], right, *old.choices[old.label + 1 :])
            assert (new.prompt, new.choices) == (old.prompt, choices)


@given(examples=sets(), seed=st.integers(0, 99), n=st.integers(2, 5), nearest=st.booleans())
def test_choice_paralysis(examples: list[ChoiceQuestion], seed: int, n: int, nearest: bool) -> None:
    every = range(len(examples))
    similarity = np.random.default_rng(seed).random((len(examples), len(examples)))
    rights = [example.choices[example.label] for example in examples]
    try:
        changed = probes.choice_paralysis(examples, seed, every, n, similarity if nearest else None)
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
        if nearest:
            scores = [similarity[i, j] for j in new.donors]
            assert scores == sorted(scores, reverse=True)


def test_probes_draw_by_seed_benchmark_and_probe() -> None:
    expected = [replace(old, prompt="", probe="no_question") for old in MANY]
    assert probes.no_question(MANY) == expected
    other = [replace(example, benchmark="other") for example in MANY]
    wrong: probes.OtherText = "wrong_question"
    changes = (MANY, wrong, 0), (MANY, wrong, 1), (other, wrong, 0), (MANY, "no_right_answer", 0)
    changed = (probes.with_other_text(*change, range(200)) for change in changes)
    first, *rest = ([example.donors[0] for example in examples] for examples in changed)
    for again in rest:
        assert sum(a == b for a, b in zip(first, again, strict=True)) < 10


def test_choice_paralysis_keeps_the_first_donors_for_more_choices() -> None:
    drawn = probes.draw_instances(MANY, 0, 50)
    assert drawn == sorted(set(drawn)) == probes.draw_instances(MANY, 0, 50)
    few, many = (probes.choice_paralysis(MANY, 0, drawn, n) for n in (5, 15))
    assert len(few) == 50
    assert all(a.donors == b.donors[:4] for a, b in zip(few, many, strict=True))
    slots = np.bincount([example.label for example in few], minlength=5)
    assert slots.min() > 2, "the slot of the own choice is shuffled"


@pytest.mark.parametrize("seed", range(20))
def test_probes_never_take_texts_of_the_same_prompt(seed: int) -> None:
    prompts = ("how to cook", "How to  cook", "how to sing", "how to run")
    examples = [ChoiceQuestion("", text, (f"right {i}", "x"), 0) for i, text in enumerate(prompts)]
    for target, probe in enumerate(get_args(probes.OtherText)):
        assert probes.with_other_text(examples, probe, seed, [target])[0].donors[0] in (2, 3)
    assert set(probes.choice_paralysis(examples, seed, [0], 3)[0].donors) == {2, 3}
    most = probes.choice_paralysis(examples, seed, [0], 3, np.ones((1, 4)))
    assert most[0].donors == (2, 3), "ties go to the lower index"


def test_irregularities_without_words() -> None:
    """Choices of signs alone have no words to share."""
    questions = [ChoiceQuestion("", "", ("?", "!"), 1)]
    assert "Right choices have 0.00 words" in probes.irregularities(questions)
