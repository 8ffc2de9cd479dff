"""Attention of vision towers: windows of equal length in one call, instead of a call for each.

Towers attend within windows, or within whole frames. transformers calls attention once for each of them; here they are
put side by side in a batch, one call for each length there is: all whole windows, and the few kinds of cut ones at the
edges. Each window's attention is the same computation. On a GPU in half precision flash attention takes all windows at
once, where the package flash-attn is installed; that has not been run.
"""

from __future__ import annotations

import copy
import itertools
from typing import Any

import torch
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.utils import is_flash_attn_2_available

from .towers import vision_tower

# transformers hands over the bounds of all windows only to implementations with "flash" in their names.
WINDOWS = "windows_as_flash"


def windows(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: None = None,
    cu_seq_lens_q: torch.Tensor | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Attention within windows, as transformers calls it in a vision tower.

    Args:
        module: the attention layer.
        query: (1, heads, T, D); key and value alike.
        attention_mask: none.
        cu_seq_lens_q: (windows + 1,) where windows begin and end.
        **kwargs: what transformers passes on (scaling, dropout, ...).

    Returns:
        (1, T, heads, D), and no weights.
    """
    assert cu_seq_lens_q is not None
    if query.is_cuda and query.dtype in (torch.float16, torch.bfloat16) and is_flash_attn_2_available():
        flash = AttentionInterface()["flash_attention_2"]
        return flash(module, query, key, value, None, cu_seq_lens_q=cu_seq_lens_q, **kwargs)
    given = {name: kwargs[name] for name in ("scaling", "dropout", "is_causal") if name in kwargs}
    starts, lengths = _bounds(cu_seq_lens_q)
    parts = [(query, key, value)]
    order = None
    if len(set(lengths)) > 1:
        order, parts = _by_length(starts, lengths, query, key, value)
    outputs = []
    for length, part in zip(sorted(set(lengths)), parts, strict=True):
        q, k, v = (t[0].unflatten(1, (-1, length)).transpose(0, 1) for t in part)  # (windows, heads, length, D)
        outputs.append(sdpa_attention_forward(module, q, k, v, None, **given)[0].flatten(0, 1))
    together = torch.cat(outputs) if len(outputs) > 1 else outputs[0]
    if order is not None:
        together = torch.empty_like(together).index_copy_(0, order, together)
    return together[None], None


def _bounds(cu_seq_lens: torch.Tensor) -> tuple[list[int], list[int]]:
    """Starts and lengths of all windows that are not empty."""
    bounds = cu_seq_lens.tolist()
    found = [(start, end - start) for start, end in itertools.pairwise(bounds) if end > start]
    return [start for start, _ in found], [length for _, length in found]


def _by_length(
    starts: list[int], lengths: list[int], *tensors: torch.Tensor
) -> tuple[torch.Tensor, list[tuple[torch.Tensor, ...]]]:
    """Where each token came from, and the tensors cut so that windows of one length stand together, short first."""
    index = [
        torch.cat(
            [torch.arange(start, start + length) for start, n in zip(starts, lengths, strict=True) if n == length]
        )
        for length in sorted(set(lengths))
    ]
    places = [part.to(tensors[0].device) for part in index]
    return torch.cat(places), [tuple(t.index_select(2, part) for t in tensors) for part in places]


def use_windows(model: Any) -> None:
    """Set it on the vision tower of a loaded backbone, if it has one.

    The layers get a configuration of their own: a network made from the backbone's would look for a kernel
    of that name.
    """
    if (tower := vision_tower(model)) is not None:
        config = copy.copy(tower.config)
        config._attn_implementation = WINDOWS
        for block in tower.blocks:
            block.attn.config = config


AttentionInterface.register(WINDOWS, windows)
