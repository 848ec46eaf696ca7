"""Bias of checkpoints: predict every data set with every checkpoint, then evaluate as any prediction."""

from __future__ import annotations

import argparse
import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.stats import rankdata
from torch import Tensor

from data_modules.groups.advice import with_unadvised
from data_modules.groups.planting import Scope, latent_strength
from data_modules.schema import ADVICE_CLASSES, ANSWER_TYPES, AdviceClass, Group, QAExample
from data_modules.sources import read_groups, read_qa
from evaluation.answering.answerers import Answerer, open_answerer
from evaluation.answering.predictor import Predictor
from evaluation.answering.prompting import PromptedModel
from evaluation.protocols.bias.results import BiasEvaluation, GroupTable, class_prefix, evaluate_bias
from metrics.answers import AnswerResult, AnswerScores, scoring_of
from metrics.bias.planted import planted_correlation
from metrics.bias.sums import BiasSums, accumulate, aggregate, empty_sums, sums_by_category
from storage.errors import DataError

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class CheckpointResults:
    """What the checkpoints gave, in the order of the command line."""

    evaluations: list[BiasEvaluation]
    answers: dict[str, AnswerResult]
    """EM and F1 by checkpoint; empty without `--qa`."""
    planted: dict[str, dict[AdviceClass, float]]
    """By evaluation and class: Spearman's rho of gamma with the planted strength; empty without a seed."""


def evaluate_checkpoints(
    checkpoints: Sequence[tuple[str, str]], data: Sequence[tuple[str, str]], args: argparse.Namespace
) -> CheckpointResults:
    """Every checkpoint on every data set; an evaluation's name holds what tells it from the others."""
    refuse_endpoints(checkpoints)
    sets = [
        (name, load_groups(path, watch_unadvised=not args.advised_only, skip_bad=args.skip_bad))
        for name, path in data
    ]
    questions = list(read_qa(args.qa, skip_bad=args.skip_bad)) if args.qa else []
    tables = [GroupTable.of(groups) for _, groups in sets]
    evaluations: dict[tuple[int, int], BiasEvaluation] = {}
    answers: dict[str, AnswerResult] = {}
    planted: dict[str, dict[AdviceClass, float]] = {}
    for c, (run, path) in enumerate(checkpoints):
        model = open_answerer(path, args)
        if questions:
            answers[run] = answer_scores(model, questions, run)
        for d, (name, groups) in enumerate(sets):
            score_NVS = subject_scores(model, groups, f"scoring {name} with {run}")
            evaluation = evaluate_bias(run, tables[d], score_NVS, data=name if len(data) > 1 else "")
            evaluations[d, c] = evaluation
            if args.planted_seed is not None:
                planted[evaluation.name] = planted_ranks(
                    evaluation, groups, args.planted_seed, args.planted_scope
                )
    return CheckpointResults([evaluations[key] for key in sorted(evaluations)], answers, planted)


def load_groups(source: str, *, watch_unadvised: bool, skip_bad: bool) -> list[Group]:
    """The groups of a source, and, unless it has unadvised ones, the same without advice as class `none`."""
    groups = list(read_groups(source, skip_bad=skip_bad))
    if not groups:
        raise DataError(f"{source}: holds no groups")
    return with_unadvised(groups) if watch_unadvised else groups


def refuse_endpoints(checkpoints: Sequence[tuple[str, str]]) -> None:
    """ValueError for a model that only writes text."""
    for _, path in checkpoints:
        if path.startswith("openai:"):
            raise ValueError(
                f"{path}: bias needs the likelihood of given texts, which endpoints do not tell; "
                "name a local model (hf:FOLDER_OR_HUB_NAME) or a checkpoint"
            )


def subject_scores(model: Answerer, groups: Sequence[Group], what: str) -> Tensor:
    """S of both subjects in every variant: (N, 4, 2) float64."""
    if isinstance(model, PromptedModel):
        return model.group_scores(groups, what)
    assert isinstance(model, Predictor)
    return model.group_log_probs(groups, what).double().mean(-1).exp()


def answer_scores(model: Answerer, questions: Sequence[QAExample], run: str) -> AnswerResult:
    """EM and F1 of a checkpoint on ordinary questions; a failure is no answer, and told in a warning."""
    metric, failures = AnswerScores(ANSWER_TYPES), Counter[str]()
    for answer in model.said(questions, f"answering with {run}"):
        if answer.failure:
            failures[answer.failure] += 1
        else:
            question = questions[answer.example]
            kind = ANSWER_TYPES.index(question.answer_type)
            metric.update([answer.text], [question.gold], [kind], scoring_of(question.dataset))
    if failures:
        told = ", ".join(f"{count} {reason}" for reason, count in failures.most_common())
        log.warning(
            "%s: %d of %d questions without an answer (%s)", run, failures.total(), len(questions), told
        )
    return metric.compute()


def planted_ranks(
    evaluation: BiasEvaluation, groups: Sequence[Group], seed: int, scope: Scope
) -> dict[AdviceClass, float]:
    """Per class of advice: Spearman's rho between gamma(subject, category) and the subject's planted rank.

    Ranks are those within a category, since gamma compares a subject with its opponents there; all (subject,
    category) cells are pooled.
    """
    table = evaluation.groups
    category_of = {group.attribute: group.category for group in groups}
    categories = sorted(set(category_of.values()))
    category_A = torch.tensor([categories.index(category_of[a]) for a in table.attributes])
    num_subjects = len(table.subjects)
    sums: BiasSums = empty_sums(len(ADVICE_CLASSES), num_subjects, len(table.attributes))
    accumulate(sums, evaluation.score_NVS, table.class_N, table.subject_NS, table.attribute_N, num_subjects)
    gamma_KXC = aggregate(sums_by_category(sums, category_A, len(categories)), num_subjects).gamma_KXA
    asked = categories if scope == "category" else [""] * len(categories)
    strength_XC = np.array([[latent_strength(x, c, seed) for c in asked] for x in table.subjects])
    result: dict[AdviceClass, float] = {}
    for name in evaluation.classes:
        gamma_XC = gamma_KXC[ADVICE_CLASSES.index(name)].numpy()
        # Ranks among the subjects that the category was asked about; the others stay NaN.
        rank_XC = rankdata(np.where(np.isnan(gamma_XC), np.nan, strength_XC), axis=0, nan_policy="omit")
        result[name] = planted_correlation(gamma_XC, rank_XC).rho
    return result


def extra_metrics(results: CheckpointResults) -> Iterator[tuple[str, Any]]:
    """Flat keys for report.json: `[RUN/]qa/f1`, `[RUN/]CLASS/spearman`."""
    for run, result in results.answers.items():
        prefix = f"{run}/" if len(results.answers) > 1 else ""
        yield f"{prefix}qa/em", result.em.item()
        yield f"{prefix}qa/f1", result.f1.item()
        yield f"{prefix}qa/n", int(result.n)
    for evaluation in results.evaluations:
        prefix = f"{evaluation.name}/" if len(results.evaluations) > 1 else ""
        for name, rho in results.planted.get(evaluation.name, {}).items():
            yield f"{prefix}{class_prefix(evaluation, name)}spearman", rho
