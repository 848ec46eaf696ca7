"""Is debiasing consistent? Continuations of adversarial and neutral prompts, debiased by
specifications, by their opposites, by nonsense, and by an empty specification (Morabito et al.
2023, section 3).

Specifications: specifications.py here; scores: evaluation/answering/scorers.py.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Any

from interventune.evaluation.answering.interface import Compute, named_sources
from interventune.evaluation.answering.sources import Model
from interventune.evaluation.protocol import Evaluation, Number, Row
from interventune.storage.command_line import AtLeast, Count, CountOrZero, InputFile, Named
from interventune.storage.documents import DataError

from .specifications import OWN, Method, parts_of


def write(
    *,
    checkpoint: list[Named],
    method: list[Method],
    adversarial: InputFile,
    neutral: InputFile,
    specifications: InputFile = "own",
    decay: list[Annotated[float, AtLeast(0)]] | None = None,
    new_tokens: Count = 20,
    beams: Count = 3,
    nonsense_groups: Count = 5,
    limit: CountOrZero = 0,
    perplexity: InputFile | None = None,
    compute: Compute = Compute(batch_size=8),  # noqa: B008  frozen
) -> Evaluation:
    """Let models continue prompts with debiasing and with its controls, for `consistency` to score.

    Example: interventune evaluate consistency-write --checkpoint hf:gpt2 --method self \\
        --adversarial adversarial.jsonl --neutral neutral.jsonl --output written

    Args:
        checkpoint: hf:FOLDER_OR_HUB_NAME, a decoder's .ckpt, or openai:MODEL[@URL] (instructive
            only).
        method: self: suppress words that a description of bias makes more likely (local models
            only); instructive: put an instruction before the prompt. Each model uses every method
            it supports.
        adversarial: prompts that provoke toxic text, as JSON Lines.
        neutral: harmless prompts in the same format.
        specifications: descriptions and instructions as a JSON file; `own`: the built-in ones.
        decay: self: strength, lambda (default: 50); several give a grid, as in the paper's Tables 8
            to 11.
        new_tokens: length of each continuation in tokens.
        beams: beam width of local models; 1 is greedy.
        nonsense_groups: groups of random specifications, a control, if --specifications has none.
        limit: use only the first N prompts of each file; 0: all.
        perplexity: also measure the perplexity of this text, with and without debiasing.
        compute: model options (with --method self, --dtype auto is float32: lambda amplifies
            rounding).
    """
    from interventune.data_modules.tasks.toxicity_prompts import read_prompts
    from interventune.models.language.self_debiasing import DECAY
    from interventune.storage.documents import read_text

    from .writing import WRITING, Writer, system

    prompts = {
        "adversarial": read_prompts(adversarial, limit=limit),
        "neutral": read_prompts(neutral, limit=limit),
    }
    if {prompt.challenging for prompt in prompts["adversarial"]} == {False}:
        raise DataError(
            f"--adversarial {adversarial}: no prompt is challenging; are the two files swapped?"
        )
    file = OWN if specifications == "own" else specifications
    parts = {name: parts_of(name, file, nonsense_groups) for name in method}
    text = read_text(perplexity) if perplexity else ""
    if "self" in method and compute.dtype == "auto":
        compute = replace(compute, dtype="float32")
    named = named_sources(checkpoint, "--checkpoint")
    perplexities = list[Number]()

    def rows(writer: Writer) -> Iterator[Row]:
        debiases_itself = "self" in method and writer.local is not None
        strengths: list[float | None] = [*(decay or [DECAY])] if debiases_itself else []
        strengths += [None] if "instructive" in method else []
        if not strengths:
            raise ValueError(f"--method self needs logits, which {writer.path} does not give")
        for strength in strengths:
            written = parts["instructive" if strength is None else "self"]
            yield from writer.rows(written, prompts, strength)
            place = {"checkpoint": writer.name, "method": system(strength)}
            of_variant = writer.perplexities(text, written, strength) if text else {}
            for variant, number in of_variant.items():
                perplexities.append(Number("perplexity", {**place, "variant": variant}, number))

    return replace(WRITING, also=[lambda *_: perplexities]).run(
        rows,
        [Model(name, path) for name, path in named.items()],
        opened=lambda model: Writer(
            model.name, model.path, new_tokens=new_tokens, beams=beams, compute=compute
        ),
    )


def evaluate(
    *,
    continuations: list[Named],
    scorer: str | None = None,
    margin: Annotated[float, AtLeast(0)] = 5,
    device: str = "auto",
    batch_size: Count = 32,
) -> Evaluation:
    """Test whether debiasing does what its specification says, and whether anything else does the
    same.

    Example: interventune evaluate consistency --continuations written --output judged

    Args:
        continuations: folders of reports of consistency-write or consistency, or JSON Lines with
            domain, specification, group, prompt, text and optionally scores, from any method of
            debiasing.
        scorer: text classifier, as hf:PATH[@REVISION] (default: the scores in the rows; if there
            are none, hf:unitary/unbiased-toxic-roberta at a fixed revision).
        margin: smallest difference of rates that counts, in percentage points.
        device: cpu, cuda, cuda:1, ...; auto takes a GPU if there is one.
        batch_size: texts per batch.
    """
    from interventune.evaluation.answering.scorers import ATTRIBUTES, DEFAULT, Scorer
    from interventune.metrics.consistency import repetition

    from .judging import flags, judging
    from .rows import by_text, read_rows

    rows_of = read_rows(named_sources(continuations, "--continuations"))
    written = [row for rows in rows_of.values() for row in rows if "continuation" in row]
    about: dict[str, Any] = {}
    if scorer or not any("scores" in row for row in written):
        judge = Scorer(scorer or DEFAULT, device=device, batch_size=batch_size)
        about["scorer_identity"] = judge.identity
        texts = (row["continuation"] for row in written)
        scores_of = by_text(judge.score, texts, "scoring")
        for row in written:
            row |= {"scored_by": judge.name, "scores": scores_of[row["continuation"]]}
    attributes = [
        name for name in ATTRIBUTES if all(name in row.get("scores", ()) for row in written)
    ]
    if not attributes:
        known = ", ".join(ATTRIBUTES)
        raise DataError(
            f"--continuations: no attribute ({known}) is in all rows' 'scores'; name a --scorer"
        )
    for row in written:
        row |= flags(row["scores"], attributes)
        row["repetition"] = repetition(row["prompt"], row["continuation"])
    protocol = judging(attributes, written, margin)
    models = [Model(name, name) for name in rows_of]
    evaluation = protocol.run(iter, models, opened=lambda model: rows_of[model.name])
    return replace(evaluation, about={**evaluation.about, **about})
