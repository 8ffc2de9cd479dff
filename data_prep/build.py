"""Build a data set of (claim, evidence, label) from annotations.

    python data_prep/build.py --config configs/mirage_grounding_build.yaml
    python data_prep/build.py --config configs/x.yaml seed=1 negatives.balanced=true --skip-invalid

Bad annotations are reported together and end the build with exit status 1; --skip-invalid goes on without them.
docs/data.md describes the formats and every key.
"""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Sequence
from pathlib import Path

from proofreel.core import CommandParser, ProofreelError, load_config, say_next


def main(argv: Sequence[str] | None = None) -> int:
    """Run a build from the command line; the exit status is 0 when a data set was written, else 1."""
    parser = CommandParser(prog="proofreel build", description=__doc__, configs="build", keys=_keys)
    parser.add_argument("--config", required=True, type=Path, help="YAML file with the keys of BuildConfig")
    parser.add_argument(
        "--skip-invalid", action="store_true", help="leave bad annotations out and say how many and why"
    )
    parser.add_argument("overrides", nargs="*", metavar="key.path=value", help="values that win over the file")
    arguments = parser.parse_intermixed_args(argv)

    from proofreel.data_prep.pipeline import BuildConfig, build, summary, training_command

    try:
        config = load_config(BuildConfig, arguments.config, arguments.overrides)
        manifest = build(config, skip_invalid=arguments.skip_invalid)
    except ProofreelError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except (OSError, sqlite3.OperationalError) as error:  # a full disk above all
        print(f"error: the build stopped, got {error}; free the disk and start it again: it goes on", file=sys.stderr)
        return 1
    output = Path(manifest["config"]["output"])
    print(summary(manifest, output))
    say_next(*training_command(manifest, output))
    return 0


def _keys() -> type:
    from proofreel.data_prep.pipeline import BuildConfig

    return BuildConfig


if __name__ == "__main__":
    raise SystemExit(main())
