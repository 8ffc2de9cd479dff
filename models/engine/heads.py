"""How logits at a verdict position are read: two words of the vocabulary, or a head of two or three labels.

Either way the first column is supported, and the margin is the log-odds of supported against the rest, in float32.

Shape suffixes: _N verdict positions, _V vocabulary or labels, _C classes of a head.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ...core import Label, ModelInputError
from ..inputs import LabelWords

TWO_LABELS: tuple[Label, ...] = ("supported", "refuted")
THREE_LABELS: tuple[Label, ...] = ("supported", "refuted", "not_enough")


@dataclass(frozen=True)
class NextToken:
    """The verdict is the next token: of the vocabulary's logits, those of the two verdict words count."""

    words: LabelWords
    labels: tuple[Label, ...] = TWO_LABELS

    def classes(self, logits_NV: torch.Tensor) -> torch.Tensor:
        """(N, 2) float32: logits of supported and refuted."""
        return logits_NV[:, [self.words.supported_id, self.words.refuted_id]].float()


@dataclass(frozen=True)
class NLIHead:
    """The verdict is a label of the model's `score` head, whose rows stand in the order of `labels`."""

    labels: tuple[Label, ...] = TWO_LABELS

    def __post_init__(self) -> None:
        """Refuse labels in an order that the margin would misread."""
        if self.labels not in (TWO_LABELS, THREE_LABELS):
            raise ModelInputError(
                f"head: labels must be {TWO_LABELS} or {THREE_LABELS}, got {self.labels}; use one in this order"
            )

    def classes(self, logits_NV: torch.Tensor) -> torch.Tensor:
        """(N, labels) float32, as the head gives them."""
        if logits_NV.shape[1] != len(self.labels):
            raise ModelInputError(
                f"head: {len(self.labels)} labels, got {logits_NV.shape[1]} logits; load the backbone with this head"
            )
        return logits_NV.float()


Head = NextToken | NLIHead


def margin(logits: torch.Tensor) -> torch.Tensor:
    """(..., C) logits, supported first, to (...) margins: logit supported minus the log-sum-exp of the others."""
    return logits[..., 0] - logits[..., 1:].logsumexp(-1)
