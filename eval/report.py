"""Measure predictions with a calibration, and show what they look like.

    python eval/report.py --predictions runs/demo/test.parquet --calibration runs/demo/calibrated --out runs/demo/report
    proofreel report --predictions test.parquet --calibration DIR --out DIR --control claim-only=blind.parquet
    proofreel report ... --compare 7b=seven.parquet:seven/calibrated --compare zero-shot=test-zero-shot.parquet

Writes report.html (one self-contained page), report.md and metrics.json, and prints the main table.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from proofreel.core import CommandParser


def main(argv: Sequence[str] | None = None) -> int:
    """Parse arguments, measure, write, and print the headline."""
    parser = CommandParser(prog="proofreel report", description=__doc__)
    parser.add_argument("--predictions", type=Path, required=True, help="Parquet of the test split")
    parser.add_argument("--calibration", type=Path, required=True, help="folder written by eval/calibrate.py")
    parser.add_argument("--out", type=Path, required=True, help="folder to write to")
    parser.add_argument(
        "--control",
        action="append",
        default=[],
        metavar="NAME=PATH",
        help="more predictions for the results table, such as claims without evidence; repeatable",
    )
    parser.add_argument(
        "--compare",
        action="append",
        default=[],
        metavar="NAME=PATH[:CALIBRATION]",
        help="another verifier's predictions of the same pairs, with its own calibration folder (without one: sigmoid "
        "and 0.5); compared with paired tests; repeatable",
    )
    parser.add_argument("--media-root", type=Path, help="folder that relative media paths start from")
    parser.add_argument("--title", default="Proofreel report")
    parser.add_argument("--clips", type=int, default=4, help="clips shown of each kind (default 4; 0: none)")
    args = parser.parse_args(argv)

    from proofreel.core import ProofreelError, folder_beside, say_next
    from proofreel.eval.reports import console, make_report, parse_control, read_contender, write_report
    from proofreel.eval.scoring import read_predictions

    try:
        controls = [parse_control(text) for text in args.control]
        compared = [read_contender(text) for text in args.compare]
        report = make_report(
            args.predictions, args.calibration, controls, args.media_root, args.title, args.clips, compared
        )
        paths = write_report(args.out, report)
    except ProofreelError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(console(report))
    for path in paths:
        print(f"wrote {path}")
    source = read_predictions(args.predictions)[1]
    verifier = folder_beside(args.predictions, "MANIFEST.sha256", source.get("verifier_fingerprint"), "VERIFIER")
    data = folder_beside(args.predictions, "manifest.json", source.get("manifest_sha256"), "DATA")
    measured = ("--report", args.out, "--predictions", args.predictions)
    out = args.predictions.with_name("verifier")
    say_next(
        "export", "--verifier", verifier, "--calibration", args.calibration, "--data", data, *measured, "--out", out
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
