"""The file of a sweep, as in configs/sweeps/: a `fit` to repeat, with values of its keys."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Mapping
from typing import Any, Literal

from optuna.trial import BaseTrial
from pydantic import BaseModel, Field, model_validator

RESERVED = ("run.root", "run.name", "run.version", "ckpt_path")
BEST = "--checkpoint.monitor={} --checkpoint.mode={} --checkpoint.save_weights_only=true"
"""Flags of `keep: best`."""
LONGEST_NAME = 150


class Range(BaseModel, extra="forbid"):
    """Numbers from `low` to `high`, both included; integers if both are integers."""

    low: int | float
    high: int | float
    log: bool = False
    step: int | float | None = None

    def suggest(self, trial: BaseTrial, key: str) -> float:
        if isinstance(self.low, int) and isinstance(self.high, int):
            return trial.suggest_int(
                key, self.low, self.high, step=int(self.step or 1), log=self.log
            )
        return trial.suggest_float(key, self.low, self.high, step=self.step, log=self.log)


class Sweep(BaseModel, extra="forbid"):
    """A sweep over the keys of `interventune train fit`.

    Args:
        metric: key of metrics.json by which points are compared.
        space: the values of every swept key: a list, or for `tpe` also a range.
        flags: further arguments of every point; `{KEY}` in them is the point's value of a swept
            key.
        sampler: `grid` takes every combination, `tpe` draws `trials` of them, based on the results
            so far.
        keep: `all` compares the last weights. `best` chooses best.ckpt by the metric, compares its
            scores, and reduces a finished point to its weights.
    """

    study: str = Field(pattern=r"^[\w.-]+$")
    metric: str
    direction: Literal["minimize", "maximize"]
    configs: list[str]
    space: dict[str, list[Any] | Range] = Field(min_length=1)
    flags: list[str] = []
    sampler: Literal["grid", "tpe"] = "grid"
    trials: int = 0
    keep: Literal["all", "best"] = "all"

    @model_validator(mode="after")
    def _consistent(self) -> Sweep:
        for key in (flag[2:].partition("=")[0] for flag in self.flags):
            by_keep = self.keep == "best" and f"--{key}=" in BEST
            if by_keep or key in self.space or key in RESERVED:
                raise ValueError(
                    f"--{key}: is set by the sweep; leave it out (--over changes swept values)"
                )
        for key, values in self.space.items():
            if isinstance(values, Range) and self.sampler == "grid":
                raise ValueError(f"space: {key}: a grid takes a list of values; ranges are for tpe")
            if isinstance(values, list) and (
                not values or len({*map(flag_text, values)}) < len(values)
            ):
                raise ValueError(f"space: {key}: expected values that differ, found {values}")
        if (self.sampler == "tpe") != (self.trials > 0):
            raise ValueError("trials: say how many tpe draws; a grid takes every combination")
        return self

    def points(self) -> list[dict[str, Any]]:
        """Return fixed points: for a grid all, with the last key changing fastest; for `tpe` an
        empty one.
        """
        if self.sampler == "tpe":
            return [{} for _ in range(self.trials)]
        choices = [
            map(_scalar, values) for values in self.space.values() if isinstance(values, list)
        ]
        return [dict(zip(self.space, point, strict=True)) for point in itertools.product(*choices)]

    def parameters(self, trial: BaseTrial) -> dict[str, Any]:
        """Return a trial's parameters, fixed or drawn by Optuna; lists and mappings as text of
        flags.
        """
        return {
            key: v.suggest(trial, key)
            if isinstance(v, Range)
            else trial.suggest_categorical(key, [*map(_scalar, v)])
            for key, v in self.space.items()
        }

    def arguments(self, parameters: Mapping[str, Any]) -> list[str]:
        """Return the arguments of `fit`, except for the run's folder."""
        flags = self.flags + BEST.format(self.metric, self.direction[:3]).split() * (
            self.keep == "best"
        )
        for key, value in parameters.items():
            flags = [flag.replace(f"{{{key}}}", flag_text(value)) for flag in flags]
        configs = [part for path in self.configs for part in ("-c", path)]
        return [
            *configs,
            *flags,
            *(f"--{key}={flag_text(value)}" for key, value in parameters.items()),
        ]


def _scalar(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, list | dict) else value


def flag_text(value: Any) -> str:
    """Return a value as text after `--key=`."""
    return value if isinstance(value, str) else json.dumps(value)


def folder_name(parameters: Mapping[str, Any]) -> str:
    """Return the folder of a point, named by its values:
    `trainer.max_epochs=3,model.learning_rate=1e-05`.
    """
    text = ",".join(f"{key}={flag_text(value)}" for key, value in parameters.items())
    name = re.sub(r"[^\w.,=+-]+", "_", text)
    if name == text and len(name) <= LONGEST_NAME:
        return name
    return f"{name[:LONGEST_NAME]}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
