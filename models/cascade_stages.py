"""A stage of a cascade: a verifier and what it is shown of the evidence."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..core.pairs import Pair, evidence_kinds
from .cascade_plan import View
from .prefixes import PrefixCache
from .verdicts import Verdict, failed
from .verifier import Verifier


@dataclass(frozen=True)
class Stage:
    """A verifier and what it is shown. `verifier` looks at no more frames than `view` says."""

    verifier: Verifier
    view: View

    @classmethod
    def of(cls, verifier: Verifier, view: View | None = None) -> Stage:
        """The stage of a verifier as it was loaded."""
        view = view or View()
        return cls(verifier if view.max_frames is None else fewer_frames(verifier, view.max_frames), view)

    def shown(self, pairs: Sequence[Pair]) -> list[Pair]:
        """The pairs as this stage sees them; those without anything to see have no evidence."""
        return [dataclasses.replace(pair, evidence=self.view.of(pair.evidence)) for pair in pairs]

    def ask(self, pairs: Sequence[Pair], tell: Callable[[int], Any], shrink_frames: bool = False) -> list[Verdict]:
        """The verifier's own verdicts, in order; `tell` hears how many are done."""
        shown = self.shown(pairs)
        places = [i for i, pair in enumerate(shown) if pair.evidence]
        verdicts = [failed(_nothing(pair, self.view)) for pair in pairs]
        tell(len(pairs) - len(places))
        found = self.verifier.score_pairs([shown[i] for i in places], tell, shrink_frames=shrink_frames)
        for place, verdict in zip(places, found, strict=True):
            verdicts[place] = verdict
        return verdicts


def fewer_frames(verifier: Verifier, max_frames: int) -> Verifier:
    """The same verifier looking at no more than so many frames of a video; weights and lock are shared.

    Its own calibration does not hold for it. Prefixes are kept apart: they look the same, and are not.
    """
    other, sampling = copy.copy(verifier), verifier.encoder.sampling
    other.encoder, other.scorer = copy.copy(verifier.encoder), copy.copy(verifier.scorer)
    other.reader = copy.copy(verifier.reader)
    fewest, most = min(sampling.min_frames, max_frames), min(sampling.max_frames, max_frames)
    other.encoder.sampling = dataclasses.replace(sampling, min_frames=fewest, max_frames=most)
    other.prefixes = PrefixCache(verifier.prefixes.max_bytes / 2**30)
    other.scorer.prefixes = other.prefixes
    other.reader.encoder, other.reader.scorer = other.encoder, other.scorer
    other.reader.vision_features = None  # they stand for other frames
    return other


def _nothing(pair: Pair, view: View) -> str:
    kinds = " and ".join(evidence_kinds(pair.evidence)) or "none"
    return f"view: this stage is shown {view.describe()}, got evidence of {kinds}; the next stage is asked"
