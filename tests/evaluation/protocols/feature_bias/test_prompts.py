"""Prompts byte for byte, and where demonstrations come from."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_modules.tasks.feature_bias import FeatureTask, open_task
from data_modules.tasks.features import HYPOTHESES, Hypothesis
from evaluation.protocols.feature_bias.prompts import (
    CONTENT_FREE,
    ORDER_SEED,
    FewShot,
    Intervention,
    Prompting,
    draw_shots,
    few_shots,
)
from storage.errors import DataError

TASK = open_task("stories:uppercase")


def prompts(task: FeatureTask = TASK, **options: Any) -> list[FewShot]:
    return few_shots({task.dataset: task}, Prompting(**options))


def test_few_shots_without_an_intervention() -> None:
    (few,) = prompts(shots=2, seeds=1)
    first, second = few.demonstrations
    head = f"{first.question}\n\nCategory:{first.answer}\n\n{second.question}\n\nCategory:{second.answer}\n\n"
    assert few.prompt(" Is it? ") == f"{head}Is it?\n\nCategory:"
    free = [few.prompt(text) for text in CONTENT_FREE]
    assert free == [f"{head}{text}\n\nCategory:" for text in ("[MASK]", "N/A", "")]


def test_few_shots_of_each_intervention(tmp_path: Path) -> None:
    wording = {"key": "Glad?", "words": ["no", "yes"], "zero": "it is sad", "one": "it is glad"}
    (tmp_path / "w.json").write_text(json.dumps({"*": {"h1": wording}}))
    ways = list(get_args(Intervention))
    found = prompts(intervention=ways, steer=["h1"], shots=4, seeds=1, wording=tmp_path / "w.json")
    assert [few.intervention for few in found] == ["none", *(f"{way} to h1" for way in ways)]
    text = {few.intervention: few.prompt("X") for few in found}
    assert text["instruction to h1"].startswith("Write 1 when it is glad, and 0 when it is sad.\n\n")
    assert "\n\nGlad?yes\n\n" in text["verbalizer to h1"]
    assert text["verbalizer to h1"].endswith("X\n\nGlad?")
    assert "\n\nCategory:Here, it is sad, so the answer is 0.\n\n" in text["explanation to h1"]
    assert text["explanation to h1"].endswith("X\n\nCategory:")


@given(seed=st.integers(0, 50), shots=st.sampled_from([4, 8, 16]))
def test_draw_shots_does_not_tell_the_features_apart(seed: int, shots: int) -> None:
    drawn = draw_shots(TASK, Prompting(shots=shots), seed=seed)
    assert Counter(example.split for example, _ in drawn) == {"1_1": shots // 2, "0_0": shots // 2}
    assert all(str(label) == example.answer for example, label in drawn)
    assert len({example.name for example, _ in drawn}) == shots
    assert drawn == draw_shots(TASK, Prompting(shots=shots), seed=seed)
    assert drawn != draw_shots(TASK, Prompting(shots=shots), seed=seed + 1)


@pytest.mark.parametrize("steer", HYPOTHESES)
def test_disambiguation_shows_what_is_meant(steer: Hypothesis) -> None:
    drawn = draw_shots(TASK, Prompting(), "disambiguation", steer)
    assert Counter(example.split for example, _ in drawn) == dict.fromkeys(("1_1", "0_0", "1_0", "0_1"), 4)
    assert all(label == int(example.split[0 if steer == "h1" else 2]) for example, label in drawn)
    few = prompts(intervention=["disambiguation"], steer=[steer], seeds=1)[1]
    tested = few.tested(TASK.tests["1_0"])
    assert len(tested) == len(TASK.tests["1_0"]) - 4
    assert not {*few.demonstrations} & {*tested}


def test_prompts_and_order_are_the_authors(shared: Path) -> None:
    orders = json.loads((shared / "oracle/protocols/ambig_perm.json").read_text())
    for name, expected in orders.items():
        order = list(range(int(name.removeprefix("perm"))))
        random.Random(ORDER_SEED).shuffle(order)
        assert order == expected
    task = open_task(shared / "data/ambigprompt/boolq_answer_structure.json")
    runs = json.loads((shared / "oracle/protocols/ambig_runs.json").read_text())
    for run in runs.values():
        argv = run["argv"]
        shots, first = (int(argv[argv.index(flag) + 1]) for flag in ("--shots", "--demo_index"))
        few = prompts(task, shots=shots, seeds=first // 10 + 1, parity=True)[-1]
        assert len(few.demonstrations) == int(run["shots_line"])
        assert few.prompt(task.tests["1_0"][0].question) == run["prompts"]["first_test_full"]
        for text, end in zip(CONTENT_FREE, run["prompts"]["calib"], strict=True):
            assert few.prompt(text).endswith(end)
    with pytest.raises(DataError, match="has 10"):
        draw_shots(task, Prompting(shots=32))
