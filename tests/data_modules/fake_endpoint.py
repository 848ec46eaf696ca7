"""An endpoint on 127.0.0.1 that answers from a script, over real HTTP; of chats, unless told otherwise."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Reply:
    """What the endpoint sends; `delay_s` before it does."""

    text: str | None = None
    status: int = 200
    body: str | None = None
    delay_s: float = 0.0
    content_type: str = "application/json"

    def payload(self) -> str:
        if self.body is not None:
            return self.body
        if self.status != 200:
            return json.dumps({"error": {"message": "as the script says", "type": "scripted"}})
        message = {"role": "assistant", "content": self.text}
        choice = {"index": 0, "finish_reason": "stop", "message": message}
        return json.dumps(
            {"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
        )


Script = Callable[[str, int], Reply]
"""(prompt, how often it has been sent before) -> what to answer."""


@dataclass
class Endpoint:
    """A running endpoint and what it received."""

    url: str
    requests: list[dict[str, Any]] = field(default_factory=list)
    prompts: list[str] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    """Their names in lower case."""
    times: list[float] = field(default_factory=list)

    @property
    def authorizations(self) -> list[str | None]:
        return [headers.get("authorization") for headers in self.headers]


def chat_prompt(request: dict[str, Any]) -> str:
    """The prompt in a request for a chat completion."""
    return str(request["messages"][0]["content"])


@contextmanager
def serve(script: Script, *, prompt_of: Callable[[dict[str, Any]], str] = chat_prompt) -> Iterator[Endpoint]:
    """Serve until the block ends. Replies ask to be repeated, if at all, after a millisecond."""
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["content-length"])))
            prompt = prompt_of(request)
            with lock:
                before = endpoint.prompts.count(prompt)
                endpoint.requests.append(request)
                endpoint.prompts.append(prompt)
                endpoint.paths.append(self.path)
                endpoint.headers.append({name.lower(): value for name, value in self.headers.items()})
                endpoint.times.append(time.monotonic())
            reply = script(prompt, before)
            time.sleep(reply.delay_s)
            try:
                self.send_response(reply.status)
                self.send_header("content-type", reply.content_type)
                self.send_header("retry-after-ms", "1")
                self.end_headers()
                self.wfile.write(reply.payload().encode())
            except OSError:
                pass  # the client has hung up

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    endpoint = Endpoint(f"http://127.0.0.1:{server.server_port}/v1")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield endpoint
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
