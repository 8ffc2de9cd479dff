"""Encoded prefixes kept for the next question: what the text model computed of an evidence, oldest use first out.

A kept prefix is never written to. Every forward that follows it starts from a fresh transformers cache that points at
its tensors and grows by concatenation, so neither a chunk of claims nor one that fails half way can change it. States
of linear attention do not grow but are written to: of those every forward gets a copy.

Shape suffixes: _P prefix tokens.
"""

from __future__ import annotations

import dataclasses
import threading
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import DynamicCache
from transformers.cache_utils import LinearAttentionLayer

from ...core import ConfigError, Evidence, ModelInputError, evidence_key, media_path, media_paths
from ...data_prep.media import file_stamp
from ..inputs import EncodedEvidence


@dataclass(frozen=True)
class Prefix:
    """What every layer of the text model keeps of one evidence's prefix.

    Attributes:
        evidence: its tokens and positions; the pixels are dropped, for they are not needed again.
        layers: (keys, values) of each layer that attends, each (1, heads, P, size of a head); of one that carries a
            state, (the convolution's last columns, the state), whatever P is.
    """

    evidence: EncodedEvidence
    layers: tuple[tuple[torch.Tensor, torch.Tensor], ...]

    @classmethod
    def of_row(cls, evidence: EncodedEvidence, cache: DynamicCache, row: int, *, copy: bool) -> Prefix:
        """The prefix of one row of a packed batch.

        Args:
            evidence: what the row encodes.
            cache: as a forward of the whole batch [prefixes | claims] left it.
            row: which row.
            copy: take tensors of its own, to outlive the batch; else views, which hold all of the batch's memory.

        Raises:
            ModelInputError: the forward left nothing in the cache.
        """
        n_tokens = len(evidence.ids_P)
        if cache.get_seq_length() < n_tokens:
            raise ModelInputError(
                f"scoring: the backbone kept {cache.get_seq_length()} tokens of a prefix of {n_tokens}; call "
                "model.eval() and switch gradient checkpointing off"
            )
        layers: list[Any] = cache.layers  # all of the plain, growing kind: no attention has a window here
        views = [(x.keys[row : row + 1, :, :n_tokens], x.values[row : row + 1, :, :n_tokens]) for x in layers]
        if copy:
            views = [(_copy(keys), _copy(values)) for keys, values in views]
        return cls(dataclasses.replace(evidence, vision={}), tuple(views))

    @property
    def n_tokens(self) -> int:
        """P."""
        return len(self.evidence.ids_P)

    @property
    def n_bytes(self) -> int:
        """Memory of keys and values, or states."""
        return sum(t.nbytes for pair in self.layers for t in pair)

    @classmethod
    def alone(cls, evidence: EncodedEvidence, cache: DynamicCache) -> Prefix:
        """The prefix of a forward of nothing else; the cache's tensors become the prefix's.

        Raises:
            ModelInputError: the forward left something else in the cache.
        """
        if cache.get_seq_length() != len(evidence.ids_P):
            raise ModelInputError(
                f"scoring: the backbone kept {cache.get_seq_length()} tokens of a prefix of {len(evidence.ids_P)}; "
                "call model.eval() and switch gradient checkpointing off"
            )
        layers: list[Any] = cache.layers
        kept: Any = (
            (x.conv_states[0], x.recurrent_states[0]) if isinstance(x, LinearAttentionLayer) else (x.keys, x.values)
            for x in layers
        )
        return cls(dataclasses.replace(evidence, vision={}), tuple(kept))

    def cache(self, config: Any, copies: int = 1) -> DynamicCache:
        """A cache that holds exactly this prefix, for one forward of `copies` rows.

        Keys and values are not copied until that forward adds to them. States are, for it writes into them.
        """
        cache = DynamicCache(config=config)
        layers: list[Any] = cache.layers
        for layer, tensors in zip(layers, self.layers, strict=True):
            first, second = (t.expand(copies, *t.shape[1:]) for t in tensors)
            if isinstance(layer, LinearAttentionLayer):
                layer.lazy_initialization(conv_states=first, recurrent_states=second)
                layer.conv_states[0].copy_(first)  # type: ignore[union-attr]
                layer.recurrent_states[0].copy_(second)  # type: ignore[union-attr]
                layer.has_previous_state[0] = True
            else:
                layer.lazy_initialization(first, second)
                layer.keys, layer.values = first, second
        return cache


class PrefixCache:
    """Prefixes by key, up to a number of bytes; the one used longest ago goes first. Safe for threads.

    Attributes:
        max_bytes: never exceeded by what is kept; 0 keeps nothing.
        hits, misses: lookups that found a prefix, and that did not.
        evicted: prefixes that made room for others.
    """

    def __init__(self, max_gib: float) -> None:
        """`max_gib` may be 0.

        Raises:
            ConfigError: a negative limit, or NaN.
        """
        if not max_gib >= 0:
            raise ConfigError(f"prefix_cache_gib: must be 0 or more, got {max_gib}; 0 keeps no prefix")
        self.max_bytes = int(min(max_gib, 2.0**20) * 2**30)
        self.hits = self.misses = self.evicted = 0
        self.n_bytes = 0
        self._kept: OrderedDict[Hashable, Prefix] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """Number of prefixes kept."""
        return len(self._kept)

    def get(self, key: Hashable) -> Prefix | None:
        """The prefix of a key, which is now the most recently used one; None if it is not kept."""
        with self._lock:
            prefix = self._kept.get(key)
            if prefix is None:
                self.misses += 1
                return None
            self.hits += 1
            self._kept.move_to_end(key)
            return prefix

    def put(self, key: Hashable, prefix: Prefix) -> bool:
        """Keep a prefix, dropping others to make room; False if it alone is larger than the limit."""
        if prefix.n_bytes > self.max_bytes:
            return False
        with self._lock:
            if (old := self._kept.pop(key, None)) is not None:
                self.n_bytes -= old.n_bytes
            while self.n_bytes + prefix.n_bytes > self.max_bytes:
                self.n_bytes -= self._kept.popitem(last=False)[1].n_bytes
                self.evicted += 1
            self._kept[key] = prefix
            self.n_bytes += prefix.n_bytes
        return True

    def clear(self) -> None:
        """Drop everything; the counts stay."""
        with self._lock:
            self._kept.clear()
            self.n_bytes = 0


def prefix_key(evidence: tuple[Evidence, ...], media_root: str | Path | None, weights: Hashable) -> Hashable:
    """Identity of a prefix: the evidence, the files it names as they are now, and the weights that encode it.

    Raises:
        MediaError: a file is not there.
    """
    files = [media_path(path, media_root).absolute() for e in evidence for path in media_paths(e)]
    return evidence_key(evidence), tuple((str(file), file_stamp(file)) for file in files), weights


def weights_state(model: torch.nn.Module) -> int:
    """A number that changes when weights are written to or replaced, and when adapters are switched, added or merged.

    Only writes through `.data` escape it.
    """
    tensors = [*model.parameters(), *model.buffers()]
    state: list[Any] = [(t.data_ptr(), 0 if t.is_inference() else t._version) for t in tensors]
    for module in model.modules():
        if "merged_adapters" in vars(module):  # a layer of PEFT
            names = (module.active_adapters, module.merged_adapters)
            state.append((module.disable_adapters, *(tuple(n) for n in names)))  # type: ignore[arg-type]
    return hash(tuple(state))


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.clone(memory_format=torch.contiguous_format)
