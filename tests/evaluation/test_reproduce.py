"""`reproduce`: its files are valid, their commands understood; it runs, goes on, puts ours beside theirs."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path

import pandas as pd
import pytest
import yaml
from filelock import FileLock

from data_modules.groups.specified import specify
from evaluation.reproduce import steps
from evaluation.reproduce.command import run
from evaluation.reproduce.compare import compare
from evaluation.reproduce.recipe import Recipe, placeholder_values, read_recipe, recipes
from evaluation.reproduce.steps import run_step
from interventune.command import main
from tests.data_modules.fixtures.tiny_language_models import save as save_language_model
from tests.evaluation.checkpoints import GROUPS, save_folder, save_groups, told
from tests.understood import understood

ROOT = Path(__file__).resolve().parents[2]
EVERY = pytest.mark.parametrize("name", recipes())


@EVERY
@pytest.mark.parametrize("tiny", [False, True], ids=["paper", "tiny"])
def test_every_command_of_a_file_is_understood(
    name: str, tiny: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    recipe = read_recipe(recipes()[name])
    if tiny and not all(need.tiny for need in recipe.data.values()):
        pytest.skip("nothing embedded stands for its data")
    values = placeholder_values(recipe, Path("data"), {}, tmp_path, tiny=tiny)
    for command in recipe.commands(values, tiny=tiny):
        understood(command)


@EVERY
def test_every_printed_row_has_a_number_for_each_measure(name: str) -> None:
    recipe = read_recipe(recipes()[name])
    assert recipe.printed
    for printed in recipe.printed:
        for row in printed.rows:
            assert len(row) == len(printed.by) + len(printed.measures), row
            assert all(isinstance(x, int | float | None) for x in row[len(printed.by) :]), row


def in_process(command: Sequence[str], log: Path) -> int:
    """A step without the seconds that a new process takes to import torch."""
    log.write_text("")
    module = command[0] if "." in command[0] else f"{command[0]}.__main__"
    code: int = import_module(module).main(list(command[1:]))
    return code


@pytest.mark.parametrize(
    "name", ["confusion_unifiedqa", "consistency_methods", "lei_zero_shot", "sf_coqa", "sf_statistics"]
)
def test_it_runs_with_tiny_models_on_embedded_data(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(steps, "run_step", in_process)
    work = tmp_path / "work"
    assert main(["reproduce", name, "--tiny", "--work", str(work)]) == 0
    said = capsys.readouterr().out
    assert "not comparable" in said
    recipe = read_recipe(recipes()[name])
    frame = pd.read_csv(work / "report" / "results.csv", keep_default_na=False)
    ours = frame[(frame["source"] == "ours")]
    assert len(ours) == len(frame) / 3 > 5
    assert (ours["n"] > 0).all(), "every printed number has its cell"
    assert json.loads((work / "report" / "report.json").read_text())["about"]["paper"] == recipe.paper

    assert main(["reproduce", name, "--tiny", "--work", str(work)]) == 0
    again = capsys.readouterr().out
    assert again.count("finished before") == sum(step.only != "paper" for step in recipe.steps)


RECIPE = """
title: A table
paper: Somebody 2020, Table 1
data:
  dev: {file: sub/dev.json, where: example.org, tiny: "stories:dev"}
settings:
  backbone: {paper: roberta_large, tiny: tiny_bert}
steps:
  - {command: "say {backbone} {dev} --output '{runs}/a b'", tiny: --short}
  - {command: "write {runs}/table/results.csv"}
printed:
  - results: table/results.csv
    by: [backbone, checkpoint]
    measures: [f1]
    percent: true
    rows:
      - [roberta_large, ot, 87.0]
      - [roberta_large, ibt, 5.1]
      - [roberta_large, none, 1.0]
      - [roberta_large, drawn, null]
      - [bert_base, ot, 70]
"""
TABLE = """checkpoint,domain,measure,value,low,high,n
ot,,f1,.9,.8,.95,10
ot,x,f1,.1,.0,.2,3
ibt,,f1,.2,.1,.3,9
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "table.yaml"
    path.write_text(RECIPE)
    return path


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """What was run; `write` writes TABLE, `fail` fails."""
    commands: list[list[str]] = []

    def step(command: Sequence[str], log: Path) -> int:
        commands.append(list(command))
        if command[0] == "write":
            Path(command[1]).parent.mkdir(exist_ok=True)
            Path(command[1]).write_text(TABLE)
        log.write_text("much\nerror: no luck\n")
        return int(command[0] == "fail")

    monkeypatch.setattr(steps, "run_step", step)
    return commands


def test_ours_stand_beside_theirs(file: Path, ran: list[list[str]], tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "dev.json").write_text("{}")
    work = tmp_path / "work"
    run(str(file), data=tmp_path, work=work)
    assert ran[0] == ["say", "roberta_large", str(tmp_path / "sub/dev.json"), "--output", f"{work}/a b"]
    frame = pd.read_csv(work / "report" / "results.csv").set_index(["checkpoint", "source"]).sort_index()
    assert dict(frame.loc["ot"]["value"].round(9)) == {"ours": 0.9, "paper": 0.87, "difference": 0.03}
    assert list(frame.loc[("ot", "difference"), ["low", "high", "n"]].astype(float).round(9)) == [
        -0.07,
        0.08,
        10,
    ]
    assert math.isnan(frame.loc[("none", "ours"), "value"])
    text = (work / "report" / "report.md").read_text()
    assert "| ot | f1 | 90.0 [80.0, 95.0] | 87.0 | 3.0 | 10 |" in text
    assert "1 of 2 printed numbers lie within our 95 % intervals" in text
    assert "1 cells were not found" in text

    run(str(file), data=tmp_path, work=work)
    assert len(ran) == 2, "what is finished is not run again"
    run(str(file), data=tmp_path, work=work, use=["backbone=mine"])
    assert ran[2][1] == "mine"
    assert len(ran) == 4, "nor is anything kept that came after another command"
    assert "backbone=mine (in place of roberta_large)" in (work / "report" / "report.md").read_text()
    about = json.loads((work / "report" / "report.json").read_text())["about"]
    assert about["command"] == ["reproduce", str(file), "--data", str(tmp_path), "--use", "backbone=mine"]
    (tmp_path / "sub" / "dev.json").write_text("{ }")
    run(str(file), data=tmp_path, work=work)
    assert len(ran) == 6, "nor of another file"


def test_what_is_not_the_papers_is_told(
    file: Path, ran: list[list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """The headline says it, as the notes and the terminal do; a cell without an interval misses nothing."""
    monkeypatch.setattr(sys.modules[__name__], "TABLE", TABLE + "drawn,,f1,.5,,,4\n")
    text = RECIPE.replace("drawn, null", "drawn, 40").replace(
        "settings:", "settings:\n  lr: {paper: '1', tiny: '2'}"
    )
    file.write_text(text + "notes: Read this first.\n")
    mine = tmp_path / "mine.json"
    mine.write_text("{}")
    run(str(file), work=tmp_path / "work", use=[f"dev={mine}", "lr=3", "backbone=roberta_large"])
    headline = capsys.readouterr().out.splitlines()[-1]
    assert "1 of 2 printed numbers lie within our 95 % intervals; 1 more have none." in headline
    assert headline.endswith(f"Not the paper's setting: dev={mine}, lr=3.")
    run(str(file), work=tmp_path / "work", use=[f"dev={mine}", "lr=1"])
    said = capsys.readouterr().out
    assert "Read this first." in said
    assert f"Not the paper's setting: dev={mine} (in place of sub/dev.json)." in said


def test_a_step_runs_again_where_its_results_are_gone_or_a_named_file_changed(
    file: Path, ran: list[list[str]], tmp_path: Path
) -> None:
    work, start = tmp_path / "work", tmp_path / "start.ckpt"
    start.write_text("one")

    def words() -> list[str]:
        ran.clear()
        run(str(file), work=work, tiny=True, use=[f"backbone={start}"])
        return [command[0] for command in ran]

    assert words() == ["say", "write"]
    (work / "table" / "results.csv").unlink()
    assert words() == ["write"]
    start.write_text("two")
    assert words() == ["say", "write"]
    start.unlink()
    start.mkdir()
    (start / "a").write_text("one")
    assert words() == ["say", "write"]
    (start / "a").write_text("three")
    assert words() == ["say", "write"]
    assert words() == []


def test_one_at_a_time_works_in_a_folder(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def second(command: Sequence[str], log: Path) -> int:
        with pytest.raises(ValueError, match="another reproduce works there"), ThreadPoolExecutor() as pool:
            pool.submit(run, str(file), work=tmp_path / "work", tiny=True).result()
        return 1

    monkeypatch.setattr(steps, "run_step", second)
    with pytest.raises(ValueError, match="step 1 failed"):
        run(str(file), work=tmp_path / "work", tiny=True)


def test_a_step_ends_with_the_process_that_began_it(tmp_path: Path) -> None:
    begun, lock = tmp_path / "begun", tmp_path / "lock"
    statement = (
        f"import time, filelock; lock = filelock.FileLock({str(lock)!r}); lock.acquire(); "
        f"open({str(begun)!r}, 'w').close(); time.sleep(120)"
    )
    code = "import sys; from pathlib import Path; from evaluation.reproduce.steps import run_step; "
    code += "run_step(['timeit', '-n1', '-r1', sys.argv[1]], Path(sys.argv[2]))"
    caller = subprocess.Popen([sys.executable, "-c", code, statement, str(tmp_path / "log")], cwd=ROOT)
    deadline = time.monotonic() + 60
    while not begun.exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    caller.kill()
    caller.wait()
    with FileLock(lock).acquire(timeout=30):
        pass


def test_a_failed_step_is_told_and_the_others_stay(file: Path, ran: list[list[str]], tmp_path: Path) -> None:
    file.write_text(RECIPE.replace("write {runs}", "fail {runs}"))
    for _ in range(2):
        with pytest.raises(ValueError, match=r"step 2 failed \(exit code 1\): no luck"):
            run(str(file), work=tmp_path / "work", tiny=True)
    assert [command[0] for command in ran] == ["say", "fail", "fail"]
    assert ran[0][-1] == "--short"


def test_a_step_is_a_process_of_its_own(tmp_path: Path) -> None:
    assert run_step(["json.tool", str(tmp_path / "none.json")], tmp_path / "log") != 0
    assert "none.json" in (tmp_path / "log").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["sf_coka"], "did you mean sf_coqa?"),
        (["sf_coqa"], "name the folder that holds coqa-train-v1.0.json, which comes from stanfordnlp"),
        (["sf_coqa", "--data", "."], ". has no coqa-train-v1.0.json"),
        (["sf_coqa", "--data", "."], "; coqa-dev-v1.0.json, which comes from stanfordnlp"),
        (["sf_coqa", "--tiny", "--use", "dev=/nope.json"], "--use dev=/nope.json: there is no /nope.json"),
        (["sf_coqa", "--tiny", "--use", "backbon=x"], "--use backbon: is none of backbone, train, dev"),
        (["sf_coqa", "--tiny", "--use", "backbone"], "--use backbone: write NAME=VALUE"),
        (["lei_released_scores", "--tiny"], "nothing embedded stands for"),
    ],
)
def test_mistakes_are_told_before_anything_runs(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert message in told(capsys, "reproduce", *arguments, "--work", str(tmp_path / "work"))
    assert not (tmp_path / "work").exists()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("paper: Somebody", "papre: Somebody", "'paper' is missing; 'papre' is no field"),
        ("paper: Somebody", "paper: Somebody\nnote: none", "'note' is no field"),
        ("{backbone} {dev}", "{backbon} {dev}", "{backbon} stands for nothing"),
        ("[roberta_large, ot, 87.0]", "[roberta_large, ot]", "needs backbone, checkpoint, f1"),
        ("by: [backbone, checkpoint]", "by: [backbone, model]", "has no column model"),
        ("[roberta_large, ibt, 5.1]", "[roberta_large, two, 5.1]", "leads to several numbers"),
        ("results: table", "results: tables", "the commands did not write it"),
    ],
)
def test_a_mistake_in_a_file_is_told(
    old: str, new: str, message: str, file: Path, ran: list[list[str]], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(sys.modules[__name__], "TABLE", TABLE + "two,x,f1,1,1,1,1\ntwo,y,f1,1,1,1,1\n")
    file.write_text(RECIPE.replace(old, new))
    with pytest.raises(ValueError, match=message.replace("{", r"\{")):
        run(str(file), work=tmp_path / "work", tiny=True)


def test_without_a_name_it_lists_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce"]) == 0
    said = capsys.readouterr().out
    assert all(f"{name}  " in said for name in recipes())
    assert main(["reproduce", "sf_coqa", "--show"]) == 0
    shown, steps = capsys.readouterr().out, read_recipe(recipes()["sf_coqa"]).steps
    assert shown.count("python -m ") == len(steps)
    assert "DATA/coqa-dev-v1.0.json" in shown


def test_the_released_scores_give_the_authors_numbers(
    shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "run_step", in_process)
    run("lei_released_scores", data=shared / "data" / "lei", work=tmp_path)
    frame = pd.read_csv(tmp_path / "report" / "results.csv")
    gaps = frame[frame["source"] == "difference"]["value"]
    assert len(gaps) == 18
    assert gaps.abs().max() < 1e-6


def test_of_several_tables_a_selection_is_one(tmp_path: Path) -> None:
    """selection.csv of `training select` calls its columns otherwise."""
    (tmp_path / "selection.csv").write_text(
        "size,test_set,metric,mean,std,low,high,n,values\n64,dev,bias/ethical/mu,.5,,,,7,.5\n"
    )
    printed = {"results": "selection.csv", "by": ["size", "data"], "measures": ["bias/ethical/mu"]}
    text = yaml.safe_dump(
        {"title": "T", "paper": "P", "steps": [], "printed": [printed | {"rows": [[64, "dev", 1]]}]}
    )
    (tmp_path / "one.yaml").write_text(text)
    recipe: Recipe = read_recipe(tmp_path / "one.yaml")
    evaluation = compare(recipe, {}, tmp_path, {}, tiny=False)
    assert evaluation.results.value("bias/ethical/mu", size="64", data="dev", source="difference") == -0.5


def test_unifiedqas_path_runs_on_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a random T5 of a few thousand weights in its place."""
    monkeypatch.setattr(steps, "run_step", in_process)
    for domain in ("religion", "ethnicity", "gender"):
        (tmp_path / domain).mkdir()
        save_groups(tmp_path / domain / "addedbias_noniid_test_squad.json")
    model = save_language_model(tmp_path / "t5", "t5")
    work = tmp_path / "work"
    run("lei_unifiedqa", data=tmp_path, work=work, use=[f"uqa=hf:{model}"])
    frame = pd.read_csv(work / "report" / "results.csv")
    ours = frame[frame["source"] == "ours"]
    assert len(ours) == 18
    assert set(ours["n"]) == {sum(g.advice_class == name for g in GROUPS) for name in set(ours["class"])}


def test_the_specified_set_is_run_for_mu_and_accuracy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "run_step", in_process)
    groups = [
        specify(group, "It was [subj].", 1).group for group in GROUPS if group.advice_class == "ethical"
    ]
    (tmp_path / "specified").mkdir()
    save_groups(tmp_path / "specified" / "extraMalewithIntvs-sample.source.json", groups)
    models = [f"{name}={save_folder(tmp_path / name, seed=at)}" for at, name in enumerate(("start", "tuned"))]
    work = tmp_path / "work"
    run("lei_specified", data=tmp_path, work=work, use=models)
    frame = pd.read_csv(work / "report" / "results.csv")
    ours = frame[frame["source"] == "ours"]
    assert set(zip(ours["checkpoint"], ours["class"], ours["measure"], strict=True)) == {
        (name, advice, measure)
        for name in ("start", "tuned")
        for advice in ("ethical", "none")
        for measure in ("mu", "accuracy")
    }
    assert set(ours["n"]) == {len(groups)}
