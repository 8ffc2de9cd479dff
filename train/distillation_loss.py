"""What a student learns from a teacher: its labels, the teacher's probabilities, and the order of claims.

A row has a share h in [0, 1] of its loss on its label (`Distillation.hard_share`) and 1 - h on the teacher. With
margins s of the student and t of the teacher (log-odds of supported), q = sigmoid(t / T) and p = sigmoid(s / T):

    S = T^2 KL(q || p)     over the two-way verdict (Hinton et al. 2015, section 2: T^2 keeps gradients of one size), or
    S = (s - t)^2          on margins

and a listwise term over the K claims about one evidence that share a packed row, which asks that they keep the order
the teacher gives them (Cao et al. 2007, section 4, with one claim chosen):

    R = T^2 KL(softmax_K(t / T) || softmax_K(s / T)),      0 for a claim alone

With L the term of `Loss` and c the class weight, the whole is, over the claims of the optimiser step,

    sum_i w_i (h_i L_i + (1 - h_i) S_i + listwise_weight R_i) / sum_i w_i (h_i c_i + 1 - h_i)

so alpha 1 on labels alone, without a listwise term, is training on labels. R depends on the packing, as
the paired term of `Loss` does: a claim is ordered among those of its own packed row. A label with no share (h = 0)
is no label: it takes no part in the paired term either, not even as another claim's opposite.

Shape suffixes: _B rows, _K claims of a row, _C labels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import torch
from torch.nn.functional import logsigmoid

from ..core import ConfigError, Pair
from ..models.decision import sigmoid
from ..models.engine import IGNORED, margin
from .loss import Loss

SoftLoss = Literal["kl", "margin_mse"]


@dataclass(frozen=True)
class Distillation:
    """How much a row learns from its label and how much from the teacher (see the module's docstring).

    Attributes:
        alpha: share of the label in rows that have one; the rest is the teacher's.
        temperature: T; both distributions are softened by it.
        soft_loss: `kl` on the two-way verdict, or `margin_mse`.
        listwise_weight: of the listwise term; 0 leaves it out.
        distrust: a label that the teacher gives a probability below this counts as noise, and the row learns from
            the teacher alone; 0 trusts all labels.
    """

    alpha: float = 0.5
    temperature: float = 2.0
    soft_loss: SoftLoss = "kl"
    listwise_weight: float = 0.0
    distrust: float = 0.05

    def __post_init__(self) -> None:
        """Refuse what is no loss with a `ConfigError`."""
        if not 0 <= self.alpha <= 1:
            raise ConfigError(f"alpha: must be in [0, 1], got {self.alpha}; 0.5 is half label, half teacher")
        if not 0 < self.temperature < math.inf:
            raise ConfigError(f"temperature: must be positive and finite, got {self.temperature}; 1 to 4 is usual")
        if self.soft_loss not in get_args(SoftLoss):
            raise ConfigError(f"soft_loss: must be one of {get_args(SoftLoss)}, got {self.soft_loss!r}; pick one")
        if not 0 <= self.listwise_weight < math.inf:
            raise ConfigError(
                f"listwise_weight: must be at least 0 and finite, got {self.listwise_weight}; 0 leaves it out"
            )
        if not 0 <= self.distrust < 0.5:
            raise ConfigError(f"distrust: must be at least 0 and below 0.5, got {self.distrust}; 0 trusts all labels")

    def hard_share(self, pair: Pair) -> float:
        """Share of a row's loss that is on its label: 1 without a teacher, 0 without a label or with a doubted one."""
        if pair.teacher_margin is None:
            return 1.0
        if pair.label is None and pair.soft_label is None:
            return 0.0
        return 0.0 if self.doubts(pair) else self.alpha

    def doubts(self, pair: Pair) -> bool:
        """Whether the teacher holds a row's label for wrong; a soft label is never doubted."""
        if pair.teacher_margin is None or pair.label is None or pair.soft_label is not None:
            return False
        sign = 1.0 if pair.label == "supported" else -1.0
        return float(sigmoid(sign * pair.teacher_margin)) < self.distrust

    def targets(self, pair: Pair) -> tuple[float, float]:
        """(teacher's margin, share of the label) of a row; the margin is NaN where there is no teacher."""
        return math.nan if pair.teacher_margin is None else pair.teacher_margin, self.hard_share(pair)

    def soft_terms(self, margins_BK: torch.Tensor, teacher_BK: torch.Tensor) -> torch.Tensor:
        """(B, K) S of each claim; margins must be finite."""
        if self.soft_loss == "margin_mse":
            return (margins_BK - teacher_BK) ** 2
        s_BK, t_BK = margins_BK / self.temperature, teacher_BK / self.temperature
        for_BK = t_BK.sigmoid() * (logsigmoid(t_BK) - logsigmoid(s_BK))
        against_BK = (-t_BK).sigmoid() * (logsigmoid(-t_BK) - logsigmoid(-s_BK))
        return self.temperature**2 * (for_BK + against_BK)

    def listwise_terms(
        self, margins_BK: torch.Tensor, teacher_BK: torch.Tensor, has_teacher_BK: torch.Tensor
    ) -> torch.Tensor:
        """(B, K) R of each claim's row, over the claims that have a teacher; 0 for the others."""
        # A finite floor, not -inf: a row without any claim that has a teacher must not become NaN.
        floor = torch.finfo(margins_BK.dtype).min
        log_q_BK = (teacher_BK / self.temperature).masked_fill(~has_teacher_BK, floor).log_softmax(-1)
        log_p_BK = (margins_BK / self.temperature).masked_fill(~has_teacher_BK, floor).log_softmax(-1)
        terms_BK = torch.where(has_teacher_BK, log_q_BK.exp() * (log_q_BK - log_p_BK), 0.0)
        return torch.where(has_teacher_BK, self.temperature**2 * terms_BK.sum(-1, keepdim=True), 0.0)


@dataclass(frozen=True)
class DistillationLoss:
    """The loss of a batch of claims that have labels, a teacher, or both.

    Attributes:
        hard: the loss on labels.
        distillation: the rest.
    """

    hard: Loss
    distillation: Distillation
    targets: ClassVar[tuple[str, ...]] = (*Loss.targets, "teacher", "hard_shares")

    def claim_weights(
        self,
        labels_BK: torch.Tensor,
        classes_BK: torch.Tensor,
        weights_BK: torch.Tensor,
        teacher_BK: torch.Tensor,
        shares_BK: torch.Tensor,
    ) -> torch.Tensor:
        """(B, K) what each claim counts in the mean; 0 where there is no claim.

        Args:
            labels_BK, classes_BK, weights_BK: as for `Loss`.
            teacher_BK: margins of the teacher; NaN where it said nothing.
            shares_BK: `Distillation.hard_share` of each row of data.
        """
        of_labels_BK = shares_BK * self.hard.claim_weights(labels_BK, classes_BK, weights_BK)
        return torch.where(labels_BK != IGNORED, of_labels_BK + (1 - shares_BK) * weights_BK, 0.0)

    def losses(
        self,
        logits_BKC: torch.Tensor,
        labels_BK: torch.Tensor,
        classes_BK: torch.Tensor,
        weights_BK: torch.Tensor,
        teacher_BK: torch.Tensor,
        shares_BK: torch.Tensor,
    ) -> torch.Tensor:
        """(B, K) each claim's term of the sum; arguments as for `Loss.losses` and `claim_weights`."""
        real_BK = labels_BK != IGNORED
        has_teacher_BK = real_BK & ~teacher_BK.isnan()
        trusted_BK = torch.where(shares_BK > 0, classes_BK, IGNORED)
        of_labels_BK = self.hard.losses(logits_BKC, labels_BK, trusted_BK, weights_BK)
        # A NaN times 0 is NaN, in the loss and in its gradient.
        margins_BK = margin(torch.where(real_BK[..., None], logits_BKC, 0.0))
        teacher_BK = torch.where(has_teacher_BK, teacher_BK, 0.0)
        soft_BK = torch.where(has_teacher_BK, self.distillation.soft_terms(margins_BK, teacher_BK), 0.0)
        total_BK = shares_BK * of_labels_BK + (1 - shares_BK) * weights_BK * soft_BK
        if weight := self.distillation.listwise_weight:
            listed_BK = self.distillation.listwise_terms(margins_BK, teacher_BK, has_teacher_BK)
            total_BK = total_BK + weight * weights_BK * listed_BK
        return torch.where(real_BK, total_BK, 0.0)
