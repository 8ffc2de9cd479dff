"""Clients of `proofreel serve`, blocking and asyncio: the verdicts that `Verifier.score` gives, from another machine.

    with Client("http://127.0.0.1:8000") as client:
        client.score(["Ingredient is carrot."], VideoSegment("clip.mp4", 0.0, 2.0))

A busy server is asked again when it says so; a lost connection and a refusal are errors that say what happened.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any

from proofreel.core import ConfigError, Evidence, ProofreelError, evidence_to_dict, pip_line
from proofreel.models.decision import Verdict, failed

try:
    import httpx
    from tenacity import AsyncRetrying, RetryCallState, Retrying, retry_if_result, stop_after_attempt
except ImportError as error:
    raise ConfigError(
        f"client: needs packages that are not installed, got no {error.name}; run {pip_line('httpx')}"
    ) from error

BUSY = (429, 503)
LOST = (httpx.NetworkError, httpx.RemoteProtocolError)
MOST_WAIT_S = 30.0
LOST_WAIT_S = 0.2


class ServerRefusedError(ProofreelError, RuntimeError):
    """The server answered with an error; `status` and `kind` are its own."""

    def __init__(self, message: str, status: int, kind: str) -> None:
        super().__init__(message)
        self.status, self.kind = status, kind


class ServerLostError(ProofreelError, ConnectionError):
    """No answer: the server cannot be reached, has ended, or took too long. The claims may have been scored or not."""


class _Asking:
    """What both clients share: what is sent, how an answer is read, and how long to wait before asking again."""

    _connections: Any
    _http: Any

    def __init__(
        self,
        url: str,
        token: str | None = None,
        timeout_s: float = 180.0,
        retries: int = 8,
        lost_retries: int = 0,
    ) -> None:
        """Make a client; nothing is sent yet.

        Args:
            url: of the server, without a path.
            token: if the server asks for one.
            timeout_s: seconds to wait for one answer.
            retries: how often a request is sent again to a server that says it is busy (429) or shutting down (503).
            lost_retries: how often it is sent again, over a new connection, after its connection was lost, as when one
                of several processes behind the address ends. No question does harm if it is answered twice.
        """
        self.url, self.retries, self.lost_retries = url.rstrip("/"), retries, lost_retries
        self.n_lost = 0  # connections that were lost so far
        settings: dict[str, Any] = {
            "base_url": self.url,
            "headers": {} if token is None else {"Authorization": f"Bearer {token}"},
            "timeout": httpx.Timeout(timeout_s, connect=min(timeout_s, 10.0)),
            "trust_env": False,
        }
        self._http = self._connections(**settings)
        self._tries: dict[str, Any] = {
            "retry": retry_if_result(lambda response: response.status_code in BUSY),
            "stop": stop_after_attempt(retries + 1),
            "wait": _wait_s,
            "retry_error_callback": lambda tries: tries.outcome.result(),  # the last answer is read as it is
        }

    def read(self, response: httpx.Response) -> Any:
        """The JSON of an answer; `ServerRefusedError` with the server's own words for one that is an error."""
        try:
            content = response.json()
        except ValueError:
            content = None
        if response.is_success and content is not None:
            return content
        error = content.get("error") if isinstance(content, dict) else None
        if not isinstance(error, dict):
            error = {"message": f"{self.url}: no answer of this kind of server, got status {response.status_code}"}
        raise ServerRefusedError(str(error.get("message")), response.status_code, str(error.get("type", "error")))

    def lost(self, error: Exception) -> ServerLostError:
        """The error to raise for one of the connection."""
        got = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        return ServerLostError(f"{self.url}: no answer from the server, got {got}; see whether it still runs")

    def may_ask_again(self, outcome: Exception | httpx.Response, tries: int) -> bool:
        """Whether a request that was sent `tries` times is sent once more.

        It is after its connection was lost, and after a failure that is not in the server's own words: that of what
        stands before it, as Ray's proxy, whose process behind it has ended.
        """
        lost = isinstance(outcome, LOST) or (isinstance(outcome, httpx.Response) and _is_of_a_gateway(outcome))
        self.n_lost += lost
        return lost and tries <= self.lost_retries


class Client(_Asking):
    """The blocking client. Use one per thread, or share it: its connections are pooled."""

    _connections = httpx.Client
    _http: httpx.Client

    def score(
        self,
        claims: Sequence[str],
        evidence: Evidence | tuple[Evidence, ...],
        contexts: Sequence[str | None] | None = None,
        *,
        prior: float | None = None,
        operating_point: str | None = None,
    ) -> list[Verdict]:
        """As `Verifier.score`; paths are relative to the server's media root.

        Raises:
            ServerRefusedError: with the server's reason, such as evidence that cannot be read.
            ServerLostError: no answer.
        """
        return _verdicts(self.ask("POST", "/score", _question(claims, evidence, contexts, prior, operating_point)))

    def attribute(self, claim: str, **given: Any) -> dict[str, Any]:
        """The answer of `POST /attribute`; `given` are its other keys: citations, video, transcript, context, ..."""
        return self.ask("POST", "/attribute", {"claim": claim, **given})

    def upload(self, file: str | Path) -> str:
        """Send a video or image; the name that evidence calls it by until the server ends or needs the room."""
        return self._send("POST", "/upload", content=Path(file).read_bytes())["path"]

    def info(self) -> dict[str, Any]:
        """Fingerprint, threshold, sampling and limits of the server."""
        return self.ask("GET", "/info")

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """The JSON answer of any route."""
        return self._send(method, path, json=body)

    def _send(self, method: str, path: str, **body: Any) -> Any:
        for tries in count(1):
            try:
                answer = Retrying(**self._tries)(self._http.request, method, path, **body)
                if not self.may_ask_again(answer, tries):
                    return self.read(answer)
            except (httpx.TransportError, httpx.InvalidURL) as error:
                if not self.may_ask_again(error, tries):
                    raise self.lost(error) from error
            time.sleep(tries * LOST_WAIT_S)
        raise AssertionError

    def close(self) -> None:
        """Close its connections."""
        self._http.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


class AsyncClient(_Asking):
    """The asyncio client; share one among tasks."""

    _connections = httpx.AsyncClient
    _http: httpx.AsyncClient

    async def score(
        self,
        claims: Sequence[str],
        evidence: Evidence | tuple[Evidence, ...],
        contexts: Sequence[str | None] | None = None,
        *,
        prior: float | None = None,
        operating_point: str | None = None,
    ) -> list[Verdict]:
        """As `Client.score`."""
        return _verdicts(
            await self.ask("POST", "/score", _question(claims, evidence, contexts, prior, operating_point))
        )

    async def attribute(self, claim: str, **given: Any) -> dict[str, Any]:
        """As `Client.attribute`."""
        return await self.ask("POST", "/attribute", {"claim": claim, **given})

    async def upload(self, file: str | Path) -> str:
        """As `Client.upload`."""
        content = await asyncio.to_thread(Path(file).read_bytes)
        return (await self._send("POST", "/upload", content=content))["path"]

    async def info(self) -> dict[str, Any]:
        """As `Client.info`."""
        return await self.ask("GET", "/info")

    async def ask(self, method: str, path: str, body: Any = None) -> Any:
        """As `Client.ask`."""
        return await self._send(method, path, json=body)

    async def _send(self, method: str, path: str, **body: Any) -> Any:
        for tries in count(1):
            try:
                answer = await AsyncRetrying(**self._tries)(self._http.request, method, path, **body)
                if not self.may_ask_again(answer, tries):
                    return self.read(answer)
            except (httpx.TransportError, httpx.InvalidURL) as error:
                if not self.may_ask_again(error, tries):
                    raise self.lost(error) from error
            await asyncio.sleep(tries * LOST_WAIT_S)
        raise AssertionError

    async def close(self) -> None:
        """Close its connections."""
        await self._http.aclose()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()


def _is_of_a_gateway(response: httpx.Response) -> bool:
    return response.status_code >= 500 and not response.headers.get("Content-Type", "").startswith("application/json")


def _wait_s(tries: RetryCallState) -> float:
    """Seconds until the next try. Random, to spread the clients out, also where the server says how long."""
    assert tries.outcome is not None
    header = tries.outcome.result().headers.get("Retry-After", "")
    least_s = float(header) if header.isdecimal() else 0.25 * 2 ** min(tries.attempt_number - 1, 10)
    return min(MOST_WAIT_S, least_s * random.uniform(0.75, 1.25))


def _question(
    claims: Sequence[str],
    evidence: Evidence | tuple[Evidence, ...],
    contexts: Sequence[str | None] | None,
    prior: float | None,
    operating_point: str | None,
) -> dict[str, Any]:
    if isinstance(claims, str):
        raise TypeError(f"claims: must be a list of sentences, got the string {claims!r}; wrap it in a list")
    pieces = [evidence_to_dict(e) for e in (evidence if isinstance(evidence, tuple) else (evidence,))]
    for piece in pieces:
        if piece.pop("absent", False):
            raise ConfigError(f"{piece['path']}: segment is marked absent, got absent=True; it cannot be judged")
        _check_finite(piece)
    body = {"claims": list(claims), "evidence": pieces, "prior": prior, "operating_point": operating_point}
    return body | ({} if contexts is None else {"contexts": list(contexts)})


def _check_finite(piece: dict[str, Any]) -> None:
    for name, value in piece.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise ConfigError(f"{name}: must be a finite number of seconds, got {value}; fix the time")


def _verdicts(answer: dict[str, Any]) -> list[Verdict]:
    return [
        failed(v["error"], v.get("note"))
        if v["error"] is not None
        else Verdict(v["p_supported"], v["margin"], v["label"], None, v.get("answer"), v.get("note"))
        for v in answer["verdicts"]
    ]
