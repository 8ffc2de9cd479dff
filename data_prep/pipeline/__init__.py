"""A build, one module per step: sources, validate, check_media, splitting (with leakage), negatives, write.

`pipeline.build` runs the steps in this order on the staging database (`staging`); `config` holds the keys. Each step is
a module of its own although only `pipeline` imports it: it is read, tested and started again by itself. `mine` makes a
mined data set of a finished one.
"""

from .config import BuildConfig
from .mine import MineConfig, mine_data_set, mining_summary
from .pipeline import build
from .write import git_revision, summary, training_command, versions

__all__ = [
    "BuildConfig",
    "MineConfig",
    "build",
    "git_revision",
    "mine_data_set",
    "mining_summary",
    "summary",
    "training_command",
    "versions",
]
