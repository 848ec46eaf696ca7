"""Few-shot prompts of the feature-bias protocol: demonstrations, a text, a key, and no answer.

    shots = draw_shots(task, shots=16, seed=0)
    prompts = FewShot(style_of("none", {}), shots)
    prompts.test("Is this it?")         # "...\\n\\nCategory:1\\n\\nIs this it?\\n\\nCategory:"

Probes spec C4 and C5, byte for byte. The four interventions say which feature is meant: label words with a
key (verbalizer), a sentence before all (instruction), reasons in place of labels (explanation), and
demonstrations of the disambiguating cells (disambiguation).
"""

from __future__ import annotations

import re
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal, NamedTuple, get_args

from data_modules.tasks.feature_bias import AGREEING, DISAMBIGUATING, WORDS, Cell, FeatureTask, TaskExample
from data_modules.tasks.wording import ANSWER, Hypothesis, Wording
from storage.errors import DataError

Intervention = Literal["none", "verbalizer", "instruction", "explanation", "disambiguation"]
INTERVENTIONS: tuple[Intervention, ...] = get_args(Intervention)
KEY = "Category:"
"""What stands before a label, with no space between."""
CONTENT_FREE = ("[MASK]", "N/A", "")
"""Texts that say nothing, for calibration."""
ORDER_SEED = 2022
"""Of the authors' order of demonstrations."""
PARITY_STEP = 10
"""How far the authors' second set of demonstrations begins behind the first."""

_ARTICLES = re.compile(r"\b(a|an|the)\b")


class Style(NamedTuple):
    """How prompts of one intervention look."""

    key: str = KEY
    words: tuple[str, str] = WORDS
    """What a model says for 0 and for 1."""
    prefix: str = ""
    """What stands before the demonstrations."""
    reasons: tuple[str, str] | None = None
    """What demonstrations say in place of a label word, for 0 and for 1."""


class Shot(NamedTuple):
    """A demonstration and the label that it shows."""

    example: TaskExample
    label: int


def style_of(
    intervention: Intervention, wordings: Mapping[Hypothesis, Wording], steer: Hypothesis = "h1"
) -> Style:
    """The style of an intervention toward one of the features.

    Raises:
        DataError: the feature has no wording for it.
    """
    if intervention in ("none", "disambiguation"):
        return Style()
    wording = wordings.get(steer, Wording())
    if intervention == "verbalizer" and wording.key and wording.words:
        return Style(key=wording.key, words=wording.words)
    if intervention == "instruction" and wording.instruction:
        return Style(prefix=f"{wording.instruction}\n\n")
    if intervention == "explanation" and wording.explanation:
        return Style(reasons=wording.explanation)
    fields = {
        "verbalizer": '"key": "...", "words": ["...", "..."]',
        "instruction": '"instruction": "..."',
        "explanation": f'"explanation": ["... {ANSWER}0.", "... {ANSWER}1."]',
    }
    raise DataError(
        f"no wording of {steer} for {intervention}; write it to a file for --wording, as "
        f'{{TASK: {{"{steer}": {{{fields[intervention]}}}}}}}'
    )


def shot_cells(
    task: FeatureTask, intervention: Intervention, shots: int
) -> list[tuple[Cell, tuple[TaskExample, ...], int]]:
    """Which cells demonstrations come from: (cell, its pool, how many of it).

    Raises:
        DataError: shots cannot be divided among the cells, or a pool is smaller than its part.
    """
    pools: list[tuple[Cell, tuple[TaskExample, ...]]] = [(cell, task.demos[cell]) for cell in AGREEING]
    if intervention == "disambiguation":
        pools += [(cell, task.tests[cell]) for cell in DISAMBIGUATING]
    if shots < len(pools) or shots % len(pools):
        raise DataError(
            f"--shots {shots}: {intervention} takes as many from each of {len(pools)} cells; name a multiple "
            f"of {len(pools)}"
        )
    return [(cell, pool, shots // len(pools)) for cell, pool in pools]


def draw_shots(
    task: FeatureTask,
    *,
    shots: int = 16,
    seed: int = 0,
    intervention: Intervention = "none",
    steer: Hypothesis = "h1",
    parity: bool = False,
) -> tuple[Shot, ...]:
    """Demonstrations in the order in which they stand in the prompt.

    By default each pool gives its part at random and the order is random, both from the seed. With `parity`,
    as the authors' code has it: the next ones from position 10 x seed on, fewer where the pool ends, in the
    order that Python's generator makes from 2022.

    Raises:
        DataError: as in `shot_cells`; a pool is smaller than its part (not with parity, unless it gives
            nothing at all).
    """
    rng = Random(f"feature-bias/{task.name}/shots/{seed}")
    first = PARITY_STEP * seed
    chosen: list[Shot] = []
    for cell, pool, count in shot_cells(task, intervention, shots):
        if parity:
            found = list(pool[first : first + count])
        elif len(pool) < count:
            raise DataError(
                f"{task.name}: {count} demonstrations of cell {cell} are needed for {shots} shots, and there "
                f"are {len(pool)}; lower --shots, or take --parity, which goes on with fewer"
            )
        else:
            found = rng.sample(pool, count)
        chosen += [Shot(example, shown_label(example, steer)) for example in found]
    if not chosen:
        raise DataError(f"{task.name}: no demonstration is left from position {first} on; lower --seeds")
    (Random(ORDER_SEED) if parity else rng).shuffle(chosen)
    return tuple(chosen)


def shown_label(example: TaskExample, steer: Hypothesis) -> int:
    """What a demonstration says: the feature that is meant, wherever the two differ."""
    return int(example.split[0] if steer == "h1" else example.split[2])


def fill(text: str, key: str, answer: str | None = None) -> str:
    """A text with its key, and with an answer for a demonstration.

    >>> fill(" a b ", "Category:"), fill("a", "Is it?", "yes")
    ('a b\\n\\nCategory:', 'a\\n\\nIs it?yes\\n\\n')
    """
    asked = f"{text.strip()}\n\n{key}"
    return asked if answer is None else f"{asked}{answer.strip()}\n\n"


@dataclass(frozen=True, slots=True)
class FewShot:
    """The prompts that share demonstrations."""

    style: Style
    shots: tuple[Shot, ...]

    @property
    def head(self) -> str:
        """All before the text that is asked about."""
        said = self.style.reasons or self.style.words
        shown = (fill(shot.example.question, self.style.key, said[shot.label]) for shot in self.shots)
        return self.style.prefix + "".join(shown)

    def test(self, text: str) -> str:
        """The prompt of a text."""
        return self.head + fill(text, self.style.key)

    def calibration(self) -> list[str]:
        """Prompts of texts that say nothing."""
        return [self.test(text) for text in CONTENT_FREE]

    def tested(self, examples: Sequence[TaskExample]) -> list[TaskExample]:
        """Without those whose text is a demonstration (the authors skip them and do not count them)."""
        shown = {shot.example.question.strip() for shot in self.shots}
        return [example for example in examples if example.question.strip() not in shown]


def explained_label(text: str) -> int | None:
    """The label that an explanation ends in: what follows the last "answer is " without punctuation and
    articles; None where that is neither 0 nor 1.

    >>> explained_label("It shouts, so the answer is 1."), explained_label("The answer is the RED one.")
    (1, None)
    """
    _, found, rest = text.rpartition(ANSWER)
    words = _ARTICLES.sub(" ", "".join(c for c in rest.lower() if c not in string.punctuation)).split()
    return {"0": 0, "1": 1}.get(" ".join(words)) if found else None
