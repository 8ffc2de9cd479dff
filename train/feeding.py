"""What a run is fed with: its data sets, which rows share a batch and in which order, its loss and its caches."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from transformers import TrainingArguments

from ..core.errors import ConfigError
from ..core.pairs import Label, Pair
from ..data_prep.frame_cache import FrameCache
from ..models.engine.vision_features import VisionFeatures
from ..models.inputs.encoder import Encoder
from .arguments import VerdictArguments
from .distillation import Distillation
from .faults import DeadlineReader
from .groups import GroupDataset
from .lengths import TokenCounts, batches_of
from .objective import Objective, balanced_weights


def make_datasets(
    pairs: dict[str, list[Pair]],
    labels: Sequence[Label],
    encoder: Encoder,
    counts: TokenCounts,
    features: VisionFeatures | None,
    arguments: VerdictArguments,
    distillation: Distillation | None = None,
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
            distillation=distillation,
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


def make_objective(
    arguments: VerdictArguments, training: TrainingArguments, labels: Sequence[Label], pairs: Sequence[Pair]
) -> Objective:
    """The loss on labels a run asks for; `pairs` are those of the train split."""
    weights = None if arguments.class_weights is None else tuple(arguments.class_weights)
    if arguments.balance_classes:
        if weights is not None:
            raise ConfigError(f"class_weights: balance_classes sets them, got {list(weights)} as well; leave one out")
        weights = balanced_weights(pairs, labels)
    return Objective(
        tuple(labels),
        weights,
        arguments.focal_gamma,
        training.label_smoothing_factor,
        arguments.paired_weight,
        arguments.paired_margin,
    )


def _frame_cache(arguments: VerdictArguments) -> FrameCache | None:
    limit_s = arguments.read_timeout_s or None
    if arguments.frame_cache:
        return FrameCache(arguments.frame_cache, timeout_s=limit_s)
    return DeadlineReader(limit_s) if limit_s else None  # type: ignore[return-value]  (all that is asked of it is `read`)
