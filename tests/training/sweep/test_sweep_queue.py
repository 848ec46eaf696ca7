"""The queue of a sweep: each point has one result, whatever two workers do at the same time or leave
undone."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import optuna
import pytest
from optuna.trial import TrialState

from tests.training.sweep.fake_sweep import fake_sweep
from training.sweep.file import Range, Sweep
from training.sweep.queue import DEATHS, ERROR, POINT, WORKER, SweepQueue, current_trials, open_storage


@pytest.fixture
def address(tmp_path: Path) -> str:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return f"sqlite:///{tmp_path / 'study.db'}"


def queue_of(address: str, sweep: Sweep) -> SweepQueue:
    return SweepQueue(sweep, open_storage(address, 1))


def draws(address: str, sweep: Sweep) -> list[dict[str, object]]:
    """The parameters of all points, taken one after another."""
    queue = queue_of(address, sweep)
    queue.fill()
    while (trial := queue.take()) is not None:
        queue.study.tell(trial.number, trial.params["x"])
    return [trial.params for trial in current_trials(queue.trials)]


def test_many_workers_take_every_point_once(address: str) -> None:
    sweep = fake_sweep()
    queue_of(address, sweep).fill()

    def take_all(_: int) -> list[int]:
        queue, taken = queue_of(address, sweep), []
        while (trial := queue.take()) is not None:
            taken.append(trial.user_attrs[POINT])
            queue.study.tell(trial.number, 0.0)
        return taken

    with ThreadPoolExecutor(4) as pool:
        taken = [point for points in pool.map(take_all, range(4)) for point in points]
    assert sorted(taken) == list(range(16))
    assert queue_of(address, sweep).ended()


def test_two_machines_that_fill_a_study_at_once_leave_every_point_once(address: str) -> None:
    sweep = fake_sweep(space={"x": [1.0, 2.0]})
    queue = queue_of(address, sweep)
    assert queue.fill()
    for trial in queue.trials:  # what the other machine adds when it saw an empty study too
        queue.study.enqueue_trial(trial.system_attrs["fixed_params"], user_attrs=trial.user_attrs)
    assert len(queue.trials) == 4
    assert draws(address, sweep) == [{"x": 1.0}, {"x": 2.0}]
    assert queue.ended()
    assert not queue.fill()


def test_a_dead_workers_trial_comes_back_until_its_retries_are_spent(address: str) -> None:
    sweep = fake_sweep(space={"x": [1.0]}, retries=2)
    queue = queue_of(address, sweep)
    queue.fill()
    for deaths in range(3):
        trial = queue.take()
        assert trial is not None
        assert trial.params == {"x": 1.0}
        assert trial.user_attrs[DEATHS] == deaths
        trial.set_user_attr(WORKER, "here:1")
        queue.release("elsewhere:1")
        assert queue.is_mine(trial.number)
        queue.release("here:1")
        assert not queue.is_mine(trial.number)
    assert queue.take() is None
    assert queue.ended()
    assert "died 3 times" in current_trials(queue.trials)[0].user_attrs[ERROR]


def test_stopping_on_request_costs_no_retry(address: str) -> None:
    queue = queue_of(address, fake_sweep(space={"x": [1.0]}, retries=0))
    queue.fill()
    for _ in range(3):
        trial = queue.take()
        assert trial is not None
        queue.put_back(trial.number)
    assert not queue.ended()


def test_a_crash_between_failing_a_trial_and_putting_it_back_loses_nothing(address: str) -> None:
    queue = queue_of(address, fake_sweep(space={"x": [1.0]}))
    queue.fill()
    trial = queue.take()
    assert trial is not None
    queue.study.tell(trial.number, state=TrialState.FAIL)  # as fail_stale_trials does, and then the crash
    assert not queue.ended()
    again = queue.take()
    assert again is not None
    assert (again.number, again.user_attrs[POINT]) == (1, 0)


def test_what_is_drawn_depends_on_seed_and_point_alone(address: str, tmp_path: Path) -> None:
    space = {
        "x": Range(low=1e-6, high=1e-3, log=True),
        "y": Range(low=1, high=9, int=True),
        "z": ["a", "b", None],
    }
    drawn = [
        draws(
            f"sqlite:///{tmp_path / str(i)}.db",
            fake_sweep(space=space, sampler="random", trials=n, seed=seed),
        )
        for i, (n, seed) in enumerate([(4, 0), (6, 0), (4, 1)])
    ]
    assert drawn[0] == drawn[1][:4]
    assert drawn[0] != drawn[2]
    assert len({str(point) for point in drawn[1]}) == 6
    assert all(1e-6 <= point["x"] <= 1e-3 and point["y"] in range(1, 10) for point in drawn[1])


def test_a_study_of_random_draws_may_be_made_longer(address: str) -> None:
    fields = {"space": {"x": Range(low=0, high=1)}, "sampler": "tpe"}
    first = draws(address, fake_sweep(**fields, trials=3))
    longer = draws(address, fake_sweep(**fields, trials=5))
    assert longer[:3] == first
    assert len(longer) == 5
