"""Requests that are refused: an HTTP status, a message in the project's wording, and the class it is counted under."""

from __future__ import annotations

from typing import Any

from proofreel.core.errors import CalibrationError, ConfigError, MediaError, ModelInputError, ProofreelError, RowError

KINDS = {
    400: "bad_request",
    401: "unauthorized",
    403: "outside_media_root",
    404: "not_found",
    405: "wrong_method",
    408: "slow_request",
    413: "too_large",
    415: "wrong_content_type",
    422: "unreadable",
    429: "busy",
    500: "internal",
    501: "not_implemented",
    503: "shutting_down",
    504: "timeout",
}


class RefusedError(ProofreelError):
    """A request that gets `status` and no verdicts; `retry_after_s` where another try may help."""

    def __init__(self, status: int, message: str, retry_after_s: int | None = None) -> None:
        super().__init__(message)
        self.status, self.retry_after_s = status, retry_after_s

    @property
    def headers(self) -> dict[str, str]:
        """Those that go with the status."""
        found = {} if self.retry_after_s is None else {"Retry-After": str(self.retry_after_s)}
        return found | ({"WWW-Authenticate": "Bearer"} if self.status == 401 else {})


def as_refusal(error: Exception) -> RefusedError:
    """Any error as a refusal: the caller's mistakes as 4xx, everything else as 500 without its details."""
    if isinstance(error, RefusedError):
        return error
    if isinstance(error, (RowError, ConfigError, CalibrationError)):
        return RefusedError(400, str(error))
    if isinstance(error, (MediaError, ModelInputError)):
        return RefusedError(422, str(error))
    return RefusedError(500, f"server: failed, got {type(error).__name__}; see the server's log")


def body_of(refusal: RefusedError) -> dict[str, Any]:
    """The JSON body of a refusal; clients of OpenAI's API read the same keys."""
    kind = KINDS.get(refusal.status, "error")
    return {"error": {"message": str(refusal), "type": kind, "param": None, "code": refusal.status}}
