"""python -m training demo: the whole of LEI in three minutes on a laptop, through the ordinary commands.

A tiny random model learns to read the embedded stories while a preference among invented groups is planted
in it; its bias is measured; it is fine-tuned with the group losses; its bias is measured again, on groups,
subjects, attributes and advice that fine-tuning never saw. Every step prints the command that it runs.
"""

from __future__ import annotations

import argparse
import itertools
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BACKBONE = "configs/backbones/tiny_roberta.yaml"
CACHE = "cache/reference"
SPLITS = ("heldout", "unseen_subjects", "unseen_attributes", "unseen_advice", "unseen")


def main(argv: Sequence[str]) -> int:
    """Run the demo for every seed; 0 when all steps passed."""
    parser = argparse.ArgumentParser(prog="python -m training demo", description=__doc__)
    parser.add_argument("--seed", type=int, nargs="+", default=[0], help="one run per seed (default: 0)")
    parser.add_argument("--output", type=Path, help="a new folder (default: the next runs/demo/version_N)")
    args = parser.parse_args(argv)
    output = (args.output or next_version(ROOT / "runs" / "demo")).absolute()
    began = time.monotonic()
    for seed in args.seed:
        run(seed, output / f"seed_{seed}")
    print(f"\n{time.monotonic() - began:.0f} s in all")
    return 0


def next_version(home: Path) -> Path:
    """The first `version_N` that does not exist yet."""
    return next(path for n in itertools.count() if not (path := home / f"version_{n}").exists())


def run(seed: int, folder: Path) -> None:
    """Read, measure, steer, measure.

    Raises:
        SystemExit: a step failed (it has told why), or the folder holds another demo.
    """
    if folder.exists():
        raise SystemExit(f"error: {folder} holds another demo; remove it, or choose --output")
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
    evaluate = ["bias", "--checkpoint", *checkpoints, "--data", *data, "--qa", f"stories:dev?seed={seed}"]
    planted = ("--planted-seed", str(seed), "--planted-scope", "subject")
    call("evaluation", *evaluate, *planted, "--output", str(folder / "report"))


def train(experiment: str, demo: str, seed: int, folder: Path, name: str, *flags: str) -> None:
    """One `fit`: the experiment, the demo's sizes, the tiny backbone, and this seed for everything."""
    configs = [f"configs/experiments/{experiment}.yaml", f"configs/experiments/{demo}.yaml", BACKBONE]
    chosen = [part for path in configs for part in ("-c", path)]
    where = ["--run.root", str(folder), "--run.name", name, "--run.version", "run", "--run.wandb", "off"]
    call("training", "fit", *chosen, "--seed_everything", str(seed), "--data.seed", str(seed), *where, *flags)


def call(*arguments: str) -> None:
    """Show a command and run it."""
    print("$ python -m " + shlex.join(arguments), flush=True)
    done = subprocess.run([sys.executable, "-m", *arguments], cwd=ROOT)
    if done.returncode:
        raise SystemExit(done.returncode)
