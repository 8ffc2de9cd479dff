"""Score one split of a data set with a verifier (a draft or an exported one).

python eval/predict.py --verifier runs/demo/draft --data runs/demo/data --split test --out runs/demo/test.parquet
proofreel predict --verifier DIR --data DIR --split test --out test.parquet --controls mismatched-evidence

Stopped at any moment and started again with the same words, it goes on where it was.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def main(argv: Sequence[str] | None = None) -> int:
    """Parse, score, write, and say how many rows failed."""
    parser = argparse.ArgumentParser(
        prog="proofreel predict", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--verifier", type=Path, required=True, help="verifier directory")
    parser.add_argument("--data", type=Path, required=True, help="data set folder written by data_prep/build.py")
    parser.add_argument("--split", required=True, help="train, validation, calibration or test")
    parser.add_argument("--out", type=Path, required=True, help="Parquet file to write")
    parser.add_argument("--base", type=Path, help="base checkpoint, if not where the verifier says")
    parser.add_argument("--device", help="cpu, cuda, cuda:1, ...; default: a GPU if there is one")
    parser.add_argument(
        "--frame-cache", type=Path, help="folder that keeps decoded frames between runs; decoders then have a deadline"
    )
    parser.add_argument(
        "--vision-cache", type=Path, help="folder that keeps what the vision tower makes of frames between runs"
    )
    parser.add_argument(
        "--batch-tokens",
        type=int,
        default=4096,
        help="most tokens of several segments in one forward (default: 4096); more may be faster on a large GPU",
    )
    parser.add_argument(
        "--controls",
        nargs="+",
        choices=["mismatched-evidence", "zero-shot"],
        default=[],
        help="score these as well, each into a file of its own beside --out: claims against another group's evidence; "
        "the base alone, its adapter left out",
    )
    parser.add_argument(
        "--claim-only", action="store_true", help="hide the evidence (for a verifier trained with --claim_only true)"
    )
    parser.add_argument(
        "--untrained-evidence", action="store_true", help="also ask about kinds of evidence the verifier never saw"
    )
    parser.add_argument(
        "--windowing",
        metavar="RULE:LENGTH_S:STRIDE_S",
        help="judge long videos in windows, e.g. max:8:4, noisy_or:8:4, mean_top_k:8:4:3; what is calibrated on these "
        "predictions is exported with it (default: as the verifier says)",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace a file that holds other predictions")
    args = parser.parse_args(argv)

    from proofreel.data_prep.dataset import read_split, sha256_of
    from proofreel.data_prep.errors import ProofreelError
    from proofreel.data_prep.frame_cache import FrameCache
    from proofreel.eval.predicting import hide_evidence, mismatch_evidence
    from proofreel.eval.resumable import score_to
    from proofreel.models.verifier import Verifier

    try:
        pairs = read_split(args.data, args.split)
        if args.claim_only:
            pairs = hide_evidence(pairs)
        for control in [None, *args.controls]:
            verifier = Verifier.from_pretrained(
                args.verifier,
                device=args.device,
                base=args.base,
                adapter=control != "zero-shot",
                frame_cache=FrameCache(args.frame_cache) if args.frame_cache else None,
                vision_cache=args.vision_cache,
                prefix_cache_gib=0.0,  # all claims about a segment are asked together, and none later
                batch_tokens=args.batch_tokens,
                untrained_evidence=args.untrained_evidence,
            )
            if args.windowing is not None:
                verifier = verifier.with_windowing(args.windowing)
            rows = mismatch_evidence(pairs) if control == "mismatched-evidence" else pairs
            source = {
                "manifest_sha256": sha256_of(args.data / "manifest.json"),
                "control": "claim-only" if args.claim_only else control,
            }
            out = args.out if control is None else args.out.with_name(f"{args.out.stem}-{control}{args.out.suffix}")
            _tell(out, score_to(out, verifier, rows, source, overwrite=args.overwrite))
    except ProofreelError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _tell(out: Path, scored: Any) -> None:
    before = f", {scored.n_found} of them scored before" if scored.n_found else ""
    print(f"wrote {out}: {scored.n_rows} rows, {scored.n_failed} failed{before}")
    for pair_id, reason in scored.failures:
        print(f"  {pair_id}: {reason}")


if __name__ == "__main__":
    raise SystemExit(main())
