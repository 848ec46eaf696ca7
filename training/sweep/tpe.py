"""Points drawn by Optuna's TPE (Tree-structured Parzen Estimator)."""

from pathlib import Path
from typing import Any

import optuna
from filelock import FileLock
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.samplers import TPESampler
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from .study import Grid, Point, Range, Sweep

optuna.logging.set_verbosity(optuna.logging.ERROR)


class Search(Grid):
    """The points that TPE has drawn, which study.journal records. Each is based on the values of
    those before; a point without one, because it failed or is running, counts as a bad one.
    """

    def __init__(self, sweep: Sweep, study: Path) -> None:
        super().__init__(sweep, study)
        self.lock = FileLock(study / ".lock")
        self.trials = optuna.create_study(
            storage=JournalStorage(JournalFileBackend(str(study / "study.journal"))),
            study_name=sweep.study,
            direction=sweep.direction,
            load_if_exists=True,
        )

    def points(self) -> list[Point]:
        keys = self.sweep.space.keys()
        drawn = (trial.params for trial in self.trials.get_trials(deepcopy=False))
        # A worker that dies while it draws leaves an incomplete one.
        return [Point(self.sweep, self.study, values) for values in drawn if values.keys() == keys]

    def draw(self) -> bool:
        with self.lock:
            for trial in self.trials.get_trials(deepcopy=False):
                result = Point(self.sweep, self.study, trial.params).result()
                if result.get("state") == "complete":
                    self.trials.tell(trial.number, result["value"], skip_if_finished=True)
            number = len(self.points())
            if number >= self.sweep.trials:
                return False
            self.trials.sampler = TPESampler(seed=number, constant_liar=True)
            self.trials.ask(distributions(self.sweep))
            return True


def distributions(sweep: Sweep) -> dict[str, Any]:
    """Return what Optuna draws from. ValueError for a range that is none."""
    drawn_from: dict[str, Any] = {}
    for key, values in sweep.space.items():
        if isinstance(values, Range):
            integers = isinstance(values.low, int) and isinstance(values.high, int)
            kind = IntDistribution if integers else FloatDistribution
            drawn_from[key] = kind(**values.model_dump(exclude_none=True))
        else:
            drawn_from[key] = CategoricalDistribution(values)
    return drawn_from
