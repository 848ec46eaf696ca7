"""The commands `feature-bias` and `feature-bias-rows`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from data_modules.records import write_records
from data_modules.tasks.feature_bias import (
    AGREEING,
    build_task,
    choice_rows,
    open_task,
    training_examples,
    write_task,
)
from data_modules.tasks.features import CONFIGURATION, recipes
from storage.command_line import Count
from storage.errors import DataError
from storage.files import file_digest, refuse_existing


def write_feature_tasks(
    *,
    input: list[Annotated[str, "SOURCE"]],
    output: Annotated[Path, "DIR"],
    overwrite: bool = False,
    task: list[str],
    recipe: Annotated[Path, "YAML"] | None = None,
    min_demos: Count = 32,
) -> str:
    """Write tasks that tell which of two features is learned, from labelled texts.

    examples:
      interventune data feature-bias --task boolq_answer_qword --input hub:google/boolq:train --output tasks
      interventune data feature-bias --task loud --recipe mine.yaml --input reviews.jsonl --output tasks

    Args:
        input: tables with a label and `text`, or `premise` and `hypothesis`, or `passage` and `question`: as
            JSON Lines, CSV, parquet, a dataset's folder or hub:NAME:SPLIT.
        output: folder, in which each task becomes NAME.json.
        overwrite: replace files that exist.
        task: of configs/tasks/feature_bias.yaml (the paper's).
        recipe: a file of your own in its place.
        min_demos: demonstrations that each agreeing cell keeps before it gets any test.
    """
    known = recipes(recipe or CONFIGURATION)
    if unknown := [name for name in task if name not in known]:
        raise DataError(f"--task {unknown[0]}: no such task; choose from {', '.join(known)}")
    files = {name: output / f"{name}.json" for name in task}
    refuse_existing(*files.values(), overwrite=overwrite)
    digests = (file_digest(source) if Path(source).is_file() else "" for source in input)
    made_from = {"input": " ".join(input), "sha256": " ".join(digests)}
    lines = []
    for name, path in files.items():
        how, about = known[name], made_from | {"label": known[name].label}
        built = build_task(name, how.read(input), how, about, min_demos=min_demos)
        output.mkdir(parents=True, exist_ok=True)
        write_task(path, built)
        tests = ", ".join(f"{len(examples)} in {cell}" for cell, examples in built.tests.items())
        left = f"{built.made_from['on_neither_side']} on neither side, {built.made_from['repeated']} repeated"
        lines.append(f"{path}: tests {tests}; left out: {left}")
    return "\n".join(lines)


def write_feature_rows(
    *,
    task: Annotated[str, "FILE"],
    output: Annotated[Path, "FILE"],
    dev_output: Annotated[Path, "FILE"],
    overwrite: bool = False,
) -> str:
    """Write the demonstrations of such a task as rows to fine-tune on, both labels equally often.

    example:
      interventune data feature-bias-rows --task task.json --output train.jsonl --dev-output dev.jsonl

    Args:
        task: a task (its file, or stories:NAME) to train on.
        output: file to write.
        dev_output: likewise of the tests on which both features agree, to validate on.
        overwrite: replace the outputs if they exist.
    """
    refuse_existing(output, dev_output, overwrite=overwrite)
    whole = open_task(task)
    trained = write_records(choice_rows(whole, training_examples(whole)), output)
    tests = [example for cell in AGREEING for example in whole.tests[cell]]
    return f"{output}: {trained} rows; {dev_output}: {write_records(choice_rows(whole, tests), dev_output)}"
