"""Features of the frozen vision tower kept on disk: a segment is decoded and seen once across epochs, runs and claims.

An entry is named by a hash of everything its features depend on: content of the file, span, sampling, reader and
resizing (`frame_cache`), the processor's arithmetic, the tower's weights and the dtype they are kept in. So it never
goes stale. Entries lie in an `EntryStore`: whole or not there, safe for many processes and for `kill -9`, those used
longest ago evicted first. A damaged entry is dropped and made again.

Training fills the cache before its first step (`ensure`), for loader workers have no model and only `read`; a verifier
has its model at hand and looks as it goes (`see`). Both give `Encoder.evidence` what it takes in place of pixels.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm
from transformers import __version__ as transformers_version

from ..core.errors import ConfigError, MediaError, ModelInputError, ProofreelError
from ..core.pairs import Evidence, Image, VideoSegment, media_path
from ..core.storage import DamagedEntryError, EntryStore
from ..data_prep.frame_cache import FileHashes, FrameCache, frames_key
from ..data_prep.media import file_stamp
from .encoding import Encoder, read_media
from .looks import Look, Piece, batches, decoded
from .seen import DTYPES, FORMAT, Seen, SeenMedia, pack_seen, unpack_seen
from .vision_tower import backbone_of, check_frozen, run_tower, tower_sha256

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
        self.hits = self.computed = self.damaged = self.not_kept = 0
        self._max_bytes = int(max_gib * 2**30)
        self._hashes, self._store = FileHashes(self.directory), EntryStore(self.directory, self._max_bytes)
        self._made_by = _made_by(encoder, self.tower, dtype)

    def read(self, evidence: tuple[Evidence, ...]) -> SeenMedia:
        """The features of an evidence, from the cache only.

        Raises:
            MediaError: the file is unreadable, or its features are not there (any more).
        """
        found = {}
        for piece in _shown(evidence):
            if (seen := self._kept(self._key(piece))) is None:
                raise MediaError(
                    f"{piece.path}: its features are not in {self.directory}, got {piece}; they were evicted or "
                    "damaged since the run began: raise the limit and start again, kept ones are not computed twice"
                )
            found[piece] = seen
        return _in_order(evidence, found)

    def see(
        self,
        evidence: tuple[Evidence, ...],
        model: torch.nn.Module,
        *,
        frame_cache: FrameCache | None = None,
        lock: AbstractContextManager[Any] | None = None,
    ) -> SeenMedia:
        """The features of an evidence, from the cache or, what is missing, from the model.

        Args:
            evidence: any.
            model: as for `__init__`.
            frame_cache: in place of this object's own, for a thread that must not share one.
            lock: held while the model computes, not while frames are decoded.

        Raises:
            ProofreelError: as `read_media`; or the features are not finite.
        """
        found: dict[Piece, Seen] = {}
        missing: list[Look] = []
        for piece in dict.fromkeys(_shown(evidence)):
            if (seen := self._kept(self._key(piece))) is None:
                missing.append(self.look(piece, frame_cache))
            else:
                found[piece] = seen
        if missing:
            with lock or nullcontext():
                found |= self._compute(missing, model)
        return _in_order(evidence, found)

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
            workers: processes that decode while the model looks; 0 decodes here.

        Raises:
            ConfigError: the features would not fit within the limit; nothing was computed.
            MediaError: some could not be computed (all others were): every file with its reason.
        """
        check_frozen(model)
        pieces = list(dict.fromkeys(piece for evidence in evidences for piece in _shown(evidence)))
        problems = self._check_room(pieces, backbone_of(model).config.vision_config.out_hidden_size)
        share = [piece for piece in pieces[rank::world_size] if piece not in problems]
        quiet = rank > 0
        bar = tqdm(share, desc="vision cache: checking", unit="segment", disable=quiet)
        missing = [piece for piece in bar if not self._is_there(piece)]
        with tqdm(total=len(missing), desc="vision cache: looking", unit="segment", disable=quiet) as bar:
            for batch in batches(decoded(self.look, missing, workers, problems)):
                bar.update(len(self._compute(batch, model)))
        _raise_all(problems)

    def _check_room(self, pieces: list[Piece], hidden: int) -> dict[Piece, str]:
        """Refuse what would be evicted before it is read; pieces whose header cannot be read come back with why."""
        problems, n_tokens = {}, 0
        for piece in pieces:
            try:
                n_tokens += self.encoder.count_visual_tokens(piece, self.media_root)
            except ProofreelError as error:
                problems[piece] = str(error)
        n_bytes = n_tokens * hidden * DTYPES[self.dtype].itemsize + 1024 * len(pieces)  # and their headers
        if n_bytes > SAFE_SHARE * self._max_bytes:
            raise ConfigError(
                f"vision cache: too small, got a limit of {self._max_bytes / 2**30:.3g} GiB for {n_tokens} visual "
                f"tokens; give it at least {n_bytes / SAFE_SHARE / 2**30:.3g} GiB"
            )
        return problems

    def _is_there(self, piece: Piece) -> bool:
        try:
            return self._kept(self._key(piece)) is not None
        except MediaError:
            return False  # decoding it will say why

    def look(self, piece: Piece, frame_cache: FrameCache | None = None) -> Look:
        """Decode one piece; `MediaError` as `read_media`."""
        key = self._key(piece)
        media = read_media((piece,), self.encoder.sampling, self.media_root, frame_cache or self.frame_cache)
        if self._key(piece) != key:  # it is unknown which content was decoded
            raise MediaError(f"{piece.path}: changes while it is read, got another content; wait until it is complete")
        n_frames = len(media.videos[0].times_s) if media.videos else 1
        return Look(piece, key, n_frames, self.encoder.pixels(media))

    def _compute(self, looks: Sequence[Look], model: torch.nn.Module) -> dict[Piece, Seen]:
        """Show pieces to the tower, all videos at once and all images at once, and keep what it makes of them."""
        found: dict[Piece, Seen] = {}
        for kind in (VideoSegment, Image):
            some = [look for look in looks if isinstance(look.piece, kind)]
            if some:
                pixels = {name: torch.cat([look.pixels[name] for look in some]) for name in some[0].pixels}
                for look, features_TH in zip(some, run_tower(model, pixels), strict=True):
                    found[look.piece] = self._keep(look, features_TH)
        return found

    def _keep(self, look: Look, features_TH: torch.Tensor) -> Seen:
        if not features_TH.isfinite().all():
            raise ModelInputError(
                f"{look.piece.path}: the vision tower returned NaN or infinity, got {look.piece}; "
                "check its dtype and weights"
            )
        video = isinstance(look.piece, VideoSegment)
        t, h, w = look.pixels["video_grid_thw" if video else "image_grid_thw"][0].tolist()
        seconds = float(look.pixels["second_per_grid_ts"]) if video else None
        seen = Seen(features_TH.to("cpu", DTYPES[self.dtype]), (t, h, w), look.n_frames, seconds)
        self.computed += 1
        try:
            kept = self._store.write(look.key, pack_seen(seen, look.key))
        except OSError as error:
            warnings.warn(
                f"{self.directory}: features are not kept, got {error}; free or unlock the disk", stacklevel=4
            )
            kept = False
        self.not_kept += not kept
        return seen

    def _kept(self, key: str) -> Seen | None:
        entry = self._store.read(key)
        if entry is None:
            return None
        try:
            seen = unpack_seen(entry, key)
        except DamagedEntryError:
            self.damaged += 1
            self._store.drop(key)
            return None
        self.hits += 1
        return seen

    def _key(self, piece: Piece) -> str:
        """The name of an entry; `MediaError` if the file is not there."""
        if isinstance(piece, VideoSegment) and piece.absent:
            read_media((piece,), self.encoder.sampling, self.media_root)  # which words the error
        file = media_path(piece.path, self.media_root)
        content = self._hashes.of(file, file_stamp(file))
        segment = piece if isinstance(piece, VideoSegment) else VideoSegment(piece.path)
        pixels = frames_key(content, segment, self.encoder.sampling)
        return hashlib.sha256(f"{type(piece).__name__} {pixels} {self._made_by}".encode()).hexdigest()


def _shown(evidence: tuple[Evidence, ...]) -> list[Piece]:
    return [e for e in evidence if isinstance(e, (VideoSegment, Image))]


def _in_order(evidence: tuple[Evidence, ...], found: Mapping[Piece, Seen]) -> SeenMedia:
    videos = tuple(found[e] for e in evidence if isinstance(e, VideoSegment))
    return SeenMedia(videos, tuple(found[e] for e in evidence if isinstance(e, Image)))


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


def _raise_all(problems: Mapping[Piece, str]) -> None:
    if problems:
        shown = "\n  ".join(itertools.islice(problems.values(), MAX_PROBLEMS_SHOWN))
        more = len(problems) - MAX_PROBLEMS_SHOWN
        raise MediaError(
            f"vision cache: {len(problems)} pieces of evidence have no features, got:\n  {shown}"
            + (f"\n  and {more} more" if more > 0 else "")
        )
