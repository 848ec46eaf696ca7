"""The parts of `python -m tests.chaos` that take seconds; the kills of training and sweeps are left to it."""

from __future__ import annotations

import json
from pathlib import Path

import torch

from tests.chaos.__main__ import MARKS, Attacks, parser, write_table
from tests.chaos.disks import test_output_on_a_disk
from tests.chaos.training_kills import differences, read_curves, same, temporary_files

__all__ = ["test_output_on_a_disk"]


def test_the_comparison_sees_one_bit(tmp_path: Path) -> None:
    """The judge of the kills is itself judged."""

    def run(name: str, weight: float, loss: str, time: str) -> Path:
        folder = tmp_path / name
        (folder / "checkpoints").mkdir(parents=True)
        content = {"state_dict": {"w": torch.tensor([weight])}, "optimizer_states": [{"step": 1}]}
        content |= {"lr_schedulers": [], "global_step": 3}
        torch.save(content, folder / "checkpoints" / "last.ckpt")
        (folder / "metrics.json").write_text(json.dumps({"val/qa/f1": 0.5, "epoch": 1}))
        (folder / "metrics.csv").write_text(f"0,0,train/loss,{loss}\n0,0,train/time,{time}\n")
        return folder

    one = run("one", 1.0, "0.25", "3.5")
    assert list(differences(one, run("same", 1.0, "0.25", "9.9"))) == []
    assert "state_dict" in next(iter(differences(one, run("bit", 1.0000001, "0.25", "3.5"))))
    assert "metrics.csv" in next(iter(differences(one, run("loss", 1.0, "0.26", "3.5"))))
    (one / "metrics.json").write_text(json.dumps({"val/qa/f1": 0.4, "epoch": 1}))
    assert "val/qa/f1" in next(iter(differences(tmp_path / "same", one)))
    assert read_curves(one / "metrics.csv") == [("0", "0", "train/loss", "0.25")]
    assert not same({"a": [1, (2,)]}, {"a": [1, (3,)]})


def test_what_was_being_written_is_seen(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / ".last.ckpt.12.tmp").write_bytes(b"x")
    assert [path.name for path in temporary_files(tmp_path)] == [".last.ckpt.12.tmp"]


def test_the_table_of_a_page(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{MARKS[0]}\nold\n{MARKS[1]}\nafter\n")
    write_table(page, Attacks(parser().parse_args([])).table())
    lines = page.read_text().splitlines()
    assert (lines[0], lines[2][:8], lines[-1]) == ("before", "| attack", "after")
