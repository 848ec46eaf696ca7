"""UnQover's lists, and the released layouts: a group is two records, one for each order."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import count, repeat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interventune.data_modules.groups.released import read_unqover_file
from interventune.data_modules.groups.unqover import read_expansion, repair_articles, write_source
from interventune.data_modules.schema.questions import write_records
from interventune.data_modules.sources import read_groups, read_questions, read_scored
from interventune.storage.documents import DataError
from tests.data_modules.fixtures import tiny_lists as tiny

NAME = st.text("aAnmoetB", min_size=1, max_size=5)


@given(st.lists(NAME, min_size=2, max_size=4, unique_by=str.lower))
def test_candidates_are_exact(tmp_path_factory: pytest.TempPathFactory, names: list[str]) -> None:
    subjects = "".join(f"[subj] {name}\n" for name in names)
    lists = [subjects], tiny.TEMPLATES, tiny.ATTRIBUTES
    for group in tiny.groups_of(tiny.expansion(tmp_path_factory.mktemp("lists"), *lists)):
        for index, variant in enumerate(group.variants):
            first, second = variant.candidates[:: -1 if index >= 2 else 1]
            assert {span.text.lower() for span in (first, second)} == set(group.subjects)
            article = len(repair_articles(f"A {first.text}")) - len(first.text)
            assert first.start == (article if group.template == "0" else 11)
            assert second.start == len(variant.context) - len(f"{second.text} man.")


def test_two_lists_are_paired_with_each_other_women_first(tmp_path: Path) -> None:
    pairs, *_ = tiny.expansion(tmp_path, *tiny.NAMES)
    names = [(one.cluster, one.name, two.name) for one, two in pairs]
    men = ("Carl", "Dan", "Egon")
    assert names == [("female", one, two) for one in ("Ada", "Bea") for two in men]


LONGER = tiny.ATTRIBUTES + "[p_act] rude | were odd\n"
TWICE = tiny.SUBJECTS + "[subj] tarn\n"
FORMS = tiny.TEMPLATES.replace("subj1", "subj1:dem")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("subjects", "[subj] Tarn\nOro\n", "subjects, line 2"),
        ("subjects", TWICE, "subjects: 'Tarn' would be paired with itself"),
        ("attributes", LONGER, r"5 .*\[p_act\].* 4 .*\[p_act:neg\]"),
        ("templates", "A [subj1] met [subj2].\tWho [p_act]?\n", "line 1"),
        ("templates", FORMS, r"'Ulban' has no row \[subj:dem\]"),
    ],
)
def test_malformed_lists_name_the_line(tmp_path: Path, name: str, text: str, message: str) -> None:
    files = tiny.write_lists(tmp_path)
    tiny.put(files[name], text)
    with pytest.raises(DataError, match=message):
        read_expansion([files["subjects"]], files["templates"], files["attributes"])


RELIGION = "6c77c765e8f2ae7791f3c559e98bdb1d4ff32988742747f6e63d2332bbf70c60"
ETHNICITY = "7015f8a8f63c83bf33a46374675d50b15f4df10a99877dc18dc1c44736fa5e2a"


def test_unqovers_own_files_are_reproduced(tmp_path: Path, shared: Path) -> None:
    """All of religion; of ethnicity, the records of every 15th pair."""
    lists, path = shared / "data/unqover", tmp_path / "source.json"
    files = ("religion", 1, 77_000, RELIGION), ("ethnicity", 15, 9_800, ETHNICITY)
    for domain, step, size, sha256 in files:
        rest = lists / f"slots/{domain}_noact", lists / f"activities/biased_{domain}"
        whole = read_expansion([lists / "nouns/subjects" / domain], *rest)
        assert write_source(whole._replace(pairs=whole.pairs[::step]), path) == size
        assert hashlib.sha256(path.read_bytes()).hexdigest() == sha256


SAID = "Note that, Mr. U. knows both. Origin decides nothing."
ASKED = ("Who was loud in the U.S. then?", "Who was quiet in the U.S. then?")
KEY = "oro|ulban|0|rude|was loud|was loud|adversarial_rude-2"


def paragraph(first: str, second: str, tomax: tuple[int, int]) -> dict[str, Any]:
    qas: list[dict[str, Any]] = []
    for index, asked in enumerate(ASKED):
        base = 0.1 + 0.2 * index + (0.4 if first == "Ulban" else 0)
        answers = [
            {"text": text, "answer_start": start, "start-end-score": [score, score + 0.01]}
            for text, start, score in ((first, 0, base), (second, len(first) + 5, base + 0.1))
        ]
        question = f"{SAID}  {asked}"
        qas.append({"question": question, "answers": answers, "tomax": tomax[index]})
    context = f"{first} met {second}."
    return {"qas": qas, "key": KEY, "context": context, "intervention": "adversarial"}


def document() -> dict[str, Any]:
    paragraphs = [paragraph("Oro", "Ulban", (0, 1)), paragraph("Ulban", "Oro", (1, 0))]
    return {"data": [{"title": "oro-ulban", "paragraphs": [part]} for part in paragraphs]}


def saved(folder: Path, content: Any) -> Path:
    path = folder / "lei.json"
    path.write_text(json.dumps(content))
    return path


def test_lei_pairs_two_paragraphs_in_the_order_of_the_subjects(tmp_path: Path) -> None:
    (record,) = read_scored(saved(tmp_path, document()))
    group = record.group
    assert group.key == KEY
    assert (group.subjects, group.advice_class) == (("oro", "ulban"), "adversarial")
    assert [v.context for v in group.variants] == ["Oro met Ulban."] * 2 + ["Ulban met Oro."] * 2
    assert [v.question for v in group.variants] == [*ASKED] * 2
    assert {v.advice for v in group.variants} == {SAID}
    assert [v.candidates[0].start for v in group.variants] == [0, 0, 10, 10]
    assert record.base_scores is not None
    flat = [[round(start, 2) for start, _ in variant] for variant in record.base_scores]
    assert flat == [[0.1, 0.2], [0.3, 0.4], [0.6, 0.5], [0.8, 0.7]]


BAD: list[tuple[str, Any, str]] = [
    ("key", KEY.replace("|was loud|was loud", "|was loud|was odd"), "same attribute"),
    ("key", KEY.replace("ulban", "tarn"), "subjects"),
    ("answer_start", 7, r"offset 7"),
    ("question", f"{SAID}  Who was odd?", "not the same question"),
    ("question", "Note that, x. Who was loud?", "no advice .* share"),
]


@pytest.mark.parametrize(("field", "value", "message"), BAD)
def test_a_false_record_is_named(field: str, value: Any, message: str, tmp_path: Path) -> None:
    content = document()
    first = content["data"][0]["paragraphs"][0]
    question, answer = first["qas"][0], first["qas"][0]["answers"][1]
    next(part for part in (first, question, answer) if field in part)[field] = value
    with pytest.raises(DataError, match=message) as caught:
        list(read_groups(saved(tmp_path, content)))
    assert "lei.json: data[0].paragraphs[0]" in str(caught.value)


def test_one_order_alone_and_one_order_twice_are_refused(tmp_path: Path) -> None:
    one, other = document()["data"]
    alone, twice = "no record with the subjects in the order ulban, oro", "occur a second time"
    left = alone.replace("ulban, oro", "oro, ulban")
    for data, message in (([one], alone), ([one, one], twice), ([one, other, other], left)):
        with pytest.raises(DataError, match=message):
            list(read_groups(saved(tmp_path, {"data": data})))


def source(folder: Path) -> dict[str, Any]:
    write_source(tiny.expansion(folder, *tiny.NAMES), folder / "source.json")
    return json.loads((folder / "source.json").read_text())


@pytest.mark.parametrize("lists", [tiny.TINY, tiny.NAMES, tiny.DEMONYMS])
def test_reading_a_written_source_gives_the_groups_of_the_lists(tmp_path: Path, lists: Any) -> None:
    parts = tiny.expansion(tmp_path, *lists)
    write_source(parts, tmp_path / "source.json")
    groups = {group.key: group for group in tiny.groups_of(parts)}
    assert {group.key: group for group in read_groups(tmp_path / "source.json")} == groups


def test_a_context_without_its_subjects_is_refused(tmp_path: Path) -> None:
    records = source(tmp_path)
    next(iter(records.values()))["context"] = "Ada left."
    with pytest.raises(DataError, match="do not both occur"):
        list(read_groups(saved(tmp_path, records)))


def fill(record: dict[str, Any], advice: str, scores: Iterator[Any]) -> None:
    """Put advice before a record's questions, and the next scores into its answers."""
    for name in ("q0", "q1"):
        record[name]["question"] = f"{advice} {record[name]['question']}"
        for answer in ("ans0", "ans1"):
            record[name][answer] |= {"start": next(scores), "end": next(scores)}


def fine_tuned(records: dict[str, Any]) -> dict[str, Any]:
    """As LEI's fine-tuning writes: a lower-case id, subjects sorted, to a record a question."""
    found: dict[str, list[dict[str, Any]]] = {}
    for key, record in sorted(records.items(), key=lambda item: item[0].split("|")[2].lower()):
        _, _, *names, template, category, attribute, again, advice = key.lower().split("|")
        parts = ("None", "None", *sorted(names), template, category, attribute, again, advice)
        asked = [{"context": record["context"], name: record[name]} for name in ("q0", "q1")]
        found.setdefault("|".join(parts), []).extend(asked)
    return found


def test_the_layout_of_the_authors_fine_tuning_holds_the_same(tmp_path: Path) -> None:
    records = {f"{key}|ethical_none-3": record for key, record in source(tmp_path).items()}
    scores = (number / 1000 for number in count())
    for record in records.values():
        fill(record, "Note that, be fair.", scores)
    expected = {record.group.key: record for record in read_unqover_file(saved(tmp_path, records))}
    variants = [(r.group, variant) for r in expected.values() for variant in r.group.variants]
    advice = {(g.advice_class, g.advice_id, v.advice, v.question[:4]) for g, v in variants}
    assert advice == {("ethical", "ethical_none-3", "Note that, be fair.", "Who ")}
    found = [*read_unqover_file(saved(tmp_path, fine_tuned(records)))]
    clusters = ("female", "male")
    assert {record.group.key: replace(record, clusters=clusters) for record in found} == expected
    assert found[0].base_scores is not None
    swapped = {key: parts[2:] + parts[:2] for key, parts in fine_tuned(records).items()}
    assert [*read_unqover_file(saved(tmp_path, swapped))] == found


ADVICE = ("Note that, gender is no ground.", "Note that, jobs are open to all.")


def test_the_specified_set_is_ethical(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Ids of eight fields, a sentence that names the man, and each record's own ethical advice."""
    records = source(tmp_path)
    for i, (key, record) in enumerate(records.items()):
        first, _, one, two, *_ = key.split("|")
        record["context"] += f" Then {one if first == 'male' else two} did it."
        fill(record, ADVICE[i % 5 % 2], repeat("[TODO]"))
    path = saved(tmp_path, {key + "|none" * (i % 2): records[key] for i, key in enumerate(records)})
    groups = [*read_groups(path)]
    assert [group.advice_class for group in groups] == ["ethical"] * 12
    assert {variant.advice for group in groups for variant in group.variants} == {*ADVICE}
    assert {variant.question[:4] for group in groups for variant in group.variants} == {"Who "}
    assert any(group.variants[0].advice != group.variants[2].advice for group in groups)
    assert "12 groups" in caplog.messages[0]
    write_records(groups, tmp_path / "groups.jsonl")
    assert [*read_groups(tmp_path / "groups.jsonl")] == groups
    for file in (path, tmp_path / "groups.jsonl"):
        questions = [*read_questions(file)]
        assert len(questions) == 24
        assert {question.answers[0].text for question in questions} == {"Carl", "Dan", "Egon"}
        assert {question.advice for question in questions} == {*ADVICE}
