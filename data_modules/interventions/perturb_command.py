"""`python -m data_modules perturb`: one variant of a data set, as JSON Lines with a summary beside it.

The library side is `perturbations.py`; here are flags, counting and files.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from data_modules.schema import VARIANTS, QAExample, Rejected
from storage.errors import DataError

if TYPE_CHECKING:
    from data_modules.interventions.deletion import Rules

EXAMPLE = """examples:
  the paper's truncated stories without rationale:
    python -m data_modules perturb --dataset coqa --input coqa-dev-v1.0.json --variant ts_r \\
        --output coqa_dev_ts_r.jsonl
  with a neutral sentence around the answer:  ... --variant ts_r_aug --generator templates --output ...
  any extractive set (the rationale is the sentence that holds the answer):
    python -m data_modules perturb --dataset squad --input dev-v1.1.json --variant os_r --output ...
"""
DATASETS = ("coqa", "hotpotqa", "squad", "stories")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's own flags; --output and --overwrite are every command's."""
    parser.add_argument("--dataset", required=True, choices=DATASETS, help="what --input holds")
    parser.add_argument(
        "--input", required=True, metavar="FILE", help="a file, a folder, hub:NAME:SPLIT or stories:SPLIT"
    )
    parser.add_argument(
        "--variant",
        required=True,
        choices=VARIANTS,
        help="os: the original; ts: cut after the rationale; ts_r: cut before it; os_r: rationale deleted; "
        "_aug: a generated sentence in place of the bare answer",
    )
    parser.add_argument("--skip-bad", action="store_true", help="count bad records instead of stopping")
    parser.add_argument("--seed", type=int, default=0, help="seed of --generator templates (default 0)")
    _add_rules(parser)
    _add_generator(parser)


def _add_rules(parser: argparse.ArgumentParser) -> None:
    rules = parser.add_argument_group("the appended answer")
    rules.add_argument(
        "--presence-test",
        choices=("token", "substring"),
        default="token",
        help="when an answer counts as still there: as whole words, or as any characters (the authors' code)",
    )
    rules.add_argument(
        "--append-types",
        choices=("all_but_yes_no_unknown", "span"),
        default="all_but_yes_no_unknown",
        help="which answers are appended; span leaves out numbers and options (the authors' XLNet)",
    )


def _add_generator(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("generated sentences, for the _aug variants")
    group.add_argument(
        "--generator", metavar="NAME", help="templates (default), openai:MODEL[@URL] or hf:PATH"
    )
    group.add_argument("--cache", type=Path, metavar="FILE", help="where generated sentences are kept")
    group.add_argument(
        "--max-requests",
        type=int,
        metavar="N",
        help="at most N new requests; go on with the same command, --cache and --overwrite",
    )


def run(arguments: argparse.Namespace) -> str:
    """Write the rows and their summary; a line for the user."""
    from data_modules.interventions.deletion import Rules, perturb_all
    from data_modules.questions.rows import to_line
    from storage.files import atomic_text

    summary_path = summary_of(arguments.output)
    _check(arguments, summary_path)
    rules = Rules(presence_test=arguments.presence_test, append_types=arguments.append_types)
    examples: Iterable[QAExample] = _examples(arguments)
    sentences: dict[str, str] = {}
    failures: Counter[str] = Counter()
    if arguments.variant.endswith("_aug"):
        examples = list(examples)
        sentences, failures = _sentences(examples, arguments, rules)
    kept, rejected = 0, Counter[str]()
    results = perturb_all(
        _progress(examples), arguments.variant, sentence=sentences, rules=rules, skip_bad=arguments.skip_bad
    )
    with atomic_text(summary_path) as summary, atomic_text(arguments.output) as file:
        for result in results:
            if isinstance(result, Rejected):
                rejected[result.reason] += 1
            else:
                file.write(to_line(result))
                kept += 1
        if not kept:
            raise DataError(
                f"{arguments.input}: no question is left in {arguments.variant}: {_told(rejected)}"
            )
        json.dump(_record(arguments, rules, kept, rejected, failures), summary, indent=2)
        summary.write("\n")
    lost = ", ".join(f"{count} {reason}" for reason, count in failures.most_common())
    failed = f"; without a generated sentence: {lost}" if lost else ""
    return f"{arguments.output}: {kept} questions in {arguments.variant}; {_told(rejected)}{failed}"


def summary_of(output: Path) -> Path:
    """Where the summary of an output goes: dev.jsonl -> dev.summary.json."""
    return output.with_name(output.name.removesuffix(".jsonl") + ".summary.json")


def _check(arguments: argparse.Namespace, summary: Path) -> None:
    if summary.exists() and not arguments.overwrite:
        raise DataError(f"{summary}: already exists; choose another --output or add --overwrite")
    if arguments.variant.endswith("_aug"):
        return
    for flag in ("generator", "cache", "max_requests"):
        if getattr(arguments, flag) is not None:
            name = "--" + flag.replace("_", "-")
            raise DataError(
                f"{name}: {arguments.variant} generates no sentences; use it with ts_r_aug, os_r_aug"
            )


def _examples(arguments: argparse.Namespace) -> Iterator[QAExample]:
    """The input's examples, each of the data set that the user named and with a rationale where one can be
    told from the answer."""
    from data_modules.interventions.deletion import with_rationale
    from data_modules.sources import read_questions

    for example in read_questions(arguments.input, skip_bad=arguments.skip_bad):
        if example.dataset != arguments.dataset:
            found = example.dataset or "other data"
            raise DataError(f"--dataset {arguments.dataset}, but {arguments.input} holds {found}")
        yield with_rationale(example) if arguments.dataset == "squad" else example


def _sentences(
    examples: list[QAExample], arguments: argparse.Namespace, rules: Rules
) -> tuple[dict[str, str], Counter[str]]:
    """Generated sentences for the examples that need one: those whose story lost its answer."""
    from data_modules.interventions.augmentation import generate_sentences
    from data_modules.interventions.variants import needing_sentences

    try:
        return generate_sentences(
            needing_sentences(examples, arguments.variant, rules=rules, skip_bad=arguments.skip_bad),
            generator=arguments.generator or "templates",
            cache=arguments.cache,
            max_requests=arguments.max_requests,
            seed=arguments.seed,
        )
    except ValueError as error:  # a key that is missing, a model that is not there: a user's mistake
        raise DataError(str(error)) from None


def _progress(examples: Iterable[QAExample]) -> Iterable[QAExample]:
    from tqdm.auto import tqdm

    return tqdm(examples, desc="perturbing", unit="q", disable=None)


def _record(
    arguments: argparse.Namespace, rules: Rules, kept: int, rejected: Counter[str], failures: Counter[str]
) -> dict[str, Any]:
    from data_modules.interventions.sentences import sentence_library

    augmented = arguments.variant.endswith("_aug")
    return {
        "dataset": arguments.dataset,
        "input": arguments.input,
        "sha256": _sha256(Path(arguments.input)),
        "variant": arguments.variant,
        "seed": arguments.seed,
        "rules": asdict(rules),
        "sentence_library": sentence_library(),
        "generator": (arguments.generator or "templates") if augmented else None,
        "kept": kept,
        "rejected": dict(rejected.most_common()),
        "generation_failures": dict(failures.most_common()),
    }


def _sha256(path: Path) -> str | None:
    """The fingerprint of an input that is one file."""
    if not path.is_file():
        return None
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _told(rejected: Counter[str]) -> str:
    reasons = ", ".join(f"{count} {reason}" for reason, count in rejected.most_common())
    return f"{rejected.total()} rejected" + (f" ({reasons})" if reasons else "")
