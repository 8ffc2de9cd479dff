"""From annotations to a published verifier: build, train, predict, calibrate, predict, report, export, selftest.

    proofreel run configs/kitchen_run.yaml
    proofreel run configs/kitchen_run.yaml --plan --card h100 --price 2.5
    proofreel run my.yaml --until build
    proofreel run my.yaml --again train train.options.learning_rate=1e-4

Every step is a command that is printed before it runs, as one would type it. Stopped at any moment and started again
with the same words, the run goes on where it was. docs/run.md explains every key.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from proofreel.core import CommandParser, ProofreelError, load_config, require

if TYPE_CHECKING:
    from proofreel.train.run_config import RunConfig


def main(argv: Sequence[str] | None = None) -> int:
    """Do the steps; the exit status is 0 when all are done, that of a step that failed, else 1."""
    args = _parser().parse_intermixed_args(argv)

    from proofreel.train.run_config import RunConfig
    from proofreel.train.run_steps import run_steps, run_summary, say_what_follows
    from proofreel.train.stages import StageError

    try:
        config = load_config(RunConfig, args.config, args.overrides)
        if args.plan:
            return _plan(config, args.card, args.price)
        if args.until != "build" and config.train.launch is None:
            require("train", "trl")  # now, not after the build
        record = run_steps(config, args.until, args.again)
    except StageError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.status
    except ProofreelError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(run_summary(config, record))
    say_what_follows(config)
    return 0


def _keys() -> type:
    from proofreel.train.run_config import RunConfig

    return RunConfig


def _parser() -> argparse.ArgumentParser:
    parser = CommandParser(prog="proofreel run", description=__doc__, configs="run", keys=_keys)
    parser.add_argument("config", type=Path, help="YAML file with the keys of RunConfig; `proofreel init` writes one")
    parser.add_argument("overrides", nargs="*", metavar="key.path=value", help="values that win over the file")
    parser.add_argument("--plan", action="store_true", help="print the commands and what training costs; run nothing")
    parser.add_argument("--until", metavar="STEP", help="the last step to do, e.g. build or calibrate")
    parser.add_argument(
        "--again", metavar="STEP", help="remove what this step and those after it made, and do them anew"
    )
    parser.add_argument("--card", help="with --plan: the card that trains, e.g. h100, a100, l40s, 4090")
    parser.add_argument("--price", type=float, help="with --plan: money per hour of one card")
    return parser


def _plan(config: RunConfig, card: str | None, price: float | None) -> int:
    """Print every command; then what the training plan says, where the data set is there."""
    from proofreel.train.run_steps import cost_command, folds_of, plan_lines

    print("\n".join(plan_lines(config)), flush=True)
    command = cost_command(config, card, price)
    if command is None:
        print("cost          not known before the data set is built: --until build, then --plan again")
        return 0
    if folds := folds_of(config):
        print(
            f"cost          of the last training; the {len(folds)} before it, each without a fold, cost a little less"
        )
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    raise SystemExit(main())
