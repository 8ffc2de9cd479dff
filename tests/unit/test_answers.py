"""Answers are used whole and checked or not at all; many questions keep their order and their failures."""

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from chat_server import HELLO, Server, chat, model_of, running_server, send

from proofreel.core.errors import ConfigError
from proofreel.data_prep.language.answers import (
    AnswerError,
    Completion,
    LanguageModelError,
    ask,
    json_parser,
    map_ordered,
    parse_json,
)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with running_server() as state:
        yield state


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": 1}', {"a": 1}),
        ('```json\n{"a": [1, 2]}\n```', {"a": [1, 2]}),
        ('Sure! [note] Here it is:\n{"a": {"b": "}"}}\nHope {that} helps.', {"a": {"b": "}"}}),
        ('<think>maybe {"a": 0} or so, longer than that</think>{"a": 1}', {"a": 1}),
        ('maybe {"a": 0, "longer": true}</think>\n{"a": 1}', {"a": 1}),
        ('["x"]', ["x"]),
        ("see [1]: {}  and\n[2, 3, 4]", [2, 3, 4]),
    ],
)
def test_json_is_found_in_fences_and_prose(text: str, value: Any):
    assert parse_json(text) == value


@pytest.mark.parametrize(
    "text", ["", "no", "{not json}", '{"a": [{"b": 1}, {"b": 2}', '{"a": NaN}', "<think>{}", '{"a": 1,}', "[" * 100_000]
)
def test_damaged_json_is_refused_and_no_sound_piece_of_it_is_taken(text: str):
    with pytest.raises(ValueError, match="got"):
        parse_json(text)


@dataclass(frozen=True)
class Fact:
    """What an answer must hold."""

    text: str
    sure: bool = False


def test_answers_are_checked_against_a_dataclass():
    parse = json_parser(Fact)
    assert parse('```{"text": "x", "sure": true}```') == Fact("x", True)
    for wrong in ('{"text": 5}', '{"txt": "x"}', "[1]", "{}", '{"text": null}'):
        with pytest.raises(ValueError, match="answer"):
            parse(wrong)


def test_a_complaint_goes_back_to_the_model_until_an_answer_passes(server: Server):
    server.plan = [send(chat("never")), send(chat('{"text": 5}', finish_reason="length"))]
    server.answer = lambda body: chat('{"text": "good"}')
    assert ask(model_of(server), HELLO, json_parser(Fact)) == Fact("good")
    last = server.bodies[-1]["messages"]
    assert [message["role"] for message in last] == ["user", "assistant", "user", "assistant", "user"]
    assert "no JSON object" in last[2]["content"]
    assert "cut off" in last[4]["content"]
    assert "text must be str, got 5" in last[4]["content"]


def test_answers_that_never_pass_end_in_an_error_with_the_last_complaint():
    asked = []
    with pytest.raises(AnswerError, match=r"no usable answer in 2 attempts.*no JSON"):
        ask(lambda messages: asked.append(messages) or Completion("no"), HELLO, parse_json, attempts=2)
    assert len(asked) == 2


def test_many_questions_keep_their_order_and_their_failures(server: Server):
    def answer(body: dict[str, Any]) -> Any:
        number = int(body["messages"][0]["content"])
        time.sleep(0.02 * (number % 3))
        return chat(f"{number}!") if number % 5 else {"error": "never"}

    server.answer = answer
    model = model_of(server, max_retries=1, max_failures=99)
    questions = [[{"role": "user", "content": str(number)}] for number in range(40)]
    answers = list(map_ordered(model, questions, 8))
    for number, found in enumerate(answers):
        if number % 5:
            assert isinstance(found, Completion)
            assert found.text == f"{number}!"
        else:
            assert isinstance(found, LanguageModelError)
    assert model.costs()["failures"] == 8


def test_workers_and_reading_ahead_are_bounded():
    running, most, read, lock = 0, 0, 0, threading.Lock()

    def work(number: int) -> int:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.001)
        with lock:
            running -= 1
        return number

    def numbers() -> Iterator[int]:
        nonlocal read
        for number in range(200):
            read += 1
            yield number

    for done, number in enumerate(map_ordered(work, numbers(), 3)):
        assert number == done
        assert read <= done + 1 + 12
    assert most <= 3


def test_an_error_of_the_config_ends_the_whole_and_drops_what_waits(server: Server):
    server.plan = [send({}, 401)] * 99
    with pytest.raises(ConfigError, match="key"):
        list(map_ordered(model_of(server), [HELLO] * 50, 2))
    assert len(server.bodies) < 15
