"""Publish a verifier: trained verifier + calibration -> one directory that `Verifier.from_pretrained` loads.

    python eval/export.py --verifier runs/demo/draft --calibration runs/demo/calibrated --data runs/demo/data --out DIR
    proofreel export --verifier DRAFT --calibration DIR --data DIR --out DIR --report DIR --predictions test.parquet
    proofreel export --verifier DRAFT --calibration DIR --data DIR --out DIR --merge --recalibrate --test-split test

--merge stores the whole model: the adapter merged into its base, which is never quantised. --time-rule rounded takes a
verifier of an older release to today's positions (docs/positions.md). Where that changes what the verifier says, the
calibration is fitted again if --recalibrate allows it; else nothing is written.
"""

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from proofreel.core import CommandParser, folder_here, place, written_to


def main(argv: Sequence[str] | None = None) -> int:
    """Parse, export, and report the self-test."""
    parser = _parser()
    args = parser.parse_args(argv)
    changes = args.merge or args.time_rule is not None
    if (args.recalibrate and not changes) or (args.merge_dtype and not args.merge):
        parser.error("--recalibrate needs --merge or --time-rule, and --merge-dtype needs --merge")
    return written_to(args.out, partial(_export, args, changes))


def _export(args: argparse.Namespace, changes: bool, out: Path) -> int:
    from proofreel.core import ProofreelError, say_next
    from proofreel.eval.publishing import Change, Evaluation, export, shortcomings
    from proofreel.models.directory import push_to_hub

    try:
        result = export(
            args.verifier,
            args.calibration,
            args.data,
            out,
            args.base,
            Evaluation(args.report, args.predictions, args.test_split),
            Change(args.merge, args.merge_dtype, args.time_rule, args.recalibrate) if changes else None,
            args.license,
            args.device,
        )
        print(f"wrote {out}: {result.n} golden margins, {result.max_difference:g} apart at most after reloading")
        for reason in shortcomings(out):
            print(f"WARNING {reason}")
        if args.push_to_hub:
            print(f"pushed {push_to_hub(out, args.push_to_hub, args.private, args.revision)}")
    except ProofreelError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    say_next("selftest", args.out)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = CommandParser(prog="proofreel export", description=__doc__)
    parser.add_argument("--verifier", type=folder_here, required=True, help="verifier that training left")
    parser.add_argument("--calibration", type=Path, required=True, help="folder written by eval/calibrate.py")
    parser.add_argument(
        "--data", type=folder_here, required=True, help="data set; golden inputs are of its calibration split"
    )
    parser.add_argument(
        "--out", type=place, required=True, help="verifier directory to write, or its address; must not exist"
    )
    parser.add_argument("--base", type=Path, help="base checkpoint, if not where the verifier says")
    parser.add_argument("--device", default="cpu", help="where golden margins and rows are scored (default: cpu)")
    parser.add_argument("--license", help="for the model card, e.g. apache-2.0")
    evaluation = parser.add_argument_group("evaluation that travels along")
    evaluation.add_argument("--report", type=Path, help="folder written by eval/report.py")
    evaluation.add_argument("--predictions", type=Path, help="Parquet of the reported rows: a margin of each is kept")
    evaluation.add_argument("--test-split", metavar="SPLIT", help="score this split and report on it now, instead")
    merging = parser.add_argument_group("changing the verifier on the way")
    merging.add_argument("--merge", action="store_true", help="store the whole model instead of an adapter")
    merging.add_argument("--merge-dtype", choices=["float32", "bfloat16", "float16"], help="default: as trained")
    merging.add_argument(
        "--time-rule", choices=["rounded", "truncated"], help="place frames by this rule; default: as the verifier says"
    )
    merging.add_argument(
        "--recalibrate", action="store_true", help="fit the calibration again where such a change moves the margins"
    )
    hub = parser.add_argument_group("publishing on the Hugging Face hub")
    hub.add_argument("--push-to-hub", metavar="REPO_ID", help="upload the finished directory to owner/name")
    hub.add_argument("--private", action="store_true", help="make the repository private, if it is made now")
    hub.add_argument("--revision", help="branch to upload to")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
