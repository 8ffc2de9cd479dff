"""What a stage costs: tokens it reads and the arithmetic they take, counted from headers and texts before it runs.

Tokens do not depend on the machine, nor on who else is using it. The evidence of several claims is read once for all
that are asked together (`together`), or once for each (`alone`, claims that come one by one).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ...core import Evidence, Pair, ProofreelError, Visual, evidence_key
from ...models.backbones import part_of
from ...models.cascades import CascadeStage
from ...models.verifier import Divider

Unit = Literal["flops", "tokens", "visual_tokens"]
Counts = NDArray[np.int64]
_PIXEL_PATCHES = 4  # patches that the vision tower computes for each token it gives


@dataclass(frozen=True)
class Spent:
    """Claims asked, tokens read, of these of frames and images, and floating-point operations."""

    claims: int
    tokens: int
    visual_tokens: int
    flops: float


@dataclass(frozen=True)
class Costs:
    """Tokens per row of one stage; 0 for a row that it cannot read.

    Attributes:
        prefix_tokens, visual_tokens, claim_tokens: (n,); the visual ones are among those of the prefix.
        evidence: (n,), equal for rows whose evidence is read once.
        n_language, n_vision: parameters that a token, or a patch, passes through.
    """

    prefix_tokens: Counts
    visual_tokens: Counts
    claim_tokens: Counts
    evidence: NDArray[np.int64]
    n_language: int
    n_vision: int

    def take(self, places: NDArray[np.int64]) -> Costs:
        """Of some rows only."""
        return dataclasses.replace(
            self,
            prefix_tokens=self.prefix_tokens[places],
            visual_tokens=self.visual_tokens[places],
            claim_tokens=self.claim_tokens[places],
            evidence=self.evidence[places],
        )

    def total(self, is_reached: NDArray[np.bool_], together: bool = True) -> Spent:
        """What asking these rows costs.

        Args:
            asked: (n,).
            together: claims about one evidence share its prefix; else each reads it again.

        Operations are two per parameter and token (Kaplan et al., 2020, section 2.1); attention over long evidence
        comes on top, for every stage.
        """
        places = np.flatnonzero(is_reached)
        first = places[np.unique(self.evidence[places], return_index=True)[1]] if together else places
        visual = int(self.visual_tokens[first].sum())
        tokens = int(self.prefix_tokens[first].sum() + self.claim_tokens[places].sum())
        flops = 2.0 * (self.n_language * tokens + self.n_vision * _PIXEL_PATCHES * visual)
        return Spent(len(places), tokens, visual, flops)


def costs_of(stage: CascadeStage, pairs: Sequence[Pair]) -> Costs:
    """Count a stage's tokens for every pair; only headers of media are read."""
    reader, encoder = stage.verifier.reader, stage.verifier.encoder
    divider = None if stage.verifier.windowing is None else Divider(stage.verifier.windowing, reader)
    known: dict[str, tuple[int, int, int]] = {}
    columns: list[tuple[int, int, int, int]] = []
    for pair in stage.shown(pairs):
        key = evidence_key(pair.evidence)
        if key not in known:
            division = None if divider is None else divider.divide(pair)
            parts = division.evidences if division is not None and division.evidences else (pair.evidence,)
            counts = [_evidence_tokens(stage, part) for part in parts]
            known[key] = len(known), sum(n for n, _ in counts), sum(n for _, n in counts)
        number, n_prefix, n_visual = known[key]
        try:
            n_claim = len(encoder.claim_ids(pair.claim, pair.context)) if n_prefix else 0
        except ProofreelError:
            n_claim = 0
        columns.append((n_prefix, n_visual, n_claim, number))
    table = np.array(columns, dtype=np.int64).reshape(-1, 4)
    n_language, n_vision = _parameters(stage.verifier.model)
    return Costs(table[:, 0], table[:, 1], table[:, 2], table[:, 3], n_language, n_vision)


def _evidence_tokens(stage: CascadeStage, evidence: tuple[Evidence, ...]) -> tuple[int, int]:
    """Tokens of a prefix, and those among them that stand for pixels."""
    encoder, root = stage.verifier.encoder, stage.verifier.media_root
    try:
        if not evidence:
            return 0, 0
        shown = [e for e in evidence if isinstance(e, Visual)]
        n_visual = sum(encoder.count_visual_tokens(e, root) for e in shown)
        return encoder.count_prefix_tokens(evidence, root), n_visual
    except ProofreelError:
        return 0, 0


def _parameters(model: Any) -> tuple[int, int]:
    """Parameters of the language model without its tables of words, and of the vision tower."""
    language = vision = 0
    for name, weight in model.named_parameters():
        n = weight.numel() * (2 if type(weight).__name__ == "Params4bit" else 1)  # two weights a byte
        if part_of(name) in ("visual", "merger"):
            vision += n
        elif "embed_tokens" not in name and "lm_head" not in name:
            language += n
    return language, vision
