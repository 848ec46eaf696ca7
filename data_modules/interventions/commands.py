"""`interventune data perturb`: one variant of a data set, as JSON Lines with a summary file;
`interventune data statistics`: how many questions each variant has.
"""

import csv
import json
from collections import Counter
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Literal

from interventune.data_modules.schema.questions import ANSWER_TYPES, Variant, traits, write_records
from interventune.data_modules.sources import read_questions
from interventune.storage.command_line import FilePath, Source, split_name
from interventune.storage.documents import DataError, atomic_text, load_json, refuse_existing
from interventune.storage.progress import progress

from .variants import made_of, report_rejected


def perturb_file(
    *,
    input: Source,
    variant: Variant,
    output: FilePath,
    sentences: FilePath | None = None,
    overwrite: bool = False,
) -> str:
    """Write questions whose stories are cut or changed, and a summary next to the file.

    Example: interventune data perturb --input coqa-dev-v1.0.json --variant ts_r \\
        --output coqa_dev_ts_r.jsonl

    Args:
        input: a file, a folder, hub:NAME:SPLIT or stories:SPLIT. The rationale is the sentence that
            justifies the answer; in data without rationales (SQuAD), the sentences with the
            annotators' answers.
        variant: os: the original; ts: cut after the rationale; ts_r: cut before it; os_r: without
            the rationale; _aug: the answer in a sentence instead of a bare phrase; reworded,
            quoted, spaced: another question word, other quotation marks, doubled spaces; swap:
            another answer from the same input in the story; near_miss: one name, number or word of
            the question changed. Sentences and edits are by English rules.
        output: file to write.
        sentences: for _aug: JSON with a sentence for each question's id (default: built-in
            templates).
        overwrite: replace the file if it exists.
    """
    summary_file = output.with_name(output.name.removesuffix(".jsonl") + ".summary.json")
    refuse_existing(output, summary_file, overwrite=overwrite)
    is_input = output.resolve() == Path(input).resolve()
    if output.exists() and (is_input or not summary_file.exists()):
        raise DataError(
            f"--output {output}: is the input, or not written by perturb; name another file"
        )
    if sentences and not variant.endswith("_aug"):
        raise DataError(f"--sentences: {variant} appends none; use it with ts_r_aug, os_r_aug")
    sentence_of = load_json(sentences, dict[str, str]) if sentences else None
    originals = progress(read_questions(input), "perturbing", "q")
    examples, rejected = made_of(originals, variant, sentence_of)
    reasons = report_rejected(len(examples), rejected, variant, input)
    with atomic_text(summary_file) as file:
        summary = {
            "input": input,
            "variant": variant,
            "sentences": str(sentences or "frames"),
            "sentence_library": f"sentencex {version('sentencex')}",
            "kept": write_records(examples, output),
            "rejected": dict(rejected.most_common()),
        }
        json.dump(summary, file, indent=2)
    return f"{output}: {len(examples)} questions in {variant}; {rejected.total()} rejected{reasons}"


def count_questions(
    *,
    data: list[Annotated[str, "[NAME=]SOURCE"]],
    variants: list[Literal["os", "ts", "ts_r", "os_r"]] | None = None,
    output: FilePath | None = None,
    overwrite: bool = False,
) -> str:
    """Count the stories and questions of data sets in each variant (Chaturvedi et al. 2023, Table
    2), the shares of the types of their original answers, and the share without an answer in it.

    Example: interventune data statistics --data train=coqa-train-v1.0.json \\
        dev=coqa-dev-v1.0.json

    Args:
        data: files, folders, hub:NAME:SPLIT or stories:SPLIT. The table uses NAME.
        variants: os: the original; ts, ts_r: cut after, before the sentence that justifies the
            answer; os_r: without it (default: os ts ts_r; for HotpotQA os os_r).
        output: also write counts and shares to this file, as CSV in the columns of results.csv;
            in_story is the share of spans, numbers and options, unknown_now that without an answer
            in the variant.
        overwrite: replace the file if it exists.
    """
    refuse_existing(output, overwrite=overwrite)
    types = [f"originally {kind} %" for kind in ANSWER_TYPES]
    header = ["data", "variant", "stories", "questions", *types, "unknown %", "left out"]
    lines = [header, ["---"] * len(header)]
    table: list[tuple[Any, ...]] = [("data", "variant", "measure", "value", "low", "high", "n")]
    for argument in data:
        name, source = split_name(argument)
        name = name or Path(source).stem
        examples = [example for example in read_questions(source) if example.variant == "os"]
        if not examples:
            raise DataError(
                f"--data {source}: holds only variants; name the originals, of which they are made"
            )
        original_of = {example.id: example for example in examples}
        for variant in variants or traits(examples[0].dataset).variants:
            bar = progress(examples, f"counting {variant} in {source}", "q")
            changed, rejected = made_of(bar, variant)
            total = len(changed)
            reasons = report_rejected(total, rejected, variant, source)
            originals = [original_of[example.id] for example in changed]
            stories = len({original.context for original in originals})
            counts = Counter(original.answer_type for original in originals)
            share = {kind: counts[kind] / total for kind in ANSWER_TYPES}
            in_story = 1 - share["yes"] - share["no"] - share["unknown"]
            share["unknown_now"] = sum(one.answer_type == "unknown" for one in changed) / total
            measures = {"stories": stories, "questions": total, **share, "in_story": in_story}
            for measure, value in measures.items():
                table.append((name, variant, measure, value, value, value, len(examples)))
            shares = [f"{100 * value:.1f}" for value in share.values()]
            left_out = f"{rejected.total()}{reasons}"
            lines.append([name, variant, str(stories), str(total), *shares, left_out])
    if output is not None:
        with atomic_text(output) as file:
            csv.writer(file, lineterminator="\n").writerows(table)
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
