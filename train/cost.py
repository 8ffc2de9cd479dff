"""Hours and money of a training run, estimated from counted operations before anything is loaded.

Operations are those of models/backbones/shapes.py, over every packed row of the run. What each part of a step costs, in
forward passes:

                              linear layers                       attention
evaluation, scoring           1                                   1
frozen base with adapters     2: the gradient of inputs alone     3
  of the adapters             3
trained base                  3                                   3
with checkpointed layers      1 more                              1 more
vision tower                  1 where it is frozen, and with a vision cache only once in the run; else as above

Hours are operations / (peak x UTILISATION x cards). The peaks are those of data sheets for bfloat16 without sparsity,
accumulating in float32. No run on these cards was measured, so the utilisation is a plain assumption; padding, decoding
and dequantising are part of it, and loading is not.

Apart from the plan because it is arithmetic on shapes, and knows nothing of a run's files.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..models.backbones import Operations, forward_operations, vision_operations_of
from .settings import PEAK_TFLOPS

UTILISATION = 0.35


@dataclass(frozen=True)
class RowSize:
    """What a packed row's operations depend on: patches of its media, tokens of its prefix and of each claim."""

    grids: tuple[tuple[int, int, int], ...]
    prefix: int
    claims: tuple[int, ...]


@dataclass(frozen=True)
class Recipe:
    """How a run trains.

    Attributes:
        config: of the backbone.
        adapters: parameters of adapters in the language model; None: it trains itself.
        checkpointed: layers run forward twice.
        trains_tower: the vision tower trains, or has adapters.
        vision_cache: what the tower makes is kept.
    """

    config: Any
    adapters: int | None
    checkpointed: bool
    trains_tower: bool
    vision_cache: bool


@dataclass(frozen=True)
class Cost:
    """Operations of a run, by what they are for; of scoring those of one claim."""

    training: float
    evaluation: float
    vision: float
    scoring: float

    @property
    def total(self) -> float:
        """Of the run."""
        return self.training + self.evaluation + self.vision

    def lines(self, card: str, price: float | None, n_cards: int) -> list[str]:
        """Hours on cards of a kind, and money where an hour of one has a price."""
        rate = PEAK_TFLOPS[card] * 1e12 * UTILISATION
        hours = self.total / (rate * n_cards) / 3600
        money = "" if price is None else f", {hours * n_cards * price:,.2f} at {price:g} per card and hour"
        parts = {"training": self.training, "evaluations": self.evaluation, "vision tower": self.vision}
        listed = ", ".join(f"{name} {n / self.total:.0%}" for name, n in parts.items() if n)
        return [
            f"cost          {self.total:.3g} operations ({listed}): about {_hours(hours)} on {n_cards} {card}{money}",
            f"              scoring 1,000 such claims: about {_hours(1000 * self.scoring / rate / 3600)} on one {card}",
            f"              an estimate, at {UTILISATION:.0%} of {PEAK_TFLOPS[card]:g} TFLOP/s (data sheet, bfloat16): "
            "no run on such a card was measured",
        ]


def cost_of(
    train: Sequence[RowSize], validation: Sequence[RowSize], epochs: float, n_evaluations: int, recipe: Recipe
) -> Cost:
    """Operations of a run over rows of two splits."""
    config = recipe.config
    language = [_language(config, row) for row in train]
    tokens = sum(row.prefix + sum(row.claims) for row in train)
    again = 1 if recipe.checkpointed else 0
    linear = (2 if recipe.adapters is not None else 3) + again
    adapters = (3 + again) * 2 * tokens * (recipe.adapters or 0)
    step = sum(linear * ops.linear + (3 + again) * ops.attention for ops in language) + adapters
    tower = sum(vision_operations_of(config, row.grids).total for row in train)
    checked = sum(_language(config, row).total for row in validation)
    tower_checked = sum(vision_operations_of(config, row.grids).total for row in validation)
    if recipe.vision_cache and not recipe.trains_tower:
        vision = float(tower + tower_checked)  # rows of one evidence count it each: a little too much
    else:
        vision = tower * epochs * (3 + again if recipe.trains_tower else 1) + tower_checked * n_evaluations
    n_claims = max(sum(len(row.claims) for row in train), 1)
    scoring = (sum(ops.total for ops in language) + tower) / n_claims
    return Cost(step * epochs, float(checked * n_evaluations), float(vision), scoring)


def row_operations(config: Any, row: RowSize) -> int:
    """Operations of one forward of a row, its tower among them; evidence is computed once for all its claims."""
    return forward_operations(config, row.grids, row.prefix, row.claims).total


def n_evaluations(strategy: str, eval_steps: float | None, steps: float, epochs: float) -> int:
    """How often a run evaluates; `eval_steps` below 1 is a share of the run."""
    if strategy == "no":
        return 0
    if strategy == "epoch":
        return math.ceil(epochs)
    every = eval_steps or 1
    return math.floor(1 / every if every < 1 else steps / every)


def _language(config: Any, row: RowSize) -> Operations:
    return forward_operations(config, (), row.prefix, row.claims)


def _hours(hours: float) -> str:
    if hours >= 1:
        return f"{hours:,.1f} hours"
    return f"{hours * 60:.1f} minutes" if hours * 60 >= 1 else f"{hours * 3600:.2g} seconds"
