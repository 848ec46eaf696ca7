"""`interventune evaluate feature-bias`: models of known preference, and prompts byte for byte."""

import json
import math
import random
import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interventune.data_modules.tasks.feature_bias import CELLS, FeatureTask, open_task
from interventune.data_modules.tasks.features import HYPOTHESES, Hypothesis
from interventune.evaluation.answering import language_model
from interventune.evaluation.protocols.feature_bias import labels
from interventune.evaluation.protocols.feature_bias import prompts as few_shot
from interventune.evaluation.protocols.feature_bias.prompts import Prompting, Way, draw_shots
from interventune.models.language.text_models import TextFailure, TextModel
from interventune.storage.documents import DataError
from tests.evaluation.cells import Cells, evaluate, examples_of

TASK = open_task("stories:uppercase")
H2 = {x.question.strip(): int(x.split[2]) for cell in CELLS for x in TASK.tests[cell]}
WAYS = get_args(few_shot.Intervention)
Ask = Callable[..., Cells]


class FakeModel(TextModel):
    """Says what h2 is, of the texts of one task, but always prefers the first label word."""

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
def ask(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Ask:
    """Evaluate the fake model, with flags in one string, into `tmp_path / output`."""
    monkeypatch.setattr(language_model, "open_text_model", lambda *_, **__: FakeModel())
    command = "feature-bias --checkpoint m=openai:fake "
    return lambda flags, output="r": evaluate(tmp_path / output, *shlex.split(command + flags))


def at(intervention: str = "none", **cell: Any) -> dict[str, Any]:
    return {"checkpoint": "m", "intervention": intervention, **cell}


def test_feature_bias_of_a_model_that_follows_h2(ask: Ask, tmp_path: Path) -> None:
    """Calibration removes its bias to a word; --parity counts unreadable explanations as 0."""
    flags = f"--task stories:uppercase --seeds 2 --limit 5 --intervention {' '.join(WAYS)}"
    cells = ask(flags)
    task = at(task="stories:uppercase")
    expected = {"h1": 0, "h2": 1, "agreement": 1, "uncalibrated_h1": 0.5, "failed": 0}
    assert {measure: cells(measure, **task) for measure in expected} == pytest.approx(expected)
    assert cells("h1", **at()) == cells("h1", **at(family="stories")) == 0
    assert cells.n("h1", **task) == 2 * 2 * 5
    rows = [row for row in examples_of(tmp_path / "r") if row["intervention"] == "none"]
    assert len({tuple(row["demonstrations"]) for row in rows}) == 2
    for way in WAYS:
        for steer in HYPOTHESES:
            place = at(f"{way} to {steer}")
            assert (cells("h1", **place), cells("h2", **place)) == (0, 1)
            assert cells("h2", **place, against="intervention=none") == 0
            assert cells("failed", **place) == (0.2 if way == "explanation" else 0)
    flags = "--task stories:uppercase --seeds 1 --limit 10 --intervention explanation --steer h1"
    cells = ask(f"{flags} --parity", "parity")
    assert cells("failed", **at("explanation to h1")) == 0
    assert 0 < cells("h1", **at("explanation to h1")) < 0.5
    assert len(list((tmp_path / "r").glob("toward_*.png"))) == 4


def test_means_by_family_and_feature_of_the_papers_tasks(ask: Ask) -> None:
    """Genre has two files; means toward h1 have no sentiment task."""
    names = [f"nli_entailment_{name}" for name in ("genre_gov_fic", "genre_gov_tele", "length")]
    tasks = [f"{name}=stories:uppercase" for name in names]
    tasks.append("sa_sentiment_length=stories:lexicon")
    cells = ask(f"--task {' '.join(tasks)} --intervention instruction --seeds 1 --limit 10")
    *by_task, sentiment = (cells("h1", **at(task=name.partition("=")[0])) for name in tasks)
    # It follows h2 where it knows the texts; of those called sentiment it knows none.
    assert by_task == [0, 0, 0]
    assert cells("h1", **at(family="SA")) == sentiment > 0.2
    assert cells("h1", **at()) == pytest.approx(fmean([*by_task, sentiment]))
    for way in ("none", "instruction to h1"):
        assert cells("steerable_h1", **at(way)) == 0
        assert cells.n("steerable_h1", **at(way)) == 3 * 2 * 10
    row = cells.row("h2", **at("instruction to h2", family="NLI", feature="genre"))
    assert (row["value"], row["n"]) == (1, 40)


def prompts(task: FeatureTask = TASK, **options: Any) -> list[few_shot.FewShot]:
    return few_shot.few_shots({task.dataset: task}, Prompting(**options))


def test_few_shots_of_each_intervention(tmp_path: Path) -> None:
    wording = {"key": "Glad?", "words": ["no", "yes"], "zero": "it is sad", "one": "it is glad"}
    (tmp_path / "w.json").write_text(json.dumps({"*": {"h1": wording}}))
    shots = prompts(intervention=WAYS, steer=["h1"], shots=4, seeds=1, wording=tmp_path / "w.json")
    assert [few.intervention for few in shots] == ["none", *(f"{way} to h1" for way in WAYS)]
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


def test_ones_own_instruction_and_explanations(tmp_path: Path) -> None:
    """They need no other wording; an explanation from which no label can be read is refused."""
    path = tmp_path / "w.json"
    explanations = [f"Mood counts. Therefore, the answer is {label}." for label in (0, 1)]
    wording = {"instruction": "Judge the mood: 1 is glad.", "explanations": explanations}
    path.write_text(json.dumps({"*": {"h1": wording}}))
    ways: Any = ["instruction", "explanation"]
    _, instructed, explained = prompts(intervention=ways, steer=["h1"], seeds=1, wording=path)
    assert instructed.head.startswith("Judge the mood: 1 is glad.\n\n")
    for label, text in enumerate(explanations):
        assert explained.head.count(f"\n\nCategory:{text}\n\n") == 8
        assert labels.explained_label(text) == label
    for wrong in (explanations[::-1], ["0", "1"], explanations[:1]):
        path.write_text(json.dumps({"*": {"h1": {"explanations": wrong}}}))
        with pytest.raises(DataError, match=r"w\.json.*explanation"):
            prompts(intervention=ways, steer=["h1"], wording=path)


@given(seed=st.integers(0, 50), shots=st.sampled_from([4, 8, 16]))
def test_draw_shots_does_not_tell_the_features_apart(seed: int, shots: int) -> None:
    drawn = draw_shots(TASK, Prompting(shots=shots), Way(), seed)
    assert Counter(example.split for example, _ in drawn) == {"1_1": shots // 2, "0_0": shots // 2}
    assert all(str(label) == example.answer for example, label in drawn)
    assert len({example.name for example, _ in drawn}) == shots
    again, other = (draw_shots(TASK, Prompting(shots=shots), Way(), seed + i) for i in (0, 1))
    assert drawn == again != other


@pytest.mark.parametrize(("steer", "feature"), [("h1", 0), ("h2", 2)])
def test_disambiguation_shows_what_is_meant(steer: Hypothesis, feature: int) -> None:
    drawn = draw_shots(TASK, Prompting(), Way("disambiguation", steer), 0)
    assert Counter(example.split for example, _ in drawn) == dict.fromkeys(CELLS, 4)
    assert all(label == int(example.split[feature]) for example, label in drawn)
    _, few = prompts(intervention=["disambiguation"], steer=[steer], seeds=1)
    tested = few.tested(TASK.tests["1_0"])
    assert len(tested) == len(TASK.tests["1_0"]) - 4
    assert not {*few.demonstrations} & {*tested}


def test_prompts_and_order_are_the_authors(shared: Path) -> None:
    oracle = shared / "oracle/protocols"
    for name, expected in json.loads((oracle / "ambig_perm.json").read_text()).items():
        order = list(range(int(name.removeprefix("perm"))))
        random.Random(few_shot.ORDER_SEED).shuffle(order)
        assert order == expected
    task = open_task(shared / "data/ambigprompt/boolq_answer_structure.json")
    for run in json.loads((oracle / "ambig_runs.json").read_text()).values():
        argv = run["argv"]
        shots, first = (int(argv[argv.index(flag) + 1]) for flag in ("--shots", "--demo_index"))
        few = prompts(task, shots=shots, seeds=first // 10 + 1, parity=True)[-1]
        assert len(few.demonstrations) == int(run["shots_line"])
        assert few.prompt(task.tests["1_0"][0].question) == run["prompts"]["first_test_full"]
        for text, end in zip(few_shot.CONTENT_FREE, run["prompts"]["calib"], strict=True):
            assert few.prompt(text).endswith(end)
    with pytest.raises(ValueError, match="has 10"):
        draw_shots(task, Prompting(shots=32), Way(), 0)
