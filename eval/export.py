"""Publish a verifier: draft + calibration -> one directory that `Verifier.from_pretrained` loads.

python eval/export.py --verifier runs/demo/draft --calibration runs/demo/calibrated --data runs/demo/data --out DIR
proofreel export --verifier runs/demo/draft --calibration runs/demo/calibrated --data runs/demo/data --out DIR
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path


def main(argv: Sequence[str] | None = None) -> int:
    """Parse, export, and report the self-test."""
    parser = argparse.ArgumentParser(
        prog="proofreel export", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--verifier", type=Path, required=True, help="draft that training left")
    parser.add_argument("--calibration", type=Path, required=True, help="folder written by eval/calibrate.py")
    parser.add_argument("--data", type=Path, required=True, help="data set; its calibration split gives golden inputs")
    parser.add_argument("--out", type=Path, required=True, help="verifier directory to write; must not exist")
    parser.add_argument("--report", type=Path, help="report folder whose metrics.json travels along")
    parser.add_argument("--base", type=Path, help="base checkpoint, if not where the draft says")
    args = parser.parse_args(argv)

    from proofreel.data_prep.errors import ProofreelError
    from proofreel.eval.exporting import export

    try:
        result = export(args.verifier, args.calibration, args.data, args.out, args.base, args.report)
    except ProofreelError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"wrote {args.out}: {result.n} golden margins, largest difference after reloading {result.max_difference:g}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
