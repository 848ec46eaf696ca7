"""The trials of a sweep as a queue in Optuna's storage, shared by any number of workers on any machines.

Every combination is a *point* with a number; it waits in the study as a trial from the beginning, and workers
only take what waits. When a worker dies, its trial is failed and the point waits again as its next *attempt*.
Two workers may do the same thing at the same time, at the start or after a death: then a point has two trials
of one attempt, of which the first one counts, and whoever takes another one drops it. So nobody needs a lock,
and a crash between any two steps is repaired by the next worker that looks.

SQLite is the embedded storage, because only Optuna's RDBStorage keeps heartbeats (its journal file does not),
with transactions that take the write lock first, so that two workers cannot read the same trial as waiting.
It must not lie on a network disk: several machines share a study in PostgreSQL.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import optuna
import sqlalchemy
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.exceptions import ExperimentalWarning, UpdateFinishedTrialError
from optuna.storages import RDBStorage
from optuna.trial import FrozenTrial, Trial, TrialState, create_trial

from training.sweep.file import Scalar, Sweep, distributions, fit_arguments, grid_points, make_pruner

POINT, ATTEMPT, DEATHS = "point", "attempt", "deaths"
"""User attributes: number of the combination, how often it was put back, how often because a worker died."""
ERROR, INTERRUPTED, WORKER, FOLDER = "error", "interrupted", "worker", "folder"
"""User attributes: why a trial failed for good; that it was stopped on request; whose it is (host:pid); its
run."""

DATABASE = "study.db"


def open_storage(url: str, heartbeat: int, flag: str = "--storage") -> RDBStorage:
    """Optuna's storage of an address.

    Args:
        url: as `postgresql+psycopg://user@host/database`, or `sqlite:///FILE`.
        heartbeat: seconds between two signs of life of a running trial; after four of them it counts as dead.
        flag: where the address comes from, for the error.

    Raises:
        ValueError: it cannot be opened; the message never shows a password.
    """
    sqlite = url.startswith("sqlite")
    options: dict[str, Any] = {"connect_args": {"timeout": 60}} if sqlite else {"pool_pre_ping": True}
    for last in (False, True):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ExperimentalWarning)
                storage = RDBStorage(url, options, heartbeat_interval=heartbeat, grace_period=4 * heartbeat)
            break
        except (sqlalchemy.exc.SQLAlchemyError, ImportError, optuna.exceptions.OptunaError) as error:
            if last or isinstance(error, sqlalchemy.exc.ArgumentError | ImportError):
                raise ValueError(f"{flag} {shown(url)}: {str(error).splitlines()[0]}") from None
            time.sleep(1)  # another machine may have been creating the tables
    if sqlite:
        _write_lock_first(storage.engine)
    return storage


def shown(url: str) -> str:
    """The address without its password."""
    try:
        return sqlalchemy.engine.make_url(url).render_as_string(hide_password=True)
    except sqlalchemy.exc.ArgumentError:
        return url.partition(":")[0] + ":..."


def _write_lock_first(engine: sqlalchemy.Engine) -> None:
    """SQLite: begin every transaction with its lock, as SQLAlchemy's notes on pysqlite describe."""

    def own_transactions(connection: Any, _: Any) -> None:
        connection.isolation_level = None  # Python's module would begin only before the first write

    def begin(connection: sqlalchemy.Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    sqlalchemy.event.listen(engine, "connect", own_transactions)
    sqlalchemy.event.listen(engine, "begin", begin)
    engine.dispose()


class SweepQueue:
    """The queue of one study.

    Args:
        sweep: what is swept.
        storage: where the study is kept.
    """

    def __init__(self, sweep: Sweep, storage: RDBStorage) -> None:
        self.sweep, self.storage = sweep, storage
        self.study = optuna.create_study(
            study_name=sweep.study,
            storage=storage,
            direction=sweep.direction,
            pruner=make_pruner(sweep),
            load_if_exists=True,
        )
        self.study_id = storage.get_study_id_from_name(sweep.study)
        self.space = distributions(sweep.space)

    @property
    def trials(self) -> list[FrozenTrial]:
        """Every trial that Optuna knows, the repeated ones too."""
        return self.study.get_trials(deepcopy=False)

    def fill(self) -> bool:
        """Let every point wait that the study does not hold yet; True when it held none.

        Raises:
            ValueError: the study holds a sweep of something else.
        """
        description = self._description()
        known = self.study.user_attrs.get("sweep")
        if known not in (None, description):
            raise ValueError(
                f"study {self.sweep.study}: was begun with other arguments; give this one another name "
                f"(study:), or continue with the same. They differ in {_difference(known, description)}"
            )
        self.study.set_user_attr("sweep", description)
        held = {trial.user_attrs.get(POINT) for trial in self.trials}
        for point, fixed in enumerate(self._points()):
            if point not in held:
                self.study.enqueue_trial(fixed, user_attrs={POINT: point, ATTEMPT: 0, DEATHS: 0})
        return not held

    def _points(self) -> Sequence[dict[str, Scalar]]:
        if self.sweep.sampler == "grid":
            return grid_points(self.sweep.space)
        return [{}] * self.sweep.trials  # drawn when they are taken

    def _description(self) -> dict[str, Any]:
        """What makes two sweeps the same: more trials of `random` or `tpe` may be asked for later."""
        return {
            "arguments": fit_arguments(self.sweep, {}),
            "space": {key: repr(values) for key, values in self.space.items()},
            "metric": self.sweep.metric,
            "direction": self.sweep.direction,
            "sampler": self.sweep.sampler,
        }

    def take(self) -> Trial | None:
        """A trial that was waiting, now running with its parameters chosen; None when nothing waits."""
        self.recover()
        waiting = [t for t in self.trials if t.state == TrialState.WAITING and POINT in t.user_attrs]
        for found in sorted(waiting, key=lambda trial: (trial.user_attrs[POINT], trial.number)):
            try:
                self.beat(found.number)  # without any sign of life it could not be found dead
                mine = self.storage.set_trial_state_values(self._id(found.number), TrialState.RUNNING)
            except UpdateFinishedTrialError:
                continue
            if mine:
                return self._drawn(found)
        return None

    def _drawn(self, found: FrozenTrial) -> Trial | None:
        if any(same_attempt(found, other) and other.number < found.number for other in self.trials):
            self.fail(found.number, "a second trial of the same point")
            return self.take()
        # The same draw whoever takes it: from the seed and the point, and for tpe what is known by then.
        point = found.user_attrs[POINT]
        self.study.sampler = self._sampler(np.random.SeedSequence([self.sweep.seed, point]))
        trial = Trial(self.study, self._id(found.number))
        for key, distribution in self.space.items():
            suggest(trial, key, distribution)
        return trial

    def _sampler(self, seed: np.random.SeedSequence) -> optuna.samplers.BaseSampler:
        number = int(seed.generate_state(1)[0])
        if self.sweep.sampler != "tpe":
            return optuna.samplers.RandomSampler(seed=number)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)
            return optuna.samplers.TPESampler(seed=number, constant_liar=True)

    def recover(self) -> None:
        """Fail the trials that show no sign of life, and let the points wait again that lost theirs."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)
            optuna.storages.fail_stale_trials(self.study)
        for lost in current_trials(self.trials):
            if lost.state == TrialState.FAIL and ERROR not in lost.user_attrs:
                self.study.add_trial(self._next_attempt(lost))

    def _next_attempt(self, lost: FrozenTrial) -> FrozenTrial:
        kept = {key: lost.user_attrs[key] for key in (POINT, ATTEMPT, DEATHS)}
        kept[ATTEMPT] += 1
        kept[DEATHS] += INTERRUPTED not in lost.user_attrs
        fixed = {**lost.system_attrs.get("fixed_params", {}), **lost.params}
        if kept[DEATHS] > self.sweep.retries:
            kept[ERROR] = f"its worker died {kept[DEATHS]} times (killed, or out of memory?)"
        return create_trial(
            state=TrialState.FAIL if ERROR in kept else TrialState.WAITING,
            params=lost.params if ERROR in kept else None,
            distributions=lost.distributions if ERROR in kept else None,
            system_attrs={"fixed_params": fixed},
            user_attrs=kept,
        )

    def is_mine(self, number: int) -> bool:
        """Whether a trial still runs; not where somebody found it dead, as after a long suspension."""
        return self.trial(number).state == TrialState.RUNNING

    def trial(self, number: int) -> FrozenTrial:
        """What is known of a trial."""
        return self.storage.get_trial(self._id(number))

    def _id(self, number: int) -> int:
        return self.storage.get_trial_id_from_study_id_trial_number(self.study_id, number)

    def beat(self, number: int) -> None:
        """Show a sign of life of a running trial."""
        self.storage.record_heartbeat(self._id(number))

    def fail(self, number: int, error: str, **more: str) -> None:
        """End a trial for good; `error` says why."""
        for key, value in {ERROR: error, **more}.items():
            self.storage.set_trial_user_attr(self._id(number), key, value)
        self.study.tell(number, state=TrialState.FAIL)

    def lose(self, number: int) -> None:
        """End a trial whose process was killed from outside; its point waits again, one retry poorer."""
        self.study.tell(number, state=TrialState.FAIL, skip_if_finished=True)
        self.recover()

    def put_back(self, number: int) -> None:
        """End a trial that was stopped on request; its point waits again."""
        self.storage.set_trial_user_attr(self._id(number), INTERRUPTED, True)
        self.lose(number)

    def release(self, worker: str) -> None:
        """Let the points wait again that a dead worker (host:pid) had taken."""
        for trial in self.trials:
            if trial.state == TrialState.RUNNING and trial.user_attrs.get(WORKER) == worker:
                self.lose(trial.number)

    def ended(self) -> bool:
        """Whether every point has its result."""
        return all(has_result(trial) for trial in current_trials(self.trials))


def suggest(trial: Trial, key: str, distribution: BaseDistribution) -> None:
    """Choose a value, or take the one that is fixed."""
    if isinstance(distribution, IntDistribution):
        trial.suggest_int(
            key, distribution.low, distribution.high, step=distribution.step, log=distribution.log
        )
    elif isinstance(distribution, FloatDistribution):
        low, high, step = distribution.low, distribution.high, distribution.step
        trial.suggest_float(key, low, high, step=step, log=distribution.log)
    elif isinstance(distribution, CategoricalDistribution):
        trial.suggest_categorical(key, distribution.choices)


def same_attempt(one: FrozenTrial, other: FrozenTrial) -> bool:
    """Whether two trials are the same attempt at the same point."""
    return all(one.user_attrs.get(key) == other.user_attrs.get(key) for key in (POINT, ATTEMPT))


def has_result(trial: FrozenTrial) -> bool:
    """Whether a trial has ended for good."""
    return trial.state.is_finished() and (trial.state != TrialState.FAIL or ERROR in trial.user_attrs)


def current_trials(trials: Sequence[FrozenTrial]) -> list[FrozenTrial]:
    """For every point the trial that counts: of the latest attempt the first; by point."""
    found: dict[int, FrozenTrial] = {}
    for trial in sorted(trials, key=lambda trial: trial.number):
        if POINT not in trial.user_attrs:
            continue
        point = trial.user_attrs[POINT]
        if point not in found or trial.user_attrs[ATTEMPT] > found[point].user_attrs[ATTEMPT]:
            found[point] = trial
    return [found[point] for point in sorted(found)]


def _difference(known: dict[str, Any], wanted: dict[str, Any]) -> str:
    return "; ".join(_changes(known, wanted))


def _changes(known: dict[str, Any], wanted: dict[str, Any]) -> Iterator[str]:
    for key, value in wanted.items():
        if known.get(key) != value:
            yield f"{key}: {known.get(key)} there, {value} here"
