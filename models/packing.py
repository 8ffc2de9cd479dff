"""One evidence prefix, K claims, one row: [prefix | claim_1 | ... | claim_K] under a block mask.

Every claim sees the prefix and itself, restarts its positions after the prefix, and so gets the logits it would get
alone (tests/test_packing.py proves it). Rows of a batch are padded on the right; no claim sees a pad,
and a pad sees at least itself, so that no softmax is empty.

Shape suffixes: _B rows, _T tokens of a row, _K claims of a row (padded), _3BT rotary axes first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.nn.functional import pad

from .encoding import EncodedEvidence
from .positions import claim_positions

IGNORED = -100  # the padding value transformers' Trainer uses when it gathers labels


@dataclass(frozen=True)
class PackedRow:
    """One evidence with its claims, unpadded. `block_T` is 0 in the prefix and k in claim k, counted from 1."""

    ids_T: torch.Tensor
    positions_3T: torch.Tensor
    block_T: torch.Tensor
    verdicts_K: torch.Tensor
    vision: dict[str, torch.Tensor]


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
        vision=evidence.vision,
    )


def collate(rows: Sequence[PackedRow], pad_id: int) -> dict[str, torch.Tensor]:
    """Pad rows into one batch of tensors.

    Returns:
        `input_ids` (B, T), `position_ids` (3, B, T), `block` (B, T; -1 in padding), `verdicts` (B, K; -1 in padding)
        and the vision tensors of all rows, concatenated in row order.
    """
    length = max(len(r.ids_T) for r in rows)
    most = max(len(r.verdicts_K) for r in rows)
    batch = {
        "input_ids": torch.stack([pad(r.ids_T, (0, length - len(r.ids_T)), value=pad_id) for r in rows]),
        "position_ids": torch.stack([pad(r.positions_3T, (0, length - len(r.ids_T))) for r in rows], 1),
        "block": torch.stack([pad(r.block_T, (0, length - len(r.block_T)), value=-1) for r in rows]),
        "verdicts": torch.stack([pad(r.verdicts_K, (0, most - len(r.verdicts_K)), value=-1) for r in rows]),
    }
    for name in {n for r in rows for n in r.vision}:
        batch[name] = torch.cat([r.vision[name] for r in rows if name in r.vision])
    return batch


def block_mask(block_BT: torch.Tensor) -> torch.Tensor:
    """(B, 1, T, T) bool, True where a query may look: causal, and only at the prefix or its own claim."""
    step = torch.arange(block_BT.shape[1], device=block_BT.device)
    query, key = block_BT[:, :, None], block_BT[:, None, :]
    causal = step[None, :] <= step[:, None]
    visible = causal & (key >= 0) & ((key == 0) | (key == query))
    return (visible | (step[None, :] == step[:, None]))[:, None]
