"""The client against a real server that misbehaves: every question is answered, or fails with a reason."""

import math
import time
from collections.abc import Iterator
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest
from chat_server import HELLO, Behaviour, Server, chat, drip, hang_up, model_of, running_server, send

from proofreel.core.config import load_config
from proofreel.core.errors import ConfigError
from proofreel.data_prep.language.answers import AnswerError, Completion, LanguageModelError, word_logprobs
from proofreel.data_prep.language.client import LanguageModelConfig

KEY = "sk-very-secret-0123456789"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with running_server() as state:
        yield state


def test_the_request_holds_what_the_config_says_and_the_answer_comes_back_whole(server: Server):
    model = model_of(server, max_tokens=9, temperature=0.5, seed=3, extra={"reasoning_effort": "low"})
    assert model(HELLO) == Completion("fine", "stop", 7, 3)
    assert server.bodies == [
        {"model": "m", "messages": HELLO, "temperature": 0.5, "max_tokens": 9, "seed": 3, "reasoning_effort": "low"}
    ]
    assert "Authorization" not in server.headers[0]


def test_what_is_none_is_not_sent(server: Server):
    model_of(server, max_tokens=None, temperature=None, seed=None)(HELLO)
    assert server.bodies == [{"model": "m", "messages": HELLO}]


PASSING: dict[str, Behaviour] = {
    "429": send({"error": "slow down"}, 429),
    "408": send({}, 408),
    "500": send(b"oops", 500),
    "503": send(b"", 503),
    "truncated JSON": send(b'{"choices": [{"mess'),
    "short body": send(chat(), cut=9),
    "HTML": send(b"<html>busy</html>", type_="text/html"),
    "empty": send(b""),
    "not UTF-8": send(b"\xff\xfe{}"),
    "JSON null": send(b"null"),
    "a list": send([1]),
    "error with status 200": send({"error": {"message": "overloaded"}}),
    "no choices": send({"choices": []}),
    "message is text": send({"choices": [{"message": "hi"}]}),
    "content is a number": send(chat(5)),  # type: ignore[arg-type]
    "log-probabilities of another shape": send(chat(logprobs={"content": [{"top_logprobs": [{"token": "a"}]}]})),
    "hang up": hang_up,
}


@pytest.mark.parametrize("fault", PASSING)
def test_a_passing_fault_is_tried_again_and_then_answered(server: Server, fault: str):
    server.plan = [PASSING[fault], PASSING[fault]]
    waits: list[float] = []
    model = model_of(server, waits)
    assert model(HELLO).text == "fine"
    costs = model.costs()
    assert (costs["questions"], costs["requests"], costs["retries"], costs["failures"]) == (1, 3, 2, 0)
    assert 0.5 <= waits[0] <= 1.0 <= waits[1] <= 2.0  # exponential, with jitter


@pytest.mark.parametrize("fault", ["500", "HTML", "hang up", "short body"])
def test_retries_end(server: Server, fault: str):
    server.plan = [PASSING[fault]] * 9
    model = model_of(server, max_retries=2)
    with pytest.raises(LanguageModelError, match="gave up after 3 tries"):
        model(HELLO)
    assert len(server.bodies) == 3
    assert model.costs()["failures"] == 1


def test_silence_and_drops_end_at_the_timeout(server: Server):
    server.plan = [lambda handler: time.sleep(0.4), drip]
    model = model_of(server, timeout_s=0.15)
    started = time.monotonic()
    assert model(HELLO).text == "fine"
    assert time.monotonic() - started < 3
    assert model.costs()["retries"] == 2


def test_retry_after_is_honoured_as_seconds_and_as_a_date(server: Server):
    date = formatdate(time.time() + 100, usegmt=True)
    server.plan = [send({}, 429, Retry_After="17"), send({}, 503, Retry_After=date), send({}, 429, Retry_After="soon")]
    waits: list[float] = []
    assert model_of(server, waits)(HELLO).text == "fine"
    assert waits[0] == 17
    assert 90 < waits[1] <= 101
    assert waits[2] <= 4


def test_a_wait_beyond_patience_is_a_failure_at_once(server: Server):
    server.plan = [send({}, 429, Retry_After="86400")]
    with pytest.raises(LanguageModelError, match="asked to wait 86400 s"):
        model_of(server)(HELLO)


@pytest.mark.parametrize("status", [400, 403, 413, 422])
def test_a_refused_question_is_never_asked_again(server: Server, status: int):
    server.plan = [send({"error": "too long"}, status)]
    with pytest.raises(LanguageModelError, match=f"HTTP {status}.*too long"):
        model_of(server)(HELLO)
    assert len(server.bodies) == 1


@pytest.mark.parametrize("status", [301, 302, 307, 401, 402, 404])
def test_what_would_fail_every_question_is_an_error_of_the_config(server: Server, status: int):
    server.plan = [send({"error": "no"}, status, Location="http://127.0.0.1:9/v1")]
    with pytest.raises(ConfigError, match=f"HTTP {status}"):
        model_of(server)(HELLO)
    assert len(server.bodies) == 1


def test_used_up_credit_is_not_waited_for(server: Server):
    server.plan = [send({"error": {"code": "insufficient_quota"}}, 429)]
    with pytest.raises(ConfigError, match="pay"):
        model_of(server)(HELLO)


def test_an_endpoint_that_is_down_stops_the_work(server: Server):
    server.plan = [send({}, 500)] * 99
    model = model_of(server, max_retries=0, max_failures=3)
    for _ in range(2):
        with pytest.raises(LanguageModelError):
            model(HELLO)
    with pytest.raises(ConfigError, match="3 questions in a row"):
        model(HELLO)


def test_empty_content_is_an_empty_answer_and_missing_usage_is_counted(server: Server):
    server.plan = [send({"choices": [{"message": {"content": None}, "finish_reason": "content_filter"}]})]
    model = model_of(server)
    assert model(HELLO) == Completion("", "content_filter")
    assert model.costs()["unmetered"] == 1


def test_the_key_is_sent_and_shown_nowhere(server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("TEST_KEY", f"{KEY}\n")
    model = model_of(server, api_key_env="TEST_KEY", mode="record", cache_dir=str(tmp_path))
    model(HELLO)
    assert server.headers[0]["Authorization"] == f"Bearer {KEY}"
    server.plan = [send({"error": f"bad key {KEY}"}, 400)]
    with pytest.raises(LanguageModelError) as raised:
        model([{"role": "user", "content": "more"}])
    stored = "".join(path.read_text() for path in tmp_path.rglob("*.json"))
    for text in (str(raised.value), stored, repr(model.config), repr(vars(model)), str(model.costs())):
        assert KEY not in text


@pytest.mark.parametrize("value", [None, "", " \n", "a\nb", "ключ"])
def test_an_unusable_key_is_refused_before_anything_is_sent(
    server: Server, monkeypatch: pytest.MonkeyPatch, value: str | None
):
    monkeypatch.delenv("TEST_KEY", raising=False)
    if value is not None:
        monkeypatch.setenv("TEST_KEY", value)
    with pytest.raises(ConfigError, match="'TEST_KEY'"):
        model_of(server, api_key_env="TEST_KEY")


@pytest.mark.parametrize(
    "change",
    [
        {"base_url": "file:///etc"},
        {"base_url": "localhost:8000"},
        {"base_url": "http://me:secret@host/v1"},
        {"base_url": "http://host/v1?key=secret"},
        {"base_url": "http://ho st/v1"},
        {"base_url": "http://[::1/v1"},
        {"model": ""},
        {"mode": "playback"},
        {"mode": "record", "cache_dir": None},
        {"timeout_s": 0},
        {"timeout_s": math.nan},
        {"concurrency": 0},
        {"max_retries": -1},
        {"temperature": math.nan},
        {"prompt_price": -1.0},
        {"extra": {"messages": []}},
    ],
    ids=str,
)
def test_a_config_that_cannot_work_is_refused_and_shows_no_secret(change: dict[str, Any]):
    values: dict[str, Any] = {"base_url": "http://host/v1", "model": "m", "mode": "live"}
    with pytest.raises(ConfigError, match="language model: ") as raised:
        LanguageModelConfig(**values | change)
    assert "secret" not in str(raised.value)


def test_the_config_is_read_from_yaml(tmp_path: Path):
    path = tmp_path / "model.yaml"
    path.write_text("base_url: http://host/v1\nmodel: m\nmode: live\nextra: {top_p: 0.9}\n", encoding="utf-8")
    assert load_config(LanguageModelConfig, path).extra == {"top_p": 0.9}


def test_first_token_logprobs_sum_over_case_and_space_and_ask_for_one_token(server: Server, tmp_path: Path):
    tokens = {"yes": 0.5, " Yes": 0.2, "No": 0.1, "maybe": 0.05}
    listed = [{"token": token, "logprob": math.log(p), "bytes": None} for token, p in tokens.items()]
    listed.append({"token": "\u0000", "logprob": -math.inf, "bytes": None})
    server.answer = lambda body: chat("yes", logprobs={"content": [{"token": "yes", "top_logprobs": listed}]})
    for mode in ("record", "replay"):
        model = model_of(server, mode=mode, cache_dir=str(tmp_path))
        found = model.first_token_logprobs(HELLO, ["yes", "no", "unsure"])
        assert {word: math.exp(value) for word, value in found.items()} == pytest.approx(
            {"yes": 0.7, "no": 0.1, "unsure": 0.0}
        )
    (body,) = server.bodies
    assert (body["logprobs"], body["top_logprobs"], body["max_tokens"]) == (True, 20, 1)


@pytest.mark.parametrize(
    ("changes", "sent"),
    [
        ({"max_tokens": None}, {"max_tokens": 1}),
        ({"max_tokens": None, "extra": {"max_completion_tokens": 50}}, {"max_completion_tokens": 1}),
    ],
)
def test_a_first_token_is_all_that_is_paid_for_whatever_the_limit_of_answers(server: Server, changes, sent):
    listed = [{"token": "yes", "logprob": -0.1, "bytes": None}]
    server.answer = lambda body: chat("yes", logprobs={"content": [{"token": "yes", "top_logprobs": listed}]})
    assert model_of(server, **changes).first_tokens(HELLO) == (("yes", -0.1),)
    (body,) = server.bodies
    assert {name: value for name, value in body.items() if name.startswith("max_")} == sent


@pytest.mark.parametrize("logprobs", [None, {}, {"content": None}, {"content": []}])
def test_an_endpoint_without_logprobs_is_a_failure_not_a_zero(server: Server, logprobs: Any):
    server.answer = lambda body: chat("yes", logprobs=logprobs)
    with pytest.raises(AnswerError, match="no log-probabilities"):
        model_of(server).first_token_logprobs(HELLO, ["yes", "no"])


def test_words_that_never_come_first_or_cannot_be_told_apart_are_refused():
    with pytest.raises(AnswerError, match="no answer opens with"):
        word_logprobs([("<think>", -0.1)], ["yes", "no"])
    with pytest.raises(ConfigError, match="differ"):
        word_logprobs([("yes", -0.1)], ["yes", "Yes "])
