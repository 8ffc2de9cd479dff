"""Features of the frozen towers, kept on disk: a segment is decoded and encoded once for all epochs and claims.

So is a sound, also that of a video, which is an entry beside the one of its pictures.

An entry is named by a hash of everything its features depend on: content of the file, span, sampling, reader and
resizing (`frame_cache`), the processor's arithmetic, the tower's weights and the dtype they are kept in. So it never
goes stale. Entries lie in an `EntryStore`: whole or not there, safe for many processes and for `kill -9`, those used
longest ago evicted first. A damaged entry is dropped and made again.

Training fills the cache before its first step (`ensure`): worker processes decode the evidence, and the tower encodes
it in batches of bounded size. Loader workers have no model and only `read`. A verifier has its model at hand and
computes what is missing when it is needed (`see`). Both give `Encoder.evidence` what it takes in place of pixels.

Features are what leaves the tower's merger, one row per visual token (`pooler_output`); `last_hidden_state` is what
enters the merger, and is not what the language model is given.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset
from tqdm import tqdm
from transformers import __version__ as transformers_version

from ...core import (
    Audio,
    ConfigError,
    DamagedEntryError,
    EntryStore,
    Evidence,
    Image,
    MediaError,
    ModelInputError,
    Moving,
    ProofreelError,
    VideoSegment,
    Visual,
    media_name,
)
from ...data_prep.media import FileHashes, FrameCache, frames_key, piece_stamps
from ..inputs import (
    DTYPES,
    FORMAT,
    PATCH_TIMES,
    Encoder,
    MediaFeatures,
    PieceFeatures,
    heard,
    pack_features,
    read_media,
    silent,
    unpack_features,
)
from .towers import audio_sha256, check_frozen, run_tower, tower_sha256, vision_tower

Piece = Visual | Audio

MAX_PATCHES = 16_384  # that the tower sees at once, unless one segment alone has more


@dataclass(frozen=True)
class PiecePixels:
    """A decoded piece: `pixels` as `Encoder.pixels` gives them of this piece alone, `key` the name of its features.

    `note` is that of a sound.
    """

    piece: Piece
    key: str
    n_frames: int
    pixels: dict[str, torch.Tensor]
    note: str | None = None

    @property
    def n_patches(self) -> int:
        """Rows of pixels."""
        return max(len(t) for t in self.pixels.values())


class _PixelDataset(Dataset[PiecePixels | str]):
    """Decoded pieces by number; for one that cannot be decoded the reason, as a string that any process can pass on."""

    def __init__(self, decode: Callable[[Piece], PiecePixels], pieces: Sequence[Piece]) -> None:
        self.decode, self.pieces = decode, pieces

    def __len__(self) -> int:
        return len(self.pieces)

    def __getitem__(self, i: int) -> PiecePixels | str:
        try:
            return self.decode(self.pieces[i])
        except ProofreelError as error:
            return str(error)


def decoded(
    decode: Callable[[Piece], PiecePixels], pieces: Sequence[Piece], workers: int, problems: dict[Piece, str]
) -> Iterator[PiecePixels]:
    """Pieces, in order, decoded by `workers` processes (0: here); reasons of failure go to `problems`."""
    loader = DataLoader(_PixelDataset(decode, pieces), batch_size=None, num_workers=workers, collate_fn=_as_it_is)
    for piece, result in zip(pieces, loader, strict=True):
        if isinstance(result, PiecePixels):
            yield result
        else:
            problems[piece] = result


def batches(decoded_pieces: Iterable[PiecePixels]) -> Iterator[list[PiecePixels]]:
    """Decoded pieces in order, as many at a time as the tower may see at once."""
    batch: list[PiecePixels] = []
    for item in decoded_pieces:
        if batch and sum(b.n_patches for b in batch) + item.n_patches > MAX_PATCHES:
            yield batch
            batch = []
        batch.append(item)
    if batch:
        yield batch


def _as_it_is(item: Any) -> Any:
    return item


SAFE_SHARE = 0.9  # an EntryStore that makes room goes down to this share of its limit
MAX_PROBLEMS_SHOWN = 20
_PROCESSOR_SETTINGS = (
    "do_rescale",
    "rescale_factor",
    "do_normalize",
    "image_mean",
    "image_std",
    "patch_size",
    "temporal_patch_size",
    "merge_size",
)


class VisionFeatures:
    """Features by content, on disk. Holds no model and is picklable: loader workers read with their own copy.

    Attributes:
        hits, computed, damaged, not_kept: what this copy has seen: features found, features computed, entries dropped
            as damaged, features that could not be written.
    """

    def __init__(
        self,
        directory: str | Path,
        model: torch.nn.Module,
        encoder: Encoder,
        *,
        media_root: str | Path | None = None,
        frame_cache: FrameCache | None = None,
        max_gib: float = 100.0,
        dtype: str = "bfloat16",
    ) -> None:
        """Hashes the tower's weights; the directory is not touched before the first entry.

        Args:
            directory: made when first written to; not that of a `FrameCache`.
            model: the backbone, bare or in adapters; whole, frozen in tower and merger.
            encoder: the one whose evidence the features stand for.
            media_root: folder that relative paths in evidence start from.
            frame_cache: where frames of missing features are looked for first.
            max_gib: all entries together never exceed this.
            dtype: of what is kept. `float32` is kept bit for bit; `bfloat16` rounds (docs/vision-features.md).

        Raises:
            ConfigError: another dtype, or a limit that is not above 0.
            ModelInputError: tower or merger is trainable, adapted or sharded.
        """
        if dtype not in DTYPES:
            raise ConfigError(f"VisionFeatures: unknown dtype, got {dtype!r}; use one of {sorted(DTYPES)}")
        if not max_gib > 0:
            raise ConfigError(f"VisionFeatures: max_gib must be above 0, got {max_gib}; give GiB")
        check_frozen(model)
        self.directory, self.dtype = Path(directory).absolute(), dtype
        self.encoder, self.media_root, self.frame_cache = encoder, media_root, frame_cache
        self.tower = tower_sha256(model)
        self._heard_by = _heard_by(encoder, audio_sha256(model), dtype)
        self.hits = self.computed = self.damaged = self.not_kept = 0
        self._max_bytes = int(max_gib * 2**30)
        self._hashes, self._store = FileHashes(self.directory), EntryStore(self.directory, self._max_bytes)
        self._made_by = _made_by(encoder, self.tower, dtype)

    def read(self, evidence: tuple[Evidence, ...]) -> MediaFeatures:
        """The features of an evidence, from the cache only.

        Raises:
            MediaError: the file is unreadable, or its features are not there (any more).
        """
        features = {}
        for piece in _shown(evidence):
            if (piece_features := self._kept(self._key(piece))) is None:
                raise MediaError(
                    f"{media_name(piece)}: its features are not in {self.directory}, got {piece}; they were evicted or "
                    "damaged since the run began: raise the limit and start again, kept ones are not computed twice"
                )
            features[piece] = piece_features
        return _in_order(evidence, features)

    def obtain(
        self,
        evidence: tuple[Evidence, ...],
        model: torch.nn.Module,
        *,
        frame_cache: FrameCache | None = None,
        lock: AbstractContextManager[Any] | None = None,
    ) -> MediaFeatures:
        """The features of an evidence, from the cache or, what is missing, from the model.

        Args:
            evidence: any.
            model: as for `__init__`.
            frame_cache: in place of this object's own, for a thread that must not share one.
            lock: held while the model computes, not while frames are decoded.

        Raises:
            ProofreelError: as `read_media`; or the features are not finite.
        """
        features: dict[Piece, PieceFeatures] = {}
        missing: list[PiecePixels] = []
        for piece in dict.fromkeys(_shown(evidence)):
            if (piece_features := self._kept(self._key(piece))) is None:
                missing.append(self.decode(piece, frame_cache))
            else:
                features[piece] = piece_features
        if missing:
            with lock or nullcontext():
                features |= self._compute(missing, model)
        return _in_order(evidence, features)

    def ensure(
        self,
        evidences: Iterable[tuple[Evidence, ...]],
        model: torch.nn.Module,
        *,
        rank: int = 0,
        world_size: int = 1,
        workers: int = 0,
    ) -> None:
        """Compute what is missing, so that every `read` of these evidences will succeed.

        A call that was killed goes on where it stopped when it is made again.

        Args:
            evidences: all of a run, in any order, with repetitions; the same on every rank.
            model: as for `__init__`.
            rank, world_size: this process's share of the work; wait for all before reading.
            workers: processes that decode while the model decoded_pieces; 0 decodes here.

        Raises:
            ConfigError: the features would not fit within the limit; nothing was computed.
            MediaError: some could not be computed (all others were): every file with its reason.
        """
        check_frozen(model)
        pieces = list(dict.fromkeys(piece for evidence in evidences for piece in _shown(evidence)))
        tower: Any = vision_tower(model)
        problems = self._check_room(pieces, tower.config.out_hidden_size * self.encoder.layout.levels)
        share = [piece for piece in pieces[rank::world_size] if piece not in problems]
        quiet = rank > 0
        bar = tqdm(share, desc="vision cache: checking", unit="segment", disable=quiet)
        missing = [piece for piece in bar if not self._is_there(piece)]
        with tqdm(total=len(missing), desc="vision cache: looking", unit="segment", disable=quiet) as bar:
            for batch in batches(decoded(self.decode, missing, workers, problems)):
                bar.update(len(self._compute(batch, model)))
        _raise_all(problems)

    def _check_room(self, pieces: list[Piece], hidden: int) -> dict[Piece, str]:
        """Refuse what would be evicted before it is read; pieces whose header cannot be read come back with why."""
        problems, n_tokens = {}, 0
        for piece in pieces:
            try:
                if isinstance(piece, Audio):
                    n_tokens += self.encoder.count_audio_tokens(piece, self.media_root)
                else:
                    n_tokens += self.encoder.count_visual_tokens(piece, self.media_root)
            except ProofreelError as error:
                problems[piece] = str(error)
        n_bytes = n_tokens * hidden * DTYPES[self.dtype].itemsize + 1024 * len(pieces)  # and their headers
        if n_bytes > SAFE_SHARE * self._max_bytes:
            raise ConfigError(
                f"vision cache: too small, got a limit of {self._max_bytes / 2**30:.3g} GiB for {n_tokens} visual "
                f"tokens; give it (a run: vision_cache_gib) at least {n_bytes / SAFE_SHARE / 2**30:.3g} GiB"
            )
        return problems

    def _is_there(self, piece: Piece) -> bool:
        try:
            return self._kept(self._key(piece)) is not None
        except MediaError:
            return False  # decoding it will say why

    def decode(self, piece: Piece, frame_cache: FrameCache | None = None) -> PiecePixels:
        """Decode one piece; `MediaError` as `read_media`."""
        key = self._key(piece)
        media = read_media((piece,), self.encoder.sampling, self.media_root, frame_cache or self.frame_cache)
        if self._key(piece) != key:  # it is unknown which content was decoded
            raise MediaError(
                f"{media_name(piece)}: changes while it is read, got another content; wait until it is complete"
            )
        pixels = self.encoder.pixels(media)
        n_frames = len(media.videos[0].times_s) if media.videos else len(pixels.get("audio_values", "1"))
        return PiecePixels(piece, key, n_frames, pixels, media.sounds[0].note if media.sounds else None)

    def _compute(self, decoded_pieces: Sequence[PiecePixels], model: torch.nn.Module) -> dict[Piece, PieceFeatures]:
        """Show pieces to the tower, all videos at once and all images at once, and keep what it makes of them."""
        features: dict[Piece, PieceFeatures] = {}
        for kind in (Moving, Image, Audio):
            some = [shown for shown in decoded_pieces if isinstance(shown.piece, kind)]
            if some:
                pixels = {name: torch.cat([shown.pixels[name] for shown in some]) for name in some[0].pixels}
                for shown, features_TH in zip(some, run_tower(model, pixels), strict=True):
                    features[shown.piece] = self._keep(shown, features_TH)
        return features

    def _keep(self, shown: PiecePixels, features_TH: torch.Tensor) -> PieceFeatures:
        if not features_TH.isfinite().all():
            raise ModelInputError(
                f"{media_name(shown.piece)}: the vision tower returned NaN or infinity, got {shown.piece}; "
                "check its dtype and weights"
            )
        video = isinstance(shown.piece, Moving)
        t, h, w = shown.n_frames, 1, 1  # of a sound
        if not isinstance(shown.piece, Audio):
            t, h, w = shown.pixels["video_grid_thw" if video else "image_grid_thw"][0].tolist()
        seconds, times_s = shown.pixels.get("second_per_grid_ts"), shown.pixels.get(PATCH_TIMES)
        features = PieceFeatures(
            features_TH.to("cpu", DTYPES[self.dtype]),
            (t, h, w),
            shown.n_frames,
            None if seconds is None else float(seconds),
            None if times_s is None else tuple(times_s.tolist()),
            shown.note,
        )
        self.computed += 1
        try:
            kept = self._store.write(shown.key, pack_features(features, shown.key))
        except OSError as error:
            warnings.warn(
                f"{self.directory}: features are not kept, got {error}; free or unlock the disk", stacklevel=4
            )
            kept = False
        self.not_kept += not kept
        return features

    def _kept(self, key: str) -> PieceFeatures | None:
        entry = self._store.read(key)
        if entry is None:
            return None
        try:
            features = unpack_features(entry, key)
        except DamagedEntryError:
            self.damaged += 1
            self._store.drop(key)
            return None
        self.hits += 1
        return features

    def _key(self, piece: Piece) -> str:
        """The name of an entry; `MediaError` if the file is not there."""
        if isinstance(piece, VideoSegment) and piece.absent:
            read_media((piece,), self.encoder.sampling, self.media_root)  # which words the error
        content = self._hashes.of_piece(piece, piece_stamps(piece, self.media_root), self.media_root)
        if isinstance(piece, Audio):
            span = f"{float(piece.start_s)} {piece.end_s if piece.end_s is None else float(piece.end_s)}"
            return hashlib.sha256(f"Audio {content} {span} {self._heard_by}".encode()).hexdigest()
        moving = VideoSegment(piece.path) if isinstance(piece, Image) else piece
        pixels = frames_key(content, moving, self.encoder.sampling)
        return hashlib.sha256(f"{type(piece).__name__} {pixels} {self._made_by}".encode()).hexdigest()


def _shown(evidence: tuple[Evidence, ...]) -> list[Piece]:
    return [*(silent(e) for e in evidence if isinstance(e, Visual)), *heard(evidence)]


def _in_order(evidence: tuple[Evidence, ...], features: Mapping[Piece, PieceFeatures]) -> MediaFeatures:
    videos = tuple(features[silent(e)] for e in evidence if isinstance(e, Moving))
    images = tuple(features[e] for e in evidence if isinstance(e, Image))
    return MediaFeatures(videos, images, tuple(features[sound] for sound in heard(evidence)))


def _made_by(encoder: Encoder, tower: str, dtype: str) -> str:
    """Everything but the pixels that features depend on, as one hash."""
    processors = (encoder.processor.video_processor, encoder.processor.image_processor)
    what = {
        "format": FORMAT,
        "tower": tower,
        "dtype": dtype,
        "transformers": transformers_version,
        "processors": [{name: getattr(p, name, None) for name in _PROCESSOR_SETTINGS} for p in processors],
    }
    return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()


def _heard_by(encoder: Encoder, tower: str | None, dtype: str) -> str | None:
    """The same of sounds; None where the backbone hears nothing."""
    if tower is None:
        return None
    extractor = encoder.processor.feature_extractor
    settings = {name: getattr(extractor, name) for name in ("sampling_rate", "hop_length", "n_fft", "feature_size")}
    what = {"format": FORMAT, "tower": tower, "dtype": dtype, "transformers": transformers_version, **settings}
    return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()


def _raise_all(problems: Mapping[Piece, str]) -> None:
    if problems:
        shown = "\n  ".join(itertools.islice(problems.values(), MAX_PROBLEMS_SHOWN))
        more = len(problems) - MAX_PROBLEMS_SHOWN
        raise MediaError(
            f"vision cache: {len(problems)} pieces of evidence have no features, got:\n  {shown}"
            + (f"\n  and {more} more" if more > 0 else "")
        )
