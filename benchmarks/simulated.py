"""Simulated verifiers whose true quality is known, for benchmarks that count how often an interval or promise holds.

Claims come in groups of unequal size (1 to 20, about 4 on average). The log-odds x that a claim is supported are normal
and lean together within a group; by the intraclass correlation (ICC) so do the labels given x. A first verifier knows x
and states sigmoid(slope x + shift): slope 1 and shift 0 is calibrated. A second one knows x in part, and states its
honest log-odds times `other`. True values are those of 400,000 rows with labels replaced by their probabilities.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit, logit, ndtr

from proofreel.eval.metrics import METRICS, Confusions, Floats, average_precision, bin_index, roc_auc
from proofreel.models.decision import divide

THRESHOLD, N_BINS, LARGE = 0.5, 15, 400_000
_BETWEEN = 0.3  # part of the variance of x that lies between groups
_SHARED = 0.85  # part of the variance of x that the second verifier knows


@dataclass(frozen=True)
class World:
    """How well claims can be told apart, and how far probabilities are off.

    Attributes:
        spread: standard deviation of x: 0.3 is near chance, 12 near perfect.
        slope, shift: of the first verifier.
        other: slope of the second.
        place: mean of x; -3 makes few claims supported.
    """

    spread: float
    slope: float = 1.0
    shift: float = 0.0
    other: float = 1.0
    place: float = 0.0


WORLDS = (
    World(0.3),
    World(1.5),
    World(1.5, 1.1, other=1.2),
    World(1.5, 1.5),
    World(1.5, 1.0, 0.3, other=1.5),
    World(3.0, 0.4),
    World(6.0, other=1.5),
    World(12.0),
    World(1.5, place=-3.0),
)


class Rows(NamedTuple):
    """Margins and probabilities of both verifiers, labels and groups; each of shape (n,)."""

    margins: Floats
    p: Floats
    other_margins: Floats
    other_p: Floats
    labels: Floats
    groups: Any


def sizes_of(rng: np.random.Generator, n_groups: int) -> Any:
    return np.clip(np.round(np.exp(rng.normal(1.2, 0.7, n_groups))), 1, 20).astype(int)


def drawn(rng: np.random.Generator, world: World, n_groups: int, icc: float) -> Rows:
    """One data set."""
    groups = np.repeat(np.arange(n_groups), sizes_of(rng, n_groups))
    n = len(groups)
    z = _normal(rng, groups, _BETWEEN)
    x = world.place + world.spread * z
    labels = (ndtr(_normal(rng, groups, icc)) < expit(x)).astype(float)
    known = np.sqrt(_SHARED) * z + np.sqrt(1 - _SHARED) * rng.normal(size=n)
    margins, other = _first(world, x), _second(world, known)
    return Rows(margins, expit(margins), other, expit(other), labels, groups)


def _normal(rng: np.random.Generator, groups: Any, between: float) -> Floats:
    """Standard normal values of which this part of the variance is shared within groups."""
    shared = rng.normal(size=groups[-1] + 1)[groups]
    return np.sqrt(between) * shared + np.sqrt(1 - between) * rng.normal(size=len(groups))


def _first(world: World, x: Floats) -> Floats:
    return np.clip(world.slope * x + world.shift, -30, 30)


def _second(world: World, known: Floats) -> Floats:
    return np.clip(world.other * logit(_honest(world, known)), -30, 30)


def _honest(world: World, known: Floats) -> Floats:
    """The chance that a claim is supported, for one who knows x in part."""
    at, weights = np.polynomial.hermite_e.hermegauss(31)
    grid = np.linspace(-6, 6, 2_001)
    x = world.place + world.spread * (np.sqrt(_SHARED) * grid[:, None] + np.sqrt(1 - _SHARED) * at)
    q = np.clip(expit(x) @ weights / weights.sum(), 1e-13, 1 - 1e-13)
    return expit(np.interp(known, grid, logit(q)))


class Truth:
    """What is true of a verifier: values of every metric, and counts at any threshold as shares of all rows."""

    def __init__(self, margins: Floats, q: Floats) -> None:
        """Margins and the chance that each row is supported, many rows."""
        p = expit(margins)
        order = np.argsort(p)
        self._p = p[order]
        self._tp, self._fp = (np.append(np.cumsum(of[order][::-1])[::-1], 0.0) / len(p) for of in (q, 1 - q))
        self.values = self._values(margins, p, q)

    def counts(self, threshold: float) -> Confusions:
        """tp, fp, tn, fn where p >= threshold is called supported."""
        at = np.searchsorted(self._p, threshold)
        tp, fp = self._tp[at], self._fp[at]
        return Confusions(tp, fp, self._fp[0] - fp, self._tp[0] - tp)

    def _values(self, margins: Floats, p: Floats, q: Floats) -> dict[str, float]:
        counts = self.counts(THRESHOLD)
        values = {name: float(of.of_counts(counts)) for name, of in METRICS.items() if of.of_counts}
        weighted = (np.repeat(margins, 2), np.tile([1.0, 0.0], len(q)), np.stack([q, 1 - q], axis=1).ravel())
        said = p >= THRESHOLD
        wrong = np.where(said, 1 - q, q)[np.argsort(-np.abs(p - THRESHOLD))]
        risk = np.cumsum(wrong) / np.arange(1, len(q) + 1)
        rate = risk[-1]
        values |= {
            "auc": float(roc_auc(*weighted)),
            "ap": float(average_precision(*weighted)),
            "positive_rate": float(q.mean()),
            "brier": float(np.mean(q * (1 - p) ** 2 + (1 - q) * p**2)),
            "nll": float(np.mean(np.logaddexp(0, margins) - q * margins)),
            "ece_event": _error(p, q),
            "ece_top_label": _error(np.maximum(p, 1 - p), np.where(said, q, 1 - q)),
            "aurc": float(risk.mean()),
            "e_aurc": float(risk.mean() - (rate + (1 - rate) * np.log1p(-rate))),
            "augrc": float(np.cumsum(wrong).mean() / len(q)),
        }
        for name, coverage in (("_50", 0.5), ("", 0.8), ("_90", 0.9)):
            values[f"accuracy_at_coverage{name}"] = float(1 - risk[round(coverage * len(q)) - 1])
        return values | {"auc_after": values["auc"]}


def _error(p: Floats, q: Floats) -> float:
    return float(np.abs(np.bincount(bin_index(p), q - p, minlength=N_BINS)).sum() / len(p))


def truths(world: World) -> tuple[Truth, Truth]:
    """Of both verifiers."""
    z = np.random.default_rng(1).normal(size=LARGE)
    x = world.place + world.spread * z
    return Truth(_first(world, x), expit(x)), Truth(_second(world, z), _honest(world, z))


def share(part: Any, whole: Any) -> float:
    return float(divide(part, whole))
