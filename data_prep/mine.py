"""Mine hard negatives: a data set and a model's predictions on its train split give a balanced, harder data set.

    python eval/predict.py --verifier DIR --data runs/data/x --split train --out runs/x/train.parquet
    python eval/teach.py --predictions runs/x/train.parquet --calibration runs/x/calibrated --out runs/x/teacher.parquet
    python data_prep/mine.py --config configs/mine.yaml data=runs/data/x predictions=runs/x/teacher.parquet \\
        output=runs/data/x-mined mining.hard_share=0.5

Predictions that are not calibrated are refused unless mining.uncalibrated=allow.
Negatives without a human judgment that the model is too sure of are written to review.jsonl instead of train.
docs/negatives.md describes every key.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from proofreel.core import CommandParser, ProofreelError, expanded, load_config, say_next


def main(argv: Sequence[str] | None = None) -> int:
    """Mine from the command line; the exit status is 0 when a data set was written, else 1."""
    parser = CommandParser(prog="proofreel mine", description=__doc__, configs="mine", keys=_keys)
    parser.add_argument("--config", required=True, type=Path, help="YAML file with the keys of MineConfig")
    parser.add_argument("overrides", nargs="*", metavar="key.path=value", help="values that win over the file")
    arguments = parser.parse_intermixed_args(argv)

    from proofreel.data_prep.pipeline import MineConfig, mine_data_set, mining_summary, training_command

    try:
        config = load_config(MineConfig, arguments.config, arguments.overrides)
        manifest = mine_data_set(config)
    except ProofreelError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(mining_summary(manifest))
    say_next(*training_command(manifest, Path(expanded(config.output, "output"))))
    return 0


def _keys() -> type:
    from proofreel.data_prep.pipeline import MineConfig

    return MineConfig


if __name__ == "__main__":
    raise SystemExit(main())
