"""Hostile requests, full queues and shutdown: each gets a clear answer, and nobody else notices."""

import json
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
import uvicorn
from hanging import HANGS, prepare_or_hang
from serving import CLAIMS, VERIFIER, media_root, raw, serving, until

from proofreel.client import Client, ServerLostError, ServerRefusedError
from proofreel.core.errors import ConfigError
from proofreel.core.pairs import Passage, VideoSegment
from proofreel.server import queue
from proofreel.server.media_root import MediaRoot
from proofreel.server.settings import RefusedError, Settings

LIMITS = {"max_claims": 16, "max_body": 200_000, "max_span_s": 5.0, "body_s": 1.0, "max_evidence": 4, "queue": 64}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("limits")
    root = media_root(folder / "media")
    os.mkfifo(root / "pipe.mp4")
    with serving(root, folder / "cache", **LIMITS) as running:
        yield running


def question(path="a.mp4", claims=CLAIMS, **segment):
    return {"claims": claims, "evidence": [{"kind": "video", "path": path, "start_s": 0.0, "end_s": 2.0} | segment]}


def post(server, body, path="/score", **more):
    return httpx.post(f"{server.url}{path}", json=body, **more) if body is not None else httpx.post(server.url, **more)


def refused(answer, *statuses):
    """The message of an answer that is an error in the server's own form."""
    error = answer.json()["error"]
    assert answer.status_code == error["code"]
    assert answer.status_code in statuses
    assert "Traceback" not in answer.text
    return error["message"]


def still_answers(server):
    with Client(server.url) as client:
        assert [v.error for v in client.score(CLAIMS, VideoSegment("a.mp4", 0.0, 2.0))] == [None] * len(CLAIMS)


PATHS = {
    "../secret.mp4": 403,
    "day/../../secret.mp4": 403,
    "day/../a.mp4": 403,
    "/etc/passwd": 403,
    "//etc/passwd": 403,
    "out.mp4": 403,
    "outside/secret.mp4": 403,
    "outside/nothing.mp4": 403,
    "outside/media/../secret.mp4": 403,
    "~/secret.mp4": 404,
    "nothing.mp4": 404,
    "a.mp4/x": 404,
    "loop.mp4": (400, 404),
    "day": 400,
    ".": 400,
    "pipe.mp4": 400,
    "": 400,
    "a.mp4\0.txt": 400,
    "\udcff.mp4": (400, 404),
    "x" * 5000: 400,
    "x" * 300: 400,
    "http://localhost/a.mp4": 404,
    "file:///etc/passwd": 404,
    "concat:a.mp4|/etc/passwd": 404,
    "broken.mp4": 422,
}


@pytest.mark.parametrize("path", PATHS, ids=ascii)
def test_nothing_outside_of_the_root_is_read(server, path):
    statuses = PATHS[path] if isinstance(PATHS[path], tuple) else (PATHS[path],)
    data = json.dumps(question(path)).encode()
    answer = httpx.post(f"{server.url}/score", content=data, headers={"Content-Type": "application/json"})
    message = refused(answer, *statuses)
    assert str(server.service.root.folder) not in message
    image = {"claims": ["x"], "evidence": [{"kind": "image", "path": path}]}
    answer = httpx.post(f"{server.url}/score", content=json.dumps(image), headers={"Content-Type": "application/json"})
    refused(answer, *statuses)


def test_pictures_keep_to_the_root_as_well(server):
    for route in ("clip", "thumbnail", "frames"):
        for path in ("../secret.mp4", "/etc/passwd", "out.mp4", "outside/secret.mp4"):
            refused(httpx.get(f"{server.url}/{route}", params={"path": path}), 403)
        refused(httpx.get(f"{server.url}/{route}"), 400)
    for span in ({"start_s": "nan"}, {"start_s": -1}, {"start_s": 1, "end_s": 0}, {"start_s": "inf"}, {"start_s": "x"}):
        refused(httpx.get(f"{server.url}/frames", params={"path": "a.mp4"} | span), 400)


URLS = {
    "http://localhost/a.mp4": 403,
    "https://example.com/a.mp4": 403,
    "file://example.com/a.mp4": 403,
    "file:///etc/passwd": 403,
    "data:video/mp4;base64,AAAA": 415,
    "data:video/mp4,AAAA": 400,
    "upload:nothing.mp4": 404,
    "../secret.mp4": 403,
    "%2e%2e/secret.mp4": 403,
    "out.mp4": 403,
    "a.mp4#t=x": 400,
    "a.mp4#t=2,1": 400,
    "a.mp4#t=nan": 400,
    "http://[": 400,
}


@pytest.mark.parametrize("url", URLS)
def test_the_openai_route_follows_no_url_out_of_the_root(server, url):
    parts = [{"type": "video_url", "video_url": {"url": url}}, {"type": "text", "text": "x"}]
    body = {"messages": [{"role": "user", "content": parts}]}
    refused(post(server, body, "/v1/chat/completions"), URLS[url])


def test_a_file_url_below_the_root_is_read(server):
    url = f"file://{server.service.root.folder}/a.mp4#t=0,2"
    parts = [{"type": "video_url", "video_url": {"url": url}}, {"type": "text", "text": CLAIMS[0]}]
    assert post(server, {"messages": [{"role": "user", "content": parts}]}, "/v1/chat/completions").status_code == 200


@pytest.mark.parametrize(
    "body",
    [
        {"messages": []},
        {"messages": [{"role": "system", "content": "x"}]},
        {"messages": [{"role": "user", "content": "a claim alone"}]},
        {"messages": [{"role": "user", "content": []}]},
        {"messages": [{"role": "user", "content": [{"type": "text"}]}]},
        {"messages": [{"role": "user", "content": [{"type": "audio"}, {"type": "text", "text": "x"}]}]},
        {"messages": [{"role": "user", "content": [{"type": "video_url"}, {"type": "text", "text": "x"}]}]},
        {"messages": [{"role": "user", "content": "x"}], "stream": True},
        {"messages": [{"role": "user", "content": "x"}], "n": 2},
        {},
    ],
)
def test_chats_without_a_question_are_refused(server, body):
    refused(post(server, body, "/v1/chat/completions"), 400)


EVIDENCE = [{"kind": "passage", "text": "Somebody cooks."}]
HUGE = "9" + "0" * 4000
BODIES = {
    "NaN": ('{"claims": ["x"], "evidence": [{"kind": "video", "path": "a.mp4", "start_s": NaN}]}', 400),
    "Infinity": ('{"claims": ["x"], "evidence": [{"kind": "video", "path": "a.mp4", "end_s": Infinity}]}', 400),
    "1e999": ('{"claims": ["x"], "evidence": [{"kind": "video", "path": "a.mp4", "end_s": 1e999}]}', 400),
    "huge integer": ('{"claims": ["x"], "evidence": [{"kind": "video", "path": "a.mp4", "end_s": ' + HUGE + "}]}", 400),
    "negative": (question(start_s=-1), 400),
    "reversed": (question(start_s=2, end_s=1), 400),
    "true as a time": (question(start_s=True), 400),
    "text as a time": (question(start_s="0"), 400),
    "past the end": (question(start_s=3.0, end_s=4.0), 422),
    "too long a span": (question(end_s=6.0), 413),
    "no claims": ({"claims": [], "evidence": EVIDENCE}, 400),
    "claims as text": ({"claims": "abc", "evidence": EVIDENCE}, 400),
    "claims as numbers": ({"claims": [1], "evidence": EVIDENCE}, 400),
    "too many claims": ({"claims": ["x"] * 17, "evidence": EVIDENCE}, 413),
    "100,000 claims": ({"claims": [""] * 100_000, "evidence": EVIDENCE}, 413),
    "no evidence": ({"claims": ["x"], "evidence": []}, 400),
    "empty evidence": ({"claims": ["x"], "evidence": [{"kind": "passage", "text": " "}]}, 400),
    "strange evidence": ({"claims": ["x"], "evidence": [{"kind": "smell"}]}, 400),
    "too much evidence": ({"claims": ["x"], "evidence": EVIDENCE * 5}, 413),
    "unknown key": ({"claims": ["x"], "evidence": EVIDENCE, "extra": 1}, 400),
    "absent": (question(absent=True), 400),
    "contexts": ({"claims": ["x"], "evidence": EVIDENCE, "contexts": []}, 400),
    "prior": ({"claims": ["x"], "evidence": EVIDENCE, "prior": 1.0}, 400),
    "point": ({"claims": ["x"], "evidence": EVIDENCE, "operating_point": "nope"}, 400),
    "surrogate": ('{"claims": ["x"], "evidence": [{"kind": "passage", "text": "\\ud800"}]}', 400),
    "surrogate context": (json.dumps({"claims": ["x"], "evidence": EVIDENCE, "contexts": ["\udfff"]}), 400),
    "too long a text": ({"claims": ["x"], "evidence": [{"kind": "passage", "text": "word " * 20_000}]}, 200),
    "a list": ([], 400),
    "null": ("null", 400),
    "nothing": ("", 400),
    "no JSON": ('{"claims"', 400),
    "deep": ("[" * 100_000, 400),
    "bytes": (b"\xff\xfe\x00", 400),
}  # fmt: skip


@pytest.mark.parametrize("name", BODIES)
def test_wrong_bodies_get_a_clear_answer(server, name):
    body, status = BODIES[name]
    data = body if isinstance(body, (str, bytes)) else json.dumps(body)
    answer = httpx.post(f"{server.url}/score", content=data, headers={"Content-Type": "application/json"})
    if status == 200:  # the evidence can be read, but not the claim behind it
        assert all("tokens" in v["error"] and v["margin"] is None for v in answer.json()["verdicts"])
    else:
        assert len(refused(answer, status)) < 1000


def test_a_claim_that_cannot_be_read_fails_alone(server):
    data = json.dumps({"claims": ["Tool is knife.", "\ud800", "", "a\0b"], "evidence": EVIDENCE})
    answer = httpx.post(f"{server.url}/score", content=data, headers={"Content-Type": "application/json"}).json()
    assert [v["error"] is None for v in answer["verdicts"]] == [True, False, False, False]


HEAD = b"POST /score HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


def test_bodies_that_are_too_large_slow_or_lied_about(server):
    assert b" 413 " in raw(server.port, HEAD + b"Content-Length: 10737418240\r\n\r\n{")
    assert b" 400 " in raw(server.port, HEAD + b"Content-Length: " + b"9" * 400 + b"\r\n\r\n{")
    chunks = (b"2710\r\n" + b"x" * 10_000 + b"\r\n") * 30
    assert b" 413 " in raw(server.port, HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunks)
    assert b" 408 " in raw(server.port, HEAD + b"Content-Length: 1000\r\n\r\n{")
    body = json.dumps(question()).encode()
    short = raw(server.port, HEAD + b"Content-Length: 10\r\n\r\n" + body)
    assert b" 400 " in short
    assert b" 200 " not in short
    assert b" 400 " in raw(server.port, HEAD + b"Content-Length: -5\r\n\r\n" + body)
    assert b" 400 " in raw(server.port, HEAD + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n" + body)
    assert b" 400 " in raw(server.port, b"\x16\x03\x01 this is not http\r\n\r\n")
    still_answers(server)


def test_a_page_of_another_origin_cannot_ask_without_saying_json(server):
    answer = httpx.post(f"{server.url}/score", content=json.dumps(question()), headers={"Content-Type": "text/plain"})
    refused(answer, 400)


def test_a_video_that_hangs_its_decoder_fails_alone_and_once(tmp_path, monkeypatch):
    monkeypatch.setattr(queue, "prepare", prepare_or_hang)
    with (
        serving(media_root(tmp_path / "media"), tmp_path / "cache", decode_s=2.0) as server,
        Client(server.url) as client,
    ):
        with ThreadPoolExecutor(3) as pool:
            hanging = [pool.submit(client.score, CLAIMS, VideoSegment(HANGS, 0.0, 2.0)) for _ in range(2)]
            until(lambda: (tmp_path / "cache" / "hung.txt").exists())
            still_answers(server)
            with pytest.raises(ServerRefusedError, match=r"^hangs\.mp4: reader hung for 2 s"):
                hanging[0].result()
            assert isinstance(hanging[1].exception(), ServerRefusedError)
        for end_s in (1.0, 2.0):
            with pytest.raises(ServerRefusedError, match=r"^hangs\.mp4: reader hung for 2 s"):
                client.score(CLAIMS, VideoSegment(HANGS, 0.0, end_s))
        assert (tmp_path / "cache" / "hung.txt").read_text() == "x"
        assert server.count("proofreel_queue_claims") == 0
        still_answers(server)


def test_a_server_without_a_root_reads_no_media(tmp_path):
    with serving(None, tmp_path / "cache", token="open sesame") as server:
        with Client(server.url) as client, pytest.raises(ServerRefusedError, match="asks for one, got none") as caught:
            client.score(CLAIMS, VideoSegment("a.mp4"))
        assert (caught.value.status, caught.value.kind) == (401, "unauthorized")
        for token in ("Open sesame", "open sesame!", "open", "öffne dich"):
            headers = [(b"Authorization", f"Bearer {token}".encode())]
            for path in ("/info", "/clips", "/metrics", "/openapi.json", "/docs", "/nowhere"):
                refused(httpx.get(server.url + path, headers=headers), 401)
        assert httpx.get(server.url).status_code == httpx.get(f"{server.url}/healthz").status_code == 200
        with Client(server.url, token="open sesame") as client:
            assert client.info()["limits"]["max_claims"] == 256
            assert client.ask("GET", "/clips") == {"clips": []}
            with pytest.raises(ServerRefusedError, match="reads no media"):
                client.score(CLAIMS, VideoSegment("a.mp4"))


def test_a_full_queue_says_when_to_come_back_and_a_late_answer_is_an_error(tmp_path):
    limits: dict[str, Any] = {"queue": 8, "max_claims": 8, "timeout_s": 3.0}
    with serving(None, tmp_path / "cache", **limits) as server, ThreadPoolExecutor(2) as pool:
        body = {"claims": ["x"] * 8, "evidence": EVIDENCE}
        with server.service.verifier.scorer.lock:
            first = pool.submit(httpx.post, f"{server.url}/score", json=body, timeout=60.0)
            until(lambda: server.count("proofreel_queue_claims") == 8)
            answer = httpx.post(f"{server.url}/score", json=body, timeout=60.0)
            assert "busy" in refused(answer, 429)
            assert int(answer.headers["Retry-After"]) >= 1
            assert httpx.get(f"{server.url}/healthz").status_code == 200
            assert "got none within 3 s" in refused(first.result(), 504)
        until(lambda: server.count("proofreel_queue_claims") == 0)
        assert httpx.post(f"{server.url}/score", json=body).status_code == 200
        assert server.count("proofreel_failures_total", reason="busy") == 1


def test_clients_of_a_busy_server_wait_and_are_all_answered(tmp_path):
    with serving(None, tmp_path / "cache", queue=8, max_claims=8) as server, Client(server.url, retries=50) as client:

        def ask(i):
            return client.score([f"Tool is knife {i}."] * 8, Passage(f"Text {i}."))

        with ThreadPoolExecutor(6) as pool:
            answers = list(pool.map(ask, range(6)))
        assert [len(a) for a in answers] == [8] * 6
        assert all(v.error is None for a in answers for v in a)


def test_shutdown_answers_what_is_in_progress_and_refuses_what_is_new(tmp_path):
    patient: dict[str, Any] = {"timeout": 300.0}
    body = {"claims": CLAIMS, "evidence": EVIDENCE}
    with (
        serving(None, tmp_path / "cache", drain_s=600.0, timeout_s=600.0) as server,
        ThreadPoolExecutor(1) as pool,
        httpx.Client(**patient) as kept,
    ):
        assert kept.get(f"{server.url}/healthz").status_code == 200
        with server.service.verifier.scorer.lock:
            first = pool.submit(httpx.post, f"{server.url}/score", json=body, **patient)
            until(lambda: server.count("proofreel_queue_claims") == len(CLAIMS))
            server.serving.stop()
            assert "shutting down" in refused(kept.post(f"{server.url}/score", json=body), 503)
            assert "shutting down" in refused(httpx.post(f"{server.url}/score", json=body, **patient), 503)
            assert httpx.get(f"{server.url}/healthz", **patient).status_code == 503
            assert server.thread.is_alive()
            assert type(server.serving.server) is uvicorn.Server  # nothing of its private parts is replaced
        assert [v["error"] for v in first.result().json()["verdicts"]] == [None] * len(CLAIMS)
        server.thread.join(300)
        assert not server.thread.is_alive()


def test_a_second_signal_does_not_wait_for_what_is_in_progress(tmp_path):
    body = {"claims": CLAIMS, "evidence": EVIDENCE}
    with serving(None, tmp_path / "cache", drain_s=600.0, timeout_s=600.0) as server, ThreadPoolExecutor(1) as pool:
        with server.service.verifier.scorer.lock:
            first = pool.submit(httpx.post, f"{server.url}/score", json=body, timeout=300.0)
            until(lambda: server.count("proofreel_queue_claims") == len(CLAIMS))
            server.serving.stop()
            server.serving.stop()
            server.thread.join(300)
            assert not server.thread.is_alive()
        lost = first.exception()
        assert isinstance(lost, httpx.TransportError) or (lost is None and first.result().status_code == 500)


def test_a_server_stopped_before_its_socket_was_widened_is_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr("proofreel.server.launch._TICK_S", 3.0)  # it looks after uvicorn has closed the socket
    with serving(None, tmp_path / "cache") as server:
        server.serving.stop()
        server.serving.stop()
        until(lambda: server.serving._bound.fileno() == -1)
        server.thread.join(300)
        assert not server.thread.is_alive()


def start(tmp_path, *flags):
    """The command itself, and its address."""
    words = ["-m", "proofreel.cli", "serve", str(VERIFIER), "--port", "0", "--device", "cpu"]
    words += ["--media-root", str(media_root(tmp_path / "media")), *flags]
    with (tmp_path / "log").open("w") as log:
        environment = os.environ | {"TMPDIR": str(tmp_path / "temporary")}
        (tmp_path / "temporary").mkdir()
        process = subprocess.Popen(
            [sys.executable, *words], stdout=subprocess.PIPE, stderr=log, text=True, env=environment
        )
    assert process.stdout is not None
    line = process.stdout.readline()
    assert " on http://" in line, (tmp_path / "log").read_text()
    return process, line.split()[-1]


def test_the_command_serves_and_ends_on_sigterm_with_status_0(tmp_path):
    process, url = start(tmp_path, "--max-claims", "5")
    with process, Client(url) as client:
        assert all(v.error is None for v in client.score(CLAIMS, VideoSegment("a.mp4", 0.0, 2.0)))
        with pytest.raises(ServerRefusedError, match="got 6 of at most 5"):
            client.score(["x"] * 6, VideoSegment("a.mp4", 0.0, 2.0))
        process.terminate()
        assert process.wait(300) == 0
    assert list((tmp_path / "temporary").iterdir()) == []
    assert "Traceback" not in (tmp_path / "log").read_text()


def test_killed_in_mid_load_every_client_gets_a_clear_error(tmp_path):
    process, url = start(tmp_path)
    answered, errors = [], []

    def ask_for_ever():
        with Client(url, retries=2) as client:
            try:
                while True:
                    answered.append(client.score(CLAIMS, VideoSegment("a.mp4", 0.0, 2.0)))
            except Exception as error:
                errors.append(error)

    threads = [threading.Thread(target=ask_for_ever) for _ in range(16)]
    with process:
        for thread in threads:
            thread.start()
        until(lambda: len(answered) > 50)
        process.kill()
        for thread in threads:
            thread.join(300)
    assert [type(e) for e in errors] == [ServerLostError] * 16
    assert all(str(e).startswith(f"{url}: no answer from the server, got ") for e in errors)
    assert all(v.error is None for verdicts in answered for v in verdicts)
    until(lambda: not list((tmp_path / "temporary").iterdir()))  # neither frames nor uploads stay behind


def test_the_command_says_what_is_wrong(tmp_path, capsys):
    from proofreel.cli import main

    assert main(["serve", str(VERIFIER), "--media-root", str(tmp_path / "nothing")]) == 1
    assert "media root: not a folder" in capsys.readouterr().err
    assert main(["serve", str(tmp_path), "--port", "0"]) == 1
    for host in ("0.0.0.0", "::"):
        assert main(["serve", str(VERIFIER), "--host", host]) == 1
        assert "without a token; set PROOFREEL_TOKEN" in capsys.readouterr().err
    assert main(["serve", str(VERIFIER), "--max-claims", "0"]) == 1
    assert "max_claims: must be above 0, got 0" in capsys.readouterr().err
    assert main(["serve", str(VERIFIER), "--max-pixels", str(2**26 + 1)]) == 1
    assert "max_pixels: larger images are never decoded, got 67108865 of at most 67108864" in capsys.readouterr().err


def test_limits_that_cannot_work_are_refused():
    wrong_ones: list[dict[str, Any]] = [
        {"queue": 10},
        {"timeout_s": 0.0},
        {"token": ""},
        {"token": "ä"},
        {"window_s": float("nan")},
    ]
    for wrong in wrong_ones:
        with pytest.raises(ConfigError):
            Settings(**wrong)
    assert "secret" not in repr(Settings("secret"))


def test_files_above_the_limit_are_not_opened(tmp_path):
    (tmp_path / "a.mp4").write_bytes(b"x" * 101)
    assert MediaRoot(tmp_path, 101).find("a.mp4") == "a.mp4"
    with pytest.raises(RefusedError, match="101 bytes of at most 100") as caught:
        MediaRoot(tmp_path, 100).find("a.mp4")
    assert caught.value.status == 413
    assert MediaRoot(tmp_path, 100).clips() == []


def test_a_root_that_is_a_link_holds_what_it_leads_to(tmp_path):
    media_root(tmp_path / "media")
    (tmp_path / "link").symlink_to(tmp_path / "media")
    assert MediaRoot(tmp_path / "link", 10**9).find("inside.mp4") == "a.mp4"


def test_replicas_of_a_cluster_named_by_the_environment_need_a_common_folder_too(monkeypatch, capsys):
    from proofreel.cli import main

    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    assert main(["serve", str(VERIFIER), "--engine", "ray"]) == 1
    assert "a folder that all replicas see, got no --frame-cache" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--workers", "0"], "--workers: must be at least 1, got 0"),
        (["--replicas", "2"], "--replicas: is read by --engine ray only, got 2"),
        (["--engine", "ray", "--workers", "2"], "--engine ray: Ray starts the processes"),
        (["--engine", "ray", "--port", "0"], "--engine ray: Ray starts the processes"),
        (["--engine", "ray", "--replicas", "two"], "--replicas: must be N or N:M, got 'two'"),
        (["--engine", "ray", "--replicas", "3:2"], "replicas: must be at least 1, fewest first"),
        (["--engine", "ray", "--ray-address", "auto"], "a folder that all replicas see, got no --frame-cache"),
    ],
)
def test_options_of_several_processes_that_nothing_would_read_are_refused(words, reason, capsys):
    from proofreel.cli import main

    assert main(["serve", str(VERIFIER), *words]) == 1
    assert reason in capsys.readouterr().err
