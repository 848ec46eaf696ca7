"""`interventune train plan` against runs: the peak that it computes, and what training takes on this machine.

python -m benchmarks planned_memory: each run is a `fit` of its own process that reports what torch's
allocator holds at most (by torch's profiler), or, without the profiler, how far the process grows.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import psutil
import pytorch_lightning as pl
import torch

from benchmarks.report import Row, rows_of
from benchmarks.turns import Turn, in_turns
from models.without_values import size_of

ROOT = Path(__file__).resolve().parent.parent
HEAD = "vocab_size: 320, hidden_size: 512, num_hidden_layers: 8, num_attention_heads: 8"
SPECIAL = "bos_token_id: 0, eos_token_id: 1, pad_token_id: 3"
DECODER = f"{{{HEAD}, intermediate_size: 1408, num_key_value_heads: 4, {SPECIAL}}}"
CASES = {
    "encoder": ["-c", "tiny_bert", f"--backbone.config={{{HEAD}, intermediate_size: 2048}}"],
    "encoder, bf16-mixed": ["-c", "tiny_bert", f"--backbone.config={{{HEAD}, intermediate_size: 2048}}"],
    "decoder": ["-c", "tiny_llama", f"--backbone.config={DECODER}"],
    "decoder, checkpointing": ["-c", "tiny_llama", f"--backbone.config={DECODER}"],
    "decoder, LoRA": ["-c", "tiny_llama", f"--backbone.config={DECODER}", "--backbone.lora_rank=8"],
}
CASES["encoder, bf16-mixed"].append("--trainer.precision=bf16-mixed")
CASES["decoder, checkpointing"].append("--backbone.gradient_checkpointing=true")


class PeakMemory(pl.Callback):
    """The most memory in any step but those of the first epoch.

    Args:
        output: JSON file of `allocated`, what torch's allocator held, and `resident`, how far the process
            grew from before training, its weights counted; bytes.
        profile: whether to listen to the allocator, which takes memory itself.
    """

    def __init__(self, output: str, profile: bool = True) -> None:
        self.output, self.profile, self.allocated = Path(output), profile, 0

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """What is there already."""
        weights = size_of([*pl_module.parameters(), *pl_module.buffers()])
        self.before = psutil.Process().memory_info().rss - weights

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """Begin to listen."""
        if not self.profile:
            return
        weights = [*pl_module.parameters(), *pl_module.buffers()]
        states = [value for state in trainer.optimizers[0].state.values() for value in state.values()]
        self.held = size_of([*weights, *(weight.grad for weight in weights), *states])
        cpu = torch.profiler.ProfilerActivity.CPU
        self.profiler = torch.profiler.profile(activities=[cpu], profile_memory=True)
        self.profiler.start()

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Add up what was allocated and freed."""
        if not self.profile:
            return
        self.profiler.stop()
        kineto: Any = self.profiler.profiler
        events = [event for event in kineto.kineto_results.events() if event.name() == "[memory]"]
        for event in sorted(events, key=lambda event: event.start_ns()):
            self.held += event.nbytes()
            self.allocated = max(self.allocated, self.held if trainer.current_epoch else 0)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Write both."""
        resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - self.before
        self.output.write_text(json.dumps({"allocated": self.allocated, "resident": resident}))


def watched(output: Path, *, profile: bool = True) -> str:
    """The flag that measures a run, of two epochs at least."""
    path = f"{PeakMemory.__module__}.PeakMemory"
    return f"--trainer.callbacks+={{class_path: {path}, init_args: {{output: {output}, profile: {profile}}}}}"


def measure(*, repeats: int, quick: bool) -> list[Row]:
    """MiB of a step with LEI's group losses: planned, allocated and resident."""
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        common = ["-c", "lei_few_shot", f"--run.root={folder}", f"--data.cache={folder / 'data'}"]
        common += ["--trainer.accelerator=cpu", "--trainer.max_epochs=2", "--trainer.limit_val_batches=0"]
        common += [f"--data.limit_train_groups={3 if quick else 12}", "--data.limit_train_qa=4"]
        for name, flags in list(CASES.items())[: 1 if quick else None]:
            precision = [] if "bf16" in name else ["--trainer.precision=32-true"]
            shared = (*common, *flags, *precision)

            def run(system: str, turn: int, shared: tuple[str, ...] = shared) -> Turn:
                plan, found = folder / "plan.json", folder / "found.json"
                more = (
                    [f"--output={plan}"]
                    if system == "plan"
                    else [watched(found, profile=system == "allocated")]
                )
                command = [sys.executable, "-m", "training", "plan" if system == "plan" else "fit"]
                subprocess.run([*command, *shared, *more], cwd=ROOT, check=True, capture_output=True)
                if system == "plan":
                    return Turn(json.loads(plan.read_text())["gib"]["one device"]["peak"] * 1024, {})
                return Turn(json.loads(found.read_text())[system] / 2**20, {})

            made = in_turns(("plan", "allocated", "resident"), min(3, repeats), run)
            rows += rows_of(f"planned_memory/{name}", "MiB", made, {"model": "8 x 512"})
    return rows
