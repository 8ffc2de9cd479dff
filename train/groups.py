"""Rows that share evidence, as training examples: one example is one prefix with up to K claims."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import pad
from torch.utils.data import Dataset

from ..data_prep.errors import ProofreelError, RowError
from ..data_prep.frame_cache import FrameCache
from ..data_prep.rows import Evidence, Pair, evidence_key
from ..models.encoding import EncodedEvidence, Encoder, read_media
from ..models.packing import IGNORED, PackedRow, collate, pack


@dataclass(frozen=True)
class Example:
    """A packed row with its targets: labels are probabilities of supported, weights factors in the loss."""

    row: PackedRow
    labels_K: torch.Tensor
    weights_K: torch.Tensor


def group_pairs(pairs: Sequence[Pair], claims_per_row: int) -> list[tuple[Pair, ...]]:
    """Pairs of equal evidence, in order of first appearance, split into runs of at most `claims_per_row`."""
    by_evidence: dict[str, list[Pair]] = {}
    for pair in pairs:
        by_evidence.setdefault(evidence_key(pair.evidence), []).append(pair)
    return [
        tuple(group[i : i + claims_per_row])
        for group in by_evidence.values()
        for i in range(0, len(group), claims_per_row)
    ]


def target(pair: Pair) -> float:
    """Probability of supported that a row teaches; refuted and not_enough both count as not supported."""
    if pair.soft_label is not None:
        return float(pair.soft_label)
    if pair.label is None:
        raise RowError(f"row {pair.id}: has neither label nor soft_label; leave unlabelled rows out of training data")
    return float(pair.label == "supported")


class GroupDataset(Dataset[Example]):
    """Examples of one split; media is decoded when an example is asked for, in the worker that asks."""

    def __init__(
        self,
        pairs: Sequence[Pair],
        encoder: Encoder,
        claims_per_row: int,
        cache_bytes: float = 0.0,
        frame_cache: FrameCache | None = None,
    ) -> None:
        """`pairs` as `read_split` gives them; the first `cache_bytes` of encoded evidence stay in memory."""
        self.groups, self.encoder, self.frame_cache = group_pairs(pairs, claims_per_row), encoder, frame_cache
        self._cache: dict[str, EncodedEvidence] = {}
        self._cache_left = cache_bytes

    def __len__(self) -> int:
        """Number of packed rows."""
        return len(self.groups)

    def __getitem__(self, i: int) -> Example:
        """Decode and encode one group; an unreadable video stops the run with the row named."""
        group = self.groups[i]
        try:
            encoded = self._encode(group[0].evidence)
            row = pack(encoded, [self.encoder.claim_ids(p.claim, p.context) for p in group])
        except ProofreelError as error:
            raise type(error)(f"row {group[0].id}: {error}") from error
        return Example(row, torch.tensor([target(p) for p in group]), torch.tensor([float(p.weight) for p in group]))

    def _encode(self, evidence: tuple[Evidence, ...]) -> EncodedEvidence:
        """Decode and encode, or take it from memory: small data sets are decoded once, not once an epoch."""
        key = evidence_key(evidence)
        if key not in self._cache:
            media = read_media(evidence, self.encoder.sampling, cache=self.frame_cache)
            encoded = self.encoder.evidence(evidence, media)
            size = sum(t.nbytes for t in encoded.vision.values())
            if size > self._cache_left:
                return encoded
            self._cache[key], self._cache_left = encoded, self._cache_left - size
        return self._cache[key]


class Collator:
    """Examples to one batch of tensors: `collate`'s, with `labels` and `weights` (B, K) beside them."""

    def __init__(self, pad_id: int) -> None:
        """`pad_id` fills short rows."""
        self.pad_id = pad_id

    def __call__(self, examples: Sequence[Example]) -> dict[str, Any]:
        """Pad to the longest row and the most claims of the batch."""
        batch = collate([e.row for e in examples], self.pad_id)
        most = batch["verdicts"].shape[1]
        batch["labels"] = torch.stack([_fill(e.labels_K, most, IGNORED) for e in examples])
        batch["weights"] = torch.stack([_fill(e.weights_K, most, 0.0) for e in examples])
        return batch


def check_rows(pairs: Sequence[Pair], encoder: Encoder, media_root: str | Path | None = None) -> list[str]:
    """Everything that would stop a run on these rows, found without decoding: one message per bad row."""
    problems: list[str] = []
    for group in group_pairs(pairs, claims_per_row=len(pairs) or 1):
        try:
            n_prefix = encoder.count_prefix_tokens(group[0].evidence, media_root)
        except ProofreelError as error:
            problems += [f"row {p.id}: {error}" for p in group]
            continue
        problems += [f"row {p.id}: {m}" for p in group for m in _claim_problems(p, encoder, n_prefix)]
    return problems


def _claim_problems(pair: Pair, encoder: Encoder, n_prefix: int) -> list[str]:
    try:
        target(pair)
        n_claim = len(encoder.claim_ids(pair.claim, pair.context))
    except ProofreelError as error:
        return [str(error)]
    if n_prefix + n_claim <= encoder.max_tokens:
        return []
    return [
        f"prompt is too long, got {n_prefix} evidence + {n_claim} claim tokens of at most {encoder.max_tokens}; "
        "lower max_frames or max_pixels, shorten the span, or raise max_tokens"
    ]


def _fill(values_K: torch.Tensor, length: int, value: float) -> torch.Tensor:
    return pad(values_K, (0, length - len(values_K)), value=value)
