"""Scoring groups for bias, against others' ways of batching.   python -m benchmarks bias_scoring

MiniLM shapes with random weights; the embedded groups, or those of `--groups`, each with and without its
advice. All get their rows tokenised.
"""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Callable
from functools import lru_cache, partial
from itertools import islice
from statistics import median
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from benchmarks.report import Result
from benchmarks.turns import in_turns, own_processes
from data_modules.batching.group_rows import GroupSet
from data_modules.encoding.tables import flat
from data_modules.encoding.windows import EncodedRow, encode_texts, query_text
from data_modules.groups.advice import with_unadvised
from data_modules.schema import Group
from data_modules.sources import read_groups
from data_modules.stories.word_tokenizer import build_tokenizer
from evaluation.answering.checkpoint import QuestionCheckpoint
from evaluation.answering.interface import Asking

WIDTH = 350
"""Tokens that UnQover's and LEI's own predictors pad to."""
MINILM = {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536}
QUICK = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}


class Work(NamedTuple):
    """What is scored."""

    folder: str  # of the model
    source: str
    groups: int  # advised ones; their unadvised ones come on top
    singles: int  # rows, evenly spread, that are scored one at a time
    padded: int  # rows, likewise, in one batch of full width


class Measured(NamedTuple):
    """One turn of one system."""

    rows: int
    seconds: float
    probability: dict[int, list[float]]  # of both boundaries of both subjects, by number of the row


def measure(*, repeats: int, quick: bool, groups: str = "stories:heldout") -> list[Result]:
    """Rows a second of every system; how far its probabilities are from those of one at a time as a note."""
    with tempfile.TemporaryDirectory() as folder, own_processes(SYSTEMS, apart=not quick) as call:
        work = Work(folder, groups, *((6, 12, 8) if quick else (240, 250, 32)))
        save_model(work, QUICK if quick else MINILM)
        for name, system in SYSTEMS.items():
            call[name](system, work)
        turns = in_turns(SYSTEMS, repeats, lambda name, _: call[name](SYSTEMS[name], work))
    exact = turns[SINGLE][0].probability
    return [
        Result(
            benchmark="bias_scoring",
            system=name,
            unit="rows/s",
            values=tuple(turn.rows / turn.seconds for turn in made),
            notes={
                "rows": made[0].rows,
                "seconds": round(median(turn.seconds for turn in made), 2),
                "largest difference of a probability": difference(made[0].probability, exact),
            },
        )
        for name, made in turns.items()
    ]


def save_model(work: Work, shape: dict[str, int]) -> None:
    """A folder with random weights and a tokenizer of the groups' words."""
    from transformers import AutoModelForQuestionAnswering, BertConfig
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    texts = {t for g in groups_of(work) for v in g.variants for t in (v.context, v.question, v.advice)}
    words = sorted({word for text in texts for word in re.findall(r"\w+|[^\w\s]", text.lower())})
    build_tokenizer("bert", words).save_pretrained(work.folder)
    torch.manual_seed(0)
    config = BertConfig(vocab_size=30_522, **shape)
    AutoModelForQuestionAnswering.from_config(config).save_pretrained(work.folder)


@lru_cache(maxsize=1)
def groups_of(work: Work) -> list[Group]:
    """The groups of a source, with and without their advice."""
    return with_unadvised(list(islice(read_groups(work.source), work.groups)))


def ours(precision: Literal["32", "bf16"], work: Work) -> Measured:
    """`python -m evaluation bias`."""
    predictor, data = predictor_of(work, precision), tokenised(work)
    began = time.perf_counter()
    log_prob = predictor.group_set_log_probs(data)
    seconds = time.perf_counter() - began
    probability = log_prob.exp().view(-1, 4)
    return Measured(len(probability), seconds, dict(enumerate(probability.tolist())))


def one_at_a_time(work: Work) -> Measured:
    """transformers' model in float32, a row at a time, without padding."""
    model, rows = theirs(work), rows_of(work)
    index = spread(len(rows), work.singles)
    probability: dict[int, list[float]] = {}
    began = time.perf_counter()
    with torch.inference_mode():
        for i in index:
            row, candidate_SE = rows[i]
            start_BT, end_BT = model(batch([row], len(row.input_ids_T)))
            probability[i] = read_off(start_BT[0], end_BT[0], candidate_SE)
    return Measured(len(index), time.perf_counter() - began, probability)


def padded_batch(work: Work) -> Measured:
    """The same in one batch, every row padded to the full width."""
    model, rows = theirs(work), rows_of(work)
    index = spread(len(rows), work.padded)
    began = time.perf_counter()
    with torch.inference_mode():
        start_BT, end_BT = model(batch([rows[i][0] for i in index], WIDTH))
        probability = {}
        for b, i in enumerate(index):
            row, candidate_SE = rows[i]
            length = len(row.input_ids_T)  # transformers' logits go on over the padding
            probability[i] = read_off(start_BT[b, :length], end_BT[b, :length], candidate_SE)
    return Measured(len(index), time.perf_counter() - began, probability)


SINGLE = "one at a time, float32"
SYSTEMS: dict[str, Callable[[Work], Measured]] = {
    "interventune": partial(ours, "bf16"),
    "interventune, float32": partial(ours, "32"),
    SINGLE: one_at_a_time,
    f"batches padded to {WIDTH}, float32": padded_batch,
}


@lru_cache(maxsize=2)
def predictor_of(work: Work, precision: Literal["32", "bf16"]) -> QuestionCheckpoint:
    """Loaded once in a process."""
    return QuestionCheckpoint(work.folder, Asking(device="cpu", precision=precision))


@lru_cache(maxsize=1)
def theirs(work: Work) -> Callable[[dict[str, Tensor]], tuple[Tensor, Tensor]]:
    """transformers' model as it comes: inputs to start and end logits."""
    from transformers import AutoModelForQuestionAnswering

    model = AutoModelForQuestionAnswering.from_pretrained(work.folder).eval()

    def logits(inputs: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        output = model(**inputs)
        return output.start_logits, output.end_logits

    return logits


@lru_cache(maxsize=1)
def tokenised(work: Work) -> GroupSet:
    """All groups, as `group_log_probs` makes them."""
    predictor = predictor_of(work, "32")
    return GroupSet(groups_of(work), predictor.tokenizer, predictor.encoding)


@lru_cache(maxsize=1)
def rows_of(work: Work) -> list[tuple[EncodedRow, np.ndarray]]:
    """Every row with its candidates (S, E)."""
    predictor = predictor_of(work, "32")
    texts = (
        (v.context, query_text(v.question, v.advice), g.key) for g in groups_of(work) for v in g.variants
    )
    rows = list(encode_texts(texts, predictor.tokenizer, predictor.encoding))
    candidates = flat(tokenised(work).table.data, "candidate").reshape(-1, 2, 2)
    return list(zip(rows, candidates, strict=True))


def spread(size: int, count: int) -> list[int]:
    """`count` of `size` indices, evenly spread."""
    return np.unique(np.linspace(0, size - 1, min(count, size)).astype(int)).tolist()


def batch(rows: list[EncodedRow], width: int) -> dict[str, Tensor]:
    """Rows padded to `width`."""
    inputs = {name: torch.zeros(len(rows), width, dtype=torch.long) for name in NAMES}
    for b, row in enumerate(rows):
        length = len(row.input_ids_T)
        for name, value in zip(NAMES, (row.input_ids_T, row.token_type_ids_T, 1), strict=True):
            inputs[name][b, :length] = torch.as_tensor(value)
    return inputs


NAMES = ("input_ids", "token_type_ids", "attention_mask")


def read_off(start_T: Tensor, end_T: Tensor, candidate_SE: np.ndarray) -> list[float]:
    """Start and end probability of both subjects."""
    start_T, end_T = start_T.softmax(-1), end_T.softmax(-1)
    return [float(p) for first, last in candidate_SE.tolist() for p in (start_T[first], end_T[last])]


def difference(one: dict[int, list[float]], two: dict[int, list[float]]) -> float:
    """The largest difference between probabilities that both have."""
    shared = one.keys() & two.keys()
    return max((abs(p - q) for i in shared for p, q in zip(one[i], two[i], strict=True)), default=0.0)
