"""The trials of the confusion probes: how questions are changed.

Shape letters: N questions, P targets (questions that a trial changes).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from typing import NamedTuple

import numpy as np

from data_modules.choices.benchmarks import choice_of
from data_modules.choices.probes import (
    Probe,
    Sampling,
    choice_paralysis,
    draw_instances,
    no_question,
    no_right_answer,
    with_strangers,
    wrong_question,
)
from data_modules.schema import ChoiceQuestion
from evaluation.answering.interface import Answerer
from storage.errors import DataError
from storage.finished_work import FinishedWork, work_key
from storage.json_files import field, plain_json


@dataclass(frozen=True)
class Plan:
    """What is asked of every model."""

    probes: tuple[Probe, ...]
    trials: int
    seed: int
    """Of the first trial; each later one adds 1."""
    no_shared_words: bool
    choices: tuple[int, ...]
    sampling: tuple[Sampling, ...]
    similar_by: str
    instances: int
    drawn_only: bool = False
    """Whether every probe, and the originals, have the drawn instances only."""

    @property
    def seeds(self) -> range:
        """The seed of each trial."""
        return range(self.seed, self.seed + self.trials)

    @property
    def embeds(self) -> bool:
        """Whether similarities of texts are needed."""
        return "choice_paralysis" in self.probes and "heuristic" in self.sampling


class Trial(NamedTuple):
    """One trial of one probe; of probe `original` the questions as they are."""

    probe: str
    number: int
    targets: list[int]
    """Indices of the originals (P)."""
    questions: list[ChoiceQuestion]
    """Their changed versions (P)."""
    sampling: str = ""
    n_choices: int = 0
    """Of choice paralysis; 0 of the other probes."""

    @property
    def cell(self) -> dict[str, str]:
        """The place of its numbers in the long table."""
        paralysis = {"sampling": self.sampling, "n_choices": str(self.n_choices)}
        return {"probe": self.probe, **(paralysis if self.n_choices else {})}

    @property
    def title(self) -> str:
        """For progress bars."""
        kind = f" ({self.sampling}, {self.n_choices} choices)" if self.n_choices else ""
        return f"{self.probe.replace('_', ' ')}{kind}, trial {self.number + 1}"


def fixed_trials(questions: Sequence[ChoiceQuestion], plan: Plan) -> list[Trial]:
    """The originals, and every trial that depends on no model.

    Raises:
        DataError: the questions do not suffice, be it for heuristic sampling alone: fewer than two, or with
            different numbers of choices.
    """
    if len(questions) < 2:
        raise DataError(f"{len(questions)} question(s); probes need at least 2, to borrow texts from")
    first = questions[0]
    for question in questions:
        if len(question.choices) != len(first.choices):
            raise DataError(
                f"question {question.id} has {len(question.choices)} choices, {first.id} has "
                f"{len(first.choices)}; probe questions of one kind at a time"
            )
    everyone = list(range(len(questions)))
    drawn = [draw_instances(questions, seed, plan.instances) for seed in plan.seeds]
    whole = drawn if plan.drawn_only else [everyone]
    trials = [
        Trial("original", number, targets, [questions[i] for i in targets])
        for number, targets in enumerate(whole)
    ]
    if "no_question" in plan.probes:
        for number, targets in enumerate(whole):
            changed = no_question(questions[i] for i in targets)
            trials.append(Trial("no_question", number, targets, changed))
    replacing: tuple[tuple[Probe, Callable[..., list[ChoiceQuestion]]], ...] = (
        ("wrong_question", wrong_question),
        ("no_right_answer", no_right_answer),
    )
    for probe, change in replacing:
        if probe not in plan.probes:
            continue
        able = strangers_of(questions, probe) if plan.no_shared_words else everyone
        for number, seed in enumerate(plan.seeds):
            targets = sorted({*able}.intersection(drawn[number])) if plan.drawn_only else able
            if not targets:
                raise DataError(
                    f"--no-shared-words: none of the questions drawn in trial {number + 1} has one"
                )
            changed = change(questions, seed, plan.no_shared_words, targets=targets)
            trials.append(Trial(probe, number, targets, changed))
    if "choice_paralysis" in plan.probes:
        paralysis = []
        for n, (number, seed) in product(plan.choices, enumerate(plan.seeds)):
            changed = choice_paralysis(questions, seed, n, targets=drawn[number])
            paralysis.append(Trial("choice_paralysis", number, drawn[number], changed, "random", n))
        trials += paralysis if "random" in plan.sampling else []
    return trials


def strangers_of(questions: Sequence[ChoiceQuestion], probe: Probe) -> list[int]:
    """Who has something without a word in common to put in; DataError where nobody has."""
    if targets := with_strangers(questions, probe):
        return targets
    what = "prompt" if probe == "wrong_question" else "right choice"
    raise DataError(f"--no-shared-words: every {what} has a word in common with every other one")


def similar_trials(
    questions: Sequence[ChoiceQuestion], plan: Plan, encoder: Answerer, work: FinishedWork
) -> list[Trial]:
    """The trials of heuristic choice paralysis; texts are embedded only if a trial is not in `work`.

    Args:
        questions: the originals.
        plan: how many choices, trials and instances.
        encoder: whose embeddings tell what is similar.
        work: keeps the changed questions.
    """
    prompts = [question.prompt for question in questions]
    right = [question.choices[question.label] for question in questions]
    vectors: list[np.ndarray] = []
    trials = []
    for n, (number, seed) in product(plan.choices, enumerate(plan.seeds)):
        targets = draw_instances(questions, seed, plan.instances)
        key = work_key(
            what="heuristic",
            encoder=encoder.identity,
            texts=[prompts, right],
            ids=[questions[i].id for i in targets],
            by=plan.similar_by,
            n=n,
            seed=seed,
            benchmark=questions[0].benchmark,
            targets=targets,
        )
        if not (record := work.get(key)):
            if not vectors:
                vectors.append(encoder.embeddings(prompts))
                vectors.append(vectors[0] if plan.similar_by == "prompts" else encoder.embeddings(right))
            similar_PN = vectors[0][targets] @ vectors[1].T
            changed = choice_paralysis(questions, seed, n, "heuristic", similar_PN, targets=targets)
            record = work.add(key, examples=plain_json([asdict(question) for question in changed]))
        where = f"{work.path}"
        kept = [choice_of(row, where) for row in field(record, "examples", list, where)]
        if len(kept) != len(targets):
            raise DataError(f"{where}: a record holds {len(kept)} questions, not {len(targets)}; remove it")
        trials.append(Trial("choice_paralysis", number, targets, kept, "heuristic", n))
    return trials
