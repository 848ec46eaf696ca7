"""Few-shot prompts of the feature-bias protocol: demonstrations, a text, a key, and no answer.

As in the authors' code, byte for byte. The four interventions (Si et al. 2023, section 5.1)
indicate the intended feature: label words with a key (verbalizer), a sentence before everything
(instruction), reasons instead of labels (explanation), and demonstrations of the disambiguating
cells (disambiguation).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import product, starmap
from pathlib import Path
from random import Random
from typing import Annotated, Literal, NamedTuple

from interventune.data_modules.tasks.feature_bias import DIFFERING, FeatureTask, TaskExample
from interventune.data_modules.tasks.features import (
    HYPOTHESES,
    Hypothesis,
    Wording,
    Wordings,
    wordings_of,
)
from interventune.storage.command_line import AtLeast, Count, Input
from interventune.storage.documents import as_data_error, load_json

Intervention = Literal["verbalizer", "instruction", "explanation", "disambiguation"]
NONE = "none"
"""Name of prompts without an intervention."""
KEY = "Category:"
"""The text before a label, with no space between."""
DIGITS = ("0", "1")
"""The label words of the baseline."""
CONTENT_FREE = ("[MASK]", "N/A", "")
"""Texts without content, for calibration."""
ORDER_SEED = 2022
"""Seed of the authors' order of demonstrations."""


class Way(NamedTuple):
    """How prompts show which feature is meant."""

    intervention: str = NONE
    steer: Hypothesis = "h1"

    def __str__(self) -> str:
        return NONE if self.intervention == NONE else f"{self.intervention} to {self.steer}"


@dataclass(frozen=True)
class Prompting:
    """prompts of language models

    Args:
        intervention: also use prompts that show, in these ways, which feature is meant.
        steer: the feature that interventions point to: the label (h1) or the other one (h2)
            (default: each in turn).
        wording: JSON file with keys, label words, instructions and explanations.
        shots: demonstrations in a prompt.
        seeds: number of random sets of demonstrations.
        parity: follow the authors' code: take demonstrations from positions 0, 10, ... of one fixed
            order, and label words only from the five most probable tokens.
        max_new_tokens: maximum length of an explanation; a label takes one token.
    """

    intervention: list[Intervention] | None = None
    steer: list[Hypothesis] | None = None
    wording: Annotated[Path, Input("FILE")] | None = None
    shots: Annotated[int, AtLeast(2)] = 16
    seeds: Count = 3
    parity: bool = False
    max_new_tokens: Count = 32

    @property
    def ways(self) -> list[Way]:
        """No intervention, then each toward each feature."""
        interventions = dict.fromkeys(self.intervention or ())
        steers = dict.fromkeys(self.steer or HYPOTHESES)
        return [Way(), *starmap(Way, product(interventions, steers))]


@dataclass(frozen=True)
class FewShot:
    """Prompts with the same demonstrations.

    Args:
        task: name of the task.
        intervention: "none", or the intervention and the feature, such as "verbalizer to h1".
        seed: number of the set of demonstrations.
        demonstrations: their texts, which are not tested.
        head: everything before the tested text.
        key: the text after it.
        words: label words of 0 and 1; None for explanations.
    """

    task: str
    intervention: str
    seed: int
    demonstrations: tuple[TaskExample, ...]
    head: str
    key: str
    words: tuple[str, ...] | None

    def prompt(self, text: str) -> str:
        """Return the prompt of a text."""
        return self.head + unanswered(text, self.key)

    def tested(self, examples: Iterable[TaskExample]) -> list[TaskExample]:
        """Leave out examples whose text is a demonstration (the authors skip them and do not count
        them).
        """
        shown = {example.question.strip() for example in self.demonstrations}
        return [example for example in examples if example.question.strip() not in shown]


def few_shots(tasks: Mapping[str, FeatureTask], prompting: Prompting) -> list[FewShot]:
    """Return the prompts of every task, intervention, steered feature and set of demonstrations, in
    the order of use: those without an intervention first. DataError: demonstrations or a wording
    are missing.
    """
    own = load_json(prompting.wording, Wordings) if prompting.wording else {}
    prompts = []
    for name, task in tasks.items():
        wordings = wordings_of(name, task.features, own)
        for way, seed in product(prompting.ways, range(prompting.seeds)):
            with as_data_error(f"{name}, {way}"):
                head, key, answers = worded(way.intervention, wordings[way.steer])
                shots = draw_shots(task, prompting, way, seed)
            for example, label in shots:
                head += f"{unanswered(example.question, key)}{answers[label].strip()}\n\n"
            words = None if way.intervention == "explanation" else answers
            examples = tuple(example for example, _ in shots)
            prompts.append(FewShot(name, str(way), seed, examples, head, key, words))
    return prompts


def worded(intervention: str, wording: Wording) -> tuple[str, str, tuple[str, ...]]:
    """Return the text before the demonstrations, the key, and the answers in demonstrations of 0
    and of 1. ValueError: there is no wording.
    """
    if intervention in (NONE, "disambiguation"):
        return "", KEY, DIGITS
    if intervention == "verbalizer" and wording.key:
        return "", wording.key, wording.words
    if intervention == "instruction" and wording.instructed:
        return f"{wording.instructed}\n\n", KEY, DIGITS
    if intervention == "explanation" and wording.explained:
        return "", KEY, wording.explained
    raise ValueError("we have no wording of this feature; give yours in a file by --wording")


def draw_shots(
    task: FeatureTask, prompting: Prompting, way: Way, seed: int
) -> list[tuple[TaskExample, int]]:
    """Draw demonstrations with their displayed labels, in the order of the prompt, equally many
    from each cell.

    By default, the seed decides which they are and their order. With `parity`, as in the authors'
    code: the next ones from position 10 x seed on, fewer at the end of a cell, in one order for all
    seeds. ValueError: shots cannot be divided among the cells, or a cell has too few (with parity:
    all have none).
    """
    pools = task.demos
    if way.intervention == "disambiguation":
        pools |= {cell: task.tests[cell] for cell in DIFFERING}
    count, over = divmod(prompting.shots, len(pools))
    if over:
        raise ValueError(
            f"--shots {prompting.shots}: must be a multiple of {len(pools)}, the number of cells"
        )
    rng = Random(f"feature-bias/{task.dataset}/shots/{seed}")
    drawn: list[tuple[TaskExample, int]] = []
    for cell, pool in pools.items():
        if not prompting.parity and len(pool) < count:
            raise ValueError(
                f"cell {cell} has {len(pool)} demonstrations, and {count} are needed; lower "
                "--shots, or take --parity, which goes on with fewer"
            )
        part = pool[10 * seed : 10 * seed + count] if prompting.parity else rng.sample(pool, count)
        # Demonstrations show the intended feature, wherever the two differ.
        label = int(cell[0 if way.steer == "h1" else 2])
        drawn += [(example, label) for example in part]
    if not drawn:
        raise ValueError(f"no demonstration is left from position {10 * seed} on; lower --seeds")
    (Random(ORDER_SEED) if prompting.parity else rng).shuffle(drawn)
    return drawn


def unanswered(text: str, key: str) -> str:
    """Join a text with its key.

    >>> unanswered(" a b ", "Category:")
    'a b\\n\\nCategory:'
    """
    return f"{text.strip()}\n\n{key}"
