"""Writes hoeffding_bentkus.json: p-values of MAPIE, to be run where it is installed (`pip install mapie==1.6.0`).

python tests/data/make_hoeffding_bentkus.py
"""

import json
from importlib.metadata import version
from pathlib import Path

import numpy as np
from mapie.risk_control.methods import compute_hoeffding_bentkus_p_value  # type: ignore[import-not-found]


def main() -> None:
    """Losses whose sum over the groups is a multiple of 1/4, so that no rounding decides between two counts."""
    rng = np.random.default_rng(0)
    rows = []
    for at_most in (0.01, 0.05, 0.1, 0.3, 0.7):
        for n in (1, 7, 20, 64, 500):
            for total in np.unique(np.r_[0.0, rng.integers(0, 4 * n + 1, 4) / 4, round(4 * n * at_most) / 4]):
                p = compute_hoeffding_bentkus_p_value(np.array([total / n]), n, at_most)
                rows.append({"at_most": at_most, "n": n, "mean": total / n, "p": float(p[0, 0])})
    values = {"made_by": f"MAPIE {version('mapie')}, compute_hoeffding_bentkus_p_value", "rows": rows}
    Path(__file__).with_name("hoeffding_bentkus.json").write_text(json.dumps(values, indent=1) + "\n")


if __name__ == "__main__":
    main()
