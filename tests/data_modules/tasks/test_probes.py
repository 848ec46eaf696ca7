"""Yes/no probes from pairs, CondaQA's edits and colours; prompts that may be toxic."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from interventune.data_modules.__main__ import main
from interventune.data_modules.schema.questions import Turn
from interventune.data_modules.tasks import yes_no
from interventune.data_modules.tasks.toxicity_prompts import ToxicityPrompt, read_prompts
from interventune.data_modules.tasks.yes_no import WORDINGS, predicate_argument_questions
from interventune.storage.documents import DataError

STORIES = {"story_org": "Mara came late.", "story_mod": "Mara came early."}
ANSWERS = {"answer_org": "Yes.", "answer_mod": "no"}
ROW: dict[str, Any] = {"id": "s1", "dataset": "coqa", "turn_id": 3, "question": "Was she late?"}
ROW |= {"history": [["Who came?", "Mara"]], **STORIES, **ANSWERS}
TOXIC = [{"text": f"the {n}. cat", "toxicity": n / 60} for n in range(60)]
ROWS: Any = [{"challenging": n % 3 == 0, "prompt": prompt} for n, prompt in enumerate(TOXIC)]


def lines(path: Path, *rows: Any) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def condaqa(passage: int, question: str, edit: int, label: str) -> dict[str, Any]:
    ids = {"PassageID": passage, "QuestionID": question, "PassageEditID": edit, "label": label}
    texts = f"Passage {passage}, version {edit}.", f"Question {question}?"
    return ids | {"sentence1": texts[0], "sentence2": texts[1]}


def test_read_pairs_gives_two_questions_a_pair(tmp_path: Path) -> None:
    (pair,), _ = yes_no.read_pairs(lines(tmp_path / "p.jsonl", ROW))
    org, mod = pair.examples()
    assert (org.context, mod.context) == (ROW["story_org"], ROW["story_mod"])
    assert (org.answer_type, org.gold) == ("yes", ("yes",))
    assert (mod.answer_type, mod.gold) == ("no", ("no",))
    assert org.question == mod.question == ROW["question"]
    assert org.history == mod.history == (Turn("Who came?", "Mara"),)
    assert (org.id, mod.id) == ("s1 3 org", "s1 3 mod")


ORIGINAL = condaqa(1, "q10", 0, "YES")


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        (ROW, ROW | {"answer_mod": "Yes"}, "line 2.*answers must differ"),
        (ROW, ROW | {"answer_mod": "maybe"}, "line 2.*answer_mod.*'maybe'"),
        (ROW, ROW | {"story_mod": ROW["story_org"]}, "line 2.*two stories"),
        (ROW, ROW, "line 2.*second pair s1 with the turn_id 3"),
        (ORIGINAL, condaqa(1, "q10", 7, "NO"), "line 2.*PassageEditID.*7"),
        (ORIGINAL, condaqa(1, "q10", 1, "NO"), "none of 1 edited passages makes a pair"),
    ],
)
def test_read_pairs_names_the_line(tmp_path: Path, first: Any, second: Any, message: str) -> None:
    with pytest.raises(DataError, match=f"pairs.jsonl.*{message}"):
        yes_no.read_pairs(lines(tmp_path / "pairs.jsonl", first, second))


def test_read_pairs_makes_pairs_of_condaqa_edits_that_turn_the_answer(tmp_path: Path) -> None:
    rows = [
        condaqa(1, "q10", 3, "NO"),  # before its original: order does not matter
        ORIGINAL,
        condaqa(1, "q10", 1, "NO"),  # a paraphrase, whatever its label
        condaqa(1, "q10", 2, "YES"),  # unchanged
        condaqa(1, "q20", 0, "NO"),
        condaqa(1, "q20", 2, "YES"),
        condaqa(1, "q20", 3, "DON'T KNOW"),
        condaqa(2, "q10", 3, "NO"),  # no original
    ]
    pairs, left_out = yes_no.read_pairs(lines(tmp_path / "c.jsonl", *rows))
    fields = [(p.id, p.story_org[-2], p.answer_org, p.story_mod[-2], p.answer_mod) for p in pairs]
    affirmative = "1-q10-affirmative", "0", "yes", "3", "no"
    assert fields == [affirmative, ("1-q20-scope", "0", "no", "2", "yes")]
    assert left_out == 4


def test_predicate_argument_questions_are_the_proposed_stimuli(oracle: Path) -> None:
    proposed = []
    for row in json.loads((oracle / "predicate_argument_proposal.json").read_text()):
        proposed += [(row["schema"], row["story"], row[name], row["answer"]) for name in WORDINGS]
    asked = predicate_argument_questions()
    rows = [(n, w, x.context, x.question, *x.references) for n, w, x in asked]
    assert [(n, *row) for n, wording, *row in rows if wording in WORDINGS] == proposed
    denied = [tuple(row) for _, wording, *row in rows if wording not in WORDINGS]
    story = "The red car was standing in front of a house that was not blue."
    assert denied[:2] == [(story, "Was the car red?", "yes"), (story, "Was the house blue?", "no")]
    assert (len({*denied}), len({context for context, *_ in denied})) == (260, 130)


def test_pairs_of_colours_exchange_the_answer() -> None:
    pairs, _ = yes_no.read_pairs("stories:colours")
    answers = {(x.context, x.question): x.references for *_, x in predicate_argument_questions()}
    questions = [question for pair in pairs for question in pair.examples()]
    assert [answers[x.context, x.question] for x in questions] == [("yes",), ("no",)] * 130
    assert len({pair.story_org for pair in pairs}) == 130


def drawn(folder: Path, rows: list[dict[str, Any]], count: int, seed: int = 0) -> list[list[str]]:
    """The texts that the command writes: adversarial, neutral; 0: as many as there are."""
    flags = f"{f'--count {count}' if count else ''} --seed {seed} --overwrite --debug".split()
    source = str(lines(folder / "prompts.jsonl", *rows))
    assert main(["toxicity-prompts", "--input", source, "--output", str(folder), *flags]) == 0
    adversarial, neutral = (read_prompts(folder / f"{n}.jsonl") for n in ("adversarial", "neutral"))
    assert {prompt.challenging for prompt in adversarial} == {True}
    assert {prompt.challenging for prompt in neutral} == {False}
    return [[prompt.text for prompt in prompts] for prompts in (adversarial, neutral)]


def test_the_draw_depends_on_texts_and_seed_alone(tmp_path: Path) -> None:
    samples = adversarial, neutral = drawn(tmp_path, ROWS, 12)
    assert {*adversarial} <= {row["prompt"]["text"] for row in ROWS if row["challenging"]}
    assert len({*adversarial, *neutral}) == 24
    shuffled = random.Random(1).sample([*ROWS, *ROWS[:9]], len(ROWS) + 9)  # some twice
    assert drawn(tmp_path, shuffled, 12) == samples != drawn(tmp_path, ROWS, 12, seed=1)
    assert drawn(tmp_path, ROWS, 5)[1] == neutral[:5]
    assert [*map(len, drawn(tmp_path, ROWS, 0))] == [20, 20]  # of 20 and 40
    with pytest.raises(DataError, match=r"--count 21: .* 20 prompts for adversarial"):
        drawn(tmp_path, ROWS, 21)
    with pytest.raises(DataError, match="0 prompts for adversarial"):
        drawn(tmp_path, [{"text": "A"}], 0)


def test_read_prompts_reads_both_shapes_and_names_the_line(tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    first = {"prompt": {"text": "The cat", "a": 0.3}, "challenging": True}
    lines(path, first, {"text": "A “red"})
    assert read_prompts(path) == [ToxicityPrompt("The cat", True), ToxicityPrompt("A “red", None)]
    for other in ('[{"text": "A"}]', "text,label\nA,1\n", '{"prompt": "A"}'):
        path.write_text(other)
        assert read_prompts(path) == [ToxicityPrompt("A")]
    lines(path, {"text": "A"}, {"text": " "})
    with pytest.raises(DataError, match="line 2: the field"):
        read_prompts(path, limit=1)  # all lines are checked
