"""Pieces of evidence on their way to the vision tower: decoded by worker processes, grouped to what it sees at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from ..core.errors import ProofreelError
from ..core.pairs import Image, VideoSegment

Piece = VideoSegment | Image

MAX_PATCHES = 16_384  # that the tower sees at once, unless one segment alone has more


@dataclass(frozen=True)
class Look:
    """A decoded piece: `pixels` as `Encoder.pixels` gives them of this piece alone, `key` the name of its features."""

    piece: Piece
    key: str
    n_frames: int
    pixels: dict[str, torch.Tensor]

    @property
    def n_patches(self) -> int:
        """Rows of pixels."""
        return max(len(t) for t in self.pixels.values())


class _Looks(Dataset[Look | str]):
    """Looks by number; what cannot be decoded is the reason in words, so that it crosses the process boundary."""

    def __init__(self, look: Callable[[Piece], Look], pieces: Sequence[Piece]) -> None:
        self.look, self.pieces = look, pieces

    def __len__(self) -> int:
        return len(self.pieces)

    def __getitem__(self, i: int) -> Look | str:
        try:
            return self.look(self.pieces[i])
        except ProofreelError as error:
            return str(error)


def decoded(
    look: Callable[[Piece], Look], pieces: Sequence[Piece], workers: int, problems: dict[Piece, str]
) -> Iterator[Look]:
    """Looks at pieces, in order, decoded by `workers` processes (0: here); reasons of failure go to `problems`."""
    loader = DataLoader(_Looks(look, pieces), batch_size=None, num_workers=workers, collate_fn=_as_it_is)
    for piece, found in zip(pieces, loader, strict=True):
        if isinstance(found, Look):
            yield found
        else:
            problems[piece] = found


def batches(looks: Iterable[Look]) -> Iterator[list[Look]]:
    """Looks in order, as many at a time as the tower may see at once."""
    batch: list[Look] = []
    for look in looks:
        if batch and sum(b.n_patches for b in batch) + look.n_patches > MAX_PATCHES:
            yield batch
            batch = []
        batch.append(look)
    if batch:
        yield batch


def _as_it_is(look: Any) -> Any:
    return look
