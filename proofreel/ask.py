"""Ask a verifier claims about one clip.

proofreel ask checkpoints/kitchen-verifier --video clip.mp4 --start 2.8 --end 9.4 "Ingredient is carrot." "Chop onion."
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path


def main(argv: Sequence[str] | None = None) -> int:
    """Print one line per claim; exit status 1 if any claim could not be judged."""
    parser = argparse.ArgumentParser(prog="proofreel ask", description=__doc__)
    parser.add_argument("directory", type=Path, help="verifier directory")
    parser.add_argument("claims", nargs="+", help="one sentence each")
    parser.add_argument("--video", required=True, help="video file")
    parser.add_argument("--start", type=float, default=0.0, help="start of the span in seconds")
    parser.add_argument("--end", type=float, help="end of the span in seconds; default: the end of the file")
    parser.add_argument("--base", type=Path, help="base checkpoint, if not where the directory says")
    parser.add_argument("--device", help="cpu, cuda, ...; default: a GPU if there is one")
    args = parser.parse_args(argv)

    from proofreel.data_prep.errors import ProofreelError
    from proofreel.data_prep.rows import VideoSegment
    from proofreel.models.verifier import Verifier

    try:
        verifier = Verifier.from_pretrained(args.directory, device=args.device, base=args.base)
    except ProofreelError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    verdicts = verifier.score(args.claims, VideoSegment(args.video, args.start, args.end))
    for claim, v in zip(args.claims, verdicts, strict=True):
        shown = (
            f"error: {v.error}" if v.error else f"{v.p_supported:.3f}  {v.margin:+8.3f}  {v.label or 'uncalibrated'}"
        )
        print(f"{shown:<32}  {claim}")
    return 1 if any(v.error for v in verdicts) else 0
