"""Text models behind an endpoint, against a server that does what a script says."""

import json
import logging
import math
from types import SimpleNamespace
from typing import Any, cast

import pytest

from interventune.models.language import endpoint as module
from interventune.models.language.endpoint import ChatModel, label_logprobs
from interventune.models.language.served import ServedModel
from interventune.models.language.text_models import TextFailure
from tests.data_modules.fixtures.fake_endpoint import Reply, serve

KEY = "sk-proj-SECRET0123456789"
TOKENS: dict[str, dict[str, float] | None] = {"a": {"0": -0.5, " 1": -1.5}, "b": {}, "silent": None}
"""The log-probabilities that the endpoint reports of the next token, by prompt."""
MISTAKES = {"gpt": "OPENAI_API_KEY", "m@localhost:8000/v1": "base URL"}
MISTAKES |= {"m@http://me:pass@localhost:x/v1": "base URL"}
MISTAKES |= {"m@http://me:pass@host/v1": "password", "m@http://host/v1?api-key=1": "query"}


@pytest.fixture(autouse=True)
def no_repetitions_and_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_RETRIES", 0)
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)


def test_answers_come_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    prompts = [f"prompt {i}" for i in range(20)]
    late = {prompts[0]: 0.1}
    with serve(lambda prompt, _: Reply(f" {prompt}! ", delay_s=late.get(prompt, 0))) as endpoint:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{endpoint.url}/")
        monkeypatch.setenv("OPENAI_API_KEY", f"{KEY}\n")
        model = ChatModel("publisher@v2", max_new_tokens=7)  # an @ of the model's own
        assert list(model.complete(prompts)) == [f"{prompt}!" for prompt in prompts]
        assert model.identity["name"] == f"openai:publisher@v2@{endpoint.url}"
    sent = endpoint.requests[0]
    assert (sent["model"], sent["max_tokens"], sent["temperature"]) == ("publisher@v2", 7, 0)
    assert set(endpoint.authorizations) == {f"Bearer {KEY}"}


EMPTY, NONSENSE = TextFailure("empty answer"), TextFailure("the endpoint answered nonsense")
BODIES = {
    '{"choices": [{"message": {"content": ""}}]}': EMPTY,
    '{"choices": [{"message": {"content": null}}]}': EMPTY,
    '{"choices": [{"message": {"content": "a \\ud800"}}]}': NONSENSE,
    "not JSON": NONSENSE,
    '{"choices": []}': NONSENSE,
    '{"choices": [{"message": {"content": ["x"]}}]}': NONSENSE,
}


def test_answers_that_do_not_come_are_failures() -> None:
    busy = Reply(status=429)
    with serve(lambda prompt, _: busy if prompt == "busy" else Reply(body=prompt)) as endpoint:
        answers = ChatModel(f"m@{endpoint.url}").complete([*BODIES, "busy"])
        assert list(answers) == [*BODIES.values(), TextFailure("the endpoint answered 429")]


def test_an_answer_is_short_plain_and_without_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setattr(module, "LARGEST", 2000)
    replies = {"a": Reply(f"It is {KEY}."), "long": Reply("x" * 3000)}
    replies |= {"packed": Reply("x", packed="gzip"), "b": Reply("b")}
    with serve(lambda prompt, _: replies[prompt]) as endpoint:
        answers = list(ChatModel(f"m@{endpoint.url}", parallel=1).complete([*replies]))
        late = TextFailure("the endpoint timed out")
        assert answers == ["It is [key].", late, late, "b"]
        model = ChatModel(f"m@{endpoint.url}")
        model.timeout_s = 0.0  # over when the first byte comes
        with pytest.raises(ValueError, match="timed out"):
            list(model.complete(["b"]))


def test_an_endpoint_that_never_answered_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ChatModel, "timeout_s", 0.5)
    with serve(lambda prompt, _: Reply("yes", delay_s=1 if prompt == "late" else 0)) as endpoint:
        model, hung = (ChatModel(f"m@{endpoint.url}", parallel=1) for _ in range(2))
        assert list(model.complete(["a", "late"])) == ["yes", TextFailure("the endpoint timed out")]
        with pytest.raises(ValueError, match=f"m@{endpoint.url} answers nothing: .* timed out"):
            list(hung.complete(["late"]))
    with pytest.raises(ValueError, match="answers nothing: no connection to the endpoint"):
        list(ChatModel(f"m@{endpoint.url}").complete(["a"]))


def test_an_endpoint_that_keeps_failing_ends_the_run_after_what_was_done() -> None:
    answers, most = [], module.MAX_FAILURES_IN_A_ROW
    with serve(lambda prompt, _: Reply("yes") if prompt < "p03" else Reply(status=500)) as endpoint:
        model = ChatModel(f"m@{endpoint.url}")
        with pytest.raises(ValueError, match=f"failed {most} times in a row.*500"):
            answers.extend(model.complete([f"p{i:02}" for i in range(99)]))
    assert answers[:3] == ["yes"] * 3
    assert len(endpoint.prompts) < 3 + most + 10


@pytest.mark.parametrize("status", [400, 401, 403, 404, 500])
def test_what_no_prompt_survives_ends_the_run_and_the_key_never_shows(
    status: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    caplog.set_level(logging.DEBUG)
    message = f"Incorrect API key provided: {KEY[:14]}****{KEY[-4:]} alias {KEY}"
    reply = Reply(status=status, body=json.dumps({"error": {"message": message}}))
    ended, seen = False, []
    with serve(lambda *_: reply) as endpoint:
        model = ChatModel(f"m@{endpoint.url}", parallel=2)
        try:
            seen += [repr(answer) for answer in model.complete(["a"] * 20)]
        except ValueError as error:
            ended, seen = True, [str(error)]
    assert ended == (status in (401, 403, 404))
    assert len(endpoint.prompts) <= (4 if ended else 20)
    assert not any(piece in text for piece in (KEY[:10], KEY[5:15], KEY[-8:]) for text in seen)
    assert KEY not in caplog.text


@pytest.mark.parametrize(("spec", "word"), MISTAKES.items())
def test_mistakes_are_named_before_anything_is_sent(
    spec: str, word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "" if spec == "gpt" else KEY)
    with pytest.raises(ValueError, match=word) as raised:
        ChatModel(spec)
    assert not any(secret in str(raised.value) for secret in ("pass@", KEY))


def test_tokens_that_begin_exactly_one_label_add_up() -> None:
    shares = {"yes": 0.4, " ye": 0.2, "no": 0.1, " ": 1.0, "Yes": 1.0}
    tokens = [(token, math.log(share)) for token, share in shares.items()]
    for exact, yes in ((False, 0.6), (True, 0.4)):
        expected = (math.log(0.1), math.log(yes))
        assert label_logprobs(tokens, ("no", "yes"), exact=exact) == pytest.approx(expected)
    assert label_logprobs(tokens, ("none", "yes"), exact=True)[0] == -math.inf
    assert label_logprobs([("n", -1.0)], ("no", "nil"), exact=False) == (-math.inf, -math.inf)


def most_probable(prompt: str, _: int) -> Reply:
    """A chat completion with the tokens' log-probabilities."""
    values = TOKENS[prompt]
    top = [{"token": token, "logprob": value} for token, value in (values or {}).items()]
    content = [{"token": "0", "logprob": -1.0, "top_logprobs": top}] if values else []
    logprobs = None if values is None else {"content": content}
    choice = {"message": {"content": "0"}, "logprobs": logprobs}
    return Reply(body=json.dumps({"choices": [choice]}))


def test_an_endpoint_reports_the_most_probable_tokens_or_ends_the_run() -> None:
    with serve(most_probable) as endpoint:
        model = ChatModel(f"m@{endpoint.url}")
        answers = list(model.next_token_logprobs(["a", "b"], ("0", "1")))
        assert answers == [pytest.approx((-0.5, -1.5)), EMPTY]
        assert next(iter(model.next_token_logprobs(["a"], ("0", "1"), top=5))) == (-0.5, -math.inf)
        with pytest.raises(ValueError, match="log-probabilities"):
            list(model.next_token_logprobs(["silent"], ("0", "1")))
    first, other = endpoint.requests[0], endpoint.requests[2]
    assert (first["logprobs"], first["top_logprobs"], first["max_tokens"]) == (True, 20, 1)
    assert other["top_logprobs"] == 5


@pytest.mark.parametrize("cards", [None, [None], [SimpleNamespace(id="m", max_model_len="big")]])
def test_a_server_that_lists_nonsense_has_no_limit(cards: Any) -> None:
    model = ServedModel("m@http://h/v1", SimpleNamespace(identity={}, space=" "))
    model.client = cast(Any, SimpleNamespace(models=SimpleNamespace(list=lambda: cards)))
    assert model.limit is None
