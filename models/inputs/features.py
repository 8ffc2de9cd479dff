"""Features of videos and images in place of their pixels, and the bytes that keep them on disk.

An entry is a checksum, the size of a JSON header, the header (key, dtype, shape, grid, frames, seconds) and the raw
numbers, little-endian: nothing in it can be executed.

Shape suffixes: _TH visual tokens by hidden size.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ...core import seal, unseal

FORMAT = 1  # of entries: change it with their layout
PATCH_TIMES = "patch_times_s"  # among what `Encoder.pixels` gives; it becomes text and is not the network's
DTYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32}


@dataclass(frozen=True)
class PieceFeatures:
    """One video, image or sound after its tower: all the network needs of it, in place of its pixels.

    Attributes:
        features_TH: (tokens, hidden) after the tower's merger, in any floating dtype; the network casts them. Further
            feature maps of the tower (`VisionLayout.levels`) stand beside it: (tokens, levels x hidden).
        grid: temporal, vertical and horizontal patches, before merging.
            Of a sound: its mel frames, and twice 1.
        n_frames: frames the tower was shown; 1 for an image; mel frames of a sound.
        seconds_per_grid: seconds between temporal patches; None for an image.
        patch_times_s: when each temporal patch is shown, of a video that is written frame by frame; else None.
        note: of a sound, as `Sound.note`.
    """

    features_TH: torch.Tensor
    grid: tuple[int, int, int]
    n_frames: int
    seconds_per_grid: float | None = None
    patch_times_s: tuple[float, ...] | None = None
    note: str | None = None


@dataclass(frozen=True)
class MediaFeatures:
    """Evidence that needs neither decoding nor towers; videos, images and sounds in the order of the evidence."""

    videos: tuple[PieceFeatures, ...] = ()
    images: tuple[PieceFeatures, ...] = ()
    sounds: tuple[PieceFeatures, ...] = ()

    def vision(self) -> dict[str, torch.Tensor]:
        """Features, grids and seconds, under the names by which a batch knows them."""
        inputs = {}
        if self.videos:
            inputs["video_features"] = torch.cat([v.features_TH for v in self.videos])
            inputs["video_grid_thw"] = torch.tensor([v.grid for v in self.videos])
            if self.videos[0].patch_times_s is None:
                seconds = [v.seconds_per_grid for v in self.videos]
                inputs["second_per_grid_ts"] = torch.tensor(seconds, dtype=torch.float64)
            else:
                times_s = [time_s for v in self.videos for time_s in v.patch_times_s or ()]
                inputs[PATCH_TIMES] = torch.tensor(times_s, dtype=torch.float64)
        if self.images:
            inputs["image_features"] = torch.cat([i.features_TH for i in self.images])
            inputs["image_grid_thw"] = torch.tensor([i.grid for i in self.images])
        if self.sounds:
            inputs["audio_features"] = torch.cat([s.features_TH for s in self.sounds])
            inputs["audio_frames"] = torch.tensor([s.n_frames for s in self.sounds])
        return inputs


def pack_features(features: PieceFeatures, key: str) -> bytes:
    """An entry; `unpack_features` gives equal features back, bit for bit."""
    header = {
        "dtype": str(features.features_TH.dtype).removeprefix("torch."),
        "shape": list(features.features_TH.shape),
        "grid": features.grid,
        "n_frames": features.n_frames,
        "seconds_per_grid": features.seconds_per_grid,
        "patch_times_s": features.patch_times_s,
        **({} if features.note is None else {"note": features.note}),
    }
    return seal(key, header, tensor_bytes(features.features_TH))


def unpack_features(entry: bytes, key: str) -> PieceFeatures:
    """The features of an entry; `DamagedEntryError` unless it is, whole and unchanged, the one of this key."""
    header, rest = unseal(entry, key)
    numbers = torch.frombuffer(bytearray(rest), dtype=DTYPES[header["dtype"]])  # a copy: tensors are writable
    features_TH = numbers.reshape(header["shape"])
    times_s = header.get("patch_times_s")  # entries of earlier releases have none
    return PieceFeatures(
        features_TH,
        tuple(header["grid"]),
        header["n_frames"],
        header["seconds_per_grid"],
        None if times_s is None else tuple(times_s),
        header.get("note"),
    )


def tensor_bytes(tensor: torch.Tensor) -> bytes:
    """The raw bytes of a tensor of any dtype, row by row; NumPy has no bfloat16."""
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
