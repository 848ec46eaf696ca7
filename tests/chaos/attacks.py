"""Fits that are started together, fits that diverge, endpoints that hang or answer nonsense."""

from __future__ import annotations

import json
import math
from pathlib import Path
from unittest.mock import patch

import pytest
import torch

from evaluation.__main__ import main as evaluation_command
from models.language.endpoint import EndpointTextModel
from tests.chaos.disks import fit
from tests.chaos.training_kills import LONGEST_S, differences, start_command, temporary_files, wait_until
from tests.data_modules.fixtures.fake_endpoint import Reply, serve
from tests.malformed.outcome import CODES, Outcome, outcome, refused
from training.__main__ import main as training_command

LIMIT_S = 600


def together(root: Path, count: int, *flags: str) -> list[Outcome]:
    """`count` processes of one fit, started in the same moment, and what each said on stderr."""
    logs = [root / f"{number}.log" for number in range(count)]
    arguments = [flag for flag in fit(root / "runs", 12) if not flag.startswith(("--run.version", "--ckpt"))]
    processes = [start_command([*arguments, *flags], log) for log in logs]
    found = [
        Outcome(process.wait(LONGEST_S), log.read_text())
        for process, log in zip(processes, logs, strict=True)
    ]
    CODES.extend(one.code for one in found)
    return found


@pytest.mark.parametrize("count", [2, 5])
def test_one_name(count: int, tmp_path: Path) -> None:
    """{count} fits started together with one run.name

    Promise: each has a folder and results of its own, equal to the bit.
    """
    for one in together(tmp_path, count):
        assert one.code == 0, one.text[-2000:]
    found = sorted((tmp_path / "runs" / "squad").iterdir())
    assert [path.name for path in found] == [f"version_{number}" for number in range(count)]
    for other in found[1:]:
        assert not list(differences(found[0], other))


def test_one_version(tmp_path: Path) -> None:
    """2 fits started together with one run.version

    Promise: one trains, the other is refused in one line.
    """
    winner, loser = sorted(together(tmp_path, 2, "--run.version=mine"), key=lambda one: one.code)
    assert winner.code == 0, winner.text[-2000:]
    refused(loser, "mine")
    assert [path.name for path in (tmp_path / "runs" / "squad").iterdir()] == ["mine"]
    assert not temporary_files(tmp_path / "runs")


def test_a_run_in_use(tmp_path: Path) -> None:
    """Going on with a run that another process trains

    Promise: refused in one line; the first goes on undisturbed.
    """
    flags = ["--trainer.max_epochs=100000", "--trainer.max_steps=-1", "--run.save_every_n_steps=1"]
    first = start_command([*fit(tmp_path / "runs", 9), *flags], tmp_path / "first.log")
    try:
        last = tmp_path / "runs" / "squad" / "0" / "checkpoints" / "last.ckpt"
        wait_until(lambda: last.exists() or first.poll() is not None)
        log = tmp_path / "second.log"
        second = start_command(fit(tmp_path / "runs", 9), log)
        CODES.append(second.wait(LONGEST_S))
        refused(Outcome(second.returncode, log.read_text()), "another process")
        assert first.poll() is None
    finally:
        first.kill()
        first.wait()


def test_divergence(tmp_path: Path) -> None:
    """A fit that diverges (learning_rate=1e30)

    Promise: exit code 1, one line with the step and the learning rate; every checkpoint left is finite.
    """
    found = outcome(training_command, fit(tmp_path / "runs", 30, "--model.learning_rate=1e30"))
    refused(found, "step", code=1)
    refused(found, "1e+30", code=1)
    for path in tmp_path.rglob("*.ckpt"):
        weights = torch.load(path, weights_only=True)["state_dict"].values()
        assert all(tensor.isfinite().all() for tensor in weights), path.name
    for path in tmp_path.rglob("metrics.json"):
        json.loads(path.read_text(), parse_constant=pytest.fail)


REPLIES = {
    "hangs": Reply("Anna", delay_s=3),
    "answers nothing": Reply(""),
    "closes the connection": Reply("Anna", body="", content_type="text/plain"),
    "fails": Reply(status=500),
    "knows no such model": Reply(status=404),
    "wants a key": Reply(status=401),
    "sends a web page": Reply(body="<html>log in</html>", content_type="text/html"),
    "sends other JSON": Reply(body='{"choices": [{"message": 7}]}'),
    "sends no numbers": Reply(body=json.dumps({"choices": [{"message": {"content": math.nan}}]})),
}
ASKING = {
    "faithfulness": (
        evaluation_command,
        "faithfulness --data {0}/questions.json --checkpoint openai:some-model@{1}",
    ),
}


@pytest.mark.parametrize("command", ASKING)
@pytest.mark.parametrize("name", REPLIES)
def test_an_endpoint(
    name: str, command: str, given: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An endpoint that {name}

    Promise: one line that names it, no report; repetitions are told while it is waited for.
    """
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.chdir(tmp_path)
    main, words = ASKING[command]
    impatient = patch.dict(EndpointTextModel.__init__.__kwdefaults__, timeout_s=0.5, max_retries=2)
    with impatient, serve(lambda prompt, before: REPLIES[name]) as endpoint:
        arguments = words.format(given, endpoint.url).split()
        found = outcome(main, [*arguments, "--output", str(tmp_path / "out")])
    refused(found, "some-model")
    assert not (tmp_path / "out").exists()
    if name in ("hangs", "fails"):
        assert "retry" in found.text
