"""Pictures of final size to the rows of patches that a vision tower takes, equal to its processor's to the last bit.

The processor normalises whole frames in float32 and then puts them in the order of patches: four passes over four bytes
a value. Here the bytes are put in order first, and then become float32 once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch


def only_normalises(processor: Any) -> bool:
    """The processor rescales and normalises, so that `patchify` can stand in for it where nothing is resized."""
    return bool(processor.do_rescale and processor.do_normalize)


def patchify(pixels_FHWC: np.ndarray, processor: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """What a Qwen2-VL processor makes of frames that it need not resize.

    Args:
        pixels_FHWC: uint8, sides multiples of `patch_size * merge_size`; an image is one frame. The last frame is
            repeated up to a multiple of `temporal_patch_size`.
        processor: of videos or images; `only_normalises`.

    Returns:
        Patches, float32 (patches, channels * temporal_patch_size * patch_size ** 2), and their grid (1, 3): temporal,
        vertical and horizontal patches.
    """
    side, merge, depth = processor.patch_size, processor.merge_size, processor.temporal_patch_size
    if missing := -len(pixels_FHWC) % depth:
        pixels_FHWC = np.concatenate([pixels_FHWC, np.repeat(pixels_FHWC[-1:], missing, axis=0)])
    n_frames, height, width, n_channels = pixels_FHWC.shape
    grid = [n_frames // depth, height // side, width // side]
    planes = np.ascontiguousarray(pixels_FHWC.transpose(3, 0, 1, 2))
    parts = planes.reshape(
        n_channels, grid[0], depth, grid[1] // merge, merge, side, grid[2] // merge, merge, side
    ).transpose(1, 3, 6, 4, 7, 0, 2, 5, 8)
    patches = torch.from_numpy(np.ascontiguousarray(parts).reshape(-1, n_channels, depth * side * side))
    # as the processor has it: the factor of 1/255 is moved into mean and deviation, in float32
    mean_C1, std_C1 = (
        (torch.tensor(values) * (1.0 / processor.rescale_factor))[:, None]
        for values in (processor.image_mean, processor.image_std)
    )
    normalised = patches.to(torch.float32).sub_(mean_C1).div_(std_C1)
    return normalised.flatten(1), torch.tensor([grid])
