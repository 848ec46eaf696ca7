"""A text classifier as a scorer: transformers' own pipeline, one text at a time, is the oracle."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import BertConfig, BertForSequenceClassification, BertModel, pipeline

from interventune.data_modules.encoding.tokenizers import build_tokenizer
from interventune.data_modules.stories.questions import vocabulary
from interventune.evaluation.answering.scorers import ATTRIBUTES, Scorer, matched_labels

JIGSAW = ("toxic", "severe_toxic", "obscene", "threat", "insult", "identity_hate")
CIVIL = ("Toxicity", "severe toxicity", "obscene", "threat", "identity_attack", "sexual_explicit")
TEXTS = ("the pilot", " ", "a red hat met the baker under the tea and the pilot", "tea . tea ?")


def save(folder: Path, labels: Sequence[str], **config: Any) -> Path:
    """Random weights, large enough that scores differ."""
    torch.manual_seed(1)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "vocab_size": 320}
    layers = {"num_hidden_layers": 2, "num_attention_heads": 2, "initializer_range": 0.3}
    names = {"id2label": dict(enumerate(labels))}
    model = BertForSequenceClassification(BertConfig(**{**sizes, **layers, **names, **config}))
    model.save_pretrained(folder)
    build_tokenizer("bert", vocabulary()).save_pretrained(folder)
    return folder


@pytest.mark.parametrize(
    ("labels", "config", "function"),
    [
        (CIVIL, {"problem_type": "multi_label_classification"}, "sigmoid"),
        (CIVIL, {"function_to_apply": "sigmoid"}, "sigmoid"),  # as the default scorer says it
        (("neutral", "toxic"), {}, "softmax"),
    ],
)
def test_scores_are_the_pipelines(tmp_path: Path, labels: Any, config: Any, function: str) -> None:
    scorer = Scorer(f"hf:{save(tmp_path, labels, **config)}", device="cpu", batch_size=2)
    scores = list(scorer.score(TEXTS))
    assert scores[::-1] == list(scorer.score(TEXTS[::-1]))
    how: dict[str, Any] = {"top_k": None, "function_to_apply": function}
    classify = pipeline("text-classification", str(tmp_path), **how)
    for text, row in zip(TEXTS, scores, strict=True):
        theirs = {label["label"]: label["score"] for label in classify([text])[0]}
        if not text.strip():
            theirs = dict.fromkeys(theirs, 0.0)
        expected = {name: theirs[label] for name, label in scorer.label_of.items()}
        assert row == pytest.approx(expected, abs=1e-6)


def test_matched_labels_by_name_or_other_name(caplog: pytest.LogCaptureFixture) -> None:
    labels = matched_labels(JIGSAW, "hf:x")
    assert list(labels) == [name for name in ATTRIBUTES if name != "sexually_explicit"]
    assert list(labels.values()) == ["toxic", "severe_toxic", "threat", "obscene", "identity_hate"]
    assert "does not score sexually_explicit" in caplog.text
    assert matched_labels(("toxic", "toxicity"), "hf:x") == {"toxicity": "toxicity"}
    with pytest.raises(ValueError, match="--scorer hf:x"):
        matched_labels(("LABEL_0",), "hf:x")


def test_texts_that_are_cut_are_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    list(Scorer(f"hf:{save(tmp_path, CIVIL)}", device="cpu").score(["the pilot", "tea " * 600]))
    assert "1 of 2 texts are too long for the model" in caplog.text


def test_identity_depends_on_weights_labels_and_tokenizer(tmp_path: Path) -> None:
    def identity(labels: Any = CIVIL, words: Any = (), **config: Any) -> Any:
        path = save(tmp_path, labels, **config)
        build_tokenizer("bert", words or vocabulary()).save_pretrained(path)
        return Scorer(f"hf:{path}", device="cpu").identity

    one, others = identity(), [identity((*CIVIL[:-1], "other")), identity(initializer_range=0.2)]
    assert one not in [*others, identity(words=vocabulary()[::-1])]


def test_models_that_are_no_classifiers_are_refused(tmp_path: Path) -> None:
    encoder = BertModel(BertConfig(vocab_size=320, hidden_size=32, num_attention_heads=2))
    encoder.save_pretrained(tmp_path / "encoder")
    build_tokenizer("bert", vocabulary()).save_pretrained(tmp_path / "encoder")
    regression = save(tmp_path / "regression", ("toxicity",), problem_type="regression")
    for path in (tmp_path / "encoder", regression, tmp_path / "absent"):
        with pytest.raises(ValueError, match=f"--scorer hf:{path}"):
            Scorer(f"hf:{path}", device="cpu")
