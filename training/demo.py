"""interventune demo: both halves of the project, through the ordinary commands (see `demo`)."""

from __future__ import annotations

import itertools
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from storage.command_line import run

ROOT = Path(__file__).resolve().parent.parent
BACKBONE = "configs/backbones/tiny_roberta.yaml"
CACHE = "cache/reference"
SPLITS = ("heldout", "unseen_subjects", "unseen_attributes", "unseen_advice", "unseen", "scope")


def demo(
    *, half: Literal["lei", "ibt"] | None = None, seed: list[int] | None = None, output: Path | None = None
) -> None:
    """Both halves of the project in minutes on a laptop, through the ordinary commands.

    `--half lei`: a tiny random model learns to read the embedded stories while a preference among invented
    groups is planted in it; its bias is measured; it is fine-tuned with the group losses; its bias is
    measured again, on groups, subjects, attributes and advice that fine-tuning never saw.

    `--half ibt`: a tiny random model learns to read conversations; from there one copy goes on with original
    training, another with intervention-based training; both are asked about stories with and without their
    rationale, and their embeddings are compared. Every step prints the command that it runs.

    Args:
        half: one half only; both by default.
        seed: one run per seed; 0 by default.
        output: a new folder; the next runs/demo/version_N by default.
    """
    versions = (ROOT / "runs" / "demo" / f"version_{n}" for n in itertools.count())
    output = (output or next(path for path in versions if not path.exists())).absolute()
    began = time.monotonic()
    for number in seed or [0]:
        folder = output / f"seed_{number}"
        if folder.exists():
            raise ValueError(f"{folder} holds another demo; remove it, or choose --output")
        for name in [half] if half else HALVES:
            HALVES[name](number, folder)
    print(f"\n{time.monotonic() - began:.0f} s in all")


def main(argv: list[str]) -> int:
    """Run the demo for every seed; 0 when all steps passed."""
    return run(demo, "interventune demo", argv)


def linguistic_ethical_interventions(seed: int, folder: Path) -> None:
    """Read, measure, steer, measure. SystemExit where a step failed (it has told why)."""
    print(f"== seed {seed}: learn to read, with a planted preference", flush=True)
    questions = f"--data.train_qa=stories:train?seed={seed}"
    groups = (f"--data.train_groups=[stories:planting?seed={seed}]", f"--model.planted_seed={seed}")
    train("lei_planted", "demo_read", seed, folder, "read", questions, *groups)
    before = folder / "read" / "run" / "checkpoints" / "last.ckpt"
    print("\n== follow advice: ethical, adversarial, irrelevant", flush=True)
    advised = f"--data.train_groups=[stories:train?seed={seed}]"
    start = f"--backbone.checkpoint={before}"
    cache = f"--model.reference_cache={CACHE}"
    train("lei_few_shot", "demo_steer", seed, folder, "steer", questions, advised, start, cache)
    after = folder / "steer" / "run" / "checkpoints" / "last.ckpt"
    print("\n== measure before and after", flush=True)
    data = [f"{split}=stories:{split}?seed={seed}" for split in SPLITS]
    checkpoints = [f"before={before}", f"after={after}"]
    asked = ["--checkpoint", *checkpoints, "--data"]
    call("evaluation", "bias", *asked, *data, "--output", str(folder / "report"))
    stories = [f"stories:dev?seed={seed}", "--variants", "os"]
    call("evaluation", "faithfulness", *asked, *stories, "--output", str(folder / "answers"))


def semantic_faithfulness(seed: int, folder: Path) -> None:
    """Read, go on in two ways, compare. SystemExit where a step failed (it has told why)."""
    print(f"\n== seed {seed}: learn to read conversations", flush=True)
    questions = f"--data.train_qa=stories:conversation_train?seed={seed}"
    unwatched = ("--data.val_qa={}", "--data.interventions.shift=[]")
    train("stories_ot", "demo_converse", seed, folder, "converse", questions, *unwatched)
    start = f"--backbone.checkpoint={folder / 'converse' / 'run' / 'checkpoints' / 'last.ckpt'}"
    trained = {}
    for name, what in (("ot", "original"), ("ibt", "intervention-based")):
        print(f"\n== from there, {what} training", flush=True)
        train(f"stories_{name}", "demo_faithful", seed, folder, name, questions, *unwatched, start)
        trained[name] = folder / name / "run" / "checkpoints" / "last.ckpt"
    print("\n== ask about stories with and without their rationale; compare embeddings", flush=True)
    inputs = ["--checkpoint", *(f"{name}={path}" for name, path in trained.items())]
    inputs += ["--data", f"stories:conversation_dev?seed={seed}"]
    variants = ["--variants", "os", "ts", "ts_r", "ts_r_aug"]
    call("evaluation", "faithfulness", *inputs, *variants, "--output", str(folder / "faithfulness"))
    shifted = ["--variants", "ts", "ts_r", "ts_r_aug"]
    call("evaluation", "shift", *inputs, *shifted, "--output", str(folder / "shift"))


def train(experiment: str, demo: str, seed: int, folder: Path, name: str, *flags: str) -> None:
    """One `fit`: the experiment, the demo's sizes, the tiny backbone, and this seed for everything."""
    configs = [f"configs/experiments/{experiment}.yaml", f"configs/experiments/{demo}.yaml", BACKBONE]
    chosen = [part for path in configs for part in ("-c", path)]
    where = ["--run.root", str(folder), "--run.name", name, "--run.version", "run", "--run.wandb", "off"]
    call("training", "fit", *chosen, "--seed_everything", str(seed), *where, *flags)


def call(*arguments: str) -> None:
    """Show a command and run it."""
    print("$ python -m " + shlex.join(arguments), flush=True)
    done = subprocess.run([sys.executable, "-m", *arguments], cwd=ROOT)
    if done.returncode:
        raise SystemExit(done.returncode)


HALVES: dict[str, Callable[[int, Path], None]] = {
    "lei": linguistic_ethical_interventions,
    "ibt": semantic_faithfulness,
}
