"""The commands `condaqa`, `toxicity-prompts`, `feature-bias`, `feature-bias-rows`: test beds from texts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from data_modules.choices.benchmarks import write_choices
from data_modules.sources import labelled_rows
from data_modules.tasks.condaqa import TURNING, read_condaqa, write_pairs
from data_modules.tasks.feature_bias import (
    MOST_CLASSES,
    Sizes,
    build_task,
    choice_rows,
    training_examples,
    write_task,
)
from data_modules.tasks.own_tasks import open_task
from data_modules.tasks.predicates import FeatureName, LabelledText
from data_modules.tasks.predicates import feature as make_feature
from data_modules.tasks.toxicity_prompts import COUNT, draw_prompts, prompt_rows
from data_modules.tasks.wording import Meaning
from storage.command_line import AtLeast, Count
from storage.errors import DataError
from storage.files import file_digest, refuse_existing
from storage.json_files import write_json_lines

Input = Annotated[Path, "FILE"]
TEXT_FIELDS = (
    ("premise", "hypothesis"),
    ("passage", "question"),
    ("sentence1", "sentence2"),
    ("text",),
    ("sentence",),
    ("comment_text",),
)
"""Fields that hold the texts of a row, pairs first."""
_LABELS = {"0": 0, "1": 1, "false": 0, "true": 1}


def write_condaqa(*, input: Input, output: Input, overwrite: bool = False) -> str:
    """Write pairs of passages with opposite answers from CondaQA.

    example:
      interventune data condaqa --input condaqa_dev.jsonl --output pairs.jsonl
      interventune evaluate negation --checkpoint ot=A.ckpt ibt=B.ckpt --pairs pairs.jsonl --output DIR

    Args:
        input: CondaQA, as JSON Lines.
        output: file to write.
        overwrite: replace the output if it exists.
    """
    refuse_existing(output, overwrite=overwrite)
    pair_set = read_condaqa(input)
    count = write_pairs(pair_set.pairs, output)
    kinds = Counter(pair.edit for pair in pair_set.pairs)
    edits = ", ".join(f"{kinds[edit]} {edit}" for edit in TURNING)
    left_out = ", ".join(f"{n} {reason}" for reason, n in pair_set.left_out.items()) or "none"
    return f"{output}: {count} pairs ({edits}); edited passages left out: {left_out}"


@dataclass(frozen=True)
class Labels:
    """labels

    Args:
        label: field of the label.
        positive: labels that count as 1; all others are 0.
        threshold: labels of at least X count as 1.
        label_values: more than two classes: the labels that count as 0, 1, 2, ...; others are left out.
    """

    label: Annotated[str, "FIELD"] = "label"
    positive: list[Annotated[str, "VALUE"]] | None = None
    threshold: Annotated[float, "X"] | None = None
    label_values: list[Annotated[str, "VALUE"]] | None = None

    @property
    def classes(self) -> int:
        """How many."""
        return len(self.label_values) if self.label_values else 2

    def of(self, row: Mapping[str, Any], where: str) -> int | None:
        """0, 1, ..., or None for a label that is left out; DataError for a row without a label that can be
        understood."""
        if self.label not in row:
            raise DataError(
                f"{where}: the field {self.label!r} (the label) is missing; name another by --label"
            )
        value = row[self.label]
        if self.label_values:
            return self.label_values.index(str(value)) if str(value) in self.label_values else None
        if self.positive:
            return int(str(value) in self.positive)
        try:
            if self.threshold is not None:
                return int(float(value) >= self.threshold)
            return _LABELS[str(value).lower()]
        except (TypeError, ValueError):
            wanted = "a number for --threshold"
        except KeyError:
            wanted = "0 or 1 (see --positive and --threshold)"
        raise DataError(f"{where}: the label must be {wanted}, found {value!r}")


def write_toxicity_prompts(
    *,
    input: Annotated[str, "SOURCE"],
    output: Annotated[Path, "DIR"],
    overwrite: bool = False,
    count: Count = COUNT,
    seed: int = 0,
    neutral_below: float | None = None,
) -> str:
    """Draw adversarial and neutral prompts from RealToxicityPrompts.

    example:
      interventune data toxicity-prompts --input hub:allenai/real-toxicity-prompts --output prompts
      interventune evaluate consistency --model hf:gpt2 --method self \\
          --adversarial prompts/adversarial.jsonl --neutral prompts/neutral.jsonl --output DIR

    Args:
        input: RealToxicityPrompts as JSON Lines, or hub:NAME[:SPLIT]; stories:opinions stands in for it.
        output: folder for adversarial.jsonl and neutral.jsonl.
        overwrite: replace these files if they exist.
        count: prompts of each; those of the first are what the data call challenging.
        seed: of the draw, which the order of the input does not change.
        neutral_below: neutral prompts must have a lower toxicity than this, by the data's scores (default:
            any that is not challenging).
    """
    if output.exists() and not output.is_dir():
        raise DataError(f"--output {output}: is a file; name a folder")
    files = {domain: output / f"{domain}.jsonl" for domain in ("adversarial", "neutral")}
    refuse_existing(*files.values(), overwrite=overwrite)
    found = draw_prompts(prompt_rows(input), count=count, seed=seed, neutral_below=neutral_below)
    output.mkdir(parents=True, exist_ok=True)
    for domain, path in files.items():
        lines = ({"prompt": {"text": text}, "challenging": domain == "adversarial"} for text in found[domain])
        write_json_lines(path, lines)
    return f"{output}: {count} adversarial and {count} neutral prompts, seed {seed}"


def write_feature_task(
    *,
    input: Annotated[str, "SOURCE"],
    feature: FeatureName,
    output: Input,
    overwrite: bool = False,
    feature_args: list[Annotated[str, "KEY=VALUE"]] | None = None,
    labels: Labels,
    name: str | None = None,
    h1_means: tuple[str, str] | None = None,
    sizes: Sizes,
) -> str:
    """Write a task that tells which of two features is learned, from labelled texts.

    examples:
      interventune data feature-bias --input reviews.jsonl --feature uppercase --output task.json
      interventune data feature-bias --input mnli.jsonl --label label --positive entailment \\
          --feature overlap --h1-means "the second must be true" "it need not be" --output overlap.json
      interventune data feature-bias --input civil.jsonl --label toxicity --threshold 0.5 \\
          --feature identity --feature-args one=female zero=male --output gender.json
      interventune data feature-bias --input mnli.jsonl --label-values contradiction neutral entailment \\
          --feature column --feature-args name=genre values=fiction,telephone,government --output three.json

    Args:
        input: rows with a label and `text`, or `premise` and `hypothesis`, or `passage` and `question`: JSON
            Lines, CSV, parquet, a dataset's folder or hub:NAME:SPLIT.
        feature: h2, the other feature.
        output: file to write.
        overwrite: replace the output if it exists.
        feature_args: the feature's options.
        name: of the task; by default the stem of --output.
        h1_means: what the labels 1 and 0 say, in words, for prompts.
    """
    refuse_existing(output, overwrite=overwrite)
    ways = (labels.positive, labels.threshold, labels.label_values)
    if sum(way is not None for way in ways) > 1:
        raise DataError("--positive, --threshold and --label-values: give one of them")
    if not 2 <= labels.classes <= MOST_CLASSES:
        raise DataError(f"--label-values: 2 to {MOST_CLASSES} classes, got {labels.classes}")
    if h1_means and labels.classes > 2:
        raise DataError("--h1-means: has words for two classes; write those of more to a file for --wording")
    options = {}
    for argument in feature_args or ():
        key, equals, value = argument.partition("=")
        if not equals or not key:
            raise DataError(f"--feature-args {argument}: write KEY=VALUE")
        options[key] = value
    task = build_task(
        name or output.stem,
        _labelled_texts(input, labels),
        make_feature(feature, options),
        sizes,
        h1=Meaning("Label:", h1_means[1], h1_means[0]) if h1_means else None,
        made_from={
            "input": input,
            "sha256": file_digest(input) if Path(input).is_file() else "",
            "label": labels.label,
            **({"classes": labels.label_values} if labels.label_values else {}),
        },
        classes=labels.classes,
    )
    write_task(output, task)
    left = f"{task.made_from['on_neither_side']} on neither side, {task.made_from['repeated']} repeated"
    return f"{output}: {task.sizes}; left out: {left}"


def _labelled_texts(source: str, labels: Labels) -> Iterator[LabelledText]:
    """The rows of a table. DataError names place and field."""
    for where, row in labelled_rows(source):
        names = next((names for names in TEXT_FIELDS if all(name in row for name in names)), ())
        if not names:
            known = ", ".join(" and ".join(names) for names in TEXT_FIELDS)
            raise DataError(f"{where}: no text; expected one of {known}")
        for name in names:
            if not isinstance(row[name], str) or not row[name].strip():
                raise DataError(f"{where}: the field {name!r} must be a text, found {row[name]!r}")
        text, second = (row[names[0]], row[names[1]]) if len(names) == 2 else (row[names[0]], "")
        if (label := labels.of(row, where)) is not None:
            yield LabelledText(where, text, second, label, row)


def write_feature_rows(
    *,
    task: Annotated[str, "FILE"],
    output: Input,
    overwrite: bool = False,
    dev_output: Input | None = None,
    test_output: Input | None = None,
    agreement_tests: Annotated[float, "SHARE", AtLeast(0)] = 0.0,
    rest: Input | None = None,
    size: Annotated[int, AtLeast(0)] = 0,
    seed: int = 0,
    words: list[str] | None = None,
) -> str:
    """Write the demonstrations of such a task as rows to fine-tune on, all labels equally often.

    example:
      interventune data feature-bias-rows --task task.json --output train.jsonl --dev-output dev.jsonl
      interventune train fit -c configs/experiments/multiple_choice.yaml -c configs/backbones/minilm.yaml \\
          --data.train_choices=[train.jsonl] --data.val_choices.main=dev.jsonl
      interventune evaluate feature-bias --checkpoint hf:gpt2 tuned=best.ckpt --task task.json \\
          --output DIR

    Args:
        task: a task (its file, or stories:NAME) to train on.
        output: file to write.
        overwrite: replace the outputs if they exist.
        dev_output: also write the tests on which both features agree: for validation, where nothing may tell
            which feature is meant.
        test_output: also write the disambiguating tests; accuracy on them, cell by cell, is h1-accuracy.
        agreement_tests: also train on this share of the tests on which both features agree (needs --rest).
        rest: write the task without what is trained on, to measure with.
        size: at most N rows; 0 for all.
        seed: of the choice of rows and their order.
        words: label words of 0, 1, ... (default: the digits).
    """
    if agreement_tests > 1:
        raise DataError(f"--agreement-tests: a share from 0 to 1, got {agreement_tests}")
    if agreement_tests and rest is None:
        raise DataError("--agreement-tests: add --rest FILE, the task to measure with afterwards")
    if size == 1:
        raise DataError("--size: at least 2, one of each label (or 0 for all), got 1")
    outputs = [path for path in (output, dev_output, test_output, rest) if path]
    if len(set(outputs)) < len(outputs):
        raise DataError("--output, --dev-output, --test-output and --rest: name a file of its own for each")
    refuse_existing(*outputs, overwrite=overwrite)
    whole = open_task(task)
    chosen, left = training_examples(whole, agreement_tests=agreement_tests, size=size, seed=seed)
    written = [f"{output}: {write_choices(output, choice_rows(whole, chosen, words))} rows"]
    for path, cells in ((dev_output, whole.agreeing_cells), (test_output, whole.differing_cells)):
        if path is not None:
            tests = [x for cell in cells for x in left.tests[cell]]
            count = write_choices(path, choice_rows(left, tests, words))
            written.append(f"{path}: {count} of {', '.join(cells)}")
    if rest is not None:
        write_task(rest, left)
        written.append(f"{rest}: {left.sizes}")
    return "; ".join(written)
