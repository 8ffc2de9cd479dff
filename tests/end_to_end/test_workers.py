"""Several processes on one port: what one says is what all say, one that dies is replaced, and nothing is lost."""

import dataclasses
import os
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import httpx
import pytest
from serving import CLAIMS, SAMPLE, VERIFIER, media_root, serving, until
from training_runs import free_port

from proofreel.client import Client
from proofreel.core.pairs import VideoSegment

CLIP = VideoSegment("a.mp4", 0.0, 2.0)
CONNECTIONS = 12  # so many that both processes get some, but for one run in two thousand


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("workers")
    media_root(folder / "media")
    (folder / "temporary").mkdir()
    return folder


KINDS = {
    "workers": ["--port", "0", "--workers", "2"],
    "ray": ["--engine", "ray", "--replicas", "2", "--cpus-per-replica", "1"],
}


@dataclasses.dataclass
class Started:
    """A server of two processes."""

    kind: str
    process: subprocess.Popen[str]
    log: Path
    url: str = ""

    def pids(self) -> list[int]:
        """Of the processes that answer."""
        if self.kind == "ray":
            every = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal()]
            return [pid for pid in every if b"ServeReplica:proofreel" in cmdline(pid)]
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return [int(pid) for pid in children if b"proofreel.serve" in cmdline(int(pid))]


def cmdline(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:  # it has just ended
        return b""


def started(place: Path, kind: str, *flags: str, media: str = "media", log: str = "") -> Started:
    """The command, which has not said yet that it serves."""
    words = [sys.executable, "-m", "proofreel.cli", "serve", str(VERIFIER), "--device", "cpu", *KINDS[kind], *flags]
    words += ["--media-root", str(place / media), *(["--port", str(free_port())] if kind == "ray" else [])]
    environment = os.environ | {"TMPDIR": str(place / "temporary"), "OMP_NUM_THREADS": "1"}
    environment["RAY_TMPDIR"] = tempfile.gettempdir()  # a longer name is too long for its sockets
    file = place / f"{log or kind}.log"
    with file.open("w") as errors:
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment)
    return Started(kind, process, file)


@pytest.fixture(scope="module", params=["workers", pytest.param("ray", marks=pytest.mark.nightly)])
def server(place, request):
    running = started(place, request.param, "--max-claims", "8")
    assert running.process.stdout is not None
    line = running.process.stdout.readline()
    assert " by 2 " in line, running.log.read_text()
    running.url = line.split()[-1]
    yield running
    running.process.terminate()
    assert running.process.wait(120) == 0, running.log.read_text()
    assert [path.name for path in (place / "temporary").iterdir()] == []


def many(url: str, method: str, path: str, **given):
    """The answers to one request over connections of their own."""
    return [httpx.request(method, f"{url}{path}", **given) for _ in range(CONNECTIONS)]


def test_answers_refusals_and_the_page_are_those_of_one_process(server, place, tmp_path):
    url = server.url
    body = {"claims": CLAIMS, "evidence": [{"kind": "video", "path": "a.mp4", "start_s": 0.0, "end_s": 2.0}]}
    wrong = [
        {**body, "claims": ["x"] * 9},
        {**body, "evidence": [{"kind": "video", "path": "../secret.mp4"}]},
        {"claim": 1},
    ]
    with serving(place / "media", tmp_path / "cache", max_claims=8) as alone:
        expected = httpx.post(f"{alone.url}/score", json=body).json()
        for answer in many(url, "POST", "/score", json=body):
            verdicts = answer.json()
            for one, other in zip(verdicts.pop("verdicts"), expected["verdicts"], strict=True):
                assert one["label"] == other["label"]
                assert one["margin"] == pytest.approx(other["margin"], abs=1e-4, rel=1e-5)
            assert verdicts == {name: value for name, value in expected.items() if name != "verdicts"}
        for given in wrong:
            refusal = httpx.post(f"{alone.url}/score", json=given)
            assert refusal.status_code in (400, 403, 413, 422)
            for answer in many(url, "POST", "/score", json=given):
                assert (answer.status_code, answer.json()) == (refusal.status_code, refusal.json())
        for path in ("/", "/info", "/v1/models", "/clips", "/openapi.json", "/nothing"):
            one = httpx.get(f"{alone.url}{path}")
            assert {(a.status_code, a.text) for a in many(url, "GET", path)} == {(one.status_code, one.text)}


def test_what_one_was_sent_the_other_finds_and_all_count_together(server):
    url = server.url
    with Client(url) as client:
        name = client.upload(SAMPLE)
    evidence = [{"kind": "video", "path": name, "start_s": 0.0, "end_s": 2.0}]
    answers = many(url, "POST", "/score", json={"claims": CLAIMS[:2], "evidence": evidence})
    assert {a.status_code for a in answers} == {200}
    shown = httpx.get(f"{url}/clip", params={"path": "a.mp4"}).json()["media"]
    assert {a.content for a in many(url, "GET", f"/{shown}")} == {SAMPLE.read_bytes()}

    if server.kind == "ray":
        return  # each replica counts for itself

    def scored() -> set[float]:
        texts = [answer.text for answer in many(url, "GET", "/metrics")]
        lines = [line for text in texts for line in text.splitlines() if line.startswith("proofreel_claims_total")]
        return {float(line.split()[-1]) for line in lines if 'outcome="scored"' in line}

    (before,) = scored()
    many(url, "POST", "/score", json={"claims": CLAIMS[:2], "evidence": evidence})
    assert scored() == {before + 2 * CONNECTIONS}


def test_each_takes_connections_that_the_other_leaves(server):
    if server.kind == "ray":
        pytest.skip("a proxy of Ray takes the connections")
    evidence = [{"kind": "video", "path": "a.mp4", "start_s": 0.0, "end_s": 2.0}]
    first, second = server.pids()
    for stopped in (first, second):
        os.kill(stopped, signal.SIGSTOP)  # it holds what it took, and takes nothing
        try:
            answers = many(server.url, "POST", "/score", json={"claims": CLAIMS[:1], "evidence": evidence}, timeout=60)
        finally:
            os.kill(stopped, signal.SIGCONT)
        assert [answer.status_code for answer in answers] == [200] * CONNECTIONS


def test_one_that_is_killed_in_mid_load_is_replaced_and_nothing_is_lost_or_wrong(server):
    url = server.url
    with Client(url) as client:
        expected = [(v.label, v.margin) for v in client.score(CLAIMS, CLIP)]
    answered, errors, lost, stop = [], [], [], threading.Event()

    def ask_for_ever() -> None:
        with Client(url, lost_retries=5) as client:
            try:
                while not stop.is_set():
                    answered.append([(v.label, v.margin) for v in client.score(CLAIMS, CLIP)])
            except Exception as error:
                errors.append(error)
            lost.append(client.n_lost)

    threads = [threading.Thread(target=ask_for_ever) for _ in range(8)]
    for thread in threads:
        thread.start()
    until(lambda: len(answered) > 20)
    before = server.pids()
    assert len(before) == 2
    os.kill(before[0], signal.SIGKILL)
    until(lambda: len(pids := server.pids()) == 2 and before[0] not in pids)
    if server.kind == "workers":  # from now on only those answer that were started again
        os.kill(before[1], signal.SIGKILL)
        until(lambda: len(pids := server.pids()) == 2 and before[1] not in pids)
    after = len(answered)
    until(lambda: len(answered) > after + 50)
    stop.set()
    for thread in threads:
        thread.join(120)
    assert not errors
    assert sum(lost) >= 1  # it had connections
    for verdicts in answered:
        assert [label for label, _ in verdicts] == [label for label, _ in expected]
        assert [m for _, m in verdicts] == pytest.approx([m for _, m in expected], abs=1e-4, rel=1e-5)
    assert server.kind == "ray" or "ended, got status -9; it is started again" in server.log.read_text()


def test_a_worker_that_cannot_start_ends_all(place):
    running = started(place, "workers", media="nothing")
    assert running.process.wait(120) == 1
    said = running.log.read_text()
    assert "did not start, got no answer; its own error stands above" in said
    assert "media root: not a folder" in said.partition("error: workers")[0]


@pytest.mark.nightly
def test_replicas_that_cannot_start_are_an_error_after_a_few_tries(place):
    running = started(place, "ray", media="nothing")
    assert running.process.wait(300) == 1
    said = running.log.read_text()
    (line,) = (line for line in said.splitlines() if line.startswith("error: "))
    assert line.startswith("error: --engine ray: replicas do not start, got ")
    assert "media root: not a folder" in line


OTHER = """
import ray, sys
from ray import serve
ray.init(address=sys.argv[1], log_to_driver=False)
@serve.deployment(ray_actor_options={"num_cpus": 0.1})
class Other:
    def __call__(self, request):
        return "still here"
serve.start(http_options={"host": "127.0.0.1", "port": int(sys.argv[2])})
serve.run(Other.bind(), name="other", route_prefix="/other")
"""


@pytest.mark.nightly
def test_other_applications_of_a_cluster_stay_and_the_address_is_the_one_they_have(place, monkeypatch):
    port, http = free_port(), free_port()
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN", "ab" * 32)
    environment = os.environ | {"RAY_TMPDIR": tempfile.gettempdir(), "TMPDIR": str(place / "temporary")}
    ray = [sys.executable, "-m", "ray.scripts.scripts"]
    start = [*ray, "start", "--head", "--port", str(port), "--num-cpus", "6", "--include-dashboard", "false"]
    start += ["--object-store-memory", str(200 * 2**20), "--disable-usage-stats", "--block"]
    log = place / "cluster.log"
    with log.open("w") as said:
        cluster = subprocess.Popen(start, env=environment, stdout=said, stderr=subprocess.STDOUT)
    try:
        until(lambda: "Ray runtime started" in log.read_text() or cluster.poll() is not None)
        subprocess.run([sys.executable, "-c", OTHER, f"127.0.0.1:{port}", str(http)], check=True, env=environment)
        flags = ["--ray-address", f"127.0.0.1:{port}", "--frame-cache", str(place / "frames")]
        running = started(place, "ray", *flags, log="first")
        assert running.process.stdout is not None
        line = running.process.stdout.readline()
        assert line.split()[-1] == f"http://127.0.0.1:{http}", running.log.read_text()
        assert f"listens on 127.0.0.1:{http} already" in running.log.read_text()
        with Client(f"http://127.0.0.1:{http}") as client:
            assert client.score(CLAIMS[:1], CLIP)[0].error is None
        second = started(place, "ray", *flags, log="second")
        assert second.process.wait(300) == 1
        assert "got the application 'proofreel' there already" in second.log.read_text().splitlines()[-1]
        with Client(f"http://127.0.0.1:{http}") as client:
            assert client.score(CLAIMS[:1], CLIP)[0].error is None
        running.process.terminate()
        assert running.process.wait(120) == 0, running.log.read_text()
        assert httpx.get(f"http://127.0.0.1:{http}/other", timeout=60).text == "still here"
        assert httpx.get(f"http://127.0.0.1:{http}/health", timeout=60).status_code == 404
    finally:
        cluster.terminate()  # and with it what it started; `ray stop` would end every cluster of this machine
        cluster.wait(60)
