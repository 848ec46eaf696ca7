"""Sources of every kind, records that are written and read back, and what is said of bad ones."""

import json
from dataclasses import asdict
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interventune.data_modules import sources
from interventune.data_modules.schema.groups import ADVICE_CLASSES, Group, ScoredGroup
from interventune.data_modules.schema.questions import QAExample, Span, Turn, write_records
from interventune.storage.documents import DataError
from tests.data_modules.fixtures.tiny_lists import make_group

EXAMPLE = QAExample("1", "Ann lives in Rome.", "Where?", (Span(13, 17, "Rome"),), dataset="squad")
READERS = (sources.read_questions, sources.read_groups, sources.read_choices)

HOTPOT: dict[str, Any] = {"id": "h", "question": "Where?", "answer": "Rome", "type": "bridge"}
HOTPOT["supporting_facts"] = {"title": ["Ann"], "sent_id": [0]}
HOTPOT["context"] = {"title": ["Ann"], "sentences": [["Ann lives in Rome."]]}
COQA: dict[str, Any] = {"source": "x", "story": EXAMPLE.context, "questions": ["Where?"]}
COQA["answers"] = {"input_text": ["Rome"], "answer_start": [0], "answer_end": [18]}
SQUAD = {"id": "1", "context": EXAMPLE.context, "question": "Where?"}
SQUAD |= {"answers": {"text": ["Rome"], "answer_start": [13]}}
ASKED = QAExample("a", "Ida sat.", "Who?")
IDA = {"answers": [{"start": 0, "end": 3, "text": "Ida"}]}


def test_fields_between_tabs_are_quoted_if_the_whole_file_is(tmp_path: Path) -> None:
    for text, first, second in (
        ('"two\nlines\tand ""quotes"""\n2\tb\n', 'two\nlines\tand "quotes"', "b"),
        ('"Go," she said.\n2\tb"\n', '"Go," she said.', 'b"'),
        ('"open\n2\tb\n', '"open', "b"),
    ):
        (tmp_path / "table.tsv").write_text("id\ttext\n1\t" + text)
        rows = [row for _, row in sources.labelled_rows(str(tmp_path / "table.tsv"))]
        assert rows == [{"id": "1", "text": first}, {"id": "2", "text": second}]


@pytest.mark.parametrize(
    ("table", "line"),
    [("1,a,\n2,b,\n", 2), ("1,a, c\n2,b\n", 2), ('1,"a, c"\n2,b\n3\n', 4), ('1,"a\n2,b\n', 3)],
)
def test_rows_are_as_long_as_the_header(tmp_path: Path, table: str, line: int) -> None:
    (tmp_path / "t.csv").write_text("id,text\n" + table)
    with pytest.raises(DataError, match=rf"t\.csv.*(line {line}: . fields|unexpected end)"):
        list(sources.labelled_rows(str(tmp_path / "t.csv")))


def table_sources(folder: Path, row: dict[str, Any]) -> list[str]:
    """One row as a parquet file, a split of a folder and a folder."""
    import datasets

    table = datasets.Dataset.from_list([row])
    table.to_parquet(folder / "rows")
    table.save_to_disk(folder / "one")
    datasets.DatasetDict(train=table, dev=table).save_to_disk(folder / "t:wo")
    return [*(f"{folder}/{name}" for name in ("rows", "one", "t:wo:dev")), f"hub:{folder}/t:wo:dev"]


@pytest.mark.parametrize(("name", "row"), [("squad", SQUAD), ("hotpotqa", HOTPOT), ("coqa", COQA)])
def test_layouts_of_the_hub_are_recognised(tmp_path: Path, name: str, row: Any) -> None:
    for source in table_sources(tmp_path, row):
        (example,) = sources.read_questions(source)
        assert (example.dataset, example.answers) == (name, EXAMPLE.answers)
    with pytest.raises(DataError, match="train"):
        list(sources.read_questions(tmp_path / "t:wo"))
    with pytest.raises(DataError, match="t:wo:test: cannot load"):
        list(sources.read_questions(f"{tmp_path / 't:wo'}:test"))


def test_the_hub_is_asked_for_name_and_split(monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    asked = []

    def load_dataset(name: str, *config: str, split: str | None = None) -> Any:
        asked.append((name, *config, split))
        if name == "broken":
            raise ConnectionError("no network\nand a long story")
        return [SQUAD] if split else {"train": [SQUAD], "validation": [SQUAD]}

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    for name in ("rajpurkar/squad:validation[:100]", "rajpurkar/squad/plain_text:train"):
        assert list(sources.read_questions(f"hub:{name}")) == [EXAMPLE]
    one, other = ("validation[:100]",), ("plain_text", "train")
    assert asked == [("rajpurkar/squad", *one), ("rajpurkar/squad", *other)]
    wrong = {"rajpurkar/squad": "squad:train", "broken:train": "no network and a long story$"}
    for source, names in (wrong | {"": "hub:"}).items():
        with pytest.raises(DataError, match=names):
            list(sources.read_questions(f"hub:{source}"))


def test_stories_need_no_download() -> None:
    def first(source: str) -> list[QAExample]:
        return list(islice(sources.read_questions(source), 3))

    assert first("stories:dev") == first("stories:dev?seed=0") != first("stories:dev?seed=1")
    assert next(sources.read_groups("stories:train")).advice_class in ADVICE_CLASSES[:3]
    for read in READERS:
        with pytest.raises(DataError, match="nowhere"):
            next(iter(read("stories:nowhere")))


@pytest.mark.parametrize("prefix", ["", "hub:", "stories:", "file+"])
def test_a_source_of_any_length_is_one_clear_error(prefix: str) -> None:
    with pytest.raises(DataError):
        list(sources.read_questions(prefix + "a" * 300))
    assert sources.split_labels("x" * 300 + "+y")[1] == "y"


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
PAIR = st.tuples(st.floats(0, 1), st.floats(0, 1))
SCORES = st.tuples(*[st.tuples(PAIR, PAIR)] * 4)
IDS = st.sampled_from(["", "ethical_rude-0"])
GROUP = st.builds(make_group, act=TEXT, advice_id=IDS, note=TEXT)
SCORED = st.builds(ScoredGroup, GROUP, st.none() | SCORES, answers=st.tuples(TEXT, TEXT))
FEW = {"min_size": 1, "max_size": 3}


@given(
    groups=st.lists(GROUP, **FEW, unique_by=lambda group: group.key),
    scored=st.lists(SCORED, **FEW, unique_by=lambda record: record.group.key),
)
def test_written_groups_are_read_back(
    groups: list[Group], scored: list[ScoredGroup], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("records")
    assert write_records(groups, folder / "groups") == len(groups)
    assert list(sources.read_groups(folder / "groups")) == groups
    write_records(scored, folder / "scored")
    assert list(sources.read_scored(folder / "scored")) == scored
    assert list(sources.read_groups(folder / "scored")) == [record.group for record in scored]


CONTEXT = "Ånna \U0001d4b3\tsat.\n\u2028B\u0301o"
PIECE = st.tuples(*[st.integers(0, len(CONTEXT))] * 2).map(sorted).map(tuple)
SPAN = PIECE.map(lambda piece: Span(*piece, CONTEXT[slice(*piece)]))
TEXTS, TURNS, SPANS, PIECES = (
    st.lists(part, max_size=3).map(tuple)
    for part in (TEXT, st.builds(Turn, TEXT, TEXT), SPAN, PIECE)
)
OTHERS = {"references": TEXTS, "history": TURNS, "rationale": SPANS, "kept": PIECES}
OTHERS |= dict.fromkeys(("advice", "dataset", "domain", "article", "appended"), TEXT)
OTHERS |= {"variant": st.sampled_from(["os", "ts_r", "swap"]), "remembered": TEXTS}
ASKING = partial(st.builds, QAExample, TEXT, st.just(CONTEXT), TEXT, **OTHERS)
QUESTIONS = ASKING(answers=SPANS) | ASKING(answer_type=st.sampled_from(["yes", "no", "unknown"]))


@given(st.lists(QUESTIONS, **FEW, unique_by=lambda example: example.id))
def test_written_questions_are_read_back(
    tmp_path_factory: pytest.TempPathFactory, written: list[QAExample]
) -> None:
    path = tmp_path_factory.mktemp("records") / "questions.jsonl"
    assert write_records(written, path) == len(written)
    assert list(sources.read_questions(path)) == written


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"answers": [{"start": 0, "end": 3, "text": "Bob"}]}, "cuts no 'Bob'"),
        ({"rationale": [{"start": -4, "end": -1, "text": "sat"}]}, "offset -4"),
        ({"context": 5}, "'context'"),
        (IDA | {"answer_type": "yes"}, "is yes"),
        (IDA | {"answer_type": "unknown"}, "is unknown"),
        ({"category": None}, "the field 'category'"),
    ],
)
def test_a_bad_record_is_named(tmp_path: Path, change: Any, error: str) -> None:
    read = sources.read_groups if "category" in change else sources.read_questions
    record = asdict(make_group() if "category" in change else ASKED)
    path = tmp_path / "records.jsonl"
    path.write_text(json.dumps(record) + "\n" + json.dumps(record | change | {"id": "b"}))
    with pytest.raises(DataError, match=f"records.jsonl, line 2: .*{error}"):
        list(read(path))
