"""Questions with SQuAD's mix of lengths, drawn anew for every repetition and the same for every system."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from data_modules.encoding.windows import Encoding, encode_texts
from data_modules.questions.squad import write_squad
from data_modules.schema import QAExample, Span
from data_modules.sources import read_qa
from storage.errors import DataError

ENCODING = Encoding(max_length=384, stride=128)
"""What run_qa.py takes by default, and what all systems get."""

VOCABULARY = 30_522
"""Rows of the embedding table of BERT's and MiniLM's models."""

_BIN = 8
# Windows of 11,877 questions of SQuAD 1.1 (44 articles of its training part) in BERT's uncased vocabulary,
# with ENCODING, by `length // 8`; the last bin is 384, where long contexts are cut. Mean 160.9.
_HISTOGRAM = np.fromstring(
    "0 0 0 0 4 54 195 228 284 383 378 464 532 557 634 565 676 597 569 610 493 505 536 465 364 385 309 208 "
    "187 224 209 165 188 166 105 79 77 80 81 59 52 45 34 43 19 24 20 24 146",
    dtype=np.int64,
    sep=" ",
)
_QUESTION = 12
"""Tokens of the median question."""


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
    data: str = "",
    architecture: str = "bert",
    vocabulary: int = VOCABULARY,
    seed: int = 0,
) -> Workload:
    """Write `draws` as files into `folder`.

    Args:
        folder: an existing folder.
        draws: how many questions each file holds.
        data: questions to draw from, with replacement only where there are too few; empty makes texts up
            whose lengths have SQuAD's mix.
        architecture: row of the table of backbones, for the special tokens.
        vocabulary: how many different tokens there are at most.
        seed: of all draws.

    Raises:
        DataError: `data` cannot be read or holds no questions.
    """
    from transformers import AutoTokenizer

    rng = np.random.default_rng(seed)
    examples = list(read_qa(data)) if data else []
    if data and not examples:
        raise DataError(f"--data {data}: holds no questions")
    made = _trained(examples, vocabulary, architecture) if data else _made_up(vocabulary, architecture)
    made.save_pretrained(folder / "tokenizer")
    tokenizer = AutoTokenizer.from_pretrained(folder / "tokenizer")
    special = tokenizer.num_special_tokens_to_add(pair=True)
    files, lengths = [], []
    for turn, count in enumerate(draws):
        if data:
            chosen = rng.choice(len(examples), count, replace=count > len(examples))
            # New ids: a question that is drawn twice counts as two.
            drawn = [replace(examples[i], id=f"q{n}") for n, i in enumerate(chosen)]
        else:
            drawn = synthetic(count, vocabulary, special, rng)
        path = folder / f"draw_{turn}.json"
        write_squad(drawn, path)
        files.append(path)
        lengths.append(window_lengths(path, tokenizer) if data else tuple(words(q) + special for q in drawn))
    return Workload(str(folder / "tokenizer"), tuple(files), tuple(lengths))


def window_lengths(path: Path, tokenizer: Any) -> tuple[int, ...]:
    """Tokens of every window of a file of questions."""
    texts = ((example.context, example.question, example.id) for example in read_qa(str(path)))
    return tuple(len(row.input_ids_T) for row in encode_texts(texts, tokenizer, ENCODING))


def sample_lengths(count: int, rng: np.random.Generator) -> np.ndarray:
    """Lengths of windows with SQuAD's mix, uniform within a bin."""
    bins = rng.choice(len(_HISTOGRAM), count, p=_HISTOGRAM / _HISTOGRAM.sum())
    return np.minimum(bins * _BIN + rng.integers(0, _BIN, count), ENCODING.max_length)


def words(example: QAExample) -> int:
    """Words of question and context together, for made-up words as many as tokens."""
    return example.question.count(" ") + example.context.count(" ") + 2


def synthetic(count: int, vocabulary: int, special: int, rng: np.random.Generator) -> list[QAExample]:
    """Questions of made-up words, one window each with its `special` tokens, in SQuAD's mix of lengths."""
    examples = []
    for i, length in enumerate(sample_lengths(count, rng)):
        drawn = [f"w{word}" for word in rng.integers(0, vocabulary - _SPECIAL, length - special)]
        question, context = " ".join(drawn[:_QUESTION]), " ".join(drawn[_QUESTION:])
        at = int(rng.integers(len(drawn) - _QUESTION))
        start = sum(len(word) + 1 for word in drawn[_QUESTION : _QUESTION + at])
        answer = Span(start, start + len(drawn[_QUESTION + at]), drawn[_QUESTION + at])
        examples.append(QAExample(f"q{i}", context, question, (answer,), dataset="squad"))
    return examples


_SPECIAL = 7
"""At most so many special tokens has an architecture."""


def _made_up(vocabulary: int, architecture: str) -> Any:
    from data_modules.stories.word_tokenizer import build_tokenizer

    words = (f"w{i}" for i in range(vocabulary - _SPECIAL))
    return build_tokenizer(architecture, words)  # type: ignore[arg-type]


def _trained(examples: Iterable[QAExample], vocabulary: int, architecture: str) -> Any:
    """A WordPiece vocabulary of the texts themselves, with the special tokens of an architecture."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

    from data_modules.stories.word_tokenizer import LAYOUTS, build_tokenizer

    special = list(dict.fromkeys(LAYOUTS[architecture].special.values()))
    made = build_tokenizer(architecture, [])  # type: ignore[arg-type]
    pieces = Tokenizer(models.WordPiece(unk_token=made.unk_token))
    pieces.normalizer = normalizers.BertNormalizer()
    pieces.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    texts = (text for example in examples for text in (example.context, example.question))
    trainer = trainers.WordPieceTrainer(vocab_size=vocabulary, special_tokens=special, show_progress=False)
    pieces.train_from_iterator(texts, trainer)
    # The trainer numbers the special tokens as the layout does, so that its pair template still holds.
    made.backend_tokenizer.model = pieces.model
    made.backend_tokenizer.normalizer = pieces.normalizer
    return made
