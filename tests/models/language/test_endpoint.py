"""Text models behind an endpoint, against a server that does what a script says."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from models.language.endpoint import MAX_FAILURES_IN_A_ROW, EndpointTextModel
from models.language.text_models import TextFailure
from tests.data_modules.fixtures.fake_endpoint import Reply, serve

KEY = "sk-proj-SECRET0123456789"


def echo(prompt: str, before: int) -> Reply:
    return Reply(f" {prompt}! ")


def test_answers_come_in_order_and_without_a_key() -> None:
    prompts = [f"prompt {i}" for i in range(20)]

    def slow_first(prompt: str, before: int) -> Reply:
        return Reply(f"{prompt}!", delay_s=0.1 if prompt == "prompt 0" else 0)

    with serve(slow_first) as endpoint:
        model = EndpointTextModel(f"m@{endpoint.url}/", max_new_tokens=7)
        assert list(model.complete(prompts)) == [f"{prompt}!" for prompt in prompts]
        assert model.name == f"openai:m@{endpoint.url}"
        assert model.settings == {"max_new_tokens": 7, "temperature": 0}
        sent = endpoint.requests[0]
        assert (sent["model"], sent["max_tokens"], sent["temperature"]) == ("m", 7, 0)
    assert sorted(endpoint.prompts) == sorted(prompts)


def test_the_base_url_and_the_key_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    with serve(echo) as endpoint:
        monkeypatch.setenv("OPENAI_BASE_URL", endpoint.url)
        monkeypatch.setenv("OPENAI_API_KEY", f"{KEY}\n")
        model = EndpointTextModel("publisher@v2")  # an @ of the model's own
        assert list(model.complete(["a"])) == ["a!"]
        assert endpoint.requests[0]["model"] == "publisher@v2"
        assert endpoint.authorizations == [f"Bearer {KEY}"]
        assert KEY not in model.name + str(model.settings)


@pytest.mark.parametrize("status", [400, 429, 500])
def test_a_passing_failure_is_repeated_and_a_lasting_one_costs_its_prompt_only(status: int) -> None:
    def reply(prompt: str, before: int) -> Reply:
        passing = prompt == "a" and not before and status != 400
        return Reply(status=status) if prompt == "b" or passing else echo(prompt, 0)

    with serve(reply) as endpoint:
        model = EndpointTextModel(f"m@{endpoint.url}", max_retries=2)
        first, failure, last = model.complete(["a", "b", "c"])
        assert (first, last) == ("a!", "c!")
        assert isinstance(failure, TextFailure)
        assert str(status) in failure.reason
    assert endpoint.prompts.count("a") == (1 if status == 400 else 2)
    assert endpoint.prompts.count("b") == (1 if status == 400 else 3)


def test_answers_that_do_not_come_are_failures() -> None:
    texts = {"empty": "", "blank": " \n", "none": None, "late": "late"}

    def reply(prompt: str, before: int) -> Reply:
        return Reply(texts[prompt], delay_s=0.5 if prompt == "late" else 0)

    with serve(reply) as endpoint:
        model = EndpointTextModel(f"m@{endpoint.url}", timeout_s=0.2, max_retries=0)
        *empty, late = model.complete(list(texts))
    assert empty == [TextFailure("empty answer")] * 3
    assert late == TextFailure("the endpoint timed out", reached=False)


def test_nobody_and_a_hung_endpoint_end_the_run() -> None:
    """As soon as the first request has been repeated often enough."""
    with serve(lambda prompt, before: Reply("late", delay_s=1)) as endpoint:
        hung = EndpointTextModel(f"m@{endpoint.url}", timeout_s=0.1, max_retries=2)
        with pytest.raises(ValueError, match=f"m@{endpoint.url} answers nothing: the endpoint timed out"):
            list(hung.complete(["a", "b"]))
    with pytest.raises(ValueError, match="answers nothing: no connection to the endpoint"):
        list(EndpointTextModel(f"m@{endpoint.url}", max_retries=0).complete(["a"]))


NONSENSE = [
    '{"choices": [{"message": {"content": "a \\ud800"}}]}',
    "not JSON",
    "",
    "[]",
    "{}",
    '{"choices": []}',
    '{"choices": [{}]}',
    '{"choices": 5}',
    '{"choices": [{"message": {"content": ["x"]}}]}',
]


def test_nonsense_is_a_failure() -> None:
    for kind in ("application/json", "text/html"):
        with serve(lambda prompt, before, kind=kind: Reply(body=prompt, content_type=kind)) as endpoint:
            model = EndpointTextModel(f"m@{endpoint.url}", max_retries=0)
            failures = [TextFailure("the endpoint answered nonsense")] * len(NONSENSE)
            assert list(model.complete(NONSENSE)) == failures


@pytest.mark.parametrize("status", [401, 403, 404])
def test_what_no_prompt_survives_ends_the_run_at_once(status: int) -> None:
    with serve(lambda prompt, before: Reply(status=status)) as endpoint:
        model = EndpointTextModel(f"m@{endpoint.url}", parallel=2)
        with pytest.raises(ValueError, match=endpoint.url):
            list(model.complete(["x"] * 50))
        assert len(endpoint.prompts) <= 4


def test_an_endpoint_that_keeps_failing_ends_the_run_after_what_was_done() -> None:
    answers = []
    with serve(lambda prompt, before: echo(prompt, 0) if prompt < "p03" else Reply(status=500)) as endpoint:
        model = EndpointTextModel(f"m@{endpoint.url}", max_retries=0)
        with pytest.raises(ValueError, match=f"failed {MAX_FAILURES_IN_A_ROW} times in a row.*500"):
            answers.extend(model.complete([f"p{i:02}" for i in range(99)]))
    assert answers[:3] == ["p00!", "p01!", "p02!"]
    assert len(endpoint.prompts) < 3 + MAX_FAILURES_IN_A_ROW + 10


def leak(status: int) -> Callable[[str, int], Reply]:
    quoted = f"Incorrect API key provided: {KEY[:14]}****{KEY[-4:]} alias {KEY} part {KEY[5:15]} ok"
    return lambda prompt, before: Reply(status=status, body=f'{{"error": {{"message": "{quoted}"}}}}')


@pytest.mark.parametrize("status", [400, 401, 404, 500])
def test_the_key_never_shows(
    status: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    seen = []
    with caplog.at_level(logging.DEBUG), serve(leak(status)) as endpoint:
        try:
            model = EndpointTextModel(f"m@{endpoint.url}", max_retries=1)
            seen += [str(answer) + repr(answer) for answer in model.complete(["a"])]
        except ValueError as error:
            seen.append(str(error))
    for piece in (KEY, KEY[5:15], KEY[:10], KEY[-8:]):
        assert piece not in " ".join(seen)
    assert KEY not in caplog.text
    assert endpoint.authorizations[0] == f"Bearer {KEY}"


@pytest.mark.parametrize(
    ("spec", "key", "word"),
    [
        ("gpt", "", "OPENAI_API_KEY"),
        ("gpt@https://eu.api.openai.com/v1", "", "OPENAI_API_KEY"),
        ("m@localhost:8000/v1", KEY, "base URL"),
        ("m@ftp://host", KEY, "base URL"),
        ("@http://host/v1", KEY, "MODEL"),
        ("m@http://me:pass@host/v1", KEY, "password"),
        ("m@http://host/v1?api-key=1", KEY, "query"),
        ("m@http://host/v1", "sk-\u00e9", "characters"),
        ("", KEY, "MODEL"),
    ],
)
def test_mistakes_are_told_before_anything_is_sent(
    spec: str, key: str, word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", key)
    with pytest.raises(ValueError, match=word) as raised:
        EndpointTextModel(spec)
    assert "pass@" not in str(raised.value)
    assert KEY not in str(raised.value)


def test_what_an_endpoint_is_sent_and_what_it_can_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    own = EndpointTextModel("gpt-4o-mini", max_new_tokens=9)  # OpenAI's has a new name for the bound
    assert own.name == "openai:gpt-4o-mini@https://api.openai.com/v1"
    assert own._request["max_completion_tokens"] == 9
