"""Few-shot prompts of the feature-bias protocol: demonstrations, a text, a key, and no answer.

    shots = draw_shots(task, shots=16, seed=0)
    prompts = FewShot(style_of("none", {}), shots)
    prompts.test("Is this it?")         # "...\\n\\nCategory:1\\n\\nIs this it?\\n\\nCategory:"

Probes spec C4 and C5, byte for byte. The four interventions say which feature is meant: label words with a
key (verbalizer), a sentence before all (instruction), reasons in place of labels (explanation), and
demonstrations of the disambiguating cells (disambiguation).
"""

from __future__ import annotations

import logging
import re
import string
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from random import Random
from typing import Annotated, Literal, NamedTuple

from data_modules.tasks.feature_bias import Cell, FeatureTask, TaskExample, digits
from data_modules.tasks.wording import ANSWER, HYPOTHESES, Hypothesis, Wording
from storage.command_line import AtLeast, Count
from storage.errors import DataError

Intervention = Literal["none", "verbalizer", "instruction", "explanation", "disambiguation"]
Steer = Literal["h1", "h2", ""]
"""The feature that is meant; empty without an intervention."""
KEY = "Category:"
"""What stands before a label, with no space between."""
CONTENT_FREE = ("[MASK]", "N/A", "")
"""Texts that say nothing, for calibration."""
ORDER_SEED = 2022
"""Of the authors' order of demonstrations."""
PARITY_STEP = 10
"""How far the authors' second set of demonstrations begins behind the first."""

log = logging.getLogger(__name__)

_ARTICLES = re.compile(r"\b(a|an|the)\b")


@dataclass(frozen=True)
class Prompting:
    """Prompts of language models.

    Args:
        intervention: what tells the model which feature is meant (default: none).
        steer: toward which feature interventions steer: the label (h1) or the other (default: each in turn).
        wording: keys, label words, instructions, explanations (a JSON file).
        shots: demonstrations.
        seeds: sets of demonstrations.
        parity: as the authors' code: demonstrations from position 0, 10, ... in one fixed order, and label
            words among the five most probable tokens only.
        truncate: cut prompts that are too long for a local model at their beginning (default: an error).
        completions: have an endpoint continue the bare prompt rather than answer a turn of a chat.
        max_new_tokens: longest explanation; labels take one.
    """

    intervention: list[Intervention] | None = None
    steer: list[Hypothesis] | None = None
    wording: Path | None = None
    shots: Annotated[int, AtLeast(2)] = 16
    seeds: Count = 3
    parity: bool = False
    truncate: bool = False
    completions: bool = False
    max_new_tokens: Count = 32

    @property
    def interventions(self) -> list[Intervention]:
        """Each once."""
        return list(dict.fromkeys(self.intervention or ["none"]))


class Style(NamedTuple):
    """How prompts of one intervention look."""

    key: str = KEY
    words: tuple[str, ...] = digits(2)
    """What a model says for 0, for 1, ..."""
    prefix: str = ""
    """What stands before the demonstrations."""
    reasons: tuple[str, ...] | None = None
    """What demonstrations say in place of a label word, for 0, for 1, ..."""


class Shot(NamedTuple):
    """A demonstration and the label that it shows."""

    example: TaskExample
    label: int


def style_of(
    intervention: Intervention,
    wordings: Mapping[Hypothesis, Wording],
    steer: Hypothesis = "h1",
    classes: int = 2,
) -> Style:
    """The style of an intervention toward one of the features of a task.

    Raises:
        DataError: the feature has no wording for it, or one for another number of classes.
    """
    plain = Style(words=digits(classes))
    if intervention in ("none", "disambiguation"):
        return plain
    wording = wordings.get(steer, Wording())
    texts = {"verbalizer": wording.words, "explanation": wording.explanation}.get(intervention)
    if texts and len(texts) != classes:
        raise DataError(
            f"the wording of {steer} for {intervention} has {len(texts)} texts for {classes} classes"
        )
    if intervention == "verbalizer" and wording.key and wording.words:
        return plain._replace(key=wording.key, words=wording.words)
    if intervention == "instruction" and wording.instruction:
        return plain._replace(prefix=f"{wording.instruction}\n\n")
    if intervention == "explanation" and wording.explanation:
        return plain._replace(reasons=wording.explanation)
    fields = {
        "verbalizer": '"key": "...", "words": ["...", "..."]',
        "instruction": '"instruction": "..."',
        "explanation": f'"explanation": ["... {ANSWER}0.", "... {ANSWER}1."]',
    }
    raise DataError(
        f"no wording of {steer} for {intervention}; write it to a file for --wording, as "
        f'{{TASK: {{"{steer}": {{{fields[intervention]}}}}}}}'
    )


def draw_shots(
    task: FeatureTask,
    *,
    shots: int = 16,
    seed: int = 0,
    intervention: Intervention = "none",
    steer: Hypothesis = "h1",
    parity: bool = False,
) -> tuple[Shot, ...]:
    """Demonstrations in the order in which they stand in the prompt, as many from each cell.

    By default each cell gives its part at random and the order is random, both from the seed. With `parity`,
    as the authors' code has it: the next ones from position 10 x seed on, fewer where a cell ends, in the
    order that Python's generator makes from 2022.

    Raises:
        DataError: shots cannot be divided among the cells; a cell has fewer (not with parity, unless nothing
            is left at all).
    """
    pools: list[tuple[Cell, tuple[TaskExample, ...]]] = [
        (cell, task.demos[cell]) for cell in task.agreeing_cells
    ]
    if intervention == "disambiguation":
        pools += [(cell, task.tests[cell]) for cell in task.differing_cells]
    if shots < len(pools) or shots % len(pools):
        raise DataError(
            f"--shots {shots}: {intervention} takes as many from each of {len(pools)} cells; name a multiple "
            f"of {len(pools)}"
        )
    rng, first = Random(f"feature-bias/{task.name}/shots/{seed}"), PARITY_STEP * seed
    count = shots // len(pools)
    drawn: list[Shot] = []
    for cell, pool in pools:
        if not parity and len(pool) < count:
            raise DataError(
                f"{task.name}: {count} demonstrations of cell {cell} are needed for {shots} shots, and there "
                f"are {len(pool)}; lower --shots, or take --parity, which goes on with fewer"
            )
        part = pool[first : first + count] if parity else rng.sample(pool, count)
        # Demonstrations say the feature that is meant, wherever the two differ.
        drawn += [Shot(example, int(example.split[0 if steer == "h1" else 2])) for example in part]
    if not drawn:
        raise DataError(f"{task.name}: no demonstration is left from position {first} on; lower --seeds")
    (Random(ORDER_SEED) if parity else rng).shuffle(drawn)
    return tuple(drawn)


def fill(text: str, key: str, answer: str | None = None) -> str:
    """A text with its key, and with an answer for a demonstration.

    >>> fill(" a b ", "Category:"), fill("a", "Is it?", "yes")
    ('a b\\n\\nCategory:', 'a\\n\\nIs it?yes\\n\\n')
    """
    prompt = f"{text.strip()}\n\n{key}"
    return prompt if answer is None else f"{prompt}{answer.strip()}\n\n"


@dataclass(frozen=True, slots=True)
class FewShot:
    """The prompts that share demonstrations.

    Args:
        style: how they look.
        shots: the demonstrations.
        title: which set of demonstrations this is, for errors and warnings.
        task, intervention, steer, seed: the same in parts.
    """

    style: Style
    shots: tuple[Shot, ...]
    title: str = ""
    task: str = ""
    intervention: Intervention = "none"
    steer: Steer = ""
    seed: int = 0

    @property
    def head(self) -> str:
        """All before the text that is asked about."""
        answers = self.style.reasons or self.style.words
        shown = (fill(shot.example.question, self.style.key, answers[shot.label]) for shot in self.shots)
        return self.style.prefix + "".join(shown)

    def test(self, text: str) -> str:
        """The prompt of a text."""
        return self.head + fill(text, self.style.key)

    def tested(self, examples: Iterable[TaskExample]) -> list[TaskExample]:
        """Without those whose text is a demonstration (the authors skip them and do not count them)."""
        shown = {shot.example.question.strip() for shot in self.shots}
        return [example for example in examples if example.question.strip() not in shown]


def few_shots(
    tasks: Mapping[str, FeatureTask],
    wordings: Mapping[str, Mapping[Hypothesis, Wording]],
    prompting: Prompting,
) -> list[FewShot]:
    """The prompts of every task, intervention, steered feature and set of demonstrations, in the order in
    which they are asked; ValueError where demonstrations or a wording are missing."""
    steers: list[Steer] = list(dict.fromkeys(prompting.steer or HYPOTHESES))
    unsteered: list[Steer] = [""]
    prompts = []
    for name, way in product(tasks, prompting.interventions):
        for steer, seed in product(unsteered if way == "none" else steers, range(prompting.seeds)):
            title = f"{name}, {way}{f' to {steer}' if steer else ''}, set {seed + 1}"
            shown = steer or "h1"
            try:
                style = style_of(way, wordings[name], shown, tasks[name].classes)
                shots = draw_shots(
                    tasks[name],
                    shots=prompting.shots,
                    seed=seed,
                    intervention=way,
                    steer=shown,
                    parity=prompting.parity,
                )
            except ValueError as error:
                raise ValueError(f"{title}: {error}") from None
            if len(shots) < prompting.shots:
                log.warning("%s: %d demonstrations in place of %d", title, len(shots), prompting.shots)
            prompts.append(FewShot(style, shots, title, name, way, steer, seed))
    return prompts


def explained_label(text: str, classes: int = 2) -> int | None:
    """The label that an explanation ends in: what follows the last "answer is " without punctuation and
    articles; None where that is no class.

    >>> explained_label("It shouts, so the answer is 1."), explained_label("The answer is the RED one.")
    (1, None)
    """
    _, found, rest = text.rpartition(ANSWER)
    words = _ARTICLES.sub(" ", "".join(c for c in rest.lower() if c not in string.punctuation)).split()
    labels = {digit: label for label, digit in enumerate(digits(classes))}
    return labels.get(" ".join(words)) if found else None
