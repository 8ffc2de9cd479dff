"""What a server allows: sizes, durations, counts and times, each with the flag that sets it.

Requests that are refused: an HTTP status, a message in the project's wording, and the class it is counted under.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from typing import Any

from proofreel.core import CalibrationError, ConfigError, MediaError, ModelInputError, ProofreelError, RowError


def _limit(default: float | int, explanation: str) -> Any:
    return field(default=default, metadata={"explanation": explanation})


@dataclass(frozen=True)
class Settings:
    """Limits of one server. Every numeric field is a flag of `proofreel serve`.

    Attributes:
        token: what requests must carry as `Authorization: Bearer`; None lets everybody in.
        hosts: names that requests may call this server by, besides `LOCAL_HOSTS`; "*" allows any.
    """

    token: str | None = field(default=None, repr=False)
    hosts: tuple[str, ...] = ()
    max_claims: int = _limit(256, "claims of one request")
    max_evidence: int = _limit(8, "pieces of evidence of one request")
    max_body: int = _limit(16 * 2**20, "bytes of a request's body, data URLs included")
    max_media: int = _limit(4 * 2**30, "bytes of a media file")
    max_pixels: int = _limit(50_000_000, "pixels of an image")
    max_upload: int = _limit(256 * 2**20, "bytes of an uploaded file")
    uploads: int = _limit(2 * 2**30, "bytes of all uploaded files together; those used longest ago go first")
    max_span_s: float = _limit(600.0, "seconds of one video segment")
    timeout_s: float = _limit(120.0, "seconds until a request is answered")
    body_s: float = _limit(30.0, "seconds a request's body may take to arrive")
    upload_s: float = _limit(300.0, "seconds an upload may take to arrive")
    decode_s: float = _limit(20.0, "seconds a decoder may take over one request's media")
    drain_s: float = _limit(30.0, "seconds that requests in progress get at shutdown")
    queue: int = _limit(4096, "claims that may wait or be scored; more are refused with 429")
    batch: int = _limit(512, "claims given to the network at once, if no request brings more")
    window_s: float = _limit(0.004, "seconds to wait for company before a batch is scored")
    readers: int = _limit(2, "processes that decode media")
    cache_gib: float = _limit(2.0, "GiB of decoded frames kept on disk")

    def __post_init__(self) -> None:
        """`ConfigError` for a limit that is not above 0, a queue that no full request would fit into, no host name."""
        for host in self.hosts:
            if not host or ("*" in host.removeprefix("*.") and host != "*"):
                raise ConfigError(f"allowed_host: not a name, got {host!r}; give judge.example.org, *.example.org or *")
        for name in limits():
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name}: must be above 0, got {getattr(self, name)}; fix the flag")
        if self.queue < self.max_claims:
            raise ConfigError(f"queue: must hold one full request, got {self.queue} < {self.max_claims}; raise --queue")
        if self.token is not None and not (self.token.isascii() and self.token.isprintable() and self.token.strip()):
            raise ConfigError("token: must be printable ASCII, got other characters or nothing; choose another")


LOCAL_HOSTS = ("localhost", "127.0.0.1", "[::1]")


def limits() -> dict[str, tuple[float | int, str]]:
    """Default and meaning of every limit, by name."""
    return {f.name: (f.default, f.metadata["explanation"]) for f in fields(Settings) if "explanation" in f.metadata}  # type: ignore[misc]


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
    """A request that gets `status` and no verdicts; `retry_after_s` where another try may help.

    `faults` are the (place in the request, message) of each thing that is wrong, where there may be several.
    """

    def __init__(
        self,
        status: int,
        message: str,
        retry_after_s: int | None = None,
        faults: tuple[tuple[str, str], ...] = (),
    ) -> None:
        super().__init__(message)
        self.status, self.retry_after_s, self.faults = status, retry_after_s, faults

    @property
    def headers(self) -> dict[str, str]:
        """The headers that go with the status."""
        headers = {} if self.retry_after_s is None else {"Retry-After": str(self.retry_after_s)}
        return headers | ({"WWW-Authenticate": "Bearer"} if self.status == 401 else {})


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
    faults = [{"where": where, "message": message} for where, message in refusal.faults]
    more = {"faults": faults} if faults else {}
    return {"error": {"message": str(refusal), "type": kind, "param": None, "code": refusal.status} | more}


MOST_FAULTS = 16
"""Faults that are written out; the rest are counted."""


class Faults:
    """Everything wrong with one request, collected before it is refused."""

    def __init__(self) -> None:
        self._all: dict[tuple[str, str], RefusedError] = {}
        self._n_left_out = 0

    def __len__(self) -> int:
        return len(self._all)

    def add(self, refusal: RefusedError, where: str) -> None:
        """One more, at a place such as `evidence[1].path`; the same words at the same place count once."""
        self._all.setdefault((where, str(refusal)), refusal)

    def leave_out(self, n: int) -> None:
        """Count `n` more that are not worded."""
        self._n_left_out += n

    @contextmanager
    def at(self, where: str) -> Iterator[None]:
        """What is wrong inside is added, its message opened by the place."""
        try:
            yield
        except RefusedError as error:
            self.add(RefusedError(error.status, _placed(where, str(error)), error.retry_after_s), where)
        except (RowError, ConfigError, CalibrationError, MediaError, ModelInputError) as error:
            self.add(RefusedError(as_refusal(error).status, _placed(where, str(error))), where)

    def check(self) -> None:
        """`RefusedError` with all of them, if there are any; the status is the first one's."""
        if self._all:
            raise self.refusal()

    def refusal(self) -> RefusedError:
        """All faults as one refusal."""
        shown = list(self._all)[:MOST_FAULTS]
        n_more = len(self._all) - len(shown) + self._n_left_out
        lines = [message for _, message in shown] + ([f"and {n_more} more"] if n_more > 0 else [])
        first = self._all[shown[0]]
        return RefusedError(first.status, "\n".join(lines), first.retry_after_s, tuple(shown))


def _placed(where: str, message: str) -> str:
    """`evidence[1].path: ...` for a message about a path; a message that names its place already stays as it is."""
    if not where or message.startswith(where):
        return message
    return f"{where}.{message}" if message.startswith(("path:", "url:")) else f"{where}: {message}"


def brief(value: Any, most: int = 60) -> str:
    """A value of a request as ASCII, cut to a length that fits a message."""
    text = ascii(value) if not isinstance(value, str) or len(value) <= most else ascii(value[:most]) + "..."
    return text if len(text) <= most + 20 else text[: most + 17] + "..."
