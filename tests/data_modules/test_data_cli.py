"""`interventune data` beside what goldens pin (lei_sets, perturbed, written)."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from data_modules.__main__ import main
from data_modules.schema import ADVICE_CLASSES
from data_modules.sources import read_groups
from tests.data_modules.fixtures.tiny_lists import INTERVENTIONS, write_lists


@pytest.fixture
def advised(tmp_path: Path) -> list[str]:
    """`lei` from the tiny lists."""
    names = ("subjects", "templates", "attributes", "interventions")
    files = write_lists(tmp_path)
    return ["lei", *(part for name in names for part in (f"--{name}", str(files[name])))]


def run(*arguments: object) -> int:
    return main([str(argument) for argument in arguments])


def test_classes_and_lead_in(advised: list[str], tmp_path: Path) -> None:
    output = tmp_path / "some"
    assert run(*advised, "--classes", "ethical", "--lead-in", "Remember:", "--output", output) == 0
    groups = list(read_groups(output))
    assert {group.advice_class for group in groups} == {"ethical"}
    assert {group.variants[0].advice.split()[0] for group in groups} == {"Remember:"}


def test_advice_of_another_domain_and_plain_facts(advised: list[str], tmp_path: Path) -> None:
    """Another domain's advice goes to every category, each of them gets its share, and `--like` does not ban
    what it does not know."""
    one, two, like, output = (tmp_path / name for name in ("one.json", "two.json", "like", "out"))
    few = {"ethical": {"none": ["Judge nobody by height."]}, "adversarial": {"none": ["Height matters."]}}
    one.write_text(json.dumps(few))
    two.write_text(json.dumps(INTERVENTIONS))
    assert run(*advised, "--output", like) == 0
    flags = ["--domain", "Origin", "--mismatched", f"height={one}", f"shoes={two}", "--like", like]
    classes = ["--facts", "--classes", *ADVICE_CLASSES, "--per-class", 30, "--split", "train"]
    assert run(*advised, *flags, *classes, "--split-sizes", 1, 0, 0, "--output", output) == 0
    groups = list(read_groups(output))
    assert Counter(group.advice_class for group in groups) == dict.fromkeys(ADVICE_CLASSES, 30)
    assert {group.domain for group in groups} == {"origin"}
    about = Counter((group.advice_class, group.advice_domain) for group in groups)
    assert about == {
        ("ethical", "origin"): 30, ("adversarial", "origin"): 30, ("irrelevant", ""): 30, ("none", ""): 30,
        ("mismatched_ethical", "height"): 15, ("mismatched_adversarial", "height"): 15,
        ("mismatched_ethical", "shoes"): 15, ("mismatched_adversarial", "shoes"): 15,
    }  # fmt: skip
    said = {group.variants[0].advice for group in groups if group.advice_id == "mismatched_ethical_height-0"}
    assert said == {"Note that, judge nobody by height."}
    assert len({group.category for group in groups if group.advice_domain == "height"}) == 2
    ids = {group.advice_id for group in groups}
    assert "mismatched_ethical_shoes-5" in ids  # counted through the categories
    assert any(name.startswith("irrelevant_facts-") for name in ids)


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        ("--mismatched height={file}", "--domain"),
        ("--domain height --mismatched height={file}", "height"),
        ("--domain origin --mismatched a={file} a={file}", "given twice"),
        ("--domain origin --mismatched {file}", "NAME=FILE"),
        ("--domain origin --mismatched a=none.json", "none.json"),
        ("--classes mismatched_ethical", "--mismatched"),
    ],
)
def test_wrong_flags_of_mismatched_advice(
    flags: str, named: str, advised: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = flags.format(file=advised[advised.index("--interventions") + 1]).split()
    assert run(*advised, *words, "--output", tmp_path / "out") == 2
    assert named in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_conversations_do_not_fit_into_squads_format(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "out"
    assert run("stories", "--split", "conversation_dev", "--kind", "qa", "--output", output) == 2
    assert "perturb" in capsys.readouterr().err
    assert not output.exists()


@pytest.mark.parametrize("command", ["lei", "perturb"])
def test_no_heavy_library_is_loaded(command: str, advised: list[str], tmp_path: Path) -> None:
    perturb = ["perturb", "--dataset", "stories", "--input", "stories:conversation_dev", "--variant", "ts"]
    arguments = [*(advised if command == "lei" else perturb), "--output", str(tmp_path / "out")]
    code = (
        f"import sys; from data_modules.__main__ import main; assert main({arguments!r}) == 0; "
        "print({'torch', 'datasets', 'transformers', 'pytorch_lightning', 'numpy'} & set(sys.modules))"
    )
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "set()"
