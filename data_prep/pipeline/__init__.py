"""A build, step by step: sources, checks, the staging database, negatives, splits, shards, manifest."""

from .config import BuildConfig
from .mine import MineConfig, mine_data_set, mining_summary
from .pipeline import build
from .write import git_revision, summary, versions

__all__ = [
    "BuildConfig",
    "MineConfig",
    "build",
    "git_revision",
    "mine_data_set",
    "mining_summary",
    "summary",
    "versions",
]
