"""Stored tables hold what tables in memory hold, and are found again as long as they are whole."""

from __future__ import annotations

import json
import logging
import os
import pickle
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import datasets
import pytest
import torch

from data_modules.batching.group_rows import GroupSet
from data_modules.batching.sets import PairSet, QASet
from data_modules.encoding import tables
from data_modules.encoding.tables import Tables, Work, encode_to_file, in_memory, source_digest
from data_modules.encoding.windows import Encoding, encode_questions
from data_modules.groups_data import GroupsDataModule
from data_modules.questions.rows import write_rows
from data_modules.questions.squad import write_squad
from data_modules.questions_data import Interventions
from data_modules.records import write_records
from data_modules.schema import QAExample
from data_modules.stories import groups as story_groups
from data_modules.stories import questions as stories
from storage.errors import DataError
from tests.data_modules.fixtures.small_tokenizers import KINDS, tokenizer
from tests.forking import python

REPOSITORY = Path(__file__).resolve().parents[3]
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
    write_records(islice(story_groups.groups("train"), 18), paths["groups"])
    return {name: str(path) for name, path in paths.items()}


@pytest.fixture
def files(written: dict[str, str], tmp_path: Path) -> dict[str, str]:
    """The same, for a test to change."""
    return {name: shutil.copy(path, tmp_path) for name, path in written.items()}


def module(cache: Path | str, **options: Any) -> GroupsDataModule:
    """A DataModule that is ready to train."""
    data = GroupsDataModule(
        cache=str(cache), **{"tokenizer": "stories", "architecture": "roberta", "encoding": SHORT, **options}
    )
    data.setup("fit")
    return data


def count(folder: Path) -> int:
    """Tables in a cache."""
    return len(list(folder.glob("*/about.json")))


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
            every = range(len(one.first_Q))
            assert two.questions(every) == one.questions(every)
            assert two.may_abstain == one.may_abstain
        elif isinstance(one, GroupSet) and isinstance(two, GroupSet):
            assert two.groups == one.groups
        elif isinstance(one, PairSet) and isinstance(two, PairSet):
            assert two.variant == one.variant


@pytest.mark.parametrize("case", CASES)
def test_the_second_start_reads_and_tokenises_nothing(
    case: str, files: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = CASES[case](files)
    first = list(module(tmp_path / "cache", **options).train_dataloader())

    def refuse(*arguments: Any, **options: Any) -> Any:
        raise AssertionError("not again")

    monkeypatch.setattr("data_modules.encoding.windows.encode_texts", refuse)
    monkeypatch.setattr("data_modules.questions_data.read_questions", refuse)
    monkeypatch.setattr("data_modules.groups_data.read_groups", refuse)
    assert all(map(same, first, module(tmp_path / "cache", **options).train_dataloader()))


@pytest.mark.parametrize(
    ("change", "new"),
    [
        ({"limit_train_qa": 24}, 2),
        ({"skip_bad": True}, 2),
        ({"encoding": Encoding(max_length=160, stride=8)}, 2),
        ({"architecture": "bert"}, 2),
        ({"interventions": Interventions(train=["os", "ts"])}, 1),
        ({"eval_batch_size": 3}, 0),
    ],
)
def test_a_changed_option_makes_only_what_follows_from_it(
    change: dict[str, Any], new: int, files: dict[str, str], tmp_path: Path
) -> None:
    how = Interventions(train=["os", "ts_r"])
    options = {"train_qa": files["coqa"], "limit_train_qa": 25, "encoding": LONG, "interventions": how}
    for changed, expected in ({}, 2), (change, 2 + new), ({}, 2 + new):
        module(tmp_path / "cache", **{**options, **changed})
        assert count(tmp_path / "cache") == expected


def test_a_changed_file_is_read_again(files: dict[str, str], tmp_path: Path) -> None:
    ids = []
    for seed in (0, 1):
        write_squad(islice(stories.qa_examples("dev", seed), 30), files["squad"])
        data = module(tmp_path / "cache", **squad(files))
        assert data.train_set is not None
        assert data.train_set.qa is not None
        ids.append({question.context for question in data.train_set.qa.questions(range(25))})
    assert not ids[0] & ids[1]


def test_changed_code_anywhere_in_the_room_makes_tables_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The readers lie in folders beside this one."""
    room = tmp_path / "data_modules"
    shutil.copytree(REPOSITORY / "data_modules", room)
    monkeypatch.setattr(tables, "__file__", str(room / "encoding" / "tables.py"))
    digests = []
    for path in ("questions/coqa.py", "groups/lei.py", "schema.py"):
        tables.code_digest.cache_clear()
        digests.append(tables.code_digest())
        (room / path).write_text("changed")
    tables.code_digest.cache_clear()
    assert len({*digests, tables.code_digest()}) == 4
    tables.code_digest.cache_clear()


@pytest.mark.parametrize("damage", ["cut rows", "flipped rows", "no rows", "cut about", "no about"])
def test_a_damaged_table_is_made_anew(damage: str, files: dict[str, str], tmp_path: Path) -> None:
    options = squad(files)
    first = list(module(tmp_path / "cache", **options).train_dataloader())
    for folder in (tmp_path / "cache").iterdir():
        if folder.is_dir():
            how, name = damage.split()
            path = folder / ("rows.arrow" if name == "rows" else "about.json")
            content = path.read_bytes()
            path.unlink()  # the first data set still maps the old file
            if how != "no":
                half = len(content) // 2
                flipped = bytes([content[half] ^ 1])
                path.write_bytes(
                    content[:half] + (flipped + content[half + 1 :] if how == "flipped" else b"")
                )
    assert all(map(same, first, module(tmp_path / "cache", **options).train_dataloader()))
    assert count(tmp_path / "cache") == 2


def test_a_folder_that_cannot_be_written_is_named(files: dict[str, str]) -> None:
    with pytest.raises(DataError, match=r"data\.cache: .*/cache cannot be written"):
        module(Path(files["squad"]) / "cache", **squad(files))


def test_errors_of_sources_are_theirs_and_leave_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "bad.json"
    path.write_text(json.dumps({"data": [{"paragraphs": [{"context": "A.", "qas": [{"id": 1}]}]}]}))
    for cache in ("", tmp_path / "cache"):
        with pytest.raises(DataError, match=r"bad.json.*question"):
            module(cache, train_qa=str(path))
    assert count(tmp_path / "cache") == 0

    def broken(*arguments: Any, **options: Any) -> Any:
        raise OSError(5, "Input/output error", "bad.json")

    monkeypatch.setattr("data_modules.questions_data.read_questions", broken)
    with pytest.raises(OSError, match="Input/output error"):
        module(tmp_path / "cache", train_qa=str(path))


def test_without_a_folder_sources_are_not_digested(
    files: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hashlib.file_digest", None)
    module("", **squad(files), train_groups=[files["groups"]])


def test_what_is_left_out_is_told_at_every_start(
    files: dict[str, str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    examples = list(islice(stories.qa_examples("conversation_train"), 25))
    bare = [replace(example, rationale=()) for example in examples[:5]]
    write_rows([*bare, *examples[5:]], files["coqa"])
    caplog.set_level("INFO", logger="data_modules")
    options = {"train_qa": files["coqa"], "encoding": LONG, "interventions": Interventions(train=["ts_r"])}
    for cache in (tmp_path, tmp_path, ""):
        caplog.clear()
        module(cache, **options)
        kept = [message for message in caplog.messages if "ts_r: kept" in message]
        assert kept == [f"{files['coqa']}, ts_r: kept 20 of 25 (5 no rationale)"]


@pytest.mark.parametrize("limit", [0, 5])
def test_skipped_records_are_told_at_every_start(
    limit: int, files: dict[str, str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    content = json.loads(Path(files["squad"]).read_text())
    content["data"][0]["paragraphs"][0]["qas"][0]["answers"][0]["answer_start"] += 1
    Path(files["squad"]).write_text(json.dumps(content))
    for _ in range(2):
        caplog.clear()
        module(tmp_path, train_qa=files["squad"], limit_train_qa=limit, skip_bad=True)
        assert sum("skipped 1 bad record" in message for message in caplog.messages) == 1


def test_a_language_model_is_asked_once(
    files: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def generate(examples: list[QAExample], **options: Any) -> dict[str, str]:
        asked.append(len(examples))
        return {e.id: f"Somebody wrote {e.gold[0]} on a wall." for e in examples}

    monkeypatch.setattr("data_modules.interventions.augmentation.generate_sentences", generate)
    how = Interventions(train=["ts_r_aug"], generator="hf:nowhere")
    options = {"train_qa": files["coqa"], "encoding": LONG, "interventions": how}
    monkeypatch.setattr("data_modules.questions_data.process_rank", lambda: (0, 2))
    with pytest.raises(DataError, match="asked by every process"):
        module("", **options)
    gather = "data_modules.questions_data.dist.all_gather_object"
    monkeypatch.setattr(gather, lambda found, mine: found.__setitem__(slice(None), [mine] * 2))
    module(tmp_path / "cache", **options)
    module(tmp_path / "cache", **options)
    assert len(asked) == 1
    monkeypatch.setattr(gather, lambda found, mine: found.__setitem__(slice(None), [mine, "x"]))
    with pytest.raises(DataError, match="different sentences"):
        module(tmp_path / "cache", **options)


@pytest.mark.parametrize("option", ["train", "shift"])
def test_one_other_sentence_among_many_is_seen(
    option: str, files: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digests: list[str] = []
    monkeypatch.setattr("data_modules.questions_data.process_rank", lambda: (0, 2))
    gather = "data_modules.questions_data.dist.all_gather_object"
    monkeypatch.setattr(gather, lambda found, digest: digests.append(digest))
    how = Interventions(**{option: ["ts_r_aug"]}, generator="hf:nowhere")  # type: ignore[arg-type]
    for tone in ("a wall", "a wall", "a door"):

        def generate(examples: list[QAExample], tone: str = tone, **_: Any) -> dict[str, str]:
            places = {e.id: "a wall" for e in examples} | {examples[len(examples) // 2].id: tone}
            return {e.id: f"Somebody wrote {e.gold[0]} on {places[e.id]}." for e in examples}

        monkeypatch.setattr("data_modules.interventions.augmentation.generate_sentences", generate)
        cache, options = tmp_path / str(len(digests)), {"encoding": LONG, "interventions": how}
        module(cache, train_qa=files["coqa"], val_qa={"main": files["coqa"]}, **options)
    assert digests[0] == digests[1] != digests[2]


def test_tables_travel_to_other_processes_as_names_of_files(files: dict[str, str], tmp_path: Path) -> None:
    data = module(tmp_path / "cache", **conversations(files), train_groups=[files["groups"]])
    assert data.train_set is not None
    for one in (data.train_set.qa, data.train_set.groups, *(s.data for s in data.eval_sets["val"])):
        assert one is not None
        assert len(pickle.dumps(one.table)) < 30_000
        two = pickle.loads(pickle.dumps(one))
        assert all(same(one[batch], two[batch]) for batch in one.batches(8))


@pytest.mark.parametrize("kind", KINDS)
def test_several_processes_encode_as_one(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    examples = list(islice(stories.qa_examples("dev"), 30))
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1})
    monkeypatch.setattr(tables, "CHUNK", 4)
    encode = partial(encode_questions, tokenizer=tokenizer(kind), encoding=LONG)
    encode_to_file(examples, encode, tmp_path / "rows.arrow", "questions")
    assert len(list(tmp_path.glob("*.arrow"))) == 2
    expected = in_memory(examples, encode)
    parts = [datasets.Dataset.from_file(str(file)) for file in sorted(tmp_path.glob("*.arrow"))]
    assert [row for part in parts for row in part.to_list()] == expected[:].to_pylist()


def work(log: list[int]) -> Work:
    log.append(1)
    time.sleep(0.2)
    logging.getLogger("data_modules.test").warning("skipped 2 records")
    encode = partial(encode_questions, tokenizer=tokenizer("words_bert"), encoding=LONG)
    return Work(list(islice(stories.qa_examples("dev"), 3)), encode)


def test_two_at_once_make_it_once(tmp_path: Path) -> None:
    made: list[int] = []

    def get(_: int) -> Any:
        folder = Tables(str(tmp_path), tokenizer("words_bert"))
        return folder.get([], {"of": "dev"}, lambda: work(made), "questions")

    with ThreadPoolExecutor(4) as pool:  # a lock of the file system holds between threads and processes alike
        found = list(pool.map(get, range(4)))
    assert len(made) == 1
    assert len({len(table) for table in found}) == 1


def test_what_must_not_be_kept_is_made_anew(tmp_path: Path) -> None:
    made: list[int] = []
    folder = Tables(str(tmp_path), tokenizer("words_bert"))
    for _ in range(2):
        folder.get([], {}, lambda: work(made)._replace(keep=False), "questions")
    assert len(made) == 2
    assert count(tmp_path) == 0


def stop_in_the_middle(_: int, folder: str) -> None:
    """Half of a table is written, and then nothing for a minute."""

    def stop(examples: Any, encode: Any, path: Path, *rest: Any) -> None:
        path.write_bytes(b"half")
        print("now", flush=True)
        time.sleep(60)

    tables.encode_to_file = stop  # type: ignore[assignment]
    Tables(folder, tokenizer("words_bert")).get([], {}, lambda: work([]), "questions")


def test_a_process_that_is_killed_leaves_nothing_that_counts(tmp_path: Path) -> None:
    words = (python(), "-m", "tests.forking", __name__, stop_in_the_middle.__name__, "0", str(tmp_path))
    process = subprocess.Popen(words, cwd=REPOSITORY, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"now\n"
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert count(tmp_path) == 0
    made: list[int] = []
    Tables(str(tmp_path), tokenizer("words_bert")).get([], {}, lambda: work(made), "questions")
    assert (made, count(tmp_path)) == ([1], 1)
    assert not list(tmp_path.glob(".*.tmp"))


def test_a_source_is_told_by_its_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "with:colon"
    folder.mkdir()
    file = folder / "a.json"
    file.write_text("{}")
    first = source_digest(str(file))
    os.utime(file, (0, 0))
    assert source_digest(str(file)) == first
    stat = file.stat()
    file.write_text("[]")  # the same size and time
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert source_digest(str(file)) != first
    whole = source_digest(str(folder))
    assert source_digest(f"{folder}:train") == whole
    file.rename(folder / "b.json")
    assert source_digest(str(folder)) != whole
    assert source_digest("stories:train") == ""
    with pytest.raises(DataError, match="no such file"):
        source_digest(str(tmp_path / "c.json"))
    state = SimpleNamespace(_fingerprint="one")
    monkeypatch.setattr("data_modules.sources.table_rows", lambda name: state)
    assert source_digest("hub:owner/name:train") == "one"
