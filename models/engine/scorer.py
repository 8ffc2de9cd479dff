"""Margins of many claims about encoded evidence: the prefix is computed once, and claims follow it in packed chunks.

The first chunk of claims is computed together with its prefix, in one forward; for one claim that is the plain causal
forward. What the text model kept of the prefix then serves the further chunks, and, while it is kept, the next
question about the same evidence. tests/model/test_scoring.py proves that none of this changes a margin beyond the
tolerance.

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
from .forward import margins
from .heads import Head
from .packing import collate, pack, to_device
from .prefix_cache import Prefix, PrefixCache

CLAIM_TOKENS = 2048
"""Most tokens of the claims in one chunk: its mask has this many rows."""


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
    ) -> None:
        """A chunk of claims ends at `claims_per_chunk` claims or `claim_tokens` tokens, whichever comes first."""
        self.model, self.head, self.layout, self.pad_id = model, head, layout, pad_id
        self.prefixes, self.claims_per_chunk, self.claim_tokens = prefixes, claims_per_chunk, claim_tokens
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
            if (prefix := segments[0].prefix) is not None:
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

    def _margins(self, batch: dict[str, torch.Tensor], cache: DynamicCache | None) -> torch.Tensor:
        batch = to_device(batch, next(self.model.parameters()).device)
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
