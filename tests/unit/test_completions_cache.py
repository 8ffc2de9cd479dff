"""An answer is paid once and stays: whole files only, whoever is killed, and replay asks nobody."""

import json
import multiprocessing
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from chat_server import HELLO, Server, chat, model_of, running_server, send

from proofreel.data_prep.language.answers import Completion, LanguageModelError, map_ordered
from proofreel.data_prep.language.cache import CompletionsCache, ReplayError, request_key


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with running_server() as state:
        yield state


def test_a_question_is_paid_once_and_replayed_without_an_endpoint(server: Server, tmp_path: Path):
    prices = {"prompt_price": 2.0, "completion_price": 10.0, "cache_dir": str(tmp_path)}
    first = model_of(server, mode="record", **prices)
    assert first(HELLO) == first(HELLO)
    assert len(server.bodies) == 1
    assert first.costs() == {
        "questions": 2,
        "requests": 1,
        "cache_hits": 1,
        "retries": 0,
        "failures": 0,
        "unmetered": 0,
        "prompt_tokens": 7,
        "completion_tokens": 3,
        "cached_prompt_tokens": 7,
        "cached_completion_tokens": 3,
        "money": pytest.approx((7 * 2 + 3 * 10) / 1e6),
        "money_saved": pytest.approx((7 * 2 + 3 * 10) / 1e6),
    }
    replay = model_of(server, mode="replay", base_url="http://elsewhere.invalid/v1", **prices)
    assert replay(HELLO) == Completion("fine", "stop", 7, 3)
    assert replay.costs()["money"] == 0
    json.dumps(replay.costs())


def test_a_miss_in_replay_names_the_request(server: Server, tmp_path: Path):
    replay = model_of(server, mode="replay", cache_dir=str(tmp_path), api_key_env="NOT_SET_ANYWHERE")
    with pytest.raises(ReplayError, match=r"no stored answer.*of 'm' ending in 'hello'; run once with mode: record"):
        replay(HELLO)
    assert server.bodies == []


def test_every_part_of_the_request_is_part_of_its_key(server: Server, tmp_path: Path):
    changes: list[dict[str, Any]] = [{}, {"model": "n"}, {"temperature": 0.1}, {"max_tokens": 5}, {"seed": 1}]
    changes += [{"seed": None}, {"extra": {"top_p": 0.5}}]
    for change in changes:
        model = model_of(server, mode="record", cache_dir=str(tmp_path), **change)
        model(HELLO)
        model([{"role": "system", "content": "hello"}])
    assert len(server.bodies) == 2 * len(changes)
    assert len({request_key(body) for body in server.bodies}) == 2 * len(changes)


DAMAGE = [b"", b"{", b"null", b"[]", b'{"request": {}, "completion": {"text": "x", "first_tokens": []}}', b"\xff"]


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_answer_is_asked_again_and_never_replayed(server: Server, tmp_path: Path, damage: bytes):
    model = model_of(server, mode="record", cache_dir=str(tmp_path))
    model(HELLO)
    (path,) = tmp_path.rglob("*.json")
    path.write_bytes(damage)
    replay = model_of(server, mode="replay", cache_dir=str(tmp_path))
    with pytest.raises(ReplayError, match="damaged"):
        replay(HELLO)
    assert model(HELLO).text == "fine"
    assert replay(HELLO).text == "fine"
    assert len(server.bodies) == 2


def test_failures_are_not_remembered(server: Server, tmp_path: Path):
    server.plan = [send({}, 400)]
    model = model_of(server, mode="record", cache_dir=str(tmp_path))
    with pytest.raises(LanguageModelError):
        model(HELLO)
    assert model(HELLO).text == "fine"


def test_the_same_question_from_many_threads_is_paid_once(server: Server, tmp_path: Path):
    counter = iter(range(99))
    server.answer = lambda body: chat(f"answer {next(counter)}")
    model = model_of(server, mode="record", cache_dir=str(tmp_path))
    assert {str(answer) for answer in map_ordered(model, [HELLO] * 16, 8)} == {
        str(Completion("answer 0", "stop", 7, 3))
    }
    assert len(server.bodies) == 1


def _write_for_ever(directory: str, name: str) -> None:
    cache, number = CompletionsCache(directory), 0
    while True:
        cache.write({"n": number % 50, "text": "é" * 3000}, Completion(f"{name} {number}"))
        number += 1


def test_killed_and_competing_writers_leave_whole_answers_that_stay(tmp_path: Path):
    context = multiprocessing.get_context("spawn")
    cache = CompletionsCache(tmp_path)
    writers = [context.Process(target=_write_for_ever, args=(str(tmp_path), name)) for name in "ab"]
    for writer in writers:
        writer.start()
    deadline = time.monotonic() + 20
    while len(list(tmp_path.rglob("*.json"))) < 30 and time.monotonic() < deadline:
        time.sleep(0.005)
    for writer in writers:
        assert writer.pid is not None
        os.kill(writer.pid, signal.SIGKILL)
        writer.join()
    requests = [{"n": number, "text": "é" * 3000} for number in range(50)]
    kept = {str(request): cache.read(request) for request in requests if cache.path(request).exists()}
    assert len(kept) >= 30
    assert None not in kept.values()
    for request in requests:
        before = kept.get(str(request))
        after = cache.write(request, Completion("late"))
        assert after == (before or Completion("late"))
        assert cache.read(request) == after


def test_a_disk_without_links_keeps_answers_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: object) -> None:
        raise PermissionError("no links here")

    monkeypatch.setattr(os, "link", refuse)
    cache = CompletionsCache(tmp_path)
    assert cache.write({"a": 1}, Completion("x")).text == "x"
    assert cache.write({"a": 1}, Completion("y")).text == "x"
    assert cache.read({"a": 1}) == Completion("x")
    assert len(list(tmp_path.rglob("*"))) == 2  # one folder, one file
