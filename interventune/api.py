"""The functions of `interventune`; in their examples `checkpoint` is one of `train fit` on embedded data."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from data_modules import sources
from data_modules.groups.advice import with_advice
from data_modules.interventions import deletion
from data_modules.schema import AdviceClass, ChoiceQuestion, Group, QAExample, Rejected, Variant
from evaluation.answering.interface import Answerer, Asking, Dtype, PromptStyle, kind_of
from evaluation.answering.open import open_answerer
from evaluation.protocol import PROTOCOLS, load_function
from evaluation.report import Evaluation, claimed, write_report
from storage.command_line import Parser, add_arguments, call

if TYPE_CHECKING:
    import numpy as np
    from pandas import DataFrame


def read_questions(source: str | Path, *, limit: int | None = None) -> list[QAExample]:
    """Questions about a text: a file in SQuAD's, CoQA's or HotpotQA's format, `hub:NAME:SPLIT`, or
    `stories:SPLIT` for embedded data.

    Raises:
        ValueError: names file, record and field of what cannot be read.

    >>> read_questions("stories:dev", limit=1)[0].answer_type
    'span'
    """
    return _first(sources.read_questions(source), limit)


def read_groups(source: str | Path, *, limit: int | None = None) -> list[Group]:
    """Groups of four underspecified questions: LEI's or UnQover's format, or `stories:SPLIT`.

    Raises:
        ValueError: names file, record and field of what cannot be read.

    >>> len(read_groups("stories:heldout", limit=1)[0].variants)
    4
    """
    return _first(sources.read_groups(source), limit)


def read_choices(source: str | Path, *, limit: int | None = None) -> list[ChoiceQuestion]:
    """Multiple-choice questions, from any layout that `sources.py` lists; `FILE+LABELS` where labels stand
    apart.

    Raises:
        ValueError: names file, record and field of what cannot be read.
    """
    return sources.read_choices(source)[:limit]


def perturb(question: QAExample, variant: Variant) -> QAExample | Rejected:
    """Intervene in the story of a question: `ts`, `ts_r`, `os_r` (faithfulness paper, section 3).

    Returns:
        The variant, or `Rejected` with the reason why there is none.

    >>> story = read_questions("stories:conversation_dev", limit=1)[0]
    >>> perturb(story, "ts_r").answer_type
    'unknown'
    """
    return deletion.perturb(question, variant)


def advise(group: Group, advice: str, advice_class: AdviceClass = "ethical") -> Group:
    """The same group with a sentence of advice right before each of its questions (LEI, section 3).

    >>> group = read_groups("stories:heldout", limit=1)[0]
    >>> advise(group, "Judge nobody by a name.").variants[0].advice
    'Judge nobody by a name.'
    """
    return with_advice(group, advice, advice_class, f"{advice_class}_own-1")


def load_checkpoint(
    path: str | Path,
    *,
    device: str = "auto",
    dtype: Dtype = "auto",
    batch_size: int = 64,
    prompt: PromptStyle = "paper",
) -> Answerer:
    """A model that can be asked: a `.ckpt` of `train`, a Hugging Face folder, a Hub name, or a language model
    (`hf:PATH`, `openai:MODEL[@URL]`), with a prompt as `--prompt` names it. `can` says what for. (`evaluate
    bias` asks language models with `unifiedqa` by default; give it here for the same scores.)

    Raises:
        ValueError: nothing usable is there, or there is no such device.

    >>> model = load_checkpoint(checkpoint)
    >>> sorted(model.can)
    ['mentions', 'spans', 'subjects']
    """
    asking = Asking(device=device, dtype=dtype, batch_size=batch_size, prompt=prompt)
    return open_answerer(str(path), asking, need="choices" if kind_of(str(path)) == "choice" else "spans")


def answer(model: Answerer, questions: Sequence[QAExample]) -> list[str]:
    """The answer to each question, in order; `unknown` or "" where the model says that there is none.

    Raises:
        ValueError: an endpoint left a question unanswered.

    >>> model = load_checkpoint(checkpoint)
    >>> len(answer(model, read_questions("stories:dev", limit=3)))
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

    >>> model = load_checkpoint(checkpoint)
    >>> score_groups(model, read_groups("stories:heldout", limit=5)).shape
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
    return pd.DataFrame(
        {
            "key": [group.key for group in groups],
            "advice_class": [group.advice_class for group in groups],
            "category": [group.category for group in groups],
            "attribute": [group.attribute for group in groups],
            "subject_1": [group.subjects[0] for group in groups],
            "subject_2": [group.subjects[1] for group in groups],
            "bias": pair_bias(variants).numpy(),
            "position_error": position_error(variants).numpy(),
            "attribute_error": attribute_error(variants).numpy(),
        }
    )


def evaluate(protocol: str, **flags: Any) -> Evaluation:
    """A protocol of `interventune evaluate`: its flags are the arguments, with underscores.

    None stands for the default, True and False for `--flag` and `--no-flag`.

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
    function = load_function(rows[protocol])
    parser = _Strict(prog=protocol)
    add_arguments(parser, function)
    words: list[str] = []
    for name, value in flags.items():
        flag, opposite = f"--{name.replace('_', '-')}", f"--no-{name.replace('_', '-')}"
        if value is True or flag not in parser._option_string_actions:
            words.append(flag)
        elif isinstance(value, list | tuple):
            words += [flag, *map(str, value)]
        elif value is False:
            words += [opposite] if opposite in parser._option_string_actions else []
        elif value is not None:
            words.append(f"{flag}={value}")
    found: Evaluation = call(function, parser.parse_args(words))
    return found


def save_report(evaluation: Evaluation, folder: str | Path, *, overwrite: bool = False) -> None:
    """Write report.md, results.csv, examples.jsonl, report.json and the figures into a new folder.

    Raises:
        ValueError: the folder holds something else, or cannot be written.
    """
    with claimed(Path(folder), overwrite=overwrite):
        write_report(evaluation, Path(folder))


def load_results(*folders: str | Path) -> DataFrame:
    """The long tables of reports, one behind another, with the column `report` (the folder's name).

    Raises:
        ValueError: a folder holds no results.csv.
    """
    import pandas as pd

    parts = []
    for folder in folders:
        path = Path(folder) / "results.csv"
        if not path.is_file():
            raise ValueError(f"{folder}: holds no results.csv; name folders of `evaluate ... --output`")
        parts.append(pd.read_csv(path, keep_default_na=False, na_values={"value": "", "low": "", "high": ""}))
        parts[-1].insert(0, "report", Path(folder).name)
    return pd.concat(parts, ignore_index=True)


def load_curves(run: str | Path) -> DataFrame:
    """The curves of a run (metrics.csv): the columns epoch, step, and one for each metric.

    Raises:
        ValueError: the folder is not a run's.
    """
    import pandas as pd

    path = Path(run) / "metrics.csv"
    if not path.is_file():
        raise ValueError(
            f"{run}: holds no metrics.csv; name a folder of `train fit` such as runs/run/version_0"
        )
    return pd.read_csv(path)


def train(*arguments: str) -> Path:
    """`interventune train` in this process; returns the run's folder.

        train("fit", "-c", "lei_few_shot", "-c", "tiny_roberta", "--data.train_qa=stories:train")

    Raises:
        ValueError: a key or a value is wrong, in one line with its path.
    """
    from training.cli import main

    return Path(main(list(arguments)).trainer.log_dir)


class _Strict(Parser):
    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{self.prog}: {message}")


def _first(records: Iterable[Any], limit: int | None) -> list[Any]:
    return list(islice(records, limit))
