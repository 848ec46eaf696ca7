"""Which of two features does a model pick up from ambiguous demonstrations?

It compares in-context learning with fine-tuning. Probes spec C; the tasks:
data_modules/tasks/feature_bias.py, the prompts: prompts.py in this folder.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from interventune.data_modules.tasks.feature_bias import CELLS, FeatureTask, open_task
from interventune.data_modules.tasks.features import counted_with
from interventune.evaluation.answering.asking import Compute
from interventune.evaluation.answering.interface import Answerer
from interventune.evaluation.protocols.feature_bias.prompts import Prompting, few_shots
from interventune.evaluation.protocols.feature_bias.views import FEATURE_BIAS, steering
from interventune.evaluation.report import Evaluation
from interventune.storage.command_line import Count, Named, NamedFile, split_name


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
            openai:MODEL[@URL], a decoder's .ckpt), and classifiers that were fine-tuned on a task's
            demonstrations (`interventune data feature-bias-rows`, experiment multiple_choice).
        task: tasks written by `interventune data feature-bias`, folders of them, or stories:NAME.
            NAME= renames a task.
        limit: use at most N texts for each combination of the two features.
        prompting: prompts of language models.
        compute: model options.
    """
    from interventune.evaluation.protocols.feature_bias.asking import (
        classifier_rows,
        in_context_rows,
        open_model,
    )
    from interventune.models.language.text_models import TextModel

    tasks = read_tasks(task)
    prompts = few_shots(tasks, prompting)
    texts = {
        name: [text for cell in CELLS for text in one.tests[cell][:limit]]
        for name, one in tasks.items()
    }
    places = {name: counted_with(name) for name in tasks}
    steerable = {name for name, place in places.items() if place["family"] != "SA"} or set(tasks)

    def rows(model: TextModel | Answerer) -> Iterator[dict[str, Any]]:
        strata: dict[tuple[str, int, str], int] = {}
        if isinstance(model, TextModel):
            answers = in_context_rows(model, prompts, texts, parity=prompting.parity)
        else:
            answers = classifier_rows(model, tasks, texts)
        for name, text, row in answers:
            row["stratum"] = strata.setdefault((name, row["seed"], text.split), len(strata))
            if prompting.intervention and name in steerable:
                row["steerable_h1"] = row.get("follows_h1")
            asked = {"task": name, "cell": text.split, "id": text.id, "text": text.question}
            yield places[name] | asked | row

    opened = partial(open_model, compute=compute, max_new_tokens=prompting.max_new_tokens)
    protocol = steering(prompting.ways) if prompting.intervention else FEATURE_BIAS
    return protocol.run(rows, checkpoint, opened=opened)


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
