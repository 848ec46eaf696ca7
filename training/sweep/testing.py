"""Test sets of selected models: `python -m training test` for each model, with results kept beside its
run."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from data_modules.sources import format_of, read_groups, read_questions
from storage.errors import DataError
from storage.files import file_digest, write_text
from storage.json_files import load_json
from training.sweep.point import own_environment

TEST = (sys.executable, "-m", "training", "test")
WHOLE = {
    "qa": "--data.limit_val_qa=0",
    "groups": "--data.limit_val_groups=0",
    "choices": "--data.choices.limit_val=0",
}
"""Limits are for watching a run; models are tested on everything, unless a flag says otherwise."""

Metrics = dict[str, float]
"""As `bias/ethical/mu` or `qa/f1`, without stage and set."""


@dataclass(frozen=True)
class TestSet:
    """A named source to test on.

    Args:
        name: in tables and files.
        source: as everywhere: a file, `hub:NAME:SPLIT`, `stories:SPLIT`.
        kind: questions about a text, groups of underspecified ones, or multiple-choice questions.
    """

    __test__ = False  # not one of pytest's

    name: str
    source: str
    kind: Literal["qa", "groups", "choices"]


def parse_tests(given: Sequence[str], *, choices: bool = False) -> list[TestSet]:
    """The sets of `--test`.

    Args:
        given: each `NAME=SOURCE` or `SOURCE`.
        choices: they hold multiple-choice questions; otherwise their content tells the kind.

    Raises:
        DataError: a source is missing or of no known format, or two sets have one name.
    """
    tests: list[TestSet] = []
    for text in given:
        match = re.fullmatch(r"([\w.-]+)=(.+)", text)
        name, source = match.groups() if match else (_default_name(text), text)
        if any(test.name == name for test in tests):
            raise DataError(f"--test: two sets are called {name}; write NAME={source}")
        tests.append(TestSet(name, source, "choices" if choices else _kind(source)))
    return tests


def _default_name(source: str) -> str:
    return (
        Path(source).stem
        if Path(source).is_file()
        else re.sub(r"\W+", "_", source.partition(":")[2] or source)
    )


def _kind(source: str) -> Literal["qa", "groups"]:
    if source.startswith("stories:"):
        try:
            next(read_groups(source))
        except DataError:
            next(read_questions(source))  # says what is wrong with it
            return "qa"
        return "groups"
    folder, colon, _ = source.rpartition(":")
    if source.startswith("hub:") or (colon and not Path(source).exists() and Path(folder).is_dir()):
        return "qa"  # there are no groups in tables
    return "groups" if format_of(source).kind == "groups" else "qa"


def results_of(
    run: Path, checkpoint: str, tests: Sequence[TestSet], flags: Sequence[str], command: Sequence[str] = TEST
) -> dict[str, Metrics]:
    """What a model reaches on every set; only what was never asked before is computed.

    Args:
        run: folder of the model's run.
        checkpoint: `last` or `best`.
        tests: the sets.
        flags: more arguments of the command.
        command: what tests a model, before its arguments.

    Raises:
        DataError: the run has no such checkpoint, or the command failed.
    """
    path = run / "checkpoints" / f"{checkpoint}.ckpt"
    for needed in (path, run / "config.yaml"):
        if not needed.is_file():
            raise DataError(f"{needed}: is missing; was the run kept on another machine?")
    home = run.parent / "tests"
    kept = {test.name: home / f"{_key(path, test, flags)}.json" for test in tests}
    missing = [test for test in tests if not kept[test.name].exists()]
    if missing:
        for test, metrics in _run(run, path, missing, flags, command).items():
            write_text(kept[test], json.dumps(metrics, indent=2))
    return {name: load_json(file) for name, file in kept.items()}


def _key(checkpoint: Path, test: TestSet, flags: Sequence[str]) -> str:
    """What a result depends on: model, source (and its content), flags."""
    content = ""
    if Path(test.source).is_file():
        content = file_digest(test.source)
    state = checkpoint.stat()
    model = [checkpoint.name, state.st_size, state.st_mtime_ns]
    text = json.dumps([model, test.kind, test.source, content, sorted(flags)])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _run(
    run: Path, checkpoint: Path, tests: Sequence[TestSet], flags: Sequence[str], command: Sequence[str]
) -> dict[str, Metrics]:
    # Names of our own: those of the user may hold anything, and the set `main` would have no name in keys.
    named = {f"set{i}": test for i, test in enumerate(tests)}
    folder = run.parent / "tests" / "running"
    shutil.rmtree(folder, ignore_errors=True)  # of one that was interrupted
    arguments = ["-c", str(run / "config.yaml"), f"--ckpt_path={checkpoint}"]
    kinds = [kind for kind in WHOLE if any(test.kind == kind for test in tests)]
    if "groups" in kinds and (run / "config.yaml").read_text().count(".QuestionsDataModule"):
        arguments.append("--data=data_modules.groups_data.GroupsDataModule")
    for kind in kinds:
        sources = {name: test.source for name, test in named.items() if test.kind == kind}
        arguments += [WHOLE[kind], f"--data.test_{kind}={json.dumps(sources)}"]
    arguments += [f"--run.root={run.parent}", "--run.name=tests", "--run.version=running"]
    arguments += ["--run.wandb=off", "--trainer.enable_progress_bar=false", *flags]
    done = subprocess.run(
        [*command, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=own_environment(),
    )
    if done.returncode:
        reason = done.stdout.strip().rpartition("\n")[2]
        raise DataError(f"{checkpoint}: testing failed (exit code {done.returncode}): {reason}")
    found = load_json(folder / "metrics.json")
    shutil.rmtree(folder)
    return {test.name: _metrics_of(name, found) for name, test in named.items()}


def _metrics_of(name: str, found: Mapping[str, float]) -> Metrics:
    """`test/bias/NAME/ethical/mu` as `bias/ethical/mu`."""
    parts = [(key.split("/"), value) for key, value in found.items()]
    return {"/".join([p[1], *p[3:]]): value for p, value in parts if len(p) > 3 and p[2] == name}
