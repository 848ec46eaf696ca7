"""`interventune data perturb`: one variant of a data set, as JSON Lines with a summary beside it;
`interventune data statistics`: how many questions each variant has."""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

from data_modules.interventions.deletion import (
    Rules,
    Sentences,
    perturb,
    sentence_library,
    with_rationale,
)
from data_modules.schema import ANSWER_TYPES, QAExample, Rejected, Variant
from storage.command_line import AtLeast, split_name
from storage.errors import DataError
from storage.files import atomic_text, file_digest, refuse_existing


@dataclass(frozen=True)
class Generated:
    """generated sentences, for the _aug variants

    Args:
        generator: templates (default), openai:MODEL[@URL] or hf:PATH.
        cache: where generated sentences are kept.
        max_requests: at most N new requests; go on with the same command, --cache and --overwrite.
        dtype: of the weights of hf:PATH.
    """

    generator: Annotated[str, "NAME"] | None = None
    cache: Annotated[Path, "FILE"] | None = None
    max_requests: Annotated[int, AtLeast(0)] | None = None
    dtype: Literal["auto", "float32", "bfloat16", "float16"] | None = None


def perturb_file(
    *,
    dataset: Literal["coqa", "hotpotqa", "squad", "stories"],
    input: Annotated[str, "FILE"],
    variant: Variant,
    output: Annotated[Path, "FILE"],
    overwrite: bool = False,
    skip_bad: bool = False,
    seed: int = 0,
    appended: Rules,
    generated: Generated,
) -> str:
    """Write questions with their stories truncated or their rationales deleted, and a summary beside them.

    examples:
      the paper's truncated stories without rationale:
        interventune data perturb --dataset coqa --input coqa-dev-v1.0.json --variant ts_r \\
            --output coqa_dev_ts_r.jsonl
      with a neutral sentence around the answer:  ... --variant ts_r_aug --generator templates --output ...
      any extractive set (the rationale is the sentence that holds the answer):
        interventune data perturb --dataset squad --input dev-v1.1.json --variant os_r --output ...

    Args:
        dataset: what --input holds.
        input: a file, a folder, hub:NAME:SPLIT or stories:SPLIT.
        variant: os: the original; ts: cut after the rationale; ts_r: cut before it; os_r: rationale deleted;
            _aug: a generated sentence in place of the bare answer; reworded, quoted, spaced: the question
            word, the quotation marks, the spaces are others; reformatted: all three.
        output: file to write.
        overwrite: replace the output if it exists.
        skip_bad: count bad records instead of stopping.
        seed: seed of --generator templates.
    """
    from tqdm.auto import tqdm

    from data_modules.questions.rows import to_line
    from data_modules.sources import read_questions

    check_replaced(output, input, overwrite=overwrite)
    augmented = variant.endswith("_aug")
    for name, value in asdict(generated).items():
        if value is not None and not augmented:
            flag = "--" + name.replace("_", "-")
            raise DataError(f"{flag}: {variant} generates no sentences; use it with ts_r_aug, os_r_aug")

    def originals() -> Iterator[QAExample]:
        for example in read_questions(input, skip_bad=skip_bad):
            if example.dataset != dataset:
                raise DataError(f"--dataset {dataset}, but {input} holds {example.dataset or 'other data'}")
            yield with_rationale(example)

    examples: Iterable[QAExample] = originals()
    sentences: Sentences = {}
    failures: Counter[str] = Counter()
    if augmented:
        from data_modules.interventions.augmentation import (
            failures_of,
            generate_sentences,
            needing_sentences,
        )
        from models.language.open_model import open_cached_model  # a command may bring rooms together

        examples = list(examples)
        sentences = generate_sentences(
            needing_sentences(examples, variant, rules=appended, skip_bad=skip_bad),
            generator=generated.generator or "templates",
            cache=generated.cache,
            max_requests=generated.max_requests,
            seed=seed,
            open_generator=partial(open_cached_model, dtype=generated.dtype or "auto"),
        )
        failures = failures_of(sentences)
    kept, rejected = 0, Counter[str]()
    with atomic_text(summary_of(output)) as summary, atomic_text(output) as file:
        for example in tqdm(examples, desc="perturbing", unit="q", disable=None):
            result = perturb(example, variant, sentence=sentences, rules=appended, skip_bad=skip_bad)
            if isinstance(result, Rejected):
                rejected[result.reason] += 1
            else:
                file.write(to_line(result))
                kept += 1
        reasons = f"{rejected.total()} rejected" + (f" ({_listed(rejected)})" if rejected else "")
        if not kept:
            raise DataError(f"{input}: no question is left in {variant}: {reasons}")
        about = {
            "dataset": dataset,
            "input": input,
            "sha256": file_digest(input) if Path(input).is_file() else None,
            "variant": variant,
            "seed": seed,
            "rules": asdict(appended),
            "sentence_library": sentence_library(),
            "generator": (generated.generator or "templates") if augmented else None,
            "kept": kept,
            "rejected": dict(rejected.most_common()),
            "generation_failures": dict(failures.most_common()),
        }
        json.dump(about, summary, indent=2)
        summary.write("\n")
    return f"{output}: {kept} questions in {variant}; {reasons}"


def count_questions(
    *,
    data: list[Annotated[str, "[NAME=]SOURCE"]],
    variants: list[Literal["os", "ts", "ts_r", "os_r"]] | None = None,
    output: Annotated[Path, "FILE"] | None = None,
    overwrite: bool = False,
    skip_bad: bool = False,
    appended: Rules,
) -> str:
    """Count the stories and questions of data sets in their variants (the faithfulness paper's Table 2).

    examples:
      interventune data statistics --data train=coqa-train-v1.0.json dev=coqa-dev-v1.0.json
      interventune data statistics --data dev=hotpot_dev_distractor_v1.json --output statistics.csv

    Args:
        data: files, folders, hub:NAME:SPLIT or stories:SPLIT; of SQuAD the rationale is the sentence that
            holds the answer.
        variants: which (default: os ts ts_r; of HotpotQA os os_r).
        output: also write all counts as a long table (CSV), where the interval of a count is the count.
        overwrite: replace the output if it exists.
        skip_bad: count bad records instead of stopping.
    """
    if output is not None:
        refuse_existing(output, overwrite=overwrite)
    lines = [["data", "variant", "stories", "questions", *(f"{kind} %" for kind in ANSWER_TYPES), "left out"]]
    lines.append(["---"] * len(lines[0]))
    table: list[tuple[str, ...]] = [("data", "variant", "reason", "measure", "value", "low", "high", "n")]
    for argument in data:
        name, source = split_name(argument)
        name = name or Path(source).stem
        for variant, (kept, rejected) in _counts(source, variants, appended, skip_bad=skip_bad).items():
            read = kept["questions"] + rejected.total()
            counted = [("", measure, count) for measure, count in kept.items()]
            counted += [(reason, "left_out", count) for reason, count in rejected.most_common()]
            table += [
                (name, variant, why, what, *[str(count)] * 3, str(read)) for why, what, count in counted
            ]
            shares = [f"{100 * kept[kind] / kept['questions']:.1f}" for kind in ANSWER_TYPES]
            left = f"{rejected.total()}" + (f" ({_listed(rejected)})" if rejected else "")
            lines.append([name, variant, f"{kept['stories']}", f"{kept['questions']}", *shares, left])
    if output is not None:
        with atomic_text(output) as file:
            csv.writer(file, lineterminator="\n").writerows(table)
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _counts(
    source: str, variants: Sequence[Variant] | None, rules: Rules, *, skip_bad: bool
) -> dict[Variant, tuple[Counter[str], Counter[str]]]:
    """Of each variant what is kept (distinct stories, questions, appended answers, and questions by the type
    of their original answer) and what is left out, by reason. Memory holds hashes of the stories."""
    from tqdm.auto import tqdm

    from data_modules.sources import read_questions

    found: dict[Variant, tuple[Counter[str], Counter[str]]] = {}
    stories: dict[Variant, set[int]] = {}
    for example in tqdm(read_questions(source, skip_bad=skip_bad), f"counting {source}", disable=None):
        if not found:
            usual: list[Variant] = ["os", "os_r"] if example.dataset == "hotpotqa" else ["os", "ts", "ts_r"]
            names = ("stories", "questions", "appended", *ANSWER_TYPES)
            found = {one: (Counter(dict.fromkeys(names, 0)), Counter()) for one in variants or usual}
            stories = {one: set() for one in found}
        original = with_rationale(example)
        for variant, (kept, rejected) in found.items():
            result = perturb(original, variant, rules=rules, skip_bad=skip_bad)
            if isinstance(result, Rejected):
                rejected[result.reason] += 1
                continue
            stories[variant].add(hash(original.context))
            kept.update(("questions", original.answer_type, *["appended"] * bool(result.appended)))
    for variant, (kept, rejected) in found.items():
        if not kept["questions"]:
            raise DataError(f"{source}: no question is left in {variant}: {_listed(rejected)}")
        kept["stories"] = len(stories[variant])
    return found


def check_replaced(output: Path, source: str, *, overwrite: bool) -> None:
    """Raise DataError where `output` is there, unless it may be replaced: what this command wrote, which has
    its summary beside it, and is not the input."""
    refuse_existing(output, summary_of(output), overwrite=overwrite)
    if output.exists() and not summary_of(output).exists():
        raise DataError(f"{output}: was not written by `data perturb`, it has no summary; name another file")
    if output.exists() and Path(source).exists() and output.samefile(source):
        raise DataError(f"--output {output}: is the input; name another file")


def summary_of(output: Path) -> Path:
    """Where the summary of an output goes: dev.jsonl -> dev.summary.json."""
    return output.with_name(output.name.removesuffix(".jsonl") + ".summary.json")


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {reason}" for reason, count in counts.most_common())
