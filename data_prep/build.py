"""Build a data set of (claim, evidence, label) from annotations.

    python data_prep/build.py --config configs/mirage_grounding_build.yaml
    python data_prep/build.py --config configs/x.yaml seed=1 negatives.balanced=true --skip-invalid
    python data_prep/build.py --config configs/x.yaml --shard 2/4     # on each of four machines its own
    python data_prep/build.py --config configs/x.yaml --merge         # then the four are one data set

Bad annotations are reported together and end the build with exit status 1; --skip-invalid goes on without them.
docs/data.md describes the formats, every key, and builds on several machines.
"""

from __future__ import annotations

import dataclasses
import re
import sqlite3
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from proofreel.core import (
    CommandParser,
    ConfigError,
    ProofreelError,
    allow_remote,
    load_config,
    place,
    say_next,
    written_to,
)

if TYPE_CHECKING:
    from proofreel.data_prep.pipeline import ShardRecord

_OVERRIDE = re.compile(r"[\w.]+=")


def main(argv: Sequence[str] | None = None) -> int:
    """Run a build from the command line; the exit status is 0 when a data set was written, else 1."""
    parser = CommandParser(prog="proofreel build", description=__doc__, configs="build", keys=_keys)
    parser.add_argument("--config", required=True, type=Path, help="YAML file with the keys of BuildConfig")
    parser.add_argument(
        "--skip-invalid", action="store_true", help="leave bad annotations out and say how many and why"
    )
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--shard", metavar="I/N", help="only the I-th of N shards, into <output>.shard-I-of-N")
    how.add_argument(
        "--merge", nargs="*", metavar="DIR", help="make the data set of these shards; none: those beside the output"
    )
    parser.add_argument("overrides", nargs="*", metavar="key.path=value", help="values that win over the file")
    arguments = parser.parse_intermixed_args(argv)
    merged = arguments.merge or []  # an override after --merge is one all the same
    overrides = [*arguments.overrides, *filter(_OVERRIDE.match, merged)]
    shards = [Path(word) for word in merged if not _OVERRIDE.match(word)]

    from proofreel.data_prep.pipeline import BuildConfig, build, build_shard, merge_shards, summary, training_command

    def build_in(output: Path) -> int:
        there = config if isinstance(out, Path) else dataclasses.replace(config, output=str(output))
        if arguments.shard is not None:
            return _say_shard(*build_shard(there, arguments.shard))
        if arguments.merge is not None:
            manifest = merge_shards(there, shards, skip_invalid=arguments.skip_invalid)
        else:
            address = None if isinstance(out, Path) else out
            manifest = build(there, skip_invalid=arguments.skip_invalid, address=address)
        written = Path(manifest["config"]["output"]) if isinstance(out, Path) else output
        print(summary(manifest, written))
        say_next(*training_command(manifest, written if isinstance(out, Path) else out))
        return 0

    try:
        config = load_config(BuildConfig, arguments.config, overrides)
        out = place(config.output)
        if isinstance(out, str):
            if arguments.shard is not None or arguments.merge is not None:
                raise ConfigError(f"output: shards meet in a folder of a disk, got {out}; name one")
            allow_remote(*config.remote)
        return written_to(out, build_in)
    except ProofreelError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except (OSError, sqlite3.OperationalError) as error:  # a full disk above all
        print(f"error: the build stopped, got {error}; free the disk and start it again: it goes on", file=sys.stderr)
        return 1


def _say_shard(directory: Path, record: ShardRecord) -> int:
    for kind, number in record.rejected.items():
        print(f"bad annotations: {number} x {kind} (the merge reports them all)")
    print(f"shard {record.number} of {record.of}: {record.rows} rows, {record.files} media files, in {directory}")
    print(f"When all {record.of} are there, run the same command with --merge instead of --shard.")
    return 0


def _keys() -> type:
    from proofreel.data_prep.pipeline import BuildConfig

    return BuildConfig


if __name__ == "__main__":
    raise SystemExit(main())
