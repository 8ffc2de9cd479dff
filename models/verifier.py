"""`Verifier`: load a verifier directory in one line, ask it claims about evidence.

    v = Verifier.from_pretrained("checkpoints/kitchen-verifier")
    v.score(["Ingredient is carrot."], VideoSegment("clip.mp4", 0.0, 2.0))

A failure is never a verdict: what cannot be read comes back with NaN and a reason.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from ..data_prep.errors import ConfigError, DirectoryError, ProofreelError
from ..data_prep.frame_cache import FrameCache
from ..data_prep.rows import Evidence, Pair
from .calibration import CALIBRATION_FILE, IDENTITY
from .decisions import Decision, read_decision
from .directory import fingerprint, read_directory
from .encoding import Encoder, Media
from .heads import Readout
from .loading import load_weights, make_encoder, readout_of
from .prefixes import PrefixCache
from .prompt import LabelWords
from .scheduling import batch_by_length, read_ahead
from .scoring import PrefixScorer, Segment
from .segments import Group, Reading, SegmentReader
from .vision_features import VisionFeatures

BATCH_TOKENS = 4096
"""Most tokens of a batch of several segments: on a CPU, a long segment gains nothing from company."""


@dataclass(frozen=True)
class Verdict:
    """What a verifier says of one claim.

    Attributes:
        p_supported: calibrated probability; of an uncalibrated draft, the plain sigmoid of the margin. NaN on failure.
        margin: log-odds of supported before calibration, float32. NaN on failure.
        label: by the shipped threshold; None on failure and for a draft without thresholds.
        error: why there is no verdict, else None.
    """

    p_supported: float
    margin: float
    label: Literal["supported", "not_supported"] | None
    error: str | None = None


class Verifier:
    """A loaded verifier. Make one with `from_pretrained`; ask it with `score` or `score_pairs`."""

    def __init__(
        self,
        model: torch.nn.Module,
        encoder: Encoder,
        readout: Readout,
        claims_per_row: int,
        decision: Decision | None = None,
        media_root: str | Path | None = None,
        fingerprint: str = "",
        frame_cache: FrameCache | None = None,
        *,
        vision_features: VisionFeatures | None = None,
        prefix_cache_gib: float = 1.0,
        batch_tokens: int = BATCH_TOKENS,
    ) -> None:
        """Parts are taken as they are; `from_pretrained` checks them. `decision=None` is an uncalibrated draft."""
        if batch_tokens < 1:
            raise ConfigError(f"batch_tokens: must be at least 1, got {batch_tokens}; 1 scores segments one by one")
        self.model, self.prefixes = model.eval(), PrefixCache(prefix_cache_gib)
        self.encoder, self.readout, self.claims_per_row = encoder, readout, claims_per_row
        self.decision, self.media_root, self.fingerprint = decision, media_root, fingerprint
        self.batch_tokens = batch_tokens
        self.scorer = PrefixScorer(model, readout, encoder.layout, encoder.pad_id, self.prefixes, claims_per_row)
        self.reader = SegmentReader(encoder, self.scorer, media_root, frame_cache, vision_features)

    @classmethod
    def from_pretrained(
        cls,
        directory: str | Path,
        *,
        device: str | torch.device | None = None,
        base: str | Path | None = None,
        media_root: str | Path | None = None,
        adapter: bool = True,
        frame_cache: FrameCache | None = None,
        vision_cache: str | Path | None = None,
        prefix_cache_gib: float = 1.0,
        batch_tokens: int = BATCH_TOKENS,
    ) -> Verifier:
        """Load a verifier directory.

        Args:
            directory: a local folder written by export (or a draft written by training).
            device: where to run; a GPU if there is one.
            base: where the base checkpoint lies, if not where the directory says.
            media_root: folder that relative paths in evidence start from.
            adapter: False leaves the trained adapter and its calibration out: the base's zero-shot verdicts.
            frame_cache: keeps decoded frames on disk, and gives decoders a deadline.
            vision_cache: folder that keeps what the vision tower makes of frames, in the verifier's own precision.
            prefix_cache_gib: memory for encoded evidence, so that the next question about it is answered at once; 0
                keeps none.
            batch_tokens: most tokens of several segments that are padded to one batch.

        Raises:
            ConfigError: a limit that is out of range.
            DirectoryError: damaged or foreign files, another base than the one trained on, another tokenizer.
        """
        directory = Path(directory)
        config = read_directory(directory)
        model = load_weights(directory, config, base, adapter)
        device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        if config.quantization is None:
            model = model.to(device)
        encoder = make_encoder(directory / "processor", model.config, config)
        words = LabelWords.of(config.prompt, encoder.tokenizer)
        if (words.supported_id, words.refuted_id) != (config.supported_id, config.refuted_id):
            raise DirectoryError(
                f"{directory}: label words tokenise to {words}, recorded were {config.supported_id} and "
                f"{config.refuted_id}; the tokenizer is not the one this verifier was trained with"
            )
        features = None
        if vision_cache is not None:
            model.requires_grad_(False)  # a full model is loaded as one that could still be trained
            kept_as = "float32" if config.dtype == "float32" else "bfloat16"
            features = VisionFeatures(
                vision_cache, model, encoder, media_root=media_root, frame_cache=frame_cache, dtype=kept_as
            )
        return cls(
            model,
            encoder,
            readout_of(config),
            config.claims_per_row,
            read_decision(directory) if adapter and (directory / CALIBRATION_FILE).is_file() else None,
            media_root,
            fingerprint(directory),
            frame_cache,
            vision_features=features,
            prefix_cache_gib=prefix_cache_gib,
            batch_tokens=batch_tokens,
        )

    def score(
        self,
        claims: Sequence[str],
        evidence: Evidence | tuple[Evidence, ...],
        contexts: Sequence[str | None] | None = None,
    ) -> list[Verdict]:
        """Judge K claims against one evidence, which is encoded once.

        Args:
            claims: one sentence each.
            evidence: a segment, transcript, image or passage, or a tuple of them judged together.
            contexts: the passage each claim was taken from, where the verifier was trained with it.

        Returns:
            One verdict per claim, in order.
        """
        evidence = evidence if isinstance(evidence, tuple) else (evidence,)
        if isinstance(claims, str):
            raise TypeError(f"claims: must be a list of sentences, got the string {claims!r}; wrap it in a list")
        contexts = [None] * len(claims) if contexts is None else contexts
        pairs = [
            Pair(id=str(i), claim=c, evidence=evidence, context=x)
            for i, (c, x) in enumerate(zip(claims, contexts, strict=True))
        ]
        return self.score_pairs(pairs)

    def score_pairs(self, pairs: Sequence[Pair], progress: Callable[[int], Any] | None = None) -> list[Verdict]:
        """Judge any mix of pairs; rows that share evidence are answered in one pass. Order is kept.

        Args:
            pairs: labels are not looked at.
            progress: called with the number of claims done since the last call.
        """
        self.scorer.check()
        verdicts = [_failed("not scored")] * len(pairs)
        with closing(self._readings(self.reader.group(pairs))) as readings:
            for batch in batch_by_length(readings, _lengths, self.batch_tokens):
                for place, verdict in self._answer(batch):
                    verdicts[place] = verdict
                if progress is not None:
                    progress(sum(len(r.asked) + len(r.failed) for r in batch))
        return verdicts

    def score_media(
        self, claims: Iterable[tuple[str, str | None]], evidence: tuple[Evidence, ...], media: Media
    ) -> np.ndarray:
        """(K,) float32 margins of (claim, context) pairs on already decoded media; raises instead of returning NaN."""
        encoded = self.encoder.evidence(evidence, media)
        ids = tuple(self.encoder.claim_ids(claim, context) for claim, context in claims)
        self.encoder.check_length(encoded, ids)
        return self.scorer.score([Segment(encoded, ids)])[0]

    def verdict(self, margin: float) -> Verdict:
        """Calibrate a margin and apply the default threshold."""
        if math.isnan(margin):
            return _failed("the network returned NaN; check dtype and weights")
        calibration = self.decision.calibration if self.decision else IDENTITY
        p = float(calibration.predict(np.float64(margin)))
        if self.decision is None:
            return Verdict(p, margin, None)
        return Verdict(p, margin, "supported" if self.decision.point().decide(p) else "not_supported")

    def _readings(self, groups: list[Group]) -> Generator[Reading]:
        """Each group read, in order: those of a call with several in threads, ahead of the network."""
        if len(groups) < 2:
            yield from map(self.reader.read, groups)
            return
        with closing(read_ahead(self.reader.read, groups)) as readings:
            yield from readings

    def _answer(self, batch: Sequence[Reading]) -> Iterator[tuple[int, Verdict]]:
        """(place, verdict) of every pair of a batch. What the network is not given fails its own segment only."""
        for reading in batch:
            yield from ((place, _failed(reason)) for place, reason in reading.failed.items())
        segments = [r.segment for r in batch if r.segment is not None]
        asked = [r.asked for r in batch if r.segment is not None]
        try:
            found = self.scorer.score(segments) if segments else []
        except ProofreelError as error:
            if len(segments) == 1:
                yield from ((place, _failed(str(error))) for place in asked[0])
            else:
                for segment, places in zip(segments, asked, strict=True):
                    yield from self._answer([Reading(segment, places, {})])
            return
        for places, margins_K in zip(asked, found, strict=True):
            yield from ((p, self.verdict(float(m))) for p, m in zip(places, margins_K, strict=True))


def _failed(reason: str) -> Verdict:
    return Verdict(math.nan, math.nan, None, reason)


def _lengths(reading: Reading) -> tuple[int, int] | None:
    """What decides on a segment's company; None for one that has none: nothing to ask, or a prefix of its own."""
    return None if reading.segment is None or reading.segment.prefix else reading.segment.lengths
