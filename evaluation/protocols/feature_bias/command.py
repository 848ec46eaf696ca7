"""Which of two features does a model pick up from ambiguous demonstrations?

Of language models (Si et al. 2023). The tasks: data_modules/tasks/feature_bias.py, the prompts:
prompts.py in this folder.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from interventune.data_modules.tasks.feature_bias import CELLS, FeatureTask, open_task
from interventune.data_modules.tasks.features import counted_with
from interventune.evaluation.answering.interface import Asking, Compute
from interventune.evaluation.protocol import (
    Evaluation,
    Points,
    Protocol,
    Row,
    Statistic,
    View,
    declared,
)
from interventune.evaluation.statistics import Floats
from interventune.metrics.feature_bias import stratum_weights
from interventune.storage.command_line import Count, Named, NamedFile, split_name

from .prompts import NONE, Prompting, Way, few_shots

STEERED_NOTE = (
    "Means toward h1 leave out sentiment tasks if there are others, as the paper's Table 2 does."
)
STEERED = {"h1": ("steerable_h1", 4), "h2": ("h2", 5)}
"""The measure of steering to a feature, and the paper's table of it."""


class OverStrata(Statistic):
    """The mean of a field over strata (a task, a set of demonstrations and a kind of texts),
    whatever their sizes. The second field is the stratum.
    """

    def columns(self, fields_NF: Floats) -> Floats:
        """Return rows that weigh one over the number of rows in their stratum."""
        weight_N = stratum_weights(fields_NF[:, 1])
        return np.stack([np.ones_like(weight_N), weight_N * fields_NF[:, 0], weight_N], axis=1)


def over_strata(heading: str, field: str) -> OverStrata:
    """The mean of a field over strata."""
    return OverStrata(
        heading, (field, "stratum"), lambda sums_RC: sums_RC[:, 1] / sums_RC[:, 2], share=True
    )


FEATURE_BIAS = Protocol(
    measures={
        "h1": over_strata("h1", "follows_h1"),
        "h2": over_strata("h2", "follows_h2"),
        "steerable_h1": over_strata("h1", "steerable_h1"),
        "uncalibrated_h1": over_strata("h1 uncalibrated", "uncalibrated_h1"),
        "agreement": over_strata("agree", "agrees"),
    },
    **declared(__file__),
)


def evaluate(
    *,
    checkpoint: list[Named],
    task: list[NamedFile],
    limit: Count | None = None,
    prompting: Prompting,
    compute: Compute,
) -> Evaluation:
    """Measure which of two features a model learns from demonstrations that both features explain.

    Example: interventune evaluate feature-bias --checkpoint gpt2=hf:gpt2 \\
        --task stories:uppercase  --intervention instruction explanation --steer h1 --output report

    Args:
        checkpoint: language models, which read the demonstrations in their prompt (hf:PATH,
            openai:MODEL[@URL], a decoder's .ckpt).
        task: tasks written by `interventune data feature-bias`, folders of them, or stories:NAME.
            NAME= renames a task.
        limit: use at most N texts for each combination of the two features.
        prompting: prompts of language models.
        compute: model options.
    """
    from interventune.evaluation.answering.language_model import open_text_model

    from .labels import in_context_rows

    asking = Asking(**vars(compute), max_new_tokens=prompting.max_new_tokens, chat="never")
    tasks = read_tasks(task)
    prompts = few_shots(tasks, prompting)
    texts = {
        name: [text for cell in CELLS for text in feature_task.tests[cell][:limit]]
        for name, feature_task in tasks.items()
    }
    places = {name: counted_with(name) for name in tasks}
    steerable = {name for name, place in places.items() if place["family"] != "SA"} or set(tasks)

    def rows(model: Any) -> Iterator[Row]:
        strata: dict[tuple[str, int, str], int] = {}
        for name, text, row in in_context_rows(model, prompts, texts, parity=prompting.parity):
            row["stratum"] = strata.setdefault((name, row["seed"], text.split), len(strata))
            if prompting.intervention and name in steerable:
                row["steerable_h1"] = row.get("follows_h1")
            question = {"task": name, "cell": text.split, "id": text.id, "text": text.question}
            yield places[name] | question | row

    return (steering(prompting.ways) if prompting.intervention else FEATURE_BIAS).run(
        rows, checkpoint, opened=lambda model: open_text_model(model.path, asking)
    )


def steering(ways: Sequence[Way]) -> Protocol:
    """Return the protocol with tables and figures of these interventions; the first is none."""
    views = [*FEATURE_BIAS.views]
    figures = {**FEATURE_BIAS.figures}
    for steer in dict.fromkeys(way.steer for way in ways[1:]):
        measure, number = STEERED[steer]
        measures = {measure: f"follows {steer}"}
        names = [NONE, *(str(way) for way in ways[1:] if way.steer == steer)]
        where: dict[str, Any] = {"intervention": names}
        means = View(
            f"Toward {steer}, means over tasks (the paper's Table 2)",
            ("intervention",),
            measures,
            where=where,
        )
        views += [
            means,
            replace(
                means,
                title=f"What it adds toward {steer}, in points",
                where=where | {"against": f"intervention={NONE}"},
            ),
            View(
                f"Toward {steer} by feature (the paper's Table {number})",
                ("checkpoint", "family", "feature"),
                measures,
                across="intervention",
                where=where,
                interval=False,
            ),
        ]
        points = Points("checkpoint", measures, hue="intervention", where=where, chance=50)
        by_family = replace(points, x="family", panels="checkpoint")  # the paper's Figure 3
        figures |= {f"toward_{steer}.png": points, f"toward_{steer}_by_family.png": by_family}
    return replace(
        FEATURE_BIAS, views=views, figures=figures, notes=[*FEATURE_BIAS.notes, STEERED_NOTE]
    )


def read_tasks(arguments: Sequence[str]) -> dict[str, FeatureTask]:
    """Read tasks by name, from `[NAME=]FILE` or folders of such files. ValueError: a file cannot be
    read, or two tasks have one name.
    """
    tasks: dict[str, FeatureTask] = {}
    for argument in arguments:
        name, source = split_name(argument)
        for file in sorted(Path(source).glob("*.json")) if Path(source).is_dir() else [source]:
            task = open_task(file)
            task = replace(task, dataset=name or task.dataset)
            if task.dataset in tasks:
                raise ValueError(
                    f"--task {file}: another task is called {task.dataset!r}; write NAME={file}"
                )
            tasks[task.dataset] = task
    if not tasks:
        raise ValueError("--task: the folder holds no task (*.json)")
    return tasks
