"""Confusion probes: multiple-choice questions changed so that a model falls back on what it believes already.

    drawn = draw_instances(examples, seed, 50)
    changed = choice_paralysis(examples, seed, n=5, targets=drawn)

Each probe is a pure function of the questions and a seed; its texts come from other questions of the same
list, whose indices stand in `donors` (probes spec B3). The id stays the original's.

Two texts are the same if they differ in case and white space only. A question with the same prompt never
donates: its right choice would be a second right one, and its prompt would change nothing. Nor does one whose
text stands in the question already.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Literal

import numpy as np

from data_modules.schema import ChoiceQuestion
from storage.errors import DataError

Probe = Literal["no_question", "wrong_question", "no_right_answer", "choice_paralysis"]

_TRIES = 16


def no_question(examples: Iterable[ChoiceQuestion]) -> list[ChoiceQuestion]:
    """The choices alone: the prompt is empty, the label becomes the pseudo-correct slot."""
    return [
        replace(example, prompt="", probe="no_question", donors=(), target="uniform") for example in examples
    ]


def wrong_question(
    examples: Sequence[ChoiceQuestion], seed: int, *, targets: Sequence[int] | None = None
) -> list[ChoiceQuestion]:
    """The prompt of another question, uniformly random; choices and label stay.

    Args:
        examples: the originals.
        seed: of the trial.
        targets: indices of the questions to change; all by default.

    Raises:
        DataError: a question has the prompt of all others.
    """
    rng, prompt_N = (
        probe_rng(examples, "wrong_question", seed),
        np.array(_numbers(x.prompt for x in examples)),
    )

    def fits(i: int, at: np.ndarray) -> np.ndarray:
        return np.asarray(prompt_N[at] != prompt_N[i])

    changed = []
    for i in range(len(examples)) if targets is None else targets:
        donor = _draw(rng, len(examples), partial(fits, i), examples[i], "another prompt")
        prompt = examples[donor].prompt
        changed.append(
            replace(examples[i], prompt=prompt, probe="wrong_question", donors=(donor,), target="uniform")
        )
    return changed


def no_right_answer(
    examples: Sequence[ChoiceQuestion], seed: int, *, targets: Sequence[int] | None = None
) -> list[ChoiceQuestion]:
    """The right choice of another question, uniformly random, in the slot of the right one; all else stays.

    Args:
        examples: the originals.
        seed: of the trial.
        targets: indices of the questions to change; all by default.

    Raises:
        DataError: no other right choice fits a question.
    """
    rng = probe_rng(examples, "no_right_answer", seed)
    prompt_N, choices_of, right_N = _numbered(examples)

    def fits(i: int, at: np.ndarray) -> np.ndarray:
        return (prompt_N[at] != prompt_N[i]) & ~np.isin(right_N[at], choices_of[i])

    what = "a right choice of another prompt that it does not hold yet"
    changed = []
    for i in range(len(examples)) if targets is None else targets:
        example = examples[i]
        donor = _draw(rng, len(examples), partial(fits, i), example, what)
        choices = list(example.choices)
        choices[example.label] = examples[donor].choices[examples[donor].label]
        changed.append(
            replace(
                example, choices=tuple(choices), probe="no_right_answer", donors=(donor,), target="uniform"
            )
        )
    return changed


def choice_paralysis(
    examples: Sequence[ChoiceQuestion],
    seed: int,
    n: int,
    similarity: np.ndarray | None = None,
    *,
    targets: Sequence[int] | None = None,
) -> list[ChoiceQuestion]:
    """The own right choice among n - 1 right choices of other questions; the original wrong ones are gone.

    No text stands twice. The slot of the own choice is drawn; the donors stand in the order of their choices.
    Of one seed, the donors for a smaller n are the first of those for a greater one.

    Args:
        examples: the originals.
        seed: of the trial.
        n: number of choices, at least 2.
        similarity: how similar every question's prompt is to that of each target (targets, N): the most
            similar ones donate, ties to the lower index. Without it donors are uniformly random.
        targets: indices of the questions to change; all by default.

    Raises:
        DataError: a question has fewer than n - 1 donors with different texts.
    """
    at = range(len(examples)) if targets is None else targets
    rng = probe_rng(examples, "choice_paralysis", seed)
    prompt_N, _, right_N = _numbered(examples)
    changed = []
    for row, i in enumerate(at):
        # Both are always drawn, so that one seed gives the same slots for every n and either sampling.
        order_N, place = rng.permutation(len(examples)), rng.random()
        if similarity is not None:
            order_N = np.argsort(-similarity[row], kind="stable")
        elsewhere_N, seen = prompt_N != prompt_N[i], {right_N[i]}
        donors: list[int] = []  # the first whose right choices differ from the own one and from each other
        for j in order_N:
            if len(donors) == n - 1:
                break
            if elsewhere_N[j] and right_N[j] not in seen:
                seen.add(right_N[j])
                donors.append(int(j))
        if len(donors) < n - 1:
            raise DataError(
                f"question {examples[i].id}: choice paralysis with {n} choices needs {n - 1} different right "
                f"choices of other prompts, there are {len(donors)}; give more questions or fewer choices"
            )
        choices, slot = [examples[j].choices[examples[j].label] for j in donors], int(place * n)
        choices.insert(slot, examples[i].choices[examples[i].label])
        made = replace(examples[i], probe="choice_paralysis", choices=tuple(choices), label=slot)
        changed.append(replace(made, donors=tuple(donors), target="label"))
    return changed


def draw_instances(examples: Sequence[ChoiceQuestion], seed: int, count: int) -> list[int]:
    """`count` different indices in ascending order (all where there are no more): the questions of a trial of
    choice paralysis, the same for every n and sampling."""
    if count >= len(examples):
        return list(range(len(examples)))
    rng = probe_rng(examples, "instances", seed)
    return sorted(int(i) for i in rng.choice(len(examples), size=count, replace=False))


def probe_rng(examples: Sequence[ChoiceQuestion], probe: str, seed: int) -> np.random.Generator:
    """A generator for each (benchmark, probe, seed of the trial); DataError where there are no questions."""
    if not examples:
        raise DataError(f"{probe}: there are no questions to change")
    digest = hashlib.sha256(f"{seed}|{examples[0].benchmark}|{probe}".encode()).digest()
    return np.random.default_rng(int.from_bytes(digest[:8], "big"))


def _numbered(examples: Sequence[ChoiceQuestion]) -> tuple[np.ndarray, list[list[int]], np.ndarray]:
    """Prompts, choices and right choices as numbers, the same for the same text."""
    flat = iter(_numbers(text for example in examples for text in example.choices))
    choices = [[next(flat) for _ in example.choices] for example in examples]
    right_N = np.array([row[example.label] for row, example in zip(choices, examples, strict=True)])
    return np.array(_numbers(example.prompt for example in examples)), choices, right_N


def _draw(
    rng: np.random.Generator,
    count: int,
    fits: Callable[[np.ndarray], np.ndarray],
    example: ChoiceQuestion,
    what: str,
) -> int:
    """An index uniformly among those that fit: out of a few at random, which nearly always holds one, or out
    of all. To look at all of them for every question would take hours on the largest sets."""
    few = rng.integers(count, size=_TRIES)
    fitting = few[fits(few)]
    if len(fitting):
        return int(fitting[0])
    pool = np.flatnonzero(fits(np.arange(count)))
    if not len(pool):
        raise DataError(f"question {example.id}: no other question has {what}; give more questions")
    return int(pool[rng.integers(len(pool))])


def _numbers(texts: Iterable[str]) -> list[int]:
    """A number for each text, in the order in which they first appear."""
    known: dict[str, int] = {}
    return [known.setdefault(" ".join(text.split()).casefold(), len(known)) for text in texts]
