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


@pytest.mark.parametrize("architecture", ["xlnet", "llama"])
def test_predictions_hold_every_example_and_the_same_bias(
    architecture: str, commands: Commands, tmp_path: Path
) -> None:
    home, data = commands.run("fit", "squad", architecture, "--trainer.max_steps=2"), commands.data
    ckpt = home / "checkpoints/last.ckpt"
    sets = ["--data=data_modules.groups_data.GroupsDataModule", "--data.limit_val_qa=3"]
    sets += [f"--data.predict_groups={{dev: {data.groups_dev}}}", "--data.limit_val_groups=1"]
    sets += [f"--data.predict_qa={{questions: {data.qa_dev}}}"]
    folder = commands.run("predict", "squad", architecture, f"--ckpt_path={ckpt}", *sets) / "predictions"
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
    home = commands.run("fit", "squad", "bert", "--trainer.max_steps=1")
    example = next(iter(read_questions(commands.data.qa_dev)))
    write_records([example, replace(example, variant="ts")], tmp_path / "rows.jsonl")
    flags = (f"--ckpt_path={home}/checkpoints/last.ckpt", f"--data.predict_qa.main={tmp_path}/rows.jsonl")
    with pytest.raises(ValueError, match=f"several questions of id '{example.id}'"):
        commands.run("predict", "squad", "bert", *flags)
