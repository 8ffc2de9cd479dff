"""How long rows are, without decoding anything, and which of them make a batch.

A row of a batch costs what the longest prefix and the longest claims region cost, so rows of about equal length go
together, as many as a budget of tokens allows. Which rows share a batch is fixed for a run; the order of the batches
is the Trainer's to shuffle, share among ranks and resume.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from accelerate.utils import gather_object
from transformers import TrainingArguments

from ..core import Evidence, Pair, ProofreelError, Visual, evidence_key
from ..models.engine import read_ahead
from ..models.inputs import Encoder, heard
from .arguments import VerdictArguments


@dataclass(frozen=True)
class RowLength:
    """Tokens of a packed row: of its prefix, and of all its claims together."""

    prefix: int
    claims: int


class TokenCounts:
    """Counts tokens with a run's tokenizer and sampling; of a video only the header is read, once."""

    def __init__(self, encoder: Encoder, media_root: str | Path | None = None) -> None:
        """`media_root` is the folder that relative paths in evidence start from."""
        self.encoder, self.media_root = encoder, media_root
        self._prefixes: dict[str, int] = {}
        self._grids: dict[str, tuple[tuple[int, int, int], ...]] = {}

    def count_all(self, evidences: Iterable[tuple[Evidence, ...]], rank: int = 0, world_size: int = 1) -> None:
        """Count the prefixes of these, reading several files' headers at once; each rank reads a share, all know all.

        One that cannot be read is left out: `prefix` says why when it is asked for.

        Args:
            evidences: the same on every rank; each is counted once.
            rank: of this process.
            world_size: number of processes, all of which call this.
        """
        distinct = {evidence_key(evidence): evidence for evidence in evidences}
        with closing(read_ahead(self._try, list(distinct.values())[rank::world_size])) as counted:
            for _ in counted:
                pass
        if world_size > 1:
            for prefixes, grids in gather_object([(self._prefixes, self._grids)]):
                self._prefixes.update(prefixes)
                self._grids.update(grids)

    def _try(self, evidence: tuple[Evidence, ...]) -> None:
        with suppress(ProofreelError):
            self.prefix(evidence)

    def prefix(self, evidence: tuple[Evidence, ...]) -> int:
        """Tokens of a prefix; `ProofreelError` where it cannot be read."""
        key = evidence_key(evidence)
        if key not in self._prefixes:
            self.encoder.check_readable(evidence)
            shown = [e for e in evidence if isinstance(e, Visual)]
            self._grids[key] = tuple(self.encoder.grid(e, self.media_root) for e in shown)
            n_visual = sum(t * h * w // self.encoder.merge_side**2 for t, h, w in self._grids[key])
            n_audio = sum(self.encoder.count_audio_tokens(sound, self.media_root) for sound in heard(evidence))
            self._prefixes[key] = self.encoder.count_text_tokens(evidence, self.media_root) + n_visual + n_audio
        return self._prefixes[key]

    def grids(self, evidence: tuple[Evidence, ...]) -> tuple[tuple[int, int, int], ...]:
        """Temporal, vertical and horizontal patches of every video and image, before merging."""
        self.prefix(evidence)
        return self._grids[evidence_key(evidence)]

    def claim(self, pair: Pair) -> int:
        """Tokens of a claim with its context; `ProofreelError` where it cannot be encoded."""
        return len(self.encoder.claim_ids(pair.claim, pair.context))

    def row(self, group: Sequence[Pair]) -> RowLength:
        """Tokens of a group of pairs that share evidence, packed."""
        return RowLength(self.prefix(group[0].evidence), sum(self.claim(p) for p in group))


def group_pairs(
    pairs: Sequence[Pair], claims_per_row: int, tokens_per_row: int | None = None, counts: TokenCounts | None = None
) -> list[tuple[Pair, ...]]:
    """Pairs of equal evidence, in order of first appearance, split into runs that are packed as one row each.

    Args:
        pairs: of one split.
        claims_per_row: most claims of a run.
        tokens_per_row: most tokens of a row, its prefix among them; a run has at least one claim. None sets no limit.
        counts: what counts them.
    """
    by_evidence: dict[str, list[Pair]] = {}
    for pair in pairs:
        by_evidence.setdefault(evidence_key(pair.evidence), []).append(pair)
    if tokens_per_row is None or counts is None:
        return [run for group in by_evidence.values() for run in _runs(group, [0] * len(group), claims_per_row, 0)]
    runs = []
    for group in by_evidence.values():
        room = tokens_per_row - counts.prefix(group[0].evidence)
        runs += _runs(group, [counts.claim(p) for p in group], claims_per_row, room)
    return runs


def _runs(group: Sequence[Pair], n_tokens: Sequence[int], most: int, room: int) -> list[tuple[Pair, ...]]:
    runs: list[list[Pair]] = []
    taken = 0
    for pair, n in zip(group, n_tokens, strict=True):
        if not runs or len(runs[-1]) >= most or taken + n > room:
            runs.append([])
            taken = 0
        runs[-1].append(pair)
        taken += n
    return [tuple(run) for run in runs]


def batches_of(lengths: Sequence[RowLength], most_rows: int, tokens_per_batch: int, seed: int) -> list[tuple[int, ...]]:
    """Rows that make each batch: every index once, alike lengths together.

    Args:
        lengths: of all rows.
        most_rows: of a batch.
        tokens_per_batch: most tokens of a batch, padding included; a longer row is a batch of its own.
        seed: decides which of equally long rows meet.

    Returns:
        Batches of indices, the same for the same arguments on every rank.
    """
    order = list(range(len(lengths)))
    random.Random(seed).shuffle(order)
    order.sort(key=lambda i: (lengths[i].prefix, lengths[i].claims))
    batches: list[list[int]] = []
    prefix = claims = 0
    for i in order:
        prefix, claims = max(prefix, lengths[i].prefix), max(claims, lengths[i].claims)
        n_rows = len(batches[-1]) + 1 if batches else 1
        if not batches or n_rows > most_rows or n_rows * (prefix + claims) > tokens_per_batch:
            batches.append([])
            prefix, claims = lengths[i].prefix, lengths[i].claims
        batches[-1].append(i)
    return [tuple(batch) for batch in batches]


def make_batches(
    groups: Sequence[Sequence[Pair]], arguments: VerdictArguments, training: TrainingArguments, counts: TokenCounts
) -> list[tuple[int, ...]] | None:
    """Which rows share a micro-batch, under `tokens_per_batch`; None leaves batches of equally many rows."""
    if arguments.tokens_per_batch is None:
        return None
    lengths = [counts.row(group) for group in groups]
    return batches_of(lengths, training.per_device_train_batch_size, arguments.tokens_per_batch, training.seed)
