"""Compare speed with other systems.   python -m benchmarks [training] [likelihoods]
[--repeats 3]
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal

import pandas as pd

from benchmarks import likelihoods, training
from benchmarks.side_by_side import Size, machine, shown
from interventune.storage.command_line import Count, run

Name = Literal["training", "likelihoods", "callbacks", "decoder"]
MEASURES: dict[Name, Callable[..., pd.DataFrame]] = {
    "training": training.measure,
    "likelihoods": likelihoods.measure,
    "callbacks": training.callbacks,
    "decoder": training.decoder,
}


def compare(
    names: list[Name] | None = None,
    *,
    repeats: Count = 3,
    size: Size = "cpu",
    json: Annotated[Path | None, "FILE"] = None,
) -> None:
    """Time this project and others in turn; print medians, ranges and ratios.

    Args:
        names: what to measure: training and likelihoods, by default.
        repeats: timed turns per system.
        size: of the models, which have random weights (benchmarks/shapes.yaml); a GPU is used if
            present.
        json: file to which the turns are appended, a line each.
    """
    print(machine())
    for name in names or ("training", "likelihoods"):
        turns = MEASURES[name](size, repeats=repeats)
        print(shown(turns), flush=True)
        if json:
            with json.open("a", encoding="utf-8") as file:
                turns.assign(machine=machine()).to_json(file, orient="records", lines=True)


if __name__ == "__main__":
    sys.exit(run(compare, "python -m benchmarks"))
