"""Wrong flags, configurations and output folders: one line names them, nothing is written."""

from pathlib import Path

import pytest
import yaml

from tests.mistakes.conftest import everything_in, refused

TABLE = yaml.safe_load(Path(__file__).with_name("flags.yaml").read_text())
GOOD, MISTAKES = TABLE["commands"], TABLE["mistakes"]


@pytest.mark.parametrize(("command", "wrong", "word"), MISTAKES)
def test_wrong_flag(command: str, wrong: str, word: str, given_files: Path, tmp_path: Path) -> None:
    before = everything_in(given_files)
    places = {"given": given_files, "out": tmp_path}
    entry, *arguments = (part.format(**places) for part in f"{GOOD[command]} {wrong}".split())
    if "{{" in wrong:
        arguments = [*arguments[: -len(wrong.split())], wrong.format()]
    refused(entry, arguments, word.format(**places))
    assert everything_in(given_files) == before
    names = [path.name for path in tmp_path.rglob("*")]
    assert not any(name.endswith((".ckpt", ".tmp", "metrics.json")) for name in names)
    assert "x" not in names


@pytest.mark.parametrize("command", ["lei", "bias", "export"])
def test_nothing_is_written_over(command: str, given_files: Path, tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "thesis.txt").write_text("precious")
    before = everything_in(tmp_path)
    entry, *arguments = (w.format(given=given_files, out=tmp_path) for w in GOOD[command].split())
    for over in ([], ["--overwrite"] * (command != "export")):
        refused(entry, arguments + over, str(tmp_path / "x"))
        assert everything_in(tmp_path) == before


@pytest.mark.parametrize(
    ("content", "named"),
    [
        *((text, "bad.yaml") for text in (b"data:\n  val_qa: {main: x", b"- 1\n", b"# caf\xe9\n")),
        (b"[" * 5000, "bad.yaml"),
        (b"data: !!python/object/apply:os.system ['touch trapped']\n", "bad.yaml"),
        (b"run:\n  name: a\n  root: b\n  name: c\n", "line 4: not YAML: name occurs twice"),
        *((b"nonsense: 1\n", "nonsense"), (b"model: {class_path: torch.nn.Linear}\n", "model")),
    ],
)
def test_a_broken_experiment_file_costs_one_line(
    content: bytes, named: str, given_files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.yaml").write_bytes(content)
    words = f"{GOOD['fit']} -c bad.yaml".format(given=given_files, out=tmp_path).split()
    refused("training", words[1:], named)
    assert [path.name for path in tmp_path.iterdir()] == ["bad.yaml"]
