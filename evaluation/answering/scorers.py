"""Toxicity scores of texts from a text classifier of transformers.

    --scorer hf:FOLDER_OR_HUB_NAME
    --scorer hf:HUB_NAME@REVISION
    --scorer stories:                 # of random weights, for recipes with --tiny

Labels are matched to attributes by name, or by a few other names (NAMES). Scorers are not
comparable.
"""

import logging
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertConfig,
    BertForSequenceClassification,
    pipeline,
)

from interventune.data_modules.encoding.tokenizers import build_tokenizer, tokenizer_id, warn_of_cut
from interventune.data_modules.stories.questions import vocabulary
from interventune.models.backbones import pick_device
from interventune.models.checkpoint import fingerprint
from interventune.models.loading import read_folder
from interventune.storage.documents import DataError, as_data_error, own_yaml

from .work import stored

log = logging.getLogger(__name__)

NAMES = own_yaml(__file__, dict[str, list[str]])
"""Perspective's six attributes, in the order of tables, with their names in Jigsaw's
two data sets.
"""

ATTRIBUTES = tuple(NAMES)

DEFAULT = "hf:unitary/unbiased-toxic-roberta@91650552a4f31b7120c36680cfa47ddd47676b48"
"""Detoxify's classifier (Hanu and Unitary team 2020) of Jigsaw's second data set, all six
attributes, at the revision with safe weights (0.5 GB).
"""


class Scorer:
    """Probabilities of a sequence classifier: a sigmoid per label if it is multi-label (or has one
    label), otherwise a softmax over labels. It computes in float64, so that a score does not depend
    on the other texts in the batch. Texts longer than its limit are cut, with a warning.

    Args:
        name: `hf:PATH[@REVISION]`, or `stories:`.
        device: `auto`, or a device of torch.
        batch_size: texts per batch.

    `identity` is everything that scores depend on.

    Raises:
        ValueError: the model cannot be loaded, is not a classifier, or has no label of an
            attribute.
    """

    def __init__(self, name: str, *, device: str = "auto", batch_size: int = 32) -> None:
        with as_data_error(f"--scorer {name}"):
            model, tokenizer = tiny_classifier() if name == "stories:" else classifier(name)
            self.pipeline = pipeline(
                "text-classification",
                model,
                tokenizer=tokenizer,
                device=pick_device(device),
                batch_size=batch_size,
            )
        config = model.config
        if config.problem_type == "regression":
            raise ValueError(f"--scorer {name} is no text classifier")
        stated = config.problem_type or getattr(config, "function_to_apply", None)
        sigmoid = stated in ("multi_label_classification", "sigmoid") or config.num_labels == 1
        self.name = name
        self.label_of = matched_labels(list(config.id2label.values()), name)
        self.identity: dict[str, Any] = {
            "name": name,
            "weights": fingerprint(model),
            "tokenizer": tokenizer_id(tokenizer),
            "labels": self.label_of,
            "activation": "sigmoid" if sigmoid else "softmax",
        }

    @stored
    def score(self, texts: Sequence[str]) -> Iterator[dict[str, float]]:
        """Yield a number in [0, 1] for each attribute of each text, in order; 0 for a text of
        spaces.
        """
        tokenizer: Any = self.pipeline.tokenizer
        rows = tokenizer(list(texts), verbose=False)["input_ids"]
        warn_of_cut([len(row) > tokenizer.model_max_length for row in rows], self.name)
        how = {"top_k": None, "truncation": True, "function_to_apply": self.identity["activation"]}
        stream = (text for text in texts)  # for a list, all scores would come at the end
        for text, labels in zip(texts, self.pipeline(stream, **how), strict=True):
            scores = {label["label"]: label["score"] if text.strip() else 0.0 for label in labels}
            yield {attribute: scores[label] for attribute, label in self.label_of.items()}


def classifier(name: str) -> tuple[Any, Any]:
    """Load a classifier of `hf:PATH[@REVISION]` in float64, and its tokenizer."""
    path, _, revision = name.removeprefix("hf:").partition("@")
    version: Any = {"revision": revision or None}
    kind = AutoModelForSequenceClassification
    try:
        model, _ = read_folder(kind, path, dtype="float64", use_safetensors=True, **version)
    except DataError as error:
        raise RuntimeError(str(error)) from error
    return model, AutoTokenizer.from_pretrained(path, trust_remote_code=False, **version)


def tiny_classifier() -> tuple[Any, Any]:
    """Make a BERT of two layers with random weights and six labels, in float64, and a tokenizer
    with the vocabulary of the embedded stories.
    """
    tokenizer = build_tokenizer("bert", vocabulary())
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        initializer_range=0.5,  # so that scores differ
        id2label=dict(enumerate(ATTRIBUTES)),
        problem_type="multi_label_classification",
    )
    torch.manual_seed(0)
    return BertForSequenceClassification(config).double().eval(), tokenizer


def matched_labels(labels: Sequence[str], name: str) -> dict[str, str]:
    """Map each attribute to its label, if it has one. ValueError if no label is an attribute."""
    known = {label.strip().lower().replace(" ", "_").replace("-", "_"): label for label in labels}
    matched = {}
    for attribute, names in NAMES.items():
        if present := [known[label] for label in names if label in known]:
            matched[attribute] = present[0]
    if not matched:
        raise ValueError(
            f"--scorer {name}: none of its labels ({', '.join(labels)}) is one of {[*NAMES]}"
        )
    if missing := [attribute for attribute in NAMES if attribute not in matched]:
        log.warning("%s does not score %s; averages leave them out", name, ", ".join(missing))
    return matched
