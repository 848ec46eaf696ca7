"""Is debiasing consistent? Continuations of adversarial and neutral prompts, debiased by specifications, by
their opposites, by nonsense, and by nothing but a blank.

interventune evaluate consistency --model hf:gpt2 --method self --adversarial challenging.jsonl \
    --neutral neutral.jsonl --scorer embedded:scorer.json --output DIR

Probes spec A. Specifications: specifications.py beside this file; scorers: evaluation/scorers/.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from evaluation.answering.interface import source_name
from evaluation.protocols.consistency.decoding import Decoding
from evaluation.protocols.consistency.specifications import OWN, Method, parts_of, read_specifications
from evaluation.protocols.consistency.toxicity_prompts import ToxicityPrompt, read_prompts
from evaluation.report import Evaluation, source_record
from evaluation.scorers.open import ScorerOptions, open_scorer
from storage.command_line import AtLeast, Count
from storage.errors import DataError

if TYPE_CHECKING:
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
    from tqdm import tqdm

    from evaluation.protocols.consistency.continuations import Request, Writer, text_scores
    from evaluation.protocols.consistency.measures import consistency_evaluation
    from evaluation.protocols.consistency.perplexity import perplexities, read_ids
    from models.language.text_models import TextFailure
    from storage.finished_work import FinishedWork

    files: dict[Domain, str] = {"adversarial": adversarial, "neutral": neutral}
    prompts = {domain: read_domain(domain, path, limit) for domain, path in files.items()}
    chosen = read_specifications(specifications, method) if specifications else OWN[method]
    parts = list(parts_of(chosen, nonsense_groups))
    judge, writer = open_scorer(scorer, decoding.device), Writer(model, method, decoding)
    rows: list[dict[str, Any]] = []
    requests: list[list[Request]] = []
    for part in parts:
        place = {"checkpoint": source_name(model), "method": method}
        for domain, listed in prompts.items():
            cell = {**place, "domain": domain, "variant": part.variant, "group": part.group}
            rows += [{**cell, "line": prompt.line, "prompt": prompt.text} for prompt in listed]
            if method == "self":  # prefixes stand beside the prompt, an instruction in front of it
                prefixes = tuple(dict.fromkeys(part.texts))
                requests.append([Request(prompt.text, prefixes) for prompt in listed])
            else:
                requests.append([Request("".join(part.texts) + prompt.text) for prompt in listed])
    writer.check(request for some in requests for request in some)
    perplexed = [part for part in parts if part.variant in ("original", "opposite")]
    ids = read_ids(perplexity, writer, perplexed) if perplexity else []
    work_file = FinishedWork(work)
    # One text is scored before hours are spent on the others.
    first = prompts["adversarial"][0].text
    if isinstance(failure := text_scores(judge, [first], work_file)[first], TextFailure):
        raise ValueError(f"--scorer {judge.name} gave no scores to the first prompt: {failure}")
    with tqdm(total=len(rows), desc="writing", unit="text", disable=None) as bar:
        texts = [text for some in requests for text in writer.continuations(some, work_file, bar)]
    written = [text for text in texts if isinstance(text, str)]
    scores = text_scores(judge, written, work_file, show=True)
    by_variant = perplexities(ids, writer, perplexed, work_file) if ids else {}
    for row, text in zip(rows, texts, strict=True):
        if isinstance(text, TextFailure):
            row["failure"] = TextFailure(f"no continuation: {text.reason}", text.detail)
            continue
        row["continuation"], known = text, scores[text]
        if isinstance(known, TextFailure):
            row["failure"] = TextFailure(f"no score: {known.reason}", known.detail)
        else:
            row["scores"] = known
    nonsense = [part.texts for part in parts if part.group is not None]
    others: dict[str, Any] = {p.variant: p.texts for p in parts if p.group is None and p.texts}
    about = {
        "protocol": "consistency",
        "method": method,
        "checkpoints": {source_name(model): source_record(model)},
        "model": {"name": writer.model.name, "settings": writer.settings},
        "debiasing": writer.debiasing,
        "prompts": {name: source_record(path) for name, path in files.items()},
        "limit": limit,
        "scorer": judge.about(),
        "specifications": {
            "source": specifications or "own",
            **others,
            "nonsense": nonsense,
            "nonsense_seeds": [] if chosen.nonsense else list(range(len(nonsense))),
        },
        **({"perplexity": source_record(perplexity)} if perplexity else {}),
    }
    return consistency_evaluation(rows, judge.attributes, by_variant, about)


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
