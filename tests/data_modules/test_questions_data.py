"""What experiments train on and watch; stored tables hold what tables in memory hold."""

import json
import logging
import os
import pickle
import shutil
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_leaves

from interventune.data_modules import questions_data
from interventune.data_modules.batching.pair_set import PairSet
from interventune.data_modules.encoding.windows import Encoding
from interventune.data_modules.groups_data import GroupsDataModule
from interventune.data_modules.questions_data import Interventions, QuestionsDataModule
from interventune.data_modules.schema.questions import QAExample, Span, write_records
from interventune.data_modules.sources import read_questions
from interventune.data_modules.stories import questions as stories
from interventune.storage.documents import DataError

Patch = pytest.MonkeyPatch

Log = pytest.LogCaptureFixture

LONG = Encoding(max_length=160)
"""Has room for a conversation before the question, and for advice."""

EXAMPLES = list(islice(stories.qa_examples("conversation_train"), 60))


def module(cache: Path | str, **options: Any) -> QuestionsDataModule:
    """A DataModule that is ready to train."""
    options = {"tokenizer": "stories", "architecture": "roberta", "encoding": LONG} | options
    data = QuestionsDataModule(cache=str(cache), **options)
    if data.train_qa:
        data.setup("fit")
    return data


def same(first: Any, second: Any) -> bool:
    """Whether two batches hold the same tensors."""
    pairs = zip(tree_leaves(first), tree_leaves(second), strict=True)
    return all(torch.equal(a, b) for a, b in pairs if isinstance(a, torch.Tensor))


def test_stored_batches_are_those_made_in_memory(tmp_path: Path, monkeypatch: Patch) -> None:
    how = Interventions(train=["os", "ts_r"], watch=["os", "ts_r_aug"], shift=["ts"])
    options = {"interventions": how, "limit_train_qa": 60, "val_qa": {"main": "stories:dev"}}
    options |= {"train_qa": "stories:conversation_train"}
    plain, stored = module("", **options), module(tmp_path / "cache", **options)
    monkeypatch.delattr("interventune.data_modules.questions_data.read_questions")
    for data in (stored, module(tmp_path / "cache", **options)):
        assert all(map(same, data.train_dataloader(), plain.train_dataloader()))
        sets = zip(plain.eval_sets["val"], data.eval_sets["val"], strict=True)
        for (name, made), (other, read) in sets:
            assert (name, made.batches(5)) == (other, read.batches(5))
            assert all(same(made[batch], read[batch]) for batch in made.batches(5))
            on_disk, whole = (getattr(part, "variants", part).table for part in (read, made))
            assert len(pickle.dumps(on_disk)) < 30_000 < len(pickle.dumps(whole))


def test_unknown_words_are_warned_of_once(tmp_path: Path, caplog: Log) -> None:
    module("", train_qa="stories:train", limit_train_qa=9)
    assert not caplog.messages
    latin = {"context": "Petrus Romam venit.", "question": "Quo vadis?", "answers": ["Petrus"]}
    (tmp_path / "latin.json").write_text(json.dumps([latin]))
    module("", train_qa=str(tmp_path / "latin.json")).make_train_set()
    language, warning = caplog.messages
    assert "latin.json: few questions have English words" in language
    assert "20 % of the text's tokens are unknown" in warning


def test_a_table_is_made_once_and_whole(tmp_path: Path, monkeypatch: Patch) -> None:
    readings: list[list[Any]] = [[*EXAMPLES[:40], replace(EXAMPLES[40], variant="ts")], EXAMPLES]
    monkeypatch.setattr(questions_data, "read_questions", lambda _: readings.pop(0))
    modules = [module(tmp_path) for _ in range(4)]

    def table(data: QuestionsDataModule) -> list[Any]:
        return data.question_tables("stories:", 0, ["ts_r"])["ts_r"].to_list()

    with pytest.raises(DataError, match="40': is a variant already"):
        table(modules[0])
    with ThreadPoolExecutor(4) as pool:
        first, *others = pool.map(table, modules)
    assert others == [first] * 3
    assert not readings


def test_changed_inputs_and_code_make_tables_anew(tmp_path: Path, monkeypatch: Patch) -> None:
    source, cache = str(tmp_path / "questions.jsonl"), tmp_path / "cache"
    write_records(EXAMPLES, source)

    def count(**changed: Any) -> int:
        module(cache, train_qa=source, **changed)
        return len(list(cache.rglob("*.arrow")))

    assert count() == count(eval_batch_size=3) == 1
    assert count(limit_train_qa=24) == 2
    assert count(encoding=Encoding(max_length=160, doc_stride=8)) == 3
    assert count(interventions=Interventions(train=["os", "ts"])) == 4
    written, stat = Path(source).read_text(), Path(source).stat()
    Path(source).write_text(written.replace("Anna", "Anne"))  # the same size and time
    os.utime(source, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert count() == 5
    room = tmp_path / "data_modules"
    shutil.copytree(Path(questions_data.__file__).parent, room)
    (room / "questions" / "squad.py").write_text("changed")
    monkeypatch.setattr(questions_data, "__file__", str(room / "questions_data.py"))
    questions_data.code_digest.cache_clear()
    assert count() == 6
    questions_data.code_digest.cache_clear()


def test_warnings_and_what_is_left_out_are_logged_at_every_start(
    tmp_path: Path, caplog: Log, monkeypatch: Patch
) -> None:
    source = str(tmp_path / "some.jsonl")
    write_records([replace(EXAMPLES[0], rationale=()), *EXAMPLES[1:25]], source)
    log = logging.getLogger("interventune.data_modules.x")
    monkeypatch.setattr(
        questions_data, "read_questions", lambda x: log.warning("moved 1") or read_questions(x)
    )
    caplog.set_level("INFO", logger="interventune.data_modules")
    for time in (1, 2):
        module(tmp_path / "cache", train_qa=source, interventions=Interventions(train=["ts_r"]))
        assert caplog.messages.count(f"{source}, ts_r: kept 24 of 25 (1 no rationale)") == time
        assert caplog.messages.count("moved 1") == time


def test_digests_follow_content(tmp_path: Path, monkeypatch: Patch) -> None:
    folder = tmp_path / "with:colon"
    folder.mkdir()
    digests = []
    for text in ("{}", "[]"):
        (folder / "a.json").write_text(text)
        digests.append(questions_data.source_state(str(folder)))
    assert questions_data.source_state(f"{folder}:train") == digests[1] != digests[0]
    hub = SimpleNamespace(_fingerprint="one")
    monkeypatch.setattr("interventune.data_modules.tables.table_rows", lambda _: hub)
    assert questions_data.source_state("hub:owner/name:train") == "one"


def groups_module(**options: Any) -> GroupsDataModule:
    """For the embedded stories, on a few questions."""
    options = {"encoding": LONG} | options
    return GroupsDataModule(tokenizer="stories", architecture="bert", limit_val_qa=10, **options)


def test_the_mixture_and_the_watched_sets() -> None:
    how = Interventions(train=["os", "ts", "ts_r"], watch=["os", "ts_r"], shift=["ts"])
    sources = {"main": "stories:conversation_dev", "other": "stories:mixed_dev"}
    train = {"train_qa": "stories:conversation_train", "limit_train_qa": 20}
    data = groups_module(**train, val_qa=sources, interventions=how)
    data.setup("fit")
    assert {*Counter(data.train_set.qa.column("id")).values()} == {3}
    sets = data.eval_sets["val"]
    names = ["main", "ts_r", "main", "other", "other/ts_r", "other"]
    assert [evaluated.name for evaluated in sets] == names
    assert [isinstance(evaluated.data, PairSet) for evaluated in sets] == [False, False, True] * 2
    assert len(data.val_dataloader()) == len(sets)


def test_sets_that_would_share_a_name_are_refused() -> None:
    how = Interventions(watch=["os", "ts"])
    data = groups_module(val_qa={"main": "stories:dev", "ts": "stories:dev"}, interventions=how)
    with pytest.raises(DataError, match="are called 'ts'"):
        data.setup("validate")
    both = {"predict_qa": {"main": "stories:dev"}, "predict_groups": {"main": "stories:heldout"}}
    with pytest.raises(DataError, match="are called 'main'"):
        groups_module(**both).setup("predict")


def test_what_windows_hide_is_left_out_with_one_warning(tmp_path: Path, caplog: Log) -> None:
    """Predictions are complete. Most windows of a long document do not show its answer."""
    garden = "Clara is in the garden. "
    long = "Anna is in the kitchen. " * 20 + "Ben has a red ball. " + garden * 20
    texts = ("red", "ball", "red ball. " + garden * 9)
    red, ball, cut = (Span.locate(text, long, "") for text in texts)
    example = partial(QAExample, context=long, question="What is it?")
    examples = [
        example("seen", answers=(red,)),
        example("seen by another annotator", answers=(cut, ball)),
        example("cut", answers=(cut,)),
        example("elsewhere", references=("a visitor",)),
        example("unanswerable"),
        example("yes", answer_type="yes"),
    ]
    write_records(examples, source := str(tmp_path / "long.jsonl"))
    write_records(examples[:4], train := str(tmp_path / "train.jsonl"))
    sources = {"train_qa": train, "val_qa": {"main": source}, "predict_qa": {"main": source}}
    how = Interventions(train=["os", "reworded"], watch=["os", "reworded"])
    small = Encoding(max_length=32, doc_stride=8)
    data = groups_module(**sources, encoding=small, interventions=how, cache="")
    for stage in ("fit", "predict"):
        data.setup(stage)
    sets = data.eval_sets["val"] + data.eval_sets["predict"]
    assert [len(evaluated.data.first_Q) for evaluated in sets] == [4, 4, 6, 6]
    assert sets[-2].data.column("hidden") == [False, False, True, True, False, False]
    left_out, mostly = [message for message in caplog.messages if "its" in message]
    assert left_out.startswith(f"{train}: 50 % of its questions")
    assert "training windows" in mostly
    for message in (left_out, mostly):
        assert "encoding.max_length=32, encoding.doc_stride=8" in message


def test_all_variants_of_a_set_may_abstain_or_none() -> None:
    def allowed(watch: list[Any]) -> list[bool]:
        how = Interventions(watch=watch)
        data = groups_module(val_qa={"main": "stories:conversation_dev"}, interventions=how)
        data.setup("validate")
        return [s.data.may_abstain for s in data.eval_sets["val"]]  # type: ignore[union-attr]

    assert allowed(["os", "ts"]) == [False, False]
    assert allowed(["os", "ts_r"]) == [True, True]
