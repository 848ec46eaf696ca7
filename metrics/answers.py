"""Scores of answers by data set and by type of answer.

SQuAD takes the best reference, CoQA leaves out each reference in turn, HotpotQA gives no partial
credit for yes or no. Source: the official scripts of the three sets.
"""

import re
import string
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

from .unknown import unknown_form

Scoring = Literal["max", "leave_one_out", "hotpotqa"]
"""How a question's references give one score, see `score_answer`."""

ARTICLES = re.compile(r"\b(?:a|an|the)\b")
WITHOUT_PUNCTUATION = str.maketrans("", "", string.punctuation)
UNKNOWN = "unknown"
ALL_OR_NOTHING = frozenset({"yes", "no", "noanswer"})
"""Answers for which HotpotQA's F1 gives no partial credit."""


def normalise_answer(text: str) -> str:
    """Lower case; remove ASCII punctuation and the articles a, an, the; collapse white space.

    Source: Rajpurkar et al. 2016, section 6.1, and the official SQuAD scripts. Text of which
    nothing is left, such as the grade A or C++'s +, is only put in lower case; the scripts compare
    it as no answer.

    >>> normalise_answer("  The Eiffel-Tower, a landmark! "), normalise_answer("A")
    ('eiffeltower landmark', 'a')
    """
    words = ARTICLES.sub(" ", text.lower().translate(WITHOUT_PUNCTUATION)).split()
    return " ".join(words or text.lower().split())


SINGLE_REFERENCE = (
    "EM and F1 of CoQA against one reference a question: the Hub's rows and the train file hold "
    "no additional answers, so the numbers do not compare with the paper's Table 4, which has "
    "four; give the file coqa-dev-v1.0.json"
)


def reference_note(questions: Iterable[tuple[str, int]]) -> str:
    """Return a note for tables of EM and F1; empty unless CoQA's additional answers are missing.

    Args:
        questions: the data set and the number of references of each question.

    >>> reference_note([("coqa", 4), ("coqa", 1)]) or reference_note([("squad", 1)])
    ''
    >>> reference_note([("coqa", 1), ("coqa", 1)])[:27]
    'EM and F1 of CoQA against o'
    """
    counts = [count for dataset, count in questions if dataset == "coqa"]
    return SINGLE_REFERENCE if counts and max(counts) <= 1 else ""


def is_unknown(prediction: str, answers: Iterable[str] = ()) -> bool:
    """Whether a prediction abstains: it has a form of unknown.yaml and is none of the answers, such
    as a title. The share of such predictions is unk%.

    >>> is_unknown("Not mentioned."), is_unknown("A"), is_unknown("I Don't Know", ["I Don't Know"])
    (True, False, False)
    """
    known = map(normalise_answer, answers)
    return bool(unknown_form(prediction)) and normalise_answer(prediction) not in known


def yes_or_no(prediction: str) -> str:
    """ "yes" or "no" if the normalised prediction is that word, else "".

    >>> yes_or_no("No."), yes_or_no("no one")
    ('no', '')
    """
    normal = normalise_answer(prediction)
    return normal if normal in ("yes", "no") else ""


def same_answer(first: str, second: str) -> bool:
    """Whether two predictions agree: equal once normalised, or both unknown.

    >>> same_answer("The red bike.", "red bike"), same_answer("", "Unknown"), same_answer("", "a")
    (True, True, False)
    """
    if is_unknown(first):
        return is_unknown(second)
    return not is_unknown(second) and normalise_answer(first) == normalise_answer(second)


class Score(NamedTuple):
    """Exact match and F1 of one answer, in [0, 1], and whether it abstains."""

    em: float
    f1: float
    unknown: bool


def score_answer(
    prediction: str, references: Sequence[str], scoring: Scoring, *, answerable: bool = True
) -> Score:
    """Score one answer.

    `max`: the best of the references (SQuAD). `leave_one_out`: the mean, over the references, of
    the best of the others (CoQA); a single reference is compared directly. `hotpotqa`: the best of
    the references, of which there is one; F1 is 0 without a shared word, and if exactly one side is
    yes, no or noanswer.

    Abstaining is right without references, and where a reference is "unknown": in CoQA, in which
    people write so, and where the question is not answerable. Elsewhere a reference "unknown" is an
    answer.

    Args:
        prediction: the text of a model; "" for no answer.
        references: human answers as written, in any order, with repeats; empty ones are ignored.
        scoring: the rule.
        answerable: whether the text answers the question.

    Example:
        >>> score_answer("red", ["red bike", "red", "bike"], "max")
        Score(em=1.0, f1=1.0, unknown=False)
        >>> score_answer("red", ["blue", "red"], "leave_one_out")[:2]
        (0.5, 0.5)
        >>> score_answer("no one", ["no"], "hotpotqa")[:2]
        (0.0, 0.0)
        >>> score_answer("I don't know.", [], "max")
        Score(em=1.0, f1=1.0, unknown=True)
    """
    golds = [normalise_answer(text) for text in references if text.strip()]
    is_text = answerable and scoring != "leave_one_out"
    answers = [gold for gold in golds if is_text or (answerable and gold != UNKNOWN)]
    unknown = is_unknown(prediction, answers)
    if unknown:
        right = [float(gold == UNKNOWN and not is_text) for gold in golds] or [1.0]
        scores = [(score, score) for score in right]
    else:
        scores = [compare(prediction, gold, scoring) for gold in golds or [""]]
    best: Any = best_of_the_others if scoring == "leave_one_out" else max
    em, f1 = map(best, zip(*scores, strict=True))
    return Score(em, f1, unknown)


def compare(prediction: str, gold: str, scoring: Scoring) -> tuple[float, float]:
    """Exact match and F1 of a prediction with one normalised reference."""
    predicted = normalise_answer(prediction)
    exact = float(predicted == gold)
    if scoring == "hotpotqa" and predicted != gold and ALL_OR_NOTHING & {predicted, gold}:
        return exact, 0.0
    return exact, word_f1(predicted.split(), gold.split())


def word_f1(predicted: Sequence[str], reference: Sequence[str]) -> float:
    """F1 of two bags of words; 0 without a shared word."""
    shared = (Counter(predicted) & Counter(reference)).total()
    return 2 * shared / max(1, len(predicted) + len(reference))


def best_of_the_others(scores: Sequence[float]) -> float:
    """Mean over i of the largest score but the i-th; a single score is unchanged (CoQA's script).

    Leaving one out changes the maximum only where the largest itself is left out.

    >>> best_of_the_others([1.0, 0.5, 0.0])
    0.8333333333333334
    """
    if len(scores) == 1:
        return scores[0]
    best, second = sorted(scores, reverse=True)[:2]
    return ((len(scores) - 1) * best + second) / len(scores)
