"""Recompute the golden margins of a verifier directory.

proofreel selftest checkpoints/kitchen-verifier
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status 0 if every golden margin comes out within tolerance."""
    parser = argparse.ArgumentParser(prog="proofreel selftest", description=__doc__)
    parser.add_argument("directory", type=Path, help="verifier directory")
    parser.add_argument("--base", type=Path, help="base checkpoint, if not where the directory says")
    parser.add_argument("--device", default="cpu", help="default: cpu")
    args = parser.parse_args(argv)

    from proofreel.data_prep.errors import ProofreelError
    from proofreel.models.directory import read_directory
    from proofreel.models.golden import selftest
    from proofreel.models.verifier import Verifier

    try:
        config = read_directory(args.directory)
        verifier = Verifier.from_pretrained(args.directory, device=args.device, base=args.base)
        result = selftest(args.directory, verifier, config.dtype)
    except ProofreelError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    word = "ok" if result.passed else "FAILED"
    print(
        f"{word}: {result.n} golden margins, largest difference {result.max_difference:g}, allowed {result.allowed:g}\n"
        f"fingerprint {verifier.fingerprint}"
    )
    return 0 if result.passed else 1
