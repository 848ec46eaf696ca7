"""Train a scorer that needs no download.

    python -m evaluation train-scorer --input LABELLED.jsonl --output scorer.json
    python -m evaluation train-scorer --input A.jsonl B.jsonl --label toxicity=challenging --output s.json

One logistic regression an attribute, on words and pieces of words. Part of the texts is held out; what is
measured on it is printed, kept in the file, and shown in every report that the scorer serves.
Array suffixes: N texts, A attributes, F features.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from evaluation.scorers.interface import ATTRIBUTES, SYNONYMS
from storage.command_line import AtLeast, Count

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from data_modules.tasks.labelled_texts import LabelledTexts
    from evaluation.scorers.embedded import EmbeddedModel
    from evaluation.views import Table

logger = logging.getLogger(__name__)

FEATURES = (("word", (1, 2)), ("char_wb", (2, 5)))
"""Words and pairs of words; pieces of words, which see through misspellings."""

INVERSE_REGULARISATION = 10.0
POSITIVE = 0.5
"""Labels and scores from here on count as positive."""


def run(
    *,
    input: list[Annotated[str, "FILE"]],
    output: Path,
    overwrite: bool = False,
    label: list[Annotated[str, "ATTRIBUTE=FIELD"]] | None = None,
    text_field: str = "text",
    held_out: float = 0.2,
    seed: Annotated[int, AtLeast(0)] = 0,
    max_features: Count = 20000,
) -> None:
    """A scorer of toxicity from labelled texts.

    Args:
        input: JSONL rows {"text": ..., "toxicity": 0.9, ...}; the text may stand inside "prompt".
        output: the scorer, as JSON.
        overwrite: replace the file.
        label: train these attributes only, each from the field named (default: every attribute from the field
            of its name, or of its other names, such as obscene).
        text_field: where the text stands.
        held_out: share of texts to measure on.
        seed: of the choice of held-out texts.
        max_features: most frequent words, and as many pieces of words.
    """
    from data_modules.tasks.labelled_texts import read_labelled_texts
    from evaluation.report import fingerprint
    from evaluation.scorers.embedded import write_model
    from evaluation.views import print_table

    fields = label_fields(label or [])
    if not 0 < held_out < 1:
        raise ValueError(f"--held-out {held_out}: must lie between 0 and 1")
    if output.is_dir() or (output.exists() and not overwrite):
        raise ValueError(f"--output {output}: exists; name a new file or add --overwrite")
    folder = output.absolute().parent
    if not folder.is_dir():
        raise ValueError(f"--output {output}: the folder {folder} does not exist; create it first")
    data = read_labelled_texts(input, fields, text_field=text_field)
    trained = {
        "inputs": [{"path": path, "sha256": fingerprint(Path(path))} for path in input],
        "label": label or [],
        "texts": len(data.texts),
        "rows": data.rows,
        "held_out": held_out,
        "seed": seed,
        "max_features": max_features,
        "inverse_regularisation": INVERSE_REGULARISATION,
        "scikit_learn": version("scikit-learn"),
    }
    attributes = labelled_attributes(data, fields, input, label or [])
    model = train(data, attributes, held_out=held_out, seed=seed, max_features=max_features, trained=trained)
    write_model(model, output)
    print_table(quality_table(model))
    print(f"scorer: {output}")


def label_fields(labels: list[str]) -> dict[str, tuple[str, ...]]:
    """The fields that each attribute may stand in, from the values of `--label`; by default those of its name
    and its SYNONYMS."""
    if not labels:
        return {
            name: (name, *(other for other, meant in SYNONYMS.items() if meant == name))
            for name in ATTRIBUTES
        }
    pairs = [label.partition("=")[::2] for label in labels]
    for label, (name, field) in zip(labels, pairs, strict=True):
        if name not in ATTRIBUTES or not field:
            raise ValueError(
                f"--label {label!r}: write ATTRIBUTE=FIELD, ATTRIBUTE one of {', '.join(ATTRIBUTES)}"
            )
    if len(dict(pairs)) < len(pairs):
        raise ValueError("--label: names an attribute twice")
    return {name: (dict(pairs)[name],) for name in ATTRIBUTES if name in dict(pairs)}


def labelled_attributes(
    data: LabelledTexts, fields: dict[str, tuple[str, ...]], paths: Sequence[str], labels: Sequence[str]
) -> tuple[str, ...]:
    """The attributes that rows have labels of. The others are told; ValueError if `--label` names them."""
    absent = [name for name, column in data.labels.items() if all(label is None for label in column)]
    present = tuple(name for name in fields if name not in absent)
    files = ", ".join(paths)
    if labels and absent:
        raise ValueError(f"--label {absent[0]}={fields[absent[0]][0]}: no row of {files} has this field")
    if not present:
        raise ValueError(
            f"{files}: no row has a field {', '.join(ATTRIBUTES)}; name fields with --label ATTRIBUTE=FIELD"
        )
    if absent:
        logger.warning("no row has labels of %s: the scorer will not score them", ", ".join(absent))
    if data.unlabelled:
        logger.warning("%d of %d rows have no label and are left out", data.unlabelled, data.rows)
    return present


def train(
    data: LabelledTexts,
    attributes: tuple[str, ...],
    *,
    held_out: float,
    seed: int,
    max_features: int,
    trained: dict[str, Any] | None = None,
) -> EmbeddedModel:
    """Fit on one part, measure on the other.

    Args:
        data: distinct texts with labels.
        attributes: which to learn, in the order of ATTRIBUTES.
        held_out: share of texts to measure on.
        seed: of that choice.
        max_features: of each of FEATURES.
        trained: what to keep about the data.

    Raises:
        ValueError: an attribute has positive or negative texts only, here or there.
    """
    import numpy as np
    import scipy.sparse
    from sklearn.linear_model import LogisticRegression

    from evaluation.scorers.embedded import EmbeddedModel, vectorizer

    label_NA = np.array([data.labels[name] for name in attributes], dtype=np.float64).T
    _check_classes(attributes, label_NA, "the labels")
    test_N = held_out_rows(label_NA, held_out, seed)
    for part_N, what in ((~test_N, "the texts to learn from"), (test_N, "the held-out texts")):
        _check_classes(attributes, label_NA[part_N], what)
    made = tuple(vectorizer(kind, ngrams, max_features=max_features) for kind, ngrams in FEATURES)
    try:
        x_NF = scipy.sparse.hstack(
            [v.fit_transform(_chosen(data.texts, ~test_N)) for v in made], format="csr"
        )
    except ValueError as error:  # texts without a single word
        raise ValueError(f"--input: no features in the texts ({error})") from error
    coef, intercept = [], []
    for a in range(len(attributes)):
        y_N = label_NA[~test_N, a]
        known_N = ~np.isnan(y_N)
        fitted = LogisticRegression(C=INVERSE_REGULARISATION, max_iter=1000)
        fitted.fit(x_NF[known_N], y_N[known_N] >= POSITIVE)
        coef.append(fitted.coef_[0])
        intercept.append(fitted.intercept_[0])
    model = EmbeddedModel(attributes, made, np.stack(coef), np.array(intercept), {}, trained or {})
    model.quality.update(quality(model, _chosen(data.texts, test_N), label_NA[test_N]))
    return model


def held_out_rows(label_NA: NDArray[np.float64], share: float, seed: int) -> NDArray[np.bool_]:
    """Which rows to hold out: every 1/share-th of them in the order of their labels, and at random among
    equals, so that both parts have as many positive texts as they should. (N,)"""
    import numpy as np

    rng = np.random.default_rng(seed)
    n = len(label_NA)
    kinds_NA = np.where(np.isnan(label_NA), -1, label_NA >= POSITIVE)
    order = np.lexsort((rng.random(n), *kinds_NA.T))
    size = min(n - 1, max(1, round(n * share)))
    chosen = np.floor((np.arange(size) + rng.random()) * n / size).astype(int)
    test_N = np.zeros(n, dtype=bool)
    test_N[order[chosen]] = True
    return test_N


def quality(
    model: EmbeddedModel, texts: Sequence[str], label_NA: NDArray[np.float64]
) -> dict[str, dict[str, float | int]]:
    """Per attribute, on the texts with a label: their number, the share of positives, area under the ROC
    curve, average precision, and F1 at .5."""
    import numpy as np
    from sklearn.metrics import average_precision_score, f1_score, roc_auc_score

    score_NA = model.probabilities(texts)
    result: dict[str, dict[str, float | int]] = {}
    for a, name in enumerate(model.attributes):
        known_N = ~np.isnan(label_NA[:, a])
        truth_N, score_N = label_NA[known_N, a] >= POSITIVE, score_NA[known_N, a]
        result[name] = {
            "n": int(known_N.sum()),
            "roc_auc": float(roc_auc_score(truth_N, score_N)),
            "average_precision": float(average_precision_score(truth_N, score_N)),
            "f1": float(f1_score(truth_N, score_N >= POSITIVE)),
            "base_rate": float(truth_N.mean()),
        }
    return result


def quality_table(model: EmbeddedModel) -> Table:
    """What was measured on the held-out texts."""
    from evaluation.views import Table

    header = ("", "n", "base rate", "ROC AUC", "average precision", "F1")
    keys = ("n", "base_rate", "roc_auc", "average_precision", "f1")
    rows = tuple((name, *(found[key] for key in keys)) for name, found in model.quality.items())
    return Table("Held-out texts", header, rows)


def _chosen(texts: Sequence[str], which_N: NDArray[np.bool_]) -> list[str]:
    return [text for text, chosen in zip(texts, which_N, strict=True) if chosen]


def _check_classes(attributes: tuple[str, ...], label_NA: NDArray[np.float64], what: str) -> None:
    for a, name in enumerate(attributes):
        positive, negative = (
            int((part).sum()) for part in (label_NA[:, a] >= POSITIVE, label_NA[:, a] < POSITIVE)
        )
        if not positive or not negative:
            raise ValueError(
                f"{name}: {what} hold {positive} positive and {negative} negative texts, and both are "
                "needed; give more rows, or leave the attribute out with --label"
            )
