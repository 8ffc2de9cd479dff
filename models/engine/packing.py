"""One evidence prefix, K claims, one row: [prefix | claim_1 | ... | claim_K], and the attention of such rows.

Every claim attends to the prefix and itself, restarts its positions after the prefix, and so gets the logits it would
get alone (tests/model/test_packing.py). In a batch all prefixes lie in columns [0, P) and all claims in [P, P+S), each
padded on the right. No token of a claim or prefix attends to a pad, and a pad attends at least to itself, so that no
softmax is empty.

A dense (P+S) x (P+S) mask would cost its memory and lose the causal kernel, although the claims are a small part of the
row. So attention is called twice: over the prefix, causally, and from the claims to everything through an (S, P+S)
mask; where nothing is kept for a backward, the claims in parts that do not see one another (`claim_blocks`). The
numbers are the same (tests/model/test_attention.py). It is registered with transformers as `prefix_split` and
set on the language model only; the vision tower stays with sdpa. The call is split when the keyword `prefix_len` is
given; without it this is plain sdpa.

A network with layers that carry one state through all tokens has no such rows (`VisionLayout.branches`): each claim is
a row of its own there, padded behind it (`collate_apart`), or follows a copy of the prefix (scorer.py).

Shape suffixes: _B rows, _T tokens of a row (P+S in a batch), _P of the prefix, _S of the claims, _K claims of a row
(padded), _3BT rotary axes first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import torch
from torch.nn.functional import pad
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from ...core import ModelInputError
from ..inputs import EncodedEvidence, claim_positions

IGNORED = -100  # the padding value transformers' Trainer uses when it gathers labels


@dataclass(frozen=True)
class PackedRow:
    """One evidence with its claims, unpadded. `block_T` is 0 in the prefix and k in claim k, counted from 1."""

    ids_T: torch.Tensor
    positions_3T: torch.Tensor
    block_T: torch.Tensor
    verdicts_K: torch.Tensor
    prefix_len: int
    vision: dict[str, torch.Tensor]

    @property
    def claim_lengths(self) -> list[int]:
        """Tokens of each claim."""
        ends = [self.prefix_len, *(int(v) + 1 for v in self.verdicts_K)]
        return [end - start for start, end in pairwise(ends)]


def pack(evidence: EncodedEvidence, claims: Sequence[torch.Tensor]) -> PackedRow:
    """Join a prefix and its claims' token ids into one row; verdicts are read at each claim's last token."""
    parts = [evidence.ids_P, *claims]
    lengths = torch.tensor([len(p) for p in parts])
    positions = [evidence.positions_3P, *(claim_positions(len(c), evidence.next_position) for c in claims)]
    return PackedRow(
        ids_T=torch.cat(parts),
        positions_3T=torch.cat(positions, 1),
        block_T=torch.repeat_interleave(torch.arange(len(parts)), lengths),
        verdicts_K=lengths.cumsum(0)[1:] - 1,
        prefix_len=len(evidence.ids_P),
        vision=evidence.vision,
    )


def collate(rows: Sequence[PackedRow], pad_id: int) -> dict[str, Any]:
    """Pad rows into one batch.

    Returns:
        `input_ids` (B, P+S), `position_ids` (3, B, P+S), `block` (B, P+S; -1 in padding), `verdicts` (B, K; columns of
        the batch, -1 where a row has no claim), `prefix_len` (P, a plain int) and the vision tensors of all rows,
        concatenated in row order.
    """
    prefix_len = max(r.prefix_len for r in rows)
    tail_len = max(len(r.ids_T) - r.prefix_len for r in rows)
    most = max(len(r.verdicts_K) for r in rows)

    def spread(values_T: torch.Tensor, row: PackedRow, value: int) -> torch.Tensor:
        prefix_P, tail_S = values_T[..., : row.prefix_len], values_T[..., row.prefix_len :]
        before, after = prefix_len - prefix_P.shape[-1], tail_len - tail_S.shape[-1]
        return torch.cat([pad(prefix_P, (0, before), value=value), pad(tail_S, (0, after), value=value)], -1)

    verdicts = [r.verdicts_K + (prefix_len - r.prefix_len) for r in rows]
    batch: dict[str, Any] = {
        "input_ids": torch.stack([spread(r.ids_T, r, pad_id) for r in rows]),
        "position_ids": torch.stack([spread(r.positions_3T, r, 0) for r in rows], 1),
        "block": torch.stack([spread(r.block_T, r, -1) for r in rows]),
        "verdicts": torch.stack([pad(v, (0, most - len(v)), value=-1) for v in verdicts]),
        "prefix_len": prefix_len,
        "claim_blocks": claim_blocks([r.claim_lengths for r in rows], prefix_len),
    }
    return _with_vision(batch, rows)


def collate_apart(rows: Sequence[PackedRow], pad_id: int) -> dict[str, Any]:
    """Pad rows of one claim each behind their last token, for networks that carry a state through a row.

    A pad before a claim would change the state the claim starts from; one after it changes nothing that is read.

    Returns:
        As `collate`, with `prefix_len` None: rows are ordinary sequences under the plain causal forward.

    Raises:
        ModelInputError: a row with several claims.
    """
    check_apart(max(len(r.verdicts_K) for r in rows))
    longest = max(len(r.ids_T) for r in rows)

    def padded(values_T: torch.Tensor, value: int) -> torch.Tensor:
        return pad(values_T, (0, longest - values_T.shape[-1]), value=value)

    batch: dict[str, Any] = {
        "input_ids": torch.stack([padded(r.ids_T, pad_id) for r in rows]),
        "position_ids": torch.stack([padded(r.positions_3T, 0) for r in rows], 1),
        "block": torch.stack([padded(r.block_T, -1) for r in rows]),
        "verdicts": torch.stack([r.verdicts_K for r in rows]),
        "prefix_len": None,
    }
    return _with_vision(batch, rows)


def check_apart(n_claims: int) -> None:
    """`ModelInputError` for several claims in one row of a network that carries a state through it."""
    if n_claims > 1:
        raise ModelInputError(
            f"packing: claims cannot branch inside one row of this backbone, got {n_claims} in a row; give each claim "
            "a row of its own (claims_per_row: 1)"
        )


def _with_vision(batch: dict[str, Any], rows: Sequence[PackedRow]) -> dict[str, Any]:
    for name in {n for r in rows for n in r.vision}:
        parts = [r.vision[name] for r in rows if name in r.vision]
        batch[name] = parts[0] if len(parts) == 1 else torch.cat(parts)
    return batch


def stage(vision: Mapping[str, torch.Tensor], device: torch.device, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """Pixels as a GPU takes them without waiting: in the network's dtype, in pinned memory. Elsewhere as they are.

    The tower would make them its dtype first thing, so no margin changes.
    """
    if device.type != "cuda":
        return dict(vision)
    pixels = ("pixel_values_videos", "pixel_values")
    return {name: (t.to(dtype) if name in pixels else t).pin_memory() for name, t in vision.items()}


def to_device(batch: Mapping[str, Any], device: torch.device | str) -> dict[str, Any]:
    """The batch with its tensors on a device; pinned ones are copied while the caller goes on."""
    waits = torch.device(device).type != "cuda"
    return {k: v.to(device, non_blocking=not waits) if isinstance(v, torch.Tensor) else v for k, v in batch.items()}


def claim_mask(block_BT: torch.Tensor, prefix_len: int) -> torch.Tensor:
    """(B, 1, S, P+S) bool, True where a token of the claims region may look: at the prefix and back in its own claim.

    Args:
        block_BT: (B, P+S) of a batch.
        prefix_len: P.
    """
    step = torch.arange(block_BT.shape[1], device=block_BT.device)
    query, key = block_BT[:, prefix_len:, None], block_BT[:, None, :]
    behind = step[None, :] <= step[prefix_len:, None]
    same = step[None, :] == step[prefix_len:, None]  # a pad, too, sees itself
    return (((key == 0) | ((key == query) & (key > 0) & behind)) | same)[:, None]


COPY_PAIRS, CALL_PAIRS = 70, 1000
"""What a further call of attention costs, in pairs of tokens: for each token of the prefix, and whatever its length.

Measured on one CPU thread at the kitchen's and at 3B's widths; within a factor of two of the best number of calls the
time is flat.
"""

Blocks = tuple[tuple[int, int, int], ...]
"""Columns of the claims region whose queries are attended in one call: first, last + 1, and the first they look at."""


def claim_blocks(lengths: Sequence[Sequence[int]], prefix_len: int) -> Blocks:
    """Parts of the claims region, each attended by a call of its own, so that claims do not meet those far away.

    One call over S tokens computes S pairs for each of them, although a claim looks at itself alone. n calls compute
    S / n, and each copies keys and values of the prefix: the sum is least where a part has sqrt(cost of a call) tokens.

    Args:
        lengths: tokens of each claim, of each row.
        prefix_len: P.
    """
    starts = [[0, *accumulate(row)] for row in lengths]
    longest = max(starts, key=lambda ends: ends[-1])
    n_tokens = longest[-1]
    n_parts = max(1, round(n_tokens / (COPY_PAIRS * prefix_len + CALL_PAIRS) ** 0.5))
    cuts = sorted({min(longest, key=lambda start: abs(start - n_tokens * i / n_parts)) for i in range(n_parts + 1)})
    return tuple((a, b, min(max(s for s in row if s <= a) for row in starts)) for a, b in pairwise(cuts))


PREFIX_SPLIT = "prefix_split"


def prefix_split(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    prefix_len: int | None = None,
    claim_blocks: Blocks | None = None,
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
        claim_blocks: of the claims region; None or one: all of it in one call.
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
    for first, last, back in claim_blocks or ((0, query.shape[2], 0),):
        if first == last:
            continue
        q, mask, k, v = query, attention_mask, key, value
        if last - first < query.shape[2]:
            q = query[:, :, first:last]
            columns = slice(prefix_len + back, prefix_len + last)
            k, v = (torch.cat([t[:, :, :prefix_len], t[:, :, columns]], 2) for t in (key, value))
            if attention_mask is not None:
                of_block = attention_mask[:, :, first:last]
                mask = torch.cat([of_block[..., :prefix_len], of_block[..., columns]], -1)
        parts.append(sdpa_attention_forward(module, q, k, v, mask, **kwargs)[0])
    return torch.cat(parts, 1) if len(parts) > 1 else parts[0], None


def use_prefix_split(model: Any) -> None:
    """Set it on the language model of a loaded backbone. Saved configurations do not name it: it is how, not what."""
    whole = "text_config" not in model.config.sub_configs  # a text backbone is its own language model
    model.set_attn_implementation(PREFIX_SPLIT if whole else {"text_config": PREFIX_SPLIT})


AttentionInterface.register(PREFIX_SPLIT, prefix_split)
AttentionMaskInterface.register(PREFIX_SPLIT, sdpa_mask)  # else 2-D padding masks of ordinary calls would be dropped
