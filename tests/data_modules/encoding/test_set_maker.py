"""Prepared data are the same as data made in memory, and are prepared once."""

from __future__ import annotations

import json
import pickle
import shutil
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from data_modules.encoding.arrow_rows import MappedRows, map_chunks, write_tables
from data_modules.encoding.data_cache import MARKER
from data_modules.encoding.pairs import PairSet
from data_modules.encoding.questions import encode_qa
from data_modules.encoding.sets import GroupSet, QASet
from data_modules.encoding.stored_groups import group_line, read_group
from data_modules.encoding.stored_questions import MakeWindows, StoredExamples, StoredFeatures, example_table
from data_modules.encoding.windows import Encoding
from data_modules.groups.lei import write_lei
from data_modules.groups_data import GroupsDataModule
from data_modules.interventions.variants import Interventions
from data_modules.questions.rows import write_rows
from data_modules.questions.squad import write_squad
from data_modules.schema import Group, QAExample, Span, UnderspecifiedQuestion
from data_modules.stories import groups as story_groups
from data_modules.stories import questions as stories
from storage.errors import DataError
from tests.data_modules.small_tokenizers import KINDS, tokenizer

SHORT = Encoding(max_length=48, stride=16)
"""Cuts many stories into several windows."""

LONG = Encoding(max_length=160, stride=32)
"""Has room for a conversation before the question, and for advice."""


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Questions in SQuAD's format, conversations, and groups."""
    folder = tmp_path_factory.mktemp("sources")
    paths = {name: folder / f"{name}.json" for name in ("squad", "coqa", "groups")}
    write_squad(islice(stories.qa_examples("train"), 40), paths["squad"])
    write_rows(islice(stories.qa_examples("conversation_train"), 60), paths["coqa"])
    write_lei(islice(story_groups.groups("train"), 18), paths["groups"])
    return {name: str(path) for name, path in paths.items()}


@pytest.fixture
def files(written: dict[str, str], tmp_path: Path) -> dict[str, str]:
    """The same, for a test to change."""
    return {name: shutil.copy(path, tmp_path) for name, path in written.items()}


def module(cache: Path | str, fn: str = "fit", *, prepare: bool = True, **options: Any) -> GroupsDataModule:
    """A DataModule as the Trainer leaves it behind."""
    given_options = {"tokenizer": "stories", "architecture": "roberta", "encoding": SHORT, **options}
    data = GroupsDataModule(cache=str(cache), **given_options)
    data.trainer = SimpleNamespace(state=SimpleNamespace(fn=SimpleNamespace(value=fn)))  # type: ignore[assignment]
    if prepare:
        data.prepare_data()
    data.setup(fn)
    return data


def squad(files: dict[str, str]) -> dict[str, Any]:
    return {"train_qa": files["squad"], "val_qa": {"main": files["squad"]}, "limit_train_qa": 25}


def conversations(files: dict[str, str]) -> dict[str, Any]:
    how = Interventions(train=["os", "ts", "ts_r"], watch=["os", "ts_r", "ts_r_aug"], shift=["ts", "ts_r"])
    return {
        "train_qa": files["coqa"],
        "val_qa": {"main": files["coqa"]},
        "interventions": how,
        "encoding": LONG,
    }


def sentences(files: dict[str, str]) -> dict[str, Any]:
    how = Interventions(train=["os", "ts_r"], rationale="answer_sentence", watch=["os_r"], shift=["os_r"])
    return {"train_qa": files["squad"], "val_qa": {"main": files["squad"]}, "interventions": how}


def groups(files: dict[str, str]) -> dict[str, Any]:
    return {
        "train_groups": [files["groups"]],
        "val_groups": {"main": files["groups"]},
        "encoding": LONG,
        "train_advice": "random",
        "limit_val_groups": 3,
    }


CASES = {"squad": squad, "conversations": conversations, "sentences": sentences, "groups": groups}


def flat(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for key in sorted(value):
            yield from flat(value[key])
    elif value is not None:
        for item in value:
            yield from flat(item)


def same(first: Any, second: Any) -> bool:
    one, two = list(flat(first)), list(flat(second))
    return len(one) == len(two) and all(
        a.dtype == b.dtype and torch.equal(a, b) for a, b in zip(one, two, strict=True)
    )


@pytest.mark.filterwarnings("error:The given NumPy array is not writ")
@pytest.mark.parametrize("case", CASES)
def test_batches_are_those_of_data_made_in_memory(case: str, files: dict[str, str], tmp_path: Path) -> None:
    options = CASES[case](files)
    plain, stored = module("", **options), module(tmp_path / "cache", **options)
    batches = [list(data.train_dataloader()) for data in (plain, stored)]
    assert len(batches[0]) == len(batches[1]) > 0
    assert all(same(a, b) for a, b in zip(*batches, strict=True))
    sets = [data.eval_sets["val"] for data in (plain, stored)]
    assert [s.name for s in sets[0]] == [s.name for s in sets[1]]
    for (_, one), (_, two) in zip(*sets, strict=True):
        assert type(one) is type(two)
        assert one.batches(5) == two.batches(5)
        assert all(same(one[batch], two[batch]) for batch in one.batches(5))
        if isinstance(one, QASet) and isinstance(two, QASet):
            assert list(two.examples) == one.examples
            assert two.may_abstain == one.may_abstain
            assert list(two.lengths) == list(one.lengths)
            assert two.first_of(["yes", "unknown"]) == one.first_of(["yes", "unknown"])
        elif isinstance(one, GroupSet) and isinstance(two, GroupSet):
            assert list(two.groups) == one.groups
            assert (two.subjects, two.attributes, two.ids) == (one.subjects, one.attributes, one.ids)
        elif isinstance(one, PairSet) and isinstance(two, PairSet):
            assert list(two.pairs) == one.pairs
            assert two.variant == one.variant
            assert [f.windows for f in two.features] == [f.windows for f in one.features]


@pytest.mark.parametrize("case", CASES)
def test_the_second_start_reads_and_tokenises_nothing(
    case: str, files: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = CASES[case](files)
    first = module(tmp_path / "cache", **options)

    def refuse(*arguments: Any, **options: Any) -> Any:
        raise AssertionError("not again")

    monkeypatch.setattr("data_modules.encoding.windows._encode_chunk", refuse)
    monkeypatch.setattr("data_modules.encoding.set_maker.read_questions", refuse)
    monkeypatch.setattr("data_modules.groups_data.read_groups", refuse)
    monkeypatch.setattr("data_modules.interventions.variants.perturb_all", refuse)
    again = module(tmp_path / "cache", **options)
    another_process = module(tmp_path / "cache", prepare=False, **options)
    batches = [list(data.train_dataloader()) for data in (first, again, another_process)]
    assert all(same(batches[0], other) for other in batches[1:])


@pytest.mark.parametrize("case", CASES)
def test_without_prepared_data_a_process_makes_its_own(
    case: str, files: dict[str, str], tmp_path: Path
) -> None:
    data = module(tmp_path / "cache", prepare=False, **CASES[case](files))
    assert len(list(data.train_dataloader())) > 0
    assert not (tmp_path / "cache").exists()


def entries(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if path.is_dir()}


@pytest.mark.parametrize(
    ("change", "kinds"),
    [
        ({"limit_train_qa": 24}, {"questions", "variant", "windows"}),
        ({"skip_bad": True}, {"questions", "variant"}),
        ({"encoding": Encoding(max_length=160, stride=8)}, {"windows"}),
        ({"architecture": "bert"}, {"windows"}),
        ({"interventions": Interventions(train=["ts"])}, {"variant", "windows"}),
    ],
)
def test_a_changed_option_makes_only_what_follows_from_it(
    change: dict[str, Any], kinds: set[str], files: dict[str, str], tmp_path: Path
) -> None:
    options = {
        "train_qa": files["coqa"],
        "limit_train_qa": 25,
        "encoding": LONG,
        "interventions": Interventions(train=["ts_r"]),
    }
    module(tmp_path / "cache", **options)
    before = entries(tmp_path / "cache")
    module(tmp_path / "cache", **{**options, **change})
    new = entries(tmp_path / "cache") - before
    assert {name.partition("-")[0] for name in new} == kinds
    module(tmp_path / "cache", **options)
    assert entries(tmp_path / "cache") == before | new


def test_a_changed_file_is_read_again(files: dict[str, str], tmp_path: Path) -> None:
    first = module(tmp_path / "cache", **squad(files))
    write_squad(list(islice(stories.qa_examples("dev"), 30)), files["squad"])
    second = module(tmp_path / "cache", **squad(files))
    assert first.train_set is not None
    assert second.train_set is not None
    ids = [{e.id for e in data.train_set.qa.examples} for data in (first, second)]  # type: ignore[union-attr]
    assert not ids[0] & ids[1]


@pytest.mark.parametrize("damage", ["cut", "no marker"])
def test_a_damaged_entry_is_made_anew(
    damage: str, files: dict[str, str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    options = squad(files)
    first = list(module(tmp_path / "cache", **options).train_dataloader())
    for folder in (tmp_path / "cache").glob("windows-*"):
        if damage == "cut":
            file = folder / "windows.arrow"
            content = file.read_bytes()
            file.unlink()  # the first data set still maps the old file
            file.write_bytes(content[: len(content) // 2])
        else:
            (folder / MARKER).unlink()
    data = module(tmp_path / "cache", prepare=False, **options)
    assert same(list(data.train_dataloader()), first)
    caplog.clear()
    assert same(list(module(tmp_path / "cache", **options).train_dataloader()), first)
    assert sum("made anew" in message for message in caplog.messages) == 2  # of training and validation


def test_a_folder_that_cannot_be_written_stops_nobody(
    files: dict[str, str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = module(Path(files["squad"]) / "cache", **squad(files))
    assert len(list(data.train_dataloader())) > 0
    assert sum("cannot be written" in message for message in caplog.messages) == 1


def test_bad_data_are_told_by_all_processes_alike(tmp_path: Path) -> None:
    path = tmp_path / "bad.json"
    path.write_text(json.dumps({"data": [{"paragraphs": [{"context": "A.", "qas": [{"id": 1}]}]}]}))
    for prepare in (True, False):
        with pytest.raises(DataError, match=r"bad.json.*question"):
            module(tmp_path / "cache", prepare=prepare, train_qa=str(path))
    assert entries(tmp_path / "cache") == set()


def test_rejections_are_told_again(
    files: dict[str, str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    examples = list(islice(stories.qa_examples("conversation_train"), 25))
    bare = [replace(example, rationale=()) for example in examples[:5]]
    write_rows([*bare, *examples[5:]], files["coqa"])
    caplog.set_level("INFO", logger="data_modules")
    options = {"train_qa": files["coqa"], "encoding": LONG, "interventions": Interventions(train=["ts_r"])}
    told = []
    for _ in range(2):
        caplog.clear()
        module(tmp_path / "cache", **options)
        told.append([message for message in caplog.messages if "ts_r: kept" in message])
    assert told[0] == told[1]
    assert told[0] == [f"{files['coqa']}, ts_r: kept 20 of 25 (5 no rationale)"]


def test_a_language_model_is_asked_once(
    files: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def generate(examples: list[QAExample], **options: Any) -> tuple[dict[str, str], dict[str, int]]:
        asked.append(len(examples))
        return {e.id: f"Somebody wrote {e.gold[0]} on a wall." for e in examples}, {}

    monkeypatch.setattr("data_modules.interventions.variants.generate_sentences", generate)
    how = Interventions(train=["ts_r_aug"], generator="hf:nowhere")
    options = {"train_qa": files["coqa"], "encoding": LONG, "interventions": how}
    monkeypatch.setattr("data_modules.batching.processes.here", lambda: (0, 2))
    with pytest.raises(DataError, match="asked by every process"):
        module("", **options)
    monkeypatch.setattr(
        "data_modules.batching.processes.dist.all_gather_object",
        lambda found, mine: found.__setitem__(slice(None), [mine] * 2),
    )
    module(tmp_path / "cache", **options)
    module(tmp_path / "cache", prepare=False, **options)
    assert len(asked) == 1
    monkeypatch.setattr(
        "data_modules.batching.processes.dist.all_gather_object",
        lambda found, mine: found.__setitem__(slice(None), [mine, ["x"]]),
    )
    with pytest.raises(DataError, match="different sentences"):
        module(tmp_path / "cache", prepare=False, **options)


def test_prepared_sets_travel_to_other_processes_as_names_of_files(
    files: dict[str, str], tmp_path: Path
) -> None:
    data = module(tmp_path / "cache", **conversations(files), train_groups=[files["groups"]])
    sets = [data.train_set.qa, data.train_set.groups, *(s.data for s in data.eval_sets["val"])]  # type: ignore[union-attr]
    for one in sets:
        assert one is not None
        two = pickle.loads(pickle.dumps(one))
        assert all(same(one[batch], two[batch]) for batch in one.batches(8))
    assert len(pickle.dumps(sets[0])) < 3000


@pytest.mark.parametrize("kind", KINDS)
def test_several_processes_tokenise_as_one(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    examples = list(islice(stories.qa_examples("dev"), 30))
    write_tables([example_table(examples)], tmp_path / "questions.arrow")
    stored = StoredExamples([tmp_path / "questions.arrow"])
    monkeypatch.setattr("data_modules.encoding.arrow_rows.cores", lambda: 2)
    make = MakeWindows(stored, tokenizer(kind), LONG)
    map_chunks(make, len(stored), tmp_path / "windows.arrow", "windows", chunk=4)
    found = sorted(tmp_path.glob("windows*.arrow"))
    assert len(found) == 2
    features = StoredFeatures([(found, len(stored))])
    expected = encode_qa(examples, tokenizer(kind), LONG)
    assert len(features) == len(expected) == len(MappedRows(found))
    for one, two in zip(features, expected, strict=True):
        assert [str(part) for part in (*one, *one.row)] == [str(part) for part in (*two, *two.row)]


text = st.text(st.characters(), max_size=12)  # lone surrogates and line ends too


@given(text, text, text, st.integers(0, 9), text)
def test_a_group_survives_its_line(context: str, question: str, advice: str, at: int, name: str) -> None:
    spans = (Span(at, at + 1, name), Span(at + 2, at + 3, context))
    variant = UnderspecifiedQuestion(context, question, spans, advice)
    group = Group((name, question), "t", "c", "a", "ethical", advice, (variant, variant, variant, variant))
    line = group_line(group)
    assert line.isascii()
    assert read_group(line) == group
