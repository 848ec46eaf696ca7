"""The trials of the confusion probes: which questions are changed, and how (Shen and Kejriwal 2022,
section 2.3).

Shape letters: N questions, D hidden.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple, get_args

import numpy as np

from interventune.data_modules.schema.questions import ChoiceQuestion
from interventune.data_modules.tasks.confusion_probes import (
    Probe,
    choice_paralysis,
    draw_instances,
    no_question,
    no_right_answer,
    wrong_question,
)
from interventune.storage.command_line import AtLeast, Count, Source
from interventune.storage.errors import DataError

Sampling = Literal["random", "heuristic"]
DRAWN = 50
"""Questions in a trial of choice paralysis, as in the paper (section 2.3)."""


@dataclass(frozen=True)
class Probing:
    """Data and probes

    Args:
        input: multiple-choice questions: a file of a benchmark or of rows (FILE+LABELS if the
            labels are in another file), hub:NAME:SPLIT, or stories:choices_dev.
        limit: use only the first N questions; 0: all.
        probes: which probes (default: all).
        trials: trials of each probe that draws random texts.
        seed: seed of the first trial; each later one adds 1.
        choices: choice paralysis: numbers of choices (default: 5 10 15).
        sampling: choice paralysis: take wrong choices from random questions, or (heuristic) from
            those with the most similar prompts (default: both).
        encoder: heuristic sampling: the model whose sentence embeddings measure similarity: a .ckpt
            of multiple_choice, a Hugging Face folder or a Hub name (default: the evaluated model).
        instances: draw N questions in each trial, for all probes, as the paper does with UnifiedQA
            (default: all questions; for choice paralysis 50).
    """

    input: Source
    limit: Annotated[int, AtLeast(0)] = 0
    probes: list[Probe] | None = None
    trials: Count = 5
    seed: Annotated[int, AtLeast(0)] = 0
    choices: list[Annotated[int, AtLeast(2)]] | None = None
    sampling: list[Sampling] | None = None
    encoder: Source | None = None
    instances: Annotated[int, AtLeast(2)] | None = None

    def asks(self, probe: str) -> bool:
        """Whether a probe is requested."""
        return probe in (self.probes or get_args(Probe))

    @property
    def samplings(self) -> Sequence[Sampling]:
        """The requested samplings of choice paralysis."""
        return (self.sampling or get_args(Sampling)) if self.asks("choice_paralysis") else ()

    def drawn(self, questions: Sequence[ChoiceQuestion]) -> list[tuple[int, list[int]]]:
        """Return the seed of each trial, and its questions."""
        seeds = range(self.seed, self.seed + self.trials)
        return [(seed, draw_instances(questions, seed, self.instances or DRAWN)) for seed in seeds]


class Trial(NamedTuple):
    """One trial of one probe; for the probe `original`, the questions are unchanged."""

    probe: str
    number: int
    targets: Sequence[int]
    """Indices of the originals."""
    questions: list[ChoiceQuestion]
    """Their changed versions."""
    sampling: str = ""
    n_choices: str = ""
    """Number of choices in choice paralysis."""


def fixed_trials(questions: Sequence[ChoiceQuestion], probing: Probing) -> list[Trial]:
    """Return the originals, then every trial that depends on no model. DataError: questions have
    different numbers of choices, or there are too few to take texts from.
    """
    for question in questions:
        if len(question.choices) != len(questions[0].choices):
            raise DataError(
                f"{probing.input}: question {question.id} has {len(question.choices)} choices, "
                f"{questions[0].id} has {len(questions[0].choices)}; probe questions of one kind "
                "at a time"
            )
    changes = {"wrong_question": wrong_question, "no_right_answer": no_right_answer}
    trials = []
    for number, (seed, drawn) in enumerate(probing.drawn(questions)):
        targets = drawn if probing.instances else range(len(questions))
        if number == 0 or probing.instances:
            originals = [questions[i] for i in targets]
            trials.append(Trial("original", number, targets, originals))
            if probing.asks("no_question"):
                trials.append(Trial("no_question", number, targets, no_question(originals)))
        for probe, change in changes.items():
            if probing.asks(probe):
                trials.append(Trial(probe, number, targets, change(questions, seed, targets)))
    if "random" in probing.samplings:
        trials += paralysis_trials(questions, probing)
    return trials


def paralysis_trials(
    questions: Sequence[ChoiceQuestion],
    probing: Probing,
    embed: Callable[[list[str]], Any] | None = None,
) -> list[Trial]:
    """Return the trials of choice paralysis: with random sampling or, given a function that embeds
    prompts as (N, D), with heuristic sampling.
    """
    vectors_ND = np.asarray(embed([q.prompt for q in questions])) if embed else None
    sampling: Sampling = "heuristic" if embed else "random"
    trials = []
    for n in sorted({*(probing.choices or (5, 10, 15))}):
        for number, (seed, drawn) in enumerate(probing.drawn(questions)):
            similarity = None if vectors_ND is None else vectors_ND[drawn] @ vectors_ND.T
            changed = choice_paralysis(questions, seed, drawn, n, similarity)
            trials.append(Trial("choice_paralysis", number, drawn, changed, sampling, str(n)))
    return trials
