"""`consistency-write` and `consistency` against transformers and naive counts."""

import json
import math
from itertools import chain, product
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import sem, ttest_ind
from transformers import AutoModelForCausalLM, AutoTokenizer

from interventune.evaluation.__main__ import main
from interventune.evaluation.protocols.consistency import writing
from interventune.metrics.consistency import COMPARED, DOMAINS, VARIANTS, repetition
from interventune.metrics.intervals import interval_of_change
from interventune.models.language.self_debiasing import chunk_loss
from tests.data_modules.fixtures.fake_endpoint import Reply, serve
from tests.data_modules.fixtures.tiny_language_models import CONTEXT, save
from tests.evaluation.cells import Capsys, Cells, Patch, evaluate, examples_of, told
from tests.evaluation.protocol_cases import write_rows

WORDS = {"toxicity": "red", "threat": "dog", "profanity": "is"}
"""What raises the score of an attribute: a half for each such word."""
PROMPTS = {
    "adversarial": ["the red dog", "the cat ran under the dog", "who is not red", "a blue dog sat"],
    "neutral": ["the cat sat", "a", "where is the mat ?"],
}
SPECIFICATIONS: dict[str, Any] = {
    "self": {"template": "the {} .", "separator": " ", "original": ["red dog", "blue cat"]}
    | {"opposite": ["cat sat on", "mat"], "nonsense": [["ran ran", "? ?"], ["who who", ". a"]]}
    | {"blank": " "},
    "instructive": {"template": "is {} :", "separator": " ", "original": ["not red"]}
    | {"opposite": ["red"], "nonsense": [["ran"], ["? mat"]], "blank": "is :"},
}
NEW = 4
Files = dict[str, Path]
Rows = list[dict[str, Any]]
PLACE = {"checkpoint": "m", "method": "x"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(tmp_path_factory.mktemp("model"), "gpt2", pad=False, seed=4)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    home = tmp_path_factory.mktemp("files")
    paths = {name: home / f"{name}.jsonl" for name in PROMPTS}
    paths["specifications"] = home / "texts.json"
    paths["specifications"].write_text(json.dumps(SPECIFICATIONS))
    for domain, texts in PROMPTS.items():
        challenging = domain == "adversarial"
        write_rows(paths[domain], [{"text": text, "challenging": challenging} for text in texts])
    return paths


def command(model: Path | str, files: Files, output: Path, flags: str = "") -> list[str]:
    """`consistency-write`, with self-debiasing unless the flags name a method."""
    method = "" if "--method" in flags else "--method self"
    named = " ".join(f"--{name} {path}" for name, path in files.items())
    name = model if isinstance(model, str) else f"hf:{model}"
    words = f"consistency-write --checkpoint m={name} {named} --new-tokens {NEW} {method} {flags}"
    return f"{words} --device cpu --output {output}".split()


def written(model: Path | str, files: Files, output: Path, flags: str = "") -> Rows:
    assert main(command(model, files, output, flags)) == 0
    return examples_of(output)


def judged(rows: Path, output: Path, *flags: str) -> Cells:
    return evaluate(output, "consistency", "--continuations", rows, *flags)


@pytest.fixture(scope="module")
def scored(folder: Path, files: Files, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Continuations of self-debiasing with scores of words, as another program would write them."""
    home = tmp_path_factory.mktemp("scored")
    rows = written(folder, files, home / "written")
    for row in rows:
        row |= {**PLACE, "specification": row.pop("variant"), "text": row.pop("continuation")}
        words = row["text"].split()
        row["scores"] = {name: min(1, words.count(word) / 2) for name, word in WORDS.items()}
    write_rows(home / "scored.jsonl", rows)
    return home / "scored.jsonl"


def test_rates_tests_and_differences_match_naive_counts(scored: Path, tmp_path: Path) -> None:
    cells = judged(scored, tmp_path / "r")
    rows = [json.loads(line) for line in scored.read_text().splitlines()]
    for row in rows:
        row["flagged"] = fmean(score >= 0.5 for score in row["scores"].values())

    def by_prompt(domain: str, variant: str, name: str = "") -> list[list[float]]:
        """Scores of an attribute, or shares that are flagged."""
        values: dict[str, list[float]] = {}
        for row in rows:
            if (row["domain"], row["specification"]) == (domain, variant):
                value = row["scores"][name] if name else row["flagged"]
                values.setdefault(row["prompt"], []).append(value)
        return [*values.values()]

    for domain, variant in product(DOMAINS, VARIANTS):
        cell = {**PLACE, "domain": domain, "variant": variant}
        flagged = [*chain(*by_prompt(domain, variant))]
        average, default = fmean(flagged), fmean(chain(*by_prompt(domain, "default")))
        row = cells.row("average", **cell)
        assert (row["value"], row["n"]) == (pytest.approx(average), len(flagged))
        for name in WORDS:
            share = fmean(score >= 0.5 for score in chain(*by_prompt(domain, variant, name)))
            assert cells(name, **cell) == pytest.approx(share)
        place = (domain, variant)
        part = [row for row in rows if (row["domain"], row["specification"]) == place]
        repeated = [repetition(row["prompt"], row["text"]) for row in part]
        assert cells("repetition", **cell) == pytest.approx(np.nanmean(repeated))
        if variant != "default" and default:
            assert cells("change", **cell) == pytest.approx((average - default) / default)
    for domain, (variant, against) in product(DOMAINS, COMPARED):
        cell = {**PLACE, "domain": domain, "variant": variant}
        gaps = np.subtract(*([*map(fmean, by_prompt(domain, v))] for v in (variant, against)))
        row = cells.row("average", **cell, against=f"variant={against}")
        error, square = sem(gaps), np.square(gaps).mean()
        ends = interval_of_change(gaps.mean(), error, square, len(gaps))
        assert (row["value"], row["n"]) == (pytest.approx(gaps.mean()), len(gaps))
        assert (row["low"], row["high"]) == pytest.approx(ends)
        for name in WORDS:
            pair = [[x for x, *_ in by_prompt(domain, v, name)] for v in (variant, "default")]
            if len({*pair[0], *pair[1]}) > 1:
                assert cells(f"p_{name}", **cell) == pytest.approx(ttest_ind(*pair).pvalue)
    at = {**PLACE, "domain": DOMAINS[0]}
    opposite, default = (cells("average", **at, variant=v) for v in ("opposite", "default"))
    assert cells("polarity", **PLACE, reading="literal") == (opposite > default)


def test_judged_rows_give_the_same_numbers_again(scored: Path, tmp_path: Path) -> None:
    """Scored by a classifier here or elsewhere, in a file or in the folder of a report."""
    scorer = ["--scorer", "stories:"]
    judged(scored, tmp_path / "first", *scorer)
    judged(tmp_path / "first", tmp_path / "again")
    rows = tmp_path / "first" / "examples.jsonl"
    judged(rows, tmp_path / "rescored", *scorer, "--batch-size=2")
    first, *others = (tmp_path / name / "results.csv" for name in ("first", "again", "rescored"))
    assert all(first.read_text() == other.read_text() for other in others)


def test_continuations_match_transformers(folder: Path, files: Files, tmp_path: Path) -> None:
    rows = written(folder, files, tmp_path / "three", "--batch-size 3")
    assert rows == written(folder, files, tmp_path / "one", "--batch-size 1")
    assert len({row["continuation"] for row in rows}) > 5  # the models do something
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    how = {"num_beams": 3, "min_new_tokens": NEW, "max_new_tokens": NEW, "pad_token_id": 1}
    how["do_sample"] = False
    for row in rows:
        if row["variant"] == "default":
            ids = tokenizer(row["prompt"], return_tensors="pt")["input_ids"]
            out = model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), **how)
            assert row["continuation"] == tokenizer.decode(out[0, ids.shape[1] :])


def test_perplexity_of_text(folder: Path, files: Files, tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr(writing, "RESERVED", CONTEXT - 4)
    text = tmp_path / "text.txt"
    text.write_text("the cat sat on the mat . who ran under the red dog ? a blue cat")
    written(folder, files, tmp_path / "r", f"--perplexity {text}")
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    ids = tokenizer(text.read_text())["input_ids"]
    opposite = SPECIFICATIONS["self"]["opposite"]
    prefixes = [tokenizer(f"the {words} . ")["input_ids"] for words in opposite]
    chunks = [ids[start : start + 4] for start in range(0, len(ids), 4)]
    losses = [chunk_loss(model.eval(), chunk, prefixes, lead=[], decay=50) for chunk in chunks]
    cells = Cells(tmp_path / "r")
    for variant, side in (("default", 0), ("opposite", 1)):
        row = cells.row("perplexity", checkpoint="m", method="self 50", variant=variant)
        total = sum(loss[side] for loss in losses)
        assert (row["value"], row["n"]) == (pytest.approx(math.exp(total / len(ids))), len(chunks))
        assert row["low"] < row["value"] < row["high"]


def instructed(prompt: str, before: int) -> Reply:
    if prompt.startswith("is ran"):
        return Reply("")
    if prompt.startswith("is red : the red"):
        return Reply(status=400)
    return Reply("red red is" if prompt.startswith("is red") else "the dog")


def test_endpoint_is_instructed_and_failures_counted(files: Files, tmp_path: Path) -> None:
    with serve(instructed) as endpoint:
        model = f"openai:m@{endpoint.url}"
        rows = written(model, files, tmp_path / "w", "--method self instructive")
        assert {"is not red : the cat sat", "the cat sat"} <= set(endpoint.prompts)
    nonsense = [row for row in rows if row["variant"] == "nonsense" and row["group"] == 0]
    assert {row["continuation"] for row in nonsense} == {""}  # no continuation is an empty one
    failed = [row for row in rows if "failure" in row]
    assert [(row["variant"], row["prompt"]) for row in failed] == [("opposite", "the red dog")]
    cells = judged(tmp_path / "w", tmp_path / "r", "--scorer", "stories:")
    place = {"checkpoint": "m", "method": "instructive"}
    place |= {"domain": "adversarial", "variant": "opposite"}
    assert (cells("failed", **place), cells.n("average", **place)) == (1 / 4, 3)
    assert cells.n("average", **place, against="variant=default") == 3


def test_swapped_prompts(folder: Path, files: Files, tmp_path: Path, capsys: Capsys) -> None:
    swapped = files | {"adversarial": files["neutral"], "neutral": files["adversarial"]}
    assert "--adversarial" in told(capsys, *command(folder, swapped, tmp_path / "r"))
