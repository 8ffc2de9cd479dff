"""What a data set is on disk: shards, manifest, splits, the claim-only probe and the card."""

from typing import TYPE_CHECKING

from ...core import on_first_use

if TYPE_CHECKING:
    from .card import CARD, PICTURES, write_card
    from .card_statistics import CardStatistics
    from .folds import FOLDS, fold_names, splits_without, write_folds
    from .shards import (
        MANIFEST,
        SCHEMA_VERSION,
        iter_split,
        read_manifest,
        read_pairs,
        read_split,
        shard_entry,
        shard_name,
        train_shards,
        write_columns,
        write_pairs,
        write_shards,
    )
    from .shortcut import MAX_ROWS, ShortcutReport, claim_only_probe, claim_only_scores, shortcut_table
    from .splits import assign_splits, check_fractions, in_order, rank

__all__ = [
    "CARD",
    "FOLDS",
    "MANIFEST",
    "MAX_ROWS",
    "PICTURES",
    "SCHEMA_VERSION",
    "CardStatistics",
    "ShortcutReport",
    "assign_splits",
    "check_fractions",
    "claim_only_probe",
    "claim_only_scores",
    "fold_names",
    "in_order",
    "iter_split",
    "rank",
    "read_manifest",
    "read_pairs",
    "read_split",
    "shard_entry",
    "shard_name",
    "shortcut_table",
    "splits_without",
    "train_shards",
    "write_card",
    "write_columns",
    "write_folds",
    "write_pairs",
    "write_shards",
]

__getattr__ = on_first_use(__name__, __file__)
