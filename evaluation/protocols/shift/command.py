"""How far interventions move embeddings, and fine-tuning does: Tables 7 to 9 and Figures 1 to 4 of the
faithfulness paper.

python -m evaluation shift --checkpoint ot=A.ckpt ibt=B.ckpt --data coqa-dev.json --output DIR
torchrun --nproc_per_node 2 -m evaluation shift --checkpoint base=roberta-base ot=A.ckpt \
    --data os.jsonl ts_r.jsonl --layers all --output DIR
"""

from __future__ import annotations

import argparse

from evaluation.answering.answerers import LANGUAGE_MODELS
from evaluation.old_flags import add_prediction_arguments
from evaluation.old_report import Report
from evaluation.old_variants import add_variant_arguments


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of this protocol."""
    parser.add_argument(
        "--checkpoint",
        nargs="+",
        required=True,
        metavar="[NAME=]PATH",
        help="a .ckpt, a Hugging Face folder or a Hub name; several are set side by side, in this order",
    )
    add_variant_arguments(parser)
    parser.add_argument(
        "--layers",
        choices=("last", "all"),
        default="last",
        help="compare originals and variants in the last layer, or in the embeddings and every layer "
        "(default: last)",
    )
    parser.add_argument(
        "--between",
        choices=("none", "first", "consecutive"),
        help="compare each checkpoint with the first or with the one before it, on the originals, by layer "
        "(default: first, where their tokens are the same)",
    )
    parser.add_argument(
        "--include-question", action="store_true", help="the question's tokens are common tokens, too"
    )
    parser.add_argument(
        "--chunk", type=int, default=256, metavar="N", help="stories held at a time (default: 256)"
    )
    add_prediction_arguments(parser)


def run(args: argparse.Namespace) -> Report:
    """Measure every checkpoint, on the processes that torchrun started."""
    check(args)
    from evaluation.protocols.bias.command import named_sources, source_record
    from evaluation.protocols.shift.checkpoints import Settings, measure
    from evaluation.protocols.shift.distributed import process_group
    from evaluation.protocols.shift.pairs import StorySource, sentence_writer
    from evaluation.protocols.shift.report import shift_report

    named = named_sources(args.checkpoint, "--checkpoint")
    settings = Settings(
        every_layer=args.layers == "all",
        between=args.between or "first",
        strict=args.between is not None,
        include_question=args.include_question,
        chunk=args.chunk,
    )
    with process_group(args.device) as team:
        device_args = argparse.Namespace(**{**vars(args), "device": team.device})
        source = StorySource(
            args.data,
            args.variants or (),
            sentences=sentence_writer(args.generator, args.cache, team),
            limit=args.limit,
            skip_bad=args.skip_bad,
        )
        results = measure(named, source, team, device_args, settings)
    about = {
        "protocol": "shift",
        "checkpoints": {name: source_record(path) for name, path in named},
        "data": [source_record(source) for source in args.data],
        "dataset": results.dataset,
        "stories": results.stories,
        "variants": list(results.variants),
        "rejected": {variant: dict(reasons) for variant, reasons in results.rejected.items()},
        "layers": args.layers,
        "between": settings.between if len(named) > 1 else "none",
        "include_question": args.include_question,
        "generator": args.generator,
        "limit": args.limit,
        "precision": args.precision,
        "processes": team.size,
    }
    return shift_report(results, about)


def check(args: argparse.Namespace) -> None:
    """ValueError for flags that do not go together."""
    if args.chunk < 1:
        raise ValueError(f"--chunk: at least 1, got {args.chunk}")
    if args.between in ("first", "consecutive") and len(args.checkpoint) < 2:
        raise ValueError(f"--between {args.between}: needs two checkpoints or more")
    for path in args.checkpoint:
        if path.partition("=")[2].startswith(LANGUAGE_MODELS) or path.startswith(LANGUAGE_MODELS):
            raise ValueError(
                f"--checkpoint {path}: embeddings of language models are not read; name a checkpoint"
            )
