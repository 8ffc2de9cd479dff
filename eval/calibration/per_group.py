"""Fitting corrections per modality, role or origin, shrunk towards the calibration of all rows.

Within each value a Platt map is fitted on the overall map's log-odds. With n rows it counts for w = n / (n + 100): its
slope becomes slope^w, and its value at the mean log-odds of these rows w times its own and 1 - w times the overall one.
So a correction is never further from the overall map than its own fit, and comes to its own fit as n grows. Values with
too few rows or labels of one kind, or that rank no better than chance, keep the overall map, and the reason is stored.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ...models.decision import Calibrator, Correction, GroupCorrections, GroupKey, Platt
from ..metrics import Floats

MIN_ROWS = 100
MIN_PER_CLASS = 10
SHRINK_ROWS = 100  # with this many rows a value's own fit and the overall one count alike


def fit_corrections(
    overall: Calibrator,
    margins: Floats,
    labels: Floats,
    weights: Floats,
    keys: Sequence[str] | NDArray,
    key: GroupKey,
    min_rows: int = MIN_ROWS,
) -> GroupCorrections:
    """A correction for each value of `keys` that has enough rows.

    Args:
        overall: fitted on the same rows.
        margins, labels, weights: (n,) each.
        keys: each row's value of the column `key`, (n,).
        min_rows: values with fewer rows keep the overall map; at least 10 rows of each class are needed as well.
    """
    logits, values = overall.apply(margins), np.asarray(keys, dtype=str)
    corrections: dict[str, Correction] = {}
    left: dict[str, str] = {}
    for value in np.unique(values).tolist():
        chosen = values == value
        correction = _correction(logits[chosen], labels[chosen], weights[chosen], min_rows)
        if isinstance(correction, Correction):
            corrections[value] = correction
        else:
            left[value] = correction
    return GroupCorrections(key, corrections, left)


def _correction(logits: Floats, labels: Floats, weights: Floats, min_rows: int) -> Correction | str:
    """The shrunk correction of one value's rows, or why there is none."""
    n, n_pos = len(labels), int(np.sum(labels))
    if n < min_rows:
        return f"{n} rows, fewer than {min_rows}"
    if min(n_pos, n - n_pos) < MIN_PER_CLASS:
        return f"{n_pos} supported and {n - n_pos} other rows, fewer than {MIN_PER_CLASS} of a class"
    own, at_bound = Platt.fit(logits, labels, weights)
    if at_bound:
        return "the slope stopped at its bound"
    weight = n / (n + SHRINK_ROWS)
    centre = float(np.average(logits, weights=weights))
    slope = own.slope**weight
    level = weight * float(own.apply(centre)) + (1 - weight) * centre
    return Correction(slope, level - slope * centre, n, float(np.average(labels, weights=weights)), weight)
