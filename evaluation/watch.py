"""Evaluates the checkpoints of runs as they appear, each once, and keeps one report up to date.

interventune watch runs/ibt/seed_0 -- shift --data dev.json --output DIR

The rows of each checkpoint are stored in DIR.rows/: a watcher that is killed and started again goes
on, several share the work, and checkpoints that were deleted since stay in the report.
"""

import json
import time
from argparse import Namespace
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from filelock import FileLock, Timeout
from typing_extensions import TypedDict

from interventune.storage.command_line import Count, Parser, call
from interventune.storage.documents import load_json, write_text
from interventune.storage.finished_work import work_key

from .answering.sources import Model, checkpoints_of, named_models, run_of, step_of
from .answering.work import process_group, rows_file
from .commands import build_parser, evaluated, recorded
from .report import Evaluation, claimed, write_report


@dataclass(frozen=True, kw_only=True)
class Options:
    """Evaluate the checkpoints of runs as they appear, each once, and keep one report up to date.

    After --, write an evaluation without --checkpoint. Checkpoints are those of
    run.keep_every_n_steps, and complete folders checkpoint-N of transformers' Trainer. Start the
    same command again to go on, or several times to share the work; it ends when the runs have.

    Example: interventune watch ibt=runs/ibt/seed_0 -- shift --data dev.json --output DIR

    Args:
        every: seconds between two looks
        log: also log the main measures to the run's own logger, at the checkpoint's step
    """

    every: Count = 30
    log: Literal["wandb", "tensorboard"] | None = None


def main(argv: Sequence[str]) -> None:
    """Run the command. ValueError for a mistake."""
    options, flags, command = parsed(argv)
    Watch(vars(flags), command).run(options)


def parsed(argv: Sequence[str]) -> tuple[Options, Namespace, list[str]]:
    """Return the options, and the evaluation: its flags, with the runs as checkpoints, and as
    words. ValueError if there is none.
    """
    parser = Parser(Options, prog="interventune watch")
    parser.add_argument("runs", nargs="+", metavar="[NAME=]RUN", help="folders of runs")
    at = [*argv, "--"].index("--")
    arguments = parser.parse_args(argv[:at])
    command = [*argv[at + 1 :]]
    words = [word.partition("=")[0] for word in command]
    if "--checkpoint" in words or "--output" not in words:
        raise ValueError(
            "write --, and an evaluation with --output and without --checkpoint, after the runs"
        )
    flags = build_parser(command).parse_args([*command, "--checkpoint", *arguments.runs])
    return call(Options, vars(arguments)), flags, command


class Watch:
    """One evaluation of the checkpoints of runs.

    Args:
        values: of the evaluation's flags, with the runs as checkpoints.
        command: what its report records.
    """

    def __init__(self, values: Mapping[str, Any], command: Sequence[str]) -> None:
        self.runs: list[str] = values["checkpoint"]
        self.values = values
        self.command = command
        self.output = Path(values["output"])
        key = work_key(**recorded(values["protocol"], {**values, "checkpoint": None}))
        self.rows = self.output.absolute().with_name(f"{self.output.name}.rows") / key[:16]
        with claimed(self.output, overwrite=values["overwrite"] or self.rows.exists()):
            self.rows.mkdir(parents=True, exist_ok=True)

    def run(self, options: Options) -> None:
        """Evaluate all checkpoints until the runs have ended. ValueError: they have none, or there
        is no such run.
        """
        shown = list[Model]()
        waits = False
        if not self.models():
            print(f"no checkpoints yet: {', '.join(self.runs)}", flush=True)
        for model in named_models(self.runs):
            if not model.exists:
                raise ValueError(f"{model.path}: no such run; start it before its watcher")
        while True:
            runs = {run_of(model.path): None for model in named_models(self.runs)}
            training = [run for run in runs if not has_ended(run)]
            models = self.models()
            for model in models:
                evaluation = self.evaluate_once(model, models)
                if evaluation and options.log and "steps.png" in evaluation.figures:
                    log(evaluation, model, options.log)
            done = [model for model in models if rows_file(self.rows, model.path).exists()]
            if done and done != shown:
                with FileLock(self.rows / "report.lock"), claimed(self.output, overwrite=True):
                    evaluation = self.evaluate(done)
                    write_report(evaluation, self.output, command=self.command)
                print(f"{len(done)} checkpoints: {evaluation.headline}", flush=True)
                shown = done
            elif not training and done == models:
                if not done:
                    raise ValueError("the runs have no checkpoints; set run.keep_every_n_steps")
                return
            else:
                if done == models and not waits:
                    waits = True
                    names = ", ".join(training)
                    print(f"waiting for the end of {names}; stop if nothing trains it", flush=True)
                time.sleep(options.every)

    def models(self) -> list[Model]:
        """Return all checkpoints, and those that have been deleted since they were evaluated."""
        models = [model for model in named_models(self.runs) if model.step is not None]
        known = self.rows / "models.json"
        with FileLock(self.rows / "models.lock"):
            before = load_json(known, list[Model]) if known.exists() else []
            gone = [
                model
                for model in before
                if not model.exists and rows_file(self.rows, model.path).exists()
            ]
            names = [model.name for model in models + gone]
            models = sorted({*models, *gone}, key=lambda one: (names.index(one.name), one.step))
            write_text(known, json.dumps(models))
        return models

    def evaluate(self, models: Sequence[Model]) -> Evaluation:
        """Evaluate checkpoints; those with stored rows are not opened."""
        values = {**self.values, "checkpoint": models}
        with process_group(values["device"], rows=self.rows) as device:
            return evaluated(values["protocol"], values, device=device)

    def evaluate_once(self, model: Model, models: Sequence[Model]) -> Evaluation | None:
        """Evaluate a checkpoint with the first one of its run, which comes before the others; None
        if that is done, or done by another watcher.
        """
        first = next(one for one in models if (one.name, one.seed) == (model.name, model.seed))
        if model != first and not rows_file(self.rows, first.path).exists():
            return None
        file = rows_file(self.rows, model.path)
        with suppress(Timeout), FileLock(file.with_suffix(".lock"), timeout=0):
            if not file.exists():
                try:
                    return self.evaluate([*dict.fromkeys([first, model])])
                except (OSError, ValueError):
                    if model.exists:
                        raise
        return None


class State(TypedDict):
    """How far transformers' Trainer has come, in steps."""

    global_step: int
    max_steps: int


def has_ended(run: str) -> bool:
    """Whether a run has written its last checkpoint: a copied run, too, whose times differ."""
    last = checkpoints_of(run)[-1:]
    metrics = Path(run, "metrics.json")
    if metrics.exists():
        step: int = load_json(metrics, dict[str, Any])["step"]
        return all(step >= (step_of(path) or 0) for path in last)
    states = [
        load_json(Path(path, "trainer_state.json"), State) for path in last if Path(path).is_dir()
    ]
    return any(state["global_step"] >= state["max_steps"] for state in states)


def log(evaluation: Evaluation, model: Model, kind: str) -> None:
    """Log a checkpoint's main measures to its run, at its step."""
    _, cells = evaluation.figures["steps.png"]
    values = dict[str, float]()
    for row in cells[cells["step"] == model.step].to_dict("records"):
        place = (str(row[name]) for name in evaluation.results.by[3:] if row[name] != "")
        values["/".join([evaluation.about["protocol"], row["of"], *place])] = row["value"]
    run = run_of(model.path)
    if kind == "tensorboard":
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise ValueError("--log tensorboard: run pip install tensorboard") from None
        with SummaryWriter(run) as writer:
            for name, value in values.items():
                writer.add_scalar(name, value, model.step)
        return
    import wandb

    files = sorted(Path(run).glob("wandb/*run-*/run-*.wandb"))
    if not files:
        raise ValueError(f"--log wandb: {run} has no wandb run; train it with --run.wandb")
    name = files[-1].stem.removeprefix("run-")
    mode: Any = "offline" if files[-1].parent.name.startswith("offline") else "online"
    with wandb.init(project="interventune", id=name, resume="allow", dir=run, mode=mode) as logger:
        logger.log({**values, "trainer/global_step": model.step})
