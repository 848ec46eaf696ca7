"""What an experiment trains on and watches, and what the DataModule makes of it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from data_modules.batching.pair_set import PairSet
from data_modules.encoding.windows import Encoding
from data_modules.groups_data import GroupsDataModule
from data_modules.questions_data import Interventions
from data_modules.schema.questions import QAExample
from data_modules.schema.spans import Span, write_records
from data_modules.sources import read_questions
from storage.errors import DataError

EXAMPLES = [example for example, _ in zip(read_questions("stories:mixed_dev"), range(60), strict=False)]


def module(**options: Any) -> GroupsDataModule:
    """For the embedded stories, on a few questions."""
    sizes = {"limit_val_qa": 10, "encoding": Encoding(max_length=160)}
    return GroupsDataModule(tokenizer="stories", architecture="bert", **{**sizes, **options})


def test_the_mixture_and_the_watched_sets() -> None:
    data = module(
        train_qa="stories:conversation_train",
        val_qa={"main": "stories:conversation_dev", "other": "stories:mixed_dev"},
        limit_train_qa=20,
        interventions=Interventions(train=["os", "ts", "ts_r"], watch=["os", "ts_r"], shift=["ts"]),
    )
    data.setup("fit")
    assert data.train_set is not None
    assert data.train_set.qa is not None
    ids = Counter(q.id for q in data.train_set.qa.questions(range(60)))
    assert set(ids.values()) == {3}
    sets = data.eval_sets["val"]
    names = ["main", "ts_r", "main", "other", "other/ts_r", "other"]
    assert [(s.name, isinstance(s.data, PairSet)) for s in sets] == [
        *zip(names, [False, False, True] * 2, strict=True)
    ]
    assert len(data.val_dataloader()) == len(sets)


def test_sets_that_would_share_a_name_are_refused() -> None:
    how = Interventions(watch=["os", "ts"])
    data = module(val_qa={"main": "stories:dev", "ts": "stories:dev"}, interventions=how)
    with pytest.raises(DataError, match="are called 'ts'"):
        data.setup("validate")
    both = {"predict_qa": {"main": "stories:dev"}, "predict_groups": {"main": "stories:dev"}}
    with pytest.raises(DataError, match="are called 'main'"):
        module(**both).setup("predict")


def test_what_windows_hide_is_left_out_with_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Predictions are complete. Most windows of a long document do not show its answer."""
    long = "Anna is in the kitchen. " * 20 + "Ben has a red ball. " + "Clara is in the garden. " * 20
    answers = [
        Span.locate(text, long, "") for text in ("red", "ball", "red ball. " + "Clara is in the garden. " * 9)
    ]
    asked = [QAExample(f"{i}", long, "What is it?", (span,)) for i, span in enumerate(answers)]
    write_records(asked, source := tmp_path / "long.jsonl")
    data = module(
        train_qa=str(source),
        val_qa={"main": str(source)},
        predict_qa={"main": str(source)},
        encoding=Encoding(max_length=32, doc_stride=8),
        interventions=Interventions(train=["os", "reworded"], watch=["os", "reworded"]),
        cache="",
    )
    for stage in ("fit", "predict"):
        data.setup(stage)
    assert [len(made.data.first_Q) for made in data.eval_sets["val"] + data.eval_sets["predict"]] == [
        2,
        2,
        3,
        3,
    ]
    left_out, mostly = [message for message in caplog.messages if "its" in message]
    assert left_out.startswith(f"warning: {source}: 33 % of its questions")
    assert "training windows" in mostly
    for message in (left_out, mostly):
        assert "encoding.max_length=32, encoding.doc_stride=8" in message


def test_all_variants_of_a_set_may_abstain_or_none() -> None:
    def allowed(watch: list[Any]) -> list[bool]:
        how = Interventions(watch=watch)
        data = module(val_qa={"main": "stories:conversation_dev"}, interventions=how)
        data.setup("validate")
        return [s.data.may_abstain for s in data.eval_sets["val"]]  # type: ignore[union-attr]

    assert allowed(["os", "ts"]) == [False, False]
    assert allowed(["os", "ts_r"]) == [True, True]
