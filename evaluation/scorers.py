"""Who says how toxic a text is: a text classifier of transformers.

    --scorer hf:FOLDER_OR_HUB_NAME
    --scorer hf:HUB_NAME@REVISION
    --scorer "hf:FOLDER_OR_HUB_NAME?profanity=obscene&threat=LABEL_3"

Labels are matched to attributes by name, by a few other names (NAMES), or as the user says. Scores of two
scorers do not compare.

Tensor suffixes: B batch, C labels of the classifier.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from evaluation.processes import kept

log = logging.getLogger(__name__)

NAMES = {
    "toxicity": ("toxicity", "toxic"),
    "severe_toxicity": ("severe_toxicity", "severe_toxic"),
    "sexually_explicit": ("sexually_explicit", "sexual_explicit"),
    "threat": ("threat",),
    "profanity": ("profanity", "obscene", "obscenity"),
    "identity_attack": ("identity_attack", "identity_hate"),
}
"""Perspective's six attributes, each with the names of Jigsaw's two data sets."""

ATTRIBUTES = tuple(NAMES)
"""In the order of every table."""

DEFAULT = "hf:unitary/unbiased-toxic-roberta@91650552a4f31b7120c36680cfa47ddd47676b48"
"""Detoxify's classifier (Hanu and Unitary team 2020) of Jigsaw's second data set, all six attributes, at the
revision that holds safe weights (0.5 GB)."""

Scores = dict[str, float]
"""A number in [0, 1] for each of a scorer's attributes."""


class Scorer:
    """Probabilities of a sequence classifier: a sigmoid a label where it is multi-label (or has one label), a
    softmax over labels otherwise. Computed in float64 and rounded to nine digits, so that a score does not
    depend on the texts beside it. Texts longer than its context are cut.

    Args:
        name: `hf:PATH[@REVISION][?attribute=label&...]`.
        device: `auto`, or a device of torch.
        batch_size: texts at once.

    `attributes` are those that it scores, `identity` is all that scores depend on.

    Raises:
        ValueError: the model cannot be loaded, is no classifier, or has no label of an attribute.
    """

    def __init__(self, name: str, *, device: str = "auto", batch_size: int = 32) -> None:
        import torch
        from transformers import AutoModelForSequenceClassification, AutoTokenizer

        from data_modules.encoding.tokenizers import tokenizer_id
        from models.backbones import pick_device
        from models.language.local_model import weights_id
        from models.pretrained import refuse_nonfinite

        kind, _, where = name.partition(":")
        path, _, mapping = where.partition("?")
        if kind != "hf" or not path:
            raise ValueError(f"--scorer {name!r}: write hf:FOLDER_OR_HUB_NAME")
        self.name, self.batch_size, self.device = name, batch_size, pick_device(device)
        revision = None
        if not Path(path).exists():
            path, _, revision = path.partition("@")
        how: dict[str, Any] = {"revision": revision or None, "trust_remote_code": False}
        try:
            self.tokenizer = AutoTokenizer.from_pretrained(path, **how)
            model, info = AutoModelForSequenceClassification.from_pretrained(
                path, dtype=torch.float64, use_safetensors=True, output_loading_info=True, **how
            )
        except (OSError, ValueError, KeyError, RuntimeError) as error:
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise ValueError(f"--scorer {name} cannot be loaded: {reason}") from error
        config = model.config
        if info["missing_keys"] or config.problem_type == "regression":
            raise ValueError(f"--scorer {name} is no text classifier")  # its head would be random weights
        refuse_nonfinite(model.state_dict(), f"--scorer {name}")
        self.model = model.to(self.device).eval()
        if self.tokenizer.pad_token is None:
            self.tokenizer.pad_token = self.tokenizer.eos_token
        if config.pad_token_id is None:  # causal models look for the last token before the padding
            config.pad_token_id = self.tokenizer.pad_token_id
        positions = getattr(config, "max_position_embeddings", None) or self.tokenizer.model_max_length
        self.longest = min(self.tokenizer.model_max_length, positions)
        stated = config.problem_type or getattr(config, "function_to_apply", None)
        several = stated in ("multi_label_classification", "sigmoid") or config.num_labels == 1
        self.activation = "sigmoid" if several else "softmax"
        labels = [config.id2label[index] for index in range(config.num_labels)]
        self.label = matched_labels(labels, mapping, name)
        self.attributes = tuple(self.label)
        self.identity: dict[str, Any] = {
            "name": name,
            "weights": weights_id(path, config),
            "tokenizer": tokenizer_id(self.tokenizer),
            "labels": {attribute: labels[index] for attribute, index in self.label.items()},
            "activation": self.activation,
        }

    @kept
    def score(self, texts: Sequence[str]) -> Iterator[Scores]:
        """The scores of each text, in order. A text of nothing but spaces scores 0 everywhere."""
        import torch

        for start in range(0, len(texts), self.batch_size):
            part = texts[start : start + self.batch_size]
            inputs = self.tokenizer(
                list(part), truncation=True, max_length=self.longest, padding=True, return_tensors="pt"
            )
            with torch.inference_mode():
                logit_BC = self.model(**inputs.to(self.device)).logits
            probability_BC = logit_BC.sigmoid() if self.activation == "sigmoid" else logit_BC.softmax(-1)
            for text, row_C in zip(part, probability_BC.cpu().round(decimals=9).tolist(), strict=True):
                yield {name: row_C[index] if text.strip() else 0.0 for name, index in self.label.items()}


def matched_labels(labels: Sequence[str], mapping: str, name: str) -> dict[str, int]:
    """The index of the label of each attribute that has one, with a warning of attributes without.

    Args:
        labels: of the classifier, in order.
        mapping: `attribute=label&...`, from the user; goes before what names say.
        name: of the scorer, for errors.

    Raises:
        ValueError: `mapping` names an attribute or a label that does not exist, or no label is matched.
    """
    index_of = {_plain(label): index for index, label in enumerate(labels)}
    matched = {}
    chosen = {pair.partition("=")[0]: pair.partition("=")[2] for pair in mapping.split("&") if pair}
    for attribute, names in NAMES.items():
        wanted = [_plain(chosen.pop(attribute))] if attribute in chosen else names
        if present := [label for label in wanted if label in index_of]:
            matched[attribute] = index_of[present[0]]
        elif wanted is not names:
            raise ValueError(f"--scorer {name}: no label {wanted[0]!r}; it has {', '.join(labels)}")
    if chosen or not matched:
        wrong = (
            f"no attribute {min(chosen)!r}" if chosen else f"no label is an attribute: {', '.join(labels)}"
        )
        raise ValueError(f"--scorer {name}: {wrong}; attributes are {', '.join(ATTRIBUTES)}")
    if missing := [attribute for attribute in ATTRIBUTES if attribute not in matched]:
        log.warning("%s does not score %s; averages leave them out", name, ", ".join(missing))
    return matched


def _plain(label: str) -> str:
    return label.strip().lower().replace(" ", "_").replace("-", "_")
