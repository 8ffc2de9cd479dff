"""What a request passes before its route: shutdown, host, origin, token, size and slowness of its body.

Requests are counted here. A page of another site can make a browser send requests to this machine. It cannot read the
answers as long as their host and origin are checked: a name that it made lead here (DNS rebinding) is not among the
trusted hosts, and a script of its own says where it comes from.

What a server counts, in Prometheus's text format.
"""

from __future__ import annotations

import asyncio
import hmac
import os
import time
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .settings import KINDS, LOCAL_HOSTS, RefusedError, Settings, body_of, brief

SHARED_COUNTS = "PROMETHEUS_MULTIPROC_DIR"  # of the environment

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class Measures:
    """The counters of one server; where `SHARED_COUNTS` names a folder, those of all that count there, together."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._shared = os.environ.get(SHARED_COUNTS)  # as prometheus_client itself decides, when it is imported
        if self._shared is None:
            ProcessCollector(registry=self.registry)
        of = self.registry
        self.requests = Counter("proofreel_requests", "Requests answered.", ["route", "status"], registry=of)
        self.seconds = Histogram("proofreel_request_seconds", "Per request.", ["route"], buckets=SECONDS, registry=of)
        self.claims = Counter("proofreel_claims", "Claims answered.", ["outcome"], registry=of)
        self.failures = Counter("proofreel_failures", "Refused requests and failed claims.", ["reason"], registry=of)
        self.queue = Gauge(
            "proofreel_queue_claims", "Claims that wait or are being scored.", registry=of, multiprocess_mode="livesum"
        )
        self.in_flight = Gauge(
            "proofreel_in_flight_requests", "Requests being answered.", registry=of, multiprocess_mode="livesum"
        )
        self.batch_claims = Histogram("proofreel_batch_claims", "Claims of a batch.", buckets=SIZES, registry=of)
        self.batch_evidence = Histogram("proofreel_batch_evidence", "Evidences of a batch.", buckets=SIZES, registry=of)
        self.batch_seconds = Histogram("proofreel_batch_seconds", "Seconds of a batch.", buckets=SECONDS, registry=of)

    def text(self) -> bytes:
        """Everything, as Prometheus reads it."""
        if self._shared is None:
            return generate_latest(self.registry)
        everyones = CollectorRegistry()
        MultiProcessCollector(everyones, self._shared)
        return generate_latest(everyones)


OPEN = ("/", "/healthz", "/media")  # the page asks for the token itself; probes carry none; media checks its own key
STREAMED = ("/upload",)  # its body is written as it comes, within limits of its own
PROBED = ("/healthz",)  # a probe may call this machine by any name; it learns nothing
ALWAYS = ("/healthz", "/metrics")  # answered during shutdown, too


class Guard:
    """ASGI middleware. `draining` refuses new requests; `in_flight` counts those being answered."""

    def __init__(self, app: ASGIApp, limits: Settings, measures: Measures, routes: frozenset[str]) -> None:
        """`routes` are the names that requests are counted under; a stranger's path is counted as `other`."""
        self._app, self._limits, self._measures, self._routes = app, limits, measures, routes
        hosts = list(dict.fromkeys((*LOCAL_HOSTS, *limits.hosts)))
        self._trusted = TrustedHostMiddleware(_passed, hosts, www_redirect=False)
        self._named_hosts = " and ".join(hosts)
        self.draining, self.in_flight = False, 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or answer it with its refusal."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status = time.monotonic(), 500

        async def counted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                if self.draining:
                    message = {**message, "headers": [*message["headers"], (b"connection", b"close")]}
            await send(message)

        self._count(1)
        try:
            await self._pass(scope, receive, counted)
        finally:
            self._count(-1)
            route = scope["path"] if scope["path"] in self._routes else "other"
            self._measures.requests.labels(route, str(status)).inc()
            self._measures.seconds.labels(route).observe(time.monotonic() - began)
            if status >= 400:
                self._measures.failures.labels(KINDS.get(status, "error")).inc()

    def _count(self, n: int) -> None:
        self.in_flight += n
        self._measures.in_flight.set(self.in_flight)

    async def _pass(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._check(scope, receive)
            if scope["path"] in STREAMED:
                self._check_length(scope, self._limits.max_upload)
                await self._app(scope, receive, send)
                return
            body = await self._body(scope, receive)
        except RefusedError as refusal:
            headers = refusal.headers | {"Connection": "close"}  # the server does not wait for the rest of the body
            await JSONResponse(body_of(refusal), refusal.status, headers)(scope, receive, send)
            return
        given = False

        async def replay() -> Message:
            nonlocal given
            if given:
                return await receive()
            given = True
            return {"type": "http.request", "body": body, "more_body": False}

        await self._app(scope, replay, send)

    async def _check(self, scope: Scope, receive: Receive) -> None:
        if self.draining and scope["path"] not in ALWAYS:
            raise RefusedError(503, "server: shutting down, got a new request; ask another server", 5)
        if scope["path"] not in PROBED:
            await self._check_host(scope, receive)
            _check_origin(scope)
        if self._limits.token is not None and scope["path"] not in OPEN:
            given = _header(scope, b"authorization") or b""
            if not hmac.compare_digest(given, b"Bearer " + self._limits.token.encode()):
                token = "another one" if given else "none"
                raise RefusedError(
                    401, f"token: this server asks for one, got {token}; send Authorization: Bearer TOKEN"
                )

    async def _check_host(self, scope: Scope, receive: Receive) -> None:
        """Starlette says whether the host is trusted; the refusal is worded here."""
        refused = False

        async def refuse(message: Message) -> None:
            nonlocal refused
            refused = True

        await self._trusted(scope, receive, refuse)
        if refused:
            given = (_header(scope, b"host") or b"").decode("latin-1")
            raise RefusedError(
                400, f"Host: this server is {self._named_hosts}, got {brief(given)}; start it with --allowed-host NAME"
            )

    def _check_length(self, scope: Scope, most: int) -> None:
        length = _header(scope, b"content-length")
        if length is not None and length.isdigit() and int(length[:20]) > most:
            raise RefusedError(
                413, f"body: too large, got {int(length[:20])} bytes of at most {most}; send less at once"
            )

    async def _body(self, scope: Scope, receive: Receive) -> bytes:
        most = self._limits.max_body
        self._check_length(scope, most)
        body = bytearray()
        try:
            async with asyncio.timeout(self._limits.body_s):
                while True:
                    message: Any = await receive()
                    if message["type"] == "http.disconnect":
                        raise RefusedError(400, "body: connection closed, got a part of it; send it whole")
                    body += message.get("body", b"")
                    if len(body) > most:
                        raise RefusedError(413, f"body: too large, got more than {most} bytes; send less at once")
                    if not message.get("more_body"):
                        return bytes(body)
        except TimeoutError:
            limit = f"{self._limits.body_s:g} s"
            raise RefusedError(
                408, f"body: did not arrive in time, got a part of it in {limit}; send it faster"
            ) from None


async def _passed(scope: Scope, receive: Receive, send: Send) -> None:
    """Stands behind the check of the host, which is asked for its opinion only."""


def _check_origin(scope: Scope) -> None:
    """`RefusedError` for what a browser sends in the name of another site's page. Links to a page may be followed."""
    origin = _header(scope, b"origin")
    if origin is not None:
        host = (_header(scope, b"host") or b"").lower()
        scheme, _, name = origin.lower().partition(b"://")
        port = {b"http": b":80", b"https": b":443"}.get(scheme, b"")
        if not name or name.removesuffix(port) != host.removesuffix(port):
            got = brief(origin.decode("latin-1"))
            raise RefusedError(403, f"Origin: another site's page asks, got {got}; open this server's own page")
    site, mode = _header(scope, b"sec-fetch-site"), _header(scope, b"sec-fetch-mode")
    if site in (b"cross-site", b"same-site") and not (mode == b"navigate" and scope["method"] == "GET"):
        got = brief(site.decode("latin-1"))
        raise RefusedError(403, f"Sec-Fetch-Site: another site's page asks, got {got}; open this server's own page")


def _header(scope: Scope, name: bytes) -> bytes | None:
    return next((value for key, value in scope["headers"] if key == name), None)
