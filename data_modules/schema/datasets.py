"""What is particular to a data set: a row of datasets.yaml by its `QAExample.dataset`."""

from dataclasses import dataclass
from typing import Literal

from interventune.storage.documents import own_yaml

from .questions import Variant


@dataclass(frozen=True, kw_only=True)
class Traits:
    """The traits of a data set; the defaults are those of a name without a row.

    Args:
        scoring: how a question's references give one score
            (interventune.metrics.answers.score_answer).
        conversation: whether a question is marked as a turn, even the first one, as in the code of
            Chaturvedi et al. 2023.
        rationales: whether people marked the rationales. Then a question may have none, and the
            place of its answer was searched for.
        variants: those in the paper's Tables 4 and 5.
    """

    scoring: Literal["max", "leave_one_out", "hotpotqa"] = "max"
    conversation: bool = False
    rationales: bool = False
    variants: tuple[Variant, ...] = ("os", "ts", "ts_r")


DATASETS = own_yaml(__file__, dict[str, Traits])


def traits(dataset: str) -> Traits:
    """Return the traits of a data set.

    >>> traits("coqa").scoring, traits("mine").scoring
    ('leave_one_out', 'max')
    """
    return DATASETS.get(dataset, Traits())
