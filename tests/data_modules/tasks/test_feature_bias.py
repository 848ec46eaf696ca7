"""Features and tasks: sides, the released schema, cells of a labelled set, the two commands."""

import json
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interventune.data_modules.__main__ import main
from interventune.data_modules.tasks import features
from interventune.data_modules.tasks.feature_bias import CELLS, FeatureTask, build_task, open_task
from interventune.data_modules.tasks.features import LabelledText, Recipe, recipes
from interventune.storage.documents import DataError, load_json

TEXTS = st.tuples(st.sampled_from("abcdefgh"), st.sampled_from(["LOUD", "low"]), st.integers(0, 1))
PAIRS = [
    {"premise": f"The {i} cat sat.", "hypothesis": f"The {i} {word}.", "label": label, "genre": "x"}
    for i in range(12)
    for word in ("cat", "dog")
    for label in (0 if i % 2 else 1, 2, -1)
]


def side(recipe: Recipe | str, *texts: str, **columns: Any) -> int | None:
    chosen = recipes()[recipe] if isinstance(recipe, str) else recipe
    return chosen.side(LabelledText("1", texts, 0, columns))


def of(feature: Any, **options: Any) -> Recipe:
    return Recipe(feature=feature, options=options)


LENGTHS = {66: 1, 36: 0, 65: None}
SIDES: list[tuple[Recipe | str, dict[str, int | None]]] = [
    ("sa_sentiment_punctuation", {"Great! ": 1, "Great. Really.": 0, "Great?": None}),
    ("sa_sentiment_lexicon_food", {"The FOOD was cold.": 1, "A foodie wrote it.": 0}),
    (of("uppercase"), {"I said NO": 1, "I said no": 0}),  # a single letter does not count
    (of("shorter"), {"a b c|a b": 1, "a b|c d": None}),
    (of("overlap"), {"Anna left the ball, and went.|Anna left.": 1, "Anna left.|Ben left.": 0}),
    ("nli_entailment_negation", {"It rained.|It didn't rain.": 1, "It rained.|Nothing noted.": 0}),
    ("boolq_answer_qword", {"A text.|was it": 1, "A text.|Does it": 0}),
    ("boolq_answer_overlap", {"The zebra sleeps.|is the zebra ever there": 1}),
    ("boolq_answer_overlap", {"The zebra sleeps.|is the lion there": 0}),
    ("boolq_answer_length", {"word " * n + "|is it": side for n, side in LENGTHS.items()}),
]
CASES = [(recipe, *case) for recipe, sides in SIDES for case in sides.items()]


@pytest.mark.parametrize(("recipe", "texts", "expected"), CASES)
def test_predicate_sides(recipe: Recipe | str, texts: str, expected: int | None) -> None:
    assert side(recipe, *texts.split("|")) == expected


def test_columns_name_the_side_and_identities_exclude_texts_about_both() -> None:
    for genre, expected in (("government", 1), ("telephone", 0), ("travel", None)):
        assert side("nli_entailment_genre_gov_tele", "x", "y", genre=genre) == expected
    recipe = of("identity", one="muslim", zero="christian,jewish")
    rows = [(0.9, 0, 0), (0, 0.5, 0), (0, 0, 0.7), (0.6, 0.6, 0), (0.4, "", None), ("", "", "")]
    sides = [side(recipe, "x", muslim=m, christian=c, jewish=j) for m, c, j in rows]
    assert sides == [1, 0, 0, None, None, None]
    assert side(of("identity", one="gay"), "x", gay=0.1) == 0  # there is no other side


def test_recipes_have_predicates_and_wordings() -> None:
    for name, recipe in recipes().items():
        recipe.side(LabelledText("", ("a", "b"), 0, defaultdict(str)))  # its options fit
        wordings = features.wordings_of(name, {}, {})
        for each in map(wordings.get, features.HYPOTHESES):
            assert all((each.key, each.instructed, each.explained))


def test_a_wording_replaces_only_what_it_states() -> None:
    own = load_json(features.CONFIGURATION.with_name("feature_bias_table6.json"), features.Wordings)
    places = {name: features.counted_with(name)["family"] for name in recipes()}
    paper = {name for name, family in places.items() if family in ("NLI", "SA", "TC", "QA")}
    assert paper - {*own} == {"comments_toxicity_race_asian_white"}
    assert {*own} <= paper
    ours, theirs = (features.wordings_of("boolq_answer_qword", {}, x)["h2"] for x in ({}, own))
    assert (theirs.key, theirs.words, theirs.one) == ("Question word?", ("do", "be"), ours.one)
    assert features.wordings_of("boolq_answer_qword", {}, own)["h1"].key == "Reply:"


def test_predicates_on_the_released_cells(shared: Path) -> None:
    """`same as` is exact; content words come near it, all of them where a question lacks some."""
    for task, least in (("boolq_answer_structure", 1.0), ("boolq_answer_overlap", 0.94)):
        document = json.loads((shared / f"data/ambigprompt/{task}.json").read_text())
        sides: dict[str, list[int | None]] = {"0": [], "1": []}
        for key, examples in document.items():
            for example in examples if isinstance(examples, list) else ():
                sides[key[-1]].append(side(task, *example["question"].split("\n")))
        assert not any(sides["0"])
        assert sum(map(bool, sides["1"])) / len(sides["1"]) >= least


def examples_of(task: FeatureTask) -> list[tuple[str, str]]:
    """Cell and text."""
    held = [x for part in (task.demos, task.tests) for examples in part.values() for x in examples]
    return [(x.split, x.question) for x in held]


@pytest.mark.parametrize("name", [name for name in recipes() if name.startswith("stories:")])
def test_open_task_makes_the_embedded_tasks(name: str) -> None:
    task = open_task(f"{name}?seed=3")
    assert task == open_task(f"{name}?seed=3") != open_task(name)
    for cell, text in examples_of(task):
        assert recipes()[name].side(LabelledText("", (text,), 0)) == int(cell[2])


@given(st.lists(TEXTS, min_size=1), st.integers(0, 3))
def test_every_text_is_in_one_cell(texts: list[tuple[str, str, int]], seed: int) -> None:
    rows = [LabelledText("", (f"{word} {how} {label}",), label) for word, how, label in texts]
    distinct = {row.texts[0] for row in rows}
    if {f"{text[-1]}_{int('LOUD' in text)}" for text in distinct} != set(CELLS):
        with pytest.raises(DataError, match="no text in cell"):
            build_task("t", rows, of("uppercase"))
        return
    task = build_task("t", rows, of("uppercase"), seed=seed, min_demos=1)
    assert sorted(text for _, text in examples_of(task)) == sorted(distinct)
    assert all(cell[0] == text[-1] for cell, text in examples_of(task))
    assert task.made_from["repeated"] == len(rows) - len(distinct)
    assert task == build_task("t", rows[::-1], of("uppercase"), seed=seed, min_demos=1)


def run(folder: Path, rows: list[dict[str, Any]], flags: str = "", recipe: str = "") -> int:
    """`data feature-bias` on rows."""
    (folder / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "mine.yaml").write_text(f"tasks: {{mine: {recipe}}}")
    if recipe:
        flags += f" --task mine --recipe {folder}/mine.yaml"
    command = f"feature-bias --input {folder}/in.jsonl --output {folder} {flags}"
    return main(command.split())


def sizes(task: FeatureTask) -> list[int]:
    """Numbers of tests in 1_1, 0_0, 1_0 and 0_1."""
    return [len(task.tests[cell]) for cell in CELLS]


def test_command_makes_a_papers_task(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    long = [{**row, "premise": "cat " * 80} for row in PAIRS]
    assert run(tmp_path, PAIRS + long, "--task nli_entailment_overlap --min-demos 4") == 0
    # A pair with two labels counts once, with its first.
    assert "24 repeated" in capsys.readouterr().out
    task = open_task(tmp_path / "nli_entailment_overlap.json")
    assert sizes(task) == [2, 2, 6, 6]
    assert (task.dataset, task.features["h1"].key) == ("nli_entailment_overlap", "Follows:")


def test_feature_bias_command_makes_a_task_of_ones_own(tmp_path: Path) -> None:
    rows = [{"text": f"Text {i}", "score": i % 2 / 2, "genre": "abc"[i % 3]} for i in range(60)]
    rows.append({"text": None, "score": 1, "genre": "a"})  # left out
    recipe = """{label: score, threshold: 0.5, feature: column,
        options: {name: genre, one: b, zero: a}, h2: {one: it is dry, zero: it is made up}}"""
    assert run(tmp_path, rows, "--min-demos 4", recipe) == 0
    task = open_task(tmp_path / "mine.json")
    assert sizes(task) == [6, 6, 10, 10]
    assert (task.dataset, task.features["h2"].one) == ("mine", "it is dry")
    assert (task.made_from["on_neither_side"], len(task.made_from["sha256"])) == (20, 64)


ROW = {"text": "A text", "label": 1}
MISTAKES = [
    ([ROW, {"text": "x", "label": 2}], "{feature: uppercase}", "line 2: the label must be 0 or 1"),
    ([{"label": 1}], "{feature: uppercase}", "line 1: needs the label 'label' and a text"),
    ([ROW], "{feature: uppercase, max_word: 7}", "mine.yaml.*max_word"),
    ([ROW], "{feature: overlap}", "line 1: the feature overlap needs .* a text"),
    ([ROW], "{feature: identity, options: {one: gay}}", "line 1.*'gay'"),
    ([ROW], "{feature: uppercase, options: {word: x}}", "feature uppercase .*word"),
    ([ROW], "", "no such task; choose from nli_"),
]


@pytest.mark.parametrize(("rows", "recipe", "message"), MISTAKES)
def test_feature_bias_command_names_mistakes(
    rows: list[Any], recipe: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, rows, "" if recipe else "--task nli_overlap", recipe) == 2
    assert re.search(message, capsys.readouterr().err)
    assert not (tmp_path / "mine.json").exists()
