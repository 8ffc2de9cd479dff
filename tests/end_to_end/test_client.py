"""The clients: the same verdicts blocking and in asyncio, patience with a busy server, clear errors without one."""

import asyncio
import json
import math
import socket
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from serving import CLAIMS, media_root, serving

from proofreel.client import AsyncClient, Client, ServerLostError, ServerRefusedError
from proofreel.core.errors import ConfigError, ProofreelError
from proofreel.core.pairs import Passage, VideoSegment
from proofreel.models.decision.verdict import Verdict


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("client")
    with serving(media_root(folder / "media"), folder / "cache") as running:
        yield running


class ScriptedServer(ThreadingHTTPServer):
    """A server with its script, and how often it was asked."""

    script: tuple[Any, ...] = ()
    asked = 0


class Scripted(BaseHTTPRequestHandler):
    """Answers with what the test wrote down, one after another; the last one again and again."""

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        server: Any = self.server
        server.asked += 1
        status, headers, body = server.script[min(server.asked, len(server.script)) - 1]
        if status is None:  # cut the connection
            self.connection.close()
            return
        self.send_response(status)
        for name, value in ({"Content-Length": str(len(body))} | headers).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@contextmanager
def scripted(*script):
    with ScriptedServer(("127.0.0.1", 0), Scripted) as server:
        server.script = script
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server, f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


VERDICT = {"p_supported": 0.75, "margin": 1.5, "label": "supported", "answer": None, "error": None, "note": None}
GOOD = (200, {}, json.dumps({"verdicts": [VERDICT]}).encode())
BUSY = (429, {"Retry-After": "0"}, b'{"error": {"message": "server: busy", "type": "busy"}}')


def both(url, claims, evidence, **how):
    """The outcome of each client: verdicts or the error."""

    async def ask():
        async with AsyncClient(url, **how) as client:
            return await client.score(claims, evidence)

    def ask_blocking():
        with Client(url, **how) as client:
            return client.score(claims, evidence)

    found = []
    for way in (ask_blocking, lambda: asyncio.run(ask())):
        try:
            found.append(way())
        except Exception as error:
            found.append(error)
    return found


def test_both_clients_give_the_same_verdicts(server):
    blocking, awaited = both(server.url, [*CLAIMS, ""], VideoSegment("a.mp4", 0.0, 2.0))
    assert [(v.label, v.error) for v in blocking] == [(v.label, v.error) for v in awaited]
    for one, other in zip(blocking, awaited, strict=True):
        assert isinstance(one, Verdict)
        assert one.margin == pytest.approx(other.margin, abs=1e-4, nan_ok=True)
    assert blocking[-1].error is not None
    assert math.isnan(blocking[-1].p_supported)


def test_many_tasks_share_one_async_client(server):
    async def ask_all():
        async with AsyncClient(server.url) as client:
            spans = [VideoSegment("a.mp4", 0.0, 1.0 + i % 3 / 2) for i in range(24)]
            info = await client.info()
            return info, spans, await asyncio.gather(*(client.score(CLAIMS, span) for span in spans))

    info, spans, answers = asyncio.run(ask_all())
    assert info["fingerprint"] == server.service.verifier.fingerprint
    expected = {span: server.service.verifier.score(CLAIMS, span) for span in set(spans)}
    for span, found in zip(spans, answers, strict=True):
        assert [v.margin for v in found] == pytest.approx([v.margin for v in expected[span]], abs=1e-4)


def test_refusals_carry_the_servers_words(server):
    for error in both(server.url, CLAIMS, VideoSegment("../secret.mp4", 0.0, 2.0)):
        assert isinstance(error, ServerRefusedError)
        assert isinstance(error, ProofreelError)
        assert (error.status, error.kind) == (403, "outside_media_root")
        assert str(error).startswith("evidence[0].path: leads out of the media root, got '../secret.mp4'; ")


def test_a_busy_server_is_asked_again_as_often_as_allowed():
    with scripted(BUSY, BUSY, GOOD) as (server, url):
        with Client(url) as client:
            assert client.score(["x"], Passage("y")) == [Verdict(0.75, 1.5, "supported")]
        assert server.asked == 3
    with scripted(BUSY) as (server, url):
        for error in both(url, ["x"], Passage("y"), retries=2):
            assert isinstance(error, ServerRefusedError)
            assert error.status == 429
        assert server.asked == 6


def test_an_upload_waits_for_a_busy_server_as_a_question_does(tmp_path):
    (tmp_path / "a.png").write_bytes(b"a picture")

    async def upload(url):
        async with AsyncClient(url) as client:
            return await client.upload(tmp_path / "a.png")

    with scripted(BUSY, (200, {}, b'{"path": "upload:a.png"}')) as (server, url):
        with Client(url) as client:
            assert client.upload(tmp_path / "a.png") == "upload:a.png"
        server.asked = 0
        assert asyncio.run(upload(url)) == "upload:a.png"
        assert server.asked == 2


def test_no_other_refusal_is_asked_again():
    with scripted((500, {}, b'{"error": {"message": "server: failed", "type": "internal"}}')) as (server, url):
        for error in both(url, ["x"], Passage("y")):
            assert isinstance(error, ServerRefusedError)
        assert server.asked == 2


@pytest.mark.parametrize("status", [200, 404, 502])
def test_another_kind_of_server_is_an_error(status):
    with scripted((status, {}, b"<html>hello</html>")) as (_, url):
        for error in both(url, ["x"], Passage("y")):
            assert isinstance(error, ServerRefusedError)
            assert f"got status {status}" in str(error)


def test_a_lost_connection_is_an_error_that_names_the_server():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        closed = f"http://127.0.0.1:{taken.getsockname()[1]}"
    with scripted((None, {}, b"")) as (_, cut), scripted((200, {"Content-Length": "100"}, b'{"verd')) as (_, torn):
        for url in (closed, cut, torn):
            for error in both(url, ["x"], Passage("y"), timeout_s=5.0):
                assert isinstance(error, ServerLostError)
                assert isinstance(error, ConnectionError)
                assert str(error).startswith(f"{url}: no answer from the server, got ")


def test_a_lost_connection_is_asked_again_as_often_as_said():
    cut, torn, gateway = (None, {}, b""), (200, {"Content-Length": "100"}, b'{"verd'), (500, {}, b"replica died")
    with scripted(cut, torn, gateway, GOOD) as (server, url):
        with Client(url, lost_retries=3) as client:
            assert client.score(["x"], Passage("y")) == [Verdict(0.75, 1.5, "supported")]
            assert client.n_lost == 3
        server.asked = 0
        assert both(url, ["x"], Passage("y"), lost_retries=3)[0] == [Verdict(0.75, 1.5, "supported")]
    for answer, kind in ((cut, ServerLostError), (gateway, ServerRefusedError)):
        with scripted(answer) as (server, url):
            for error in both(url, ["x"], Passage("y"), lost_retries=1):
                assert isinstance(error, kind)
            assert server.asked == 4
    own = (500, {"Content-Type": "application/json"}, b'{"error": {"message": "server: failed", "type": "internal"}}')
    with scripted(own) as (server, url):
        both(url, ["x"], Passage("y"), lost_retries=3)
        assert server.asked == 2  # its own words are an answer


def test_a_server_that_is_silent_is_given_up():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        for error in both(f"http://127.0.0.1:{silent.getsockname()[1]}", ["x"], Passage("y"), timeout_s=0.2):
            assert isinstance(error, ServerLostError)
            assert "Timeout" in str(error)


def test_questions_that_make_no_sense_are_not_sent():
    with scripted(GOOD) as (server, url):
        for claims, evidence, kind in (
            ("a string", Passage("y"), TypeError),
            (["x"], VideoSegment("a.mp4", math.nan), ConfigError),
            (["x"], VideoSegment("a.mp4", 0.0, math.inf), ConfigError),
            (["x"], VideoSegment("a.mp4", absent=True), ConfigError),
        ):
            assert [type(e) for e in both(url, claims, evidence)] == [kind, kind]
        assert server.asked == 0
