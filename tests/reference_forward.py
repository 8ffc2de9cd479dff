"""The plain ways to the numbers that packing must give: one sequence per claim, and one dense mask with sdpa.

Slow and obvious on purpose; nothing outside the tests uses them.
"""

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)

from proofreel.models.engine.forward import VISION_KEYS
from proofreel.models.engine.heads import margin
from proofreel.models.engine.packing import IGNORED, PREFIX_SPLIT


def classes_of(readout, logits_NV):
    """(N, C) float32 logits of the labels, from those of the whole output layer."""
    return readout.classes(logits_NV if readout.rows is None else logits_NV[:, list(readout.rows)])


def plain_logits(model, evidence, claim_ids, readout):
    """(C,) logits of one claim: prefix and claim as one ordinary sequence, under the backbone's own causal mask."""
    ids = torch.cat([evidence.ids_P, claim_ids])
    tail = torch.arange(len(claim_ids)) + evidence.next_position
    positions = torch.cat([evidence.positions_3P, tail.expand(3, -1)], 1)[:, None]
    out = model(input_ids=ids[None], position_ids=positions, use_cache=False, **evidence.vision)
    return classes_of(readout, out.logits[0, -1:])[0]


def plain_margins(model, evidence, claims, readout):
    """(K,) margins of claims, one sequence each."""
    return torch.stack([margin(plain_logits(model, evidence, ids, readout)) for ids in claims])


def dense_mask(block_BT):
    """(B, 1, T, T) bool over whole rows: causal, real keys only, prefix or own claim; a pad sees itself."""
    step = torch.arange(block_BT.shape[1])
    query, key = block_BT[:, :, None], block_BT[:, None, :]
    causal = step[None, :] <= step[:, None]
    return ((causal & (key >= 0) & ((key == 0) | (key == query))) | (step[None, :] == step[:, None]))[:, None]


def dense_margins(model, batch, readout):
    """(B, K) margins of a packed batch with sdpa and a dense mask."""
    model.set_attn_implementation({"text_config": "sdpa"})
    try:
        logits_BTV = model(
            input_ids=batch["input_ids"],
            position_ids=batch["position_ids"],
            attention_mask=dense_mask(batch["block"]),
            use_cache=False,
            **{k: batch[k] for k in VISION_KEYS if k in batch},
        ).logits
    finally:
        model.set_attn_implementation({"text_config": PREFIX_SPLIT})
    found = torch.full(batch["verdicts"].shape, float("nan"))
    for b, k in (batch["verdicts"] >= 0).nonzero().tolist():
        found[b, k] = margin(classes_of(readout, logits_BTV[b, batch["verdicts"][b, k]][None]))[0]
    return found


def verdict_loss_sum(margins_BK, labels_BK):
    """Sum over claims of the two-way cross-entropy."""
    real = labels_BK != IGNORED
    return F.binary_cross_entropy_with_logits(margins_BK[real], labels_BK[real].float(), reduction="sum")


def label_loss_sum(logits_BKC, classes_BK):
    """Sum over claims of the cross-entropy over all labels."""
    real = classes_BK != IGNORED
    return F.cross_entropy(logits_BKC[real], classes_BK[real], reduction="sum")
