"""The file of a sweep, as in configs/sweeps/: a `fit` to repeat, with values of its keys."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, Field, model_validator

RESERVED = ("run.root", "run.name", "run.version", "ckpt_path")
LONGEST_NAME = 150


class Range(BaseModel, extra="forbid"):
    """Numbers from `low` to `high`, both included; integers if both are integers."""

    low: int | float
    high: int | float
    log: bool = False
    step: int | float | None = None


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
        ours = {*RESERVED, *self.space, *self.best_checkpoint()}
        for key in (flag[2:].partition("=")[0] for flag in self.flags):
            if key in ours:
                raise ValueError(
                    f"--{key}: is set by the sweep; leave it out (--over changes swept values)"
                )
        for key, values in self.space.items():
            if isinstance(values, list):
                # Lists and mappings as text of flags: so they compare, and fit into a table.
                texts = [flag_text(x) if isinstance(x, list | dict) else x for x in values]
                self.space[key] = texts
                if not 0 < len(values) == len({*map(flag_text, values)}):
                    raise ValueError(f"space: {key}: expected values that differ, found {values}")
            elif self.sampler == "grid":
                raise ValueError(f"space: {key}: a grid takes a list of values; ranges are for tpe")
            elif values.low > values.high:
                raise ValueError(f"space: {key}: low={values.low} is above high={values.high}")
        if (self.sampler == "tpe") != (self.trials > 0):
            raise ValueError("trials: say how many tpe draws; a grid takes every combination")
        return self

    def best_checkpoint(self) -> dict[str, str]:
        """Return the settings of `keep: best`."""
        if self.keep == "all":
            return {}
        monitor = {"checkpoint.monitor": self.metric, "checkpoint.mode": self.direction[:3]}
        return monitor | {"checkpoint.save_weights_only": "true"}

    def first(self) -> dict[str, Any]:
        """Return a point: the first of listed values, and the lower ends of ranges."""
        return {
            key: values.low if isinstance(values, Range) else values[0]
            for key, values in self.space.items()
        }

    def grid(self) -> list[dict[str, Any]]:
        """Return all points, with the last key changing fastest."""
        values: Any = self.space.values()
        return [dict(zip(self.space, point, strict=True)) for point in itertools.product(*values)]

    def arguments(self, parameters: Mapping[str, Any]) -> list[str]:
        """Return the arguments of `fit`, except for the run's folder."""
        flags = [*self.flags, *(f"--{key}={x}" for key, x in self.best_checkpoint().items())]
        texts = {key: flag_text(value) for key, value in parameters.items()}
        for key, text in texts.items():
            flags = [flag.replace(f"{{{key}}}", text) for flag in flags]
        configs = (f"-c={path}" for path in self.configs)
        return [*configs, *flags, *(f"--{key}={text}" for key, text in texts.items())]


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
