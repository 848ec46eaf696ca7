from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from data_modules.__main__ import main
from data_modules.schema import Group, QAExample
from data_modules.sources import read_groups, read_questions
from tests.data_modules.fixtures.tiny_lists import ATTRIBUTES, put, write_lists


@pytest.fixture
def lists(tmp_path: Path) -> list[str]:
    files = write_lists(tmp_path)
    return [
        part for name in ("subjects", "templates", "attributes") for part in (f"--{name}", str(files[name]))
    ]


@pytest.fixture
def advised(lists: list[str], tmp_path: Path) -> list[str]:
    return ["lei", *lists, "--interventions", str(tmp_path / "interventions.json")]


def run(*arguments: object) -> int:
    return main([str(argument) for argument in arguments])


def groups_of(path: Path) -> list[Group]:
    return list(read_groups(path))


def test_like_and_exclude_give_held_out_keys_of_the_same_parts(advised: list[str], tmp_path: Path) -> None:
    train, held_out = tmp_path / "train", tmp_path / "held_out"
    assert run(*advised, "--per-class", 5, "--output", train) == 0
    assert run(*advised, "--like", train, "--exclude", train, "--output", held_out) == 0
    seen, new = groups_of(train), groups_of(held_out)
    assert new
    assert not {group.key for group in seen} & {group.key for group in new}
    for part in ("attribute", "advice_id"):
        assert {getattr(g, part) for g in new} <= {getattr(g, part) for g in seen}
    assert {s for g in new for s in g.subjects} <= {s for g in seen for s in g.subjects}


def test_classes_and_lead_in(advised: list[str], tmp_path: Path) -> None:
    output = tmp_path / "some"
    assert run(*advised, "--classes", "ethical", "--lead-in", "Remember:", "--output", output) == 0
    groups = groups_of(output)
    assert {group.advice_class for group in groups} == {"ethical"}
    assert {group.variants[0].advice.split()[0] for group in groups} == {"Remember:"}


def test_specified_contexts_come_as_groups_and_as_questions(advised: list[str], tmp_path: Path) -> None:
    names = [line.split("|")[1].strip() for line in ATTRIBUTES.splitlines()[:4]]
    sentences = put(tmp_path / "s.tsv", "".join(f"{name}\tEverybody saw the [subj].\n" for name in names))
    output, qa = tmp_path / "groups", tmp_path / "qa"
    options = ["--specified", sentences, "--per-class", 2, "--output", output, "--qa-output", qa]
    assert run(*advised, *options) == 0
    groups, questions = groups_of(output), list(read_questions(qa))
    assert (len(groups), len(questions)) == (6, 12)
    for question in questions:
        assert question.context.endswith(f"Everybody saw the {question.answers[0].text}.")
    assert {q.id.rsplit("|", 1)[0] for q in questions} == {g.key for g in groups}


@pytest.mark.parametrize("kind", ["qa", "groups"])
def test_stories_are_written_in_the_public_formats(tmp_path: Path, kind: str) -> None:
    split = "dev" if kind == "qa" else "heldout"
    output = tmp_path / "out"
    assert run("stories", "--split", split, "--kind", kind, "--output", output) == 0
    if kind == "qa":
        assert [told(e) for e in read_questions(output)] == [
            told(e) for e in read_questions(f"stories:{split}")
        ]
    else:
        assert groups_of(output) == list(read_groups(f"stories:{split}"))


def told(example: QAExample) -> tuple[object, ...]:
    """What SQuAD's format holds of an example."""
    return example.id, example.context, example.question, example.answers


def test_conversations_do_not_fit_into_squads_format(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "out"
    assert run("stories", "--split", "conversation_dev", "--kind", "qa", "--output", output) == 2
    assert "perturb" in capsys.readouterr().err
    assert not output.exists()


def test_an_output_is_overwritten_only_on_request(
    lists: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = put(tmp_path / "out", "mine")
    assert run("unqover", *lists, "--output", output) == 2
    assert "already exists" in capsys.readouterr().err
    assert output.read_text() == "mine"
    assert run("unqover", *lists, "--output", output, "--overwrite") == 0
    assert output.read_text() != "mine"


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
