"""The numbers of the confusion protocol, of one model each, from its logits.

Where a probe has several trials, tests take a question's mean over them: questions, not answers, are the
observations. Tests of single picks are made in every trial. Deviations over questions are over all answers.

Shape letters: N questions, C choices, P targets, S trials.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from data_modules.choices.probes import Probe
from data_modules.schema import ChoiceQuestion
from evaluation.protocols.confusion.runs import ModelRun, Plan
from metrics.confusion import measures as of
from metrics.confusion.irregularities import Irregularities, irregularities
from metrics.confusion.measures import MaxProb, Spread, spread
from metrics.confusion.significance import Significance, binomial, mcnemar, t_against, t_paired

SPLITS = 5
"""Random halves of MaxProb; the first one is the headline."""
BIASED: tuple[Probe, ...] = ("no_question", "wrong_question", "no_right_answer")
"""Probes that leave no right answer, or nothing to tell it by."""


@dataclass(frozen=True)
class Original:
    """The questions as they are."""

    confidence_NC: np.ndarray
    label_N: np.ndarray
    accuracy: float
    confidence: Spread
    """In the right choice, over questions."""
    irregular: Irregularities


@dataclass(frozen=True)
class BiasResult:
    """One of the first three probes."""

    probe: Probe
    chance: float
    targets: np.ndarray
    pre_P: np.ndarray
    """Confidence in the (pseudo-)correct choice before."""
    post_SP: np.ndarray
    """After, in every trial."""
    pre_accuracy: float
    pseudo_accuracy: Spread
    """Over trials."""
    variance: float
    """Definition 1, the mean over questions and trials, ddof 0."""
    variance_ddof1: float
    tests: dict[str, Significance]
    maxprob: list[MaxProb]
    """By split; every split takes a trial of its own."""
    substitution: dict[str, np.ndarray]
    """Of no-right-answer: `anc_post_minus_sac` and `anc_minus_rac`, (S, P)."""


@dataclass(frozen=True)
class ParalysisResult:
    """Choice paralysis with one sampling and number of choices."""

    sampling: str
    n: int
    pre_accuracy: Spread
    """Of the drawn questions with their own choices, over trials."""
    hits_SK: np.ndarray
    """hits@k of every trial, k = 1 to n."""
    pre_confidence: Spread
    confidence: Spread
    paralysis: Spread
    """Confidence lost in the right choice; means of trials, over trials."""
    lost: np.ndarray
    """The same of every drawn question of every trial."""
    tests: dict[str, Significance]

    @property
    def accuracy(self) -> Spread:
        """hits@1, over trials."""
        return spread(self.hits_SK[:, 0])

    @property
    def matching_k(self) -> int:
        """The smallest k whose hits@k reaches the accuracy with the own choices."""
        return int(np.argmax(self.hits_SK.mean(0) >= self.pre_accuracy.mean - 1e-12)) + 1


@dataclass(frozen=True)
class ConfusionResult:
    """Everything about one model."""

    name: str
    original: Original
    bias: dict[Probe, BiasResult]
    paralysis: list[ParalysisResult]
    difference: np.ndarray
    """Confidence with no question less that with a wrong one, per question; empty without both probes."""
    difference_test: Significance | None


def confusion_result(examples: Sequence[ChoiceQuestion], plan: Plan, run: ModelRun) -> ConfusionResult:
    """The numbers of one model."""
    original = original_result(examples, run)
    bias = {probe: bias_result(original, plan, run, probe) for probe in BIASED if probe in plan.probes}
    kinds = [(sampling, n) for sampling in plan.sampling for n in plan.choices]
    asked = kinds if "choice_paralysis" in plan.probes else []
    difference, test = np.zeros(0), None
    if "no_question" in bias and "wrong_question" in bias:
        wrong = bias["wrong_question"]
        difference = bias["no_question"].post_SP[0, wrong.targets] - wrong.post_SP.mean(0)
        test = t_against(difference, 0.0, "greater")
    return ConfusionResult(
        run.name, original, bias, [paralysis_result(original, run, *kind) for kind in asked], difference, test
    )


def original_result(examples: Sequence[ChoiceQuestion], run: ModelRun) -> Original:
    """Of the questions as they are."""
    confidence_NC = of.confidences(run.original_NC)
    label_N = np.array([example.label for example in examples])
    pick_N = confidence_NC.argmax(1)
    return Original(
        confidence_NC,
        label_N,
        float((pick_N == label_N).mean()),
        spread(of.at_label(confidence_NC, label_N)),
        irregularities(
            [example.prompt for example in examples],
            [example.choices for example in examples],
            label_N.tolist(),
            pick_N.tolist(),
        ),
    )


def bias_result(original: Original, plan: Plan, run: ModelRun, probe: Probe) -> BiasResult:
    """Of one of the first three probes."""
    found = list(run.of(probe))
    targets = np.array(found[0][0].targets)
    pre_PC, label_P = original.confidence_NC[targets], original.label_N[targets]
    posts = [of.confidences(logit_PC) for _, logit_PC in found]
    post_SP = np.array([of.at_label(post_PC, label_P) for post_PC in posts])
    pre_P, post_P = of.at_label(pre_PC, label_P), post_SP.mean(0)
    right_SP = np.array([post_PC.argmax(1) == label_P for post_PC in posts])
    chance = 1 / pre_PC.shape[1]
    variance = [np.mean([of.choice_variance(post, ddof=d).mean() for post in posts]) for d in (0, 1)]
    tests = {
        "confidence_against_chance": t_against(post_P, chance),
        "confidence_before_after": t_paired(pre_P, post_P),
        "accuracy_against_chance_over_trials": t_against(right_SP.mean(1), chance),
        # A variance is never below 0: significant for every model that is not constant (spec B4).
        "variance_against_zero": t_against(np.mean([of.choice_variance(post) for post in posts], 0), 0.0),
    }
    before_P = pre_PC.argmax(1) == label_P
    for trial, right_P in enumerate(right_SP):
        tests[f"accuracy_against_chance_{trial}"] = binomial(int(right_P.sum()), len(right_P), chance)
        tests[f"accuracy_before_after_{trial}"] = mcnemar(before_P, right_P)
    substituted = [of.substitution(pre_PC, post, label_P) for post in posts if probe == "no_right_answer"]
    gaps = {
        name: np.array([getattr(one, name) for one in substituted])
        for name in ("anc_post_minus_sac", "anc_minus_rac")
        if substituted
    }
    return BiasResult(
        probe=probe,
        chance=chance,
        targets=targets,
        pre_P=pre_P,
        post_SP=post_SP,
        pre_accuracy=float(before_P.mean()),
        pseudo_accuracy=spread(right_SP.mean(1)),
        variance=float(variance[0]),
        variance_ddof1=float(variance[1]),
        tests=tests,
        maxprob=maxprob_splits(pre_PC, posts, plan.seed),
        substitution=gaps,
    )


def maxprob_splits(pre_PC: np.ndarray, posts: Sequence[np.ndarray], seed: int) -> list[MaxProb]:
    """MaxProb on random halves; split s takes trial s, beginning again where there are fewer trials."""
    return [
        of.maxprob(pre_PC.max(1), posts[s % len(posts)].max(1), *of.halves(len(pre_PC), seed + s))
        for s in range(SPLITS)
    ]


def paralysis_result(original: Original, run: ModelRun, sampling: str, n: int) -> ParalysisResult:
    """Of choice paralysis with one sampling and number of choices."""
    hits, before, right, pre, post = [], [], [], [], []
    for condition, logit_PC in run.of("choice_paralysis", sampling, n):
        pre_PC, label_P = original.confidence_NC[condition.targets], original.label_N[condition.targets]
        post_PC = of.confidences(logit_PC)
        slot_P = np.array([example.label for example in condition.examples])
        rank_P = of.ranks(post_PC, slot_P)
        hits.append(of.hits_at(rank_P, n))
        before.append(pre_PC.argmax(1) == label_P)
        right.append(rank_P == 0)
        pre.append(of.at_label(pre_PC, label_P))
        post.append(of.at_label(post_PC, slot_P))
    lost = [of.paralysis(*pair) for pair in zip(pre, post, strict=True)]
    tests = {
        "accuracy_before_after_over_trials": t_paired(
            np.array([b.mean() for b in before]), np.array([r.mean() for r in right])
        )
    }
    for trial, (b, r) in enumerate(zip(before, right, strict=True)):
        tests[f"accuracy_before_after_{trial}"] = mcnemar(b, r)
        tests[f"confidence_before_after_{trial}"] = t_paired(pre[trial], post[trial])
    return ParalysisResult(
        sampling=sampling,
        n=n,
        pre_accuracy=spread([b.mean() for b in before]),
        hits_SK=np.array(hits),
        pre_confidence=spread([x.mean() for x in pre]),
        confidence=spread([x.mean() for x in post]),
        paralysis=spread([x.mean() for x in lost]),
        lost=np.concatenate(lost),
        tests=tests,
    )
