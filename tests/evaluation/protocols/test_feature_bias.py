"""`interventune evaluate feature-bias`: models of known preference, and prompts byte for byte."""

from __future__ import annotations

import json
import math
import random
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interventune.data_modules.tasks.feature_bias import CELLS, FeatureTask, open_task
from interventune.data_modules.tasks.features import HYPOTHESES, Hypothesis
from interventune.evaluation.protocols.feature_bias.prompts import (
    CONTENT_FREE,
    ORDER_SEED,
    FewShot,
    Intervention,
    Prompting,
    Way,
    draw_shots,
    few_shots,
)
from interventune.models.language.text_models import TextFailure, TextModel
from interventune.storage.errors import DataError
from tests.evaluation.checkpoints import evaluate, examples_of

TASK = open_task("stories:uppercase")
H2 = {x.question.strip(): int(x.split[2]) for cell in CELLS for x in TASK.tests[cell]}
ASK = shlex.split("feature-bias --checkpoint m=openai:fake --task stories:uppercase --seeds 2")


class FakeModel(TextModel):
    """Says what h2 is, of the texts of one task, but prefers the first label word whatever it
    reads.
    """

    name = "openai:fake@http://x/v1"
    identity: dict[str, Any] = {"max_new_tokens": 1}  # noqa: RUF012

    def label_of(self, prompt: str) -> int | None:
        return H2.get(prompt.rpartition("\n\n")[0].rpartition("\n\n")[2])

    def next_token_logprobs(
        self, prompts: Sequence[str], labels: Sequence[str], *, after: str = "", top: int = 0
    ) -> Iterator[tuple[float, ...] | TextFailure]:
        for prompt in prompts:
            assert prompt.endswith(after)
            one = {None: 0.1, 0: 0.05, 1: 0.15}[self.label_of(prompt)]
            yield math.log(1 - one), math.log(one)

    def complete(self, prompts: Sequence[str]) -> Iterator[str | TextFailure]:
        for i, prompt in enumerate(prompts):
            explanation = f"So the answer is {self.label_of(prompt)}.\n\nMore"
            yield explanation if i % 5 else "I cannot tell."


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeModel:
    model = FakeModel()
    monkeypatch.setattr(
        "interventune.evaluation.protocols.feature_bias.labels.open_model", lambda *_, **__: model
    )
    return model


def at(intervention: str = "none", **cell: Any) -> dict[str, Any]:
    return {"checkpoint": "m", "intervention": intervention, **cell}


def test_feature_bias_of_a_model_that_follows_h2(fake: FakeModel, tmp_path: Path) -> None:
    """Its bias to one label word, which hides what it learned, is calibrated away."""
    cells = evaluate(tmp_path / "r", *ASK, "--limit", "20")
    task = at(task="stories:uppercase")
    expected = {"h1": 0, "h2": 1, "agreement": 1, "uncalibrated_h1": 0.5, "failed": 0}
    assert {measure: cells(measure, **task) for measure in expected} == pytest.approx(expected)
    assert cells("h1", **at()) == cells("h1", **at(family="stories")) == 0
    assert cells.n("h1", **task) == 2 * 2 * 20
    assert len({tuple(row["demonstrations"]) for row in examples_of(tmp_path / "r")}) == 2


def test_interventions_are_compared_with_none(fake: FakeModel, tmp_path: Path) -> None:
    """With --parity an unreadable explanation counts as 0."""
    ways = get_args(Intervention)
    flags = [*ASK, "--intervention", *ways, "--seeds", "1", "--limit", "10"]
    cells = evaluate(tmp_path / "r", *flags)
    for way in ways:
        for steer in ("h1", "h2"):
            place = at(f"{way} to {steer}")
            assert (cells("h1", **place), cells("h2", **place)) == (0, 1)
            assert cells("h2", **place, against="intervention=none") == 0
            assert cells("failed", **place) == (0.2 if way == "explanation" else 0)
    cells = evaluate(tmp_path / "parity", *flags, "--parity")
    assert cells("failed", **at("explanation to h1")) == 0
    assert 0 < cells("h1", **at("explanation to h1")) < 0.5
    assert len(list((tmp_path / "r").glob("toward_*.png"))) == 4


NLI = ("genre_gov_fic", "genre_gov_tele", "length")
PAPER = [f"nli_entailment_{name}=stories:uppercase" for name in NLI]
PAPER += ["sa_sentiment_length=stories:lexicon"]


def test_means_by_family_and_feature_of_the_papers_tasks(fake: FakeModel, tmp_path: Path) -> None:
    """Genre has two files; means toward h1 have no sentiment task."""
    flags = ["--intervention", "instruction", "--seeds", "1", "--limit", "10", "--task", *PAPER]
    cells = evaluate(tmp_path / "r", *ASK[:3], *flags)
    by_task = [cells("h1", **at(task=name.partition("=")[0])) for name in PAPER]
    # It follows h2 where it knows the texts; of those called sentiment it knows none.
    assert by_task[:3] == [0, 0, 0]
    assert by_task[3] > 0.2
    assert cells("h1", **at()) == pytest.approx(fmean(by_task))
    for way in ("none", "instruction to h1"):
        assert cells("steerable_h1", **at(way)) == 0
        assert cells.n("steerable_h1", **at(way)) == 3 * 2 * 10
    assert cells("h1", **at(family="SA")) == by_task[3]
    assert cells("h2", **at("instruction to h2", family="NLI", feature="genre")) == 1
    assert cells.n("h2", **at("instruction to h2", family="NLI", feature="genre")) == 40


def prompts(task: FeatureTask = TASK, **options: Any) -> list[FewShot]:
    return few_shots({task.dataset: task}, Prompting(**options))


def test_few_shots_of_each_intervention(tmp_path: Path) -> None:
    wording = {"key": "Glad?", "words": ["no", "yes"], "zero": "it is sad", "one": "it is glad"}
    (tmp_path / "w.json").write_text(json.dumps({"*": {"h1": wording}}))
    ways = list(get_args(Intervention))
    shots = prompts(intervention=ways, steer=["h1"], shots=4, seeds=1, wording=tmp_path / "w.json")
    assert [few.intervention for few in shots] == ["none", *(f"{way} to h1" for way in ways)]
    text = {few.intervention.partition(" ")[0]: few.prompt(" X ") for few in shots}
    for name, key, label in (
        ("none", "Category:", "1"),
        ("verbalizer", "Glad?", "yes"),
        ("instruction", "Category:", "0"),
        ("explanation", "Category:", "Here, it is sad, so the answer is 0."),
    ):
        assert f"\n\n{key}{label}\n\n" in text[name]
        assert text[name].endswith(f"\n\nX\n\n{key}")
    assert text["instruction"].startswith("Write 1 when it is glad, and 0 when it is sad.\n\n")


@given(seed=st.integers(0, 50), shots=st.sampled_from([4, 8, 16]))
def test_draw_shots_does_not_tell_the_features_apart(seed: int, shots: int) -> None:
    drawn = draw_shots(TASK, Prompting(shots=shots), Way(), seed)
    assert Counter(example.split for example, _ in drawn) == {"1_1": shots // 2, "0_0": shots // 2}
    assert all(str(label) == example.answer for example, label in drawn)
    assert len({example.name for example, _ in drawn}) == shots
    assert drawn == draw_shots(TASK, Prompting(shots=shots), Way(), seed)
    assert drawn != draw_shots(TASK, Prompting(shots=shots), Way(), seed + 1)


@pytest.mark.parametrize("steer", HYPOTHESES)
def test_disambiguation_shows_what_is_meant(steer: Hypothesis) -> None:
    drawn = draw_shots(TASK, Prompting(), Way("disambiguation", steer), 0)
    assert Counter(example.split for example, _ in drawn) == dict.fromkeys(CELLS, 4)
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
        draw_shots(task, Prompting(shots=32), Way(), 0)
