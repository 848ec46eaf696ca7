"""The best models of a sweep, tested: mean and deviation over the first K by a metric of their own."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from storage.command_line import Count, Parser, call, guarded, make_parser
from storage.json_files import load_json
from training.sweep.file import Scalar, flag_text
from training.sweep.point import DESCRIPTION, TRIALS, Point, final_value, parameters_text, read_point
from training.sweep.selection_report import Model, Selection, is_size, write_report
from training.sweep.testing import TEST, parse_tests, results_of

Mode = Literal["min", "max"]


@dataclass(frozen=True, kw_only=True)
class Options:
    """The best models of a sweep, tested: mean and deviation over the first K by a metric of their own.

        python -m training select --study runs/sweeps/lei_grid --metric val/bias/selection --top 5 \\
            --test religion=FILE ethnicity=FILE gender=FILE squad=hub:rajpurkar/squad:validation

    So Zhao et al. (2021, appendix B.3) report: a grid of epochs and learning rates, the five best on the
    development set, mean and deviation on every test set. `--by data.limit_train_groups` does it for each
    value of a swept key and draws the curve (their Figure 5). What was tested once is not tested again. Other
    --key=value flags go to `python -m training test`.

    Args:
        study: folder of a sweep
        metric: key of the trials' metrics.json
        test: sets to test on
        mode: what is better (default: as in the sweep)
        top: how many models
        by: a swept key: do it for each of its values
        checkpoint: last, which metrics.json describes, or best by checkpoint.monitor
        output: a folder (default: STUDY/selection)
    """

    study: Path
    metric: str
    test: list[Annotated[str, "[NAME=]SOURCE"]]
    mode: Mode | None = None
    top: Count = 5
    by: Annotated[str, "KEY"] = ""
    checkpoint: Literal["last", "best"] = "last"
    output: Path | None = None


def parser() -> Parser:
    """The flags of the command itself; all others go to `test`."""
    return make_parser(Options, "python -m training select")


def main(argv: Sequence[str], command: Sequence[str] = TEST) -> int:
    """The command; a user's mistake is one line on stderr and exit code 2."""
    arguments, flags = parser().parse_known_args(argv)
    for flag in flags:
        if not (flag.startswith("--") and "=" in flag):
            print(f"error: {flag}: is no flag of this command; write others as --key=value", file=sys.stderr)
            return 2
    try:
        return guarded(lambda: select(call(Options, arguments), flags, command))
    except KeyboardInterrupt:
        return 130


def select(options: Options, flags: Sequence[str], command: Sequence[str] = TEST) -> None:
    """Rank, test, show, write.

    Raises:
        ValueError: the study, the metric, the key or a test set is not there.
    """
    description, points = read_study(options.study)
    mode = options.mode or known_mode(description, options.metric)
    ranked = [(value, rank(group, options.metric, mode)) for value, group in split(points, options.by)]
    tests = parse_tests(options.test, choices=answers_choices(points[0]))
    selections = []
    for value, models in ranked:
        about = f" of {options.by}={flag_text(value)}" if options.by else ""
        if len(models) < options.top:
            print(f"only {len(models)} complete trials{about}; {options.top} were asked for")
        chosen = models[: options.top]
        results: dict[str, list[dict[str, float]]] = {test.name: [] for test in tests}
        for model in chosen:
            print(f"{model.name}  {model.score:.6g}  {parameters_text(model.parameters)}", flush=True)
            found = results_of(Path(model.run), options.checkpoint, tests, flags, command)
            for name, metrics in found.items():
                results[name].append(metrics)
        selections.append(Selection(value, chosen, results))
    about_it: dict[str, Any] = {"study": description["study"], "metric": options.metric, "mode": mode}
    about_it |= {"top": options.top, "by": options.by, "checkpoint": options.checkpoint}
    write_report(options.output or options.study / "selection", selections, tests, about_it)


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


def known_mode(description: dict[str, Any], metric: str) -> Mode:
    """What is better, as the sweep has it. ValueError for a metric that it does not know."""
    if metric != description["metric"]:
        raise ValueError(f"--mode: say whether the lowest (min) or highest (max) {metric} is best")
    return "min" if description["direction"] == "minimize" else "max"


def split(points: Sequence[Point], by: str) -> list[tuple[Scalar, list[Point]]]:
    """The points of each value of a swept key, in the order of the values. ValueError for a key not swept."""
    if not by:
        return [(None, list(points))]
    groups: dict[Scalar, list[Point]] = {}
    for point in points:
        if by not in point.parameters:
            raise ValueError(f"--by {by}: is not swept; the keys are {', '.join(point.parameters)}")
        groups.setdefault(point.parameters[by], []).append(point)
    if all(map(is_size, groups)):
        return sorted(groups.items(), key=lambda pair: float(pair[0] or 0))
    return list(groups.items())


def rank(points: Sequence[Point], metric: str, mode: Mode) -> list[Model]:
    """The best one first; where values are equal, the earlier one first."""
    models = [
        Model(p.name, final_value(p.run / "metrics.json", metric), p.parameters, str(p.run)) for p in points
    ]
    return sorted(models, key=lambda model: model.score if mode == "min" else -model.score)


def answers_choices(point: Point) -> bool:
    """Whether a point's model answers multiple-choice questions, by what it was validated on."""
    return any(key.startswith("val/choices/") for key in load_json(point.run / "metrics.json"))
