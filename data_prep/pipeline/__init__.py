"""A build, one module per step: sources, validate, check_media, splitting (with leakage), negatives, write.

`pipeline.build` runs the steps in this order on the staging database (`staging`); `config` holds the keys. Each step is
a module of its own although only `pipeline` imports it: it is read, tested and started again by itself. `mine` makes a
mined data set of a finished one; `source_guess` and `build_guess` look at annotations for `proofreel init`.
"""

from .build_guess import MediaGuess, SplitsGuess, guess_media, guess_splits, guess_swapped
from .config import BuildConfig
from .mine import MineConfig, mine_data_set, mining_summary
from .pipeline import build, build_shard, merge_shards
from .sharding import ShardRecord
from .source_guess import SourceGuess, guess_source
from .write import git_revision, summary, training_command, versions

__all__ = [
    "BuildConfig",
    "MediaGuess",
    "MineConfig",
    "ShardRecord",
    "SourceGuess",
    "SplitsGuess",
    "build",
    "build_shard",
    "git_revision",
    "guess_media",
    "guess_source",
    "guess_splits",
    "guess_swapped",
    "merge_shards",
    "mine_data_set",
    "mining_summary",
    "summary",
    "training_command",
    "versions",
]
