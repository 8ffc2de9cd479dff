"""Fit a calibration and thresholds on predictions of the calibration split.

    python eval/calibrate.py --predictions runs/demo/calibration.parquet --out runs/demo/calibrated
    proofreel calibrate --predictions runs/demo/calibration.parquet --out runs/demo/calibrated --method platt

Writes calibration.json and thresholds.json (what an exported verifier ships) and fitted_rows.json (ids and groups, with
which a report proves that its test rows were not fitted on).
"""

import argparse
import hashlib
import sys
from collections.abc import Sequence
from pathlib import Path


def main(argv: Sequence[str] | None = None) -> int:
    """Parse arguments, fit, write, and say what was fitted."""
    parser = argparse.ArgumentParser(
        prog="proofreel calibrate", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--predictions", type=Path, required=True, help="Parquet of the calibration split")
    parser.add_argument("--out", type=Path, required=True, help="folder to write to")
    parser.add_argument("--method", choices=["auto", "none", "temperature", "platt"], default="auto")
    parser.add_argument(
        "--objective", choices=["f1", "balanced_accuracy"], default="f1", help="what the default threshold maximises"
    )
    args = parser.parse_args(argv)

    from proofreel.data_prep.errors import ProofreelError
    from proofreel.eval.calibrating import fit_decision
    from proofreel.eval.fitted_rows import write_fitted_rows
    from proofreel.eval.predictions import read_predictions
    from proofreel.models.decisions import write_decision

    try:
        predictions, source = read_predictions(args.predictions)
        fitted_on = {
            "split": "calibration",
            "predictions_sha256": hashlib.sha256(args.predictions.read_bytes()).hexdigest(),
            "verifier_fingerprint": source.get("verifier_fingerprint"),
        }
        decision = fit_decision(predictions, args.method, args.objective, fitted_on, where=str(args.predictions))
    except ProofreelError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    paths = write_decision(args.out, decision)
    paths.append(write_fitted_rows(args.out, predictions))

    c, point = decision.calibration, decision.point()
    print(f"calibration  {c.method}: p = sigmoid({c.slope:.4g} * margin {c.intercept:+.4g})")
    print(f"fitted on    {c.n} of {len(predictions)} rows, {c.n_groups} groups, positive rate {c.positive_rate:.3f}")
    print(f"threshold    supported if p >= {point.threshold:.4f} (best {point.objective}: {point.metric:.3f})")
    if c.at_bound:
        print("WARNING      the slope is at its bound: these rows cannot tell how sure the verifier may be")
    for path in paths:
        print(f"wrote        {path}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
