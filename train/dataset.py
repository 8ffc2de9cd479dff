"""Rows that share evidence, as training examples: one example is one prefix with up to K claims."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.functional import pad
from torch.utils.data import Dataset

from ..core import ConfigError, Evidence, Label, Pair, ProofreelError, RowError, evidence_key
from ..data_prep.media import FrameCache
from ..models.decision import sigmoid
from ..models.engine import IGNORED, TWO_LABELS, PackedRow, VisionFeatures, collate, collate_apart, pack
from ..models.inputs import Branches, EncodedEvidence, Encoder, read_media
from .arguments import DistillArguments, VerdictArguments
from .batching import TokenCounts, group_pairs
from .distillation_loss import Distillation
from .faults import FileStamps, Reading, blank
from .loss import class_of
from .preemption import leave_signals_to_parent

IDLE = -1
"""The index of a row that is none: it fills up the last batches of an epoch, and weighs nothing."""


@dataclass(frozen=True)
class Example:
    """A packed row with its targets.

    Attributes:
        row: the evidence and its claims.
        labels_K: probabilities of supported; `IGNORED` in a stand-in.
        weights_K: factors in the loss; 0 in a stand-in.
        classes_K: index of the right label; `IGNORED` where only the probability is known.
        ids: of the pairs; none of an idle row.
        teacher_K: margins of a teacher, NaN where it said nothing; None in a run without one, like `hard_shares_K`.
        hard_shares_K: share of the loss that is on the label.
        error: why the pairs could not be read, where this is a stand-in for them.
    """

    row: PackedRow
    labels_K: torch.Tensor
    weights_K: torch.Tensor
    classes_K: torch.Tensor
    ids: tuple[str, ...] = ()
    error: str | None = None
    teacher_K: torch.Tensor | None = None
    hard_shares_K: torch.Tensor | None = None


def target(pair: Pair, distills: bool = False) -> float:
    """Probability of supported that a row teaches; refuted and not_enough both count as not supported.

    Where a run distils, a row without any label teaches what the teacher said.
    """
    if pair.soft_label is not None:
        return float(pair.soft_label)
    if distills and pair.label is None and pair.teacher_margin is not None:
        return float(sigmoid(pair.teacher_margin))
    if pair.label is None:
        raise RowError(f"row {pair.id}: has neither label nor soft_label; leave unlabelled rows out of training data")
    return float(pair.label == "supported")


class GroupDataset(Dataset[Example]):
    """Examples of one split; media is decoded when an example is asked for, in the worker that asks.

    Attributes:
        groups: the pairs of each packed row.
        reading: which rows the loader workers are reading.
        dead: rows that cost a worker its life, and how: they are not read again.
    """

    def __init__(
        self,
        pairs: Sequence[Pair],
        encoder: Encoder,
        claims_per_row: int,
        cache_bytes: float = 0.0,
        frame_cache: FrameCache | None = None,
        *,
        features: VisionFeatures | None = None,
        labels: Sequence[Label] = TWO_LABELS,
        tokens_per_row: int | None = None,
        counts: TokenCounts | None = None,
        distillation: Distillation | None = None,
    ) -> None:
        """Group and split the pairs; nothing is decoded yet.

        Args:
            pairs: as `read_split` gives them.
            encoder: makes network input of them.
            claims_per_row: as for `group_pairs`, like `tokens_per_row` and `counts`.
            cache_bytes: the first so many bytes of encoded evidence stay in memory.
            frame_cache: where decoded frames are kept, or a `faults.DeadlineReader`.
            features: what the vision tower makes of all evidence here, in place of its pixels.
            labels: of the head that is trained.
            distillation: how rows learn from their `teacher_margin`; None: not at all.
        """
        self.groups = group_pairs(pairs, claims_per_row, tokens_per_row, counts)
        self.encoder, self.frame_cache, self.features, self.labels = encoder, frame_cache, features, labels
        self.reading, self.dead = Reading(), dict[int, str]()
        self.distillation = distillation
        self._stamps = FileStamps(group[0].evidence for group in self.groups)
        self._cache: dict[str, EncodedEvidence] = {}
        self._cache_left = cache_bytes

    def __len__(self) -> int:
        """Number of packed rows."""
        return len(self.groups)

    def __getitem__(self, i: int) -> Example:
        """Decode and encode one group; what cannot be read becomes a stand-in that says so (`Example.error`)."""
        leave_signals_to_parent()
        if i == IDLE:
            return self._stand_in(self.groups[0], (), None)
        group = self.groups[i]
        if i in self.dead:
            return self._stand_in(group, tuple(p.id for p in group), self.dead[i])
        self.reading.begin(i)
        try:
            encoded = self._encode(group[0].evidence)
            row = pack(encoded, [self.encoder.claim_ids(p.claim, p.context) for p in group])
        except ProofreelError as error:
            return self._stand_in(group, tuple(p.id for p in group), str(error))
        finally:
            self.reading.end()
        return Example(
            row,
            labels_K=torch.tensor([target(p, self.distillation is not None) for p in group]),
            weights_K=torch.tensor([float(p.weight) for p in group]),
            classes_K=torch.tensor([class_of(p, self.labels) for p in group]),
            ids=tuple(p.id for p in group),
            **self._teacher_targets(group),
        )

    def _teacher_targets(self, group: Sequence[Pair]) -> dict[str, Any]:
        if self.distillation is None:
            return {}
        teacher_K, shares_K = torch.tensor([self.distillation.targets(p) for p in group]).T
        return {"teacher_K": teacher_K, "hard_shares_K": shares_K}

    def _stand_in(self, group: Sequence[Pair], ids: tuple[str, ...], error: str | None) -> Example:
        """A row of the same make, with one claim, that teaches nothing."""
        encoded = blank(group[0].evidence, self.encoder, text_only=self.features is not None)
        row = pack(encoded, [self.encoder.claim_ids("none", None)])
        nothing_1 = torch.tensor([IGNORED])
        empty = Pair("", "none", (), label="refuted")
        return Example(row, nothing_1.float(), torch.zeros(1), nothing_1, ids, error, **self._teacher_targets([empty]))

    def _encode(self, evidence: tuple[Evidence, ...]) -> EncodedEvidence:
        """Decode and encode, or take it from memory: small data sets are decoded once, not once an epoch."""
        key = evidence_key(evidence)
        if key not in self._cache:
            if self.features is not None:
                media = self.features.read(evidence)
            else:
                media = read_media(evidence, self.encoder.sampling, cache=self.frame_cache)
            self._stamps.check(evidence)  # last: the file may have changed while it was read
            encoded = self.encoder.evidence(evidence, media)
            size = sum(t.nbytes for t in encoded.vision.values())
            if size > self._cache_left:
                return encoded
            self._cache[key], self._cache_left = encoded, self._cache_left - size
        return self._cache[key]


class BatchedRows(Dataset[tuple[Example, ...]]):
    """A data set whose items are whole batches, so that the Trainer shuffles, shares out and resumes batches."""

    def __init__(self, rows: GroupDataset, batches: Sequence[tuple[int, ...]]) -> None:
        """`batches` hold indices of `rows` (`lengths.batches_of`); a batch size of 1 is one of them."""
        self.rows, self.batches = rows, batches

    def __len__(self) -> int:
        """Number of batches."""
        return len(self.batches)

    def __getitem__(self, i: int) -> tuple[Example, ...]:
        """The examples of one batch; of `IDLE`, one idle row."""
        return tuple(self.rows[j] for j in ((IDLE,) if i == IDLE else self.batches[i]))


class Collator:
    """Examples to one batch: `collate`'s, with `labels`, `weights` and `classes` (B, K), and who its rows are.

    `row_ids` holds the pairs' ids of each row; `bad_rows`, where there are any, (ids, reason) of those that are
    stand-ins.
    """

    def __init__(self, pad_id: int, branches: Branches = "packed") -> None:
        """`pad_id` fills short rows; `branches` as of the backbone's `VisionLayout`."""
        self.pad_id, self.collate = pad_id, collate if branches == "packed" else collate_apart

    def __call__(self, items: Sequence[Example | tuple[Example, ...]]) -> dict[str, Any]:
        """Pad to the longest prefix and claims region, and to the most claims, of the batch."""
        examples = [e for item in items for e in (item if isinstance(item, tuple) else (item,))]
        batch = self.collate([e.row for e in examples], self.pad_id)
        most = batch["verdicts"].shape[1]
        batch["labels"] = torch.stack([_fill(e.labels_K, most, IGNORED) for e in examples])
        batch["weights"] = torch.stack([_fill(e.weights_K, most, 0.0) for e in examples])
        batch["classes"] = torch.stack([_fill(e.classes_K, most, IGNORED) for e in examples])
        if examples[0].teacher_K is not None:
            batch["teacher"] = torch.stack([_fill(e.teacher_K, most, math.nan) for e in examples])
            batch["hard_shares"] = torch.stack([_fill(e.hard_shares_K, most, 1.0) for e in examples])
        batch["row_ids"] = [e.ids for e in examples]
        if bad := [(e.ids, e.error) for e in examples if e.error is not None]:
            batch["bad_rows"] = bad
        return batch


def check_rows(pairs: Sequence[Pair], counts: TokenCounts, distills: bool = False) -> list[str]:
    """Everything that would stop a run on these rows, found without decoding: one message per bad row."""
    problems: list[str] = []
    for group in group_pairs(pairs, claims_per_row=len(pairs) or 1):
        try:
            n_prefix = counts.prefix(group[0].evidence)
        except ProofreelError as error:
            problems += [f"row {p.id}: {error}" for p in group]
            continue
        problems += [f"row {p.id}: {m}" for p in group for m in _claim_problems(p, counts, n_prefix, distills)]
    return problems


def _claim_problems(pair: Pair, counts: TokenCounts, n_prefix: int, distills: bool) -> list[str]:
    try:
        target(pair, distills)
        n_claim = counts.claim(pair)
    except ProofreelError as error:
        return [str(error)]
    if n_prefix + n_claim <= counts.encoder.max_tokens:
        return []
    return [
        f"prompt is too long, got {n_prefix} evidence + {n_claim} claim tokens of at most {counts.encoder.max_tokens}; "
        "lower max_frames or max_pixels, shorten the span, or raise max_tokens"
    ]


def bound_pairs(
    pairs: dict[str, list[Pair]], arguments: VerdictArguments, distill: DistillArguments | None
) -> dict[str, list[Pair]]:
    """Pairs as they are encoded; `ConfigError` for a loss between the claims of a row where a row has one claim."""
    prompt = arguments.prompt()
    compared = {"paired_weight": arguments.paired_weight, "listwise_weight": distill.listwise_weight if distill else 0}
    for name, weight in compared.items():
        if prompt.claim_first and weight:
            raise ConfigError(
                f"{name}: compares claims of one row, got {weight} with a prompt whose claim comes first; set it to 0, "
                "or use named_prompt: reranker_shared"
            )
    return {split: [prompt.bound(pair) for pair in rows] for split, rows in pairs.items()}


def _fill(values_K: Any, length: int, value: float) -> torch.Tensor:
    return pad(values_K, (0, length - len(values_K)), value=value)
