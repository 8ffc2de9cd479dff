"""Margins of many claims about encoded evidence: the prefix is computed once, and claims follow it in packed chunks.

The first chunk of claims is computed together with its prefix, in one forward; for one claim that is the plain causal
forward. What the text model kept of the prefix then serves the further chunks, and, while it is kept, the next
question about the same evidence. tests/model/test_scoring.py proves that none of this changes a margin beyond the
tolerance.

Where a network's layers carry one state through a row (`VisionLayout.branches`), claims are no chunk of one row: the
prefix is computed alone, and every claim of a chunk is a row that starts from a copy of what the network kept of it.

Shape suffixes: _K claims, _BK rows by claims.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from accelerate.utils.memory import clear_device_cache, should_reduce_batch_size
from transformers import DynamicCache

from ...core import ModelInputError
from ..inputs import EncodedEvidence, VisionLayout
from .forward import fill, margins
from .heads import Head
from .packing import collate, collate_apart, pack, to_device
from .prefix_cache import Prefix, PrefixCache

CLAIM_TOKENS = 2048
"""Most tokens of the claims in one chunk: its mask has this many rows."""


COPY_BYTES = 2 * 2**30
"""Most memory of the copies of one prefix that a chunk's claims follow."""


@dataclass(frozen=True)
class Segment:
    """One evidence and the claims about it, encoded.

    Attributes:
        evidence: of a kept prefix, without pixels.
        claims: token ids of each.
        key: under which its prefix may be kept; None keeps it from being kept.
        prefix: if it is kept already.
    """

    evidence: EncodedEvidence
    claims: tuple[torch.Tensor, ...]
    key: Hashable = None
    prefix: Prefix | None = None

    @property
    def lengths(self) -> tuple[int, int]:
        """Tokens of the prefix and of all claims."""
        return len(self.evidence.ids_P), sum(len(c) for c in self.claims)


class PrefixScorer:
    """Scores segments with one network; one thread at a time is let in.

    Attributes:
        lock: held while the network computes.
        prefixes: those kept for the next question, with their counts.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        head: Head,
        layout: VisionLayout,
        pad_id: int,
        prefixes: PrefixCache,
        claims_per_chunk: int = 64,
        claim_tokens: int = CLAIM_TOKENS,
        copy_bytes: int = COPY_BYTES,
    ) -> None:
        """A chunk of claims ends at `claims_per_chunk` claims or `claim_tokens` tokens, whichever comes first.

        Where each claim follows a copy of its prefix, a chunk's copies take at most `copy_bytes`, or are one.
        """
        self.model, self.head, self.layout, self.pad_id = model, head, layout, pad_id
        self.prefixes, self.claims_per_chunk, self.claim_tokens = prefixes, claims_per_chunk, claim_tokens
        self.copy_bytes = copy_bytes
        self.lock = threading.RLock()
        self._bytes_per_token = 0.0  # of a prefix; known after the first one

    def score(self, segments: Sequence[Segment], claims_per_chunk: int | None = None) -> list[np.ndarray]:
        """Margins of every claim of each segment.

        Args:
            segments: one with a kept prefix, or any number without, which are padded to one batch.
            claims_per_chunk: fewer than usual, where memory is short.

        Returns:
            (K,) float32 of each segment, in the order of its claims.

        Raises:
            ModelInputError: the model is in training mode, or placeholders and pixels disagree.
        """
        with self.lock, torch.inference_mode():
            self.check()
            chunks = [self._chunks(segment.claims, claims_per_chunk) for segment in segments]
            if self.layout.branches == "copied":
                margins = [
                    self._copied(*segment_and_chunks) for segment_and_chunks in zip(segments, chunks, strict=True)
                ]
            elif (prefix := segments[0].prefix) is not None:
                (chunks_of_one,) = chunks
                margins = [[self._after(prefix, chunk) for chunk in chunks_of_one]]
            else:
                margins = self._whole(segments, chunks)
            return [torch.cat(chunks_K).cpu().numpy() for chunks_K in margins]

    def check(self) -> None:
        """Refuse a model in training mode: dropout would be on, and checkpointing drops the cache without a word."""
        if self.model.training:
            raise ModelInputError("scoring: the model is in training mode, got training=True; call model.eval() first")

    def _whole(
        self, segments: Sequence[Segment], chunks: Sequence[list[list[torch.Tensor]]]
    ) -> list[list[torch.Tensor]]:
        """Margins of each chunk of each segment: all prefixes with their first chunks in one forward, then the rest."""
        keep = [s.key is not None and self._fits(s) for s in segments]
        needed = any(keep) or any(len(c) > 1 for c in chunks)
        cache = DynamicCache(config=self.model.config) if needed else None  # type: ignore[arg-type]
        rows = [pack(s.evidence, c[0]) for s, c in zip(segments, chunks, strict=True)]
        margins_BK = self._margins(collate(rows, self.pad_id), cache)
        margins = [[margins_BK[b, : len(c[0])]] for b, c in enumerate(chunks)]
        for b, segment in enumerate(segments):
            if cache is None or not (keep[b] or len(chunks[b]) > 1):
                continue
            prefix = Prefix.of_row(segment.evidence, cache, b, copy=keep[b])
            self._bytes_per_token = prefix.n_bytes / prefix.n_tokens
            if keep[b]:
                self.prefixes.put(segment.key, prefix)
            margins[b] += [self._after(prefix, chunk) for chunk in chunks[b][1:]]
        return margins

    def _after(self, prefix: Prefix, claims: Sequence[torch.Tensor]) -> torch.Tensor:
        """(K,) margins of one chunk of claims that follows a computed prefix."""
        batch = collate([pack(prefix.evidence, claims)], self.pad_id)
        batch["input_ids"] = batch["input_ids"][:, prefix.n_tokens :]
        batch["position_ids"] = batch["position_ids"][..., prefix.n_tokens :]
        return self._margins(batch, prefix.cache(self.model.config))[0]

    def _copied(self, segment: Segment, chunks: list[list[torch.Tensor]]) -> list[torch.Tensor]:
        """Margins of each chunk of one segment, where claims follow copies of their prefix.

        The prefix is alone in its forward: a pad behind it would be in its state. One claim that nobody will follow
        needs no copy: prefix and claim are one sequence.
        """
        prefix, keep = segment.prefix, segment.key is not None and self.prefixes.max_bytes > 0
        if prefix is None and not keep and len(segment.claims) == 1:
            return [self._margins(collate_apart([pack(segment.evidence, segment.claims)], self.pad_id), None)[:, 0]]
        if prefix is None:
            cache = DynamicCache(config=self.model.config)  # type: ignore[arg-type]
            alone = collate_apart([pack(segment.evidence, [])], self.pad_id)
            fill(self.model, to_device(alone, self.device), self.layout, cache)
            prefix = Prefix.alone(segment.evidence, cache)
            if keep:
                self.prefixes.put(segment.key, prefix)
        most = max(1, self.copy_bytes // max(prefix.n_bytes, 1))
        parts = [chunk[i : i + most] for chunk in chunks for i in range(0, len(chunk), most)]
        return [self._after_copies(prefix, part) for part in parts]

    def _after_copies(self, prefix: Prefix, claims: Sequence[torch.Tensor]) -> torch.Tensor:
        """(K,) margins of claims that each follow a copy of a computed prefix, as rows of one batch."""
        batch = collate_apart([pack(prefix.evidence, [claim]) for claim in claims], self.pad_id)
        batch["input_ids"] = batch["input_ids"][:, prefix.n_tokens :]
        batch["position_ids"] = batch["position_ids"][..., prefix.n_tokens :]
        return self._margins(batch, prefix.cache(self.model.config, len(claims)))[:, 0]

    @property
    def device(self) -> torch.device:
        """Where the network is."""
        return next(self.model.parameters()).device

    @property
    def dtype(self) -> torch.dtype:
        """What the network computes in: that of its first weights that are not quantised."""
        return next(p.dtype for p in self.model.parameters() if p.is_floating_point())

    def _margins(self, batch: dict[str, torch.Tensor], cache: DynamicCache | None) -> torch.Tensor:
        batch = to_device(batch, self.device)
        return margins(self.model, batch, self.head, self.layout, cache)

    def _fits(self, segment: Segment) -> bool:
        return 0 < self.prefixes.max_bytes >= self._bytes_per_token * len(segment.evidence.ids_P)

    def _chunks(self, claims: Sequence[torch.Tensor], most: int | None = None) -> list[list[torch.Tensor]]:
        """Claims in order, cut where a chunk would exceed a limit; a claim above the limit is a chunk of its own."""
        most = self.claims_per_chunk if most is None else most
        chunks: list[list[torch.Tensor]] = [[]]
        for claim in claims:
            n_tokens = sum(len(c) for c in chunks[-1]) + len(claim)
            if chunks[-1] and (n_tokens > self.claim_tokens or len(chunks[-1]) >= most):
                chunks.append([])
            chunks[-1].append(claim)
        return chunks


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out, of an accelerator or of the machine; what accelerate knows of the ways to say so."""
    return isinstance(error, (torch.OutOfMemoryError, MemoryError)) or (
        isinstance(error, Exception) and should_reduce_batch_size(error)
    )


def free_memory(prefixes: PrefixCache) -> None:
    """Drop kept prefixes and give unused memory back. Call it outside of `except`: a traceback holds tensors."""
    prefixes.clear()
    clear_device_cache(garbage_collection=True)
