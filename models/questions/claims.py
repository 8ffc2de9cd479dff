"""Claims as a caller holds them: one sentence or many."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from ...core import ModelInputError
from .evidence import is_media_name
from .values import column_of, shown

_EXAMPLE = "e.g. verifier.score(['The pan is on the stove.'], 'clip.mp4')"


def as_claims(claims: Any, contexts: Any = None) -> list[tuple[str, str | None]]:
    """(claim, context) of each claim.

    Args:
        claims: a sentence, or several in a list, column or other iterable.
        contexts: a text for all claims, or as many of them (or None) as there are claims.

    Raises:
        ModelInputError: claims that are no sentences, or another number of contexts.
    """
    if isinstance(claims, str):
        claims = [claims]
    if isinstance(claims, Mapping) or not hasattr(claims, "__iter__"):
        raise ModelInputError(f"claims: must be a sentence or a list of them, got {shown(claims)}; {_EXAMPLE}")
    sentences = [one_claim(claim, f"claim {i}") for i, claim in enumerate(column_of(claims))]
    if contexts is None or isinstance(contexts, str):
        return [(sentence, contexts) for sentence in sentences]
    passages: Sequence[str | None] = list(column_of(contexts))
    if len(passages) != len(sentences):
        raise ModelInputError(
            f"contexts: must be one text, or as many as claims, got {len(passages)} for {len(sentences)}; "
            "use None for a claim without one"
        )
    return list(zip(sentences, passages, strict=True))


def one_claim(claim: Any, where: str = "claim") -> str:
    """The sentence; `ModelInputError` for what is none, or names a media file in a claim's place."""
    if not isinstance(claim, str):
        raise ModelInputError(f"{where}: must be a sentence, got {shown(claim)}; {_EXAMPLE}")
    if is_media_name(claim) and (" " not in claim.strip() or os.path.isfile(claim.strip())):
        raise ModelInputError(f"{where}: names a media file, got {claim!r}; claims come before evidence, {_EXAMPLE}")
    return claim
