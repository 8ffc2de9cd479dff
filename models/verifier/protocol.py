"""What a view needs of a verifier: a kind of its own, so that no view imports the verifier that imports it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from ..decision import Decision, Ranked, Verdict
from ..engine import Progress
from ..inputs import Windowing


class ClaimScorer(Protocol):
    """Whoever scores claims as `Verifier` does; arguments and results are as documented there."""

    decision: Decision | None
    windowing: Windowing | None
    media_root: str | Path | None

    def score(
        self,
        claims: Any,
        evidence: Any,
        contexts: Any = None,
        *,
        prior: float | None = None,
        operating_point: str | None = None,
    ) -> list[Verdict]:
        """As `Verifier.score`."""
        ...

    def score_pairs(self, pairs: Any, progress: Progress = None) -> list[Verdict]:
        """As `Verifier.score_pairs`."""
        ...

    def rank(
        self,
        claim: str,
        evidences: Any,
        *,
        top_k: int | None = None,
        progress: Progress = None,
    ) -> list[Ranked]:
        """As `Verifier.rank`."""
        ...

    def with_windowing(self, windowing: Windowing | str | None) -> Any:
        """As `Verifier.with_windowing`."""
        ...
