"""Is debiasing consistent? Continuations of adversarial and neutral prompts, debiased by specifications, by
their opposites, by nonsense, and by nothing but a blank.

interventune evaluate consistency --model hf:gpt2 --method self --adversarial challenging.jsonl \
    --neutral neutral.jsonl --output DIR
interventune evaluate consistency --continuations written.jsonl --output DIR
interventune evaluate consistency --continuations DIR --scorer embedded:scorer.json --output RESCORED

Probes spec A. Specifications: specifications.py beside this file; scorers: evaluation/scorers/.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from evaluation.answering.interface import named_sources
from evaluation.processes import finished_work
from evaluation.protocols.consistency.decoding import Decoding
from evaluation.protocols.consistency.specifications import (
    OWN,
    Method,
    parts_of,
    read_specifications,
    spelled_out,
)
from evaluation.report import Evaluation, source_record
from evaluation.scorers.open import ScorerOptions, open_scorers
from storage.command_line import AtLeast, Count, Named
from storage.errors import DataError

if TYPE_CHECKING:
    from data_modules.tasks.toxicity_prompts import ToxicityPrompt
    from metrics.consistency import Domain

OWN_TEXTS = "own"


def evaluate(
    *,
    model: list[Annotated[str, "[NAME=]MODEL"]] | None = None,
    method: list[Method] | None = None,
    adversarial: str | None = None,
    neutral: str | None = None,
    continuations: list[Named] | None = None,
    rescore: bool = False,
    scorer: ScorerOptions,
    threshold: list[float] | None = None,
    margin: float = 5,
    decoding: Decoding,
    specifications: str = OWN_TEXTS,
    limit: Annotated[int, AtLeast(0)] = 0,
    nonsense_groups: Count = 5,
    perplexity: str | None = None,
    perplexity_window: Count | None = None,
    work: Path | None = None,
) -> Evaluation:
    """Whether debiasing does what its specifications say, and nothing else does.

    Args:
        model: hf:FOLDER_OR_HUB_NAME, a decoder's .ckpt, or openai:MODEL[@URL] (instructive only).
        method: self: prefixes whose effect is turned around (needs logits); instructive: an instruction.
            Every model is judged with every method that it can take.
        adversarial: prompts as JSON Lines.
        neutral: the same, of harmless texts.
        continuations: in place of models: what any method of debiasing wrote, as rows of domain,
            specification, group, prompt, text and perhaps scores; or the folder of a report of this protocol.
        rescore: leave out the scores that --continuations bring; --scorer scores again.
        scorer: who scores texts.
        threshold: a continuation counts from this score on; several give a sweep, and the first decides
            (default: 0.5).
        margin: the smallest difference of rates that matters, in points.
        decoding: how continuations are written.
        specifications: wordings as JSON; `own` are the project's.
        limit: use the first N prompts of each domain; 0 for all.
        nonsense_groups: of random specifications.
        perplexity: self: also the perplexity of this text, with and without debiasing.
        perplexity_window: tokens of a chunk of that text, each of which begins anew (default: the model's
            context less 32 for prefixes, at most 2016).
        work: keep finished pieces here; the same command goes on from them (default: beside the report).
    """
    if bool(model) == bool(continuations):
        raise ValueError("name either --model or --continuations")
    of_models = {"method": method, "adversarial": adversarial, "neutral": neutral}
    others: dict[str, Any] = {"decay": decoding.decay, "perplexity": perplexity}
    others["perplexity-window"] = perplexity_window
    others["specifications"] = specifications if specifications != OWN_TEXTS else None
    if model and (flags := [flag for flag, value in of_models.items() if not value]):
        raise ValueError(f"--model needs --{flags[0]}")
    if model and rescore:
        raise ValueError("--rescore goes with --continuations, not with --model")
    if continuations and (flags := [flag for flag, value in (of_models | others).items() if value]):
        raise ValueError(f"--{flags[0]} goes with --model, not with --continuations")
    if not 0 < margin < 100:
        raise ValueError(f"--margin {margin:g}: must lie between 0 and 100 points")
    thresholds = threshold or [0.5]
    if wrong := [one for one in thresholds if not 0 < one <= 1 or thresholds.count(one) > 1]:
        raise ValueError(f"--threshold {wrong[0]:g}: name each number once, above 0 and at most 1")
    from evaluation.protocols.consistency.continuation_rows import read_written
    from evaluation.protocols.consistency.continuations import add_scores, check_scorers
    from evaluation.protocols.consistency.systems import systems_of, write
    from evaluation.protocols.consistency.views import report
    from evaluation.scorers.interface import ATTRIBUTES

    work_file = finished_work(work)
    if continuations:
        written = read_written(named_sources(continuations, "--continuations"), limit, rescore=rescore)
        opened = open_scorers(scorer, decoding.device) if scorer.scorer or not written.scorers else []
        if names := {one["name"] for one in written.scorers} & {one.name for one in opened}:
            raise ValueError(f"--scorer {min(names)}: --continuations bring its scores; add --rescore")
        texts = (row["continuation"] for row in written.rows if "continuation" in row)
        check_scorers(opened, next(texts, ""), work_file)
    else:
        systems = systems_of(model or [], method or [], decoding, perplexity)
        files: dict[Domain, str] = {"adversarial": adversarial or "", "neutral": neutral or ""}
        prompts = {domain: read_domain(domain, path, limit) for domain, path in files.items()}
        parts = {
            name: list(
                parts_of(
                    OWN[name] if specifications == OWN_TEXTS else read_specifications(specifications, name),
                    nonsense_groups,
                )
            )
            for name in dict.fromkeys(system.method for system in systems)
        }
        opened = open_scorers(scorer, decoding.device)
        written = write(systems, prompts, parts, opened, decoding, perplexity, perplexity_window, work_file)
        written.about["prompts"] = {name: source_record(path) for name, path in files.items()}
        written.about["specifications"] = {
            "source": specifications,
            **{name: spelled_out(some) for name, some in parts.items()},
        }
    add_scores(written.rows, opened, work_file)
    scorers = [*written.scorers, *(one.about() for one in opened)]
    attributes = [name for name in ATTRIBUTES if all(name in one["attributes"] for one in scorers)]
    if not attributes:
        raise ValueError("the scorers have no attribute in common; choose others with --scorer-attributes")
    about = {
        "protocol": "consistency",
        **written.about,
        "limit": limit,
        "scorers": scorers,
        "attributes": attributes,
        "threshold": thresholds,
        "margin": margin,
    }
    return report(written, scorers, attributes, about, thresholds, margin / 100)


def read_domain(domain: str, path: str, limit: int) -> list[ToxicityPrompt]:
    """The prompts of a file.

    Raises:
        DataError: it is none of prompts, or all of its prompts say that they belong into the other.
    """
    from data_modules.tasks.toxicity_prompts import read_prompts

    prompts = read_prompts(path, limit=limit)
    if {prompt.challenging for prompt in prompts} == {domain == "neutral"}:
        raise DataError(
            f"--{domain} {path}: all prompts say challenging: {str(domain == 'neutral').lower()}; are the "
            "two files swapped?"
        )
    return prompts
