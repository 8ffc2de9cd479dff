"""What a server allows: sizes, durations, counts and times, each with the flag that sets it."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from proofreel.core.errors import ConfigError


def _limit(default: float | int, told: str) -> Any:
    return field(default=default, metadata={"told": told})


@dataclass(frozen=True)
class Settings:
    """Limits of one server. Every numeric field is a flag of `proofreel serve`.

    Attributes:
        token: what requests must carry as `Authorization: Bearer`; None lets everybody in.
    """

    token: str | None = field(default=None, repr=False)
    max_claims: int = _limit(256, "claims of one request")
    max_evidence: int = _limit(8, "pieces of evidence of one request")
    max_body: int = _limit(4 * 2**20, "bytes of a request's body")
    max_media: int = _limit(4 * 2**30, "bytes of a media file")
    max_span_s: float = _limit(600.0, "seconds of one video segment")
    timeout_s: float = _limit(120.0, "seconds until a request is answered")
    body_s: float = _limit(30.0, "seconds a request's body may take to arrive")
    decode_s: float = _limit(20.0, "seconds a decoder may take over one request's media")
    drain_s: float = _limit(30.0, "seconds that requests in progress get at shutdown")
    queue: int = _limit(4096, "claims that may wait or be scored; more are refused with 429")
    batch: int = _limit(512, "claims given to the network at once, if no request brings more")
    window_s: float = _limit(0.004, "seconds to wait for company before a batch is scored")
    readers: int = _limit(2, "processes that decode media")
    cache_gib: float = _limit(2.0, "GiB of decoded frames kept on disk")

    def __post_init__(self) -> None:
        """`ConfigError` for a limit that is not above 0, and for a queue that no full request would fit into."""
        for name in limits():
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name}: must be above 0, got {getattr(self, name)}; fix the flag")
        if self.queue < self.max_claims:
            raise ConfigError(f"queue: must hold one full request, got {self.queue} < {self.max_claims}; raise --queue")
        if self.token is not None and not (self.token.isascii() and self.token.isprintable() and self.token.strip()):
            raise ConfigError("token: must be printable ASCII, got other characters or nothing; choose another")


def limits() -> dict[str, tuple[float | int, str]]:
    """Default and meaning of every limit, by name."""
    return {f.name: (f.default, f.metadata["told"]) for f in fields(Settings) if "told" in f.metadata}  # type: ignore[misc]
