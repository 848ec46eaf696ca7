"""The models that `--checkpoint` names: several of one name are seeds, and the checkpoints of a run
are its steps.

    --checkpoint ot=runs/ot/seed_*/checkpoints/best.ckpt  # seeds: a pattern
    --checkpoint ot=a.ckpt,b.ckpt,c.ckpt                  # or a list
    --checkpoint ot=runs/ot/seed_0                        # steps: a run's folder
    --checkpoint ot=runs/ot/seed_*                        # both
"""

import glob
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from .interface import named_sources

STEP = re.compile(r"(?:step_|checkpoint-)(\d+)(?:\.ckpt)?")
"""The names of kept checkpoints: ours, and the folders of transformers' Trainer."""


class Model(NamedTuple):
    """A model to evaluate."""

    name: str
    path: str
    seed: str = ""
    """What tells its run from others of the name; empty if there is one."""
    step: int | None = None
    """Its step, if several steps of its run are evaluated."""

    @property
    def place(self) -> dict[str, Any]:
        """The fields that its rows begin with."""
        fields = {"checkpoint": self.name, "run": self.seed or None, "step": self.step}
        return {name: value for name, value in fields.items() if value is not None}

    @property
    def exists(self) -> bool:
        """Whether its file or folder is there."""
        return Path(self.path.removeprefix("hf:")).exists()


def named_models(arguments: Sequence[str | Model]) -> list[Model]:
    """Return all models, in the order of their names, then of their steps; ready ones as they are.

    Raises:
        ValueError: a repeated name or path, a pattern without matches, a run without checkpoints,
            or a name with and without steps.
    """
    models = [one for one in arguments if isinstance(one, Model)]
    sources = [one for one in arguments if not isinstance(one, Model)]
    for name, source in named_sources(sources, "--checkpoint").items():
        found = [*expanded(source)]
        files = [os.path.realpath(path.removeprefix("hf:")) for *_, path in found]
        if twice := [file for file in files if files.count(file) > 1]:
            raise ValueError(f"--checkpoint {name}: names {twice[0]} twice; leave one out")
        runs = {run for run, *_ in found}
        along = len(runs) < len(found) or Path(source.removeprefix("hf:")).is_dir()
        for run, step, path in sorted(found, key=lambda one: one[1] or 0):
            if along and step is None and len(found) > 1:
                raise ValueError(f"--checkpoint {name}: mixes the steps of runs with {path}")
            models.append(Model(name, path, run if len(runs) > 1 else "", step if along else None))
    return models


def by_label(models: Sequence[Model]) -> dict[str, Model]:
    """Return the models by name, or by NAME=PATH where there are several of the name."""
    names = [model.name for model in models]
    return {
        f"{name}={model.path}" if names.count(name) > 1 else name: model
        for name, model in zip(names, models, strict=True)
    }


def expanded(source: str) -> Iterator[tuple[str, int | None, str]]:
    """Yield the run, the step (None: not known), and the path of every model of a source."""
    for path in [source] if Path(source).exists() else source.split(","):
        local = path.removeprefix("hf:")
        kind = path.removesuffix(local)
        matches = [local] if local else []
        if glob.has_magic(local) and not local.startswith("openai:"):
            matches = sorted(glob.glob(local), key=by_number)
        if not matches:
            raise ValueError(f"--checkpoint {source}: no file or folder matches {local!r}")
        for match in matches:
            for one in checkpoints_of(match) or [match]:
                yield run_of(one), step_of(one), kind + one


def checkpoints_of(folder: str) -> list[str]:
    """Return the complete checkpoints in a run's folder, by step; none for a model."""
    path = Path(folder)
    if (path / "config.json").exists():
        return []
    files = [str(file) for file in path.glob("checkpoints/step_*.ckpt")]
    # Trainer writes this file last.
    files += [str(file.parent) for file in path.glob("checkpoint-*/trainer_state.json")]
    return sorted((file for file in files if step_of(file) is not None), key=by_number)


def run_of(path: str) -> str:
    """Return the folder of the run that a kept checkpoint is from; of others the path."""
    parent = Path(path.removeprefix("hf:")).parent
    if step_of(path) is None:
        return path
    return str(parent.parent if parent.name == "checkpoints" else parent)


def step_of(path: str) -> int | None:
    """Return the step in the name of a kept checkpoint."""
    match = STEP.fullmatch(Path(path).name)
    return int(match[1]) if match else None


def by_number(path: str) -> list[str | int]:
    """A key that sorts seed_2 before seed_10."""
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", path)]
