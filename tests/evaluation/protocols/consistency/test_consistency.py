"""`python -m evaluation consistency`: numbers against naive counts, and work that is done once."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from evaluation.protocols.consistency.generation import LocalWriter
from scipy.stats import ttest_ind, ttest_rel
from transformers import AutoModelForCausalLM, AutoTokenizer

from evaluation.__main__ import main
from evaluation.protocols.consistency.specifications import OWN, nonsense_group
from metrics.consistency import DOMAINS
from models.language.perplexity import chunk_loss
from tests.data_modules.fake_endpoint import Reply, serve
from tests.evaluation.checkpoints import examples_of, numbers
from tests.evaluation.protocols.consistency.consistency_runs import (  # noqa: F401  (fixtures are named by tests)
    NEW,
    PROMPTS,
    WORDS,
    WordScorer,
    arguments,
    long_model,
    made_files,
    made_folder,
    made_scorer,
    report_of,
)


def scored(rows: list[dict[str, Any]], domain: str, variant: str, attribute: str) -> list[float]:
    """By prompt; of nonsense the mean of its groups."""
    at: dict[int, list[float]] = {}
    for row in rows:
        if (row["domain"], row["variant"]) == (domain, variant):
            at.setdefault(row["line"], []).append(row["scores"][attribute])
    return [sum(values) / len(values) for values in at.values()]


def test_numbers_are_those_of_the_rows(
    scorer: WordScorer, folder: Path, files: dict[str, Path], tmp_path: Path
) -> None:
    report = report_of(folder, files, tmp_path / "r")
    rows = examples_of(tmp_path / "r")
    assert len(rows) == (4 + 2) * (len(PROMPTS["adversarial"]) + len(PROMPTS["neutral"]))
    for row in rows:
        words = row["continuation"].split()
        assert row["scores"] == {a: min(1.0, 0.5 * words.count(word)) for a, word in WORDS.items()}
    for domain in DOMAINS:
        default = [scored(rows, domain, "default", a) for a in WORDS]
        for variant in ("default", "original", "opposite", "nonsense", "blank"):
            its = [row for row in rows if (row["domain"], row["variant"]) == (domain, variant)]
            rate = {a: sum(row["scores"][a] >= 0.5 for row in its) / len(its) for a in WORDS}
            at = f"{domain}/{variant}"
            assert report[f"{at}/average"] == pytest.approx(sum(rate.values()) / len(WORDS))
            assert report[f"{at}/n"] == len(its)
            for a, attribute in enumerate(WORDS):
                means = scored(rows, domain, variant, attribute)
                assert report[f"{at}/{attribute}/rate"] == pytest.approx(rate[attribute])
                assert report[f"{at}/{attribute}/expected_maximum"] == pytest.approx(sum(means) / len(means))
                if variant != "default" and len({*means, *default[a]}) > 1:
                    found = report[f"{at}/{attribute}/p_independent"]
                    assert found == pytest.approx(ttest_ind(means, default[a]).pvalue)
                    if means != default[a]:
                        paired = ttest_rel(means, default[a]).pvalue
                        assert report[f"{at}/{attribute}/p_paired"] == pytest.approx(paired)
    assert len({row["continuation"] for row in rows}) > 5  # the models do something


def test_verdicts_and_what_is_behind_them_are_told(
    scorer: WordScorer,
    folder: Path,
    files: dict[str, Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    report = report_of(folder, files, tmp_path / "r")
    shown = capsys.readouterr().out
    for name in ("adversarial prompts", "neutral prompts", "Checklist", "Behind the checklist"):
        assert name in shown
    b = {variant: report[f"adversarial/{variant}/average"] for variant in ("default", "original", "opposite")}
    assert report["verdict/literal/polarity"] == int(b["opposite"] > b["default"])
    expected = int(b["opposite"] > b["default"] and b["original"] <= b["default"])
    assert report["verdict/parity/polarity"] == expected
    assert f"default {100 * b['default']:.2f}" in shown
    assert (tmp_path / "r" / "consistency.png").stat().st_size > 1000
    assert "toxicity: n 12, roc_auc 0.972" in (tmp_path / "r" / "report.md").read_text()
    about = report["about"]
    assert about["scorer"]["version"] == "1"
    assert about["specifications"]["original"] == ["the red dog . ", "the blue cat . "]
    assert about["specifications"]["nonsense"][1] == ["the who who . ", "the . a . "]
    assert about["debiasing"] == {"decay": 50.0, "floor": 0.01}
    assert len(about["model"]["settings"]["weights"]) == 16


def test_our_own_specifications_and_nonsense_from_seeds(scorer: WordScorer, files: dict[str, Path]) -> None:
    from evaluation.protocols.consistency.command import parts_of

    parts = {(part.variant, part.group): part.texts for part in parts_of(OWN["self"], 2)}
    assert parts["original", None] == OWN["self"].filled(OWN["self"].original)
    assert parts["nonsense", 1] == OWN["self"].filled(nonsense_group(1, 6))
    assert parts["default", None] == ()


def test_the_default_is_the_model_as_it_is(
    scorer: WordScorer, folder: Path, files: dict[str, Path], tmp_path: Path
) -> None:
    report_of(folder, files, tmp_path / "r", "--batch-size", "3")
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    for row in examples_of(tmp_path / "r"):
        if row["variant"] == "default":
            ids = tokenizer(row["prompt"], return_tensors="pt")["input_ids"]
            out = model.generate(
                input_ids=ids,
                attention_mask=torch.ones_like(ids),
                num_beams=3,
                min_new_tokens=NEW,
                max_new_tokens=NEW,
                pad_token_id=1,
                do_sample=False,
            )
            assert row["continuation"] == tokenizer.decode(out[0, ids.shape[1] :])


@pytest.mark.parametrize(
    "how", [[], ["--sample", "--seed", "3"], ["--method", "instructive", "--beams", "1"]]
)
def test_batches_change_nothing(
    scorer: WordScorer, folder: Path, files: dict[str, Path], tmp_path: Path, how: list[str]
) -> None:
    one, three = (
        numbers(report_of(folder, files, tmp_path / size, "--batch-size", size, *how)) for size in "13"
    )
    assert one == three
    assert examples_of(tmp_path / "1") == examples_of(tmp_path / "3")


def test_draws_depend_on_the_seed(
    scorer: WordScorer, folder: Path, files: dict[str, Path], tmp_path: Path
) -> None:
    for seed in "12":
        report_of(folder, files, tmp_path / seed, "--sample", "--seed", seed)
    assert examples_of(tmp_path / "1") != examples_of(tmp_path / "2")


def test_an_interrupted_run_goes_on_and_repeats_nothing(
    scorer: WordScorer,
    folder: Path,
    files: dict[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = tmp_path / "text.txt"
    text.write_text("the cat sat on the mat . " * 5)
    whole = [*arguments(folder, files, tmp_path / "whole"), "--batch-size", "2"]
    assert main(whole) == 0
    asked = sorted(scorer.asked)

    written: list[str] = []
    write = LocalWriter.write

    def counted(self: LocalWriter, requests: Any) -> Iterator[Any]:
        for request, answer in zip(requests, write(self, requests), strict=True):
            if len(written) == 11:
                raise KeyboardInterrupt
            written.append(repr(request))
            yield answer

    monkeypatch.setattr(LocalWriter, "write", counted)
    scorer.asked = []
    parts = [*arguments(folder, files, tmp_path / "parts"), "--batch-size", "2"]
    assert main(parts) == 130
    assert len(written) == 11
    assert not (tmp_path / "parts").exists()
    written.append("interrupted")  # and on past the eleventh
    scorer.dies_after = 5
    assert main(parts) == 130
    scorer.dies_after = math.inf
    assert main(parts) == 0
    assert len(set(written)) == len(written)
    assert sorted(scorer.asked) == asked  # each text once
    assert (tmp_path / "parts/report.json").read_bytes() == (tmp_path / "whole/report.json").read_bytes()
    assert (tmp_path / "parts/examples.jsonl").read_bytes() == (
        tmp_path / "whole/examples.jsonl"
    ).read_bytes()


def test_the_default_is_not_written_again_for_another_strength(
    scorer: WordScorer,
    folder: Path,
    files: dict[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    work = ["--work", str(tmp_path / "work.jsonl")]
    report_of(folder, files, tmp_path / "r", *work)
    seen: list[Any] = []
    write = LocalWriter.write
    monkeypatch.setattr(LocalWriter, "write", lambda self, r: seen.extend(r) or write(self, r))
    report_of(folder, files, tmp_path / "again", *work)
    assert seen == []
    report_of(folder, files, tmp_path / "stronger", *work, "--decay", "100")
    assert seen
    assert all(request.prefixes for request in seen)


def test_perplexity_is_that_of_the_chunks(scorer: WordScorer, files: dict[str, Path], tmp_path: Path) -> None:
    """A context of 40 leaves chunks of 8."""
    folder = long_model(tmp_path / "long")
    text = tmp_path / "text.txt"
    text.write_text("the cat sat on the mat . who ran under the red dog ? a blue cat")
    report = report_of(folder, files, tmp_path / "r", "--perplexity", str(text))
    model, tokenizer = (
        AutoModelForCausalLM.from_pretrained(folder).eval(),
        AutoTokenizer.from_pretrained(folder),
    )
    ids = tokenizer(text.read_text())["input_ids"]
    prefixes = [tokenizer(text)["input_ids"] for text in report["about"]["specifications"]["opposite"]]
    regular = debiased = 0.0
    for start in range(0, len(ids), 8):
        chunk = ids[start : start + 8]
        loss = chunk_loss(model, chunk, len(chunk), prefixes, pad=0)
        regular, debiased = regular + loss.regular, debiased + loss.debiased
    assert report["perplexity/default"] == pytest.approx(math.exp(regular / len(ids)))
    assert report["perplexity/opposite"] == pytest.approx(math.exp(debiased / len(ids)))
    assert report["perplexity/original"] != report["perplexity/opposite"]


def instructed(prompt: str, before: int) -> Reply:
    if prompt.startswith("is ran"):
        return Reply("")  # no continuation is an empty one
    if prompt.startswith("is red : the red"):
        return Reply(status=400)
    return Reply("red red is" if prompt.startswith("is red") else "the dog")


def test_an_endpoint_is_instructed(
    scorer: WordScorer, files: dict[str, Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    method = ["--method", "instructive"]
    with serve(instructed) as endpoint:
        model = f"openai:m@{endpoint.url}"
        report = report_of(model, files, tmp_path / "r", *method)
        sent = len(endpoint.requests)
        assert {request["max_tokens"] for request in endpoint.requests} == {NEW}
        assert "is not red : the cat sat" in endpoint.prompts
        assert "the cat sat" in endpoint.prompts
        report_of(model, files, tmp_path / "again", *method, "--work", f"{tmp_path / 'r'}.work.jsonl")
        assert len(endpoint.requests) == sent + 1  # only what had failed
    rows = examples_of(tmp_path / "r")
    empty = [row for row in rows if row["variant"] == "nonsense" and row["group"] == 0]
    assert {row["continuation"] for row in empty} == {""}
    assert all(set(row["scores"].values()) == {0.0} for row in empty)
    failed = [row for row in rows if "failure" in row]
    assert [(row["variant"], row["prompt"]) for row in failed] == [("opposite", "the red dog")]
    assert (report["failures"], report["adversarial/opposite/n"]) == (1, 3)
    assert report["adversarial/opposite/toxicity/rate"] == 1
    assert report["adversarial/default/threat/rate"] == 1
    assert "400" in caplog.text


def test_failures_of_the_scorer_are_counted_and_asked_again(
    scorer: WordScorer, folder: Path, files: dict[str, Path], tmp_path: Path
) -> None:
    work = ["--work", str(tmp_path / "work.jsonl")]
    complete = report_of(folder, files, tmp_path / "r")
    victim = examples_of(tmp_path / "r")[0]["continuation"]
    scorer.failing = lambda text: text == victim
    report = report_of(folder, files, tmp_path / "holed", *work)
    lost = sum(row.get("continuation") == victim for row in examples_of(tmp_path / "holed"))
    assert report["failures"] == lost > 0
    assert "throttled" in (tmp_path / "holed/report.md").read_text()
    assert report["adversarial/default/n"] < len(PROMPTS["adversarial"])
    scorer.failing = lambda text: False
    scorer.asked = []
    assert numbers(report_of(folder, files, tmp_path / "mended", *work)) == numbers(complete)
    assert scorer.asked == [victim]


def test_help_answers_without_heavy_imports() -> None:

    code = (
        "import sys, argparse, evaluation.protocols.consistency.command as c; "
        "c.add_arguments(argparse.ArgumentParser()); "
        "assert not {'torch', 'transformers', 'scipy', 'numpy'} & set(sys.modules), sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
