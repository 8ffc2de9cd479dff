"""The routes, as one ASGI application around a loaded verifier.

Apart from launch.py, which loads the verifier and starts a server: tests and other servers take the application alone.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

import proofreel
from proofreel.core import ProofreelError

from .chat import complete
from .media import HangingFiles, Library, MediaPool
from .media_root import MediaRoot
from .middleware import Guard, Measures
from .page import Pictures, page
from .queue import Desk
from .schemas import AttributeAnswer, AttributeRequest, ChatRequest, ErrorAnswer, ScoreAnswer, ScoreRequest
from .score import Office, attribute
from .settings import RefusedError, Settings, as_refusal, body_of

log = logging.getLogger("proofreel.server")

REFUSALS: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorAnswer} for status in (400, 401, 403, 404, 408, 413, 422, 429, 500, 503, 504)
}


class Service:
    """One verifier, what serves it, and the ASGI application `app`."""

    def __init__(self, verifier: Any, root: MediaRoot, library: Library | None, limits: Settings) -> None:
        self.verifier, self.root, self.limits, self.measures = verifier, root, limits, Measures()
        hanging = HangingFiles()
        self.pools = [MediaPool(n, limits.decode_s, hanging) for n in (limits.readers, 1)]
        self.desk = Desk(verifier, self.pools[0], library, limits, self.measures)
        self.office = Office(verifier, self.desk, root, limits)
        self.pictures = Pictures(root, library, self.pools[1])
        routes = self._routes()
        names = frozenset(getattr(route, "path", "") for route in routes.routes)
        self.app = Guard(routes, limits, self.measures, names)

    def close(self) -> None:
        """Answer what was taken, then end threads and children."""
        self.desk.close(self.limits.timeout_s)
        for pool in self.pools:
            pool.close()

    def _routes(self) -> FastAPI:
        @asynccontextmanager
        async def lifespan(_: FastAPI) -> AsyncIterator[None]:
            yield
            await run_in_threadpool(self.close)

        description = (
            "Is a claim supported by its evidence? Errors: `<where>: <what is wrong>, got <value>; <what to do>`."
        )
        api = FastAPI(title="Proofreel", description=description, version=proofreel.__version__, lifespan=lifespan)
        for kind in (RefusedError, ProofreelError, HTTPException, RequestValidationError, Exception):
            api.add_exception_handler(kind, self._refuse)
        self._add_verdicts(api)
        self._add_state(api)
        self._add_page(api)
        return api

    def _add_verdicts(self, api: FastAPI) -> None:
        @api.post("/score", responses=REFUSALS, summary="Verdicts on K claims about one evidence")
        async def score(request: ScoreRequest) -> ScoreAnswer:
            answer = await self.office.score(request)
            self._count([verdict.error for verdict in answer.verdicts])
            return answer

        @api.post("/attribute", responses=REFUSALS, summary="Do a claim's citations support it?")
        async def attributed(request: AttributeRequest) -> AttributeAnswer:
            answer = await attribute(self.office, request)
            self._count([answer.recall.error])
            return answer

        @api.post("/v1/chat/completions", responses=REFUSALS, summary="The same question in the form of OpenAI's API")
        async def chat(request: ChatRequest) -> dict[str, Any]:
            answer = await complete(self.office, request)
            self._count([None])
            return answer

        @api.get("/v1/models", responses=REFUSALS, summary="The one model there is")
        async def models() -> dict[str, Any]:
            model = {"id": self.verifier.fingerprint, "object": "model", "created": 0, "owned_by": "proofreel"}
            return {"object": "list", "data": [model]}

    def _add_state(self, api: FastAPI) -> None:
        @api.get("/healthz", summary="200 while requests are taken; 503 while shutting down or when the network fails")
        async def healthz() -> JSONResponse:
            draining, healthy = self.app.draining, self.desk.healthy
            state = {"live": True, "ready": healthy and not draining, "draining": draining, "network": healthy}
            return JSONResponse(state, 200 if state["ready"] else 503)

        @api.get("/metrics", summary="Counters for Prometheus")
        async def metrics() -> Response:
            return Response(self.measures.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

        @api.get("/info", responses=REFUSALS, summary="What is served, and its limits")
        async def info() -> dict[str, Any]:
            point = self.office.judge().point
            sampling, limits = self.verifier.encoder.sampling, self.limits
            return {
                "fingerprint": self.verifier.fingerprint,
                "operating_point": point and point.name,
                "threshold": point and point.threshold,
                "notes": list(self.verifier.notes),
                "sampling": vars(sampling),
                "limits": {"max_claims": limits.max_claims, "max_span_s": limits.max_span_s},
            }

    def _add_page(self, api: FastAPI) -> None:
        @api.get("/", include_in_schema=False)
        async def index() -> Response:
            return page()

        @api.get("/clips", responses=REFUSALS, summary="Videos below the media root")
        async def clips() -> dict[str, Any]:
            return await self.pictures.clips()

        @api.get("/clip", responses=REFUSALS, summary="Length and size of a video")
        async def clip(path: str) -> dict[str, Any]:
            return await self.pictures.clip(path)

        @api.get("/thumbnail", responses=REFUSALS, summary="A JPEG from the middle of a video")
        async def thumbnail(path: str) -> Response:
            return Response(await self.pictures.thumbnail(path), media_type="image/jpeg")

        @api.get("/frames", responses=REFUSALS, summary="The frames of a span that the verifier looks at")
        async def frames(path: str, start_s: float = 0.0, end_s: float | None = None) -> dict[str, Any]:
            return await self.pictures.frames(path, start_s, end_s)

    def _count(self, errors: list[str | None]) -> None:
        failed = sum(error is not None for error in errors)
        self.measures.claims.labels("scored").inc(len(errors) - failed)
        self.measures.claims.labels("failed").inc(failed)
        if failed:
            self.measures.failures.labels("claim").inc(failed)

    async def _refuse(self, request: Request, error: Exception) -> JSONResponse:
        if isinstance(error, RequestValidationError):
            refusal = _invalid(error)
        elif isinstance(error, HTTPException):
            target = f"{request.method} {request.url.path[:100]}"
            refusal = RefusedError(error.status_code, f"request: {error.detail}, got {target}; see /docs")
        else:
            refusal = as_refusal(error)
            if refusal.status == 500:
                log.error("a request failed", exc_info=error)
        body = body_of(RefusedError(refusal.status, self.root.hide(str(refusal))))
        return JSONResponse(body, refusal.status, refusal.headers)


def _invalid(error: RequestValidationError) -> RefusedError:
    """The first of a request's faults, in the project's wording."""
    first, n = error.errors()[0], len(error.errors())
    where = ".".join(str(part) for part in first["loc"])
    got = ascii(first.get("input"))
    more = f" (and {n - 1} more)" if n > 1 else ""
    message = f"{where}: {first['msg']}, got {got if len(got) < 100 else got[:100] + '...'}{more}; see /docs"
    return RefusedError(400, message)
