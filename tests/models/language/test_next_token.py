"""Log-probabilities of label words: a local model against a loop without batches, endpoints from a
script.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from interventune.models.language import local_model
from interventune.models.language.endpoint import EndpointTextModel, label_logprobs
from interventune.models.language.local_model import first_tokens
from interventune.models.language.text_models import TextFailure
from tests.data_modules.fixtures.fake_endpoint import Reply, serve
from tests.data_modules.fixtures.tiny_language_models import CONTEXT
from tests.models.language.conftest import load_text_model
from tests.models.language.one_by_one import lead, next_log_probs

LABELS = ("red", "blue")
PROMPTS = ("the cat sat on the mat . who ?", "the cat sat on the dog .", "the cat sat")
PROMPTS += ("the cat sat on the mat . where is the cat ?", "the cat ran")


@pytest.mark.parametrize("kind", ["gpt2", "mamba", "t5", "bart"])
@pytest.mark.parametrize("sharing", [2, 99])
def test_a_local_model_tells_what_it_tells_of_each_prompt_alone(
    folders: dict[str, Path], kind: str, sharing: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the common beginning of all prompts is read once; Mamba keeps no keys
    and values.
    """
    monkeypatch.setattr(local_model, "WORTH_SHARING", sharing)
    model = load_text_model(folders[kind], batch_size=2)
    ids = first_tokens(model.tokens, LABELS, "")
    rows = list(model.next_token_logprobs(PROMPTS, LABELS))
    rows += model.next_token_logprobs(PROMPTS[:4], LABELS)  # one of them is what all begin with
    for prompt, row in zip(PROMPTS + PROMPTS[:4], rows, strict=True):
        assert row == pytest.approx(
            next_log_probs(folders[kind], prompt, lead(folders[kind]))[ids].tolist(), abs=1e-4
        )
    assert len({round(row[0], 3) for row in rows}) > 2  # the prompt matters  # type: ignore[index]


def test_only_the_most_probable_tokens_count_in_parity(folders: dict[str, Path]) -> None:
    model = load_text_model(folders["gpt2"])
    log_prob, token = next_log_probs(folders["gpt2"], PROMPTS[0]).topk(6)
    fifth, sixth = model.tokens.tokenizer.convert_ids_to_tokens(token[4:].tolist())
    rows = next(iter(model.next_token_logprobs(PROMPTS[:1], [fifth, sixth], top=5)))
    assert rows == pytest.approx((float(log_prob[4]), -math.inf), abs=1e-4)


def test_prompts_that_do_not_fit_fail_alone_and_labels_begin_differently(
    folders: dict[str, Path],
) -> None:
    model = load_text_model(folders["gpt2"])
    answers = list(
        model.next_token_logprobs(["the " * CONTEXT, "the " * (CONTEXT + 1), ""], LABELS)
    )
    assert [isinstance(answer, TextFailure) for answer in answers] == [False, True, True]
    with pytest.raises(ValueError, match="'red' and 'red dog'"):
        list(model.next_token_logprobs(["the cat"], ["red", "red dog"]))


def test_tokens_that_begin_one_label_add_up() -> None:
    tokens = [
        ("yes", math.log(0.4)),
        (" ye", math.log(0.2)),
        ("no", math.log(0.1)),
        (" ", 0.0),
        ("Yes", 0.0),
    ]
    assert label_logprobs(tokens, ("no", "yes"), exact=False) == pytest.approx(
        (math.log(0.1), math.log(0.6))
    )
    assert label_logprobs(tokens, ("no", "yes"), exact=True) == pytest.approx(
        (math.log(0.1), math.log(0.4))
    )
    assert label_logprobs(tokens, ("none", "yes"), exact=True)[0] == -math.inf
    assert label_logprobs([("n", -1.0)], ("no", "nil"), exact=False) == (
        -math.inf,
        -math.inf,
    )  # of both


def chat_reply(tokens: dict[str, float] | None) -> Reply:
    """A chat completion with the tokens' log-probabilities."""
    top = [{"token": t, "logprob": x} for t, x in (tokens or {}).items()]
    content = [{"token": "0", "logprob": -1.0, "top_logprobs": top}] if tokens else []
    choice = {
        "message": {"content": "0"},
        "logprobs": None if tokens is None else {"content": content},
    }
    return Reply(body=json.dumps({"choices": [choice]}))


def test_an_endpoint_tells_the_most_probable_tokens_or_ends_the_run() -> None:
    tokens_of: dict[str, dict[str, float] | None] = {
        "a": {"0": -0.5, " 1": -1.5},
        "b": {},
        "silent": None,
    }
    with serve(lambda prompt, before: chat_reply(tokens_of[prompt])) as endpoint:
        model = EndpointTextModel(f"m@{endpoint.url}")
        answers = list(model.next_token_logprobs(["a", "b"], ("0", "1")))
        assert answers == [pytest.approx((-0.5, -1.5)), TextFailure("empty answer")]
        assert next(iter(model.next_token_logprobs(["a"], ("0", "1"), top=5))) == (-0.5, -math.inf)
        with pytest.raises(ValueError, match="log-probabilities"):
            list(model.next_token_logprobs(["silent"], ("0", "1")))
    first, other = endpoint.requests[0], endpoint.requests[2]
    assert (first["logprobs"], first["top_logprobs"], first["max_tokens"]) == (True, 20, 1)
    assert other["top_logprobs"] == 5
