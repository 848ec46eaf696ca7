"""A scorer in one file: words and pieces of words, weighted by logistic regression.

    python -m evaluation train-scorer --input LABELLED.jsonl --output scorer.json
    python -m evaluation consistency ... --scorer embedded:scorer.json

The file is JSON, so that reading a stranger's runs nothing: terms, their document frequencies, weights, and
what was measured on held-out texts. Array suffixes: N texts, A attributes, F features.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.feature_extraction.text import TfidfVectorizer

from evaluation.report import fingerprint
from evaluation.scorers.interface import (
    ATTRIBUTES,
    ScoreFailure,
    Scores,
    around_empty,
    attributes_of,
    batches,
)
from storage.errors import DataError
from storage.files import atomic_text
from storage.json_files import field, load_json

FORMAT = "interventune-scorer"
VERSION = 1
# In the order of the file.
QUALITY = ("roc_auc", "average_precision", "f1", "base_rate")

_BATCH = 256
_MAX_NGRAM = 8
_ANALYZERS = ("word", "char_wb")


@dataclass(frozen=True)
class EmbeddedModel:
    """The parameters: P(attribute | text) = sigmoid(coef . tfidf(text) + intercept).

    Args:
        attributes: A of ATTRIBUTES, in their order.
        vectorizers: fitted, their features side by side: F in all.
        coef_AF: weights.
        intercept_A: biases.
        quality: per attribute what was measured on held-out texts: QUALITY and N as `n`.
        trained: on what, and how; plain JSON.
    """

    attributes: tuple[str, ...]
    vectorizers: tuple[TfidfVectorizer, ...]
    coef_AF: NDArray[np.float64]
    intercept_A: NDArray[np.float64]
    quality: dict[str, dict[str, float | int]]
    trained: dict[str, Any]

    def probabilities(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """(N, A), each in [0, 1]; a text's row does not depend on the others."""
        x_NF = scipy.sparse.hstack([v.transform(texts) for v in self.vectorizers], format="csr")
        return expit(x_NF @ self.coef_AF.T + self.intercept_A)


class EmbeddedScorer:
    """A file of `train-scorer` as a scorer.

    Args:
        path: the file.
        attributes: which to score; empty for all six.

    Raises:
        ValueError: the file is damaged, or lacks attributes.
    """

    def __init__(self, path: str, *, attributes: tuple[str, ...] = ()) -> None:
        self.name = f"embedded:{path}"
        self.model = read_model(Path(path))
        self.version = fingerprint(Path(path))
        self.attributes = attributes_of(self.name, self.model.attributes, attributes)

    def about(self) -> dict[str, Any]:
        """With the quality on held-out texts."""
        return {
            "name": self.name,
            "version": self.version,
            "attributes": list(self.attributes),
            "held_out": {name: self.model.quality[name] for name in self.attributes},
            "trained": self.model.trained,
        }

    def score(self, texts: Sequence[str]) -> Iterator[Scores | ScoreFailure]:
        """See `Scorer`."""
        return around_empty(texts, self.attributes, self._scored(texts))

    def _scored(self, texts: Sequence[str]) -> Iterator[Scores]:
        columns = [(name, self.model.attributes.index(name)) for name in self.attributes]
        for batch in batches(texts, _BATCH):
            for row_A in self.model.probabilities(batch):
                yield {name: float(row_A[a]) for name, a in columns}


def vectorizer(
    analyzer: str, ngrams: tuple[int, int], *, max_features: int | None = None, terms: list[str] | None = None
) -> TfidfVectorizer:
    """The text features of version 1 of the file: lower case, logarithmic counts, rows of length 1."""
    return TfidfVectorizer(
        analyzer=analyzer,
        ngram_range=ngrams,
        max_features=max_features,
        vocabulary=terms,
        sublinear_tf=True,
    )


def write_model(model: EmbeddedModel, path: Path) -> None:
    """The whole file or none. DataError where it cannot be written."""
    features = [
        {
            "analyzer": v.analyzer,
            "ngrams": list(v.ngram_range),
            "terms": v.get_feature_names_out().tolist(),
            "idf": v.idf_.tolist(),
        }
        for v in model.vectorizers
    ]
    weights = {
        name: {"intercept": float(model.intercept_A[a]), "coef": model.coef_AF[a].tolist()}
        for a, name in enumerate(model.attributes)
    }
    document = {
        "format": FORMAT,
        "version": VERSION,
        "held_out": model.quality,
        "trained": model.trained,
        "weights": weights,
        "features": features,
    }
    with atomic_text(path) as file:
        json.dump(document, file, allow_nan=False)
        file.write("\n")


def read_model(path: Path) -> EmbeddedModel:
    """The parameters in a file; everything is checked.

    Raises:
        DataError: it is no such file, of another version, or damaged.
    """
    document = load_json(path)
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise DataError(f"{path}: no scorer; make one with python -m evaluation train-scorer")
    if field(document, "version", int, str(path)) != VERSION:
        raise DataError(
            f"{path}: version {document['version']} of the format, where this program reads {VERSION}; "
            "train the scorer anew"
        )
    try:
        vectorizers = tuple(
            _vectorizer(part, f"features[{i}]")
            for i, part in enumerate(field(document, "features", list, "the file"))
        )
        width = sum(len(v.vocabulary_) for v in vectorizers)
        weights = field(document, "weights", dict, "the file")
        names = tuple(name for name in ATTRIBUTES if name in weights)
        if not names or len(names) < len(weights):
            raise DataError(f"weights: must be of some of {', '.join(ATTRIBUTES)}, and of nothing else")
        rows = [_weights(weights[name], width, f"weights of {name}") for name in names]
        quality = {name: _quality(document, name) for name in names}
        trained = field(document, "trained", dict, "the file")
    except DataError as error:
        raise DataError(f"{path}: a damaged scorer: {error}; train it anew") from None
    coef_AF = np.stack([row for row, _ in rows])
    return EmbeddedModel(names, vectorizers, coef_AF, np.array([b for _, b in rows]), quality, trained)


def _vectorizer(part: Any, where: str) -> TfidfVectorizer:
    analyzer = field(part, "analyzer", str, where)
    ngrams = field(part, "ngrams", list, where)
    terms = field(part, "terms", list, where)
    if analyzer not in _ANALYZERS:
        raise DataError(f"{where}: 'analyzer' must be {' or '.join(_ANALYZERS)}")
    whole = all(type(n) is int for n in ngrams)
    if len(ngrams) != 2 or not whole or not 1 <= ngrams[0] <= ngrams[1] <= _MAX_NGRAM:
        raise DataError(f"{where}: 'ngrams' must be two whole numbers from 1 to {_MAX_NGRAM}, in order")
    if not terms or not all(isinstance(term, str) for term in terms) or len(set(terms)) < len(terms):
        raise DataError(f"{where}: 'terms' must be texts, each once")
    made = vectorizer(analyzer, (ngrams[0], ngrams[1]), terms=terms)
    made.idf_ = _numbers(part, "idf", len(terms), where)
    return made


def _weights(part: Any, width: int, where: str) -> tuple[NDArray[np.float64], float]:
    coef_F = _numbers(part, "coef", width, where)
    return coef_F, float(_numbers({"intercept": [part.get("intercept")]}, "intercept", 1, where)[0])


def _numbers(part: Any, name: str, size: int, where: str) -> NDArray[np.float64]:
    values = field(part, name, list, where)
    if len(values) != size:
        raise DataError(f"{where}: {name!r} holds {len(values)} numbers, {size} are expected")
    try:
        if not all(type(value) in (float, int) for value in values):
            raise OverflowError
        array = np.array(values, dtype=np.float64)
        if not np.isfinite(array).all():
            raise OverflowError
    except OverflowError:
        raise DataError(f"{where}: {name!r} must hold finite numbers") from None
    return array


def _quality(document: Any, attribute: str) -> dict[str, float | int]:
    where = f"held_out of {attribute}"
    part = field(field(document, "held_out", dict, "the file"), attribute, dict, "held_out")
    shares = {name: float(_numbers({name: [part.get(name)]}, name, 1, where)[0]) for name in QUALITY}
    return {"n": field(part, "n", int, where), **shares}
