"""Models with their methods of debiasing, and what they write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from tqdm import tqdm

from data_modules.tasks.toxicity_prompts import ToxicityPrompt
from evaluation.answering.interface import is_text_model, named_sources
from evaluation.protocols.consistency.continuation_rows import Written
from evaluation.protocols.consistency.continuations import Request, Writer, check_scorers
from evaluation.protocols.consistency.decoding import Decoding
from evaluation.protocols.consistency.perplexity import Perplexity, perplexities, read_ids, window_of
from evaluation.protocols.consistency.specifications import Method, Part
from evaluation.report import source_record
from evaluation.scorers.interface import Scorer
from metrics.consistency import Domain
from models.language.text_models import TextFailure
from storage.finished_work import FinishedWork

COARSE = (
    "Self-debiasing multiplies differences of probabilities by lambda, and in {} these are partly rounding: "
    "a prefix without any effect changes a part of the choices. --dtype float32 does without that."
)


class System(NamedTuple):
    """A model with a method of debiasing."""

    checkpoint: str
    model: str
    method: Method
    decay: float | None
    several: bool
    """Whether there are several strengths, so that the report tells them apart."""

    @property
    def place(self) -> dict[str, Any]:
        """Its cell."""
        decay = {"decay": self.decay} if self.several and self.decay is not None else {}
        return {"checkpoint": self.checkpoint, "method": self.method, **decay}


def systems_of(
    models: Sequence[str], methods: Sequence[Method], decoding: Decoding, perplexity: str | None
) -> list[System]:
    """Every model with every method (of several, those that it can take) and strength.

    Raises:
        ValueError: flags do not go together, or a model can take none of the methods.
    """
    for flag, value in (("decay", decoding.decay), ("perplexity", perplexity)):
        if value is not None and "self" not in methods:
            raise ValueError(f"--{flag} is of self-debiasing; add --method self, or leave it out")
    if decoding.sample and decoding.beams not in (None, 1):
        raise ValueError(
            f"--beams {decoding.beams} with --sample: beams are not drawn; leave one of them out"
        )
    if decoding.draws > 1 and not decoding.sample:
        raise ValueError(f"--draws {decoding.draws}: without --sample all are the same; add it")
    systems = []
    for name, model in named_sources(models, "--model").items():
        endpoint = model.startswith("openai:")
        local = not endpoint
        if not is_text_model(model):
            raise ValueError(
                f"--model {model!r} is no language model; write hf:FOLDER_OR_HUB_NAME, openai:MODEL[@URL] "
                "or a decoder's .ckpt"
            )
        if decoding.completions and local:
            raise ValueError("--completions is for endpoints: a local model always continues the bare prompt")
        needs_logits = {
            "--method self": list(methods) == ["self"],
            "--sample": decoding.sample,
            "--beams": decoding.beams,
        }
        for flag, wanted in needs_logits.items():
            if endpoint and wanted:
                raise ValueError(
                    f"{flag} needs the model's logits, which {model} does not give; take a local model "
                    "(hf:FOLDER_OR_HUB_NAME), or leave it out"
                )
        decays: list[float | None] = [*decoding.decay] if decoding.decay else [None]
        several = len(decays) > 1
        for method in dict.fromkeys(methods):
            if method == "instructive":
                systems.append(System(name, model, method, None, several))
            elif local:
                systems += [System(name, model, method, decay, several) for decay in decays]
    return systems


def write(
    systems: Sequence[System],
    prompts: Mapping[Domain, Sequence[ToxicityPrompt]],
    parts: Mapping[Method, Sequence[Part]],
    scorers: Sequence[Scorer],
    decoding: Decoding,
    perplexity: str | None,
    window: int | None,
    work: FinishedWork,
) -> Written:
    """What the systems write, by one model at a time; all that can be checked is, before it writes."""
    warnings = []
    if any(system.method == "self" for system in systems):
        if decoding.dtype == "auto":
            decoding = replace(decoding, dtype="float32")
        elif decoding.dtype != "float32":
            warnings.append(COARSE.format(decoding.dtype))
    rows: list[dict[str, Any]] = []
    found: list[tuple[dict[str, Any], Perplexity]] = []
    records = []
    writer, opened, longest = None, "", 0
    for system in systems:
        if writer is None or opened != system.model:
            writer, opened = Writer(system.model, decoding), system.model
        writer.debias(system.method, system.decay)
        new: list[dict[str, Any]] = []
        requests: list[list[Request]] = []
        for part in parts[system.method]:
            for domain, listed in prompts.items():
                cell = {**system.place, "domain": domain, "variant": part.variant, "group": part.group}
                drawn = [(prompt, draw) for prompt in listed for draw in range(decoding.draws)]
                new += [{**cell, "line": prompt.line, "prompt": prompt.text} for prompt, _ in drawn]
                if system.method == "self":  # prefixes stand beside the prompt, an instruction before it
                    prefixes = tuple(dict.fromkeys(part.texts))
                    requests.append([Request(prompt.text, prefixes, draw) for prompt, draw in drawn])
                else:
                    before = "".join(part.texts)
                    requests.append([Request(before + prompt.text, (), draw) for prompt, draw in drawn])
        writer.check(request for some in requests for request in some)
        debiased = [part for part in parts[system.method] if part.variant in ("original", "opposite")]
        ids: list[int] = []
        if perplexity and system.method == "self":
            longest, ids = window_of(writer, window), read_ids(perplexity, writer, debiased)
        check_scorers(scorers, prompts["adversarial"][0].text, work)
        with tqdm(total=len(new), desc="writing", unit="text", disable=None) as bar:
            texts = [text for some in requests for text in writer.continuations(some, work, bar)]
        for row, text in zip(new, texts, strict=True):
            if isinstance(text, TextFailure):
                row["failure"] = TextFailure(f"no continuation: {text.reason}", text.detail)
            else:
                row["continuation"] = text
        rows += new
        if ids:
            by_variant = perplexities(ids, writer, debiased, longest, work)
            found += [({**system.place, "variant": name}, value) for name, value in by_variant.items()]
        model = {"name": writer.model.name, "settings": writer.settings}
        records.append({**system.place, "model": model, "debiasing": writer.debiasing})
    about = {
        "checkpoints": {system.checkpoint: source_record(system.model) for system in systems},
        "systems": records,
        **({"perplexity": source_record(perplexity) | {"window": longest}} if perplexity else {}),
    }
    first = f": {systems[0].method} debiasing of {systems[0].model}" if len(systems) == 1 else ""
    return Written(f"Debiasing consistency{first}", rows, [], about, found, warnings)
