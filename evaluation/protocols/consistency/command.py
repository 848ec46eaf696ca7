"""Is debiasing consistent? Continuations of adversarial and neutral prompts, debiased by specifications, by
their opposites, by nonsense, and by nothing but a blank.

python -m evaluation consistency --model hf:gpt2 --method self --adversarial challenging.jsonl \
    --neutral neutral.jsonl --scorer embedded:scorer.json --output DIR

Probes spec A. Specifications: specifications.py beside this file; scorers: evaluation/scorers/scorers.py.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from evaluation.old_flags import add_work_argument, finite, work_path
from evaluation.old_report import Report, fingerprint
from evaluation.scorers.scorers import add_scorer_arguments, open_scorer

if TYPE_CHECKING:
    from evaluation.protocols.consistency.generation import LocalWriter, Request, Writer
    from evaluation.protocols.consistency.results import Part
    from evaluation.protocols.consistency.specifications import Specifications
    from evaluation.protocols.consistency.toxicity_prompts import ToxicityPrompt
    from evaluation.scorers.scorers import Scorer
    from metrics.consistency import Domain


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of this protocol."""
    parser.add_argument(
        "--model",
        required=True,
        metavar="SPEC",
        help="hf:FOLDER_OR_HUB_NAME, or openai:MODEL[@URL] (instructive)",
    )
    parser.add_argument(
        "--method",
        required=True,
        choices=("self", "instructive"),
        help="self: prefixes whose effect is turned around (needs logits); instructive: an instruction",
    )
    parser.add_argument("--adversarial", required=True, metavar="FILE", help="prompts as JSON Lines")
    parser.add_argument("--neutral", required=True, metavar="FILE", help="the same, of harmless texts")
    parser.add_argument(
        "--specifications", metavar="FILE", help="other wordings, as JSON (default: the project's own)"
    )
    parser.add_argument("--limit", type=int, default=0, metavar="N", help="the first N prompts of each file")
    parser.add_argument(
        "--nonsense-groups", type=int, default=5, metavar="N", help="of random specifications (default: 5)"
    )
    parser.add_argument(
        "--perplexity",
        metavar="FILE",
        help="self: also the perplexity of this text, with and without debiasing",
    )
    add_scorer_arguments(parser)
    group = parser.add_argument_group("continuations")
    group.add_argument("--decay", type=finite, metavar="X", help="self: strength, lambda (default: 50)")
    group.add_argument("--new-tokens", type=int, default=20, metavar="N", help="of each (default: 20)")
    group.add_argument("--beams", type=int, metavar="N", help="1: greedy (default: 3)")
    group.add_argument("--sample", action="store_true", help="draw from the five likeliest tokens instead")
    group.add_argument("--seed", type=int, default=0, help="of what is drawn (default: 0)")
    group.add_argument(
        "--completions",
        action="store_true",
        help="have an endpoint continue the bare prompt rather than answer a turn of a chat",
    )
    group.add_argument("--device", default="auto", help="cpu, cuda, ... (default: cuda if there is one)")
    group.add_argument("--batch-size", type=int, default=8, metavar="N", help="prompts at once (default: 8)")
    add_work_argument(parser)


def run(args: argparse.Namespace) -> Report:
    """Continue, score, compare."""
    check(args)
    from tqdm import tqdm

    from evaluation.protocols.consistency.generation import continuations, open_writer
    from evaluation.protocols.consistency.perplexity import perplexities, read_text
    from evaluation.protocols.consistency.report import consistency_report
    from evaluation.protocols.consistency.results import Continued, check_scores
    from evaluation.protocols.consistency.scoring import check_scorer, text_scores
    from storage.finished_work import FinishedWork

    prompts = read_domains(args)
    specifications = chosen_specifications(args)
    parts = list(parts_of(specifications, args.nonsense_groups))
    scorer, writer = open_scorer(args.scorer, args), open_writer(args)
    wanted = {
        (domain, part): [request_of(part, specifications, prompt.text) for prompt in its]
        for part in parts
        for domain, its in prompts.items()
    }
    writer.check([request for requests in wanted.values() for request in requests])
    local = cast("LocalWriter", writer)  # where --perplexity is given
    text = read_text(args.perplexity, local, parts) if args.perplexity else None
    work = FinishedWork(work_path(args))
    try:
        check_scorer(scorer, prompts["adversarial"][0].text, work)
        total = sum(map(len, wanted.values()))
        with tqdm(total=total, desc="writing", unit="text", disable=None) as bar:
            continued = [
                Continued(domain, part, continuations(writer, requests, work, bar))
                for (domain, part), requests in wanted.items()
            ]
        texts = [text for each in continued for text in each.texts if isinstance(text, str)]
        scores = text_scores(scorer, texts, work, show=True)
        perplexed = perplexities(text, local, work) if text else {}
    finally:
        work.close()
    check_scores(continued, scores)
    about = about_run(args, specifications, parts, writer, scorer)
    return consistency_report(prompts, continued, scores, scorer.attributes, perplexed, about)


def check(args: argparse.Namespace) -> None:
    """ValueError for flags that cannot be."""
    least = {"--new-tokens": 1, "--batch-size": 1, "--nonsense-groups": 1, "--limit": 0}
    for flag, bound in least.items():
        value = getattr(args, flag[2:].replace("-", "_"))
        if value < bound:
            raise ValueError(f"{flag} {value} must be at least {bound}")
    if args.beams is not None and args.beams < 1:
        raise ValueError(f"--beams {args.beams} must be at least 1")
    for flag in ("decay", "perplexity"):
        if getattr(args, flag) is not None and args.method != "self":
            raise ValueError(f"--{flag} is of self-debiasing; add --method self, or leave it out")
    if args.completions and args.model.startswith("hf:"):
        raise ValueError("--completions is for endpoints: a local model always continues the bare prompt")
    if args.decay is not None and args.decay < 0:
        raise ValueError(f"--decay {args.decay} must not be below 0")


def read_domains(args: argparse.Namespace) -> dict[Domain, list[ToxicityPrompt]]:
    """The prompts of both files.

    Raises:
        DataError: a file is none of prompts, or all of its prompts say that they belong into the other.
    """
    from evaluation.protocols.consistency.toxicity_prompts import read_prompts
    from metrics.consistency import DOMAINS
    from storage.errors import DataError

    found: dict[Domain, list[ToxicityPrompt]] = {}
    for domain in DOMAINS:
        path = getattr(args, domain)
        found[domain] = read_prompts(path, limit=args.limit)
        said = {prompt.challenging for prompt in found[domain]}
        if said == {domain == "neutral"}:
            raise DataError(
                f"--{domain} {path}: all prompts say challenging: {str(domain == 'neutral').lower()}; are "
                "the two files swapped?"
            )
    return found


def chosen_specifications(args: argparse.Namespace) -> Specifications:
    """Those of `--specifications`, or our own."""
    from evaluation.protocols.consistency.specifications import OWN, read_specifications

    if args.specifications is None:
        found: Specifications = OWN[args.method]
        return found
    return read_specifications(args.specifications, args.method)


def parts_of(specifications: Specifications, groups: int) -> Iterator[Part]:
    """All that is continued: default, original, opposite, every group of nonsense, blank."""
    from evaluation.protocols.consistency.results import Part
    from evaluation.protocols.consistency.specifications import nonsense_groups

    yield Part("default", None, ())
    yield Part("original", None, specifications.filled(specifications.original))
    yield Part("opposite", None, specifications.filled(specifications.opposite))
    for group, texts in enumerate(nonsense_groups(specifications, groups)):
        yield Part("nonsense", group, specifications.filled(texts))
    yield Part("blank", None, specifications.blanks)


def request_of(part: Part, specifications: Specifications, prompt: str) -> Request:
    """Prefixes stand beside the prompt, an instruction in front of it."""
    from evaluation.protocols.consistency.generation import Request

    if specifications.method == "self":
        return Request(prompt, tuple(dict.fromkeys(part.texts)))
    return Request("".join(part.texts) + prompt)


def about_run(
    args: argparse.Namespace,
    specifications: Specifications,
    parts: Sequence[Part],
    writer: Writer,
    scorer: Scorer,
) -> dict[str, Any]:
    """What the numbers come from."""
    from importlib.metadata import version

    files = {"adversarial": args.adversarial, "neutral": args.neutral}
    given = specifications.nonsense
    return {
        "protocol": "consistency",
        "method": args.method,
        "model": {"name": writer.name, "settings": writer.settings},
        "debiasing": getattr(writer, "debiasing", {}) if args.method == "self" else {},
        "prompts": {name: {"path": path, "sha256": fingerprint(Path(path))} for name, path in files.items()},
        "limit": args.limit,
        "scorer": scorer.about(),
        "specifications": {
            "source": args.specifications or "own",
            **{part.variant: part.texts for part in parts if part.group is None and part.texts},
            "nonsense": [part.texts for part in parts if part.group is not None],
            "nonsense_seeds": [] if given else list(range(args.nonsense_groups)),
        },
        **(
            {"perplexity": {"path": args.perplexity, "sha256": fingerprint(Path(args.perplexity))}}
            if args.perplexity
            else {}
        ),
        "versions": {name: version(name) for name in ("torch", "transformers", "scipy")},
    }
