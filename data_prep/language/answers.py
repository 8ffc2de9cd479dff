"""What a language model is asked and answers, whichever model it is: the call, checked answers, many questions at once.

Anything callable as `complete(messages) -> Completion` is a language model here: the client of an endpoint
(`language_model.LanguageModel`), a local model (`models/zero_shot/local.py`), or a function in a test.
"""

from __future__ import annotations

import json
import math
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

from ...core import ConfigError, ProofreelError, from_mapping

Q = TypeVar("Q")
T = TypeVar("T")

Message = Mapping[str, Any]
"""`{"role": "system" | "user" | "assistant", "content": text}`; an endpoint may take a list of parts as content."""


class LanguageModelError(ProofreelError, OSError):
    """One question got no answer. Other questions may still get theirs."""


class AnswerError(LanguageModelError, ValueError):
    """The model answered, and never in a form that can be used."""


@dataclass(frozen=True)
class Completion:
    """One answer.

    Attributes:
        text: what the model wrote; may be empty.
        finish_reason: `stop`, `length` (cut off), or whatever else the endpoint says.
        prompt_tokens, completion_tokens: None where the endpoint does not count.
        first_tokens: (token, natural-log probability) of the likeliest first tokens, if they were asked for.
    """

    text: str
    finish_reason: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    first_tokens: tuple[tuple[str, float], ...] = ()


_OPENING = re.compile(r"[\[{]")
_YES_OR_NO = re.compile(r"\W*(yes|no)\W*(?:\([^()]*\)\W*)?", re.IGNORECASE)
_THOUGHTS = re.compile(r"<think>.*?(?:</think>|\Z)", re.DOTALL)
_JSON_BEGINS = re.compile(r"\{\s*[\"}]|\[\s*[\"\[{]")

Complete = Callable[[Sequence[Message]], Completion]


def ask(complete: Complete, messages: Sequence[Message], parse: Callable[[str], T], attempts: int = 3) -> T:
    """The first answer that `parse` accepts.

    Args:
        complete: the model.
        messages: the conversation so far.
        parse: the answer's text to its value; raises ValueError with what is wrong. The complaint goes back to the
            model, below its answer, and it is asked again.
        attempts: how often the model is asked in all.

    Raises:
        AnswerError: no answer passed; the message holds the last complaint.
        LanguageModelError: from `complete`.
    """
    conversation, complaint = list(messages), ""
    for _ in range(attempts):
        completion = complete(conversation)
        try:
            return parse(completion.text)
        except ValueError as error:
            cut = "the answer was cut off; write less. " if completion.finish_reason == "length" else ""
            complaint = f"{cut}{error}"
        conversation += [
            {"role": "assistant", "content": completion.text},
            {"role": "user", "content": f"That answer cannot be used: {complaint}\nAnswer again, in the same format."},
        ]
    raise AnswerError(
        f"language model: no usable answer in {attempts} attempts, got {complaint}; ask in another way or allow more"
    )


def parse_json(text: str) -> Any:
    """The JSON object or list in an answer: bare, in a code fence, or with prose around it; thoughts are left out.

    Of several, the longest.

    Raises:
        ValueError: there is none, or one is damaged or cut off (a sound piece of a damaged one is never taken).
    """
    text = re.sub(r"<think>.*", "", text.rpartition("</think>")[2], flags=re.DOTALL)
    decoder, best, length, start = json.JSONDecoder(parse_constant=_refuse_constant), None, 0, 0
    while match := _OPENING.search(text, start):
        try:
            value, end = decoder.raw_decode(text, match.start())
        except (ValueError, RecursionError) as error:
            if _JSON_BEGINS.match(text, match.start()):
                raise ValueError(f"the JSON is damaged, got {error}; answer with JSON only, complete") from error
            start = match.end()  # a bracket of the prose
            continue
        if end - match.start() > length:
            best, length = value, end - match.start()
        start = end
    if length == 0:
        raise ValueError(f"no JSON object or list found, got {text.strip()[:80]!r}; answer with JSON only")
    return best


def without_thoughts(text: str) -> str:
    """An answer without what a reasoning model thinks aloud before it, and without white space around."""
    return _THOUGHTS.sub("", text).strip()


def yes_or_no(text: str) -> bool:
    """A verdict of one word: "YES.", "[yes]" and "Yes (clearly)" are yes.

    Raises:
        ValueError: anything else.
    """
    if (match := _YES_OR_NO.fullmatch(without_thoughts(text))) is None:
        raise ValueError(f"the answer is YES or NO and no other word, got {text.strip()[:120]!r}")
    return match[1].lower() == "yes"


def json_parser(cls: type[T]) -> Callable[[str], T]:
    """A `parse` for `ask` that reads JSON into the dataclass `cls`, names and types checked all the way down."""

    def parse(text: str) -> T:
        value = parse_json(text)
        if not isinstance(value, dict):
            raise ValueError(f"the answer must be a JSON object, got a {type(value).__name__}; write {{name: value}}")
        return from_mapping(cls, value, where="answer")

    return parse


def word_logprobs(first_tokens: Iterable[tuple[str, float]], words: Sequence[str]) -> dict[str, float]:
    """Natural-log probability that an answer opens with each of `words`.

    Tokens count for a word if they are equal but for case and white space around; their probabilities are summed.
    -inf for a word that is not among the tokens: it is at most as likely as the least likely of them.

    Raises:
        ConfigError: two of the words are the same but for case and white space.
        AnswerError: none of the words is among the tokens, or there are none.
    """
    keys = {normal_word(word): word for word in words}
    if len(keys) < len(words) or "" in keys:
        raise ConfigError(f"words: must differ in more than case and space, got {list(words)}; choose other words")
    first_tokens = list(first_tokens)
    if not first_tokens:
        raise AnswerError(
            "language model: no log-probabilities in the answer, got none; use an endpoint that gives them"
        )
    by_word: dict[str, list[float]] = {word: [] for word in words}
    for token, logprob in first_tokens:
        if (key := normal_word(token)) in keys:
            by_word[keys[key]].append(logprob)
    if not any(by_word.values()):
        shown = [token for token, _ in first_tokens[:5]]
        raise AnswerError(f"language model: no answer opens with {list(words)}, got {shown}; ask for one word alone")
    return {word: _log_sum(logprobs) for word, logprobs in by_word.items()}


def normal_word(word: str) -> str:
    """A word as tokens are compared with it: without case and white space around."""
    return word.strip().casefold()


def map_ordered(function: Callable[[Q], T], items: Iterable[Q], workers: int) -> Iterator[T | LanguageModelError]:
    """`function` of every item, in threads, in the order of the items.

    An item whose call raises LanguageModelError yields that error in its place; the caller lists it. Any other error
    ends the whole (items not begun are dropped). At most 4 * `workers` items are read ahead.
    """
    items = iter(items)
    pool = ThreadPoolExecutor(workers, thread_name_prefix="language-model")
    try:
        pending = deque(pool.submit(function, item) for item in islice(items, 4 * workers))
        while pending:
            yield _result(pending.popleft())
            pending.extend(pool.submit(function, item) for item in islice(items, 1))
    finally:
        pool.shutdown(cancel_futures=True)


def _result(future: Future[T]) -> T | LanguageModelError:
    try:
        return future.result()
    except LanguageModelError as error:
        return error


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"JSON has no {name}")


def _log_sum(logprobs: Sequence[float]) -> float:
    top = max(logprobs, default=-math.inf)
    return top if top == -math.inf else top + math.log(sum(math.exp(value - top) for value in logprobs))
