"""Full and read-only disks: a clear error, and nothing that was complete is lost."""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from tests.chaos.test_kills import STORIES
from tests.mistakes.conftest import everything_in, given_files, outcome, refused
from tests.support.finished_runs import unreadable
from tests.training.conftest import Commands, launch

__all__ = ["given_files"]
pytestmark = pytest.mark.chaos
ROOM = 8_000
"""Bytes that are left on a full disk: enough to begin a file, not to finish one."""


@contextmanager
def small_disk(folder: Path, size: str = "4m") -> Iterator[Path]:
    """A file system in memory. Skipped without the right to mount one."""
    folder.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    if not shutil.which("mount") or subprocess.run(mount).returncode:
        pytest.skip("mounting is not allowed here")
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
    "data": "perturb --input stories:conversation_dev --variant ts --output {disk}/out.jsonl",
    "evaluation": "bias --predictions {inputs}/lei.json --output {disk}/report",
    "models": "{inputs}/bert.ckpt {disk}/model",
}
TROUBLES = pytest.mark.parametrize("trouble", ["full", "read-only"])


@TROUBLES
@pytest.mark.parametrize("entry", WRITERS)
def test_output_on_a_disk(entry: str, trouble: str, given_files: Path, tmp_path: Path) -> None:
    """One line; the output of an earlier run stays."""
    for earlier in (False, True):
        if earlier and entry == "models":
            continue  # an export never replaces a folder
        with small_disk(tmp_path / f"disk_{earlier}") as disk:
            arguments = WRITERS[entry].format(inputs=given_files, disk=disk).split()
            if earlier:
                assert outcome(entry, arguments)[0] == 0
            break_disk(disk, trouble)
            before = everything_in(disk)
            refused(entry, [*arguments, *["--overwrite"] * earlier], str(disk))
            assert everything_in(disk) == before, "something was lost, or left behind"


@TROUBLES
def test_training_on_a_disk(trouble: str, tmp_path: Path) -> None:
    """One line; the last checkpoint stays, and the run resumes from it where there is room."""
    with small_disk(tmp_path / "disk", "8m") as disk:
        flags = """--run.version=0 --run.save_every_n_steps=2 --ckpt_path=auto
            --data.limit_train_qa=80 --data.qa_batch_size=8 --data.limit_val_qa=20"""
        cache = f"--data.cache={tmp_path / 'cache'}"
        fit = Commands(disk / "runs", STORIES).of("fit", "squad", "roberta", cache, *flags.split())
        launch([*fit, "--trainer.max_steps=4"])  # in a process of its own, as it locks its folder
        last = disk / "runs" / "squad" / "0" / "checkpoints" / "last.ckpt"
        before = last.read_bytes()
        break_disk(disk, trouble)
        refused("training", [*fit, "--trainer.max_steps=8"], str(disk))
        assert last.read_bytes() == before, "the last checkpoint has changed"
        assert not unreadable(last.parent.parent), unreadable(last.parent.parent)
        if trouble == "full":
            (disk / "filler").unlink()
            assert outcome("training", [*fit, "--trainer.max_steps=8"])[0] == 0
            assert torch.load(last, weights_only=True)["global_step"] == 8
