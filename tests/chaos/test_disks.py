"""Full and read-only disks: a clear error, and nothing that was complete is lost."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from tests.chaos.test_kills import CONFIGS, SIZES, start_command
from tests.mistakes.conftest import everything_in, given_files, outcome, refused
from tests.support.finished_runs import unreadable

__all__ = ["given_files"]
pytestmark = pytest.mark.chaos
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
        "data",
        "perturb --input stories:conversation_dev --variant ts --output {disk}/out.jsonl",
    ),
    "report": ("evaluation", "bias --predictions {given}/lei.json --output {disk}/report"),
    "export": ("models", "{given}/bert.ckpt {disk}/model"),
}


def accepted(entry: str, arguments: list[str]) -> None:
    """The command ends well."""
    code, said = outcome(entry, arguments)
    assert code == 0, said


TROUBLES = pytest.mark.parametrize("trouble", ["full", "read-only"])


@TROUBLES
@pytest.mark.parametrize("name", WRITERS)
def test_output_on_a_disk(name: str, trouble: str, given_files: Path, tmp_path: Path) -> None:
    """One line; the output of an earlier run stays."""
    for earlier in (False, True):
        if earlier and name == "export":
            continue  # never replaces a folder
        with small_disk(tmp_path / f"disk_{earlier}") as disk:
            entry, words = WRITERS[name]
            arguments = words.format(given=given_files, disk=disk).split()
            if earlier:
                accepted(entry, arguments)
            break_disk(disk, trouble)
            before = everything_in(disk)
            refused(entry, [*arguments, *["--overwrite"] * earlier], str(disk))
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
    """One line; the last checkpoint stays, and the run goes on from it where there is room again."""
    with small_disk(tmp_path / "disk", "8m") as disk:
        cache = f"--data.cache={tmp_path / 'cache'}"
        first = start_command(fit(disk / "runs", 4, cache), tmp_path / "first.log")  # it locks its folder
        first.wait()
        last = disk / "runs" / "squad" / "0" / "checkpoints" / "last.ckpt"
        before = last.read_bytes()
        break_disk(disk, trouble)
        refused("training", fit(disk / "runs", 8, cache), str(disk))
        assert last.read_bytes() == before, "the last checkpoint has changed"
        assert not unreadable(last.parent.parent), unreadable(last.parent.parent)
        if trouble == "full":
            (disk / "filler").unlink()
            accepted("training", fit(disk / "runs", 8, cache))
            assert torch.load(last, weights_only=True)["global_step"] == 8
