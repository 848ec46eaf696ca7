"""A served model gives the report of its folder, or says what its server does wrong."""

from __future__ import annotations

import shlex
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from interventune.evaluation.__main__ import main
from interventune.evaluation.answering.interface import Asking
from interventune.evaluation.answering.language_model import open_text_model
from interventune.models.language import endpoint
from tests.evaluation.bbq_files import save_bbq
from tests.evaluation.checkpoints import GROUPS, save_groups
from tests.evaluation.protocol_cases import save_causal, write_rows
from tests.support.model_server import Fault, serve_model

Captured = pytest.CaptureFixture[str]
TINY = "--limit 6 --trials 1 --choices 3 --sampling random --input stories:choices_dev"
WRITE = "consistency-write --method instructive --beams 1 --nonsense-groups 1 --new-tokens 3"
WRITE += " --adversarial {room}/prompts.jsonl --neutral {room}/prompts.jsonl"
COMMANDS = {
    "likelihoods of names": "bias --data {room}/groups.json",
    "of BBQ's choices": "bbq --data {room}/bbq.jsonl --metadata {room}/metadata.csv",
    "of choices": f"confusion {TINY}",
    "letters": f"confusion {TINY} --choice-prompt letters",
    "labels": "feature-bias --task stories:uppercase --shots 2 --seeds 1 --limit 3",
    "answers": "faithfulness --data stories:conversation_dev --limit 4 --max-new-tokens 3",
    "perplexity": f"{WRITE} --perplexity {{room}}/text.txt",
    "yes or no": "negation --pairs {room}/pairs.jsonl --max-new-tokens 3",
}


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Path:
    room = tmp_path_factory.mktemp("room")
    save_causal(room / "causal", positions=512, spread=0.2, more="abcdefghij")
    save_groups(room / "groups.json", GROUPS)
    save_bbq(room)
    pair = {"id": "p", "question": "is anna in the attic ?", "history": [], "edit": "scope"}
    pair |= {"dataset": "coqa", "answer_org": "yes", "answer_mod": "no"}
    pair |= {"story_org": "anna is in the attic .", "story_mod": "anna is not in the attic ."}
    write_rows(room / "pairs.jsonl", [pair])
    write_rows(room / "prompts.jsonl", [{"prompt": {"text": "anna is in the attic"}}])
    (room / "text.txt").write_text("anna is in the attic . the attic is not in the cellar . " * 60)
    return room


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "MAX_RETRIES", 3)


def evaluate(words: str, room: Path, model: str, output: Path, *more: str) -> pd.DataFrame:
    command = [word.format(room=room) for word in shlex.split(words)]
    model_flags = ["--checkpoint", f"tiny={model}", "--device", "cpu", *more]
    assert main([*command, *model_flags, "--output", str(output)]) == 0
    return pd.read_csv(output / "results.csv")


@pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS)
def test_a_served_model_gives_its_folders_report(words: str, room: Path, tmp_path: Path) -> None:
    folder = str(room / "causal")
    local = evaluate(words, room, f"hf:{folder}", tmp_path / "local")
    with serve_model(folder, limit=512) as server:
        name = f"openai:tiny@{server.url}"
        served = evaluate(words, room, name, tmp_path / "served", "--tokenizer", folder)
    pd.testing.assert_frame_equal(served, local, rtol=1e-5, atol=1e-4)


def test_only_the_likeliest_tokens_count_if_asked_for(room: Path) -> None:
    folder, prompts = str(room / "causal"), ["anna is in the", "the attic is", "anna"]
    asking = Asking(device="cpu", tokenizer=folder)
    local = open_text_model(f"hf:{folder}", asking)
    words = local.tokens.tokenizer.convert_ids_to_tokens(range(4, 60))
    with serve_model(folder) as server:
        served = open_text_model(f"openai:tiny@{server.url}", asking)
        answers = list(served.next_token_logprobs(prompts, words, top=5))
    expected = list(local.next_token_logprobs(prompts, words, top=5))
    assert np.isfinite(expected).any()
    np.testing.assert_allclose(answers, expected, atol=1e-4)


SURVIVED: list[Fault] = ["another order", "slow", "closes connections", "one prompt a request"]
SURVIVED += ["five log-probabilities"]
REFUSED: dict[Fault, str] = {
    "generated only": "ignores echo",
    "order-dependent": "prefix caching",
    "two begin tokens": "token of its own before the prompt",
    "HTTP 500 with echo": "500",
    "-9999": "no finite numbers",
    "nonsense": "cannot echo log-probabilities (the endpoint answered nonsense)",
}


@pytest.mark.parametrize("fault", SURVIVED)
def test_servers_may_be_slow_or_forgetful(fault: Fault, room: Path, tmp_path: Path) -> None:
    words, folder = COMMANDS["likelihoods of names"], str(room / "causal")
    local = evaluate(words, room, f"hf:{folder}", tmp_path / "local")
    with serve_model(folder, fault) as server:
        name = f"openai:tiny@{server.url}"
        served = evaluate(words, room, name, tmp_path / "served", "--tokenizer", folder)
    pd.testing.assert_frame_equal(served, local, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("fault", REFUSED)
@pytest.mark.parametrize("words", [COMMANDS["likelihoods of names"], COMMANDS["labels"]])
def test_servers_with_wrong_log_probabilities_are_refused_before_the_first_question(
    fault: Fault, words: str, room: Path, tmp_path: Path, capsys: Captured
) -> None:
    folder, output = str(room / "causal"), tmp_path / "served"
    with serve_model(folder, fault) as server:
        command = [word.format(room=room) for word in shlex.split(words)]
        command += ["--checkpoint", f"openai:tiny@{server.url}", "--tokenizer", folder]
        assert main([*command, "--output", str(output)]) == 2
    *_, line = capsys.readouterr().err.strip().splitlines()
    assert REFUSED[fault] in line
    assert f"openai:tiny@{server.url}" in line
    assert not list(tmp_path.iterdir())


def test_a_killed_server_ends_the_evaluation_and_nothing_is_asked_twice(
    room: Path, tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoint, "MAX_RETRIES", 0)
    words, folder = COMMANDS["likelihoods of names"], str(room / "causal")
    options = ["--tokenizer", folder, "--parallel", "2"]
    with serve_model(folder) as whole:
        evaluate(words, room, f"openai:tiny@{whole.url}", tmp_path / "whole", *options)
    with serve_model(folder, "dies") as server:
        command = [word.format(room=room) for word in shlex.split(words)]
        command += ["--checkpoint", f"openai:tiny@{server.url}", *options]
        command += ["--output", str(tmp_path / "report")]
        assert main(command) == 2
        *_, line = capsys.readouterr().err.strip().splitlines()
        assert "no connection" in line
        time.sleep(0.5)  # requests under way find the server dead, too
        server.dead = False
        assert main(command) == 0
    self_test = Counter(whole.rows[:9])
    assert Counter(server.rows) == Counter(whole.rows) + self_test
