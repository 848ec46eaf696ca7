"""A trained decoder gives equal numbers as .ckpt, folder and hf:FOLDER, in `fit` and a probe."""

import json
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer

import interventune
from interventune.data_modules.schema.questions import write_records
from interventune.data_modules.stories import groups as story_groups
from interventune.data_modules.stories import questions as stories
from interventune.models.__main__ import main as export
from tests.evaluation.bbq_files import save_bbq
from tests.training.conftest import Commands, SmallData, metrics_of

SAMPLED = {"do_sample": True, "temperature": 5.0, "repetition_penalty": 3.0, "min_new_tokens": 9}
SAMPLED |= {"suppress_tokens": list(range(20, 60)), "num_beams": 2, "no_repeat_ngram_size": 1}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, small_data: SmallData) -> Path:
    """A decoder that knows its few questions by heart, exported; its settings ask for samples."""
    root = tmp_path_factory.mktemp("one_way")
    write_records(islice(stories.qa_examples("dev"), 8), qa := root / "qa.json")
    write_records(islice(story_groups.groups("heldout"), 6), groups := root / "groups.json")
    save_bbq(root)
    few = SmallData(qa, qa, small_data.groups_train, groups)
    flags = "--model.learning_rate=5e-3 --trainer.max_steps=70 --trainer.max_epochs=-1"
    flags += " --data.qa_batch_size=8 --run.version=0 --checkpoint.monitor=null"
    flags += " --trainer.val_check_interval=70 --trainer.check_val_every_n_epoch=null"
    run = Commands(root / "runs", few).run("fit", "lei_few_shot", "llama", flags)
    assert export([f"{run}/checkpoints/last.ckpt", f"{root}/folder"]) == 0
    settings = root / "folder" / "generation_config.json"
    settings.write_text(json.dumps({**json.loads(settings.read_text()), **SAMPLED}))
    return root


FEW = {"limit": 6, "trials": 2, "sampling": ["random"], "choices": [3]}
QUESTIONS: dict[str, Any] = {
    "bias": lambda root: {"data": [f"{root}/groups.json"]},
    "bbq": lambda root: {"data": [f"{root}/bbq.jsonl"], "metadata": root / "metadata.csv"},
    "confusion": lambda root: {"input": "stories:choices_dev"} | FEW,
    "faithfulness": lambda root: {"data": [f"{root}/qa.json"]},
}


@cache
def numbers(root: Path, protocol: str, name: str) -> pd.DataFrame:
    flags = QUESTIONS[protocol](root) | {"checkpoint": [f"m={name}"], "device": "cpu"}
    return interventune.evaluate(protocol, **flags).results.frame


@pytest.mark.parametrize("protocol", QUESTIONS)
def test_a_checkpoint_its_folder_and_hf_give_equal_numbers(protocol: str, trained: Path) -> None:
    last, folder = trained / "runs/lei_few_shot/0/checkpoints/last.ckpt", trained / "folder"
    names = (str(last), str(folder), f"hf:{folder}")
    first, *others = (numbers(trained, protocol, name) for name in names)
    for other in others:  # weights at other addresses are multiplied in another order
        pd.testing.assert_frame_equal(first, other, rtol=1e-5, atol=1e-5)
    if protocol == "faithfulness":  # it answers
        assert first.query("measure == 'em' and variant == 'os'")["value"].iloc[0] > 0.8


def test_validation_in_fit_and_a_probe_give_the_numbers_of_evaluate(trained: Path) -> None:
    fit, folder = metrics_of(trained / "runs" / "lei_few_shot" / "0"), trained / "folder"
    sets = [f"{trained}/groups.json", f"{trained}/qa.json"]
    kinds = AutoModelForCausalLM, AutoTokenizer
    model, tokenizer = (kind.from_pretrained(folder) for kind in kinds)
    probe = interventune.Probe(*sets, measures=["bias", "qa"], device="cpu").ask(model, tokenizer)
    keys = [f"val/qa/{name}" for name in ("em", "f1", "unknown")]
    keys += [key for key in probe if key.startswith("val/bias/") and key.endswith("/mu")]
    assert len(keys) > 4
    for key in keys:
        assert probe[key] == pytest.approx(fit[key], abs=1e-5), key
    qa, bias = (numbers(trained, name, str(folder)) for name in ("faithfulness", "bias"))
    em = qa.query("measure == 'em' and variant == 'os' and answer_type == '' and domain == ''")
    mu = bias.query("measure == 'mu' and against == ''").set_index("class")["value"]
    assert em["value"].iloc[0] == pytest.approx(fit["val/qa/em"], abs=1e-9)
    assert mu["ethical"] == pytest.approx(fit["val/bias/ethical/mu"], abs=1e-5)
