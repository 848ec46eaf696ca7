"""How much code a datum passes, what a command loads, how soon it starts.   python -m benchmarks.walks

Three walks are followed call by call: a CoQA file and a LEI file to their first training batch, a checkpoint
through `evaluation shift` to its report. Counted are distinct functions of this checkout (no tests and
benchmarks, no comprehensions, lambdas, bodies of modules and classes), their files, and returns: how often,
in the order of first calls, a walk comes back to a file that it had left. Of two commands: the files of this
checkout that they import, and lines. Of others: wall time. Each has a process of its own, on the CPU.
"""

from __future__ import annotations

import argparse
import importlib
import io
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import chdir
from inspect import CO_OPTIMIZED
from multiprocessing import get_context
from pathlib import Path
from types import CodeType, FrameType
from typing import Any
from unittest.mock import patch

from data_modules.records import write_records
from data_modules.sources import read_groups

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = {path.parent for path in ROOT.glob("*/__init__.py")} - {ROOT / "tests", ROOT / "benchmarks"}
STORY = "Anna is in the kitchen. Ben has a red ball. He gave three apples to Carl."
TURNS = [  # question, answer, span of its rationale
    ("Where is Anna?", "in the kitchen", 0, 23),
    ("Does Ben have a ball?", "yes", 24, 43),
    ("How many apples did he give away?", "three", 44, 73),
    ("Who ate them?", "unknown", -1, -1),
]
FIT = f"fit -c {ROOT}/configs/experiments/lei_few_shot.yaml -c {ROOT}/configs/backbones/tiny_roberta.yaml"
COQA = FIT.replace("lei_few_shot", "coqa_ibt") + " --data.train_qa=coqa.json --data.val_qa={}"
LEI = f"{FIT} --data.train_groups=[lei.json] --data.train_qa= --data.val_qa={{}} --data.val_groups={{}}"
TWO_STEPS = "--trainer.max_steps=2 --data.limit_train_qa=64 --run.wandb=off --run.name"
PROBE = "--output report --overwrite --checkpoint runs/{}/version_0/checkpoints/last.ckpt --data {}"
COMMANDS = ("training", "training fit", "evaluation", "evaluation bias", "data_modules")
STARTS = [f"{command} --help" for command in COMMANDS]
STARTS += [f"training {FIT} {flag}" for flag in ("--print_config", "--data.misspelt=4")]
TARGETS = {
    "CoQA walk": "target: 60 functions, 12 files",
    "LEI walk": "target: 45 functions, 10 files",
    "fit lei_few_shot loads": "target: 55 files, 7,500 lines",
    "evaluation bias loads": "target: 40 files, 4,500 lines",
}


def measure() -> dict[str, dict[str, Any]]:
    """Everything, in the current folder; each job has a process of its own."""
    write_coqa(Path("coqa.json"))
    write_records(read_groups("stories:heldout"), "lei.json")
    jobs = {
        "CoQA walk": (walk, COQA),
        "LEI walk": (walk, LEI),
        "fit coqa_ibt": (run, f"training {COQA} {TWO_STEPS}=coqa"),
        "evaluation shift walk": (walk, f"evaluation shift {PROBE.format('coqa', 'coqa.json')}"),
        "fit lei_few_shot loads": (loads, f"training {FIT} {TWO_STEPS}=lei"),
        "evaluation bias loads": (loads, f"evaluation bias {PROBE.format('lei', 'stories:heldout')}"),
    }
    with ProcessPoolExecutor(1, get_context("spawn"), max_tasks_per_child=1) as pool:
        found = {name: pool.submit(function, of).result() for name, (function, of) in jobs.items()}
    for command in STARTS:
        seconds = sorted(start(command) for _ in range(5))
        found[command.replace(FIT, "fit")] = {"seconds (median)": seconds[2], "fastest": seconds[0]}
    return {name: figures for name, figures in found.items() if figures}


def write_coqa(path: Path) -> None:
    """The story and its turns in CoQA's official layout."""
    questions, answers = [], []
    for turn_id, (question, answer, first, end) in enumerate(TURNS, 1):
        span = {"span_start": first, "span_end": end, "span_text": STORY[first:end]}
        questions.append({"turn_id": turn_id, "input_text": question})
        answers.append({"turn_id": turn_id, "input_text": answer, **span})
    story = {"source": "made up", "id": "1", "story": STORY, "questions": questions, "answers": answers}
    path.write_text(json.dumps({"version": "1.0", "data": [story]}), encoding="utf-8")


def way_to_first_batch(flags: str) -> Callable[[], Any]:
    """What leads a `fit` from its files to its first batch. How a data module is built is known here only."""
    from pytorch_lightning.trainer.states import TrainerFn

    from training.cli import InterventuneCLI, main

    with patch.object(InterventuneCLI, "_run_subcommand"):
        cli = main(flags.split())
    data = cli.datamodule
    data.trainer, cli.trainer.state.fn = cli.trainer, TrainerFn.FITTING
    return lambda: (data.prepare_data(), data.setup("fit"), next(iter(data.train_dataloader())))


def walk(command: str) -> dict[str, Any]:
    """The functions that are called, by file: to the first batch of a `fit`, or by a whole command."""
    sys.stderr = io.StringIO()  # what Lightning says
    way = way_to_first_batch(command) if command.startswith("fit") else lambda: run(command)
    calls: dict[int, CodeType] = {}  # by identity, in the order of first calls

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            calls.setdefault(id(frame.f_code), frame.f_code)

    threading.setprofile(note)
    sys.setprofile(note)
    way()
    sys.setprofile(None)
    met: dict[str, dict[str, int]] = {}
    file, returns = "", 0
    for code in calls.values():
        # The bodies of modules and classes are no optimised code.
        if code.co_flags & CO_OPTIMIZED and code.co_name[0] != "<" and checkout_path(code.co_filename):
            last, file = file, checkout_path(code.co_filename)
            returns += file != last and file in met
            met.setdefault(file, {})[code.co_qualname] = code.co_firstlineno
    return {"functions": sum(map(len, met.values())), "files": len(met), "returns": returns, "names": met}


def loads(command: str) -> dict[str, Any]:
    """The files that are imported when a command ends, and their lines."""
    run(command)
    paths = [getattr(module, "__file__", None) or "" for module in list(sys.modules.values())]
    files = {checkout_path(path) for path in paths} - {""}
    lines = sum(len((ROOT / file).read_text(encoding="utf-8").splitlines()) for file in files)
    return {"files": len(files), "lines": lines, "names": sorted(files)}


def checkout_path(file: str) -> str:
    """Where a file lies in the checkout; empty for one that is not counted."""
    return os.path.relpath(file, ROOT) if PACKAGES & {*Path(file).parents} else ""


def run(command: str) -> None:
    """A command of this checkout, in this process; what it says is shown where it fails."""
    package, *sys.argv[1:] = command.split()
    sys.stdout = sys.stderr = output = io.StringIO()
    if importlib.import_module(f"{package}.__main__").main():
        raise RuntimeError(f"python -m {command}: {output.getvalue()[-1500:]}")


def start(command: str) -> float:
    """Seconds until a command in a process of its own ends."""
    began, fails = time.perf_counter(), "misspelt" in command
    subprocess.run([sys.executable, "-m", *command.split()], capture_output=True, check=not fails)
    return time.perf_counter() - began


def main() -> None:
    """Measure, print a table, write a file."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.walks")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write figures, targets and names there")
    args = parser.parse_args()
    os.environ |= {"PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        found = measure()
    for name, figures in found.items():
        cells = [f"{round(figure, 2):,} {unit}" for unit, figure in figures.items() if unit != "names"]
        print(f"{name:32}{', '.join(cells):42}{TARGETS.get(name, '')}".rstrip())
    if args.json:
        args.json.write_text(json.dumps({"found": found, "targets": TARGETS}, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
