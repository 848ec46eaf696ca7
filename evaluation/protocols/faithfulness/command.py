"""Do models still answer when the text no longer supports an answer? The faithfulness paper's Tables 4 and 5.

python -m evaluation faithfulness --checkpoint ot=A.ckpt ibt=B.ckpt --data coqa-dev.json --output DIR
python -m evaluation faithfulness --checkpoint gpt=openai:gpt-4o-mini --data os.jsonl ts_r.jsonl --output DIR
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from evaluation.answering.variants import add_variant_arguments, load_variants
from evaluation.protocol_flags import add_answer_arguments, add_checkpoints_argument
from evaluation.report import Report

if TYPE_CHECKING:
    from data_modules.schema import QAExample
    from evaluation.protocols.faithfulness.report import Scored


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of this protocol."""
    add_checkpoints_argument(parser)
    add_variant_arguments(parser)
    add_answer_arguments(parser)


def run(args: argparse.Namespace) -> Report:
    """Answer every variant with every checkpoint."""
    from data_modules.encoding.sets import has_unknown
    from evaluation.answering.answerers import open_answerer
    from evaluation.answering.prompting import prompt_record
    from evaluation.answering.yes_no import warn_of_silence
    from evaluation.protocols.bias.command import named_sources, source_record
    from evaluation.protocols.faithfulness.report import faithfulness_report

    named = named_sources(args.checkpoint, "--checkpoint")
    variants = load_variants(args)
    scored: list[Scored] = []
    for name, path in named:
        answerer = open_answerer(path, args)
        check_heads(answerer, variants.sets.values(), path)
        if hasattr(answerer, "may_abstain"):
            answerer.may_abstain = any(has_unknown(examples) for examples in variants.sets.values())
        for variant, examples in variants.sets.items():
            what = f"{name} on {variant}"
            scored.append(score(name, variant, examples, variants.kinds, list(answerer.said(examples, what))))
    warn_of_silence([row for item in scored for row in item.rows], [name for name, _ in named])
    about = {
        "protocol": "faithfulness",
        "checkpoints": {name: source_record(path) for name, path in named},
        "data": [source_record(source) for source in args.data],
        "dataset": variants.dataset,
        "variants": list(variants.sets),
        "rejected": {variant: dict(reasons) for variant, reasons in variants.rejected.items()},
        "generator": args.generator,
        "limit": args.limit,
        "unknown_threshold": args.unknown_threshold,
        "type_threshold": args.type_threshold,
        "precision": args.precision,
        **prompt_record(dict(named), args),
    }
    return faithfulness_report(scored, variants, about)


def check_heads(answerer: Any, sets: Any, path: str) -> None:
    """ValueError for yes/no questions to a checkpoint that can only name spans."""
    typed = getattr(answerer, "typed", True)
    if not typed and any(example.answer_type in ("yes", "no") for examples in sets for example in examples):
        raise ValueError(
            f"{path}: the checkpoint has no heads for yes and no, which this data asks for; train it with "
            "an experiment such as coqa_ot, or give data of spans only"
        )


def score(
    checkpoint: str, variant: str, examples: Sequence[QAExample], kinds: dict[str, Any], said: Sequence[Any]
) -> Scored:
    """Sums over one variant, by the type of the original answer and by domain, and the rows behind them."""
    from data_modules.schema import ANSWER_TYPES
    from evaluation.protocols.faithfulness.report import Scored
    from metrics.answers import FaithfulnessScores, is_unknown, score_answer, scoring_of

    total = FaithfulnessScores(ANSWER_TYPES)
    by_domain: dict[str, FaithfulnessScores] = {}
    rows, failures = [], 0
    total.update([], [], [])  # where nothing is answered, torchmetrics need not warn
    for answer in sorted(said, key=lambda answer: answer.example):
        example = examples[answer.example]
        kind = kinds.get(example.id, example.answer_type)
        row = {"checkpoint": checkpoint, "variant": variant, "id": example.id, "answer_type": kind}
        row |= {"prediction": answer.text, "references": list(example.gold)}
        if answer.failure:
            failures += 1
            rows.append(row | {"failure": answer.failure})
            continue
        rule = scoring_of(example.dataset)
        item = ([answer.text], [example.gold], [ANSWER_TYPES.index(kind)], rule)
        total.update(*item)
        by_domain.setdefault(example.domain, FaithfulnessScores(ANSWER_TYPES)).update(*item)
        em, f1 = score_answer(answer.text, example.gold, rule)
        rows.append(row | {"em": em, "f1": f1, "unknown": is_unknown(answer.text)})
    domains = {domain: metric.compute() for domain, metric in sorted(by_domain.items())}
    return Scored(checkpoint, variant, total.compute(), domains, rows, failures)
