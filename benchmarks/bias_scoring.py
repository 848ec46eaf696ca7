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
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from benchmarks.report import Row, rows_of
from benchmarks.turns import Turn, side_by_side
from data_modules.batching.group_set import GroupSet
from data_modules.encoding.tables import flat
from data_modules.encoding.windows import EncodedRow, encode_texts
from data_modules.groups.advice import with_unadvised
from data_modules.schema import Group, query_text
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


def measure(*, repeats: int, quick: bool, groups: str = "stories:heldout") -> list[Row]:
    """Rows a second of every system; how far its probabilities are from those of one at a time as a note."""
    with tempfile.TemporaryDirectory() as folder:
        work = Work(folder, groups, *((6, 12, 8) if quick else (240, 250, 32)))
        save_model(work, QUICK if quick else MINILM)
        turns = side_by_side(SYSTEMS, repeats, apart=not quick, timed=lambda _: (work,), warm=(work,))
    exact = turns[SINGLE][0].found
    for made in turns.values():
        for turn in made:
            turn.notes["largest difference of a probability"] = difference(turn.found, exact)
    return rows_of("bias_scoring", "rows/s", turns)


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


def run_interventune(dtype: Literal["float32", "bfloat16"], work: Work) -> Turn:
    """`python -m evaluation bias`."""
    predictor, data = predictor_of(work, dtype), tokenised(work)
    began = time.perf_counter()
    log_prob = predictor.group_log_probs(data)
    seconds = time.perf_counter() - began
    return _turn(seconds, dict(enumerate(log_prob.exp().view(-1, 4).tolist())))


def _turn(seconds: float, probability: dict[int, list[float]]) -> Turn:
    """A turn that found probabilities of both boundaries of both subjects, by number of the row."""
    rows = len(probability)
    return Turn(rows / seconds, {"rows": rows, "seconds": seconds}, probability)


def run_transformers(width: int, work: Work) -> Turn:
    """transformers' model in float32: a row at a time without padding, or one batch padded to `width`."""
    model, rows = their_model(work), tokenised_rows(work)
    index = spread(len(rows), work.padded if width else work.singles)
    probability = {}
    began = time.perf_counter()
    with torch.inference_mode():
        for batch in [index] if width else [[i] for i in index]:
            output = model(**padded([rows[i][0] for i in batch], width or len(rows[batch[0]][0].input_ids_T)))
            for i, start_T, end_T in zip(batch, output.start_logits, output.end_logits, strict=True):
                row, candidate_SE = rows[i]
                length = len(row.input_ids_T)  # transformers' logits go on over the padding
                start_T, end_T = start_T[:length].softmax(-1), end_T[:length].softmax(-1)
                probability[i] = [
                    float(p) for first, last in candidate_SE.tolist() for p in (start_T[first], end_T[last])
                ]
    return _turn(time.perf_counter() - began, probability)


SINGLE = "one at a time, float32"
SYSTEMS: dict[str, Callable[[Work], Turn]] = {
    "interventune": partial(run_interventune, "bfloat16"),
    "interventune, float32": partial(run_interventune, "float32"),
    SINGLE: partial(run_transformers, 0),
    f"batches padded to {WIDTH}, float32": partial(run_transformers, WIDTH),
}


@lru_cache(maxsize=2)
def predictor_of(work: Work, dtype: Literal["float32", "bfloat16"]) -> QuestionCheckpoint:
    """Loaded once in a process."""
    return QuestionCheckpoint(work.folder, Asking(device="cpu", dtype=dtype))


@lru_cache(maxsize=1)
def their_model(work: Work) -> Any:
    """As it comes."""
    from transformers import AutoModelForQuestionAnswering

    return AutoModelForQuestionAnswering.from_pretrained(work.folder).eval()


@lru_cache(maxsize=1)
def tokenised(work: Work) -> GroupSet:
    """All groups, as `group_log_probs` makes them."""
    predictor = predictor_of(work, "32")
    return GroupSet(groups_of(work), predictor.tokenizer, predictor.encoding)


@lru_cache(maxsize=1)
def tokenised_rows(work: Work) -> list[tuple[EncodedRow, np.ndarray]]:
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


def padded(rows: list[EncodedRow], width: int) -> dict[str, Tensor]:
    """Rows padded to `width`."""
    inputs = {name: torch.zeros(len(rows), width, dtype=torch.long) for name in NAMES}
    for b, row in enumerate(rows):
        length = len(row.input_ids_T)
        for name, value in zip(NAMES, (row.input_ids_T, row.token_type_ids_T, 1), strict=True):
            inputs[name][b, :length] = torch.as_tensor(value)
    return inputs


NAMES = ("input_ids", "token_type_ids", "attention_mask")


def difference(one: dict[int, list[float]], two: dict[int, list[float]]) -> float:
    """The largest difference between probabilities that both have."""
    shared = one.keys() & two.keys()
    return max((abs(p - q) for i in shared for p, q in zip(one[i], two[i], strict=True)), default=0.0)
