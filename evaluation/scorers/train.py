"""Train a scorer that needs no download.

    python -m evaluation train-scorer --input LABELLED.jsonl --output scorer.json
    python -m evaluation train-scorer --input A.jsonl B.jsonl --label toxicity=challenging --output s.json

One logistic regression an attribute, on words and pieces of words. Part of the texts is held out; what is
measured on it is printed, kept in the file, and shown in every report that the scorer serves.
Array suffixes: N texts, A attributes, F features.
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evaluation.scorers.scorers import ATTRIBUTES, SYNONYMS

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from data_modules.tasks.labelled_texts import LabelledTexts
    from evaluation.old_tables import Table
    from evaluation.scorers.embedded import EmbeddedModel

logger = logging.getLogger(__name__)

FEATURES = (("word", (1, 2)), ("char_wb", (2, 5)))
"""Words and pairs of words; pieces of words, which see through misspellings."""

INVERSE_REGULARISATION = 10.0
POSITIVE = 0.5
"""Labels and scores from here on count as positive."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--input",
        nargs="+",
        required=True,
        metavar="FILE",
        help='JSONL rows {"text": ..., "toxicity": 0.9, ...}; the text may stand inside "prompt"',
    )
    parser.add_argument("--output", type=Path, required=True, metavar="FILE", help="the scorer, as JSON")
    parser.add_argument("--overwrite", action="store_true", help="replace FILE")
    parser.add_argument(
        "--label",
        nargs="+",
        default=[],
        metavar="ATTRIBUTE=FIELD",
        help="train these attributes only, each from the field named (default: every attribute from the "
        f"field of its name, or of {', '.join(SYNONYMS)})",
    )
    parser.add_argument("--text-field", default="text", metavar="FIELD", help="(default: text)")
    parser.add_argument(
        "--held-out", type=float, default=0.2, metavar="P", help="share of texts to measure on (default: 0.2)"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the choice of held-out texts (default: 0)")
    parser.add_argument(
        "--max-features",
        type=int,
        default=20000,
        metavar="N",
        help="most frequent words, and as many pieces of words (default: 20000)",
    )


def run(args: argparse.Namespace) -> None:
    from data_modules.tasks.labelled_texts import read_labelled_texts
    from evaluation.old_tables import print_table
    from evaluation.scorers.embedded import write_model

    fields = label_fields(args.label)
    if not 0 < args.held_out < 1:
        raise ValueError(f"--held-out {args.held_out}: must lie between 0 and 1")
    if args.max_features < 1:
        raise ValueError(f"--max-features {args.max_features}: must be at least 1")
    if args.seed < 0:
        raise ValueError(f"--seed {args.seed}: must not be negative")
    if args.output.is_dir() or (args.output.exists() and not args.overwrite):
        raise ValueError(f"--output {args.output}: exists; name a new file or add --overwrite")
    folder = args.output.absolute().parent
    if not folder.is_dir():
        raise ValueError(f"--output {args.output}: the folder {folder} does not exist; create it first")
    data = read_labelled_texts(args.input, fields, text_field=args.text_field)
    model = train(
        data,
        labelled_attributes(data, fields, args),
        held_out=args.held_out,
        seed=args.seed,
        max_features=args.max_features,
        trained=_trained(args, data),
    )
    write_model(model, args.output)
    print_table(quality_table(model))
    print(f"scorer: {args.output}")


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
    data: LabelledTexts, fields: dict[str, tuple[str, ...]], args: argparse.Namespace
) -> tuple[str, ...]:
    """The attributes that rows have labels of. The others are told; ValueError if `--label` names them."""
    absent = [name for name, column in data.labels.items() if all(label is None for label in column)]
    present = tuple(name for name in fields if name not in absent)
    files = ", ".join(args.input)
    if args.label and absent:
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
    from evaluation.old_tables import Table

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


def _trained(args: argparse.Namespace, data: LabelledTexts) -> dict[str, Any]:
    from importlib.metadata import version

    from evaluation.old_report import fingerprint

    return {
        "inputs": [{"path": str(path), "sha256": fingerprint(Path(path))} for path in args.input],
        "label": list(args.label),
        "texts": len(data.texts),
        "rows": data.rows,
        "held_out": args.held_out,
        "seed": args.seed,
        "max_features": args.max_features,
        "inverse_regularisation": INVERSE_REGULARISATION,
        "scikit_learn": version("scikit-learn"),
    }
