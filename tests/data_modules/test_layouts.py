"""Files of other teams: each layout and defect, counted by hand, with offsets into the text."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import datasets
import pytest

from interventune.data_modules.schema.questions import ChoiceQuestion, QAExample, Span
from interventune.data_modules.sources import read_choices, read_questions, split_labels
from interventune.data_modules.tasks.bbq import read_bbq
from interventune.evaluation.answering.predictions import MISSING, Predictions
from interventune.storage.documents import DataError
from tests.evaluation.bbq_files import save_bbq

Log = pytest.LogCaptureFixture

TEXT = "Én is in\u00a0Rome. Bo is in Oslo. Bo left Rome."
ROW: dict[str, Any] = {"id": "1", "context": TEXT, "question": "Where?"}
ROW |= {"answers": {"text": ["Oslo"], "answer_start": [24]}}
OTHER = ROW | {"id": "2", "question": "And?"}
Found = list[tuple[str, list[tuple[int, str]]]]
PIQA = {"goal": "Dry a cup.", "sol1": "Use a cloth.", "sol2": "Use a stone."}
BBQ = {"label": 2, "context": "A and B met.", "question": "Who?"}
BBQ |= {"ans0": "A", "ans1": "B", "ans2": "Unknown"}
SOCIAL = {"context": "C", "question": "Why?", "answerA": "a", "answerB": "b", "answerC": "c"}


def nested(*lists: Any, **more: Any) -> dict[str, Any]:
    """An article with one question for each list of answers."""
    qas = [{"id": i, "question": f"{x}", "answers": x} | more for i, x in enumerate(lists)]
    return {"title": "t", "paragraphs": [{"context": TEXT, "qas": qas}]}


def at(start: Any, text: str = "Rome") -> dict[str, Any]:
    return {"text": text, "answer_start": start}


def lines(*rows: Any) -> str:
    return "\n".join(map(json.dumps, rows))


def renamed(row: dict[str, Any], **names: str) -> dict[str, Any]:
    """The row with other names of its fields; a field called "" is left out."""
    return {names.get(k, k): value for k, value in row.items() if names.get(k, k)}


ROME, LATE, OSLO = (9, "Rome"), (38, "Rome"), (24, "Oslo")
HOTPOT: dict[str, Any] = {"_id": "h", "question": "Where?", "answer": "Oslo"}
HOTPOT |= {"supporting_facts": [["A", 1]], "context": [["A", ["Bo left.", "Bo is in Oslo."]]]}
MUSIQUE: dict[str, Any] = {"id": "m", "question": "Where?", "answer": "Rome"}
MUSIQUE |= {"answer_aliases": ["Roma"], "paragraphs": []}
for text, supports in (("Oslo is cold.", False), ("Al is in  Rome.", True)):
    MUSIQUE["paragraphs"] += [{"title": "A", "paragraph_text": text, "is_supporting": supports}]
MUSIQUES = lines(MUSIQUE | {"answerable": True}, MUSIQUE | {"id": "n", "answerable": False})
MRQA: dict[str, Any] = {"qid": "m", "question": "Where?", "answers": ["Rome"]}
MRQA["detected_answers"] = [{"text": "Rome", "char_spans": [[38, 41]]}]
LATE_A = [("a", [LATE])]
TYPED = {"context": TEXT, "question": "?", "answer": "Rome", "type": ""}
QUESTIONS: dict[str, tuple[Any, Found]] = {
    "offsets as text": ({"data": [nested([at("9")], [at("38")])]}, [("0", [ROME]), ("1", [LATE])]),
    "empty answers": ({"data": [nested([at(-1, "")], [at(9)])]}, [("0", []), ("1", [ROME])]),
    "said to have none": ({"data": [nested([], is_impossible="true")]}, [("0", [])]),
    "a list of articles": ([nested([at(9)]), nested([at(38)])], [("0", [ROME]), ("0_2", [LATE])]),
    "lines of articles": (lines(nested([at(9), at(9)]), nested([])), [("0", [ROME]), ("0_2", [])]),
    "rows in data": ({"version": 1, "data": [ROW]}, [("1", [OSLO])]),
    "no ids": ([ROW | {"id": None}, renamed(OTHER, id="")], [("0", [OSLO]), ("1", [OSLO])]),
    "another name": ([renamed(ROW, id="_id")], [("1", [OSLO])]),
    "answer_type alone": ([ROW | {"answer_type": "PLACE"}], [("1", [OSLO])]),
    "type and answer": ([TYPED], [("0", [ROME])]),
    "texts without offsets": ([ROW | {"answers": ["Oslo", "Rome"]}], [("1", [OSLO, ROME])]),
    "one answer as an object": ([ROW | {"answers": at(9)}], [("1", [ROME])]),
    "csv": ('\ufeffcontext,question,answer\n"B, A",Q,A\n', [("0", [(3, "A")])]),
    "csv without an answer": ("context,question,answer\nA,?,\n", [("0", [])]),
    "csv with offsets": (f"id,question,context,answer,answer_start\na,?,{TEXT},Rome,38\n", LATE_A),
    "csv with json": ('context,question,answers\nA,?,"{""text"": [""A""]}"\n', [("0", [(0, "A")])]),
    "mrqa": (lines({"header": {}}, {"context": TEXT, "qas": [MRQA]}), [("m", [LATE])]),
    "musique": (MUSIQUES, [("m", [(23, "Rome")]), ("n", [])]),
    "sentences without spaces": ([HOTPOT], [("h", [(18, "Oslo")])]),
}


def saved(folder: Path, content: Any) -> Path:
    (folder / "mine").write_text(content if isinstance(content, str) else json.dumps(content))
    return folder / "mine"


@pytest.mark.parametrize("name", QUESTIONS)
def test_questions(name: str, tmp_path: Path) -> None:
    content, expected = QUESTIONS[name]
    examples = list(read_questions(saved(tmp_path, content)))
    assert [(x.id, [(span.start, span.text) for span in x.answers]) for x in examples] == expected
    for example in examples:
        assert all(example.context[span.start :].startswith(span.text) for span in example.answers)
        assert (example.answer_type == "unknown") == (not example.answers)


def test_squads_text_is_untouched_and_references_are_in_order(tmp_path: Path) -> None:
    context, spaced = "Ann lives in Rome. Bob lives in Rome.", " Where is Ann? "
    asked = {"id": "q1", "question": spaced, "answers": [at(start) for start in (32, 13, 32)]}
    article = {"title": "t", "paragraphs": [{"context": context, "qas": [asked]}]}
    (example,) = read_questions(saved(tmp_path, {"version": "1.1", "data": [article]}))
    spans = (Span(32, 36, "Rome"), Span(13, 17, "Rome"))
    assert example == QAExample("q1", context, spaced, spans, dataset="squad", article="t")


def test_references_and_what_is_remembered_of_coconflictqa(tmp_path: Path) -> None:
    row = {"question": "Where is Ann?", "answers": ["Rome", "the city of Rome", "Rome"]}
    row |= {"context": "Ann left OSLO for the city of Rome.", "majority_res_freq": 4}
    remembered = [" Oslo", "Os", " "]
    rows = [row | {"parametric_answer": text} for text in remembered]
    rows[2]["answers"] = ["Rome", "Rom"]
    one, two, three = read_questions(saved(tmp_path, lines(*rows)))
    assert one.answers == (Span(30, 34, "Rome"), Span(18, 34, "the city of Rome"))
    assert (one.id, one.references) == ("0", ("Rome", "the city of Rome", "Rome"))
    assert (one.dataset, one.remembered) == ("coconflictqa", ("Oslo",))
    assert one.domain == "remembered answer in the text"
    assert two.domain == "remembered answer not in the text"  # inside a longer word
    assert (three.remembered, [span.text for span in three.answers]) == ((), ["Rome"])


def test_real_files_are_read_whole(shared: Path) -> None:
    for name, count in (("train-44-articles", 11_877), ("dev-24-articles", 4_961)):
        assert sum(1 for _ in read_questions(shared / f"data/squad/{name}.json")) == count
    for name, count, within in (("squad", 2225, 323), ("nq", 1409, 311)):
        examples = list(read_questions(shared / f"data/conflict/coconflictqa_{name}.jsonl"))
        assert (len(examples), sum("not" not in one.domain for one in examples)) == (count, within)
        assert all(example.answers for example in examples)
    piqa = shared / "data/piqa"
    questions = read_choices(f"{piqa}/valid.jsonl+{piqa}/valid-labels.lst")
    # Shen and Kejriwal 2022, section 4.1
    assert (len(questions), sum(question.label == 0 for question in questions)) == (1838, 910)


def test_evidence_of_other_layouts(tmp_path: Path) -> None:
    known, unknown = read_questions(saved(tmp_path, MUSIQUES))
    assert known.context == unknown.context == "Oslo is cold. Al is in Rome."
    assert [span.text for span in known.rationale] == ["Al is in Rome."]
    assert (known.gold, unknown.gold, unknown.rationale) == (("Rome", "Roma"), (), ())
    (joined,) = read_questions(saved(tmp_path, [HOTPOT]))
    assert joined.context == "Bo left. Bo is in Oslo."
    assert joined.rationale[0].text == "Bo is in Oslo."


def test_answers_are_moved_to_the_nearest_occurrence(tmp_path: Path, caplog: Log) -> None:
    """Off by a few, counted in bytes (É is two), stray and no-break spaces; one is nowhere."""
    given = [at(8), at(35), at(25, "Oslo"), at(23, " Oslo "), at(6, "in Rome"), at(3, "Bonn")]
    examples = list(read_questions(saved(tmp_path, {"data": [nested(*([one] for one in given))]})))
    found = [(x.id, *((span.start, span.text) for span in x.answers)) for x in examples]
    moved = [ROME, LATE, OSLO, OSLO, (6, "in\u00a0Rome")]
    assert found == [(str(i), one) for i, one in enumerate(moved)]
    line, _ = caplog.messages  # the second: these questions are not English
    assert "mine: moved 5 answers to the nearest occurrence, left out 1" in line
    assert "1 questions" in line


def test_answers_without_an_offset_are_whole_words(tmp_path: Path, caplog: Log) -> None:
    north = "The north gate of 2010 has 10 doors."
    pairs = [(north, "10"), (north, "no"), ("他住在北京。", "北京"), ("Art_no 5", "no")]
    rows = [{"context": text, "question": "Q?", "answer": answer} for text, answer in pairs]
    assert [x.answers[0].start for x in read_questions(saved(tmp_path, rows))] == [27, 3, 4]
    assert "left out 1, and 1 questions" in caplog.text


def test_one_id_of_several_questions_is_made_unique(tmp_path: Path, caplog: Log) -> None:
    names = ["7", "7_2", "7", "7"]
    rows = [ROW | {"id": name, "question": f"{i}?"} for i, name in enumerate(names)]
    ids = [example.id for example in read_questions(saved(tmp_path, rows))]
    assert (ids[:2], len({*ids})) == (["7", "7_2"], 4)
    assert "2 questions had the id of another" in caplog.text
    with pytest.raises(DataError, match=r"mine: questions 1 and 3 \(id 7\) are the same"):
        list(read_questions(saved(tmp_path, [rows[0], rows[1], rows[0]])))


AB = ["a", "b"]
ARC = {"question": "Why?", "choices": {"text": AB, "label": ["A", "B"]}, "answerKey": "B"}
COPA = {"premise": "It fell.", "choice1": "a", "choice2": "b", "question": "cause", "label": 1}
ANLI = {"obs1": "He", "obs2": "ran.", "hyp1": "a", "hyp2": "b", "label": 2}
HUB_ANLI = {"observation_1": "He", "observation_2": "ran."}
HUB_ANLI |= {"hypothesis_1": "a", "hypothesis_2": "b"}
HELLASWAG = {"ctx_a": "He", "ctx_b": "ran.", "label": "1"}
STEM = {"stem": "Why?", "choices": [{"text": "a", "label": "1"}, {"text": "b", "label": "2"}]}
ENDINGS = {f"ending{i}": text for i, text in enumerate("abcd")}
CHOICES: dict[str, tuple[Any, tuple[str, int, int]]] = {
    "arc": ([ARC], ("Why?", 2, 1)),
    "arc with numbers": ([{"id": "x", "question": STEM, "answerKey": "2"}], ("Why?", 2, 1)),
    "openbookqa": (lines(renamed(ARC, question="question_stem")), ("Why?", 2, 1)),
    "mmlu": ([{"question": "Why?", "choices": [*"abcd"], "answer": 2}], ("Why?", 4, 2)),
    "mmlu as csv": ("question,A,B,C,D,answer\nWhy?,a,b,c,d,C\n", ("Why?", 4, 2)),
    "copa": (lines(COPA), ("It fell. What was the cause of this?", 2, 1)),
    "swag": ([{"sent1": "He", "sent2": "ran.", "label": 3} | ENDINGS], ("He ran.", 4, 3)),
    "race": ([{"article": "", "question": "Why?", "options": AB, "answer": "B"}], (" Why?", 2, 1)),
    "piqa": ([{"goal": "Why?", "sol1": "a", "sol2": "b", "label": 1}], ("Why?", 2, 1)),
    "anli": ([ANLI], ("He ran.", 2, 1)),
    "anli of the hub": ([HUB_ANLI | {"label": 2}], ("He ran.", 2, 1)),
    "hellaswag": ([HELLASWAG | {"endings": [*"abcd"]}], ("He ran.", 4, 1)),
    "hellaswag's options": ([HELLASWAG | {"ending_options": [*"abcd"]}], ("He ran.", 4, 1)),
}


@pytest.mark.parametrize("name", CHOICES)
def test_choices(name: str, tmp_path: Path) -> None:
    content, expected = CHOICES[name]
    (question,) = read_choices(saved(tmp_path, content))
    assert (question.prompt, len(question.choices), question.label) == expected
    assert question.choices == tuple("abcd"[: expected[1]])


def test_relatives_of_bbq_name_their_ids_otherwise_or_begin_with_a_mark(tmp_path: Path) -> None:
    names = {"example_id": "\ufeffinstance_id", "question_index": "template_id"}
    save_bbq(tmp_path)
    rows = map(json.loads, (tmp_path / "bbq.jsonl").read_text().splitlines())
    other = saved(tmp_path, lines(*(renamed(row, **names) for row in rows)))
    items = read_bbq([str(tmp_path / "bbq.jsonl")], tmp_path / "metadata.csv")
    assert read_bbq([str(other)], tmp_path / "metadata.csv") == items


def inspected(name: int, text: str) -> dict[str, Any]:
    return {"id": name, "epoch": 1, "output": {"choices": [{"message": {"content": text}}]}}


OF_TURN = {"id": "s", "turn_id": 1, "answer": ""}
PREDICTIONS: dict[str, Any] = {
    "official": {"1": "Oslo", "2": ""},
    "hotpotqa": {"answer": {"1": "Oslo", "2": ""}, "sp": {"1": []}},
    "prediction_text": [{"id": "1", "prediction_text": "Oslo"}, {"id": "2", "prediction_text": ""}],
    "lm-evaluation-harness": [
        {"doc_id": 0, "doc": {"id": "1"}, "resps": [["Oslo"]]},
        {"doc_id": 2, "doc": {}, "resps": [[""]]},
    ],
    "inspect": {"version": 2, "samples": [inspected(1, "Oslo"), inspected(2, "")]},
    "coqa": [{"id": "1", "answer": "Oslo"}, {"id": "2", "answer": ""}, OF_TURN],
}


@pytest.mark.parametrize("name", PREDICTIONS)
def test_predictions(name: str, tmp_path: Path) -> None:
    rows = [ROW | {"id": i, "question": f"{i}?"} for i in "123"]
    examples = list(read_questions(saved(tmp_path, rows)))
    answers = Predictions(str(saved(tmp_path, PREDICTIONS[name]))).answers(examples)
    assert [(x.text, x.failure) for x in answers] == [("Oslo", ""), ("", ""), ("", MISSING)]


SEVERAL = "line 2: .*line 6: .*; and 2 more$"
BAD: dict[str, tuple[Any, str]] = {
    "other fields": ([{"goal": "", "sol1": ""}], "unknown format; its fields: goal, sol1; .*lacks"),
    "empty": (" \n", "mine: is empty"),
    "a web page": ("\ufeff\n<HTML>\n", "is a web page"),
    "a pointer": ("version https://git-lfs.github.com/spec/v1\n", "is a Git LFS pointer"),
    "a zip": ("PK\x03\x04 ...", "is a zip archive"),
    "no answers": ([{"question": "?", "context": [["A", ["b"]]]}], "'answers' is missing"),
    "no answer": ([renamed(HOTPOT, answer="")], "'answer' is missing"),
    "a contradiction": ([ROW | {"is_impossible": True}], r"\(id 1\): is_impossible is True"),
    "no such title": ([HOTPOT | {"supporting_facts": [["Z", 0]]}], "title 'Z' is not among"),
    "no such fact": ([HOTPOT | {"supporting_facts": [["A", 9]]}], "no supporting fact is left"),
    "a cell of python": ("context,question,answers\nAl.,Who?,{'text': 1}\n", "row 0: not JSON"),
    "fewer offsets": ([ROW | {"answers": {"text": AB, "answer_start": [1]}}], r"\[0\]: .*shorter"),
    "several lines": (lines(ROW, 3, *[ROW | {"context": i} for i in range(6)]), SEVERAL),
    "lines not in JSON": (f"{lines(ROW)}\n{{x\n\n{{y\n", "line 2: not JSON.*line 4: not JSON"),
    "one article": ([nested(3, 4)], r"\[0\].paragraphs.*qas\[0\].*qas\[1\]"),
}


@pytest.mark.parametrize("name", BAD)
def test_defects_are_named_together(name: str, tmp_path: Path) -> None:
    content, message = BAD[name]
    with pytest.raises(DataError, match=message) as caught:
        list(read_questions(saved(tmp_path, content)))
    assert len(str(caught.value)) < 2000


def save_lines(path: Path, rows: Iterable[Any]) -> Path:
    path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows))
    return path


@pytest.mark.parametrize(("name", "row", "first"), [("socialiqa", SOCIAL, 1), ("bbq", BBQ, 0)])
def test_labels_are_apart_or_inside(name: str, row: Any, first: int, tmp_path: Path) -> None:
    """Counted from 0 or 1 apart; inside as the benchmark does, in files of three kinds."""
    prompt, texts = f"{row['context']} {row['question']}", tuple(row.values())[-3:]
    expected = [ChoiceQuestion(f"{name}-{i}", prompt, texts, i, name) for i in range(3)]
    questions = save_lines(tmp_path / "any name", [row] * 3)
    for base in (0, 1):
        labels = save_lines(tmp_path / "labels", [str(base + i) for i in range(3)])
        assert read_choices(f"{questions}+{labels}") == expected
    rows = [row | {"label": str(first + i)} for i in range(3)]
    path = save_lines(tmp_path / "rows", rows)
    assert read_choices(path) == expected
    path.write_text(json.dumps([row | {"label": first + i} for i in range(3)]))
    assert read_choices(path) == expected
    table = datasets.Dataset.from_list(rows)
    datasets.DatasetDict({"validation": table}).save_to_disk(str(tmp_path / "folder"))
    assert read_choices(f"{tmp_path / 'folder'}:validation") == expected
    part = save_lines(tmp_path / "part", [row | {"label": first + 1}] * 3)  # from 0 or 1: unclear
    assert [question.label for question in read_choices(part)] == [1, 1, 1]


def test_ids_are_kept_if_they_tell_questions_apart(tmp_path: Path) -> None:
    for ids, names in (([0, 7], ["0", "7"]), ([7, 7], ["piqa-0", "piqa-1"])):
        path = save_lines(tmp_path / "a+b", [PIQA | {"label": 0, "id": i} for i in ids])
        assert split_labels(str(path)) == (str(path), "")  # the file has a + in its name
        assert [question.id for question in read_choices(path)] == names


@pytest.mark.parametrize(
    ("rows", "labels", "named"),
    [
        ([PIQA, PIQA], ["0"], "labels: 1 .*rows has 2"),
        ([PIQA, PIQA], ["0", "2"], "labels, line 2.*label 2"),
        ([PIQA], [], "rows, line 1: .*'label'"),
        ([PIQA | {"label": 0}, {"goal": "x", "label": 0}], [], "line 2: .*sol1"),
        ([BBQ | {"context_condition": "Ambig"}], [], "line 1.*context_condition"),
        ([BBQ | {"context_condition": None}], [], "line 1.*context_condition"),
        ([{"question": "?"}], [], "rows: unknown format"),
        ([{"id": "a", "prompt": "p", "choices": ["x", "y"], "label": 2}], [], "1.*label is 2"),
    ],
)
def test_mistakes_in_choices(rows: Any, labels: list[str], named: str, tmp_path: Path) -> None:
    source = str(save_lines(tmp_path / "rows", rows))
    if labels:
        source += f"+{save_lines(tmp_path / 'labels', labels)}"
    with pytest.raises(DataError, match=named):
        read_choices(source)


def test_bbqs_target_follows_its_condition(tmp_path: Path) -> None:
    conditions = [{}, {"context_condition": "ambig"}, {"context_condition": "disambig"}]
    path = save_lines(tmp_path / "rows", [BBQ | more for more in conditions])
    assert [question.target for question in read_choices(path)] == ["label", "unknown", "label"]


def test_equal_choices_bring_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    read_choices(saved(tmp_path, [{"id": "a", "prompt": "p", "choices": ["x", " X"], "label": 0}]))
    assert "of 1 questions two choices are equal" in caplog.text
