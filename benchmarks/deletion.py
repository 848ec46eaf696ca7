"""Deletion of rationales from 100,000 questions.   python -m benchmarks deletion

Every embedded question gets the sentence of its answer for a rationale, and becomes the variants `ts` (story
cut after it) and `ts_r` (story cut before it, the answer put at the end). Questions share the sentence
boundaries of their story, and so do variants; the other system finds them anew each time.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import count, islice
from statistics import median
from typing import NamedTuple

from benchmarks.report import Result
from benchmarks.turns import in_turns, own_processes
from data_modules.interventions.deletion import perturb, sentence_spans, with_rationale
from data_modules.schema import QAExample, Rejected, Variant
from data_modules.sources import read_questions

VARIANTS: tuple[Variant, ...] = ("ts", "ts_r")
OURS, ANEW = "interventune", "sentences found anew each time"
Made = list[QAExample | Rejected]


class Measured(NamedTuple):
    """One turn of one system."""

    seconds: float
    kept: int
    digest: str
    """Of all contexts that came out."""


def measure(*, repeats: int, quick: bool) -> list[Result]:
    """Questions a second, each with both variants."""
    size = 300 if quick else 100_000
    systems = {OURS: together, ANEW: anew}
    with own_processes(systems, apart=not quick) as call:
        for name, system in systems.items():
            call[name](run, system, min(size, 1_000))
        turns = in_turns(systems, repeats, lambda name, _: call[name](run, systems[name], size))
    if len({turn.digest for made in turns.values() for turn in made}) > 1:
        raise ValueError("deletion: the systems made different variants")
    return [
        Result(
            benchmark="deletion",
            system=name,
            unit="questions/s",
            values=tuple(size / turn.seconds for turn in made),
            notes={
                "questions": size,
                "variants": len(VARIANTS),
                "kept": made[0].kept,
                "seconds": round(median(turn.seconds for turn in made), 2),
            },
        )
        for name, made in turns.items()
    ]


def run(system: Callable[[Sequence[QAExample]], Made], size: int) -> Measured:
    """One turn; nothing that an earlier turn found is left."""
    examples = questions(size)
    sentence_spans.cache_clear()
    began = time.perf_counter()
    made = system(examples)
    seconds = time.perf_counter() - began
    digest = hashlib.sha256()
    kept = [one for one in made if isinstance(one, QAExample)]
    for example in kept:
        digest.update(example.context.encode())
    return Measured(seconds, len(kept), digest.hexdigest())


@lru_cache(maxsize=1)
def questions(size: int) -> list[QAExample]:
    """The first `size` embedded questions; from the second round on, every story is one of its own."""
    once = list(read_questions("stories:train"))
    copies = (
        replace(e, id=f"{e.id}/{n}", context=f"{e.context} This is copy {n}.") if n else e
        for n in count()
        for e in once
    )
    return list(islice(copies, size))


def together(examples: Sequence[QAExample]) -> Made:
    """As the commands do it."""
    originals = [with_rationale(example) for example in examples]
    return [perturb(original, variant) for variant in VARIANTS for original in originals]


def anew(examples: Sequence[QAExample]) -> Made:
    """A question and a variant at a time, without memory."""
    made: Made = []
    for variant in VARIANTS:
        for example in examples:
            sentence_spans.cache_clear()
            original = with_rationale(example)
            sentence_spans.cache_clear()
            made.append(perturb(original, variant))
    return made
