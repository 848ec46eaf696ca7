"""The compared loops train on the same questions, and are timed over all of them."""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_pre_hook

from benchmarks import training
from benchmarks.clock import SyncCounter, timed_fit
from benchmarks.trainers import SYSTEMS, Job, fit_flags, windows
from benchmarks.training import Shape, measure_shape, sizes
from benchmarks.turns import in_turns, own_processes
from benchmarks.workload import make_workload
from tests.forking import python

VOCABULARY = 400


@contextmanager
def rows_seen() -> Iterator[Counter[tuple[int, ...]]]:
    """Counts every row of token ids, without padding, that any model looks up."""
    seen: Counter[tuple[int, ...]] = Counter()

    def look(module: nn.Module, arguments: Any) -> None:
        if isinstance(module, nn.Embedding) and module.num_embeddings == VOCABULARY:
            seen.update(tuple(i for i in row if i != 0) for row in arguments[0].tolist())

    hook = register_module_forward_pre_hook(look)
    try:
        yield seen
    finally:
        hook.remove()


@pytest.fixture(scope="module")
def job_and_file(tmp_path_factory: pytest.TempPathFactory) -> tuple[Job, Path]:
    work = make_workload(tmp_path_factory.mktemp("work"), draws=[13], vocabulary=VOCABULARY)
    config = sizes(1, 32, 2, 48, VOCABULARY)
    job = Job(architecture="bert", config=config, tokenizer=work.tokenizer, batch_size=4)
    return job, work.files[0]


@pytest.mark.parametrize("name", SYSTEMS)
def test_every_system_trains_once_on_every_window(job_and_file: tuple[Job, Path], name: str) -> None:
    job, file = job_and_file
    wanted = Counter(tuple(row["input_ids"]) for row in windows(job, file))
    with rows_seen() as seen:
        measured = SYSTEMS[name](job, file, 0)
    assert seen == wanted
    assert measured.figure > 0
    assert 1 <= measured.notes["steps"] <= 13


def test_a_process_of_its_own_reports_imports_steps_and_windows(
    job_and_file: tuple[Job, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.executable", python())
    job, file = job_and_file
    flags = [*fit_flags(job, file, 0, str(tmp_path)), "--trainer.devices=1"]
    (record,) = timed_fit(flags, tmp_path, threads=1)
    assert record["windows"] == [13]
    assert record["import_seconds"] > 0
    assert record["first_step_seconds"] > record["seconds"][0] / record["steps"][0] / 100


def test_systems_take_turns_in_processes_of_their_own() -> None:
    order: list[tuple[str, int]] = []
    in_turns(["a", "b"], 2, lambda name, turn: order.append((name, turn)))
    assert order == [("a", 0), ("b", 0), ("a", 1), ("b", 1)]
    with own_processes(["a", "b"]) as call:
        first, second, other = call["a"](os.getpid), call["a"](os.getpid), call["b"](os.getpid)
    assert first == second
    assert len({first, other, os.getpid()}) == 3


def test_a_variant_that_does_not_run_is_left_out_and_without_a_gpu_nothing_is_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(training, "VARIANTS", {"interventune": (), "interventune, odd": ("--no.such=1",)})
    shape = Shape(name="small", config=sizes(1, 32, 2, 48, VOCABULARY), questions=9)
    found = training.runs(shape, 2, device="cpu")
    waits = ("waits", training.synchronisations)
    rows = measure_shape(
        "gpu/small", shape, found, 1, dict.fromkeys(found, 1e12), apart=False, extra_note=waits
    )
    assert [row["system"] for row in rows] == ["interventune", "Trainer, tuned"]
    assert {row["notes"]["steps"] for row in rows} == {5}
    assert rows[0]["notes"]["waits"] == 0
    assert "interventune, odd left out" in capsys.readouterr().out
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert training.on_gpu(repeats=1, quick=True) == []


def test_synchronisations_are_counted_after_the_first_steps() -> None:
    counter = SyncCounter(skip=1)
    said = [0, 5, 2, 0]  # before the first step ends nobody listens
    for count in said:
        for _ in range(count):
            warnings.warn("called a synchronizing CUDA operation", stacklevel=1)
        counter.on_train_batch_end(None, None, None, None, 0)  # type: ignore[arg-type]
    counter.on_train_epoch_end(None, None)  # type: ignore[arg-type]
    assert (counter.steps, counter.found) == (3, 7)
