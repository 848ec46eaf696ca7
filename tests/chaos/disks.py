"""Full and read-only disks, files that were cut off: a clear error, and nothing that was complete is lost."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from data_modules.__main__ import main as data_command
from evaluation.__main__ import main as evaluation_command
from models.__main__ import main as models_command
from tests.chaos.training_kills import CONFIGS, SIZES, unreadable
from training.__main__ import main as training_command

_ERROR = re.compile(r"^(?:[\w. -]+: )?error: .*", re.M)
ROOM = 8_000
"""Bytes that are left on a full disk: enough to begin a file, not to finish one."""


class Skipped(Exception):  # noqa: N818  no error
    """This machine does not allow what a test needs."""


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
        raise Skipped(f"no mount here: {error}") from error
    if done.returncode:
        raise Skipped(f"mounting is not allowed here: {done.stderr.strip()}")
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


def run(main: Callable[..., int | None], arguments: list[str]) -> tuple[int, str]:
    """Exit code and error message of a command in this process; any exception goes through."""
    said = io.StringIO()
    before, sys.argv = sys.argv, ["command", *arguments]
    try:
        with redirect_stderr(said), redirect_stdout(io.StringIO()):
            code = main(arguments) if main.__code__.co_argcount else main()
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else 1
    finally:
        sys.argv = before
    found = _ERROR.findall(said.getvalue())
    assert len(found) == bool(code), f"exit code {code} with {len(found)} errors: {said.getvalue()[-1500:]}"
    return code or 0, "".join(found)


def succeeds(main: Callable[..., int | None], arguments: list[str]) -> None:
    """Exit code 0."""
    code, error = run(main, arguments)
    assert code == 0, error


def fails(main: Callable[..., int | None], arguments: list[str], *words: str) -> None:
    """One error, with these words."""
    code, error = run(main, arguments)
    assert code, f"was accepted: {arguments}"
    for word in words:
        assert word in error, f"{word!r} is not in: {error}"


def snapshot(folder: Path) -> dict[str, bytes]:
    """All files by name, hidden ones too."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "filler"
    }


Command = tuple[Callable[..., int | None], list[str]]


def _stories(work: Path, disk: Path) -> Command:
    return data_command, ["stories", "--split", "dev", "--kind", "qa", "--output", str(disk / "out.json")]


def _perturb(work: Path, disk: Path) -> Command:
    flags = ["--dataset", "stories", "--input", "stories:conversation_dev", "--variant", "ts"]
    return data_command, ["perturb", *flags, "--output", str(disk / "out.jsonl")]


def _report(work: Path, disk: Path) -> Command:
    from tests.evaluation.protocols.bias.predictions import lei, rows

    predictions = work / "lei.json"
    predictions.write_text(json.dumps(lei(rows(("ethical", "adversarial")))))
    return evaluation_command, ["bias", "--predictions", str(predictions), "--output", str(disk / "report")]


def _export(work: Path, disk: Path) -> Command:
    from tests.evaluation.checkpoints import save_ckpt

    return models_command, ["export", str(save_ckpt(work / "model.ckpt")), str(disk / "model")]


WRITERS = {"stories": _stories, "perturb": _perturb, "report": _report, "export": _export}


def check_writer(name: str, trouble: str, work: Path) -> None:
    """A command whose disk is full or read-only, first with nothing there, then with its earlier output."""
    for earlier in (False, True):
        if earlier and name == "export":
            continue  # never replaces a folder
        with small_disk(work / f"{name}_{trouble}_{earlier}") as disk:
            main, arguments = WRITERS[name](work, disk)
            if earlier:
                succeeds(main, arguments)
            before = snapshot(disk)
            break_disk(disk, trouble)
            fails(main, [*arguments, *["--overwrite"] * earlier], str(disk))
            assert snapshot(disk) == before, "something was lost, or left behind"


def _fit(root: Path, steps: int, *flags: str) -> list[str]:
    return [
        *("fit", "-c", str(CONFIGS / "experiments" / "squad.yaml")),
        *("-c", str(CONFIGS / "backbones" / "tiny_roberta.yaml"), f"--backbone.config={SIZES}"),
        *(f"--run.root={root}", "--run.version=0", "--run.wandb=off", "--ckpt_path=auto"),
        *("--run.save_every_n_steps=2", "--trainer.accelerator=cpu", "--trainer.precision=32-true"),
        *("--trainer.enable_progress_bar=false", f"--trainer.max_steps={steps}"),
        *("--data.train_qa=stories:train", "--data.limit_train_qa=80", "--data.qa_batch_size=8"),
        *("--data.val_qa.main=stories:dev", "--data.limit_val_qa=20", *flags),
    ]


def check_training(trouble: str, work: Path) -> None:
    """A run whose disk fills up, or becomes read-only: its last checkpoint stays; the run goes on later."""
    with small_disk(work / f"training_{trouble}", "8m") as disk:
        cache = f"--data.cache={work / f'cache_{trouble}'}"
        succeeds(training_command, _fit(disk / "runs", 4, cache))
        last = disk / "runs" / "squad" / "0" / "checkpoints" / "last.ckpt"
        before = last.read_bytes()
        break_disk(disk, trouble)
        fails(training_command, _fit(disk / "runs", 8, cache), str(disk))
        assert last.read_bytes() == before, "the last checkpoint has changed"
        assert not unreadable(last.parent.parent), unreadable(last.parent.parent)
        if trouble == "full":
            (disk / "filler").unlink()
            succeeds(training_command, _fit(disk / "runs", 8, cache))
            assert torch.load(last, weights_only=True)["global_step"] == 8


def check_sentence_cache(trouble: str, work: Path) -> None:
    """Sentences of a language model, kept on a disk that fills up: every whole line is still there."""
    from tests.data_modules.fixtures.fake_endpoint import Reply, serve

    def reply(prompt: str, before: int) -> Reply:
        return Reply("It was said to be " + prompt[-200:] * 20 + ".")

    no_key = patch.dict(os.environ, OPENAI_API_KEY="none")
    with small_disk(work / f"sentences_{trouble}") as disk, serve(reply) as endpoint, no_key:
        cache = disk / "cache.jsonl"
        arguments = [
            *("perturb", "--dataset", "stories", "--input", "stories:conversation_dev"),
            *("--variant", "ts_r_aug", "--generator", f"openai:m@{endpoint.url}", "--cache", str(cache)),
            *("--output", str(work / f"sentences_{trouble}.jsonl"), "--max-requests"),
        ]
        run(data_command, [*arguments, "3"])
        before = cache.read_bytes()
        assert before.count(b"\n") == 3
        break_disk(disk, trouble)
        fails(data_command, [*arguments, "200", "--overwrite"], str(cache))
        assert cache.read_bytes().startswith(before)
        if trouble == "full":
            (disk / "filler").unlink()
            lines = cache.read_bytes().count(b"\n")
            run(data_command, [*arguments, "1", "--overwrite"])
            found = cache.read_bytes().splitlines()
            assert len(found) == lines + 1, "what was whole is not used again"
            assert all(json.loads(line)["text"] for line in found)


def check_data_cache(work: Path) -> None:
    """Each file of the cache of prepared data cut off in turn: the run makes it anew, and nothing else."""
    cache, root = work / "cache", work / "runs"
    numbers: list[Any] = []

    def trained(name: str) -> None:
        succeeds(training_command, _fit(root, 3, f"--data.cache={cache}", f"--run.name={name}"))
        path = root / name / "0" / "checkpoints" / "last.ckpt"
        numbers.append({k: v.tolist() for k, v in torch.load(path)["state_dict"].items()})

    trained("first")
    files = [path for path in sorted(cache.rglob("*")) if path.is_file() and path.stat().st_size]
    assert files, "nothing was cached"
    for number, path in enumerate(files):
        if not path.exists():
            continue
        raw = path.read_bytes()
        path.write_bytes(raw[: len(raw) // 2])
        trained(f"cut_{number}")
        assert numbers[-1] == numbers[0], f"{path.name}: other numbers from a cache that was cut off"


def scenarios() -> dict[str, Callable[[Path], None]]:
    """All of them, by name."""
    found: dict[str, Callable[[Path], None]] = {}
    for trouble in ("full", "read-only"):
        for name in WRITERS:
            found[f"{name}, disk {trouble}"] = lambda work, n=name, t=trouble: check_writer(n, t, work)
        found[f"training, disk {trouble}"] = lambda work, t=trouble: check_training(t, work)
        found[f"sentences, disk {trouble}"] = lambda work, t=trouble: check_sentence_cache(t, work)
    found["cut-off data cache"] = check_data_cache
    return found
