"""Predictions as files: the evaluation room reads them and finds the checkpoint's own numbers."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from data_modules.schema.spans import write_records
from data_modules.sources import read_questions
from evaluation.__main__ import main as evaluate
from tests.evaluation.cells import Cells
from tests.training.conftest import Commands
from training.cli import main as train


@pytest.mark.parametrize("architecture", ["xlnet", "llama"])
def test_predictions_hold_every_example_and_the_same_bias(
    architecture: str, commands: Commands, tmp_path: Path
) -> None:
    train(commands.of("fit", "squad", architecture, "--trainer.max_steps=2"))
    ckpt = commands.root / "squad" / "version_0" / "checkpoints" / "last.ckpt"
    data = commands.data
    sets = [
        "--data=data_modules.groups_data.GroupsDataModule",
        f"--data.predict_groups={{dev: {data.groups_dev}}}",
        f"--data.predict_qa={{questions: {data.qa_dev}}}",
        *("--data.limit_val_qa=3", "--data.limit_val_groups=1"),
    ]
    train(commands.of("predict", "squad", architecture, f"--ckpt_path={ckpt}", "--run.name=said", *sets))
    folder = commands.root / "said" / "version_0" / "predictions"

    texts = json.loads((folder / "questions.json").read_text())
    examples = {example.id: example for example in read_questions(data.qa_dev)}
    assert texts.keys() == examples.keys()
    assert architecture == "llama" or all(text in examples[key].context for key, text in texts.items())

    tables = []
    for name, what in (
        ("predictions", ["--predictions", str(folder / "dev.jsonl")]),
        ("checkpoint", ["--checkpoint", str(ckpt), "--data", str(data.groups_dev)]),
    ):
        assert evaluate(["bias", *what, "--output", str(tmp_path / name)]) == 0
        frame = Cells(tmp_path / name).frame.query("`class` != 'none' and against == ''")  # as predicted
        frame = frame[~frame["measure"].isin(["carry", "kept"])].drop(columns=["checkpoint", "data"])
        place = [column for column in frame.columns if column not in ("value", "low", "high", "n")]
        tables.append(frame.set_index(place)["value"].to_dict())
    assert tables[0] == pytest.approx(tables[1], abs=1e-5)


def test_answers_that_share_an_id_are_not_written_over_each_other(commands: Commands, tmp_path: Path) -> None:
    train(commands.of("fit", "squad", "bert", "--trainer.max_steps=1"))
    ckpt = commands.root / "squad" / "version_0" / "checkpoints" / "last.ckpt"
    example = next(iter(read_questions(commands.data.qa_dev)))
    write_records([example, replace(example, variant="ts")], tmp_path / "rows.jsonl")
    flags = (f"--ckpt_path={ckpt}", "--run.name=said", f"--data.predict_qa.main={tmp_path / 'rows.jsonl'}")
    with pytest.raises(ValueError, match=f"several questions of id '{example.id}'"):
        train(commands.of("predict", "squad", "bert", *flags))
