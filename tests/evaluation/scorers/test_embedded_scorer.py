"""The scorer in a file: what scikit-learn says, to the last digits, from plain JSON that is checked whole."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import FeatureUnion, Pipeline

from data_modules.tasks.labelled_texts import LabelledTexts
from evaluation.scorers.embedded import EmbeddedScorer
from evaluation.scorers.interface import ATTRIBUTES
from evaluation.scorers.open import ScorerOptions, open_scorer
from evaluation.scorers.train import held_out_rows, train
from storage.errors import DataError
from tests.evaluation.scorers.labelled import labelled_rows, trained_scorer


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained_scorer(tmp_path_factory.mktemp("scorer"))


def test_scores_are_those_of_a_pipeline_of_scikit_learn(tmp_path: Path) -> None:
    rows = labelled_rows(80)
    texts = [row["text"] for row in rows]
    label = np.array([row["toxicity"] for row in rows])
    data = LabelledTexts(tuple(texts), {"toxicity": tuple(label)}, len(rows), 0)
    content = train(data, ("toxicity",), held_out=0.25, seed=3, max_features=200, trained={})
    (tmp_path / "s.json").write_text(json.dumps(content))
    kept = ~held_out_rows(label[:, None], 0.25, 3)

    how = {"max_features": 200, "sublinear_tf": True}
    parts = [
        ("words", TfidfVectorizer(ngram_range=(1, 2), **how)),
        ("pieces", TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 5), **how)),
    ]
    oracle = Pipeline([("features", FeatureUnion(parts)), ("model", LogisticRegression(C=10, max_iter=1000))])
    oracle.fit([t for t, k in zip(texts, kept, strict=True) if k], label[kept] >= 0.5)
    asked = [*texts, "ÉCLAIR stupid!", "12 🙂 damned", "x"]
    answers = EmbeddedScorer(str(tmp_path / "s.json"), attributes=("toxicity",)).score(asked)
    found = [scores["toxicity"] for scores in answers if isinstance(scores, dict)]
    assert np.allclose(found, oracle.predict_proba(asked)[:, 1], rtol=0, atol=1e-12)


def test_the_file_is_plain_json_and_its_hash_is_the_version(path: Path) -> None:
    json.loads(path.read_text(encoding="utf-8"), parse_constant=pytest.fail)
    scorer = EmbeddedScorer(str(path))
    assert scorer.version == hashlib.sha256(path.read_bytes()).hexdigest()
    about = scorer.about()
    assert (about["name"], set(about["held_out"])) == (f"embedded:{path}", set(ATTRIBUTES))
    assert about["held_out"]["threat"]["n"] == 24
    json.dumps(about, allow_nan=False)


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts=st.lists(st.text(max_size=30), max_size=5))
def test_any_text_has_six_probabilities_that_do_not_depend_on_its_neighbours(
    texts: list[str], path: Path
) -> None:
    scorer = EmbeddedScorer(str(path))
    together = list(scorer.score(texts))
    assert together == [next(iter(scorer.score([text]))) for text in texts]
    for text, scores in zip(texts, together, strict=True):
        assert isinstance(scores, dict)
        assert tuple(scores) == ATTRIBUTES
        assert all(0 <= value <= 1 for value in scores.values())
        assert text.strip() or set(scores.values()) == {0.0}


def changed(path: str, value: Any) -> Callable[[Any], None]:
    *outer, last = (int(key) if key.isdigit() else key for key in path.split("."))

    def change(document: Any) -> None:
        for key in outer:
            document = document[key]
        document[last] = value

    return change


DAMAGES = {
    "other version": (changed("version", 2), "'version'"),
    "ngrams backwards": (changed("features.1.ngrams", [3, 2]), "ngrams"),
    "a term twice": (changed("features.0.terms.0", "the"), "terms"),
    "too few frequencies": (changed("features.0.idf", [1.0]), "idf"),
    "weights of what": (changed("weights.insult", {"intercept": 0, "coef": []}), "insult"),
    "too few weights": (changed("weights.threat.coef", [0.5]), "coef"),
    "no quality": (changed("held_out", {}), "held_out"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_one_clear_error(damage: str, path: Path, tmp_path: Path) -> None:
    document = copy.deepcopy(json.loads(path.read_text(encoding="utf-8")))
    change, field = DAMAGES[damage]
    change(document)
    bad = tmp_path / "bad.json"
    bad.write_text(json.dumps(document))
    with pytest.raises(DataError, match=field) as caught:
        EmbeddedScorer(str(bad))
    assert str(bad) in str(caught.value)


def test_missing_attributes_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A scorer scores what it has, with a warning; what the user names it must have."""
    rows = labelled_rows(60)
    column = tuple(row["threat"] for row in rows)
    data = LabelledTexts(tuple(row["text"] for row in rows), {"threat": column}, 60, 0)
    path = tmp_path / "s.json"
    path.write_text(json.dumps(train(data, ("threat",), held_out=0.2, seed=0, max_features=100, trained={})))
    with pytest.raises(ValueError, match=r"does not score toxicity; .*add --scorer-attributes threat"):
        open_scorer(f"embedded:{path}", ScorerOptions(scorer_attributes="threat,toxicity"))
    scorer = open_scorer(f"embedded:{path}", ScorerOptions())
    assert "does not score toxicity, severe_toxicity" in caplog.text
    assert "averages run over threat" in caplog.text
    assert [list(scores) for scores in scorer.score(["a", ""])] == [["threat"]] * 2
