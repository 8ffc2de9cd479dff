"""Check a verifier directory and recompute its selftest margins.

proofreel selftest checkpoints/kitchen-verifier
proofreel selftest DIR --device cuda --dtype bfloat16
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from proofreel.core import CommandParser


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status 0 if the directory is sound and every selftest margin comes out within the dtype's tolerance."""
    parser = CommandParser(prog="proofreel selftest", description=__doc__)
    parser.add_argument("directory", help="verifier directory, or its hub id")
    parser.add_argument("--revision", help="commit, tag or branch of a hub id")
    parser.add_argument("--base", help="base checkpoint, if not where the directory says")
    parser.add_argument("--device", default="cpu", help="default: cpu")
    parser.add_argument("--dtype", choices=["float32", "bfloat16", "float16"], help="default: as recorded")
    args = parser.parse_args(argv)

    from proofreel.core import ProofreelError, say_next
    from proofreel.models.directory import find_verifier, read_directory
    from proofreel.models.verifier import Verifier, selftest

    try:
        directory = find_verifier(args.directory, args.revision)
        config = read_directory(directory)
        verifier = Verifier.from_pretrained(directory, device=args.device, dtype=args.dtype, base=args.base)
        result = selftest(directory, verifier, args.dtype or config.dtype)
    except ProofreelError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    within = result.max_difference <= result.allowed
    print(
        f"{'ok' if result.passed else 'FAILED'}: {result.n} selftest margins, the largest difference is "
        f"{result.max_difference:g}, allowed {result.allowed:g}{'' if within else ': not the function it was'}"
    )
    print("\n".join(["fingerprint " + verifier.fingerprint, *(f"problem     {text}" for text in result.problems)]))
    print("\n".join(f"note        {text}" for text in verifier.notes), end="\n" if verifier.notes else "")
    for name, needed in config.requirements.items():
        print(f"requires    {name} {needed.versions} ({needed.reason})")
    if result.passed:
        say_next("score", args.directory, "--claims", "CLAIMS.csv", "--media", "VIDEOS", "--out", "scored.csv")
    return 0 if result.passed else 1
