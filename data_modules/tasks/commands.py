"""The commands `feature-bias`, `feature-bias-rows` and `toxicity-prompts`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from data_modules.choices.benchmarks import write_choices
from data_modules.tasks.feature_bias import (
    AGREEING,
    Sizes,
    build_task,
    choice_rows,
    training_examples,
    write_task,
)
from data_modules.tasks.features import FeatureName, Meaning, Recipe, recipes
from data_modules.tasks.labelled_texts import Rows
from data_modules.tasks.own_tasks import open_task
from data_modules.tasks.toxicity_prompts import draw_prompts, prompt_rows
from storage.command_line import Count
from storage.errors import DataError
from storage.files import file_digest, refuse_existing
from storage.json_files import write_json_lines

Output = Annotated[Path, "FILE"]


def write_toxicity_prompts(
    *,
    input: Annotated[str, "SOURCE"],
    output: Annotated[Path, "DIR"],
    overwrite: bool = False,
    count: Count = 1200,
    seed: int = 0,
) -> str:
    """Draw adversarial and neutral prompts from RealToxicityPrompts.

    example:
      interventune data toxicity-prompts --input hub:allenai/real-toxicity-prompts --output prompts

    Args:
        input: RealToxicityPrompts as JSON Lines, or hub:NAME[:SPLIT]; stories:opinions stands in for it.
        output: folder for adversarial.jsonl and neutral.jsonl.
        overwrite: replace these files if they exist.
        count: prompts of each; those of the first are what the data call challenging.
        seed: of the draw, which the order of the input does not change.
    """
    files = {domain: output / f"{domain}.jsonl" for domain in ("adversarial", "neutral")}
    refuse_existing(*files.values(), overwrite=overwrite)
    found = draw_prompts(prompt_rows(input), count, seed)
    output.mkdir(parents=True, exist_ok=True)
    for domain, path in files.items():
        lines = ({"prompt": {"text": text}, "challenging": domain == "adversarial"} for text in found[domain])
        write_json_lines(path, lines)
    return f"{output}: {count} adversarial and {count} neutral prompts, seed {seed}"


def write_feature_task(
    *,
    input: list[Annotated[str, "SOURCE"]],
    output: Annotated[Path, "PATH"],
    overwrite: bool = False,
    task: list[str] | None = None,
    feature: FeatureName = "uppercase",
    feature_args: list[Annotated[str, "KEY=VALUE"]] | None = None,
    h1_means: tuple[str, str] | None = None,
    h2_means: tuple[str, str] | None = None,
    rows: Rows,
    sizes: Sizes,
) -> str:
    """Write a task that tells which of two features is learned, from labelled texts.

    examples:
      interventune data feature-bias --task boolq_answer_qword --input hub:google/boolq:train --output tasks
      interventune data feature-bias --input mnli.jsonl --positive entailment --feature overlap \\
          --h1-means "the second must be true" "it need not be" --output overlap.json

    Args:
        input: tables with a label and `text`, or `premise` and `hypothesis`, or `passage` and `question`: as
            JSON Lines, CSV, parquet, a dataset's folder or hub:NAME:SPLIT.
        output: file to write; with --task a folder, in which each task becomes NAME.json.
        overwrite: replace files that exist.
        task: of configs/tasks/feature_bias.yaml (the paper's), which says all but the sizes.
        feature: h2, the other feature, of a task of your own.
        feature_args: its options (data_modules/tasks/features.py).
        h1_means: what the labels 1 and 0 say, in words, for prompts.
        h2_means: likewise of the feature.
    """
    if task:
        if unknown := [name for name in task if name not in recipes()]:
            raise DataError(f"--task {unknown[0]}: no such task; choose from {', '.join(recipes())}")
        chosen = {output / f"{name}.json": recipes()[name] for name in task}
    else:
        options = dict(argument.partition("=")[::2] for argument in feature_args or ())
        alike = (r.h2 for r in recipes().values() if (r.feature, r.options) == (feature, options))
        h1 = Meaning(key="Label:", one=h1_means[0], zero=h1_means[1]) if h1_means else None
        h2 = Meaning(key="Feature:", one=h2_means[0], zero=h2_means[1]) if h2_means else next(alike, None)
        chosen = {output: Recipe(feature=feature, options=options, h1=h1, h2=h2, rows=rows)}
    refuse_existing(*chosen, overwrite=overwrite)
    digests = (file_digest(source) if Path(source).is_file() else "" for source in input)
    made_from = {"input": " ".join(input), "sha256": " ".join(digests)}
    lines = []
    for path, recipe in chosen.items():
        about = made_from | {"label": recipe.rows.label}
        built = build_task(path.stem, recipe.rows.read(input), recipe, sizes, about)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_task(path, built)
        tests = ", ".join(f"{len(examples)} in {cell}" for cell, examples in built.tests.items())
        left = f"{built.made_from['on_neither_side']} on neither side, {built.made_from['repeated']} repeated"
        lines.append(f"{path}: tests {tests}; left out: {left}")
    return "\n".join(lines)


def write_feature_rows(
    *,
    task: Annotated[str, "FILE"],
    output: Output,
    dev_output: Output | None = None,
    overwrite: bool = False,
    seed: int = 0,
) -> str:
    """Write the demonstrations of such a task as rows to fine-tune on, both labels equally often.

    example:
      interventune data feature-bias-rows --task task.json --output train.jsonl --dev-output dev.jsonl

    Args:
        task: a task (its file, or stories:NAME) to train on.
        output: file to write.
        dev_output: also write the tests on which both features agree: for validation, where nothing may tell
            which feature is meant.
        overwrite: replace the outputs if they exist.
        seed: of the choice of rows and their order.
    """
    refuse_existing(*(path for path in (output, dev_output) if path), overwrite=overwrite)
    whole = open_task(task)
    said = f"{output}: {write_choices(output, choice_rows(whole, training_examples(whole, seed)))} rows"
    if dev_output is None:
        return said
    tests = [example for cell in AGREEING for example in whole.tests[cell]]
    return f"{said}; {dev_output}: {write_choices(dev_output, choice_rows(whole, tests))}"
