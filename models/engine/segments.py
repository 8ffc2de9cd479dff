"""From pairs to encoded segments: grouped by evidence, decoded and encoded in any thread, each claim with its failure.

What cannot be read is a reason, never an exception: a bad file fails its own claims, a bad claim fails alone.
"""

from __future__ import annotations

import copy
import dataclasses
import threading
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from ...core import (
    Evidence,
    MediaError,
    ModelInputError,
    Pair,
    ProofreelError,
    evidence_key,
    evidence_kinds,
    problems_of,
)
from ...data_prep.media import FrameCache
from ..inputs import EncodedEvidence, Encoder, Media, MediaFeatures, read_media
from .packing import stage
from .prefix_cache import Prefix, prefix_key, weights_state
from .scorer import PrefixScorer, Segment, is_out_of_memory
from .vision_features import VisionFeatures


@dataclass(frozen=True)
class Group:
    """Pairs that share evidence, with their places in the input, and what is known of its prefix beforehand."""

    places: tuple[int, ...]
    pairs: tuple[Pair, ...]
    key: Hashable = None
    prefix: Prefix | None = None


@dataclass(frozen=True)
class ReadGroup:
    """A group after reading.

    Attributes:
        segment: the claims that can be scored; None if there are none.
        places: places of the segment's claims.
        failed: why the others cannot, by place.
        group: what was read, so that it can be read again.
        out_of_memory: places that memory ran out for while their evidence was encoded.
    """

    segment: Segment | None
    places: tuple[int, ...]
    failed: dict[int, str]
    group: Group | None = None
    out_of_memory: tuple[int, ...] = ()


class SegmentReader:
    """Makes segments of pairs, for one scorer. `read` may run in several threads at once."""

    def __init__(
        self,
        encoder: Encoder,
        scorer: PrefixScorer,
        media_root: str | Path | None = None,
        frame_cache: FrameCache | None = None,
        vision_features: VisionFeatures | None = None,
        modalities: Sequence[str] | None = None,
    ) -> None:
        """Make a reader.

        Args:
            encoder, scorer, media_root, frame_cache: those of the verifier.
            vision_features: stands in for decoding and the vision tower where it holds the segment.
            modalities: kinds of evidence that may be asked about; None allows all.
        """
        self.encoder, self.scorer, self.media_root = encoder, scorer, media_root
        self.modalities = None if modalities is None else tuple(modalities)
        self.vision_features = vision_features
        # A decoder's child process serves one thread: every thread borrows a copy of its own.
        self._idle, self._frame_cache, self._lock = [frame_cache], frame_cache, threading.Lock()

    def group(self, pairs: Sequence[Pair]) -> list[Group]:
        """Pairs by evidence, those whose prefix is kept first: they must not be evicted before they are used."""
        pairs = [self.encoder.prompt.bound(pair) for pair in pairs]
        places: dict[str, list[int]] = {}
        for i, pair in enumerate(pairs):
            places.setdefault(evidence_key(pair.evidence), []).append(i)
        groups = [Group(tuple(group_places), tuple(pairs[i] for i in group_places)) for group_places in places.values()]
        if not self.scorer.prefixes.max_bytes:
            return groups
        weights = weights_state(self.scorer.model)
        looked_up = [self._look_up(group, weights) for group in groups]
        return sorted(looked_up, key=lambda group: group.prefix is None)

    def read(self, group: Group, max_frames: int | None = None) -> ReadGroup:
        """Tokenise the claims, decode and encode the evidence unless its prefix is known; reasons, no exceptions.

        Args:
            group: pairs that share evidence.
            max_frames: fewer of each video than the verifier looks at. Such a prefix is neither looked up nor kept.
        """
        if max_frames is not None:
            group = Group(group.places, group.pairs)
        failed: dict[int, str] = {}
        claims: dict[int, torch.Tensor] = {}
        for place, pair in zip(group.places, group.pairs, strict=True):
            try:
                claims[place] = self._claim_ids(pair)
            except ProofreelError as error:
                failed[place] = str(error)
        if not claims:
            return ReadGroup(None, (), failed)
        try:
            self.check_asked(group.pairs[0].evidence)
            evidence = group.prefix.evidence if group.prefix else self._encode(group.pairs[0].evidence, max_frames)
        except ProofreelError as error:
            return ReadGroup(None, (), failed | dict.fromkeys(claims, str(error)))
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            return ReadGroup(None, (), failed, group, tuple(claims))
        for place in list(claims):
            try:
                self.encoder.check_length(evidence, [claims[place]])
            except ModelInputError as error:
                failed[place] = str(error)
                del claims[place]
        segment = Segment(evidence, tuple(claims.values()), group.key, group.prefix) if claims else None
        return ReadGroup(segment, tuple(claims), failed, group)

    def check_asked(self, evidence: tuple[Evidence, ...]) -> None:
        """Refuse what the backbone cannot take in, and kinds of evidence that may not be asked about.

        Raises:
            ModelInputError: names the kinds, and how to ask all the same.
        """
        self.encoder.check_readable(evidence)
        foreign = [] if self.modalities is None else sorted({*evidence_kinds(evidence)} - {*self.modalities})
        if foreign:
            raise ModelInputError(
                f"evidence: this verifier was trained on {' and '.join(self.modalities or ())} only, got "
                f"{' and '.join(foreign)}; its calibration says nothing of that. Pass untrained_evidence=True to ask "
                "all the same"
            )

    def _look_up(self, group: Group, weights: Hashable) -> Group:
        try:
            key = prefix_key(group.pairs[0].evidence, self.media_root, weights)
        except MediaError:
            return group  # reading it will say why
        return Group(group.places, group.pairs, key, self.scorer.prefixes.get(key))

    def _claim_ids(self, pair: Pair) -> torch.Tensor:
        if problems := problems_of(pair):
            raise ModelInputError("; ".join(problems))
        return self.encoder.claim_ids(pair.claim, pair.context)

    def _encode(self, evidence: tuple[Evidence, ...], max_frames: int | None = None) -> EncodedEvidence:
        sampling = self.encoder.sampling
        if max_frames is not None:
            fewest = min(sampling.min_frames, max_frames)
            sampling = dataclasses.replace(sampling, min_frames=fewest, max_frames=max_frames)
        elif self.vision_features is not None:
            return self.encoder.evidence(evidence, self._features(self.vision_features, evidence))
        with self._borrowed_cache() as cache:
            media = read_media(evidence, sampling, self.media_root, cache)
        return self.encoded(evidence, media)

    def encoded(self, evidence: tuple[Evidence, ...], media: Media) -> EncodedEvidence:
        """Decoded evidence as this reader's scorer takes it; `ModelInputError` as `Encoder.evidence`."""
        encoded = self.encoder.evidence(evidence, media)
        return dataclasses.replace(encoded, vision=stage(encoded.vision, self.scorer.device, self.scorer.dtype))

    def _features(self, features: VisionFeatures, evidence: tuple[Evidence, ...]) -> MediaFeatures:
        with self._borrowed_cache() as cache:
            return features.obtain(evidence, self.scorer.model, frame_cache=cache, lock=self.scorer.lock)

    @contextmanager
    def _borrowed_cache(self) -> Iterator[FrameCache | None]:
        """The caller's frame cache, or, while another thread has it, a copy."""
        with self._lock:
            cache = self._idle.pop() if self._idle else copy.deepcopy(self._frame_cache)
        try:
            yield cache
        finally:
            with self._lock:
                self._idle.append(cache)
