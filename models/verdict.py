"""From a packed batch to margins and to the training loss, for the next-token verifier.

margin = logit(supported word) - logit(refuted word) at the verdict position, in float32. The restricted two-way
cross-entropy on the two words is the logistic loss of that margin. Full-vocabulary logits exist at verdict positions
only.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)

from ..data_prep.errors import ModelInputError
from .packing import IGNORED, block_mask
from .positions import VisionLayout
from .prompt import LabelWords

VISION_KEYS = ("pixel_values_videos", "video_grid_thw", "second_per_grid_ts", "pixel_values", "image_grid_thw")


def margins(
    model: torch.nn.Module, batch: dict[str, torch.Tensor], words: LabelWords, layout: VisionLayout
) -> torch.Tensor:
    """Margins of every claim of a packed batch.

    Args:
        model: the backbone, bare or wrapped (PEFT, DDP, DeepSpeed), running sdpa attention.
        batch: from `collate`.
        words: ids of the verdict words.
        layout: the backbone's placeholders, for the blindness check.

    Returns:
        (B, K) float32, NaN where a row has fewer than K claims.

    Raises:
        ModelInputError: placeholders without pixels, or pixels without placeholders.
    """
    check_sees(batch, layout)
    verdicts_BK = batch["verdicts"]
    asked_BK = verdicts_BK >= 0
    keep_BT = torch.zeros_like(batch["input_ids"], dtype=torch.bool)
    rows_N = asked_BK.nonzero()[:, 0]
    keep_BT[rows_N, verdicts_BK[asked_BK]] = True
    logits_NV = model(
        input_ids=batch["input_ids"],
        position_ids=batch["position_ids"],
        attention_mask=block_mask(batch["block"]),
        logits_to_keep=keep_BT,
        use_cache=False,
        **{k: batch[k] for k in VISION_KEYS if k in batch},
    ).logits.float()
    # Claims of a row stand in token order, so row-major order over kept tokens is row-major order over claims.
    margins_BK = torch.full(verdicts_BK.shape, float("nan"), device=logits_NV.device)
    margins_BK[asked_BK] = logits_NV[:, words.supported_id] - logits_NV[:, words.refuted_id]
    return margins_BK


def verdict_loss_sum(margins_BK: torch.Tensor, labels_BK: torch.Tensor, weights_BK: torch.Tensor) -> torch.Tensor:
    """Weighted sum over claims of the two-way cross-entropy; divide by the weights of the whole optimiser step.

    Args:
        margins_BK: from `margins`.
        labels_BK: probability of supported in [0, 1] (hard labels are 0 and 1); `IGNORED` where there is no claim.
        weights_BK: factor of each claim.
    """
    real = labels_BK != IGNORED
    losses_N = F.binary_cross_entropy_with_logits(margins_BK[real], labels_BK[real].float(), reduction="none")
    return (losses_N * weights_BK[real]).sum()


def check_sees(batch: dict[str, torch.Tensor], layout: VisionLayout) -> None:
    """Refuse a batch whose placeholder tokens and pixels disagree: the backbone itself would run blind, silently."""
    merge = layout.spatial_merge_size**2
    for kind, token, grid, pixels in (
        ("video", layout.video_token_id, "video_grid_thw", "pixel_values_videos"),
        ("image", layout.image_token_id, "image_grid_thw", "pixel_values"),
    ):
        placeholders = int((batch["input_ids"] == token).sum())
        patches = int(batch[grid].prod(-1).sum()) if grid in batch else 0
        given = len(batch[pixels]) if pixels in batch else 0
        if placeholders * merge != patches or patches != given:
            raise ModelInputError(
                f"{kind}: {placeholders} placeholder tokens need {placeholders * merge} patches, got {given} of pixels "
                f"and a grid of {patches}; a model must never be asked about pixels it is not given"
            )
