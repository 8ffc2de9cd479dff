"""The project's one language-model client: any OpenAI-compatible chat-completions endpoint, with a cache and costs.

    model = LanguageModel(LanguageModelConfig(base_url="http://localhost:8000/v1", model="Qwen2.5-7B-Instruct",
                                              cache_dir="runs/answers"))
    answers = map_ordered(lambda text: ask(model, prompt(text), parse_json), texts, model.config.concurrency)

See `answers` for checked answers and many questions at once. A request that fails for a passing reason is sent again, a
limited number of times. Requests use the standard library only. Redirects are not followed: they would carry the key to
another host.
"""

from __future__ import annotations

import email.utils
import http.client
import json
import math
import os
import random
import ssl
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, NoReturn, get_args

from ...core import ConfigError
from .answers import Completion, LanguageModelError, Message, word_logprobs
from .cache import CompletionsCache, ReplayError, request_key

MAX_ANSWER_BYTES = 32 << 20
LONGEST_BACK_OFF_S = 60.0
LONGEST_RETRY_AFTER_S = 300.0
_STOPPING = {401: "set the right key", 402: "pay or use another endpoint", 404: "check base_url and model"}


class UnavailableError(LanguageModelError):
    """The endpoint kept failing for passing reasons until the retries ran out."""


class _PassingError(Exception):
    """A failure worth another try; `wait_s` is what the endpoint asked to wait."""

    def __init__(self, message: str, wait_s: float = 0.0) -> None:
        super().__init__(message)
        self.wait_s = wait_s


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


@dataclass
class Endpoint:
    """Where requests go, and how patiently.

    Attributes:
        url: of the chat-completions resource.
        key: sent as a bearer token; shown in no message. None: none is sent.
        timeout_s: for one try, from connecting to the last byte.
        max_retries: tries after the first.
        sleep: waits; a test puts its own here.
    """

    url: str
    key: str | None = field(repr=False)
    timeout_s: float
    max_retries: int
    sleep: Callable[[float], None] = time.sleep

    def __post_init__(self) -> None:
        self._opener = urllib.request.build_opener(_NoRedirect)

    def post(self, body: Mapping[str, Any], on_retry: Callable[[], None]) -> Completion:
        """The endpoint's answer.

        408, 429 and 5xx, timeouts, lost connections and answers that are no chat completion are tried again, after
        Retry-After or an exponential back-off with jitter. `on_retry` is called before each.

        Raises:
            UnavailableError: the tries are used up, or Retry-After is longer than anyone should wait.
            LanguageModelError: refused for what was asked (400, 403, 413, 422, ...); other questions may pass.
            ConfigError: refused whatever is asked (wrong key, address, model or certificate, no credit, a redirect).
        """
        for attempt in range(self.max_retries + 1):
            try:
                return self._post_once(body)
            except _PassingError as failure:
                if attempt == self.max_retries or failure.wait_s > LONGEST_RETRY_AFTER_S:
                    wait = f", asked to wait {failure.wait_s:.0f} s" if failure.wait_s else ""
                    raise UnavailableError(
                        f"{self.url}: gave up after {attempt + 1} tries, got {failure}{wait}; try again later"
                    ) from None
                on_retry()
                back_off_s = min(LONGEST_BACK_OFF_S, 2.0**attempt) * random.uniform(0.5, 1.0)
                self.sleep(max(failure.wait_s, back_off_s))
        raise AssertionError("unreachable")

    def _post_once(self, body: Mapping[str, Any]) -> Completion:
        headers = {"Content-Type": "application/json", "Accept": "application/json", "User-Agent": "proofreel"}
        if self.key is not None:
            headers["Authorization"] = f"Bearer {self.key}"
        request = urllib.request.Request(self.url, json.dumps(body).encode(), headers, method="POST")
        deadline = time.monotonic() + self.timeout_s
        try:
            with self._opener.open(request, timeout=self.timeout_s) as response:
                content_type, data = response.headers.get_content_type(), _read_until(response, deadline)
        except urllib.error.HTTPError as error:
            with error:
                self._refused(error, deadline)
        except ssl.SSLCertVerificationError as error:
            raise ConfigError(f"{self.url}: the certificate is not trusted, got {error}; check base_url") from error
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", error)
            if isinstance(reason, ssl.SSLCertVerificationError):
                raise ConfigError(
                    f"{self.url}: the certificate is not trusted, got {reason}; check base_url"
                ) from error
            raise _PassingError(f"{type(reason).__name__}: {reason}") from error
        try:
            return read_completion(json.loads(data))
        except (ValueError, RecursionError) as error:
            shown = self._hidden(data[:200].decode("utf-8", "replace"))
            raise _PassingError(f"{content_type} that is no chat completion ({error}): {shown!r}") from error

    def _refused(self, error: urllib.error.HTTPError, deadline: float) -> NoReturn:
        try:
            body = self._hidden(_read_until(error, deadline)[:2000].decode("utf-8", "replace"))
        except (OSError, http.client.HTTPException):
            body = ""
        message = f"HTTP {error.code}: {body.strip()[:300]!r}"
        if error.code in _STOPPING or 300 <= error.code < 400 or "insufficient_quota" in body:
            remedy = _STOPPING.get(error.code, "pay or use another endpoint" if error.code == 429 else "fix base_url")
            raise ConfigError(f"{self.url}: refuses every request, got {message}; {remedy}") from None
        if error.code in (408, 429) or error.code >= 500:
            raise _PassingError(message, _retry_after_s(error.headers.get("Retry-After"))) from None
        raise LanguageModelError(f"{self.url}: the request was refused, got {message}; change what is asked") from None

    def _hidden(self, text: str) -> str:
        return text.replace(self.key, "<key>") if self.key else text


def _read_until(response: Any, deadline: float) -> bytes:
    """The body, within the deadline even if it comes in drops, and never more than fits in memory."""
    data = bytearray()
    while chunk := response.read1(1 << 16):
        data += chunk
        if len(data) > MAX_ANSWER_BYTES:
            raise OSError(f"the answer is longer than {MAX_ANSWER_BYTES} bytes")
        if time.monotonic() > deadline:
            raise TimeoutError("the answer did not end in time")
    return bytes(data)


def _retry_after_s(value: str | None) -> float:
    """Seconds a Retry-After header asks for, given as a number or a date; 0 where it says nothing sensible."""
    if value is None:
        return 0.0
    try:
        return max(0.0, float(value)) if value.strip().replace(".", "", 1).isdigit() else _until(value)
    except (ValueError, OverflowError):
        return 0.0


def _until(date: str) -> float:
    return max(0.0, email.utils.parsedate_to_datetime(date).timestamp() - time.time())


def read_completion(answer: Any) -> Completion:
    """The completion in an endpoint's JSON answer.

    Raises:
        ValueError: it is none, e.g. an error object sent with status 200.
    """
    try:
        choice = answer["choices"][0]
        text, reason = choice["message"].get("content"), choice.get("finish_reason")
        usage = answer.get("usage") or {}
        counts = [usage.get(name) for name in ("prompt_tokens", "completion_tokens")]
        tokens = _first_tokens(choice.get("logprobs"))
    except (LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"no choices[0].message: {type(error).__name__}: {error}") from error
    if not isinstance(text, str | None):
        raise ValueError(f"content must be text, got {type(text).__name__}")
    prompt, completion = (count if isinstance(count, int) else None for count in counts)
    return Completion(text or "", None if reason is None else str(reason), prompt, completion, tokens)


def _first_tokens(logprobs: Any) -> tuple[tuple[str, float], ...]:
    listed = ((logprobs or {}).get("content") or [{}])[0].get("top_logprobs") or []
    tokens = ((str(item["token"]), float(item["logprob"])) for item in listed)
    return tuple((token, logprob) for token, logprob in tokens if math.isfinite(logprob))


Mode = Literal["record", "replay", "live"]

TOP_LOGPROBS = 20
"""The most first tokens an endpoint lists."""
_PER_REQUEST = ("model", "messages", "logprobs", "top_logprobs", "stream", "n")


@dataclass(frozen=True)
class LanguageModelConfig:
    """Which model is asked, how, and what it costs.

    Attributes:
        base_url: of the endpoint, up to and with its version: `https://host/v1`.
        model: its name there.
        api_key_env: the environment variable that holds the key; None where none is needed. The key itself is never
            stored, shown or cached.
        temperature, max_tokens, seed: sent as they are; None: not sent.
        extra: more members of the request body, e.g. {"reasoning_effort": "low"}.
        timeout_s: for one try.
        max_retries: tries after the first, for passing faults.
        max_failures: questions in a row that the endpoint may fail to answer before it counts as down.
        concurrency: questions under way at once, for `map_ordered`.
        cache_dir: where answers are kept.
        mode: `record` answers from the cache, and asks and stores what is not there; `replay` answers from the cache
            only; `live` knows no cache.
        prompt_price, completion_price: money per million tokens; 0 where nothing is paid.
    """

    base_url: str
    model: str
    api_key_env: str | None = None
    temperature: float | None = 0.0
    max_tokens: int | None = 1024
    seed: int | None = 0
    extra: dict[str, Any] = field(default_factory=dict)
    timeout_s: float = 120.0
    max_retries: int = 5
    max_failures: int = 10
    concurrency: int = 8
    cache_dir: str | None = None
    mode: Mode = "record"
    prompt_price: float = 0.0
    completion_price: float = 0.0

    def __post_init__(self) -> None:
        """Refuse what cannot work, before anything is asked."""
        for passes, problem in self._checks():
            if not passes:
                raise ConfigError(f"language model: {problem}; fix the config")

    def _checks(self) -> Iterator[tuple[bool, str]]:
        plain = self.base_url.isascii() and self.base_url.isprintable() and not set(self.base_url) & set(" []")
        yield plain, "base_url must be plain ASCII without spaces or brackets, got another"
        url = urllib.parse.urlsplit(self.base_url)
        is_http = url.scheme in ("http", "https") and bool(url.hostname)
        yield is_http, f"base_url must read http(s)://host/..., got {url.scheme}://{url.hostname}"
        yield not (url.username or url.password or url.query), "base_url must hold no password and no query, got one"
        yield bool(self.model), f"model must be a name, got {self.model!r}"
        yield self.mode in get_args(Mode), f"mode must be one of {list(get_args(Mode))}, got {self.mode!r}"
        yield self.mode == "live" or bool(self.cache_dir), f"mode {self.mode} keeps answers, got no cache_dir"
        fixed = sorted(set(self.extra) & set(_PER_REQUEST))
        yield not fixed, f"extra must leave alone what every request sets itself, got {fixed}"
        for name in ("timeout_s", "concurrency", "max_failures"):
            yield getattr(self, name) > 0, f"{name} must be positive, got {getattr(self, name)}"
        for name in ("temperature", "max_retries", "prompt_price", "completion_price"):
            value = getattr(self, name)
            yield value is None or 0 <= value < math.inf, f"{name} must be >= 0, got {value}"


class LanguageModel:
    """A model behind an endpoint: callable as `complete(messages) -> Completion`, from any number of threads."""

    def __init__(self, config: LanguageModelConfig, sleep: Callable[[float], None] = time.sleep) -> None:
        """Raises ConfigError if the key's environment variable is unset (replay mode needs no key)."""
        self.config = config
        self.cache = None if config.mode == "live" else CompletionsCache(config.cache_dir or "")
        key = None if config.mode == "replay" else _key_of(config.api_key_env)
        url = f"{config.base_url.rstrip('/')}/chat/completions"
        self._endpoint = Endpoint(url, key, config.timeout_s, config.max_retries, sleep)
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._failures_in_row = 0
        self._under_way: dict[str, tuple[threading.Lock, int]] = {}

    def __call__(self, messages: Sequence[Message]) -> Completion:
        """The model's answer to a conversation.

        Raises:
            LanguageModelError: this question got no answer.
            ConfigError: no question will get one (wrong key, address or model, or the endpoint is down).
            ReplayError: replay mode, and the answer was never stored.
        """
        return self._answer(self._request(messages))

    def first_token_logprobs(self, messages: Sequence[Message], words: Sequence[str]) -> dict[str, float]:
        """Natural-log probability that the answer opens with each of `words`; see `answers.word_logprobs`.

        Only the 20 likeliest first tokens are known: -inf for a word below them.

        Raises:
            AnswerError: the endpoint gives no log-probabilities, or no word is among the tokens.
        """
        return word_logprobs(self.first_tokens(messages), words)

    def first_tokens(self, messages: Sequence[Message]) -> tuple[tuple[str, float], ...]:
        """(token, natural-log probability) of the 20 likeliest first tokens; none if the endpoint gives none."""
        request = self._request(messages) | {"logprobs": True, "top_logprobs": TOP_LOGPROBS}
        limits = [name for name in ("max_tokens", "max_completion_tokens") if name in request]
        return self._answer(request | dict.fromkeys(limits or ["max_tokens"], 1)).first_tokens

    def costs(self) -> dict[str, int | float]:
        """What was asked and paid so far, for a manifest.

        `requests` counts everything sent, `retries` those of them that repeat one, `failures` questions without an
        answer, `unmetered` answers whose tokens the endpoint did not count, `money` what the tokens cost, and
        `money_saved` what the answers from the cache would have cost.
        """
        names = ("questions", "requests", "cache_hits", "retries", "failures", "unmetered")
        with self._lock:
            counts = self._counts.copy()
        tokens = ("prompt_tokens", "completion_tokens", "cached_prompt_tokens", "cached_completion_tokens")
        return {name: counts[name] for name in (*names, *tokens)} | {
            "money": self._price(counts, ""),
            "money_saved": self._price(counts, "cached_"),
        }

    def _price(self, counts: Counter[str], prefix: str) -> float:
        prompt, completion = counts[f"{prefix}prompt_tokens"], counts[f"{prefix}completion_tokens"]
        return (prompt * self.config.prompt_price + completion * self.config.completion_price) / 1e6

    def _request(self, messages: Sequence[Message]) -> dict[str, Any]:
        config = self.config
        sampling = {"temperature": config.temperature, "max_tokens": config.max_tokens, "seed": config.seed}
        sent = {name: value for name, value in sampling.items() if value is not None}
        return {"model": config.model, "messages": [dict(message) for message in messages], **sent, **config.extra}

    def _answer(self, request: dict[str, Any]) -> Completion:
        self._count(questions=1)
        key = request_key(request)
        with self._alone(key):  # the same question from two threads is paid once
            if self.cache is not None and (stored := self.cache.read(request)):
                self._count(cache_hits=1, **_tokens(stored, "cached_"))
                return stored
            if self.config.mode == "replay":
                raise ReplayError(self._replay_message(key, request))
            completion = self._ask_endpoint(request)
            return completion if self.cache is None else self.cache.write(request, completion)

    def _ask_endpoint(self, request: dict[str, Any]) -> Completion:
        self._count(requests=1)
        try:
            completion = self._endpoint.post(request, lambda: self._count(requests=1, retries=1))
        except LanguageModelError as error:
            self._count(failures=1)
            with self._lock:
                self._failures_in_row = self._failures_in_row + 1 if isinstance(error, UnavailableError) else 0
                down = self._failures_in_row >= self.config.max_failures
            if down:
                raise ConfigError(
                    f"language model: {self.config.max_failures} questions in a row failed; {error}"
                ) from error
            raise
        with self._lock:
            self._failures_in_row = 0
        self._count(unmetered=int(completion.prompt_tokens is None), **_tokens(completion, ""))
        return completion

    def _replay_message(self, key: str, request: dict[str, Any]) -> str:
        assert self.cache is not None
        path, last = self.cache.path(request), str(request["messages"][-1].get("content"))[:120]
        what = "the stored answer is damaged" if path.exists() else "no stored answer"
        return (
            f"{path}: {what} (replay mode), got request {key[:12]} of {request['model']!r} ending in {last!r}; "
            "run once with mode: record"
        )

    def _count(self, **counts: int) -> None:
        with self._lock:
            self._counts.update(counts)

    @contextmanager
    def _alone(self, key: str) -> Iterator[None]:
        with self._lock:
            lock, waiting = self._under_way.get(key, (threading.Lock(), 0))
            self._under_way[key] = (lock, waiting + 1)
        try:
            with lock:
                yield
        finally:
            with self._lock:
                lock, waiting = self._under_way.pop(key)
                if waiting > 1:
                    self._under_way[key] = (lock, waiting - 1)


def _tokens(completion: Completion, prefix: str) -> dict[str, int]:
    return {
        f"{prefix}prompt_tokens": completion.prompt_tokens or 0,
        f"{prefix}completion_tokens": completion.completion_tokens or 0,
    }


def _key_of(variable: str | None) -> str | None:
    """The key in an environment variable, None if none is named."""
    if variable is None:
        return None
    key = os.environ.get(variable, "").strip()
    if not key or not key.isascii() or not key.isprintable():
        raise ConfigError(f"api_key_env: no usable key in the environment, got variable {variable!r}; export it")
    return key
