"""Several processes on one port: what one says is what all say, one that dies is replaced, and nothing is lost."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import httpx
import pytest
from serving import CLAIMS, SAMPLE, VERIFIER, media_root, serving, until

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


def started(place: Path, *flags: str) -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "proofreel.cli", "serve", str(VERIFIER), "--port", "0", "--device", "cpu"]
    words += ["--media-root", str(place / "media"), "--workers", "2", *flags]
    environment = os.environ | {"TMPDIR": str(place / "temporary"), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def address(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert " by 2 processes on http://" in line, process.communicate()
    return line.split()[-1]


def children(process: subprocess.Popen[str]) -> list[int]:
    """Its workers: the sweepers beside them read a script from their command line."""
    listed = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return [int(pid) for pid in listed if b"proofreel.serve" in Path(f"/proc/{pid}/cmdline").read_bytes()]


@pytest.fixture(scope="module")
def server(place):
    process = started(place, "--max-claims", "8")
    yield address(process), process
    process.terminate()
    assert process.wait(120) == 0, process.communicate()
    assert list((place / "temporary").iterdir()) == []


def many(url: str, method: str, path: str, **given):
    """The answers to one request over connections of their own."""
    return [httpx.request(method, f"{url}{path}", **given) for _ in range(CONNECTIONS)]


def test_answers_refusals_and_the_page_are_those_of_one_process(server, place, tmp_path):
    url, _ = server
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
    url, _ = server
    with Client(url) as client:
        name = client.upload(SAMPLE)
    evidence = [{"kind": "video", "path": name, "start_s": 0.0, "end_s": 2.0}]
    answers = many(url, "POST", "/score", json={"claims": CLAIMS[:2], "evidence": evidence})
    assert {a.status_code for a in answers} == {200}
    shown = httpx.get(f"{url}/clip", params={"path": "a.mp4"}).json()["media"]
    assert {a.content for a in many(url, "GET", f"/{shown}")} == {SAMPLE.read_bytes()}

    def scored() -> set[float]:
        texts = [answer.text for answer in many(url, "GET", "/metrics")]
        lines = [line for text in texts for line in text.splitlines() if line.startswith("proofreel_claims_total")]
        return {float(line.split()[-1]) for line in lines if 'outcome="scored"' in line}

    (before,) = scored()
    many(url, "POST", "/score", json={"claims": CLAIMS[:2], "evidence": evidence})
    assert scored() == {before + 2 * CONNECTIONS}


def test_one_that_is_killed_in_mid_load_is_replaced_and_nothing_is_lost_or_wrong(server):
    url, process = server
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
    before = children(process)
    os.kill(before[0], signal.SIGKILL)
    until(lambda: len(children(process)) == 2 and before[0] not in children(process))
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
    assert process.stderr is not None
    assert next(line for line in process.stderr if "ended, got status -9; it is started again" in line)


def test_a_worker_that_cannot_start_ends_all(place, tmp_path):
    process = started(place, "--base", str(tmp_path / "nothing"))
    said = process.communicate(timeout=120)[1]
    assert process.returncode == 1
    assert "did not start, got no answer; its own error stands above" in said
    assert "nothing" in said.partition("error: workers")[0]
