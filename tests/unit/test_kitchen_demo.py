"""The demo's control that never sees: its AUC by kind of negative is scikit-learn's, within the same groups."""

import numpy as np
from sklearn.metrics import roc_auc_score

from examples.kitchen.demo import by_kind
from proofreel.eval.scoring.predictions import Prediction, write_predictions


def test_each_kind_of_negative_is_compared_with_the_true_claims_of_its_own_groups(tmp_path):
    rng = np.random.default_rng(0)
    rows = []
    for i in range(400):
        group, supported = f"g{i // 10}", i % 2 == 0
        kind = "negative_near_miss" if i // 10 < 25 else "negative_other"
        # Truths of the first groups score high: compared with those of all groups, near misses would look better.
        margin = round(float(rng.normal(0.5 * supported + 2.0 * (i // 10 < 25))), 1)
        label, origin = ("supported", "annotated") if supported else ("refuted", kind)
        rows.append(Prediction(f"r{i}", margin, 0.5, label, "test", group, "Action", origin, "visual"))
    write_predictions(tmp_path / "claim-only.parquet", rows, {"verifier_fingerprint": "v"})
    lines = [line.split() for line in by_kind(tmp_path / "claim-only.parquet").splitlines()]
    assert [(name, n) for name, n, *_ in lines] == [("negative_near_miss", "125"), ("negative_other", "75")]
    for (_, _, auc, *_), first in zip(lines, (True, False), strict=True):
        some = [row for row in rows if (int(row.group[1:]) < 25) == first]
        truth, margins = [row.label == "supported" for row in some], [row.margin for row in some]
        assert auc == f"{roc_auc_score(truth, margins):.3f}"
