"""Confusion probes: multiple-choice questions changed so that a model can only use its prior
beliefs.

    targets = draw_instances(examples, seed, 50)
    changed = choice_paralysis(examples, seed, targets, n=5)

Each probe is a pure function of the questions, a seed and the indices to change; its texts come
from other questions of the same list, whose indices are in `donors` (Shen and Kejriwal 2022,
section 2.3). The id remains the original's.

Two texts are equal if they differ only in case and white space. A question with the same prompt
never donates: its right choice would be a second right one, and its prompt would change nothing.
Nor does one whose text already occurs in the question.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from interventune.data_modules.schema.questions import ChoiceQuestion, single_spaced
from interventune.storage.documents import DataError, text_digest

OtherText = Literal["wrong_question", "no_right_answer"]
Probe = Literal["no_question", OtherText, "choice_paralysis"]
Questions = Sequence[ChoiceQuestion]
_TRIES = 16


def irregularities(examples: Iterable[ChoiceQuestion]) -> str:
    """State what the right choices have in common without their meaning: place, length in words,
    and words that the prompt has too (section 4.1; there of the choices that a model selects).
    """
    first = []
    sums = np.zeros((2, 3))  # wrong, right: choices, their words, those in the prompt
    for example in examples:
        first.append(example.label == 0)
        prompt = {*re.findall(r"\w+", example.prompt.lower())}
        for i, choice in enumerate(example.choices):
            words = re.findall(r"\w+", choice.lower())
            sums[int(i == example.label)] += 1, len(words), sum(word in prompt for word in words)
    lengths = sums[:, 1] / sums[:, 0]
    shares = 100 * sums[:, 2] / np.maximum(sums[:, 1], 1)
    return (
        f"The first choice is right in {100 * np.mean(first):.1f} %. Right choices have "
        f"{lengths[1]:.2f} words, {shares[1]:.1f} % of them in the prompt; wrong ones "
        f"{lengths[0]:.2f}, {shares[0]:.1f} %."
    )


def no_question(examples: Iterable[ChoiceQuestion]) -> list[ChoiceQuestion]:
    """Only the choices: the prompt is empty, the label becomes the pseudo-correct slot."""
    return [replace(example, prompt="", probe="no_question") for example in examples]


def with_other_text(
    examples: Questions, probe: OtherText, seed: int, targets: Iterable[int]
) -> list[ChoiceQuestion]:
    """Replace the prompt by that of another question, or the right choice by that of another,
    uniformly among those that fit: out of a few at random, which nearly always hold one, or out of
    all. To look at all for every question would take hours on the largest sets. DataError where
    none fits.
    """
    rng = probe_rng(examples, probe, seed)
    prompt_N, choices_of, right_N = _numbered(examples)

    def fitting(i: int, candidates: np.ndarray) -> np.ndarray:
        fits = prompt_N[candidates] != prompt_N[i]
        if probe == "no_right_answer":
            fits &= ~np.isin(right_N[candidates], choices_of[i])
        return candidates[fits]

    changed = []
    for i in targets:
        example = examples[i]
        donors = fitting(i, rng.integers(len(examples), size=_TRIES))
        if not len(donors):
            donors = fitting(i, np.arange(len(examples)))
            if not len(donors):
                raise DataError(
                    f"question {example.id}: no text for {probe} fits; give more questions"
                )
            donors = donors[rng.integers(len(donors)) :]
        donor = int(donors[0])
        prompt = example.prompt
        choices = list(example.choices)
        if probe == "wrong_question":
            prompt = examples[donor].prompt
        else:
            choices[example.label] = examples[donor].choices[examples[donor].label]
        changed.append(
            replace(example, prompt=prompt, choices=tuple(choices), probe=probe, donors=(donor,))
        )
    return changed


def choice_paralysis(
    examples: Questions,
    seed: int,
    targets: Sequence[int],
    n: int,
    similarity: np.ndarray | None = None,
) -> list[ChoiceQuestion]:
    """Replace the wrong choices by n - 1 right choices of other questions.

    No text occurs twice. The slot of the right choice is drawn; donors are in the order of their
    choices. With one seed, the donors for a smaller n are the first of those for a larger one.

    Args:
        examples: the originals.
        seed: of the trial.
        targets: indices of the questions to change.
        n: number of choices, at least 2.
        similarity: similarity of every question's prompt to each target's (targets, N): the most
            similar ones donate, ties to the lower index. Without it donors are uniformly random.

    Raises:
        DataError: a question has fewer than n - 1 donors with different texts.
    """
    rng = probe_rng(examples, "choice_paralysis", seed)
    prompt_N, _, right_N = _numbered(examples)
    changed = []
    for row, i in enumerate(targets):
        # Always draw both, so that a seed gives the same slots for every n and either sampling.
        order_N = rng.permutation(len(examples))
        place = rng.random()
        if similarity is not None:
            order_N = np.argsort(-similarity[row], kind="stable")
        order = order_N[(prompt_N[order_N] != prompt_N[i]) & (right_N[order_N] != right_N[i])]
        _, first = np.unique(right_N[order], return_index=True)  # of each text
        donors = order[np.sort(first)[: n - 1]].tolist()
        if len(donors) < n - 1:
            raise DataError(
                f"question {examples[i].id}: choice paralysis with {n} choices needs {n - 1} "
                f"different right choices of other prompts, there are {len(donors)}; give more "
                "questions or fewer choices"
            )
        slot = int(place * n)
        sources = [*donors[:slot], i, *donors[slot:]]
        choices = tuple(examples[j].choices[examples[j].label] for j in sources)
        changed.append(
            replace(
                examples[i],
                choices=choices,
                label=slot,
                probe="choice_paralysis",
                donors=tuple(donors),
            )
        )
    return changed


def draw_instances(examples: Questions, seed: int, count: int) -> list[int]:
    """Draw `count` distinct indices in ascending order (all if there are no more): the questions of
    a trial of choice paralysis, the same for every n and sampling.
    """
    rng = probe_rng(examples, "instances", seed)
    return sorted(rng.choice(len(examples), size=min(count, len(examples)), replace=False).tolist())


def probe_rng(examples: Questions, probe: str, seed: int) -> np.random.Generator:
    """A generator for each (benchmark, probe, seed of the trial)."""
    digest = text_digest(f"{seed}|{examples[0].benchmark}|{probe}")
    return np.random.default_rng(int(digest[:16], 16))


def _numbered(examples: Questions) -> tuple[np.ndarray, list[list[int]], np.ndarray]:
    """Prompts, choices and right choices as numbers, the same for the same text."""
    known: dict[str, int] = {}

    def number(text: str) -> int:
        return known.setdefault(single_spaced(text).casefold(), len(known))

    choices = [[number(text) for text in example.choices] for example in examples]
    right_N = np.array([row[example.label] for row, example in zip(choices, examples, strict=True)])
    prompt_N = np.array([number(example.prompt) for example in examples])
    return prompt_N, choices, right_N
