"""What an experiment trains on and watches, and what the DataModule makes of it."""

from __future__ import annotations

import logging
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from data_modules.batching.sets import PairSet, QASet
from data_modules.encoding.windows import Encoding
from data_modules.groups_data import GroupsDataModule
from data_modules.interventions.deletion import perturb, report_rejected
from data_modules.questions.rows import write_rows
from data_modules.questions_data import Interventions
from data_modules.schema import QAExample
from data_modules.sources import read_questions
from storage.errors import DataError

EXAMPLES = [example for example, _ in zip(read_questions("stories:mixed_dev"), range(60), strict=False)]


def module(**options: Any) -> GroupsDataModule:
    """For the embedded stories, on a few questions."""
    sizes = {"limit_val_qa": 10, "encoding": Encoding(max_length=160, stride=32)}
    return GroupsDataModule(tokenizer="stories", architecture="bert", **{**sizes, **options})


def test_a_variant_says_how_many_it_leaves_out_and_why(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="data_modules")
    report_rejected(3, Counter({"no rationale": 2, "empty story": 1}), "ts_r", "dev")
    assert "dev, ts_r: kept 3 of 6 (2 no rationale, 1 empty story)" in caplog.text
    with pytest.raises(DataError, match=r"dev: no question is left in variant ts: kept 0 of 1 \(1 x\)"):
        report_rejected(0, Counter({"x": 1}), "ts", "dev")


def encoded(seed: int) -> list[str]:
    """The stories of an augmented variant, as the DataModule makes them."""
    how = Interventions(watch=["ts_r_aug"], seed=seed)
    data = module(val_qa={"main": "stories:mixed_dev"}, limit_val_qa=60, interventions=how)
    data.setup("validate")
    (only,) = data.eval_sets["val"]
    assert isinstance(only.data, QASet)
    return [question.context for question in only.data.questions(range(len(only.data.first_Q)))]


def test_augmented_variants_end_in_a_sentence_around_the_answer() -> None:
    plain = [made for e in EXAMPLES if isinstance(made := perturb(e, "ts_r"), QAExample)]
    stories = encoded(seed=0)
    assert len(stories) == len(plain)
    for story, bare in zip(stories, plain, strict=True):
        kept = bare.context.removesuffix(bare.appended)
        assert story.startswith(kept)
        sentence = story.removeprefix(kept)
        assert bare.appended in sentence
        assert len(sentence.split()) > len(bare.appended.split()) + 2 or not bare.appended
    assert encoded(seed=0) == stories != encoded(seed=1)


def test_the_mixture_and_the_watched_sets() -> None:
    data = GroupsDataModule(
        tokenizer="stories",
        architecture="bert",
        train_qa="stories:conversation_train",
        val_qa={"main": "stories:conversation_dev", "other": "stories:mixed_dev"},
        limit_train_qa=20,
        limit_val_qa=10,
        encoding=Encoding(max_length=160, stride=32),
        interventions=Interventions(train=["os", "ts", "ts_r"], watch=["os", "ts_r"], shift=["ts"]),
    )
    data.setup("fit")
    assert data.train_set is not None
    assert data.train_set.qa is not None
    ids = Counter(q.id for q in data.train_set.qa.questions(range(60)))
    assert set(ids.values()) == {3}
    sets = data.eval_sets["val"]
    assert [(s.name, isinstance(s.data, PairSet)) for s in sets] == [
        ("main", False),
        ("ts_r", False),
        ("main", True),
        ("other", False),
        ("other/ts_r", False),
        ("other", True),
    ]
    assert len(data.val_dataloader()) == len(sets)


def test_rows_of_a_variant_are_questions_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "ts_r.jsonl"
    made = [made for e in EXAMPLES if isinstance(made := perturb(e, "ts_r"), QAExample)]
    write_rows(made, path)
    data = module(val_qa={"main": str(path)}, limit_val_qa=0)
    data.setup("validate")
    (only,) = data.eval_sets["val"]
    assert isinstance(only.data, QASet)
    found = only.data.questions(range(len(made)))
    assert [(q.id, q.context) for q in found] == [(e.id, e.context) for e in made]
    with pytest.raises(DataError, match="a variant already"):
        module(val_qa={"main": str(path)}, interventions=Interventions(watch=["ts"])).setup("validate")


@pytest.mark.parametrize(
    ("sources", "watch", "stage", "told"),
    [
        ({"val_qa": {"main": "stories:dev", "ts": "stories:dev"}}, ["os", "ts"], "validate", "'ts'"),
        ({"val_qa": {"main": "stories:dev"}}, ["os", "os"], "validate", "'main'"),
        (
            {"predict_qa": {"main": "stories:dev"}, "predict_groups": {"main": "stories:dev"}},
            ["os"],
            "predict",
            "'main'",
        ),
    ],
)
def test_sets_that_would_share_a_name_are_refused(sources: dict, watch: list, stage: str, told: str) -> None:
    data = module(**sources, interventions=Interventions(watch=watch))
    with pytest.raises(DataError, match=f"2 sets would be called {told}"):
        data.setup(stage)


def test_more_processes_than_questions_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    data = module(val_qa={"main": "stories:dev"}, limit_val_qa=3)
    data.setup("validate")
    monkeypatch.setattr("data_modules.batching.data_module.process_rank", lambda: (2, 3))
    (loader,) = data.val_dataloader()
    assert len(loader) == 1
    monkeypatch.setattr("data_modules.batching.data_module.process_rank", lambda: (0, 4))
    with pytest.raises(DataError, match="each of 4 processes"):
        data.val_dataloader()


def test_all_variants_of_a_set_may_abstain_or_none() -> None:
    def allowed(watch: list[str]) -> list[bool]:
        data = GroupsDataModule(
            tokenizer="stories",
            architecture="bert",
            val_qa={"main": "stories:conversation_dev"},
            limit_val_qa=10,
            encoding=Encoding(max_length=160, stride=32),
            interventions=Interventions(watch=watch),  # type: ignore[arg-type]
        )
        data.setup("validate")
        return [s.data.may_abstain for s in data.eval_sets["val"]]  # type: ignore[union-attr]

    assert allowed(["os", "ts"]) == [False, False]
    assert allowed(["os", "ts_r"]) == [True, True]
