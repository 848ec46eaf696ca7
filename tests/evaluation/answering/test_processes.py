"""Two processes report what one does; finished work stays and is not done again."""

import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path

import pandas as pd
import pytest
import torch
import torch.distributed as dist

from interventune.evaluation.__main__ import main
from interventune.evaluation.answering.work import local_device, process_group, shared, stored
from interventune.models.language.text_models import TextFailure
from interventune.storage.finished_work import FinishedWork
from tests.evaluation.conftest import undrawn
from tests.evaluation.protocol_cases import CASE_OF, Forwards
from tests.support.processes import end_on_two_ranks, launch

STOP = 400
"""Calls of modules, about two thirds of what a process makes for consistency-write."""
STATISTICS = {"t", "p"}
"""Tests of differences, which may be small: rounding counts for more."""

CHOSEN = ("faithfulness", "consistency-write", "consistency", "confusion", "feature-bias")
"""They share questions, continuations, scores, choices, and what is stored."""


def commands(home: Path, folder: Path) -> dict[str, list[str]]:
    """Every way of asking; also for groups and states, of a language model and of two models."""
    room = home / "room"
    words_of = {name: CASE_OF[name].command(room, folder / name) for name in CHOSEN}
    words_of["groups"] = CASE_OF["bias"].command(room, folder / "groups", "hf:causal")
    two = (f"a={room}/qa", f"b={room}/qa")
    words_of["states"] = CASE_OF["shift"].asking(room, folder / "states", *two)
    words_of["states"] += ["--limit", "12", "--batch-size", "3"]
    return words_of


def both(rank: int, folder: str) -> None:
    """What each of two processes does: every command, then one in which the second is killed."""
    home = Path(folder)
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}
    dist.init_process_group("gloo", init_method=f"file://{home}/meeting", rank=rank, world_size=2)
    check_shares(rank, home / "shares.jsonl")
    with undrawn(), pytest.MonkeyPatch.context() as patch:
        try:
            for command in commands(home, home / "two").values():
                assert main(command) == 0
            Forwards(patch, STOP * rank, SystemExit())
            raise SystemExit(main(commands(home, home / "killed")["consistency-write"]))
        except SystemExit:
            if rank:
                os.kill(os.getpid(), signal.SIGKILL)
            raise


class Squares:
    """Answers requests with their squares, and nothing to what is below 0."""

    identity = {"name": "squares"}  # noqa: RUF012

    def __init__(self) -> None:
        self.requests_seen: list[int] = []

    @shared
    def now(self, requests: Sequence[int]) -> Iterator[int]:
        for request in requests:
            self.requests_seen.append(request)
            yield request**2

    @stored
    def slowly(self, requests: Sequence[int], *, base: int = 0) -> Iterator[int | TextFailure]:
        for request in requests:
            self.requests_seen.append(request)
            yield TextFailure("below 0") if request < 0 else base + request**2


def check_shares(rank: int, work: Path) -> None:
    """Each request is answered once, and all get all answers in their order."""
    os.environ["LOCAL_WORLD_SIZE"] = "2"
    with process_group("cpu", work):
        for count in (0, 1, 2, 3, 200):
            model = Squares()
            assert list(model.now(range(count))) == [i**2 for i in range(count)]
            assert model.requests_seen == [*range(count)][rank::2]
        model = Squares()
        for _ in range(2):
            assert list(model.slowly([1, 2, 3, 2])) == [1, 4, 9, 4]
        assert model.requests_seen == [1, 2, 3][rank::2]


@pytest.fixture(scope="module")
def home(room: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With what two processes left in it."""
    root = tmp_path_factory.mktemp("processes")
    (root / "room").symlink_to(room)
    (first, output), (second, _) = end_on_two_ranks(both, root, limit_s=300)
    assert (first, second) == (2, -signal.SIGKILL), output
    assert "another process has ended" in output
    return root


@pytest.mark.parametrize("name", commands(Path(), Path()))
def test_two_processes_equal_one(name: str, home: Path) -> None:
    assert main(commands(home, home / "one")[name]) == 0
    one, two = home / "one" / name, home / "two" / name
    tables = [pd.read_csv(folder / "results.csv") for folder in (one, two)]
    plain = [table[~table["measure"].isin(STATISTICS)] for table in tables]
    same(*(table.drop(columns=["low", "high"]) for table in plain))
    ends = [table[["low", "high"]] for table in plain]
    same(*ends, within=1e-5)  # with few units, t has long tails
    same(*(table[table["measure"].isin(STATISTICS)] for table in tables), within=1e-4)
    same(*(pd.read_json(folder / "examples.jsonl", lines=True) for folder in (one, two)))
    works = [home / folder / f"{name}.work.jsonl" for folder in ("one", "two")]
    assert works[0].exists() == works[1].exists()
    if works[0].exists():
        assert [*FinishedWork(works[0])] == [*FinishedWork(works[1])]
        assert len(works[1].read_text().splitlines()) == len(FinishedWork(works[1]))


def same(one: pd.DataFrame, two: pd.DataFrame, within: float = 1e-6) -> None:
    """Whole numbers and words exactly, fractions nearly: other batches round otherwise."""
    pd.testing.assert_frame_equal(one, two, check_exact=False, rtol=1e-5, atol=within)


def test_finished_work_stays_when_one_of_two_processes_is_killed(home: Path) -> None:
    command = commands(home, home / "killed")["consistency-write"]
    work = home / "killed/consistency-write.work.jsonl"
    before = work.read_text().splitlines()
    assert 5 < len(before) == len(FinishedWork(work))
    assert not (home / "killed/consistency-write").exists()
    assert main(command) == 0
    assert work.read_text().splitlines()[: len(before)] == before
    folders = [home / name / "consistency-write" for name in ("two", "killed")]
    same(*(pd.read_csv(folder / "results.csv") for folder in folders))


def test_kept_answers_are_asked_for_once(tmp_path: Path) -> None:
    """Also by the next run; of another model, method or argument anew; failures each time."""
    other = Squares()
    other.identity = {"name": "other"}
    for run in range(2):
        first = Squares()
        with process_group("cpu", tmp_path / "work.jsonl"):
            assert list(first.slowly([1, 2, 1])) == [1, 4, 1]
            assert list(first.slowly([-1, 2])) == [TextFailure("below 0"), 4]
            assert list(first.slowly([2], base=3)) == [7]
            assert first.requests_seen == ([-1] if run else [1, 2, -1, 2])
            assert list(other.slowly([1])) == [1]
    assert other.requests_seen == [1]


def test_methods_of_one_name_in_two_modules_keep_answers_apart(tmp_path: Path) -> None:
    def method(model: Squares, requests: Sequence[int]) -> list[str]:
        return [method.__module__ for _ in requests]

    with process_group("cpu", tmp_path / "work.jsonl"):
        for method.__module__ in ("one", "two"):
            assert [*stored(method)(Squares(), [1])] == [method.__module__]


def test_processes_that_torchrun_starts_leave_one_report(home: Path, tmp_path: Path) -> None:
    code, output = launch("evaluation", commands(home, tmp_path)["faithfulness"], processes=2)
    assert code == 0, output
    assert output.count("report: ") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["faithfulness"]


def test_every_process_has_a_gpu_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_RANK", "1")
    for gpus, device in ((False, "auto"), (True, "cuda:1")):
        monkeypatch.setattr(torch.cuda, "is_available", lambda gpus=gpus: gpus)
        devices = [local_device(flag) for flag in ("auto", "cuda", "cpu")]
        assert devices == [device, "cuda:1", "cpu"]
