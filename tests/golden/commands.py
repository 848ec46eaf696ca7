"""The user's commands, run in this process, in a room of their own."""

from __future__ import annotations

import contextlib
import csv
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock

ROOT = Path(__file__).resolve().parents[2]
CONFIGS = ROOT / "configs"
INPUTS = Path(__file__).resolve().parent / "inputs"
"""Small files in the public formats."""

TINY = {
    "bert": "vocab_size: 320, hidden_size: 32, intermediate_size: 64, num_hidden_layers: 2",
    "roberta": "vocab_size: 320, hidden_size: 32, intermediate_size: 64, num_hidden_layers: 2, "
    "pad_token_id: 1, bos_token_id: 0, eos_token_id: 2, type_vocab_size: 1",
    "xlnet": "vocab_size: 320, d_model: 32, d_inner: 64, n_layer: 2, pad_token_id: 5",
}
"""Models with weights large enough that inputs matter: `initializer_range` is set beside these."""


class Room:
    """A folder of inputs, checkpoints and outputs; everything is made at most once, whoever asks for it."""

    def __init__(self, root: Path) -> None:
        self.root, self.data = root, root / "data"
        with self.once("data") as wanted:
            if wanted:
                shutil.copytree(INPUTS, self.data)

    @contextlib.contextmanager
    def once(self, name: str) -> Iterator[bool]:
        """Whether the caller has to make `name`; another process that wants it waits."""
        mark = self.root / f".{name.replace('/', '.')}.made"
        with FileLock(f"{mark}.lock"):
            yield not mark.exists()
            mark.touch()

    def plain(self, value: Any) -> Any:
        """The same without the folders that differ between two rooms."""
        if isinstance(value, str):
            return value.replace(str(self.root), "ROOM").replace(str(ROOT), "ROOT")
        if isinstance(value, dict):
            return {self.plain(key): self.plain(item) for key, item in value.items()}
        return [self.plain(item) for item in value] if isinstance(value, list) else value

    def fit_arguments(self, experiment: str, backbone: str, *flags: str, run: str) -> list[str]:
        """`fit` on a CPU in float32."""
        return [
            "fit",
            *("-c", str(CONFIGS / "experiments" / f"{experiment}.yaml")),
            *("-c", str(CONFIGS / "backbones" / f"tiny_{backbone}.yaml")),
            f"--run.root={self.root / 'runs'}",
            f"--run.name={run}",
            "--run.version=0",
            "--run.wandb=off",
            "--data.seed=0",
            *([] if experiment == "multiple_choice" else [f"--data.cache={self.root / 'prepared'}"]),
            "--trainer.accelerator=cpu",
            "--trainer.precision=32-true",
            "--trainer.enable_progress_bar=false",
            *flags,
        ]

    def fit(self, experiment: str, backbone: str, *flags: str, run: str) -> tuple[Path, list[str]]:
        """The folder of a run, and its arguments."""
        from training.cli import main

        arguments = self.fit_arguments(experiment, backbone, *flags, run=run)
        with self.once(run) as wanted:
            if wanted:
                with one_thread():
                    main(arguments)
        return self.root / "runs" / run / "0", arguments

    def checkpoint(self, experiment: str, backbone: str, *flags: str, run: str, seed: int) -> Path:
        """The weights that a seed draws: `fit`, one step, with a learning rate of nothing."""
        small = [
            f"--seed_everything={seed}",
            f"--backbone.config={{{TINY[backbone]}, initializer_range: 0.3}}",
            "--backbone.reading_init=false",
            "--trainer.max_steps=1",
            "--model.learning_rate=0.0",
        ]
        folder, _ = self.fit(experiment, backbone, *small, *flags, run=run)
        return folder / "checkpoints" / "last.ckpt"

    def evaluate(self, protocol: str, name: str, *flags: str) -> Path:
        """The folder of a report."""
        from evaluation.__main__ import main
        from tests.evaluation.conftest import undrawn

        output = self.root / "reports" / name
        with one_thread(), undrawn():
            code = main([protocol, *flags, "--device", "cpu", "--output", str(output)])
        assert code == 0, f"evaluation {protocol}: exit code {code}"
        return output

    def write(self, *arguments: str | int, folder: Path | None = None) -> None:
        """`python -m data_modules ...` in the folder of the data, so that files hold relative names only."""
        from data_modules.__main__ import main

        with contextlib.chdir(folder or self.data):
            code = main([str(argument) for argument in arguments])
        assert code == 0, f"data_modules {arguments[0]}: exit code {code}"


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Sums in one order, on any machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def curves(run: Path) -> dict[str, list[float | None]]:
    """The columns train/loss/* of metrics.csv, in the order of steps."""
    found: dict[str, list[float | None]] = {}
    with open(run / "metrics.csv", newline="") as file:
        for row in csv.DictReader(file):
            if row["metric"].startswith("train/loss/"):
                found.setdefault(row["metric"], []).append(float(row["value"]))
    return found


def validated(run: Path) -> dict[str, float]:
    """The validation metrics of metrics.json."""
    found = json.loads((run / "metrics.json").read_text())
    return {key: value for key, value in found.items() if key.startswith("val/")}


def environment() -> dict[str, str]:
    """Of commands that start processes: this checkout, one thread, no network."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH", ""))))
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}


def digest(value: Any) -> str:
    """SHA-256 of bytes, or of a value as JSON."""
    content = value if isinstance(value, bytes) else json.dumps(value, sort_keys=True).encode()
    return hashlib.sha256(content).hexdigest()
