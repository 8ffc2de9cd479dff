"""One way to fit every map of `models/calibration_maps.py`, by the name of its method."""

from __future__ import annotations

from collections.abc import Callable

from ..core.errors import CalibrationError
from ..models.calibration_maps import METHODS, Affine, CalibrationMap, Method
from .checks import Floats
from .fitting_parametric import fit_beta, fit_platt, fit_temperature
from .fitting_steps import fit_centred_isotonic, fit_histogram, fit_isotonic, fit_venn_abers

_PARAMETRIC: dict[str, Callable[[Floats, Floats, Floats], tuple[CalibrationMap, bool]]] = {
    "temperature": fit_temperature,
    "platt": fit_platt,
    "beta": fit_beta,
}
_STEPS: dict[str, Callable[[Floats, Floats, Floats], CalibrationMap]] = {
    "centred_isotonic": fit_centred_isotonic,
    "isotonic": fit_isotonic,
    "histogram": fit_histogram,
    "venn_abers": fit_venn_abers,
}


def fit_map(method: Method, margins: Floats, labels: Floats, weights: Floats) -> tuple[CalibrationMap, bool]:
    """The fitted map, and whether its slope stopped at its bound.

    Args:
        margins: (n,), finite.
        labels: 1 or 0, (n,), both present.
        weights: how often each row counts, (n,), > 0.

    Raises:
        CalibrationError: an unknown method.
    """
    if method == "none":
        return Affine(1.0, 0.0), False
    if method in _PARAMETRIC:
        return _PARAMETRIC[method](margins, labels, weights)
    if method in _STEPS:
        return _STEPS[method](margins, labels, weights), False
    raise CalibrationError(f"calibration: unknown method, got {method!r}; use 'auto' or one of {list(METHODS)}")
