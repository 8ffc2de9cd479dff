"""Blocks of claims scored on a Ray cluster: media decoded in a stage of its own, then verifiers, both pools of actors.

    read the block -> decode its media (actors, CPUs of their own) -> score it (actors, a verifier each) -> its file

A block is the unit of everything: of work (whichever actor is free takes the next), of failure (Ray runs it again when
a worker dies) and of checkpoints (its file is whole or absent). Decoded frames pass from one stage to the next through
Ray's object store, which holds decoding back when the networks are behind. Apart from `distributed`, as it needs ray.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from ...core import ConfigError, Image, MediaError, Pair, VideoSegment, Visual, evidence_to_dict, optional_package
from ...core import Frames as FrameFiles
from ...data_prep.media import FrameCache, Frames, FrameSampling, fetched, guarded, read_media_piece
from ...models.decision import Decision
from ...models.inputs import silent
from .claim_store import ClaimStore
from .distributed import BlockEngine
from .joining import Block
from .ray_options import RayWorkers, ray_workers, refuse_ray_options
from .score import question_of, score_to

Opener = Callable[[Any], Any]
"""Opens the verifier in a worker; takes what stands for its frame cache. Must pickle: a function of a module."""

LOCAL_STORE_BYTES = 512 * 2**20


@dataclass(frozen=True)
class VerifierFacts:
    """What must be known of a verifier where it is not loaded.

    Attributes:
        fingerprint, decision, windowing, notes: its own.
        sampling: None where it decodes for itself, as a cascade does and who judges in windows.
        question: of `question_of`; empty for a cascade.
    """

    fingerprint: str
    decision: Decision | None
    windowing: Any
    notes: tuple[str, ...]
    sampling: FrameSampling | None
    question: dict[str, Any]


class AsksForCluster(Protocol):
    """Says which cluster it means, or how many logical CPUs one that is started here must have."""

    @property
    def address(self) -> str | None: ...
    @property
    def local_cpus(self) -> int: ...


@contextmanager
def ray_cluster(workers: AsksForCluster) -> Iterator[Any]:
    """The package, connected; a cluster that was started for this ends with it.

    Raises:
        ConfigError: ray is not installed, or there is no cluster at the address.
    """
    ray = optional_package("ray", "--engine ray")
    if ray.is_initialized():
        yield ray
        return
    address = workers.address or os.environ.get("RAY_ADDRESS")
    shape: dict[str, Any] = {"num_cpus": workers.local_cpus, "object_store_memory": LOCAL_STORE_BYTES}
    try:
        ray.init(
            address=address or "local",
            include_dashboard=None if address else False,
            log_to_driver=False,
            logging_level="error",
            **({} if address else shape),
        )
    except ConnectionError as error:
        raise ConfigError(
            f"ray: no cluster answers, got {error} for {address}; start one or give another, and its token "
            "(RAY_AUTH_TOKEN) if it asks for one"
        ) from error
    try:
        yield ray
    finally:
        ray.shutdown()


def facts_of(open_verifier: Opener, workers: RayWorkers) -> VerifierFacts:
    """What the verifier is, told by a worker that loads it; ray must be connected."""
    ray = optional_package("ray", "--engine ray")
    tell = ray.remote(num_gpus=workers.gpus_each, num_cpus=workers.cpus_each, max_calls=1)(_facts)
    return ray.get(tell.remote(open_verifier))


def _facts(open_verifier: Opener) -> VerifierFacts:
    verifier = open_verifier(None)
    encoder = getattr(verifier, "encoder", None)
    sampling = None if encoder is None or verifier.windowing is not None else encoder.sampling
    question = {} if encoder is None else question_of(verifier)
    notes = tuple(verifier.notes)
    return VerifierFacts(verifier.fingerprint, verifier.decision, verifier.windowing, notes, sampling, question)


def ray_engine(
    open_verifier: Opener,
    facts: VerifierFacts,
    workers: RayWorkers,
    media_root: str | Path | None = None,
    frame_cache: FrameCache | None = None,
) -> BlockEngine:
    """Scores blocks of `score_in_bulk` on the cluster that ray is connected to.

    Args:
        open_verifier: called once by each actor.
        facts: from `facts_of`.
        workers: see there.
        media_root: folder that relative paths of evidence start from, on every machine.
        frame_cache: of the decoders; a folder that they share.
    """

    def score(blocks: Sequence[Block], source: dict[str, Any], overwrite: bool, tell: Callable[[int], Any]) -> None:
        if not blocks:
            return
        data = quiet_data()
        store = str(blocks[0].store.path.absolute())
        rows = [{"file": str(b.file.absolute()), "store": store, "block": b.stored.number} for b in blocks]
        dataset = data.from_items(rows, override_num_blocks=len(rows))
        stages = Stages(open_verifier, facts, workers, media_root, frame_cache, source, overwrite)
        for row in stages.scored(dataset).iter_rows():
            tell(row["n_rows"])

    return score


@contextmanager
def judge_of_engine(
    args: argparse.Namespace, open_verifier: Opener, media_root: Path | None
) -> Iterator[tuple[Any, BlockEngine | None]]:
    """The verifier and what scores its blocks, as `--engine` says; alone or under a launcher nothing scores for it.

    Args:
        args: with `engine`, `frame_cache` and those of `add_ray_options`.
        open_verifier, media_root: as for `ray_engine`.
    """
    frame_cache = FrameCache(args.frame_cache) if args.frame_cache else None
    if args.engine != "ray":
        refuse_ray_options(args)
        yield open_verifier(frame_cache), None
        return
    workers = ray_workers(args)
    with ray_cluster(workers):
        facts = facts_of(open_verifier, workers)
        yield facts, ray_engine(open_verifier, facts, workers, media_root, frame_cache)


@dataclass(frozen=True)
class Stages:
    """The two stages that every block goes through; arguments are those of `ray_engine` and `score_to`."""

    open_verifier: Opener
    facts: VerifierFacts
    workers: RayWorkers
    media_root: str | Path | None
    frame_cache: FrameCache | None
    source: dict[str, Any]
    overwrite: bool

    def scored(self, dataset: Any) -> Any:
        """A Dataset of `file` and `n_rows` from one of `file` and `pairs`, or `file`, `store` and `block`.

        The files are written when it is consumed.
        """
        one: dict[str, Any] = {"batch_size": 1, "batch_format": "pyarrow"}
        workers = self.workers
        if self.facts.sampling is not None and workers.decoders:
            decoding = (
                self.facts.sampling,
                self.media_root,
                self.frame_cache,
            )  # actors: Ray would fuse tasks with scoring
            dataset = dataset.map_batches(
                _Decoder,
                fn_constructor_args=decoding,
                concurrency=workers.decoders,
                num_cpus=workers.cpus_per_decoder,
                **one,
            )
        return dataset.map_batches(
            _Scorer,
            fn_constructor_args=(self.open_verifier, self.source, self.overwrite),
            concurrency=workers.pool,
            num_gpus=workers.gpus_each,
            num_cpus=workers.cpus_each,
            **one,
        )


def quiet_data() -> Any:
    """The package `ray.data`, without progress of its own."""
    data = optional_package("ray.data", "--engine ray")
    context = data.DataContext.get_current()
    context.enable_progress_bars = context.print_on_execution_start = False
    return data


def packed(pairs: Sequence[Pair]) -> bytes:
    """Pairs as JSON; `unpacked` gives equal ones back."""
    return json.dumps([pair.to_dict() for pair in pairs], ensure_ascii=False).encode()


def unpacked(pairs: bytes) -> list[Pair]:
    """The pairs that were packed."""
    return [Pair.from_dict(row) for row in json.loads(pairs)]


def _pairs_of(row: Mapping[str, Any]) -> list[Pair]:
    """A block's rows, which came with it or lie on the disk that all machines share."""
    return ClaimStore(Path(row["store"])).of_block(row["block"]) if "store" in row else unpacked(row["pairs"])


class HandedFrames:
    """Frames decoded elsewhere, where a verifier has its frame cache; what was not handed over is decoded here."""

    def __init__(self) -> None:
        self._known: Mapping[str, Frames | str] = {}

    def __deepcopy__(self, memo: Any) -> HandedFrames:
        """Threads share it: it is only read from while they run."""
        return self

    def hand(self, known: Mapping[str, Frames | str]) -> None:
        """Replace what is known: frames, or why there are none, by `_key`."""
        self._known = known

    def read(self, piece: Visual, sampling: FrameSampling, media_root: str | Path | None = None) -> Frames:
        """As `FrameCache.read`."""
        found = self._known.get(_key(piece, sampling))
        if isinstance(found, str):
            raise MediaError(found)
        if found is None:
            return guarded(read_media_piece, piece, sampling, media_root, name=fetched(piece, media_root))
        return found


class _Decoder:
    """The first stage: an actor that decodes what a block shows, unless the block's file is there."""

    def __init__(self, sampling: FrameSampling, media_root: str | Path | None, frame_cache: FrameCache | None) -> None:
        self.sampling, self.media_root = sampling, media_root
        self.frames: Any = frame_cache or HandedFrames()

    def __call__(self, table: pa.Table) -> pa.Table:
        known: dict[str, Frames | str] = {}
        row = table.to_pylist()[0]
        if not Path(row["file"]).is_file():
            for pair in _pairs_of(row):
                for piece in filter(_is_read, pair.evidence):
                    piece = silent(piece)
                    if (key := _key(piece, self.sampling)) not in known:
                        known[key] = self._read(piece)
        media = pa.array([pickle.dumps(known, protocol=5)], pa.large_binary())
        return table.append_column("media", media)

    def _read(self, piece: Any) -> Frames | str:
        try:
            return self.frames.read(piece, self.sampling, self.media_root)
        except MediaError as error:
            return str(error)


class _Scorer:
    """The second stage: an actor with a verifier, which writes the file of each block that it gets."""

    def __init__(self, open_verifier: Opener, source: dict[str, Any], overwrite: bool) -> None:
        self.frames = HandedFrames()
        self.verifier = open_verifier(self.frames)
        self.source, self.overwrite = source, overwrite

    def __call__(self, table: pa.Table) -> pa.Table:
        row = table.to_pylist()[0]
        pairs = _pairs_of(row)
        self.frames.hand(pickle.loads(row["media"]) if row.get("media") else {})
        options: dict[str, Any] = {"rows_per_part": max(len(pairs), 1), "progress": False, "overwrite": self.overwrite}
        score_to(row["file"], self.verifier, pairs, self.source, **options)
        self.frames.hand({})
        return pa.table({"file": [row["file"]], "n_rows": [len(pairs)]})


def _is_read(piece: Any) -> bool:
    """Whether a piece has frames; absent media are refused where they are asked about."""
    return isinstance(piece, (VideoSegment, FrameFiles, Image)) and not getattr(piece, "absent", False)


def _key(piece: Any, sampling: FrameSampling) -> str:
    return json.dumps([evidence_to_dict(silent(piece)), sampling.as_recorded(), sampling.side_step], sort_keys=True)
