"""Compare speed with other systems.   python -m benchmarks [training] [likelihoods] [--repeats 3]"""

from __future__ import annotations

import sys
from typing import Annotated, Literal

from benchmarks import likelihoods, training
from benchmarks.side_by_side import machine
from storage.command_line import Count, run


def compare(
    names: list[Literal["training", "likelihoods"]] | None = None,
    *,
    repeats: Count = 3,
    shape: Literal["minilm", "tiny", "roberta-large"] = "minilm",
    questions: Annotated[str, "SOURCE"] = "stories:choices_dev",
    model: Annotated[str, "FOLDER"] = "",
) -> None:
    """Time this project and others in turn; print medians, ranges and ratios.

    Args:
        names: what to measure; both by default.
        repeats: timed turns per system.
        shape: of the encoder for training; a GPU is used if present, in bfloat16.
        questions: questions for likelihoods (the first 300); FILE or FILE+LABELS.
        model: folder of the decoder for likelihoods.
    """
    print(machine())
    for name in names or ["training", "likelihoods"]:
        if name == "training":
            print(training.measure(shape, repeats=repeats), flush=True)
        else:
            print(likelihoods.measure(questions, model, repeats=repeats), flush=True)


if __name__ == "__main__":
    sys.exit(run(compare, "python -m benchmarks"))
