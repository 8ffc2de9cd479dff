"""What training minimises: the cross-entropy of verdicts, weighted, focal or smoothed, and a loss over pairs of claims.

With target distribution q over the labels, probabilities p and class weights c, a claim's loss is

    L = sum_l  q_l c_l (1 - p_l)^gamma (-log p_l)

(Lin et al. 2017, Focal Loss, eq. 5, with q as in Szegedy et al. 2016, section 7: q = (1 - s) one-hot + s / labels).
gamma 0 is torch's cross_entropy with `weight` and `label_smoothing`. A soft label knows supported against the rest
only: its q is (p, 1 - p) over the two sides of the margin, is never smoothed, and the rest weighs as the mean of the
other classes.

The paired term asks that a gold (supported) claim beats each negative on the same evidence by `paired_margin` log-odds:

    P_i = mean over the opposites j of claim i in its packed row, by row weight, of
          max(0, paired_margin - (m_gold - m_negative))

and 0 for a claim without opposites; soft labels form no pairs. With row weights w, and c_i the class weight of claim
i's own label (for a soft one: of its two sides, in its proportion), the whole is, over the claims of the optimiser step

    sum_i w_i (L_i + paired_weight c_i P_i) / sum_i w_i c_i

The normaliser holds the class weights, as torch's weighted mean does. Nothing depends on which rows share a batch or a
process. Pairs do depend on the packing in one way: a claim meets only opposites of its own packed row, so where
`claims_per_row` or `tokens_per_row` splits a group, pairs across the split are not formed.

Shape suffixes: _B rows, _K claims of a row, _C labels, _BIJ claims against claims of a row.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch.nn.functional import logsigmoid, relu

from ..core import ConfigError, Label, Pair
from ..models.engine import IGNORED, TWO_LABELS, margin


@dataclass(frozen=True)
class Loss:
    """The loss of a batch of claims (see the module's docstring).

    Attributes:
        labels: of the head, in its order.
        class_weights: a factor of each label; None is 1 for each.
        focal_gamma: 0 is cross-entropy.
        label_smoothing: mass taken from a hard label and spread over all labels, in [0, 1).
        paired_weight: of the paired term; 0 leaves it out.
        paired_margin: log-odds by which a gold claim must beat a negative.
        targets: what of a batch `claim_weights` and `losses` take, in this order.
    """

    labels: tuple[Label, ...] = TWO_LABELS
    class_weights: tuple[float, ...] | None = None
    focal_gamma: float = 0.0
    label_smoothing: float = 0.0
    paired_weight: float = 0.0
    paired_margin: float = 1.0
    targets: ClassVar[tuple[str, ...]] = ("labels", "classes", "weights")

    def __post_init__(self) -> None:
        """Refuse what is no loss with a `ConfigError`."""
        for name, top in (("focal_gamma", math.inf), ("label_smoothing", 1.0), ("paired_weight", math.inf)):
            if not 0 <= (value := getattr(self, name)) < top:
                raise ConfigError(f"{name}: must be at least 0 and below {top}, got {value}; 0 leaves it out")
        if not math.isfinite(self.paired_margin):
            raise ConfigError(f"paired_margin: must be a finite log-odds, got {self.paired_margin}; 1.0 is usual")
        weights = self.class_weights
        if weights is None:
            return
        if len(weights) != len(self.labels):
            raise ConfigError(
                f"class_weights: one for each of {self.labels}, got {len(weights)}: {list(weights)}; give them in order"
            )
        if not all(math.isfinite(w) and w >= 0 for w in weights) or not any(weights):
            raise ConfigError(
                f"class_weights: must be finite, at least 0 and not all 0, got {list(weights)}; correct them"
            )

    def claim_weights(
        self, labels_BK: torch.Tensor, classes_BK: torch.Tensor, weights_BK: torch.Tensor
    ) -> torch.Tensor:
        """(B, K) what each claim counts in the mean: row weight times class weight; 0 where there is no claim.

        Args:
            labels_BK: probability of supported that each claim teaches; `IGNORED` where there is no claim.
            classes_BK: index of the right label; `IGNORED` for a soft label and where there is no claim.
            weights_BK: factor of each row of data.
        """
        factors_C, sides_2 = self._class_weights(weights_BK)
        hard_BK = classes_BK != IGNORED
        soft_BK = torch.lerp(sides_2[1], sides_2[0], labels_BK.clamp(0, 1).to(weights_BK.dtype))
        factor_BK = torch.where(hard_BK, factors_C[classes_BK.clamp(min=0)], soft_BK)
        return torch.where(labels_BK != IGNORED, weights_BK * factor_BK, 0.0)

    def losses(
        self,
        logits_BKC: torch.Tensor,
        labels_BK: torch.Tensor,
        classes_BK: torch.Tensor,
        weights_BK: torch.Tensor,
    ) -> torch.Tensor:
        """(B, K) each claim's term of the sum; divide the sum by that of `claim_weights` over the optimiser step.

        Args:
            logits_BKC: of the head's labels, supported first; may be NaN where there is no claim.
            labels_BK, classes_BK, weights_BK: as for `claim_weights`.
        """
        real_BK, hard_BK = labels_BK != IGNORED, classes_BK != IGNORED
        # A NaN times 0 is NaN: what is no claim must not reach the sum, nor its gradient.
        logits_BKC = torch.where(real_BK[..., None], logits_BKC, 0.0)
        margins_BK = margin(logits_BKC)
        factors_C, sides_2 = self._class_weights(logits_BKC)
        hard_q_BKC = torch.nn.functional.one_hot(classes_BK.clamp(min=0), len(self.labels)).to(logits_BKC.dtype)
        hard_q_BKC = (1 - self.label_smoothing) * hard_q_BKC + self.label_smoothing / len(self.labels)
        hard_loss_BK = self._cross_entropy(logits_BKC.log_softmax(-1), hard_q_BKC, factors_C)
        p_BK = labels_BK.clamp(0, 1).to(logits_BKC.dtype)
        sides_BK2 = torch.stack([logsigmoid(margins_BK), logsigmoid(-margins_BK)], -1)
        soft_loss_BK = self._cross_entropy(sides_BK2, torch.stack([p_BK, 1 - p_BK], -1), sides_2)
        total_BK = torch.where(hard_BK, hard_loss_BK, soft_loss_BK) * weights_BK
        if self.paired_weight:
            paired_BK = paired_terms(margins_BK, classes_BK, weights_BK, self.paired_margin)
            total_BK = total_BK + self.paired_weight * paired_BK * self.claim_weights(labels_BK, classes_BK, weights_BK)
        return torch.where(real_BK, total_BK, 0.0)

    def _class_weights(self, like: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Factors of the labels, and of the two sides of the margin."""
        factors_C = like.new_tensor(self.class_weights or [1.0] * len(self.labels))
        return factors_C, torch.stack([factors_C[0], factors_C[1:].mean()])

    def _cross_entropy(self, log_p_BKC: torch.Tensor, q_BKC: torch.Tensor, factors_C: torch.Tensor) -> torch.Tensor:
        terms_BKC = q_BKC * factors_C * -log_p_BKC
        if self.focal_gamma:
            # log(1 - p) from the other labels: 1 - p itself is 0 in float32 long before its logarithm is infinite.
            own_CC = torch.eye(log_p_BKC.shape[-1], dtype=torch.bool, device=log_p_BKC.device)
            others_BKC = log_p_BKC[..., None, :].masked_fill(own_CC, -torch.inf).logsumexp(-1)
            terms_BKC = terms_BKC * (self.focal_gamma * others_BKC).exp()
        return terms_BKC.sum(-1)


def paired_terms(
    margins_BK: torch.Tensor, classes_BK: torch.Tensor, weights_BK: torch.Tensor, least: float
) -> torch.Tensor:
    """(B, K) the mean hinge of each claim against its opposites of the same row, 0 where it has none.

    Args:
        margins_BK: log-odds; finite.
        classes_BK: 0 is gold, anything above is a negative, `IGNORED` takes no part.
        weights_BK: how much each claim counts among another's opposites.
        least: log-odds by which gold must beat a negative.
    """
    gold_BK, negative_BK = classes_BK == 0, classes_BK > 0
    pairs_BIJ = (gold_BK[:, :, None] & negative_BK[:, None, :]).to(margins_BK.dtype)
    hinge_BIJ = relu(least - (margins_BK[:, :, None] - margins_BK[:, None, :])) * pairs_BIJ
    of_gold_BK = _mean(hinge_BIJ, pairs_BIJ, weights_BK)
    of_negative_BK = _mean(hinge_BIJ.mT, pairs_BIJ.mT, weights_BK)
    return of_gold_BK + of_negative_BK  # a claim is one or the other


def _mean(values_BIJ: torch.Tensor, among_BIJ: torch.Tensor, weights_BK: torch.Tensor) -> torch.Tensor:
    total_BK = (among_BIJ * weights_BK[:, None, :]).sum(-1)
    return (values_BIJ * weights_BK[:, None, :]).sum(-1) / torch.where(total_BK > 0, total_BK, 1.0)


def class_of(pair: Pair, labels: Sequence[Label]) -> int:
    """Index of a row's label; of two labels, not_enough counts as refuted.

    `IGNORED` for a soft label, which says nothing of how the rest divides.
    """
    if pair.soft_label is not None or pair.label is None:
        return IGNORED
    return list(labels).index(pair.label) if pair.label in labels else len(labels) - 1


def balanced_weights(pairs: Sequence[Pair], labels: Sequence[Label]) -> tuple[float, ...]:
    """Class weights under which every label weighs the same in all: total / (labels x that label's weight).

    Rows count by their weight; soft labels are left out.

    Raises:
        ConfigError: a label has no rows, and no weight could make up for that.
    """
    mass: Counter[int] = Counter()
    for pair in pairs:
        mass[class_of(pair, labels)] += pair.weight  # type: ignore[assignment]  (counts may be fractions)
    if absent := [label for i, label in enumerate(labels) if mass[i] <= 0]:
        raise ConfigError(
            f"balance_classes: the train split has no rows of {absent}, got weights of "
            f"{ {label: mass[i] for i, label in enumerate(labels)} }; leave it out, or add such rows"
        )
    total = sum(mass[i] for i in range(len(labels)))
    return tuple(total / (len(labels) * mass[i]) for i in range(len(labels)))
