"""Post one JSON request to a chat-completions endpoint, again if it fails for a passing reason, never for ever.

Standard library only. Redirects are not followed: they would carry the key to another host.
"""

from __future__ import annotations

import email.utils
import http.client
import json
import math
import random
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

from ...core.errors import ConfigError
from .answers import Completion, LanguageModelError

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
                    asked = f", asked to wait {failure.wait_s:.0f} s" if failure.wait_s else ""
                    raise UnavailableError(
                        f"{self.url}: gave up after {attempt + 1} tries, got {failure}{asked}; try again later"
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
            said = self._hidden(_read_until(error, deadline)[:2000].decode("utf-8", "replace"))
        except (OSError, http.client.HTTPException):
            said = ""
        message = f"HTTP {error.code}: {said.strip()[:300]!r}"
        if error.code in _STOPPING or 300 <= error.code < 400 or "insufficient_quota" in said:
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
