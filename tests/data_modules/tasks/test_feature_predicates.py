"""What belongs to which side of a feature."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from data_modules.tasks.predicates import LabelledText, feature
from storage.errors import DataError


def side(
    name: str, text: str, second: str = "", columns: dict[str, object] | None = None, /, **options: str
) -> int | None:
    return feature(name, options).value(LabelledText("1", text, second, 0, columns or {}))


CASES = [
    ("length", "a b c", "", {"words": "4"}, 1),
    ("length", "a b c d", "", {"words": "4"}, None),
    ("length", "a b c d e", "", {"words": "4"}, 0),
    ("length", "a b c d e", "", {"words": "4", "margin": "1"}, None),
    ("punctuation", "Great! ", "", {}, 1),
    ("punctuation", "Great. Really.", "", {}, 0),
    ("punctuation", "Great?", "", {}, None),
    ("lexicon", "The FOOD was cold.", "", {"word": "food"}, 1),
    ("lexicon", "A foodie wrote it.", "", {"word": "food"}, 0),
    ("uppercase", "I said NO", "", {}, 1),
    ("uppercase", "I said no", "", {}, 0),  # a single letter does not count
    ("shorter_second", "a b c", "a b", {}, 1),
    ("shorter_second", "a b", "a b c", {}, 0),
    ("shorter_second", "a b", "c d", {}, None),
    ("overlap", "Anna left the ball, and went.", "Anna left.", {}, 1),
    ("overlap", "Anna left the ball.", "Ben left.", {}, 0),
    ("negation", "It rained.", "It didn't rain.", {}, 1),
    ("negation", "It rained.", "Nothing was noted.", {}, 0),
    ("question_word", "A text.", "was it", {}, 1),
    ("question_word", "A text.", "Does it", {}, 0),
    ("question_word", "A text.", "are they", {}, None),
    ("content_overlap", "The zebra sleeps.", "is the zebra ever there", {}, 1),
    ("content_overlap", "The zebra sleeps.", "is the lion there", {}, 0),
    ("same_as", "A text.", "is a cat the same as a dog", {}, 1),
    ("same_as", "A text.", "are they the same", {}, 0),
    ("passage_length", "word " * 66, "is it", {}, 1),
    ("passage_length", "word " * 36, "is it", {}, 0),
    ("passage_length", "word " * 50, "is it", {}, None),
]


@pytest.mark.parametrize(("name", "text", "second", "options", "expected"), CASES)
def test_sides(name: str, text: str, second: str, options: dict[str, str], expected: int | None) -> None:
    assert side(name, text, second, **options) == expected


def test_a_column_names_the_side() -> None:
    options = {"name": "genre", "one": "government", "zero": "fiction,telephone"}
    found = [side("column", "x", "", {"genre": g}, **options) for g in ("government", "telephone", "travel")]
    assert found == [1, 0, None]


def test_identities_exclude_each_other() -> None:
    options = {"one": "muslim", "zero": "christian,jewish"}
    rows = [(0.9, 0, 0), (0, 0.5, 0), (0, 0, 0.7), (0.6, 0.6, 0), (0.4, "", None)]
    found = [
        side("identity", "x", "", dict(zip(("muslim", "christian", "jewish"), row, strict=True)), **options)
        for row in rows
    ]
    assert found == [1, 0, 0, None, None]
    assert side("identity", "x", "", {"gay": 0.1}, one="gay") == 0  # nobody is the other side


@pytest.mark.parametrize(
    ("name", "options", "named"),
    [
        ("shouting", {}, "uppercase"),
        ("uppercase", {"word": "x"}, "'word'"),
        ("length", {"words": "many"}, "words"),
        ("lexicon", {}, "word"),
    ],
)
def test_wrong_features_are_named(name: str, options: dict[str, str], named: str) -> None:
    with pytest.raises(DataError, match=named):
        feature(name, options)


def test_the_released_cells(shared: Path) -> None:
    """`same_as` is exact; content words come near it, all of them where a question lacks some."""
    for task, name, least in (("structure", "same_as", 1.0), ("overlap", "content_overlap", 0.94)):
        document = json.loads((shared / f"data/ambigprompt/boolq_answer_{task}.json").read_text())
        said: dict[str, list[int | None]] = {"0": [], "1": []}
        for key, examples in document.items():
            for example in examples if isinstance(examples, list) else ():
                passage, question = example["question"].split("\n")
                said[key[-1]].append(side(name, passage, question))
        assert not any(said["0"])
        assert sum(map(bool, said["1"])) / len(said["1"]) >= least
