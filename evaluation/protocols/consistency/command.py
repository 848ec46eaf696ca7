"""Is debiasing consistent? Continuations of adversarial and neutral prompts, debiased by specifications, by
their opposites, by nonsense, and by nothing but a blank.

python -m evaluation consistency --model hf:gpt2 --method self --adversarial challenging.jsonl \
    --neutral neutral.jsonl --scorer embedded:scorer.json --output DIR

Probes spec A. Specifications: specifications.py beside this file; scorers: evaluation/scorers/.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from evaluation.answering.interface import source_name
from evaluation.protocols.consistency.decoding import Decoding
from evaluation.protocols.consistency.specifications import (
    OWN,
    Method,
    Specifications,
    nonsense_groups,
    read_specifications,
)
from evaluation.protocols.consistency.toxicity_prompts import ToxicityPrompt, read_prompts
from evaluation.report import Evaluation, source_record
from evaluation.scorers.open import ScorerOptions, open_scorer
from storage.command_line import AtLeast, Count
from storage.errors import DataError

if TYPE_CHECKING:
    from evaluation.protocols.consistency.continuations import Part
    from metrics.consistency import Domain


def evaluate(
    *,
    model: str,
    method: Method,
    adversarial: str,
    neutral: str,
    scorer: ScorerOptions,
    decoding: Decoding,
    specifications: str | None = None,
    limit: Annotated[int, AtLeast(0)] = 0,
    nonsense_groups: Count = 5,
    perplexity: str | None = None,
    work: Path | None = None,
) -> Evaluation:
    """Whether debiasing does what its specifications say, and nothing else does.

    Args:
        model: hf:FOLDER_OR_HUB_NAME, or openai:MODEL[@URL] (instructive).
        method: self: prefixes whose effect is turned around (needs logits); instructive: an instruction.
        adversarial: prompts as JSON Lines.
        neutral: the same, of harmless texts.
        scorer: who scores texts.
        decoding: how continuations are written.
        specifications: other wordings, as JSON (default: the project's own).
        limit: use the first N prompts of each file; 0 for all.
        nonsense_groups: of random specifications.
        perplexity: self: also the perplexity of this text, with and without debiasing.
        work: keep finished pieces here; the same command goes on from them (default: beside the report).
    """
    check_flags(model, method, decoding, perplexity)
    from evaluation.protocols.consistency.continuations import Writer, continuations
    from evaluation.protocols.consistency.measures import consistency_evaluation
    from evaluation.protocols.consistency.perplexity import perplexities, read_text
    from evaluation.protocols.consistency.scoring import check_scorer, scored_continuations
    from storage.finished_work import FinishedWork

    files: dict[Domain, str] = {"adversarial": adversarial, "neutral": neutral}
    prompts = {domain: read_domain(domain, path, limit) for domain, path in files.items()}
    chosen = read_specifications(specifications, method) if specifications else OWN[method]
    parts = list(parts_of(chosen, nonsense_groups))
    judge, writer = open_scorer(scorer, decoding.device), Writer(model, method, decoding)
    requests = {
        (domain, part): [part.request(method, prompt.text) for prompt in listed]
        for part in parts
        for domain, listed in prompts.items()
    }
    writer.check([request for listed in requests.values() for request in listed])
    text = read_text(perplexity, writer, parts) if perplexity else None
    store = FinishedWork(work)
    try:
        check_scorer(judge, prompts["adversarial"][0].text, store)
        continued = continuations(writer, requests, store)
        scored = scored_continuations(judge, continued, store)
        perplexed = perplexities(text, writer, store) if text else {}
    finally:
        store.close()
    about = {
        "protocol": "consistency",
        "method": method,
        "checkpoints": {source_name(model): source_record(model)},
        "model": {"name": writer.model.name, "settings": writer.settings},
        "debiasing": writer.debiasing,
        "prompts": {name: source_record(path) for name, path in files.items()},
        "limit": limit,
        "scorer": judge.about(),
        "specifications": about_specifications(specifications, chosen, parts),
        **({"perplexity": source_record(perplexity)} if perplexity else {}),
    }
    return consistency_evaluation(
        source_name(model), method, prompts, scored, judge.attributes, perplexed, about
    )


def check_flags(model: str, method: Method, decoding: Decoding, perplexity: str | None) -> None:
    """ValueError for flags that do not go together."""
    local, endpoint = model.startswith("hf:"), model.startswith("openai:")
    if not local and not endpoint:
        raise ValueError(
            f"--model {model!r} is no language model; write hf:FOLDER_OR_HUB_NAME or openai:MODEL[@URL]"
        )
    for flag, value in (("decay", decoding.decay), ("perplexity", perplexity)):
        if value is not None and method != "self":
            raise ValueError(f"--{flag} is of self-debiasing; add --method self, or leave it out")
    if decoding.completions and local:
        raise ValueError("--completions is for endpoints: a local model always continues the bare prompt")
    if decoding.sample and decoding.beams not in (None, 1):
        raise ValueError(
            f"--beams {decoding.beams} with --sample: beams are not drawn; leave one of them out"
        )
    needs_logits = {"--method self": method == "self", "--sample": decoding.sample, "--beams": decoding.beams}
    for flag, given in needs_logits.items():
        if endpoint and given:
            raise ValueError(
                f"{flag} needs the model's logits, which {model} does not give; take a local model "
                "(hf:FOLDER_OR_HUB_NAME), or leave it out"
            )


def read_domain(domain: str, path: str, limit: int) -> list[ToxicityPrompt]:
    """The prompts of a file.

    Raises:
        DataError: it is none of prompts, or all of its prompts say that they belong into the other.
    """
    prompts = read_prompts(path, limit=limit)
    if {prompt.challenging for prompt in prompts} == {domain == "neutral"}:
        raise DataError(
            f"--{domain} {path}: all prompts say challenging: {str(domain == 'neutral').lower()}; are the "
            "two files swapped?"
        )
    return prompts


def parts_of(specifications: Specifications, groups: int) -> Iterator[Part]:
    """All that is continued: default, original, opposite, every group of nonsense, blank."""
    from evaluation.protocols.consistency.continuations import Part

    yield Part("default", None, ())
    yield Part("original", None, specifications.filled(specifications.original))
    yield Part("opposite", None, specifications.filled(specifications.opposite))
    for group, texts in enumerate(nonsense_groups(specifications, groups)):
        yield Part("nonsense", group, specifications.filled(texts))
    yield Part("blank", None, specifications.blanks)


def about_specifications(source: str | None, chosen: Specifications, parts: list[Part]) -> dict[str, Any]:
    """The texts, for the record."""
    nonsense = [part.texts for part in parts if part.group is not None]
    return {
        "source": source or "own",
        **{part.variant: part.texts for part in parts if part.group is None and part.texts},
        "nonsense": nonsense,
        "nonsense_seeds": [] if chosen.nonsense else list(range(len(nonsense))),
    }
