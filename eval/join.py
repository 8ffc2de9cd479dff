"""Join the predictions of cross-fitted verifiers, each of the fold that it was trained without, into one file.

    proofreel join --data DATA --verifiers fold-0/run/draft fold-1/run/draft --predictions fold-0/test.parquet \\
        fold-1/test.parquet --out out-of-fold.parquet

`calibrate` fits on the joined file, and `report` measures each fold with the calibration of the others. Refused: rows
that a verifier may have been trained on, folds that are missing, verifiers trained with different settings.
docs/cross-fitting.md describes the whole way, which `proofreel run` goes by itself.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from proofreel.core import CommandParser


def main(argv: Sequence[str] | None = None) -> int:
    """Parse, check, join, write."""
    parser = CommandParser(prog="proofreel join", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="data set that was built with splits.cross")
    parser.add_argument("--verifiers", type=Path, nargs="+", required=True, help="the verifier of each fold")
    parser.add_argument(
        "--predictions", type=Path, nargs="+", required=True, help="Parquet of each one's test split, in the same order"
    )
    parser.add_argument("--out", type=Path, required=True, help="Parquet file to write")
    args = parser.parse_args(argv)

    from proofreel.core import ProofreelError, say_next
    from proofreel.eval.scoring import join_folds, write_predictions

    try:
        rows, source = join_folds(args.data, args.verifiers, args.predictions)
        temporary = args.out.with_name(f".{args.out.name}.tmp")
        write_predictions(temporary, rows, source)
        temporary.replace(args.out)
    except ProofreelError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"wrote {args.out}: {len(rows)} rows of {len(args.predictions)} folds")
    say_next("calibrate", "--predictions", args.out, "--out", args.out.with_name("calibrated"))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
