"""Rounds of hard-negative mining: random negatives first, then those that the round before took for true.

    python train/rounds.py --config configs/kitchen_rounds.yaml
    proofreel rounds --config configs/kitchen_rounds.yaml rounds=3 output=runs/other train.options.learning_rate=1e-4

Every stage is a command that is printed before it runs. Stopped at any moment and started again with the same words,
it goes on where it was. docs/negatives.md describes every key.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from proofreel.core import CommandParser, ProofreelError, load_config, require, say_next


def main(argv: Sequence[str] | None = None) -> int:
    """Run the rounds; the exit status is 0 when all are done, that of a stage that failed, else 1."""
    parser = CommandParser(prog="proofreel rounds", description=__doc__, configs="rounds", keys=_keys)
    parser.add_argument("--config", required=True, type=Path, help="YAML file with the keys of RoundsConfig")
    parser.add_argument("overrides", nargs="*", metavar="key.path=value", help="values that win over the file")
    arguments = parser.parse_intermixed_args(argv)

    from proofreel.train.rounds_config import RoundsConfig
    from proofreel.train.rounds_loop import rounds_summary, run_rounds
    from proofreel.train.stages import StageError

    try:
        config = load_config(RoundsConfig, arguments.config, arguments.overrides)
        if config.train.launch is None:
            require("rounds", "trl")
        record = run_rounds(config)
    except StageError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.status
    except ProofreelError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(rounds_summary(record))
    last = Path(record["config"]["output"]) / f"round-{record['config']['rounds']}"
    given = ("--verifier", last / "run" / "draft", "--data", record["config"]["data"], "--split", "test")
    say_next("predict", *given, "--out", last / "test.parquet")
    return 0


def _keys() -> type:
    from proofreel.train.rounds_config import RoundsConfig

    return RoundsConfig


if __name__ == "__main__":
    raise SystemExit(main())
