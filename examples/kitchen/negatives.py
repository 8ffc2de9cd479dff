"""False claims that text alone cannot tell from true ones.

Within a split, and for each kind of claim (each role, each relation), the claims that hold are dealt out once more so
that each lands on a step where it does not hold: a one-to-one assignment. Every sentence is then exactly as often
refuted as supported, and a reader of claims alone is at chance by construction. Among all such assignments the
cheapest by a random taste for hard cases is taken, so that about two thirds are hard:

- `distractor`: the one wrong word names an object that lies about unused (DualFact's saliency error);
- `neighbour`: true of the step before or after in the same video;
- `narrated`: what the narration says, against what is shown;
- `near_miss`: one word of several is wrong;
- `other`: none of these.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import linear_sum_assignment

from proofreel.core import ConfigError

from .vocabulary import ROLES, VALUES, Facts

KINDS = ("other", "near_miss", "distractor", "neighbour", "narrated")
FAMILIES: dict[str, tuple[str, ...]] = {
    **{role: (role,) for role in ROLES},
    "act/ing": ("Action", "Ingredient"),
    "act/with": ("Action", "Tool"),
    "act/where": ("Action", "Location"),
    "act/all": ROLES,
}
HARD_SHARE = 0.7
HOLDS = -1  # in a table of kinds: the claim is true of the step
FORBIDDEN_COST = 1e6


@dataclass(frozen=True)
class Shown:
    """What decides the truth of claims about a step, and which false ones are hard."""

    facts: Facts
    distractors: dict[str, list[str]]
    neighbours: tuple[Facts, ...] = ()
    narrated: Facts | None = None


def deal_negatives(rng: np.random.Generator, steps: Sequence[Shown], where: str) -> list[dict[str, tuple[Facts, str]]]:
    """For each step and family of claims: the facts whose claim is false here, and the kind of falsehood.

    Raises:
        ConfigError: too few steps for each claim to be false somewhere; `where` opens the message.
    """
    dealt: list[dict[str, tuple[Facts, str]]] = [{} for _ in steps]
    for family, roles in FAMILIES.items():
        kinds_SS = kinds_of(steps, roles)
        eager_S1 = rng.random((len(steps), 1)) < HARD_SHARE
        cost_SS = np.where((kinds_SS > 0) == eager_S1, 0.0, 1.0) - 0.25 * (kinds_SS > 1) * eager_S1
        cost_SS = np.where(kinds_SS == HOLDS, FORBIDDEN_COST, cost_SS + 0.3 * rng.random(cost_SS.shape))
        _, donors = linear_sum_assignment(cost_SS)
        for i, j in enumerate(donors):
            if kinds_SS[i, j] == HOLDS:
                raise ConfigError(
                    f"{where}: too few steps to make each {family} claim false of another, got {len(steps)}; "
                    "ask for more, or for none"
                )
            dealt[i][family] = (steps[j].facts, KINDS[kinds_SS[i, j]])
    return dealt


def kinds_of(steps: Sequence[Shown], roles: Sequence[str]) -> np.ndarray:
    """Entry [i, j]: the index in `KINDS` of step j's claim about `roles` when made of step i, or `HOLDS`."""
    codes_SR = np.array([_code(step.facts, roles) for step in steps])
    differs_SSR = codes_SR[:, None] != codes_SR[None]
    wrong_SS = differs_SSR.sum(axis=2)
    lies_SSR = np.zeros_like(differs_SSR)
    for r, role in enumerate(roles):
        lying = np.zeros((len(steps), len(VALUES[role])), bool)
        for i, step in enumerate(steps):
            lying[i, [VALUES[role].index(name) for name in step.distractors.get(role, [])]] = True
        lies_SSR[:, :, r] = lying[:, codes_SR[:, r]]
    kinds_SS = np.where((wrong_SS == 1) & (len(roles) > 1), KINDS.index("near_miss"), KINDS.index("other"))
    kinds_SS[(wrong_SS == 1) & (differs_SSR & lies_SSR).any(axis=2)] = KINDS.index("distractor")
    for i, step in enumerate(steps):
        for facts in step.neighbours:
            kinds_SS[i, (codes_SR == _code(facts, roles)).all(axis=1)] = KINDS.index("neighbour")
        if step.narrated is not None:
            kinds_SS[i, (codes_SR == _code(step.narrated, roles)).all(axis=1)] = KINDS.index("narrated")
    kinds_SS[wrong_SS == 0] = HOLDS
    return kinds_SS


def _code(facts: Facts, roles: Sequence[str]) -> list[int]:
    return [VALUES[role].index(facts.value(role)) for role in roles]
