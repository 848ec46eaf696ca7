"""`reproduce`: its recipes are valid and run; it resumes; our numbers are compared with theirs."""

import re
import subprocess
from pathlib import Path
from unittest.mock import Mock

import pandas as pd
import pytest

from interventune.evaluation.reproduce import run as reproduce
from interventune.evaluation.reproduce.run import RECIPES, Recipe, compare, our_numbers, run
from interventune.storage.documents import load_yaml
from interventune.training.sweep import select, study
from tests.understood import understood

ROOT = Path(__file__).resolve().parents[2]
TRIED = (
    *("confusion_unifiedqa", "consistency_methods", "demo_lei"),
    *("lei_released_scores", "lei_sizes", "sf_coqa", "sf_negation", "sf_statistics"),
)
"""Recipes that are run."""


@pytest.mark.parametrize("name", RECIPES)
def test_commands_of_recipes(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    recipe = load_yaml(RECIPES[name], Recipe)
    for tiny in {False, name not in TRIED}:
        commands = recipe.plan(Path("data"), {}, tmp_path, tiny=tiny).commands
        for command, _ in commands:
            understood(command)
        written = {file for _, file in commands if file}
        assert written == {file for printed in recipe.printed for file in printed.results.split()}
    for printed in recipe.printed:
        for row in printed.rows:
            numbers = row[len(printed.by) :]
            assert len(numbers) <= len(printed.measures), row
            assert all(isinstance(number, int | float | None) for number in numbers), row


@pytest.fixture
def trials_in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trials of sweeps without the seconds that a new process takes to import torch."""

    def call(command: list[str]) -> int:
        _, _, _, room, *arguments = command
        return reproduce.call_step(room.removeprefix("interventune."), *arguments, here=True)

    processes = Mock()  # with an id above those of all processes
    processes.Popen = lambda command, **_: Mock(wait=lambda: call(command), pid=2**22)
    processes.run = lambda command, **_: Mock(returncode=call(command))
    for module in (study, select):
        monkeypatch.setattr(module, "subprocess", processes)


def compared(work: Path) -> pd.DataFrame:
    """The long table of a report, by source."""
    return pd.read_csv(work / "report" / "results.csv", keep_default_na=False).set_index("source")


@pytest.mark.usefixtures("trials_in_process")
@pytest.mark.parametrize("name", TRIED)
def test_recipe_runs_with_tiny_models_on_embedded_data(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.delattr(subprocess, "call")  # whose imports would take most of the time
    run(name, tiny=True, work=tmp_path)
    frame = compared(tmp_path)
    assert set(frame.index) == {"ours"}, "no number to compare tiny models with"
    assert (frame["n"] > 0).all()
    recipe = load_yaml(RECIPES[name], Recipe)
    plan = recipe.plan(tmp_path, {}, tmp_path, tiny=False)
    sources = compare(recipe, plan, tmp_path).results.frame["source"].value_counts()
    numbers = sum(any(row[len(one.by) :]) for one in recipe.printed for row in one.rows)
    assert bool(numbers) == (recipe.source in sources)
    assert sources.get("difference") == sources.get(recipe.source), "each number has its cell"
    assert sources["ours"] == len(frame)


def test_released_scores_give_the_authors_numbers(
    shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = reproduce.call_step
    monkeypatch.setattr(reproduce, "call_step", lambda *words, here: call(*words, here=True))
    run("lei_released_scores", data=shared / "data" / "lei", work=tmp_path)
    gaps = compared(tmp_path).loc["difference", "value"].astype(float)
    assert len(gaps) == 18
    assert gaps.abs().max() < 1e-6


RECIPE = """
title: A table
paper: Example 2020, Table 1
match: variant
settings:
  dev: {paper: sub/dev.json, where: example.org, tiny: "stories:dev"}
  backbone: {paper: roberta_large, tiny: tiny_bert}
  seed: {paper: "0", tiny: "0"}
steps:
  - {command: "fit {backbone} {dev} --run.name=run --output '{runs}/a b'", tiny: --short}
  - {command: "write --output {runs}/table", writes: table/results.csv}
  - {command: "select --study {runs}/study", writes: study/selection/selection.csv}
printed:
  - {title: F1, results: table/results.csv, by: [backbone, checkpoint], measures: [f1],
     percent: true, rows: [
       [roberta_large, ot, 87.0], [roberta_large, ibt, 5.1], [roberta_large, none, 1.0],
       [roberta_large, new], [roberta_large, drawn], [bert_base, ot, 70]]}
  - {title: Change, results: table/results.csv, by: [checkpoint, against], measures: [f1],
     rows: [[ot, ibt, .6]]}
  - {results: study/selection/selection.csv, by: [checkpoint, data], measures: [mu],
     rows: [[ot, dev, 1]]}
  - {title: Drawn, results: table/results.csv, by: [checkpoint], measures: [em]}
notes: Another model.
"""
TABLE = """checkpoint,against,domain,measure,value,low,high,n,units
ot,,,f1,.9,.8,.95,10,10
ot,ibt,,f1,.7,,,9,9
ot,,x,f1,.1,.0,.2,3,3
ibt,,,f1,.2,.1,.3,9,9
new,,,f1,.4,.3,.5,9,9
new,,,em,.6,.3,.7,9,9
"""
SELECTION = "checkpoint,test_set,metric,mean,std,low,high,n,values\not,dev,mu,.5,,,,7,.5\n"
FILES = {
    "write": ("table/results.csv", TABLE),
    "select": ("study/selection/selection.csv", SELECTION),
}


class Steps:
    """In place of processes: the commands that were run; each writes its file."""

    def __init__(self, folder: Path) -> None:
        self.recipe, self.work = folder / "table.yaml", folder / "work"
        self.commands = list[list[str]]()
        self.recipe.write_text(RECIPE)
        for name in ("data/sub/dev.json", "elsewhere/sub/dev.json", "elsewhere/dev.json"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text("{}")

    def __call__(self, step: str, *arguments: str, here: bool) -> int:
        self.commands.append([step, *arguments])
        if step in FILES:
            name, text = FILES[step]
            (self.work / name).parent.mkdir(parents=True, exist_ok=True)
            (self.work / name).write_text(text)
        return 0

    def ran(self, **options: object) -> list[str]:
        """The commands that are run with these options."""
        self.commands.clear()
        run(str(self.recipe), work=self.work, **options)  # type: ignore[arg-type]
        return [command[0] for command in self.commands]


@pytest.fixture
def steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Steps:
    monkeypatch.chdir(tmp_path)
    steps = Steps(tmp_path)
    monkeypatch.setattr(reproduce, "call_step", steps)
    monkeypatch.setattr("interventune.models.adapters.read_config", str)  # no Hub
    return steps


def test_numbers_are_compared_with_the_papers(steps: Steps, tmp_path: Path) -> None:
    assert steps.ran() == ["fit", "write", "select"]
    dev = str(tmp_path / "data/sub/dev.json")
    flags = ["--run.name=run", "--output", f"{steps.work}/a b"]
    assert steps.commands[0] == ["fit", "roberta_large", dev, *flags]
    frame = compared(steps.work).set_index("checkpoint", append=True)["value"].astype(float)
    ot = {"ours": [0.9, 0.7, 0.5], "paper": [0.87, 0.6, 1], "difference": [0.03, 0.1, -0.5]}
    assert {name: list(frame[name, "ot"].round(9)) for name in ot} == ot
    # Where the paper prints none, with a row and without.
    assert list(frame["ours", "new"]) == [0.4, 0.6]
    assert set(frame.index.get_level_values("checkpoint")) == {"ot", "ibt", "new", "none"}
    text = (steps.work / "report" / "report.md").read_text()
    assert "1 of 2 numbers of the paper lie within our 95 % intervals" in text
    assert "Match with the paper: variant. Another model.\n" in text
    assert "| ot | 90.0 [80.0, 95.0] | 87.0 | 3.00 | 10 |" in text


ALL = {"F1": [0.87, 0.051, 0.01], "Change": [0.6], "Example 2020, Table 1": [1.0]}
SAME = "backbone=roberta_large dev=elsewhere/sub/dev.json"
SHOWN = {SAME: ALL, "backbone=bert_base": {"F1": [0.7]}}
NONE = "backbone=bert_large backbone=RoBERTa_large dev=elsewhere/dev.json dev=stories:dev seed=00"


@pytest.mark.parametrize("use", [*SHOWN, *NONE.split(), "seed=1 backbone=bert_base"])
def test_printed_numbers_of_the_settings(use: str, steps: Steps) -> None:
    shown = SHOWN.get(use, {})
    steps.ran(use=use.split())
    text = (steps.work / "report" / "report.md").read_text()
    hidden = "; ".join(title for title in ALL if title not in shown)
    without = f"Numbers of the paper are of other settings or data, and not shown: {hidden}."
    assert (without in text) == bool(hidden)
    papers = compared(steps.work).query("source == 'paper'").astype({"value": float})
    assert {title: list(part["value"].round(9)) for title, part in papers.groupby("table")} == shown
    assert ("difference" in text) == bool(shown)
    assert ("numbers of the paper lie" in text) == bool(shown)


def test_steps_before_results_that_are_there_are_skipped(steps: Steps) -> None:
    assert steps.ran(tiny=True) == ["fit", "write", "select"]
    assert steps.commands[0][-1] == "--short"
    assert steps.ran(tiny=True) == []
    (steps.work / FILES["select"][0]).unlink()
    assert steps.ran(tiny=True) == ["select"]
    with pytest.raises(ValueError, match="other commands"):
        steps.ran(tiny=True, use=["backbone=other"])
    (steps.work / "commands.sh").unlink()  # results of an unknown origin
    with pytest.raises(ValueError, match="other commands"):
        steps.ran(tiny=True)


def test_results_of_other_data_are_not_shown_again(steps: Steps, tmp_path: Path) -> None:
    steps.ran()
    (tmp_path / "data/sub/dev.json").write_text("[]")
    with pytest.raises(ValueError, match="other commands or data"):
        steps.ran()


def test_mistakes_are_errors_before_anything_runs(steps: Steps, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"dev\.json does not exist; get it from example\.org"):
        steps.ran(data=tmp_path / "elsewhere" / "more")
    other = steps.recipe.with_name("two.yaml")
    other.write_text(RECIPE.replace("  dev", "  more: {paper: more.json, where: site.org}\n  dev"))
    with pytest.raises(ValueError, match=r"more\.json does not .*site\.org; .*dev\.json does not"):
        run(str(other), data=tmp_path / "none")
    for use, word in (["backbon=x"], "backbon"), (["seed"], "NAME=VALUE"), (["seed=1"] * 2, "two"):
        with pytest.raises(ValueError, match=word):
            steps.ran(tiny=True, use=use)
    assert not steps.commands
    with pytest.raises(ValueError, match=r"dev-labels\.lst does not .*dev\.jsonl does not"):
        run("confusion_unifiedqa", data=tmp_path)


@pytest.mark.parametrize("name", ["hub:no/data:train", "hf:no/model@a1", "minilm", "openai:x"])
def test_what_the_hub_lacks_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    assert re.search("no/|sentence-transformers/|OPENAI_API_KEY", reproduce.lacking(name, ""))
    assert not reproduce.lacking("own", "")


def test_several_files_give_their_mean(tmp_path: Path) -> None:
    files = [tmp_path / "a.csv", tmp_path / "b.csv"]
    for file, value in zip(files, (0.9, 0.5), strict=True):
        file.write_text(TABLE.replace(".9,.8,.95", f"{value},.4,1"))
    means = our_numbers(files, ["checkpoint"], ["f1"]).set_index("checkpoint")
    assert list(means.loc["ot", ["ours", "n"]]) == [0.7, 20]
    assert means["low"].isna().all()
