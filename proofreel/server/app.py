"""The routes, as one ASGI application around a loaded verifier.

Apart from launch.py, which loads the verifier and starts a server: tests and other servers take the application alone.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse, Response
from pydantic import Discriminator, Tag
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
from .schemas import (
    VLLM_KEYS,
    AttributeAnswer,
    AttributeRequest,
    ChatRequest,
    ErrorAnswer,
    PredictRequest,
    RerankRequest,
    ScoreAnswer,
    ScoreRequest,
    VllmScoreRequest,
)
from .score import Office, attribute, body_faults
from .settings import Faults, RefusedError, Settings, as_refusal, body_of
from .shapes import predict, rerank, vllm_score
from .strict_json import StrictRoute, schema_faults

log = logging.getLogger("proofreel.server")

REFUSALS: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorAnswer} for status in (400, 401, 403, 404, 408, 413, 415, 422, 429, 500, 503, 504)
}

ANSWERS: dict[int | str, dict[str, Any]] = {200: {"model": ScoreAnswer}, **REFUSALS}


def _form(body: Any) -> str:
    """Whose form a request to /score has, by its keys."""
    keys = body if isinstance(body, dict) else ()
    return "vllm" if VLLM_KEYS & {*keys} else "proofreel"


AnyScoreRequest = Annotated[
    Annotated[ScoreRequest, Tag("proofreel")] | Annotated[VllmScoreRequest, Tag("vllm")], Discriminator(_form)
]
KEYS = sorted({*ScoreRequest.model_fields, *AttributeRequest.model_fields, "kind", "path", "text", "start_s", "end_s"})


class Service:
    """One verifier, what serves it, and the ASGI application `app`."""

    def __init__(
        self,
        verifier: Any,
        name: str,
        root: MediaRoot,
        library: Library,
        limits: Settings,
        secret: bytes | None = None,
    ) -> None:
        """`root` must have uploads, which are closed with the service; `secret` makes the keys of files it shows."""
        assert root.uploads is not None
        self.verifier, self.name, self.root, self.uploads = verifier, name, root, root.uploads
        self.limits, self.measures = limits, Measures()
        hanging = HangingFiles()
        self.pools = [MediaPool(n, limits.decode_s, hanging) for n in (limits.readers, 1)]
        self.desk = Desk(verifier, self.pools[0], library, limits, self.measures)
        self.office = Office(verifier, self.desk, root, limits)
        self.pictures = Pictures(root, library, self.pools[1], secret or secrets.token_bytes(32))
        routes = self._routes()
        names = frozenset(getattr(route, "path", "") for route in routes.routes)
        self.app = Guard(routes, limits, self.measures, names)

    def close(self) -> None:
        """Answer what was taken, then end threads and children."""
        self.desk.close(self.limits.timeout_s)
        for pool in self.pools:
            pool.close()
        self.uploads.close()

    def _routes(self) -> FastAPI:
        @asynccontextmanager
        async def lifespan(_: FastAPI) -> AsyncIterator[None]:
            yield
            await run_in_threadpool(self.close)

        description = (
            "Is a claim supported by its evidence? Errors: `<where>: <what is wrong>, got <value>; <what to do>`."
        )
        api = FastAPI(title="Proofreel", description=description, version=proofreel.__version__, lifespan=lifespan)
        api.router.route_class = StrictRoute
        for kind in (RefusedError, ProofreelError, HTTPException, RequestValidationError, Exception):
            api.add_exception_handler(kind, self._refuse)
        self._add_verdicts(api)
        self._add_state(api)
        self._add_page(api)
        return api

    def _add_verdicts(self, api: FastAPI) -> None:
        @api.post("/score", response_model=None, responses=ANSWERS, summary="Verdicts on K claims about one evidence")
        async def score(request: AnyScoreRequest) -> Any:
            if isinstance(request, VllmScoreRequest):
                answer = await vllm_score(self.office, request)
                self._count([None] * len(answer["data"]))
                return answer
            answer = await self.office.score(request)
            self._count([verdict.error for verdict in answer.verdicts])
            return answer

        @api.post("/predict", responses=REFUSALS, summary="Both labels of [claim, text] pairs, in TEI's form")
        async def predicted(request: PredictRequest) -> list[Any]:
            answer = await predict(self.office, request)
            self._count([None] * (len(answer) if isinstance(answer[0], list) else 1))
            return answer

        async def reranked(request: RerankRequest) -> Any:
            answer = await rerank(self.office, request)
            self._count([None] * len(request.documents or request.texts))
            return answer

        for path in ("/rerank", "/v1/rerank", "/v2/rerank"):
            summary = "Documents by how probably each supports the claim, in Cohere's, Jina's, vLLM's or TEI's form"
            api.post(path, responses=REFUSALS, summary=summary)(reranked)

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
                "name": self.name,
                "fingerprint": self.verifier.fingerprint,
                "operating_point": point and point.name,
                "threshold": point and point.threshold,
                "notes": list(self.verifier.notes),
                "modalities": self.verifier.modalities,
                "sampling": vars(sampling),
                "limits": {n: getattr(limits, n) for n in ("max_claims", "max_span_s", "max_upload", "max_pixels")},
            }

    def _add_page(self, api: FastAPI) -> None:
        @api.get("/", include_in_schema=False)
        async def index() -> Response:
            return page()

        @api.post("/upload", responses=REFUSALS, summary="Keep a picture or video; its name is a path of evidence")
        async def upload(request: Request) -> dict[str, str]:
            try:
                async with asyncio.timeout(self.limits.upload_s):
                    return {"path": await self.uploads.receive(request.stream())}
            except TimeoutError:
                limit = f"{self.limits.upload_s:g} s"
                message = f"upload: did not arrive in time, got a part of it in {limit}; send it faster"
                raise RefusedError(408, message) from None

        @api.get("/media", responses=REFUSALS, summary="A file as it is, for playback; `key` is that of GET /clip")
        async def media(path: str, key: str) -> FileResponse:
            return await self.pictures.media(path, key)

        @api.get("/clips", responses=REFUSALS, summary="Videos and images below the media root")
        async def clips() -> dict[str, Any]:
            return await self.pictures.clips()

        @api.get(
            "/clip", responses=REFUSALS, summary="Length and size of a video or image, and where it is played from"
        )
        async def clip(path: str) -> dict[str, Any]:
            return await self.pictures.clip(path)

        @api.get("/thumbnail", responses=REFUSALS, summary="A JPEG from the middle of a video, or of an image")
        async def thumbnail(path: str) -> Response:
            return Response(await self.pictures.thumbnail(path), media_type="image/jpeg")

        @api.get("/frames", responses=REFUSALS, summary="What the verifier looks at: frames of a span, or the image")
        async def frames(path: str, start_s: float = 0.0, end_s: float | None = None) -> dict[str, Any]:
            return await self.pictures.frames(path, start_s, end_s)

    def _count(self, errors: list[str | None]) -> None:
        failed = sum(error is not None for error in errors)
        self.measures.claims.labels("scored").inc(len(errors) - failed)
        self.measures.claims.labels("failed").inc(failed)
        if failed:
            self.measures.failures.labels("claim").inc(failed)

    async def _refuse(self, request: Request, error: Exception) -> JSONResponse:
        if isinstance(error, HTTPException) and isinstance(error.__cause__, RefusedError):
            error = error.__cause__  # what FastAPI wrapped while it parsed the body
        if isinstance(error, RequestValidationError):
            refusal = await run_in_threadpool(self._invalid, error)
        elif isinstance(error, HTTPException):
            target = f"{request.method} {request.url.path[:100]}"
            refusal = RefusedError(error.status_code, f"request: {error.detail}, got {target}; see /docs")
        else:
            refusal = as_refusal(error)
            if refusal.status == 500:
                log.error("a request failed", exc_info=error)
        faults = tuple((where, self.root.hide(message)) for where, message in refusal.faults)
        body = body_of(RefusedError(refusal.status, self.root.hide(str(refusal)), faults=faults))
        return JSONResponse(body, refusal.status, refusal.headers)

    def _invalid(self, error: RequestValidationError) -> RefusedError:
        """All of a request's faults, in the project's wording."""
        faults: Faults = schema_faults(error.errors(), error.body, KEYS)
        body_faults(self.office, error.body, faults)
        return faults.refusal()
