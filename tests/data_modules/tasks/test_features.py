"""What belongs to which side of a feature, and the configured tasks."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

from data_modules.tasks.features import HYPOTHESES, FeatureName, LabelledText, Recipe, recipes, wordings_of


def side(recipe: Recipe | str, *texts: str, **columns: Any) -> int | None:
    chosen = recipes()[recipe] if isinstance(recipe, str) else recipe
    return chosen.side(LabelledText("1", texts, 0, columns))


def of(feature: FeatureName, **options: Any) -> Recipe:
    return Recipe(feature=feature, options=options)


CASES: list[tuple[Recipe | str, str, int | None]] = [
    ("sa_sentiment_punctuation", "Great! ", 1),
    ("sa_sentiment_punctuation", "Great. Really.", 0),
    ("sa_sentiment_punctuation", "Great?", None),
    ("sa_sentiment_lexicon_food", "The FOOD was cold.", 1),
    ("sa_sentiment_lexicon_food", "A foodie wrote it.", 0),
    (of("uppercase"), "I said NO", 1),
    (of("uppercase"), "I said no", 0),  # a single letter does not count
    (of("shorter"), "a b c|a b", 1),
    (of("shorter"), "a b|c d", None),
    (of("overlap"), "Anna left the ball, and went.|Anna left.", 1),
    (of("overlap"), "Anna left the ball.|Ben left.", 0),
    ("nli_entailment_negation", "It rained.|It didn't rain.", 1),
    ("nli_entailment_negation", "It rained.|Nothing was noted.", 0),
    ("boolq_answer_qword", "A text.|was it", 1),
    ("boolq_answer_qword", "A text.|Does it", 0),
    ("boolq_answer_overlap", "The zebra sleeps.|is the zebra ever there", 1),
    ("boolq_answer_overlap", "The zebra sleeps.|is the lion there", 0),
    ("boolq_answer_length", "word " * 66 + "|is it", 1),
    ("boolq_answer_length", "word " * 36 + "|is it", 0),
    ("boolq_answer_length", "word " * 65 + "|is it", None),
]


@pytest.mark.parametrize(("recipe", "texts", "expected"), CASES)
def test_predicate_sides(recipe: Recipe | str, texts: str, expected: int | None) -> None:
    assert side(recipe, *texts.split("|")) == expected


def test_columns_name_the_side_and_identities_exclude_texts_about_both() -> None:
    genres = ("government", "telephone", "travel")
    assert [side("nli_entailment_genre_gov_tele", "x", "y", genre=g) for g in genres] == [1, 0, None]
    recipe = of("identity", one="muslim", zero="christian,jewish")
    rows = [(0.9, 0, 0), (0, 0.5, 0), (0, 0, 0.7), (0.6, 0.6, 0), (0.4, "", None), ("", "", "")]
    found = [side(recipe, "x", muslim=m, christian=c, jewish=j) for m, c, j in rows]
    assert found == [1, 0, 0, None, None, None]
    assert side(of("identity", one="gay"), "x", gay=0.1) == 0  # nobody is the other side


def test_recipes_have_predicates_and_wordings() -> None:
    families = Counter(recipe.family for recipe in recipes().values())
    assert families == {"NLI": 5, "SA": 6, "TC": 7, "QA": 4, "stories": 4}
    for name, recipe in recipes().items():
        recipe.side(LabelledText("", ("a", "b"), 0, defaultdict(str)))  # its options fit
        wordings = wordings_of(name, {}, {})
        assert all(wordings[h].key and wordings[h].instructed and wordings[h].explained for h in HYPOTHESES)


def test_predicates_on_the_released_cells(shared: Path) -> None:
    """`same as` is exact; content words come near it, all of them where a question lacks some."""
    for task, least in (("boolq_answer_structure", 1.0), ("boolq_answer_overlap", 0.94)):
        document = json.loads((shared / f"data/ambigprompt/{task}.json").read_text())
        said: dict[str, list[int | None]] = {"0": [], "1": []}
        for key, examples in document.items():
            for example in examples if isinstance(examples, list) else ():
                said[key[-1]].append(side(task, *example["question"].split("\n")))
        assert not any(said["0"])
        assert sum(map(bool, said["1"])) / len(said["1"]) >= least
