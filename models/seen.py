"""Videos and images as the vision tower saw them: in memory, as the network takes them, and as bytes on disk.

An entry is a checksum, the size of a JSON header, the header (key, dtype, shape, grid, frames, seconds) and the raw
numbers, little-endian: nothing in it can be executed.

Shape suffixes: _TH visual tokens by hidden size.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ..core.storage import seal, unseal

FORMAT = 1  # of entries: change it with their layout
DTYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32}


@dataclass(frozen=True)
class Seen:
    """One video or image after the vision tower: all the network needs of it, in place of its pixels.

    Attributes:
        features_TH: (tokens, hidden) after the tower's merger, in any floating dtype; the network casts them.
        grid: temporal, vertical and horizontal patches, before merging.
        n_frames: frames the tower was shown; 1 for an image.
        seconds_per_grid: seconds between temporal patches; None for an image.
    """

    features_TH: torch.Tensor
    grid: tuple[int, int, int]
    n_frames: int
    seconds_per_grid: float | None = None


@dataclass(frozen=True)
class SeenMedia:
    """Evidence that needs neither decoding nor the vision tower; videos and images in the order of the evidence."""

    videos: tuple[Seen, ...] = ()
    images: tuple[Seen, ...] = ()

    def vision(self) -> dict[str, torch.Tensor]:
        """Features, grids and seconds, under the names by which a batch knows them."""
        found = {}
        if self.videos:
            seconds = [v.seconds_per_grid for v in self.videos]
            found["video_features"] = torch.cat([v.features_TH for v in self.videos])
            found["video_grid_thw"] = torch.tensor([v.grid for v in self.videos])
            found["second_per_grid_ts"] = torch.tensor(seconds, dtype=torch.float64)
        if self.images:
            found["image_features"] = torch.cat([i.features_TH for i in self.images])
            found["image_grid_thw"] = torch.tensor([i.grid for i in self.images])
        return found


def pack_seen(seen: Seen, key: str) -> bytes:
    """An entry; `unpack_seen` gives equal features back, bit for bit."""
    header = {
        "dtype": str(seen.features_TH.dtype).removeprefix("torch."),
        "shape": list(seen.features_TH.shape),
        "grid": seen.grid,
        "n_frames": seen.n_frames,
        "seconds_per_grid": seen.seconds_per_grid,
    }
    return seal(key, header, tensor_bytes(seen.features_TH))


def unpack_seen(entry: bytes, key: str) -> Seen:
    """The features of an entry; `DamagedEntryError` unless it is, whole and unchanged, the one of this key."""
    header, rest = unseal(entry, key)
    numbers = torch.frombuffer(bytearray(rest), dtype=DTYPES[header["dtype"]])  # a copy: tensors are writable
    features_TH = numbers.reshape(header["shape"])
    return Seen(features_TH, tuple(header["grid"]), header["n_frames"], header["seconds_per_grid"])


def tensor_bytes(tensor: torch.Tensor) -> bytes:
    """The raw bytes of a tensor of any dtype, row by row; NumPy has no bfloat16."""
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
