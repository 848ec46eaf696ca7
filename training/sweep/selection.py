"""The best models of a sweep, tested: mean and deviation over the first K by a metric of their own.

A selection leaves selection.json with everything, .csv with all metrics, .md to read, .png.
"""

from __future__ import annotations

import json
import math
import re
import shutil
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import pandas as pd
import yaml
from scipy.stats import t as student_t

from data_modules.encoding.tables import source_digest
from data_modules.schema import ADVICE_CLASSES
from data_modules.sources import format_of, read_groups, read_questions, split_labels
from storage.command_line import Count, Parser, call, guarded, make_parser
from storage.errors import DataError
from storage.files import write_text
from storage.finished_work import FinishedWork, work_key
from storage.json_files import load_json, plain_json
from training.sweep.file import Scalar, flag_text
from training.sweep.point import (
    DESCRIPTION,
    TRIALS,
    Point,
    final_value,
    own_environment,
    parameters_text,
    read_point,
)
from training.sweep.results import save_figure

TEST = (sys.executable, "-m", "training", "test")
WHOLE = {
    "qa": "--data.limit_val_qa=0",
    "groups": "--data.limit_val_groups=0",
    "choices": "--data.choices.limit_val=0",
}
"""Limits are for watching a run; models are tested on everything, unless a flag says otherwise."""
Metrics = dict[str, float]
"""As `bias/ethical/mu` or `qa/f1`, without stage and set."""
SHOWN = (*(f"bias/{name}/mu" for name in ADVICE_CLASSES), "qa/f1", "qa/em", "choices/accuracy")
"""Metrics in the table that is shown; the files hold all."""
LEGEND = (
    "std: sample standard deviation over models; low, high: 95 % interval of the mean, by Student's t over "
    "models. A single model has neither. n: groups or questions of the set."
)


@dataclass(frozen=True)
class TestSet:
    """A named source to test on.

    Args:
        name: in tables and files.
        source: as everywhere: a file, `hub:NAME:SPLIT`, `stories:SPLIT`.
        kind: questions about a text, groups of underspecified ones, or multiple-choice questions.
    """

    __test__ = False  # not one of pytest's

    name: str
    source: str
    kind: Literal["qa", "groups", "choices"]


@dataclass(frozen=True, kw_only=True)
class Options:
    """The best models of a sweep, tested: mean and deviation over the first K by a metric of their own.

        interventune select --study runs/sweeps/lei_grid --metric val/bias/selection --top 5 \\
            --test religion=FILE ethnicity=FILE gender=FILE squad=hub:rajpurkar/squad:validation

    So Zhao et al. (2021, appendix B.3) report: a grid of epochs and learning rates, the five best on the
    development set, mean and deviation on every test set. `--by data.limit_train_groups` does it for each
    value of a swept key and draws the curve (their Figure 5), with the model that the trials began from as 0
    where the sweep's `axis` says so. What was tested once is not tested again. Other --key=value flags go to
    `interventune train test`.

    Args:
        study: folder of a sweep
        metric: key of the trials' metrics.json
        test: sets to test on
        mode: what is better (default: as in the sweep)
        top: how many models
        by: a swept key: do it for each of its values
        checkpoint: last, which metrics.json describes, or best by checkpoint.monitor (default: last, or best
            where a sweep keeps nothing else)
        output: a folder (default: STUDY/selection)
    """

    study: Path
    metric: str
    test: list[Annotated[str, "[NAME=]SOURCE"]]
    mode: Literal["min", "max"] | None = None
    top: Count = 5
    by: Annotated[str, "KEY"] = ""
    checkpoint: Literal["last", "best"] | None = None
    output: Path | None = None


def parser() -> Parser:
    """The flags of the command itself; all others go to `test`."""
    return make_parser(Options, "interventune select")


def main(argv: Sequence[str], command: Sequence[str] = TEST) -> int:
    """The command; a user's mistake is one line on stderr and exit code 2."""
    arguments, flags = parser().parse_known_args(argv)
    for flag in flags:
        if not (flag.startswith("--") and "=" in flag):
            print(f"error: {flag}: is no flag of this command; write others as --key=value", file=sys.stderr)
            return 2
    try:
        return guarded(lambda: select(call(Options, arguments), flags, command), arguments.debug)
    except KeyboardInterrupt:
        return 130


def select(options: Options, flags: Sequence[str], command: Sequence[str] = TEST) -> None:
    """Rank, test, show, write.

    Raises:
        ValueError: the study, the metric, the key or a test set is not there.
    """
    description, points = read_study(options.study)
    if options.mode is None and options.metric != description["metric"]:
        raise ValueError(f"--mode: say whether the lowest (min) or highest (max) {options.metric} is best")
    mode = options.mode or ("min" if description["direction"] == "minimize" else "max")
    checkpoint = options.checkpoint or ("best" if description.get("keep") == "best" else "last")
    axis = description.get("axis") or {}
    axis = axis if axis.get("key") == options.by else {}
    ranked = [
        (value, _ranked(group, options.metric, mode)) for value, group in split(points, options.by).items()
    ]
    choices = any(key.startswith("val/choices/") for key in load_json(points[0].run / "metrics.json"))
    tests = parse_tests(options.test, choices=choices)
    selections: list[dict[str, Any]] = []
    if axis.get("zero_shot"):
        found = [results_of(points[0].run, None, tests, [*order_of_start(points[0].run), *flags], command)]
        results = {test.name: summaries([metrics[test.name] for metrics in found]) for test in tests}
        model: dict[str, Any] = {"name": "zero-shot", "score": math.nan, "parameters": {}}
        selections.append({"value": 0, "models": [model], "results": results})
    for value, models in ranked:
        about = f" of {options.by}={flag_text(value)}" if options.by else ""
        if len(models) < options.top:
            print(f"only {len(models)} complete trials{about}; {options.top} were asked for")
        chosen, found = models[: options.top], []
        for model in chosen:
            print(
                f"{model['name']}  {model['score']:.6g}  {parameters_text(model['parameters'])}", flush=True
            )
            found.append(results_of(Path(model["run"]), checkpoint, tests, flags, command))
        results = {test.name: summaries([metrics[test.name] for metrics in found]) for test in tests}
        selections.append({"value": value, "models": chosen, "results": results})
    how: dict[str, Any] = {"study": description["study"], "metric": options.metric, "mode": mode}
    how |= {"top": options.top, "by": options.by, "checkpoint": checkpoint, "axis": axis}
    write_report(options.output or options.study / "selection", selections, tests, how)


def read_study(folder: Path) -> tuple[dict[str, Any], list[Point]]:
    """What a folder says was swept, and its points that are complete. ValueError where there are none."""
    if not (folder / DESCRIPTION).is_file():
        raise ValueError(f"--study {folder}: has no {DESCRIPTION}; name the folder of a sweep")
    description = load_json(folder / DESCRIPTION)
    points = [read_point(path, description["metric"]) for path in sorted((folder / TRIALS).glob("trial_*"))]
    complete = [point for point in points if point.state == "complete"]
    if not complete:
        raise ValueError(f"--study {folder}: has no complete trial")
    return description, complete


def split(points: Sequence[Point], by: str) -> dict[Scalar, list[Point]]:
    """The points of each value of a swept key, in the order of the values; without a key, all under None.
    ValueError for a key not swept."""
    groups: dict[Scalar, list[Point]] = {}
    for point in points:
        if by and by not in point.parameters:
            raise ValueError(f"--by {by}: is not swept; the keys are {', '.join(point.parameters)}")
        groups.setdefault(point.parameters[by] if by else None, []).append(point)
    if all(map(is_size, groups)):
        return dict(sorted(groups.items(), key=lambda pair: float(pair[0] or 0)))
    return groups


def _ranked(points: Sequence[Point], metric: str, mode: str) -> list[dict[str, Any]]:
    """Name, score, parameters and run of each, the best first; where scores are equal, the earlier first."""
    models: list[dict[str, Any]] = [
        {
            "name": point.name,
            "score": final_value(point.run / "metrics.json", metric),
            "parameters": point.parameters,
            "run": str(point.run),
        }
        for point in points
    ]
    return sorted(models, key=lambda model: model["score"] if mode == "min" else -model["score"])


def parse_tests(texts: Sequence[str], *, choices: bool = False) -> list[TestSet]:
    """The sets of `--test`.

    Args:
        given: each `NAME=SOURCE` or `SOURCE`.
        choices: they hold multiple-choice questions; otherwise their content tells the kind.

    Raises:
        DataError: a source is missing or of no known format, or two sets have one name.
    """
    tests: list[TestSet] = []
    for text in texts:
        if match := re.fullmatch(r"([\w.-]+)=(.+)", text):
            name, source = match.groups()
        else:
            words = re.sub(r"\W+", "_", text.partition(":")[2] or text)
            name, source = Path(text).stem if Path(text).is_file() else words, text
        if any(test.name == name for test in tests):
            raise DataError(f"--test: two sets are called {name}; write NAME={source}")
        tests.append(TestSet(name, source, "choices" if choices else _kind(source)))
    return tests


def _kind(source: str) -> Literal["qa", "groups"]:
    if source.startswith("stories:"):
        try:
            next(read_groups(source))
        except DataError:
            next(read_questions(source))  # says what is wrong with it
            return "qa"
        return "groups"
    if source.startswith("domains:"):
        return "groups"
    folder, colon, _ = source.rpartition(":")
    if source.startswith("hub:") or (colon and not Path(source).exists() and Path(folder).is_dir()):
        return "qa"  # there are no groups in tables
    return "groups" if format_of(source).kind == "groups" else "qa"


def order_of_start(run: Path) -> list[str]:
    """The flag by which the model that a run began from reads as it was trained, if the run reads text."""
    config = yaml.safe_load((run / "config.yaml").read_text(encoding="utf-8")) or {}
    data = config.get("data", {})
    if "order" not in data.get("init_args", data).get("encoding", {}):
        return []
    from models.checkpoint import reading_order  # a second that other selections do without

    return [f"--data.encoding.order={reading_order(config['backbone']['checkpoint'])}"]


def results_of(
    run: Path,
    checkpoint: str | None,
    tests: Sequence[TestSet],
    flags: Sequence[str],
    command: Sequence[str] = TEST,
) -> dict[str, Metrics]:
    """What a model reaches on every set; only what was never asked before is computed.

    Args:
        run: folder of the model's run.
        checkpoint: `last` or `best`; None for the model that the run began from.
        tests: the sets.
        flags: more arguments of the command.
        command: what tests a model, before its arguments.

    Raises:
        DataError: the run has no such checkpoint, or the command failed.
    """
    path = run / "checkpoints" / f"{checkpoint}.ckpt" if checkpoint else run / "config.yaml"
    for needed in (path, run / "config.yaml"):
        if not needed.is_file():
            raise DataError(f"{needed}: is missing; was the run kept on another machine?")
    state, work = path.stat(), FinishedWork(run.parent / "tests.jsonl")
    model = [path.name, state.st_size, state.st_mtime_ns]
    keys = []
    for test in tests:
        content = [source_digest(part) for part in split_labels(test.source) if part]
        asked = {"kind": test.kind, "source": test.source, "content": content, "flags": sorted(flags)}
        keys.append(work_key(model=model, **asked))
    ask = partial(_tested, run, path, flags=flags, command=command)
    found = dict(work.results(dict(zip(keys, tests, strict=True)), ask, "metrics"))
    return {test.name: found[key] for test, key in zip(tests, keys, strict=True)}


def _tested(
    run: Path, checkpoint: Path, tests: Sequence[TestSet], *, flags: Sequence[str], command: Sequence[str]
) -> list[Metrics]:
    # Names of our own: those of the user may hold anything, and the set `main` would have no name in keys.
    named = {f"set{i}": test for i, test in enumerate(tests)}
    folder = run.parent / "tests" / "running"
    shutil.rmtree(folder, ignore_errors=True)  # of one that was interrupted
    arguments = ["-c", str(run / "config.yaml")]
    if checkpoint.suffix == ".ckpt":
        arguments.append(f"--ckpt_path={checkpoint}")
    kinds = [kind for kind in WHOLE if any(test.kind == kind for test in tests)]
    if "groups" in kinds and (run / "config.yaml").read_text().count(".QuestionsDataModule"):
        arguments.append("--data=data_modules.groups_data.GroupsDataModule")
    for kind in kinds:
        sources = {name: test.source for name, test in named.items() if test.kind == kind}
        arguments += [WHOLE[kind], f"--data.test_{kind}={json.dumps(sources)}"]
    arguments += [f"--run.root={run.parent}", "--run.name=tests", "--run.version=running"]
    arguments += ["--run.wandb=off", "--trainer.enable_progress_bar=false", *flags]
    output: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    done = subprocess.run([*command, *arguments], env=own_environment(), **output)
    if done.returncode:
        reason = done.stdout.strip().rpartition("\n")[2]
        raise DataError(f"{checkpoint}: testing failed (exit code {done.returncode}): {reason}")
    metrics: dict[str, float | None] = load_json(folder / "metrics.json")
    found = [(key.split("/"), math.nan if value is None else value) for key, value in metrics.items()]
    shutil.rmtree(folder)
    # `test/bias/NAME/ethical/mu` as `bias/ethical/mu`
    return [
        {"/".join([p[1], *p[3:]]): value for p, value in found if len(p) > 3 and p[2] == name}
        for name in named
    ]


def summarise(values: Sequence[float], *, share: bool = False) -> dict[str, Any]:
    """Mean, sample standard deviation, and the mean's 95 % interval by Student's t, of a share within 0 and
    1; None for a single model.

    >>> summarise([1.0, 2.0, 3.0])["std"]
    1.0
    """
    n, mean = len(values), math.fsum(values) / len(values)
    std = low = high = None
    if n > 1 and all(map(math.isfinite, values)):
        std = statistics.stdev(values)
        half = float(student_t.ppf(0.975, n - 1)) * std / math.sqrt(n)
        low, high = mean - half, mean + half
        if share:
            low, high = max(0.0, low), min(1.0, high)
    return {"mean": mean, "std": std, "low": low, "high": high, "models": n, "values": list(values)}


def summaries(models: Sequence[dict[str, float]]) -> dict[str, dict[str, Any]]:
    """`summarise` of every metric over several models, those that are shown first."""
    keys = sorted(models[0], key=lambda key: (SHOWN.index(key) if key in SHOWN else len(SHOWN), key))
    values = {key: [metrics[key] for metrics in models if key in metrics] for key in keys}
    return {
        key: summarise(found, share="loss" not in key and all(0 <= value <= 1 for value in found))
        for key, found in values.items()
    }


def write_report(
    folder: Path, selections: Sequence[dict[str, Any]], tests: Sequence[TestSet], about: dict[str, Any]
) -> None:
    """Show the table and write the files.

    Args:
        folder: of the files.
        selections: the best models among those that share a `value` of a swept key (None: among all): their
            `models`, the best first, and `results`, for every test set the `summaries`.
        tests: the sets.
        about: how the models were selected.
    """
    by, axis, rows = about["by"], about["axis"], list[dict[str, Any]]()
    title = axis.get("title", by)
    for selection in selections:
        for test, results in selection["results"].items():
            for metric, found in results.items():
                count = results.get(metric.rpartition("/")[0] + "/n")
                row: dict[str, Any] = {title: called(selection["value"], axis)} if by else {}
                row |= {"test_set": test, "metric": metric, **found}
                del row["values"]
                row["n"] = round(count["mean"]) if count else None
                rows.append(row | {"values": " ".join(map(str, found["values"]))})
    table = pd.DataFrame(rows).astype({"n": "Int64"})
    write_text(folder / "selection.csv", table.to_csv(index=False))
    shown = table[table["metric"].isin(SHOWN)].drop(columns="values")
    shown = shown.map(lambda x: "" if pd.isna(x) else f"{x:.4f}" if isinstance(x, float) else str(x))
    print(shown.to_string(index=False), LEGEND, folder, sep="\n")
    best = "lowest" if about["mode"] == "min" else "highest"
    models = pd.DataFrame(
        {"model": model["name"], about["metric"]: f"{model['score']:.6g}", **model["parameters"]}
        for selection in selections
        for model in selection["models"]
    )
    heading = f"# {about['study']}: the {about['top']} models of {best} {about['metric']}"
    parts = [heading, _markdown(shown), LEGEND, "## Models", _markdown(models)]
    write_text(folder / "selection.md", "\n\n".join(parts) + "\n")
    content = {"about": about, "tests": [asdict(test) for test in tests], "selections": selections}
    write_text(folder / "selection.json", json.dumps(plain_json(content), indent=1) + "\n")
    if by:
        _draw(folder / "selection.png", selections, tests, title, axis)


def _markdown(table: pd.DataFrame) -> str:
    rows = [list(table), ["---"] * table.shape[1], *table.values.tolist()]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |" for row in rows)


def is_size(value: Scalar) -> bool:
    """Whether a value has a place on a logarithmic axis."""
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0


def called(value: Scalar, axis: dict[str, Any]) -> str:
    """A value of a swept key as tables and figures show it."""
    return flag_text(axis.get("values", {}).get(str(value), value))


def _draw(
    path: Path,
    selections: Sequence[dict[str, Any]],
    tests: Sequence[TestSet],
    title: str,
    axis_of: dict[str, Any],
) -> None:
    """A panel for each set of groups, with mu of every class of advice against a swept key; a last one for
    questions (Figure 5 of Zhao et al. 2021, with the size of the training set as the key).

    The axis is logarithmic where all values are numbers above 0, but for the 0 of the model that the trials
    began from, which stands left of them. Bars are 95 % intervals over models, dashes the models; n is that
    of the set and class.
    """
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    lines: list[tuple[str, str, str, str]] = [
        (test.name, test.name, f"bias/{name}/mu", name)
        for test in tests
        if test.kind == "groups"
        for name in ADVICE_CLASSES
    ]
    score = {"qa": "qa/f1", "choices": "choices/accuracy"}
    lines += [("questions", test.name, score[test.kind], test.name) for test in tests if test.kind in score]
    panels = list(dict.fromkeys(panel for panel, *_ in lines))
    size = (4 * len(panels), 3.4)
    figure, axes = plt.subplots(1, len(panels), figsize=size, squeeze=False, layout="constrained")
    logarithmic = all(is_size(s["value"]) or s["value"] == 0 for s in selections)
    for panel, test, metric, label in lines:
        axis = axes[0][panels.index(panel)]
        counts = [s["results"][test].get(metric.rpartition("/")[0] + "/n") for s in selections]
        n = f" (n {round(counts[0]['mean'])})" if counts[0] else ""
        axis.set(title=panel, xlabel=title, ylabel=metric.rpartition("/")[2], ylim=(0, None))
        points = [
            (s["value"], s["results"][test][metric]) for s in selections if metric in s["results"][test]
        ]
        if not points:
            continue
        ticks = [called(value, axis_of) for value, _ in points]
        least = min((float(value) for value, _ in points if value), default=1.0)
        x = [value or least / 4 for value, _ in points] if logarithmic else ticks
        half = [0.0 if found["low"] is None else found["mean"] - found["low"] for _, found in points]
        means = [found["mean"] for _, found in points]
        (line, *_) = axis.errorbar(x, means, yerr=half, marker="o", capsize=3, label=label + n)
        for at, (_, found) in zip(x, points, strict=True):  # the models themselves
            axis.plot([at] * len(found["values"]), found["values"], "_", color=line.get_color(), alpha=0.6)
        highest = max(value for _, found in points for value in found["values"])
        axis.set_ylim(0, 1.02 if highest <= 1 else None)  # of shares; intervals of two models are wider
        if logarithmic:
            axis.set_xscale("log")
            axis.set_xticks(x, ticks)
            axis.minorticks_off()
        axis.legend(fontsize="small")
    save_figure(figure, path)
