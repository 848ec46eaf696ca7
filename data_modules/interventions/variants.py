"""Which interventions an experiment trains on and watches, and the examples that come of them."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

from data_modules.interventions.augmentation import OpenGenerator, generate_sentences
from data_modules.interventions.deletion import (
    AUGMENTED,
    PAPER_RULES,
    TRUNCATED,
    Rules,
    perturb_all,
    with_rationale,
)
from data_modules.schema import QAExample, Rejected, Variant
from storage.errors import DataError

logger = logging.getLogger(__name__)


@dataclass(kw_only=True)
class Interventions:
    """Deletions of the rationale, for training and for watching.

    Args:
        train: Variants that are trained on together: [os] is original training, [os, ts, ts_r] the paper's
            intervention-based training (HotpotQA: [os, os_r]).
        rationale: Of questions whose rationale is not known: none (they have no variants without it), or the
            sentence that holds the answer, as for SQuAD.
        watch: Variants to evaluate every set of questions on.
        shift: Variants whose embeddings are compared with those of the original story during evaluation.
        layers: Layers that are compared: the last, or all (the embeddings first).
        generator: Where the sentences of the `_aug` variants come from: `templates`, `openai:MODEL[@URL]`
            or `hf:PATH`.
        cache: File in which generated sentences are kept.
        max_requests: At most so many new requests to a generator; 0 sets no limit.
        rules: Details of the deletions.
        seed: Of the templates; by default that of `seed_everything`.
    """

    train: list[Variant] = field(default_factory=lambda: ["os"])
    watch: list[Variant] = field(default_factory=lambda: ["os"])
    shift: list[Variant] = field(default_factory=list)
    rationale: Literal["given", "answer_sentence"] = "given"
    layers: Literal["last", "all"] = "last"
    generator: str = "templates"
    cache: str = ""
    max_requests: int = 0
    rules: Rules = field(default_factory=Rules)
    seed: int | None = None

    def __post_init__(self) -> None:
        if not self.train or not self.watch:
            raise DataError("interventions: train and watch need one variant at least, such as [os]")
        if "os" in self.shift:
            raise DataError("interventions.shift: os is what the others are compared with; leave it out")


class Intervened(NamedTuple):
    """A variant of a set of questions: those that allow it, and how many do not, by reason."""

    examples: list[QAExample]
    rejected: Counter[str]

    def __str__(self) -> str:
        return counted(len(self.examples), self.rejected)


def intervene(
    examples: Sequence[QAExample], variant: Variant, how: Interventions, what: str, *, skip_bad: bool = False
) -> Intervened:
    """One variant of all examples that allow it; how many do not, and why, is also logged under `what`.

    `os` takes them as they are, be they a variant already (rows of `perturb`).

    Raises:
        DataError: none is left, or an example contradicts itself (`skip_bad=True` counts it as rejected).
    """
    results = apply(examples, variant, how, skip_bad=skip_bad)
    kept = [result for result in results if isinstance(result, QAExample)]
    rejected = Counter(result.reason for result in results if isinstance(result, Rejected))
    tell(len(kept), rejected, variant, what)
    return Intervened(kept, rejected)


def apply(
    examples: Sequence[QAExample],
    variant: Variant,
    how: Interventions,
    *,
    skip_bad: bool = False,
    sentences: Mapping[str, str] | None = None,
) -> Sequence[QAExample | Rejected]:
    """The variant of every example, or why there is none. Each is for itself: the examples may come in parts.

    Args:
        examples: the originals.
        variant: which.
        how: rules, generator and seed.
        skip_bad: reject an example that contradicts itself instead of raising DataError.
        sentences: of the `_aug` variants, by id; None: from the generator.
    """
    if variant == "os":
        return examples
    if variant in AUGMENTED and sentences is None:
        sentences, _ = sentences_for(examples, variant, how, skip_bad=skip_bad)
    return list(perturb_all(examples, variant, sentence=sentences, rules=how.rules, skip_bad=skip_bad))


def tell(kept: int, rejected: Counter[str], variant: Variant, what: str) -> None:
    """Log how many examples allow no such variant; DataError where none does."""
    if rejected:
        logger.info("%s, %s: %s", what, variant, counted(kept, rejected))
    if not kept:
        raise DataError(f"{what}: no question is left in variant {variant}: {counted(kept, rejected)}")


def counted(kept: int, rejected: Counter[str]) -> str:
    """`kept 3 of 5 (2 no rationale)`."""
    told = ", ".join(f"{count} {reason}" for reason, count in rejected.most_common())
    return f"kept {kept} of {kept + rejected.total()}" + (f" ({told})" if told else "")


def with_rationales(examples: Sequence[QAExample]) -> list[QAExample]:
    """Examples whose rationale is known as they are, the others with the sentence that holds the answer."""
    return [with_rationale(example) for example in examples]


def needing_sentences(
    examples: Sequence[QAExample], variant: Variant, *, rules: Rules = PAPER_RULES, skip_bad: bool = False
) -> list[QAExample]:
    """The examples of which a `_aug` variant has to append a sentence: those that can be perturbed and whose
    kept text lacks the answer. Nobody pays for the sentences of others."""
    bare: Variant = "ts_r" if variant in TRUNCATED else "os_r"
    results = perturb_all(examples, bare, rules=rules, skip_bad=skip_bad)
    return [
        example
        for example, result in zip(examples, results, strict=True)
        if isinstance(result, QAExample) and result.appended
    ]


def sentences_for(
    examples: Sequence[QAExample],
    variant: Variant,
    how: Interventions,
    *,
    skip_bad: bool = False,
    open_generator: OpenGenerator | None = None,
) -> tuple[Mapping[str, str], Counter[str]]:
    """The sentences that a `_aug` variant of these originals appends, by id, and the failures by reason."""
    found, failures = generate_sentences(
        needing_sentences(examples, variant, rules=how.rules, skip_bad=skip_bad),
        generator=how.generator,
        cache=Path(how.cache) if how.cache else None,
        max_requests=how.max_requests or None,
        seed=how.seed or 0,
        open_generator=open_generator,
    )
    if failures:
        logger.warning("%s: no sentence for %s", how.generator, dict(failures))
    return found, failures
