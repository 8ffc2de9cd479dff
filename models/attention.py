"""Attention of packed rows without a dense mask: causal over the prefix, masked over the claims.

A packed row is [prefix | claims]. A dense (P+S) x (P+S) mask would cost its memory and lose the causal kernel, although
the claims are a small part of the row. So attention is called twice: the prefix looks at itself, causally, and the
claims look at everything through an (S, P+S) mask. The same numbers come out (tests/test_attention.py).

Registered with transformers as `prefix_split` and set on the language model only; the vision tower stays with sdpa.
The call is split when the keyword `prefix_len` is given; without it this is plain sdpa.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

PREFIX_SPLIT = "prefix_split"


def prefix_split(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    prefix_len: int | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Attention as transformers calls it, split after `prefix_len` tokens.

    Args:
        module: the attention layer.
        query: (B, heads, Q, D). Q is P+S, or S where the prefix lies in a cache.
        key: (B, key heads, P+S, D).
        value: like `key`.
        attention_mask: (B, 1, S, P+S) bool of the claims' queries, from `packing.claim_mask`.
        prefix_len: P; None for a call that is not packed.
        **kwargs: what transformers passes on (scaling, dropout, ...).

    Returns:
        (B, Q, heads, D), and no weights.
    """
    if prefix_len is None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, **kwargs)
    parts = []
    if query.shape[2] == key.shape[2]:  # the prefix is in this call, not in a cache
        if prefix_len:
            # Pads stand after the prefix's own tokens, so causality hides them, whatever each row's length.
            q, k, v = (t[:, :, :prefix_len] for t in (query, key, value))
            parts.append(sdpa_attention_forward(module, q, k, v, None, is_causal=True, **kwargs)[0])
        query = query[:, :, prefix_len:]
    if query.shape[2]:
        parts.append(sdpa_attention_forward(module, query, key, value, attention_mask, **kwargs)[0])
    return torch.cat(parts, 1) if len(parts) > 1 else parts[0], None


def use_prefix_split(model: Any) -> None:
    """Set it on the language model of a loaded backbone. Saved configurations do not name it: it is how, not what."""
    whole = "text_config" not in model.config.sub_configs  # a text backbone is its own language model
    model.set_attn_implementation(PREFIX_SPLIT if whole else {"text_config": PREFIX_SPLIT})


AttentionInterface.register(PREFIX_SPLIT, prefix_split)
AttentionMaskInterface.register(PREFIX_SPLIT, sdpa_mask)  # else 2-D padding masks of ordinary calls would be dropped
