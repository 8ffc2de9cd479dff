"""Make a teacher file: predictions, calibrated on gold labels, of one verifier or the mean of several.

    python eval/teach.py --predictions train.parquet --calibration calibrated --out teacher.parquet
    proofreel teach --predictions 72b.parquet exported.parquet --calibration 72b/calibrated - --out teacher.parquet

data_prep/mine.py mines with it, train/distill.py distils from it. A calibration is a folder that eval/calibrate.py
fitted on the same verifier's predictions of other rows; - stands for a file that is calibrated already.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from proofreel.core import CommandParser

SHOWN = 10


def main(argv: Sequence[str] | None = None) -> int:
    """Parse, calibrate, join, write, and say how teachers and labels agree."""
    args = _parser().parse_args(argv)

    from proofreel.core import ProofreelError, folder_beside, say_next
    from proofreel.eval.teachers import agreements, check_output, contradicted, join, read_teachers, write_teacher_file

    try:
        check_output(args.out, args.predictions, args.overwrite)
        folders = [None if word == "-" else Path(word) for word in args.calibration]
        teachers = read_teachers(args.predictions, folders, args.allow_uncalibrated)
        joined = join(teachers)
        write_teacher_file(args.out, joined)
    except ProofreelError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    _say_teachers(teachers)
    _say_rows(joined.predictions)
    _say_agreement(agreements(teachers, joined), contradicted(joined.predictions))
    print(f"wrote        {args.out}")
    data = folder_beside(args.out, "manifest.json", joined.source.get("manifest_sha256"), "DATA")
    mined = "DATA-mined" if data == "DATA" else f"{data}-mined"
    say_next("mine", "--config", "configs/mine.yaml", f"data={data}", f"predictions={args.out}", f"output={mined}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = CommandParser(prog="proofreel teach", description=__doc__)
    parser.add_argument(
        "--predictions", type=Path, nargs="+", required=True, help="Parquet of the rows to teach, one file per teacher"
    )
    parser.add_argument(
        "--calibration",
        nargs="+",
        default=[],
        metavar="DIR",
        help="folder written by eval/calibrate.py for each file, in the same order; - for a file that needs none",
    )
    parser.add_argument("--out", type=Path, required=True, help="teacher file to write (Parquet)")
    parser.add_argument(
        "--allow-uncalibrated",
        action="store_true",
        help="without a calibration, take sigmoid(margin), and say so",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace a file that is there")
    return parser


def _say_teachers(teachers: Sequence[Any]) -> None:
    for teacher in teachers:
        print(f"teacher      {teacher.name}: {teacher.method}")
        for remark in teacher.remarks:
            print(f"WARNING      {teacher.name}: {remark}")


def _say_rows(predictions: Sequence[Any]) -> None:
    failed = [row for row in predictions if row.error is not None]
    print(f"rows         {len(predictions)}, {len(failed)} failed")
    for row in failed[:SHOWN]:
        print(f"  {row.pair_id}: {row.error}")
    if len(failed) > SHOWN:
        print(f"  and {len(failed) - SHOWN} more")


def _say_agreement(agreements: Sequence[Any], contradicted: Sequence[Any]) -> None:
    if not agreements:
        print("labels       none on the scored rows: nothing to compare with")
        return
    width = max(len("teacher"), *(len(each.name) for each in agreements))
    print(f"labels       on {agreements[0].n} rows that are labelled and that all scored:")
    print(f"  {'teacher':<{width}}     AUC     ECE   Brier  labels it gives p < 0.05")
    for each in agreements:
        print(f"  {each.name:<{width}}  {each.auc:.4f}  {each.ece:.4f}  {each.brier:.4f}  {each.n_contradicted}")
    for row in contradicted[:SHOWN]:
        print(f"  {row.pair_id}: labelled {row.label}, P(supported) {row.p_supported:.4f}")
    if len(contradicted) > SHOWN:
        print(f"  and {len(contradicted) - SHOWN} more labels that may be wrong")


if __name__ == "__main__":
    raise SystemExit(main())
