"""Patches of pictures that need no resizing are those of the families' own processors, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import Qwen2VLImageProcessor, Qwen2VLVideoProcessor, Qwen3VLVideoProcessor

from proofreel.models.inputs.patches import only_normalises, patchify


@pytest.mark.parametrize("kind", [Qwen2VLVideoProcessor, Qwen3VLVideoProcessor])
@pytest.mark.parametrize("n_frames", [1, 2, 5, 6])
def test_videos_are_bit_equal(kind, n_frames):
    processor = kind()
    step = processor.patch_size * processor.merge_size
    pixels = np.random.default_rng(n_frames).integers(0, 256, (n_frames, 3 * step, 2 * step, 3), dtype=np.uint8)
    out = processor(
        videos=[torch.from_numpy(pixels).permute(0, 3, 1, 2)],
        do_resize=False,
        do_sample_frames=False,
        return_tensors="pt",
        **({} if kind is Qwen3VLVideoProcessor else {"cap_pixels_per_frame": False}),
    )
    patches, grid = patchify(pixels, processor)
    assert torch.equal(patches, out["pixel_values_videos"])
    assert torch.equal(grid, out["video_grid_thw"])


def test_images_are_bit_equal_and_a_view_is_taken_as_it_is_shown():
    processor = Qwen2VLImageProcessor()
    image = np.random.default_rng(0).integers(0, 256, (112, 56, 3), dtype=np.uint8)
    turned = np.rot90(image)  # neither contiguous nor in order
    out = processor(images=[torch.from_numpy(turned.copy()).permute(2, 0, 1)], do_resize=False, return_tensors="pt")
    patches, grid = patchify(turned[None], processor)
    assert torch.equal(patches, out["pixel_values"])
    assert torch.equal(grid, out["image_grid_thw"])


def test_other_means_are_the_processors_own():
    processor = Qwen2VLVideoProcessor(image_mean=[0.5, 0.1, 0.9], image_std=[0.5, 1.0, 0.25], rescale_factor=1 / 128)
    pixels = np.arange(2 * 28 * 28 * 3, dtype=np.int64).reshape(2, 28, 28, 3).astype(np.uint8)
    out = processor(
        videos=[torch.from_numpy(pixels).permute(0, 3, 1, 2)],
        do_resize=False,
        do_sample_frames=False,
        cap_pixels_per_frame=False,
        return_tensors="pt",
    )
    assert torch.equal(patchify(pixels, processor)[0], out["pixel_values_videos"])


def test_a_processor_that_leaves_values_as_they_are_is_asked_itself():
    assert only_normalises(Qwen2VLVideoProcessor())
    assert not only_normalises(Qwen2VLVideoProcessor(do_normalize=False))
    assert not only_normalises(Qwen2VLVideoProcessor(do_rescale=False))
