"""A chat-completions endpoint on this machine that misbehaves as it is told, for tests."""

import contextlib
import json
import math
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from proofreel.data_prep.language.client import LanguageModel, LanguageModelConfig

Behaviour = Callable[[BaseHTTPRequestHandler], None]
HELLO = [{"role": "user", "content": "hello"}]


def chat(text: str | None = "fine", **choice: Any) -> dict[str, Any]:
    """A chat completion as an endpoint sends it."""
    return {
        "choices": [{"message": {"role": "assistant", "content": text}, "finish_reason": "stop", **choice}],
        "usage": {"prompt_tokens": 7, "completion_tokens": 3},
    }


def listing(tokens: dict[str, float]) -> dict[str, Any]:
    """A chat completion that lists these first tokens with their probabilities; 0 as endpoints write it."""
    listed = [{"token": t, "logprob": math.log(p) if p else -9999.0, "bytes": None} for t, p in tokens.items()]
    return chat(next(iter(tokens)), logprobs={"content": [{"token": next(iter(tokens)), "top_logprobs": listed}]})


def send(body: Any, status: int = 200, type_: str = "application/json", cut: int = 0, **headers: str) -> Behaviour:
    """Answer with this body; `cut` bytes short of what the header promises."""

    def behave(handler: BaseHTTPRequestHandler) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        handler.send_response(status)
        for name, value in {"Content-Type": type_, "Content-Length": str(len(data)), **headers}.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        handler.wfile.write(data[: len(data) - cut])

    return behave


def hang_up(handler: BaseHTTPRequestHandler) -> None:
    """Close the connection without a word."""
    handler.connection.shutdown(socket.SHUT_RDWR)


def drip(handler: BaseHTTPRequestHandler) -> None:
    """One byte now and then: every read succeeds, the answer never ends."""
    handler.send_response(200)
    handler.end_headers()
    for _ in range(20):
        handler.wfile.write(b" ")
        time.sleep(0.05)


@dataclass
class Server:
    """A chat endpoint that behaves as told, once per request, then well."""

    url: str = ""
    plan: list[Behaviour] = field(default_factory=list)
    answer: Callable[[dict[str, Any]], Any] = lambda body: chat()
    bodies: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    lock: Any = field(default_factory=threading.Lock)

    def handle(self, handler: BaseHTTPRequestHandler) -> None:
        body = json.loads(handler.rfile.read(int(handler.headers["Content-Length"])))
        with self.lock:
            self.bodies.append(body)
            self.headers.append(dict(handler.headers))
            behave = self.plan.pop(0) if self.plan else send(self.answer(body))
        behave(handler)


@contextlib.contextmanager
def running_server() -> Iterator[Server]:
    """A server on a free port, until the block ends."""
    state = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            with contextlib.suppress(OSError):  # the client may be gone
                state.handle(self)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        state.url = f"http://127.0.0.1:{http.server_port}/v1"
        try:
            yield state
        finally:  # a test that fails must not leave a thread that pytest waits for
            http.shutdown()
            thread.join()


def model_of(server: Server, waits: list[float] | None = None, **changes: Any) -> LanguageModel:
    """A client of the server that notes its waits instead of waiting."""
    values: dict[str, Any] = {"base_url": server.url, "model": "m", "mode": "live", "timeout_s": 5.0} | changes
    return LanguageModel(LanguageModelConfig(**values), sleep=(waits if waits is not None else []).append)
