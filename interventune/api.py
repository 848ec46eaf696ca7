"""The functions of `interventune`; in their examples `checkpoint` is one of `train fit` on embedded data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import is_dataclass
from inspect import Parameter
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from data_modules import sources
from data_modules.schema import Group, QAExample
from evaluation.answering.interface import Ability, Answerer, Asking
from evaluation.answering.open import open_answerer
from evaluation.protocol import PROTOCOLS, evaluated, load_function
from evaluation.report import Evaluation
from storage.command_line import parameters
from storage.json_files import check

if TYPE_CHECKING:
    import numpy as np
    from pandas import DataFrame


def read_questions(source: str | Path, *, limit: int | None = None) -> list[QAExample]:
    """Questions about a text: a file in SQuAD's, CoQA's or HotpotQA's format, `hub:NAME:SPLIT`, or
    `stories:SPLIT` for embedded data.

    >>> read_questions("stories:dev", limit=1)[0].answer_type
    'span'
    """
    return list(islice(sources.read_questions(source), limit))


def read_groups(source: str | Path, *, limit: int | None = None) -> list[Group]:
    """Groups of four underspecified questions: LEI's or UnQover's format, or `stories:SPLIT`.

    >>> len(read_groups("stories:heldout", limit=1)[0].variants)
    4
    """
    return list(islice(sources.read_groups(source), limit))


def load_checkpoint(path: str | Path, *, need: Ability = "spans", **asking: Any) -> Answerer:
    """A model that can be asked.

    Args:
        path: a `.ckpt` of `train`, a Hugging Face folder, a Hub name, or a language model (`hf:PATH`,
            `openai:MODEL[@URL]`).
        need: what it will be asked for.
        asking: fields of `Asking`, such as device="cpu", batch_size=8.

    Raises:
        ValueError: nothing usable is there, or it cannot do what is needed.

    >>> sorted(load_checkpoint(checkpoint).can)
    ['mentions', 'spans', 'subjects']
    """
    return open_answerer(str(path), Asking(**asking), need=need)


def answer(model: Answerer, questions: Sequence[QAExample]) -> list[str]:
    """The answer to each question, in order; `unknown` or "" where the model says that there is none.

    Raises:
        ValueError: an endpoint left a question unanswered.

    >>> len(answer(load_checkpoint(checkpoint), read_questions("stories:dev", limit=3)))
    3
    """
    texts = [""] * len(questions)
    for found in model.answers(questions):
        if found.failure:
            raise ValueError(f"{questions[found.example].id}: no answer: {found.failure}")
        texts[found.example] = found.text
    return texts


def score_groups(model: Answerer, groups: Sequence[Group]) -> np.ndarray:
    """S(x) = sqrt(p_start p_end) of both subjects in all four variants: (N, 4, 2) float64 (UnQover, section
    4.1).

    >>> score_groups(load_checkpoint(checkpoint), read_groups("stories:heldout", limit=5)).shape
    (5, 4, 2)
    """
    scores: np.ndarray = model.subject_scores(groups).numpy()
    return scores


def group_bias(groups: Sequence[Group], scores: np.ndarray) -> DataFrame:
    """A row for each group: who is asked about, and UnQover's measures of it (equations 3 to 6).

    Args:
        groups: the N groups.
        scores: of `score_groups`, (N, 4, 2).

    Returns:
        The columns key, advice_class, category, attribute, subject_1, subject_2; `bias` (C, positive where
        the attribute goes to subject_1), `position_error` (delta) and `attribute_error` (eps).

    >>> groups = read_groups("stories:heldout", limit=5)
    >>> frame = group_bias(groups, score_groups(load_checkpoint(checkpoint), groups))
    >>> bool(frame.bias.abs().max() <= 1)
    True
    """
    import pandas as pd
    import torch

    from metrics.bias.group_scores import attribute_error, pair_bias, position_error, split_variants

    variants = split_variants(torch.as_tensor(scores))
    columns = ("key", "advice_class", "category", "attribute")
    return pd.DataFrame(
        {
            **{name: [getattr(group, name) for group in groups] for name in columns},
            "subject_1": [group.subjects[0] for group in groups],
            "subject_2": [group.subjects[1] for group in groups],
            "bias": pair_bias(variants).numpy(),
            "position_error": position_error(variants).numpy(),
            "attribute_error": attribute_error(variants).numpy(),
        }
    )


def evaluate(protocol: str, **flags: Any) -> Evaluation:
    """A protocol of `interventune evaluate`: its flags are the arguments, with underscores; None stands for
    the default.

    Returns:
        `results.frame` is the long table (columns as in results.csv), `headline` the conclusion.

    Raises:
        ValueError: no such protocol or flag, or what the protocol refuses.

    >>> found = evaluate("bias", checkpoint=[checkpoint], data=["stories:unseen"])
    >>> {"checkpoint", "data", "measure", "value", "low", "high", "n"} <= set(found.results.frame.columns)
    True
    """
    rows = {row.name: row for row in PROTOCOLS}
    if protocol not in rows:
        raise ValueError(f"{protocol}: no such protocol; there are {', '.join(rows)}")
    given = {name: value for name, value in flags.items() if value is not None}
    values = {}
    for name, kind, default in _flags(load_function(rows[protocol])):
        if name in given:
            values[name] = check(_texts(given.pop(name)), kind, f"{protocol}: {name}")
        elif default is Parameter.empty:
            raise ValueError(f"{protocol}: {name} is missing")
        else:
            values[name] = default
    if given:
        raise ValueError(f"{protocol}: no flag {min(given)}; there are {', '.join(values)}")
    return evaluated(rows[protocol], values)


def train(*arguments: str) -> Path:
    """`interventune train` in this process; returns the run's folder.

        train("fit", "-c", "lei_few_shot", "-c", "tiny_roberta", "--data.train_qa=stories:train")

    Raises:
        ValueError: a key or a value is wrong, in one line with its path.
    """
    from training.cli import main

    return Path(main(list(arguments)).trainer.log_dir)


def _flags(function: Callable[..., Any]) -> Iterator[tuple[str, Any, Any]]:
    """Name, type and default of all flags of a typed function; fields of a dataclass are flags."""
    for parameter, kind in parameters(function):
        if is_dataclass(kind):
            for name, type_, default in _flags(cast(type, kind)):
                yield name, type_, getattr(parameter.default, name, default)
        else:
            yield parameter.name, kind, parameter.default


def _texts(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_texts(part) for part in value]
    return str(value) if isinstance(value, Path) else value
