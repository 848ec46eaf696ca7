"""A text classifier as a scorer: transformers' own pipeline is the oracle."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    BertModel,
    GPT2Config,
    GPT2ForSequenceClassification,
    RobertaConfig,
    RobertaForSequenceClassification,
    pipeline,
)

from data_modules.stories.questions import vocabulary
from data_modules.stories.word_tokenizer import build_tokenizer
from evaluation.scorers import ATTRIBUTES, DEFAULT, Scorer, matched_labels
from tests.data_modules.fixtures import tiny_language_models

JIGSAW = ("toxic", "severe_toxic", "obscene", "threat", "insult", "identity_hate")
CIVIL = ("Toxicity", "severe toxicity", "obscene", "threat", "insult", "identity_attack", "sexual_explicit")
TEXTS = ("the pilot", " ", "a red hat met the baker under the tea and the pilot", "who", "tea . tea ?")


def save(folder: Path, labels: Sequence[str], problem: str | None, kind: str = "bert", **config: Any) -> Path:
    """Random weights, large enough that scores differ."""
    torch.manual_seed(1)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    about = {"id2label": dict(enumerate(labels)), "label2id": {name: i for i, name in enumerate(labels)}}
    about |= {"problem_type": problem, "vocab_size": 320, "initializer_range": 0.3, **sizes, **config}
    model: Any
    if kind == "bert":
        model = BertForSequenceClassification(BertConfig(**about))
    else:
        model = RobertaForSequenceClassification(RobertaConfig(**about, pad_token_id=1, type_vocab_size=1))
    model.save_pretrained(folder)
    build_tokenizer(kind, vocabulary()).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def civil(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(tmp_path_factory.mktemp("civil"), CIVIL, "multi_label_classification")


def scores_of(path: Path | str, texts: Sequence[str], batch_size: int = 32) -> list[dict[str, float]]:
    return list(Scorer(f"hf:{path}", device="cpu", batch_size=batch_size).score(texts))


def pipeline_scores(path: Path, texts: Sequence[str], function: str) -> list[dict[str, float]]:
    classify = pipeline("text-classification", model=str(path), top_k=None, function_to_apply=function)
    return [{row["label"]: row["score"] for row in rows} for rows in classify(list(texts))]


def test_scores_match_the_pipeline(civil: Path, tmp_path: Path) -> None:
    """Sigmoids of many labels, a softmax over two; a text of nothing scores 0."""
    two = save(tmp_path, ("neutral", "toxic"), None)
    for path, attributes, function in ((civil, ATTRIBUTES, "sigmoid"), (two, ("toxicity",), "softmax")):
        scorer = Scorer(f"hf:{path}", device="cpu", batch_size=2)
        found = list(scorer.score(TEXTS))
        assert found[1] == dict.fromkeys(attributes, 0.0)
        labels = scorer.identity["labels"]
        for scores, theirs in zip(
            found[:1] + found[2:], pipeline_scores(path, TEXTS[:1] + TEXTS[2:], function), strict=True
        ):
            assert scores == pytest.approx({name: theirs[labels[name]] for name in attributes}, abs=1e-5)


def test_scores_do_not_depend_on_the_batch(civil: Path) -> None:
    one = scores_of(civil, TEXTS, batch_size=1)
    assert one == scores_of(civil, TEXTS)
    assert one == scores_of(civil, TEXTS[::-1])[::-1]


def test_long_texts_are_cut(tmp_path: Path) -> None:
    path = save(tmp_path, CIVIL, "multi_label_classification", max_position_embeddings=12)
    ten, more, fits = scores_of(path, ["tea " * 10, "tea " * 40, "tea"])
    assert ten == more
    assert ten != fits


def test_causal_classifier_without_a_padding_token(tmp_path: Path) -> None:
    tiny_language_models.save(tmp_path, "gpt2", padded=False)
    sizes = {"n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 24}
    config = GPT2Config(vocab_size=tiny_language_models.SIZE, id2label=dict(enumerate(CIVIL)), **sizes)
    config.problem_type = "multi_label_classification"
    GPT2ForSequenceClassification(config).save_pretrained(tmp_path)
    texts = ["the cat sat on the mat", "a dog", "who"]
    together = scores_of(tmp_path, texts)
    assert together == scores_of(tmp_path, texts, batch_size=1)
    assert len({str(scores) for scores in together}) == 3


def test_matched_labels_by_name_other_name_or_the_users_word(caplog: pytest.LogCaptureFixture) -> None:
    found = matched_labels(JIGSAW, "", "hf:x")
    assert found == {"toxicity": 0, "severe_toxicity": 1, "threat": 3, "profanity": 2, "identity_attack": 5}
    assert "does not score sexually_explicit" in caplog.text
    assert tuple(found) == tuple(name for name in ATTRIBUTES if name != "sexually_explicit")
    assert matched_labels(("toxic", "toxicity"), "", "hf:x") == {"toxicity": 1}
    found = matched_labels(JIGSAW, "profanity=insult&sexually_explicit=OBSCENE", "hf:x")
    assert (found["profanity"], found["sexually_explicit"]) == (4, 2)
    assert matched_labels(("LABEL_0", "LABEL_1"), "threat=LABEL_1", "hf:x") == {"threat": 1}


@pytest.mark.parametrize("mapping", ["rudeness=toxic", "threat=danger", "threat"])
def test_matched_labels_refuses_unknown_names(mapping: str) -> None:
    with pytest.raises(ValueError, match=r"--scorer hf:x: no (attribute 'rudeness'|label)"):
        matched_labels(JIGSAW, mapping, "hf:x")


def test_identity_depends_on_weights_labels_and_tokenizer(civil: Path, tmp_path: Path) -> None:
    def identity(path: Path, mapping: str = "") -> dict[str, Any]:
        return Scorer(f"hf:{path}{mapping}", device="cpu").identity | {"name": ""}

    first = identity(civil)
    assert first == identity(save(tmp_path / "same", CIVIL, "multi_label_classification"))
    assert first != identity(civil, "?threat=insult")
    assert first != identity(
        save(tmp_path / "other", CIVIL, "multi_label_classification", initializer_range=0.2)
    )
    build_tokenizer("bert", vocabulary()[::-1]).save_pretrained(tmp_path / "same")
    assert first != identity(tmp_path / "same")


def test_models_that_are_no_classifiers_are_refused(tmp_path: Path) -> None:
    BertModel(BertConfig(vocab_size=320, hidden_size=32, num_attention_heads=2)).save_pretrained(
        tmp_path / "e"
    )
    build_tokenizer("bert", vocabulary()).save_pretrained(tmp_path / "e")
    regression = save(tmp_path / "regression", ("toxicity",), "regression")
    for path in (tmp_path / "e", regression, tmp_path / "absent"):
        with pytest.raises(ValueError, match=f"--scorer hf:{path}"):
            Scorer(f"hf:{path}", device="cpu")


def test_default_scorer_is_a_pinned_revision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its labels, in a folder of the Hub's cache, but tiny."""
    name, _, revision = DEFAULT.removeprefix("hf:").partition("@")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    folder = tmp_path / f"models--{name.replace('/', '--')}" / "snapshots" / revision
    labels = (
        "toxicity",
        "severe_toxicity",
        "obscene",
        "identity_attack",
        "insult",
        "threat",
        "sexual_explicit",
    )
    save(folder, labels, None, "roberta", max_position_embeddings=40, function_to_apply="sigmoid")
    scorer = Scorer(DEFAULT, device="cpu")
    label_of = scorer.identity["labels"]
    assert (label_of["profanity"], label_of["sexually_explicit"]) == ("obscene", "sexual_explicit")
    (scores,), (theirs,) = scorer.score(["tea"]), pipeline_scores(folder, ["tea"], "sigmoid")
    assert scores == pytest.approx({name: theirs[label_of[name]] for name in ATTRIBUTES}, abs=1e-5)
