"""How continuations are written: the flags. Imports nothing heavy, for `--help`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from evaluation.answering.interface import Compute
from storage.command_line import AtLeast, Count


@dataclass(frozen=True)
class Decoding(Compute):
    """How continuations are written.

    Args:
        device: cpu, cuda, cuda:1, ...; auto is a GPU where there is one.
        dtype: of a local model's weights; auto is float32, on a GPU what it was saved in. Logits are float32.
        batch_size: prompts at once.
        decay: self: strength, lambda; several give a grid, as the paper's Tables 8 to 11 (default: 50).
        new_tokens: tokens of each continuation.
        beams: 1 is greedy (default: 3).
        sample: draw from the five likeliest tokens instead.
        seed: of what is drawn.
        draws: continuations of each prompt, with --sample.
        completions: have an endpoint continue the bare prompt rather than answer a turn of a chat.
    """

    batch_size: Count = 8
    decay: list[Annotated[float, AtLeast(0)]] | None = None
    new_tokens: Count = 20
    beams: Count | None = None
    sample: bool = False
    seed: int = 0
    draws: Count = 1
    completions: bool = False
