"""A server that completes token ids with a small causal model as vLLM does, or wrongly."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

Fault = str
"""As `spoil` and `serve_model` name them."""


@dataclass
class Served:
    """A running server, and the rows of token ids that it has answered."""

    url: str
    rows: list[tuple[int, ...]] = field(default_factory=list)
    dead: bool = False
    """Whether it closes connections without an answer, as after a kill."""


class Completer:
    """Completions of a model: log-probabilities of the tokens, and greedy text."""

    def __init__(self, folder: Any) -> None:
        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.lock = threading.Lock()

    @torch.inference_mode()
    def choice(self, row: list[int], request: dict[str, Any]) -> dict[str, Any]:
        end = self.model.config.eos_token_id
        ids, logprobs = list(row), [None, *self.logprobs(row)]
        while len(ids) < len(row) + request["max_tokens"]:
            step_V = self.after(ids)
            ids.append(int(step_V.argmax()))
            logprobs.append(float(step_V.max()))
            if ids[-1] == end:
                break
        text = self.tokenizer.decode(ids[len(row) :], skip_special_tokens=True)
        choice: dict[str, Any] = {"text": text, "finish_reason": "length"}
        if request.get("echo"):
            tokens = self.tokenizer.convert_ids_to_tokens(ids)
            choice["logprobs"] = {"tokens": tokens, "token_logprobs": logprobs}
        elif request.get("logprobs"):
            value_K, id_K = self.after(row).topk(request["logprobs"])
            names = self.tokenizer.convert_ids_to_tokens(id_K.tolist())
            choice["logprobs"] = {"top_logprobs": [dict(zip(names, value_K.tolist(), strict=True))]}
        return choice

    def after(self, ids: list[int]) -> torch.Tensor:
        return self.model(torch.tensor([ids])).logits[0, -1].log_softmax(-1)

    def logprobs(self, row: list[int]) -> list[float]:
        log_TV = self.model(torch.tensor([row])).logits[0, :-1].log_softmax(-1)
        return log_TV[torch.arange(len(row) - 1), row[1:]].tolist()


def spoil(fault: Fault, choices: list[dict[str, Any]]) -> None:
    """Make the choices of a request wrong."""
    for place, choice in enumerate(choices):
        echo = choice.get("logprobs")
        if "token_logprobs" not in (echo or {}):
            continue
        values = echo["token_logprobs"]
        if fault == "generated only":
            echo |= {"tokens": echo["tokens"][-1:], "token_logprobs": values[-1:]}
        if fault == "two begin tokens":
            echo["tokens"].insert(0, "<s>")
            echo["token_logprobs"] = [None, -3.0, *values[1:]]
        if fault == "order-dependent":
            echo["token_logprobs"] = [None, *(value - 0.3 * place for value in values[1:])]
        if fault == "nonsense":
            echo["token_logprobs"] = [None, *("x" for _ in values[1:])]
        if fault == "-9999":
            echo["token_logprobs"] = [None, *(-9999.0 for _ in values[1:])]
    if fault == "another order":
        choices.reverse()


@contextmanager
def serve_model(folder: Any, fault: Fault = "", *, limit: int | None = None) -> Iterator[Served]:
    """Serve the model of a folder as `tiny` until the block ends."""
    completer, calls = Completer(folder), iter(range(10**9))

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.reply(200, {"object": "list", "data": [{"id": "tiny", "max_model_len": limit}]})

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["content-length"])))
            call = next(calls)
            served.dead |= fault == "dies" and call == 12
            if served.dead:
                self.close_connection = True
                return
            if fault == "closes connections" and call % 3 == 1:
                self.close_connection = True
                return
            if fault == "slow":
                time.sleep(0.05 * (call % 4))
            rows = request["prompt"]
            if fault == "HTTP 500 with echo" and request.get("echo"):
                self.reply(500, {"error": {"message": "no"}})
                return
            longest = max(map(len, rows)) + request["max_tokens"]
            too_long = limit is not None and longest > limit
            too_long |= fault == "five log-probabilities" and (request.get("logprobs") or 0) > 5
            if too_long or (fault == "one prompt a request" and len(rows) > 1):
                self.reply(400, {"error": {"message": "no"}})
                return
            with completer.lock:
                choices = [completer.choice(row, request) for row in rows]
            choices = [{"index": i, **choice} for i, choice in enumerate(choices)]
            spoil(fault, choices)
            served.rows += [tuple(row) for row in rows]
            self.reply(200, {"id": "1", "object": "text_completion", "choices": choices})

        def reply(self, status: int, body: dict[str, Any]) -> None:
            payload = json.dumps(body).encode()
            with suppress(OSError):  # the client has hung up
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(payload)))
                self.send_header("retry-after-ms", "1")
                self.end_headers()
                self.wfile.write(payload)

        def log_message(self, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        served = Served(f"http://127.0.0.1:{server.server_port}/v1")
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        try:
            yield served
        finally:
            server.shutdown()
