"""Prompts byte for byte, and where demonstrations come from."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_modules.tasks.feature_bias import FeatureTask, read_task
from data_modules.tasks.own_tasks import open_task
from data_modules.tasks.wording import HYPOTHESES, Wording, own_wordings
from evaluation.protocols.feature_bias.prompts import (
    CONTENT_FREE,
    ORDER_SEED,
    FewShot,
    Intervention,
    Style,
    draw_shots,
    explained_label,
    style_of,
)
from storage.errors import DataError

WORDINGS = {
    "h1": Wording(
        "Glad?", ("no", "yes"), "Say how it feels.", ("It is sad. So the answer is 0.", "answer is 1.")
    ),
    "h2": Wording("Loud?", ("quiet", "loud"), "Say how it sounds."),
}


LEXICON = open_task("stories:lexicon")


@pytest.fixture(scope="module")
def task() -> FeatureTask:
    return open_task("stories:uppercase")


def test_a_prompt(task: FeatureTask) -> None:
    shots = draw_shots(task, shots=2, seed=0)
    first, second = (shot.example.question for shot in shots)
    answers = [shot.example.answer for shot in shots]
    head = f"{first}\n\nCategory:{answers[0]}\n\n{second}\n\nCategory:{answers[1]}\n\n"
    few = FewShot(style_of("none", {}), shots)
    assert few.test(" Is it? ") == f"{head}Is it?\n\nCategory:"
    assert [few.test(text) for text in CONTENT_FREE] == [
        f"{head}[MASK]\n\nCategory:",
        f"{head}N/A\n\nCategory:",
        f"{head}\n\nCategory:",
    ]


def test_each_intervention_shows_in_the_prompt(task: FeatureTask) -> None:
    def text(intervention: Intervention) -> str:
        shots = draw_shots(task, shots=4, seed=0, intervention=intervention)
        return FewShot(style_of(intervention, WORDINGS), shots).test("X")  # type: ignore[arg-type]

    assert text("instruction").startswith("Say how it feels.\n\n")
    assert "\n\nGlad?yes\n\n" in text("verbalizer")
    assert text("verbalizer").endswith("X\n\nGlad?")
    assert "\n\nCategory:It is sad. So the answer is 0.\n\n" in text("explanation")
    assert text("explanation").endswith("X\n\nCategory:")


@given(seed=st.integers(0, 50), shots=st.sampled_from([4, 8, 16]))
def test_demonstrations_do_not_tell_the_features_apart(seed: int, shots: int) -> None:
    task = LEXICON
    drawn = draw_shots(task, shots=shots, seed=seed)
    assert Counter(shot.example.split for shot in drawn) == {"1_1": shots // 2, "0_0": shots // 2}
    assert all(str(shot.label) == shot.example.answer for shot in drawn)
    assert len({shot.example.name for shot in drawn}) == shots
    assert drawn == draw_shots(task, shots=shots, seed=seed)
    assert drawn != draw_shots(task, shots=shots, seed=seed + 1)


@pytest.mark.parametrize("steer", HYPOTHESES)
def test_disambiguation_shows_what_is_meant(task: FeatureTask, steer: str) -> None:
    drawn = draw_shots(task, shots=16, seed=0, intervention="disambiguation", steer=steer)  # type: ignore[arg-type]
    assert Counter(shot.example.split for shot in drawn) == dict.fromkeys(("1_1", "0_0", "1_0", "0_1"), 4)
    at = 0 if steer == "h1" else 2
    assert all(shot.label == int(shot.example.split[at]) for shot in drawn)
    few = FewShot(Style(), drawn)
    shown = {shot.example for shot in drawn}
    left = few.tested(task.tests["1_0"])
    assert len(left) == len(task.tests["1_0"]) - 4
    assert not shown & set(left)


def test_parity_takes_slices_in_one_order(task: FeatureTask) -> None:
    drawn = draw_shots(task, shots=4, seed=1, parity=True)
    pool = [*task.demos["1_1"][10:12], *task.demos["0_0"][10:12]]
    assert [shot.example for shot in drawn] == [pool[i] for i in (0, 3, 1, 2)]
    with pytest.raises(DataError, match="lower --seeds"):
        draw_shots(task, shots=4, seed=10, parity=True)


def test_every_released_task_has_our_wording() -> None:
    names = "boolq_answer_length boolq_answer_qword nli_entailment_negation nli_entailment_genre_gov_tele"
    comments = "comments_toxicity_gender_lgbtq comments_toxicity_religion_muslim_jewish"
    for name in (*names.split(), *comments.split(), "sa_sentiment_lexicon_nice"):
        for steer, wording in own_wordings(name).items():
            for intervention in get_args(Intervention):
                style_of(intervention, {steer: wording}, steer)
            assert wording.explanation is not None
            assert [explained_label(text) for text in wording.explanation] == [0, 1]


def test_names_that_look_alike_do_not_borrow_a_meaning() -> None:
    """Brief is 1 of a review, long is 1 of a passage, the shorter second sentence is 1 of a pair."""
    assert own_wordings("sentiment_length")["h2"].words == ("long", "brief")
    assert own_wordings("boolq_length")["h2"].words == ("brief", "long")
    assert own_wordings("mnli_length")["h2"].key == own_wordings("nli_entailment_length")["h2"].key
    assert own_wordings("Comments-toxicity-length")["h2"].words == ("long", "brief")
    assert own_wordings("nli_entailment_uppercase")["h2"] == Wording()
    assert own_wordings("spam_length") == {"h1": Wording(), "h2": Wording()}


def test_the_label_of_an_explanation() -> None:
    texts = ("So the answer is 1.", "The answer is 1, no, the answer is the 0!", "1", "The answer is 10.")
    assert [explained_label(text) for text in texts] == [1, 0, None, None]


def test_the_authors_order(shared: Path) -> None:
    told = json.loads((shared / "oracle/protocols/ambig_perm.json").read_text())
    for name, expected in told.items():
        found = list(range(int(name.removeprefix("perm"))))
        random.Random(ORDER_SEED).shuffle(found)
        assert found == expected


def test_the_authors_prompts(shared: Path) -> None:
    task = read_task(shared / "data/ambigprompt/boolq_answer_structure.json")
    runs = json.loads((shared / "oracle/protocols/ambig_runs.json").read_text())
    for run in runs.values():
        argv = run["argv"]
        shots, first = (int(argv[argv.index(flag) + 1]) for flag in ("--shots", "--demo_index"))
        drawn = draw_shots(task, shots=shots, seed=first // 10, parity=True)
        assert len(drawn) == int(run["shots_line"])
        few = FewShot(style_of("none", {}), drawn)
        assert few.test(task.tests["1_0"][0].question) == run["prompts"]["first_test_full"]
        for prompt, end in zip(
            [few.test(text) for text in CONTENT_FREE], run["prompts"]["calib"], strict=True
        ):
            assert prompt.endswith(end)
    with pytest.raises(DataError, match="there are 10"):
        draw_shots(task, shots=32, seed=0)
