"""Compare speed with other systems.   python -m benchmarks [training] [likelihoods]
[--repeats 3]
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import pandas as pd

from benchmarks import fits, training
from benchmarks.side_by_side import machine, shown
from interventune.storage.command_line import Count, run

Name = Literal["training", "likelihoods", "callbacks", "decoder"]


def compare(
    names: list[Name] | None = None,
    *,
    repeats: Count = 3,
    shape: Literal["minilm", "tiny", "tiny-roberta", "roberta-large"] = "minilm",
    size: Literal["tiny", "gpu"] = "tiny",
    questions: Annotated[str, "SOURCE"] = "stories:choices_dev",
    model: Annotated[str, "FOLDER"] = "",
    json: Annotated[Path | None, "FILE"] = None,
) -> None:
    """Time this project and others in turn; print medians, ranges and ratios.

    Args:
        names: what to measure: training and, with a model, likelihoods, by default.
        repeats: timed turns per system.
        shape: of the encoder for training; a GPU is used if present, in bfloat16.
        size: of the models for callbacks and decoder; gpu is roberta-base and a decoder of 1 B
            parameters.
        questions: questions for likelihoods (the first 300); FILE or FILE+LABELS.
        model: folder of the decoder for likelihoods; `random` makes one of `size`.
        json: file to which the turns are appended, a line each.
    """
    steps = 200 if size == "gpu" else 20
    measures: dict[str, Callable[..., pd.DataFrame]] = {
        "training": partial(training.measure, shape),
        "likelihoods": partial(fits.likelihoods_of, size, questions, model),
        "callbacks": partial(fits.callbacks, size, steps),
        "decoder": partial(fits.decoder, size, steps),
    }
    print(machine())
    default: list[Name] = ["training", "likelihoods"] if model else ["training"]
    for name in names or default:
        turns = measures[name](repeats=repeats)
        print(shown(turns), flush=True)
        if json:
            with json.open("a", encoding="utf-8") as file:
                turns.assign(machine=machine()).to_json(file, orient="records", lines=True)


if __name__ == "__main__":
    sys.exit(run(compare, "python -m benchmarks"))
