"""What a run is fed with: its data sets, which rows share a batch, and its caches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from transformers import TrainingArguments

from ..data_prep.errors import ConfigError
from ..data_prep.frame_cache import FrameCache
from ..data_prep.rows import Image, Label, Pair, VideoSegment
from ..models.encoding import Encoder
from ..models.vision_features import VisionFeatures
from .arguments import VerdictArguments
from .groups import GroupDataset
from .lengths import TokenCounts, batches_of


def make_datasets(
    pairs: dict[str, list[Pair]],
    labels: Sequence[Label],
    encoder: Encoder,
    counts: TokenCounts,
    features: VisionFeatures | None,
    arguments: VerdictArguments,
) -> dict[str, GroupDataset]:
    """One data set of packed rows for each split."""
    return {
        split: GroupDataset(
            rows,
            encoder,
            arguments.claims_per_row,
            arguments.cache_gib * 2**30,
            _frame_cache(arguments),
            features=features,
            labels=labels,
            tokens_per_row=arguments.tokens_per_row,
            counts=counts,
        )
        for split, rows in pairs.items()
    }


def make_vision_cache(arguments: VerdictArguments, model: torch.nn.Module, encoder: Encoder) -> VisionFeatures | None:
    """The features of the frozen tower, kept in the precision of its weights; None if the run has no such cache."""
    if arguments.vision_cache is None:
        return None
    exact = next(model.parameters()).dtype == torch.float32
    return VisionFeatures(
        arguments.vision_cache,
        model,
        encoder,
        frame_cache=_frame_cache(arguments),
        dtype="float32" if exact else "bfloat16",
    )


def make_batches(
    groups: Sequence[Sequence[Pair]], arguments: VerdictArguments, training: TrainingArguments, counts: TokenCounts
) -> list[tuple[int, ...]] | None:
    """Which rows share a micro-batch, under `tokens_per_batch`; None leaves batches of equally many rows."""
    if arguments.tokens_per_batch is None:
        return None
    lengths = [counts.row(group) for group in groups]
    return batches_of(lengths, training.per_device_train_batch_size, arguments.tokens_per_batch, training.seed)


def check_tower_calls(pairs: Mapping[str, Sequence[Pair]], sharded: bool, trains: bool) -> None:
    """Refuse rows over which ranks would call the vision tower unequally often, and wait for each other for ever.

    Args:
        pairs: of each split.
        sharded: the tower's weights are spread over ranks (ZeRO-3): every call of it is a collective one.
        trains: its gradients are averaged over ranks.

    Raises:
        ConfigError: some evidence shows what other evidence does not.
    """
    kinds = set()
    for pair in (pair for rows in pairs.values() for pair in rows):
        video, image = (any(isinstance(e, kind) for e in pair.evidence) for kind in (VideoSegment, Image))
        kinds.add((video, image) if sharded else video or image)
    if len(kinds) > 1 and (sharded or trains):
        raise ConfigError(
            "dataset_dir: some rows show videos or images and others do not, got a vision tower that is "
            f"{'sharded over' if sharded else 'trained on'} several processes; use ZeRO-2 or DDP with a frozen tower, "
            "or split the data set by modality"
        )


def _frame_cache(arguments: VerdictArguments) -> FrameCache | None:
    return FrameCache(arguments.frame_cache) if arguments.frame_cache else None
