"""Test the best models of a sweep."""

import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pandas as pd

from interventune.data_modules.schema.groups import ADVICE_CLASSES
from interventune.metrics.intervals import quantile
from interventune.storage.command_line import Count, Parser, call, guarded
from interventune.storage.documents import Values, file_digest, load_json, load_yaml, write_text
from interventune.storage.finished_work import work_key
from interventune.training.callbacks.run_record import changed_data

from .study import own_environment

TEST = (sys.executable, "-P", "-m", "interventune.training", "test")
WHOLE = {
    "--data.test_qa": "--data.limit_val_qa=0",
    "--data.test_groups": "--data.limit_val_groups=0",
    "--data.test_choices": "--data.limit_val=0",
}
"""Limits speed up training; models are tested on everything, unless a flag says otherwise."""
SHOWN = (*(f"bias/{name}/mu" for name in ADVICE_CLASSES), "qa/f1", "qa/em", "choices/accuracy")
"""Metrics of the printed table; selection.csv has all."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """Test the best models of a sweep: mean, standard deviation and 95 % interval over the K best.

    Name the test sets as --data.test_qa.NAME=SOURCE, --data.test_groups.NAME=SOURCE or
    --data.test_choices.NAME=SOURCE. These and all other --KEY=VALUE flags go to `interventune train
    test`. Finished tests are not repeated. The results are models.csv and selection.csv in
    STUDY/selection. Zhao et al. (2021, appendix B.3) report their models this way; --by gives their
    Figure 5.

    Example: interventune select --study runs/sweeps/lei_grid --top 5 \\
        --data.test_groups.religion=dev.json

    Args:
        study: folder of a sweep
        top: number of models
        by: a key of the sweep; test the best models for each of its values
    """

    study: Path
    top: Count = 5
    by: Annotated[str, "KEY"] = ""


def main(argv: Sequence[str]) -> int:
    """Run the command; a user's mistake prints one line on stderr and returns exit code 2."""
    arguments, flags = Parser(Options, prog="interventune select").parse_known_args(argv)
    return guarded(lambda: select(call(Options, vars(arguments)), flags), arguments.debug)


def select(options: Options, flags: Sequence[str]) -> None:
    """Rank, test, show, write. ValueError if the study, the key or a test set is absent."""
    study = options.study
    by = [options.by] if options.by else []
    if not (study / "study.csv").exists():
        raise ValueError(f"--study {study}: has no study.csv; name the folder of a sweep")
    # A swept text such as NA is a value; nothing is null.
    table = pd.read_csv(study / "study.csv", keep_default_na=False, na_values=[""])
    sweep = load_json(study / "sweep.json")
    metric = sweep["metric"]
    space = sweep["space"]
    if by and options.by not in space:
        raise ValueError(f"--by {options.by}: is not swept; the keys are {', '.join(space)}")
    table = table[table["state"] == "complete"].drop_duplicates("point")
    if table.empty:
        raise ValueError(f"--study {study}: has no complete point")
    chosen = table.sort_values(metric, ascending=sweep["direction"] == "minimize", kind="stable")
    if by:
        chosen = chosen.sort_values(by, kind="stable").groupby(by, dropna=False)
    chosen = chosen.head(options.top)
    rows = list[Values]()
    weights = "best.ckpt" if sweep["keep"] == "best" else "last.ckpt"
    for model in chosen.to_dict("records"):
        print(f"{model['point']}  {metric} {model[metric]:.6g}", flush=True)
        checkpoints = study / f"points/{model['point']}/run/checkpoints"
        of_model = {name: model[name] for name in by}
        rows += (row | of_model for row in results_of(checkpoints / weights, flags))
    summary = summarise(pd.DataFrame(rows).astype({"value": float}), [*by, "test_set", "metric"])
    for name, written in (("models", chosen), ("selection", summary)):
        write_text(study / "selection" / f"{name}.csv", written.to_csv(index=False))
    shown = summary[summary["metric"].isin(SHOWN)].drop(columns="values")
    print(shown.to_string(index=False, na_rep="", float_format="{:.4f}".format))
    print(
        "low, high: 95 % interval of the mean over models (Student's t). All: "
        f"{study / 'selection'}"
    )


def results_of(weights: Path, flags: Sequence[str]) -> list[Values]:
    """Return a model's results: test_set, metric, value and n; computed once. ValueError: no set
    named, or failure.
    """
    whole = [limit for sets, limit in WHOLE.items() if any(flag.startswith(sets) for flag in flags)]
    if not whole:
        raise ValueError(
            "name what to test on: --data.test_groups.NAME=SOURCE, --data.test_qa.NAME=SOURCE"
        )
    run = weights.parent.parent
    folder = run.parent / "tests" / work_key(flags=flags, weights=file_digest(weights))[:12]
    if not (folder / "metrics.json").exists() or changed_data(folder):
        shutil.rmtree(folder, ignore_errors=True)  # from an interrupted test
        command = [
            *TEST,
            f"--config={run / 'config.yaml'}",
            f"--ckpt_path={weights}",
            f"--run.root={run.parent}",
            "--run.name=tests",
            f"--run.version={folder.name}",
            "--run.wandb=off",
            "--trainer.enable_progress_bar=false",
            *whole,
            *flags,
        ]
        done = subprocess.run(command, env=own_environment(), capture_output=True, text=True)
        if done.returncode:
            raise ValueError(f"{weights}: not tested: {done.stderr.strip().rpartition(chr(10))[2]}")
    data = load_yaml(folder / "config.yaml", Values)["data"]
    data = data.get("init_args", data)
    sets = {name for key, named in data.items() if key.startswith("test_") for name in named or ()}
    rows = list[Values]()
    metrics = load_json(folder / "metrics.json")
    for key, value in metrics.items():
        stage, *parts = key.split("/")  # test/bias/NAME/ethical/mu; of `main`, without NAME
        if stage == "test":
            row: Values = {"test_set": parts.pop(1) if parts[1] in sets else "main"}
            row |= {"metric": "/".join(parts), "value": value}
            rows.append(row | {"n": metrics.get(f"{key.rpartition('/')[0]}/n")})
    return rows


def summarise(rows: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """Mean, sample deviation and the mean's 95 % interval by Student's t over the models of each
    cell, clipped to [0, 1] for a share; no interval for a single model.
    """
    cells = rows.groupby(keys, sort=False, dropna=False)
    table = cells["value"].agg(["mean", "std", "count", "min", "max"])
    table = table.rename(columns={"count": "models"})
    table["n"] = cells["n"].mean().astype("Int64")
    half = quantile(table["models"]) * table["std"] / table["models"] ** 0.5
    loss = table.index.get_level_values("metric").str.contains("loss")
    share = (table.pop("min") >= 0) & (table.pop("max") <= 1) & ~loss
    table["low"] = (table["mean"] - half).mask(lambda low: share & (low < 0), 0)
    table["high"] = (table["mean"] + half).mask(lambda high: share & (high > 1), 1)
    table["values"] = cells["value"].agg(lambda values: " ".join(map(str, values)))
    return table.reset_index()
