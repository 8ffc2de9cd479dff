"""Draw every word as often as it is replaced, though the rules refuse common words most.

Where a claim's pan may become a bowl but no pot, plain draws replace pans and draw bowls, and a model that reads claims
alone learns that bowls are false. So some groups of the data set are altered in a few rounds of trial, and after each
round the words that were replaced too often are drawn with more weight, and replaced less.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field

Key = tuple[str, str]  # kind of slot, word

ROUNDS = 8
_PRIOR = 2.0  # counts added to both sides: rare words move little
_STEP = 0.12  # larger steps swing to and fro: pans against bowls
_WIDEST = 20.0


@dataclass(frozen=True)
class Balance:
    """Learnt factors.

    Attributes:
        weights: of the weight with which a word is drawn.
        shares: of a word's slots, how many are altered at all.
    """

    weights: dict[Key, float] = field(default_factory=dict)
    shares: dict[Key, float] = field(default_factory=dict)

    def weight(self, keys: list[Key]) -> float:
        """The factor of the weight of a text with these words."""
        return math.prod(self.weights.get(key, 1.0) for key in keys)

    def share(self, keys: list[Key]) -> float:
        """The share of slots with these words that are altered."""
        return math.prod(self.shares.get(key, 1.0) for key in keys)

    def learn(self, replaced: Counter[Key], drawn: Counter[Key]) -> None:
        """Move both factors towards equal counts."""
        for key in sorted({*replaced, *drawn}):
            ratio = ((replaced[key] + _PRIOR) / (drawn[key] + _PRIOR)) ** _STEP
            self.weights[key] = min(max(self.weights.get(key, 1.0) * ratio, 1 / _WIDEST), _WIDEST)
            self.shares[key] = min(max(self.shares.get(key, 1.0) / ratio, 1 / _WIDEST), 1.0)


def keys_of(kind: str, text: str, heads: tuple[str, ...]) -> list[Key]:
    """What is balanced of a text: the words it is about, and the preposition it begins with."""
    keys = [(kind, head) for head in heads]
    return [*keys, (kind, f"{text.split()[0]} {heads[-1]}")] if kind in ("location", "tool") else keys
