"""Full and read-only disks, files that were cut off: a clear error, and nothing that was complete is lost."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from data_modules.__main__ import main as data_command
from evaluation.__main__ import main as evaluation_command
from models.__main__ import main as models_command
from tests.chaos.training_kills import CONFIGS, SIZES, same, start_command, unreadable
from tests.malformed.outcome import CODES, accepted, everything_in, outcome, refused
from training.__main__ import main as training_command

LIMIT_S = 600
ROOM = 8_000
"""Bytes that are left on a full disk: enough to begin a file, not to finish one."""


@contextmanager
def small_disk(folder: Path, size: str = "4m") -> Iterator[Path]:
    """A file system in memory. Skipped without the right to mount one."""
    folder.mkdir(parents=True)
    try:
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)],
            capture_output=True,
            text=True,
        )
    except OSError as error:
        pytest.skip(f"no mount here: {error}")
    if done.returncode:
        pytest.skip(f"mounting is not allowed here: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def break_disk(disk: Path, trouble: str) -> None:
    """Leave `ROOM` bytes free, or allow no more writing, not even by root."""
    if trouble == "full":
        free = shutil.disk_usage(disk).free
        (disk / "filler").write_bytes(bytes(max(0, free - ROOM)))
    else:
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)


WRITERS = {
    "perturb": (
        data_command,
        "perturb --input stories:conversation_dev --variant ts --output {disk}/out.jsonl",
    ),
    "report": (evaluation_command, "bias --predictions {given}/lei.json --output {disk}/report"),
    "export": (models_command, "export {given}/bert.ckpt {disk}/model"),
}


def refuses(disk: Path, main: Callable[..., int | None], arguments: list[str]) -> None:
    """The command is refused in one line that names something on the disk."""
    refused(outcome(main, arguments), str(disk))


TROUBLES = pytest.mark.parametrize("trouble", ["full", "read-only"])


@TROUBLES
@pytest.mark.parametrize("name", WRITERS)
def test_output_on_a_disk(name: str, trouble: str, given: Path, tmp_path: Path) -> None:
    """The disk of a command's output is {trouble}

    Promise: one line; the output of an earlier run stays.
    """
    for earlier in (False, True):
        if earlier and name == "export":
            continue  # never replaces a folder
        with small_disk(tmp_path / f"disk_{earlier}") as disk:
            main, words = WRITERS[name]
            arguments = words.format(given=given, disk=disk).split()
            if earlier:
                accepted(outcome(main, arguments))
            break_disk(disk, trouble)
            before = everything_in(disk)
            refuses(disk, main, [*arguments, *["--overwrite"] * earlier])
            assert everything_in(disk) == before, "something was lost, or left behind"


def fit(root: Path, steps: int, *flags: str) -> list[str]:
    """A small training on embedded data, which goes on where it was stopped."""
    return [
        *("fit", "-c", str(CONFIGS / "experiments" / "squad.yaml")),
        *("-c", str(CONFIGS / "backbones" / "tiny_roberta.yaml"), f"--backbone.config={SIZES}"),
        *(f"--run.root={root}", "--run.version=0", "--run.wandb=off", "--ckpt_path=auto"),
        *("--run.save_every_n_steps=2", "--trainer.accelerator=cpu", "--trainer.precision=32-true"),
        *("--trainer.enable_progress_bar=false", f"--trainer.max_steps={steps}"),
        *("--data.train_qa=stories:train", "--data.limit_train_qa=80", "--data.qa_batch_size=8"),
        *("--data.val_qa.main=stories:dev", "--data.limit_val_qa=20", *flags),
    ]


@TROUBLES
def test_training_on_a_disk(trouble: str, tmp_path: Path) -> None:
    """The disk of a run becomes {trouble} while it trains

    Promise: one line; the last checkpoint stays, and the run goes on from it where there is room again.
    """
    with small_disk(tmp_path / "disk", "8m") as disk:
        cache = f"--data.cache={tmp_path / 'cache'}"
        first = start_command(fit(disk / "runs", 4, cache), tmp_path / "first.log")  # it locks its folder
        CODES.append(first.wait())
        last = disk / "runs" / "squad" / "0" / "checkpoints" / "last.ckpt"
        before = last.read_bytes()
        break_disk(disk, trouble)
        refuses(disk, training_command, fit(disk / "runs", 8, cache))
        assert last.read_bytes() == before, "the last checkpoint has changed"
        assert not unreadable(last.parent.parent), unreadable(last.parent.parent)
        if trouble == "full":
            (disk / "filler").unlink()
            accepted(outcome(training_command, fit(disk / "runs", 8, cache)))
            assert torch.load(last, weights_only=True)["global_step"] == 8


def test_a_cache_that_was_cut_off(tmp_path: Path) -> None:
    """Each file of the cache of prepared data cut off in turn

    Promise: the run makes it anew; the weights are the same to the bit.
    """
    cache, root = tmp_path / "cache", tmp_path / "runs"
    weights: list[Any] = []

    def train(name: str) -> None:
        accepted(outcome(training_command, fit(root, 3, f"--data.cache={cache}", f"--run.name={name}")))
        weights.append(torch.load(root / name / "0" / "checkpoints" / "last.ckpt")["state_dict"])

    train("first")
    files = [path for path in sorted(cache.rglob("*")) if path.is_file() and path.stat().st_size]
    assert files, "nothing was cached"
    for number, path in enumerate(files):
        if path.exists():
            raw = path.read_bytes()
            path.write_bytes(raw[: len(raw) // 2])
            train(f"cut_{number}")
            assert same(weights[-1], weights[0]), f"{path.name}: other weights from a cache that was cut off"
