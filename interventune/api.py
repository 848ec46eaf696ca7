"""The functions of `interventune`. In examples, `checkpoint` is one of `train fit` on embedded
data.
"""

from collections.abc import Sequence
from inspect import Parameter
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from .data_modules import sources
from .data_modules.schema.groups import Group
from .data_modules.schema.questions import QAExample
from .evaluation.answering.interface import Ability, Answerer, Asking, open_answerer
from .evaluation.commands import PROTOCOLS, evaluated
from .evaluation.report import Evaluation
from .storage.command_line import flags
from .storage.documents import check


def read_questions(source: str | Path, *, limit: int | None = None) -> list[QAExample]:
    """Read questions about a text: a file in SQuAD's, CoQA's or HotpotQA's format,
    `hub:NAME:SPLIT`, or `stories:SPLIT` for embedded data.

    >>> read_questions("stories:dev", limit=1)[0].answer_type
    'span'
    """
    return list(islice(sources.read_questions(source), limit))


def read_groups(source: str | Path, *, limit: int | None = None) -> list[Group]:
    """Read groups of four underspecified questions: LEI's or UnQover's format, or `stories:SPLIT`.

    >>> len(read_groups("stories:heldout", limit=1)[0].variants)
    4
    """
    return list(islice(sources.read_groups(source), limit))


def load_checkpoint(path: str | Path, *, need: Ability = "spans", **asking: Any) -> Answerer:
    """Open a model for evaluation, see `open_answerer`; `asking`: fields of `Asking`, such as
    device="cpu".

    >>> load_checkpoint(checkpoint, device="cpu").identity["dtype"]
    'float32'
    """
    return open_answerer(str(path), Asking(**asking), need=need)


def answer(model: Answerer, questions: Sequence[QAExample]) -> list[str]:
    """Return the answer to each question, in order; a model abstains where
    `metrics.answers.is_unknown`.

    Raises:
        ValueError: an endpoint left a question unanswered.

    >>> len(answer(load_checkpoint(checkpoint), read_questions("stories:dev", limit=3)))
    3
    """
    answers = sorted(model.answers(questions))
    for reply in answers:
        if reply.failure:
            raise ValueError(f"{questions[reply.example].id}: no answer: {reply.failure}")
    return [reply.text for reply in answers]


def score_groups(model: Answerer, groups: Sequence[Group]) -> np.ndarray:
    """Score both subjects in all four variants: S(x) = sqrt(p_start p_end), shape (N, 4, 2),
    float64. Source: UnQover, section 4.1.

    >>> score_groups(load_checkpoint(checkpoint), read_groups("stories:heldout", limit=5)).shape
    (5, 4, 2)
    """
    return np.asarray(model.subject_scores(groups))


def group_bias(groups: Sequence[Group], scores: np.ndarray) -> pd.DataFrame:
    """Return one row per group, computed from its scores (N, 4, 2): class (of the advice),
    category, attribute, subjects and more, and UnQover's measures (equations 3 to 6): `c` (the
    bias, positive if the model assigns the attribute to the first subject), `delta` (position
    error) and `eps` (attribute error).

    >>> groups = read_groups("stories:heldout", limit=5)
    >>> frame = group_bias(groups, score_groups(load_checkpoint(checkpoint), groups))
    >>> bool(frame.c.abs().max() <= 1)
    True
    """
    from torch import as_tensor

    from .evaluation.protocols.bias.groups import group_row, with_scores

    return pd.DataFrame(with_scores([*map(group_row, groups)], as_tensor(scores)))


def evaluate(protocol: str, **values: Any) -> Evaluation:
    """Run a protocol of `interventune evaluate`; its flags are the arguments, with underscores. In
    the result, `results.frame` is the long table (columns as in results.csv), and `headline` the
    conclusion.

    Raises:
        ValueError: no such protocol or flag, or a value that the protocol rejects.

    >>> report = evaluate("bias", checkpoint=[checkpoint], data=["stories:unseen"])
    >>> {"checkpoint", "data", "measure", "value", "n"} <= set(report.results.frame.columns)
    True
    """
    if protocol not in PROTOCOLS:
        raise ValueError(f"{protocol}: no such protocol; there are {', '.join(PROTOCOLS)}")
    known = {flag.name: flag for flag, *_ in flags(PROTOCOLS[protocol].function)}
    defaults = {name: flag.default for name, flag in known.items() if name not in values}
    chosen = values | defaults
    for name, value in chosen.items():
        if name not in known:
            raise ValueError(f"{protocol}: no flag {name}; there are {', '.join(known)}")
        if value is Parameter.empty:
            raise ValueError(f"{protocol}: {name} is missing")
        if name in values:
            chosen[name] = check(value, known[name].annotation, f"{protocol}: {name}")
    return evaluated(protocol, chosen)


def train(*arguments: str) -> Path:
    """Run `interventune train` in this process; return the run's folder.

    train("fit", "-c", "lei_few_shot", "-c", "tiny_roberta", "--data.train_qa=stories:train")
    """
    from .training.cli import main

    return Path(main(list(arguments)).log_dir)
