"""Questions with SQuAD's mix of lengths, drawn anew for every repetition and the same for every system."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from data_modules.encoding.windows import Encoding
from data_modules.records import write_records
from data_modules.schema import QAExample, Span
from data_modules.stories.word_tokenizer import build_tokenizer

ENCODING = Encoding(max_length=384)
"""What run_qa.py takes by default, and what all systems get."""
VOCABULARY = 30_522
"""Rows of the embedding table of BERT's and MiniLM's models."""
SPECIAL_TOKENS = 7
"""At most so many special tokens has an architecture."""
QUESTION_WORDS = 12
"""Tokens of the median question."""
_BIN = 8
# Windows of 11,877 questions of SQuAD 1.1 (44 articles of its training part) in BERT's uncased vocabulary,
# with ENCODING, by `length // 8`; the last bin is 384, where long contexts are cut. Mean 160.9.
_HISTOGRAM = np.fromstring(
    "0 0 0 0 4 54 195 228 284 383 378 464 532 557 634 565 676 597 569 610 493 505 536 465 364 385 309 208 "
    "187 224 209 165 188 166 105 79 77 80 81 59 52 45 34 43 19 24 20 24 146",
    dtype=np.int64,
    sep=" ",
)


@dataclass(frozen=True)
class Workload:
    """Files of questions, and how long their windows are.

    Args:
        tokenizer: folder of the tokenizer that all systems use.
        files: one file in SQuAD's format for every draw.
        lengths: of every draw, the tokens of each of its windows.
    """

    tokenizer: str
    files: tuple[Path, ...]
    lengths: tuple[tuple[int, ...], ...]


def make_workload(
    folder: Path,
    *,
    draws: Sequence[int],
    architecture: str = "bert",
    vocabulary: int = VOCABULARY,
    seed: int = 0,
) -> Workload:
    """Write `draws` as files into `folder`.

    Args:
        folder: an existing folder.
        draws: how many questions each file holds.
        architecture: row of the table of backbones, for the special tokens.
        vocabulary: how many different tokens there are at most.
        seed: of all draws.
    """
    from transformers import AutoTokenizer

    rng = np.random.default_rng(seed)
    words = (f"w{i}" for i in range(vocabulary - SPECIAL_TOKENS))
    build_tokenizer(architecture, words).save_pretrained(folder / "tokenizer")
    special = AutoTokenizer.from_pretrained(folder / "tokenizer").num_special_tokens_to_add(pair=True)
    files, lengths = [], []
    for turn, count in enumerate(draws):
        lengths.append(tuple(sample_lengths(count, rng).tolist()))
        files.append(folder / f"draw_{turn}.json")
        write_records(questions([n - special for n in lengths[-1]], vocabulary, rng), files[-1])
    return Workload(str(folder / "tokenizer"), tuple(files), tuple(lengths))


def sample_lengths(count: int, rng: np.random.Generator) -> np.ndarray:
    """Lengths of windows with SQuAD's mix, uniform within a bin."""
    bins = rng.choice(len(_HISTOGRAM), count, p=_HISTOGRAM / _HISTOGRAM.sum())
    return np.minimum(bins * _BIN + rng.integers(0, _BIN, count), ENCODING.max_length)


def questions(lengths: Sequence[int], vocabulary: int, rng: np.random.Generator) -> list[QAExample]:
    """Questions of made-up words, `lengths` with their contexts, whose answer is a word of the context."""
    examples = []
    for i, length in enumerate(lengths):
        drawn = [f"w{word}" for word in rng.integers(0, vocabulary - SPECIAL_TOKENS, length)]
        question, context = drawn[:QUESTION_WORDS], drawn[QUESTION_WORDS:]
        at = int(rng.integers(len(context)))
        start = sum(len(word) + 1 for word in context[:at])
        answer = Span(start, start + len(context[at]), context[at])
        examples.append(QAExample(f"q{i}", " ".join(context), " ".join(question), (answer,), dataset="squad"))
    return examples
