"""Exact match and F1 of answer texts, as SQuAD's official evaluation defines them."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from metrics.sum_metric import SumMetric

ARTICLES = re.compile(r"\b(?:a|an|the)\b")
WITHOUT_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalise_answer(text: str) -> str:
    """Lower case; ASCII punctuation removed; the articles a, an, the removed; single spaces.

    Source: Rajpurkar et al. 2016, section 6.1, and the official SQuAD scripts.

    >>> normalise_answer("  The Eiffel-Tower, a landmark! ")
    'eiffeltower landmark'
    """
    return " ".join(ARTICLES.sub(" ", text.lower().translate(WITHOUT_PUNCTUATION)).split())


def exact_match(prediction: str, references: Sequence[str]) -> float:
    """1.0 if the normalised prediction equals a normalised reference, else 0.0.

    No references (or only ones that normalise to nothing) mean that the question cannot be answered: then
    only a prediction that normalises to nothing matches.
    """
    return float(normalise_answer(prediction) in normalised_references(references))


def f1(prediction: str, references: Sequence[str]) -> float:
    """Largest over the references of the harmonic mean of word precision and recall, in [0, 1].

    Words count as often as they occur. Unanswerable questions as in `exact_match` (SQuAD 2.0).
    """
    words = normalise_answer(prediction).split()
    return max(word_f1(words, reference.split()) for reference in normalised_references(references))


def word_f1(predicted: Sequence[str], reference: Sequence[str]) -> float:
    """F1 of two bags of words; where one is empty, 1.0 if both are and else 0.0."""
    if not predicted or not reference:
        return float(not predicted and not reference)
    shared = (Counter(predicted) & Counter(reference)).total()
    return 2 * shared / (len(predicted) + len(reference))


def normalised_references(references: Sequence[str]) -> list[str]:
    """References that keep a word after normalisation; one empty string if none does."""
    return [text for text in map(normalise_answer, references) if text] or [""]


class QAResult(NamedTuple):
    """Means over questions, in [0, 1]; NaN with n = 0. float64 scalars, n int64."""

    exact_match: Tensor
    f1: Tensor
    n: Tensor


class AnswerScores(SumMetric):
    """Exact match and F1 over all questions seen, on all processes. Text in, sums out.

    Example:
        >>> metric = AnswerScores()
        >>> metric.update(["the cat", ""], [["Cat"], ["a dog"]])
        >>> metric.compute().f1.item()
        0.5
    """

    higher_is_better = True
    exact_match_sum: Tensor
    f1_sum: Tensor
    count: Tensor

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.add_sum("exact_match_sum")
        self.add_sum("f1_sum")
        self.add_sum("count", dtype=torch.int64)

    def update(self, predictions: Sequence[str], references: Sequence[Sequence[str]]) -> None:
        """Add questions: one predicted text ("" for no answer) and one list of reference texts each.

        Raises:
            ValueError: different numbers of the two, or a bare string in place of a list of references.
        """
        if len(predictions) != len(references):
            raise ValueError(f"{len(predictions)} predictions for {len(references)} lists of references")
        if any(isinstance(texts, str) for texts in references):
            raise ValueError("references: expected a list of texts per question, got a string")
        pairs = list(zip(predictions, references, strict=True))
        self.exact_match_sum += sum(exact_match(text, texts) for text, texts in pairs)
        self.f1_sum += sum(f1(text, texts) for text, texts in pairs)
        self.count += len(pairs)

    def compute(self) -> QAResult:
        """Means over everything seen."""
        n = self.count
        return QAResult(self.exact_match_sum / n, self.f1_sum / n, n)
