"""A multiple-choice model's beliefs before it reads the question, and its accuracy among many
choices: which questions are changed, and how (Shen and Kejriwal 2022, section 2.3).

Shape letters: N questions, D hidden, P targets of a trial, C choices.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, Literal, NamedTuple, get_args

import numpy as np

from interventune.data_modules.schema.questions import ChoiceQuestion
from interventune.data_modules.tasks.confusion_probes import (
    OtherText,
    Probe,
    choice_paralysis,
    draw_instances,
    irregularities,
    no_question,
    with_other_text,
)
from interventune.evaluation.answering.interface import (
    KINDS,
    Answerer,
    Choosing,
    kind_of,
    open_answerer,
)
from interventune.evaluation.answering.sources import named_models
from interventune.evaluation.protocol import Evaluation, Row
from interventune.storage.command_line import AtLeast, Count, CountOrZero, Named, Source
from interventune.storage.documents import DataError

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
    limit: CountOrZero = 0
    probes: list[Probe] | None = None
    trials: Count = 5
    seed: CountOrZero = 0
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
    trials = []
    for number, (seed, drawn) in enumerate(probing.drawn(questions)):
        targets = drawn if probing.instances else range(len(questions))
        if number == 0 or probing.instances:
            originals = [questions[i] for i in targets]
            trials.append(Trial("original", number, targets, originals))
            if probing.asks("no_question"):
                trials.append(Trial("no_question", number, targets, no_question(originals)))
        for probe in get_args(OtherText):
            if probing.asks(probe):
                changed = with_other_text(questions, probe, seed, targets)
                trials.append(Trial(probe, number, targets, changed))
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


def answer_rows(
    answerer: Answerer, questions: Sequence[ChoiceQuestion], trials: Sequence[Trial]
) -> Iterator[Row]:
    """Yield a row for every answer: its cell, the question and the pick, and its numbers.

    Args:
        answerer: the model that chooses.
        questions: the originals.
        trials: originals before their changed versions, no_question before wrong_question.
    """
    from scipy.special import softmax

    from interventune.metrics import confusion as metrics

    from .measures import BIASED

    label_N = np.array([question.label for question in questions])
    original_NC = np.full((len(questions), len(questions[0].choices)), np.nan)
    no_question_N = np.full(len(questions), np.nan)
    for trial in trials:
        at = np.array(trial.targets)
        cell = " ".join(filter(None, (trial.probe, trial.sampling, trial.n_choices)))
        logits = answerer.choice_logits(trial.questions, f"{cell}, trial {trial.number + 1}")
        confidence_PC = softmax(np.stack([*logits]).astype(np.float64), axis=1)
        slot_P = np.array([question.label for question in trial.questions])
        rank_P = metrics.ranks(confidence_PC, slot_P)
        own_P = metrics.at_label(confidence_PC, slot_P)
        right = "pseudo_accuracy" if trial.probe in BIASED else "accuracy"
        numbers = {right: rank_P == 0, "confidence": own_P, "rank": rank_P}
        if trial.probe == "original":
            original_NC[at] = confidence_PC
        else:
            before_PC = original_NC[at]
            label_P = label_N[at]
            numbers["accuracy_before"] = metrics.ranks(before_PC, label_P) == 0
            numbers["confidence_before"] = metrics.at_label(before_PC, label_P)
        if trial.probe in BIASED:
            numbers["variance"] = confidence_PC.var(1)  # Definition 1, prior bias
            if trial.number == 0:
                numbers |= metrics.maxprob(before_PC, confidence_PC)
        if trial.probe == "no_question":
            no_question_N[at] = own_P
        elif trial.probe == "wrong_question":
            numbers["confidence_difference"] = no_question_N[at] - own_P
        elif trial.probe == "no_right_answer":
            numbers["anc_post_minus_sac"] = metrics.others_less_own(confidence_PC, label_P)
            numbers["anc_minus_rac"] = metrics.others_less_own(before_PC, label_P)
        elif trial.probe == "choice_paralysis":
            numbers["paralysis"] = numbers["confidence_before"] - own_P  # Definition 2
        for p, question in enumerate(trial.questions):
            values = ((name, float(value_P[p])) for name, value_P in numbers.items())
            yield {
                "probe": trial.probe,
                "sampling": trial.sampling,
                "n_choices": trial.n_choices,
                "trial": trial.number,
                "index": int(at[p]),
                "id": question.id,
                "prompt": question.prompt,
                "choices": question.choices,
                "label": question.label,
                "donors": question.donors,
                "pick": int(confidence_PC[p].argmax()),
                "confidences": confidence_PC[p].tolist(),
                **{name: value for name, value in values if np.isfinite(value)},
            }


def evaluate(*, checkpoint: list[Named], probing: Probing, asking: Choosing) -> Evaluation:
    """Measure how a model chooses without the question, without the right choice, and among many
    choices.

    Example: interventune evaluate confusion --checkpoint A.ckpt --input piqa.jsonl \\
        --output report

    Args:
        checkpoint: a .ckpt of experiment multiple_choice or of a decoder, a Hugging Face folder or
            Hub name (an encoder gets a random head), or a language model (hf:PATH, or
            openai:MODEL[@URL] with --tokenizer or --choice-prompt letters).
        probing: data and probes.
        asking: model options.
    """
    from interventune.data_modules.sources import read_choices

    from .measures import CONFUSION, tests_and_hits

    models = named_models(checkpoint)
    heuristic = "heuristic" in probing.samplings
    own = heuristic and not probing.encoder
    for _, path, *_ in models if own else ():
        if "embeddings" not in KINDS[kind_of(path)].abilities:
            raise ValueError(f"{path}: gives no embeddings; add --encoder, or --sampling random")
    questions = read_choices(probing.input)[: probing.limit or None]
    trials = fixed_trials(questions, probing)
    if heuristic and probing.encoder:
        encoder = open_answerer(probing.encoder, asking, need="embeddings")
        trials += paralysis_trials(questions, probing, encoder.embeddings)
        del encoder  # before the evaluated models are opened

    def rows(answerer: Answerer) -> Iterator[Row]:
        similar = paralysis_trials(questions, probing, answerer.embeddings) if own else []
        return answer_rows(answerer, questions, trials + similar)

    count = len(questions[0].choices)
    note = (
        f"{len(questions)} questions with {count} choices: guessing is right in {1 / count:.3f} of "
        "them. " + irregularities(questions)
    )
    protocol = replace(CONFUSION, notes=[note], also=[partial(tests_and_hits, chance=1 / count)])
    return protocol.run(rows, models, asking, need="choices")
