"""A control with known truth: a preference among subjects that is drawn, not found. Of two subjects the
stronger one is preferred in answer to the question, the weaker one in answer to the negated question."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Literal

import numpy as np

from data_modules.groups.advice import unadvised, with_advice
from data_modules.schema import Group

Scope = Literal["category", "subject"]
"""Whether a subject's strength differs from category to category, or is one for all."""


def latent_strength(subject: str, category: str, seed: int) -> float:
    """The planted strength of a subject in a category of attributes ("" for all), uniform in [0, 1): a
    function of names and seed, so that any file of groups has one."""
    digest = hashlib.sha256(f"{seed}|{subject.lower()}|{category}".encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2**64


def preferred_subject(group: Group, seed: int, scope: Scope = "category") -> int:
    """Index (0 or 1) of the subject whose planted strength is greater."""
    category = group.category if scope == "category" else ""
    first, second = (latent_strength(subject, category, seed) for subject in group.subjects)
    return 0 if first > second else 1


def randomly_advised(groups: Sequence[Group], *, copies: int, seed: int) -> list[Group]:
    """Every distinct unadvised group `copies` times, about half of them behind a random advice sentence.

    It is drawn from all sentences of the category (of all groups with a domain), of any class, so that it
    says nothing about the answer; all come out as class `none`.
    """
    rng = np.random.default_rng(seed)
    pools: dict[str, dict[str, None]] = {}
    for group in groups:
        if advice := group.variants[0].advice:
            pools.setdefault("" if group.domain else group.category, {})[advice] = None
    result = []
    for group in unadvised(groups):
        sentences = list(pools.get("" if group.domain else group.category, {}))
        for copy in range(copies):
            advised = sentences and rng.random() < 0.5
            advice = sentences[int(rng.integers(len(sentences)))] if advised else ""
            result.append(with_advice(group, advice, "none", f"planted-{copy}" if advice else ""))
    return result
