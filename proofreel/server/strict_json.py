"""A request's JSON, read strictly, and what is wrong with it: every fault at once, in words, with its place.

Apart from the schemas because they say what a request is, and this says how one is refused.
"""

from __future__ import annotations

import difflib
import json
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from fastapi import Request
from fastapi.routing import APIRoute
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from .settings import MOST_FAULTS, Faults, RefusedError, brief

MOST_VALUES = 30_000
"""Keys and items of one body. Validation takes as long as there are values, and it holds up other requests."""


class StrictRoute(APIRoute):
    """A route whose body is parsed in a worker thread, and must not name a key twice."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """FastAPI's handler, given a request that parses strictly."""
        handler = super().get_route_handler()

        async def strict(request: Request) -> Response:
            return await handler(_StrictRequest(request.scope, request.receive))

        return strict


class _StrictRequest(Request):
    async def json(self) -> Any:
        return await run_in_threadpool(loads, await self.body())


def loads(body: bytes) -> Any:
    """The value of a JSON text.

    Raises:
        RefusedError: 400 an object names a key twice: readers differ in which of the two they take; 413 more than
            `MOST_VALUES` values.
        ValueError: not JSON.
    """
    value = json.loads(body, object_pairs_hook=_unique)
    at_most = sum(body.count(mark) for mark in (b",", b"[", b"{"))  # each value follows one of these
    if at_most > MOST_VALUES and (n := _n_values(value)) > MOST_VALUES:
        raise RefusedError(413, f"body: too many values, got {n} of at most {MOST_VALUES}; send less at once")
    return value


def _n_values(value: Any) -> int:
    """Keys of objects and items of lists, at any depth."""
    n, waiting = 0, [value]
    while waiting:
        inner = waiting.pop()
        if isinstance(inner, (dict, list)):
            n += len(inner)
            waiting.extend(inner.values() if isinstance(inner, dict) else inner)
    return n


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    keys = dict(pairs)
    if len(keys) < len(pairs):
        twice = sorted(name for name, n in Counter(name for name, _ in pairs).items() if n > 1)
        raise RefusedError(400, f"body: an object names a key twice, got {brief(', '.join(twice))}; keep one of them")
    return keys


def schema_faults(errors: Sequence[Mapping[str, Any]], body: Any, names: Sequence[str]) -> Faults:
    """What pydantic found, in the project's wording; `names` are keys that a mistyped one may have meant.

    What would not be written out is only counted: wording a fault costs more than sending one.
    """
    faults = Faults()
    for i, error in enumerate(errors):
        if len(faults) == MOST_FAULTS:
            faults.leave_out(len(errors) - i)
            break
        where = place(error["loc"], body, error["type"])
        problem, remedy = _words(error, names)
        faults.add(RefusedError(400, f"{where}: {problem}, got {_got(error)}; {remedy}"), where)
    return faults


def place(loc: Sequence[Any], body: Any, kind: str) -> str:
    """`evidence[1].start_s` of pydantic's location, without the names of the alternatives it tried."""
    path, node = "", body
    for i, part in enumerate(loc):
        if i == 0 and part in ("body", "query", "path", "header"):
            continue
        if isinstance(part, int):
            path += f"[{part}]" if isinstance(node, list) else ""
            node = node[part] if isinstance(node, list) and part < len(node) else None
        elif (isinstance(node, dict) and part in node) or (i == len(loc) - 1 and kind == "missing"):
            path += f".{part}" if path else str(part)
            node = node.get(part) if isinstance(node, dict) else None
        elif body is None:  # a query's parameters have no body
            path += str(part)
    return path or "body"


def _got(error: Mapping[str, Any]) -> str:
    return "nothing" if error["type"] == "missing" else brief(error.get("input"))


def _words(error: Mapping[str, Any], names: Sequence[str]) -> tuple[str, str]:
    """(what is wrong, what to do)."""
    kind, more = error["type"], error.get("ctx") or {}
    if kind == "extra_forbidden":
        near = difflib.get_close_matches(str(error["loc"][-1]), names, 1)
        return "no such key", f"write {near[0]}, or leave it out" if near else "leave it out, or see /docs"
    if kind == "json_invalid":
        return f"not JSON at character {error['loc'][-1]}", f"fix it: {more.get('error')}"
    if kind in ("union_tag_invalid", "literal_error"):
        expected = more.get("expected_tags") or more.get("expected")
        return f"must be one of {expected}", "choose one"
    if kind == "union_tag_not_found":
        return "kind is missing", "add kind: video, image, transcript or passage"
    problem = next((words for name, words in _PROBLEMS.items() if kind.startswith(name)), None)
    if problem is None:
        text = str(error["msg"])
        return text[:1].lower() + text[1:], "see /docs"
    return problem[0].format(**more), problem[1]


_PROBLEMS = {
    "missing": ("missing", "add it"),
    "string_": ("must be text", "write it in quotes"),
    "list_": ("must be a list", "write it in [ ]"),
    "float_": ("must be a number", "write it without quotes"),
    "int_": ("must be a whole number", "write it without quotes"),
    "bool_": ("must be true or false", "write it without quotes"),
    "finite_number": ("must be a finite number", "give a number"),
    "too_short": ("must hold at least {min_length}", "add what is missing"),
    "greater_than_equal": ("must be at least {ge}", "give such a number"),
    "greater_than": ("must be above {gt}", "give such a number"),
    "less_than_equal": ("must be at most {le}", "give such a number"),
    "less_than": ("must be below {lt}", "give such a number"),
    "model_": ("must be an object", "write it in { }"),
    "dict_": ("must be an object", "write it in { }"),
}
