"""The work behind the confusion protocol: which questions are changed how, and what a model makes of them.

Logits are kept a chunk of questions at a time (`storage.finished_work`), so that an interrupted run goes
on and repeats nothing.

Shape letters: N questions, C choices, P targets (questions that a trial changes), D hidden.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np

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
from data_modules.choices.rows import choice_of
from data_modules.schema import ChoiceQuestion
from evaluation.answering.choice_answerers import ChoiceAnswerer
from evaluation.old_report import plain_json
from storage.errors import DataError
from storage.finished_work import FinishedWork, work_key
from storage.json_files import field as json_field

CHUNK = 256
"""Questions whose logits are kept at once: what an interruption costs at most."""

SimilarBy = Literal["prompts", "choices"]
Embed = Callable[[Sequence[str]], np.ndarray]


@dataclass(frozen=True)
class Plan:
    """What is asked of every model."""

    probes: tuple[Probe, ...]
    trials: int
    seed: int
    no_shared_words: bool = False
    choices: tuple[int, ...] = (5, 10, 15)
    sampling: tuple[Sampling, ...] = ("random", "heuristic")
    similar_by: SimilarBy = "prompts"
    instances: int = 50

    @property
    def heuristic(self) -> bool:
        """Whether similarities are needed."""
        return "choice_paralysis" in self.probes and "heuristic" in self.sampling


@dataclass(frozen=True)
class Condition:
    """One trial of one probe: the changed questions."""

    probe: Probe
    trial: int
    targets: list[int]
    """Indices of their originals (P)."""
    examples: list[ChoiceQuestion]
    sampling: str = ""
    n: int = 0
    """Choices of choice paralysis."""

    def told(self) -> str:
        """For progress bars."""
        kind = f" ({self.sampling}, {self.n} choices)" if self.n else ""
        return f"{self.probe.replace('_', ' ')}{kind}, trial {self.trial + 1}"


@dataclass(frozen=True)
class ModelRun:
    """What one model made of all questions."""

    name: str
    original_NC: np.ndarray
    """Logits of the originals, float32."""
    conditions: list[Condition]
    logits: list[np.ndarray] = field(default_factory=list)
    """Logits (P, C) of every condition."""

    def of(self, probe: Probe, sampling: str = "", n: int = 0) -> Iterator[tuple[Condition, np.ndarray]]:
        """The trials of one probe with their logits."""
        for condition, logit_PC in zip(self.conditions, self.logits, strict=True):
            if (condition.probe, condition.sampling, condition.n) == (probe, sampling, n):
                yield condition, logit_PC


def check_questions(examples: Sequence[ChoiceQuestion], source: str) -> None:
    """DataError unless there are at least two questions, all with the same number of choices."""
    if len(examples) < 2:
        raise DataError(
            f"{source}: {len(examples)} question(s); probes need at least 2, to borrow texts from"
        )
    first = examples[0]
    for example in examples:
        if len(example.choices) != len(first.choices):
            raise DataError(
                f"{source}: question {example.id} has {len(example.choices)} choices, {first.id} has "
                f"{len(first.choices)}; probe questions of one kind at a time"
            )


def fixed_conditions(examples: Sequence[ChoiceQuestion], plan: Plan) -> list[Condition]:
    """Every trial that depends on no model, before any model is loaded.

    Raises:
        DataError: the questions do not suffice, for heuristic sampling neither.
    """
    everyone = list(range(len(examples)))
    found: list[Condition] = []
    for probe in plan.probes:
        targets = everyone
        if probe == "no_question":
            found.append(Condition(probe, 0, everyone, no_question(examples)))
        elif probe == "wrong_question":
            if plan.no_shared_words and not (targets := with_strangers(examples)):
                raise DataError("--no-shared-words: every prompt has a word in common with every other one")
            for trial, seed in _trials(plan):
                changed = wrong_question(examples, seed, plan.no_shared_words, targets=targets)
                found.append(Condition(probe, trial, targets, changed))
        elif probe == "no_right_answer":
            for trial, seed in _trials(plan):
                found.append(Condition(probe, trial, everyone, no_right_answer(examples, seed)))
        else:
            drawn = list(random_paralysis(examples, plan))
            found += drawn if "random" in plan.sampling else []
    return found


def random_paralysis(examples: Sequence[ChoiceQuestion], plan: Plan) -> Iterator[Condition]:
    """The trials of random choice paralysis."""
    for n in plan.choices:
        for trial, seed in _trials(plan):
            targets = draw_instances(examples, seed, plan.instances)
            changed = choice_paralysis(examples, seed, n, targets=targets)
            yield Condition("choice_paralysis", trial, targets, changed, "random", n)


def heuristic_paralysis(
    examples: Sequence[ChoiceQuestion], plan: Plan, encoder: Any, embed: Embed, work: FinishedWork
) -> list[Condition]:
    """The trials of heuristic choice paralysis; texts are embedded only if some trial is not in `work`.

    Args:
        examples: the originals.
        plan: how many choices, trials and instances.
        encoder: all that embeddings depend on, as plain JSON values.
        embed: texts to vectors of length 1, (texts, D).
        work: keeps the changed questions.
    """
    prompts = [example.prompt for example in examples]
    right = [example.choices[example.label] for example in examples]
    vectors: list[np.ndarray] = []
    found = []
    for n in plan.choices:
        for trial, seed in _trials(plan):
            targets = draw_instances(examples, seed, plan.instances)
            key = work_key(
                what="heuristic",
                encoder=encoder,
                texts=[prompts, right],
                ids=[examples[i].id for i in targets],
                by=plan.similar_by,
                n=n,
                seed=seed,
                benchmark=examples[0].benchmark,
                targets=targets,
            )
            if not (record := work.get(key)):
                if not vectors:
                    vectors.append(embed(prompts))
                    vectors.append(vectors[0] if plan.similar_by == "prompts" else embed(right))
                similar_PN = vectors[0][targets] @ vectors[1].T
                changed = choice_paralysis(examples, seed, n, "heuristic", similar_PN, targets=targets)
                record = work.add(key, examples=[plain_json(asdict(example)) for example in changed])
            kept = _kept_examples(record, len(targets), f"{work.path}")
            found.append(Condition("choice_paralysis", trial, targets, kept, "heuristic", n))
    return found


def _kept_examples(record: dict[str, Any], count: int, where: str) -> list[ChoiceQuestion]:
    """The changed questions of a record; DataError where it holds none, or not as many."""
    kept = [choice_of(row, where) for row in json_field(record, "examples", list, where)]
    if len(kept) != count:
        raise DataError(f"{where}: a record holds {len(kept)} questions, where {count} were drawn; remove it")
    return kept


def finished_logits(
    answerer: ChoiceAnswerer, examples: Sequence[ChoiceQuestion], work: FinishedWork, what: str
) -> np.ndarray:
    """Logits (N, C) float32 of questions with equally many choices, from finished work where they are there.

    Raises:
        ValueError: the model gives no finite number.
    """
    rows: list[list[float]] = []
    chunks = range(0, len(examples), CHUNK)
    for number, start in enumerate(chunks, 1):
        part = examples[start : start + CHUNK]
        texts = [[example.prompt, *example.choices] for example in part]
        key = work_key(what="logits", model=answerer.identity, questions=texts)
        if not (record := work.get(key)):
            name = f"{what} ({number} of {len(chunks)})" if len(chunks) > 1 else what
            found = [np.asarray(logit_C, dtype=np.float32) for logit_C in answerer.logits(part, name)]
            for example, logit_C in zip(part, found, strict=True):
                if not np.isfinite(logit_C).all():
                    raise ValueError(f"{what}: question {example.id} got a logit that is no finite number")
            record = work.add(key, logits=[logit_C.tolist() for logit_C in found])
        rows += work.array(record, "logits", len(part), len(part[0].choices)).tolist()
    return np.array(rows, dtype=np.float32)


def run_model(
    name: str,
    answerer: ChoiceAnswerer,
    examples: Sequence[ChoiceQuestion],
    conditions: Sequence[Condition],
    work: FinishedWork,
) -> ModelRun:
    """Logits of the originals and of every condition."""
    run = ModelRun(name, finished_logits(answerer, examples, work, f"{name}: originals"), list(conditions))
    for condition in conditions:
        run.logits.append(finished_logits(answerer, condition.examples, work, f"{name}: {condition.told()}"))
    return run


def _trials(plan: Plan) -> list[tuple[int, int]]:
    """Number and seed of each trial."""
    return [(trial, plan.seed + trial) for trial in range(plan.trials)]
