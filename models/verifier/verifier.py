"""`Verifier`: load a verifier directory in one line, ask it claims about evidence.

    v = Verifier.from_pretrained("checkpoints/kitchen-verifier")
    v.score(["Ingredient is carrot."], VideoSegment("clip.mp4", 0.0, 2.0))

A failure is never a verdict: what cannot be read comes back with NaN and a reason.
"""

from __future__ import annotations

import copy
import dataclasses
import logging
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from ...core import ConfigError, DirectoryError, Evidence, Frames, Pair, ProofreelError, VideoSegment
from ...data_prep.media import FrameCache
from ..decision import Judge, Verdict, prior_notes, ranked, with_prior
from ..directory import (
    UNRECORDED_EVIDENCE,
    Parts,
    Quantization,
    copy_directory,
    fingerprint,
    has_adapter_to_merge,
    load_parts,
    merged,
    push_to_hub,
)
from ..engine import BatchScorer, PrefixCache, PrefixScorer, Progress, Segment, SegmentReader, VisionFeatures
from ..inputs import Media, Windowing
from ..questions import as_claims, as_evidence, as_evidences, as_pairs, one_claim
from .attribution import Attributed, AttributionPairs, CitedClaim, Sources
from .compat import CrossEncoding, Entailment
from .evidence_sets import SetCalibration, SetRule, check_sets
from .golden import GOLDEN, recompute
from .localization import Localization, localize
from .long_video import Divider, check_aggregation, verdicts_in_parts, windowing_notes
from .verdicts import Ranking, Verdicts, verifier_html, verifier_text
from .vllm_engine import VllmNetwork, VllmReader, VllmScorer

BATCH_TOKENS = 4096
"""Most tokens of a batch of several segments: on a CPU, a long segment gains nothing from company."""


_log = logging.getLogger(__name__)

Engine = Literal["own", "vllm"]


@dataclass(frozen=True)
class ScoringOptions:
    """How a verifier scores; none of these changes what it was trained to say.

    Attributes:
        media_root: folder that relative paths in evidence start from.
        frame_cache: keeps decoded frames on disk, and gives decoders a deadline.
        vision_cache: folder that keeps what the vision tower makes of frames, in the verifier's own precision.
        prefix_cache_gib: memory for encoded evidence, so that the next claim about it is scored at once; 0 keeps none.
        batch_tokens: most tokens of several segments that are padded to one batch.
        untrained_evidence: judge kinds of evidence, too, that the verifier was not trained on.
        read_threads: segments that are decoded and encoded at once; None: one for each core, at least 2 and at most 16.
    """

    media_root: str | Path | None = None
    frame_cache: FrameCache | None = None
    vision_cache: str | Path | None = None
    prefix_cache_gib: float = 1.0
    batch_tokens: int = BATCH_TOKENS
    untrained_evidence: bool = False
    read_threads: int | None = None

    def __post_init__(self) -> None:
        """`ConfigError` for a batch that could hold nothing, or no thread to read."""
        if self.read_threads is not None and self.read_threads < 1:
            raise ConfigError(
                f"read_threads: must be at least 1, got {self.read_threads}; leave it out for the default"
            )
        if self.batch_tokens < 1:
            raise ConfigError(
                f"batch_tokens: must be at least 1, got {self.batch_tokens}; 1 scores segments one by one"
            )


class Verifier:
    """A loaded verifier. Make one with `from_pretrained`; ask it with `score` or `score_pairs`."""

    def __init__(self, parts: Parts, options: ScoringOptions = ScoringOptions()) -> None:
        """Parts are taken as they are; `from_pretrained` checks them."""
        self.model, self.encoder, self.head = parts.model.eval(), parts.encoder, parts.head
        self.claims_per_row, self.fingerprint = parts.claims_per_row, parts.fingerprint
        self.decision, self.windowing, self.notes = parts.decision, parts.windowing, tuple(parts.notes)
        self.modalities = None if parts.modalities is None else tuple(parts.modalities)
        self.directory = parts.directory
        self.media_root, self.batch_tokens = options.media_root, options.batch_tokens
        self.read_threads = options.read_threads
        self.prefixes = PrefixCache(options.prefix_cache_gib)
        self.scorer: Any
        if isinstance(self.model, VllmNetwork):
            self.scorer, reader = VllmScorer(self.model, threading.RLock(), parts.claims_per_row), VllmReader
        else:
            layout, pad_id = parts.encoder.layout, parts.encoder.pad_id
            self.scorer = PrefixScorer(self.model, parts.head, layout, pad_id, self.prefixes, parts.claims_per_row)
            reader = SegmentReader
        self.reader = reader(
            parts.encoder,
            self.scorer,
            options.media_root,
            options.frame_cache,
            _vision_features(parts, options),
            None if options.untrained_evidence else self.modalities,
        )

    @classmethod
    def from_pretrained(
        cls,
        path_or_hub_id: str | Path,
        *,
        device: str | torch.device | None = None,
        dtype: str | torch.dtype | None = None,
        quantization: Quantization = None,
        revision: str | None = None,
        base: str | Path | None = None,
        media_root: str | Path | None = None,
        adapter: bool = True,
        frame_cache: FrameCache | None = None,
        vision_cache: str | Path | None = None,
        prefix_cache_gib: float = 1.0,
        batch_tokens: int = BATCH_TOKENS,
        untrained_evidence: bool = False,
        read_threads: int | None = None,
        merge: bool = True,
        engine: Engine = "own",
        engine_options: dict[str, Any] | None = None,
    ) -> Verifier:
        """Load a verifier directory, after checking it (docs/verifier-directory.md).

        Args:
            path_or_hub_id: a folder written by export (or one that training wrote), or a hub id.
            device: where to run; a GPU if there is one.
            dtype: of the weights (float32, bfloat16, float16); None: as recorded. What another one changes of the
                calibrated function is said in `notes`; so with quantization.
            quantization: "nf4" quantises the base, False does not; None: as recorded.
            revision: commit, tag or branch of a hub id.
            base: where the base checkpoint lies, if not where the directory says.
            media_root: folder that relative paths in evidence start from.
            adapter: False leaves the trained adapter and its calibration out: the base's zero-shot verdicts.
            frame_cache: keeps decoded frames on disk, and gives decoders a deadline.
            vision_cache: folder that keeps what the vision tower makes of frames, in the verifier's own precision.
            prefix_cache_gib: memory for encoded evidence, so that the next question about it is answered at once; 0
                keeps none.
            batch_tokens: most tokens of several segments that are padded to one batch.
            untrained_evidence: judge kinds of evidence, too, that the verifier was not trained on.
            read_threads: segments that are decoded and encoded at once; None: one for each core of this process, at
                least 2 and at most 16. Twice as many wait, decoded, for the network.
            merge: put the adapter into the weights, which saves its layers' time, where these are not quantised and the
                golden margins then stay within tolerance; False keeps it apart.
            engine: "vllm" has vLLM compute the margins (docs/interchange.md), of a merged next-token verifier whose
                golden margins it then gives within tolerance.
            engine_options: further arguments of `vllm.LLM`.

        Raises:
            ConfigError: an argument that is out of range, or that this engine cannot follow.
            DirectoryError: damaged, foreign or hostile files, other packages, another base than the one trained on,
                another tokenizer.
            CalibrationError: a calibration fitted on margins that this verifier does not make.
        """
        options = ScoringOptions(
            media_root, frame_cache, vision_cache, prefix_cache_gib, batch_tokens, untrained_evidence, read_threads
        )
        how: dict[str, Any] = {"revision": revision, "device": device, "dtype": dtype, "quantization": quantization}
        if engine == "vllm":
            if base is not None or not adapter:
                raise ConfigError('engine: "vllm" runs whole models, got a base or adapter=False; leave them out')
            return cls._of_vllm(path_or_hub_id, how, options, engine_options)
        if engine != "own" or engine_options is not None:
            raise ConfigError(f'engine: must be "own", without options, or "vllm", got {engine!r}; leave it out')
        parts = load_parts(path_or_hub_id, **how, base=base, adapter=adapter)
        check_aggregation(parts.decision, parts.windowing, Path(path_or_hub_id))
        if merge and has_adapter_to_merge(parts.model) and parts.directory and (parts.directory / GOLDEN).is_file():
            parts = dataclasses.replace(parts, model=merged(parts.model, parts.model.dtype, path_or_hub_id))
            if (why := _golden_differ(cls(parts))) is not None:
                _log.warning("%s: its adapter stays apart: merged, %s", path_or_hub_id, why)
                parts = load_parts(path_or_hub_id, **how, base=base, adapter=adapter)
        return cls(parts, options)

    @classmethod
    def _of_vllm(
        cls, path: str | Path, how: dict[str, Any], options: ScoringOptions, engine_options: dict[str, Any] | None
    ) -> Verifier:
        """A verifier whose margins vLLM computes, refused where its golden margins are others."""
        if options.vision_cache is not None:
            raise ConfigError('vision_cache: belongs to our own engine, got engine="vllm"; leave it out')
        parts = load_parts(path, **how, network=lambda folder, config: VllmNetwork(folder, config, engine_options))
        check_aggregation(parts.decision, parts.windowing, Path(path))
        verifier = cls(parts, options)
        if (why := _golden_differ(verifier)) is not None:
            raise DirectoryError(f"{path}: vLLM does not give its margins, {why}; use the default engine")
        verifier.notes = (*verifier.notes, "margins are computed by vLLM")
        return verifier

    def __repr__(self) -> str:
        return verifier_text(self)

    def _repr_html_(self) -> str | None:
        return verifier_html(self)

    @property
    def device(self) -> torch.device:
        """Where it runs; of vLLM, where what it is given lies."""
        return self.scorer.device

    def to(self, device: str | int | torch.device) -> Verifier:
        """The same verifier, moved to a device; those that share its weights, such as `with_prior`'s, move along.

        The precision stays: `from_pretrained(..., dtype=...)` sets it, and notes what it changes.

        Raises:
            ConfigError: a device that is not here or has too little memory; the verifier stays where it is.
        """
        if isinstance(device, torch.dtype):
            raise ConfigError(f"to: moves to a device, got {device}; load it anew with from_pretrained(dtype=...)")
        with self.scorer.lock:
            before = self.device
            self.prefixes.clear()
            try:
                self.model.to(device)
            except (RuntimeError, AssertionError) as error:  # no such device here, or too little memory on it
                self.model.to(before)
                raise ConfigError(f"to: cannot move to {device}, got {error}; it stays on {before}") from error
        return self

    def save_pretrained(self, directory: str | Path) -> Path:
        """Write the directory that it was loaded from, byte for byte; what was set since is not part of it.

        Raises:
            DirectoryError: something lies there, or this verifier was not loaded from a directory.
        """
        return copy_directory(self._source(), Path(directory), self.fingerprint)

    def push_to_hub(
        self, repo_id: str, *, private: bool | None = None, revision: str | None = None, api: Any = None
    ) -> str:
        """Upload the directory that it was loaded from, and say where it lies.

        Args:
            repo_id: owner/name; made if need be.
            private: of a repository that is made now; None: as the settings of its owner say.
            revision: branch to upload to, made if need be; None: the main one.
            api: a `huggingface_hub.HfApi`; made with the login of this machine where None.

        Raises:
            DirectoryError: a damaged directory, an uncalibrated one, or none at all.
        """
        return push_to_hub(self._source(), repo_id, private, revision, api)

    def score(
        self,
        claims: str | Iterable[str],
        evidence: Any,
        contexts: str | Sequence[str | None] | None = None,
        *,
        prior: float | None = None,
        operating_point: str | None = None,
        shrink_frames: bool = False,
    ) -> Verdicts[Verdict]:
        """Judge K claims against one evidence, which is encoded once.

        Args:
            claims: a sentence, or several.
            evidence: a file, a span of one, a text, an image, an `Evidence`, or several judged together: what may be
                held is listed in docs/asking.md.
            contexts: the passage each claim was taken from, or one for all, where the verifier was trained with it.
            prior, operating_point, shrink_frames: as for `score_pairs`.

        Returns:
            One verdict per claim, in order.

        Raises:
            ModelInputError: claims or evidence that are none.
            CalibrationError: a prior or operating point that this verifier cannot be asked for.
        """
        judged = as_evidence(evidence, self.media_root)
        pairs = [Pair(str(i), c, judged, context=x) for i, (c, x) in enumerate(as_claims(claims, contexts))]
        return self._with(prior)._ask(pairs, operating_point, False, None, shrink_frames)

    def score_pairs(
        self,
        pairs: Any,
        progress: Progress = None,
        *,
        prior: float | None = None,
        operating_point: str | None = None,
        shrink_frames: bool = False,
    ) -> Verdicts[Verdict]:
        """Judge any mix of pairs; rows that share evidence are answered in one pass. Order is kept.

        Args:
            pairs: `Pair`s, (claim, evidence) tuples, rows, a table or a file of claims; docs/asking.md lists what may
                be held. Labels are not looked at. Modality, role or origin are, where the calibration was corrected by
                them.
            progress: True for a bar on stderr, or a function called with the number of claims done since the last call.
            prior: the share of supported claims where the answers are used; corrects p_supported (see `with_prior`).
            operating_point: name of the threshold that labels; the shipped default.
            shrink_frames: where memory runs out even for one claim, judge the evidence on fewer frames; the verdict's
                note says so. Otherwise such a claim fails.

        Raises:
            ModelInputError: what is no pair, and where it stands.
            CalibrationError: a prior or operating point that this verifier cannot be asked for.
        """
        held = as_pairs(pairs, self.media_root, one_each=True)
        return self._with(prior)._ask(held, operating_point, True, progress, shrink_frames)

    def rank(
        self,
        claim: str,
        evidences: Any,
        *,
        context: str | None = None,
        top_k: int | None = None,
        progress: Progress = None,
        prior: float | None = None,
        operating_point: str | None = None,
    ) -> Ranking:
        """Evidences by how probably each supports the claim; failures last, with their reasons.

        Args:
            claim: one sentence.
            evidences: each judged by itself; of a table, each row.
            context: as for `score`.
            top_k: how many to give back; all.
            progress, prior, operating_point: as for `score_pairs`.
        """
        sentence, held = one_claim(claim), as_evidences(evidences, self.media_root)
        pairs = [Pair(str(i), sentence, e, context=context) for i, e in enumerate(held)]
        verdicts = self._with(prior)._ask(pairs, operating_point, False, progress)
        return Ranking(ranked(held, verdicts)[:top_k], sentence, self.media_root)

    def attribute(self, claim: str, citations: Any, sources: Sources, **options: Any) -> Attributed:
        """Whether what a claim cites supports it, together and each alone; see `CitedClaim` and `attribute_many`."""
        return self.attribute_many([CitedClaim(claim, citations, sources)], **options)[0]

    def attribute_many(
        self,
        claims: Sequence[CitedClaim],
        progress: Progress = None,
        *,
        prior: float | None = None,
        operating_point: str | None = None,
        sets: SetRule = "largest",
        set_calibration: SetCalibration | None = None,
    ) -> list[Attributed]:
        """Attribution of each claim, in order; evidence that they share is encoded once.

        Args:
            claims: with what each cites.
            progress, prior, operating_point: as for `score_pairs`.
            sets: how several citations are judged together: "largest", as sure as the surest of them or of all in one
                prompt, so that irrelevant company does not refute; "pieces", as sure as the surest, without the prompt;
                "one_prompt", all at once.
            set_calibration: of the probability of several citations by the surest, from `eval.calibration.fit_sets`.
        """
        check_sets(sets, set_calibration, prior)
        cited = AttributionPairs(claims, self.reader, sets)
        verdicts = self._with(prior)._ask(cited.pairs, operating_point, False, progress)
        return cited.attributions(verdicts, set_calibration)

    def localize(self, claim: str, video: VideoSegment | Frames | str | Path, **options: Any) -> Localization:
        """The intervals of a video in which a claim holds; options, and many claims: `localize`."""
        return localize(self, [claim], video, **options)[0]

    def supports(self, evidence: Any) -> bool:
        """Whether this verifier may be asked about evidence of these kinds; no video or image is opened."""
        try:
            self.reader.check_asked(as_evidence(evidence, self.media_root))
        except ProofreelError:
            return False
        return True

    def with_prior(self, prior: float | None) -> Verifier:
        """The same verifier for a place where another share of claims is supported; None goes back to the fit's.

        Weights, caches and lock are shared. Holds where only that share differs (see `Calibration.with_prior`).
        Thresholds are chosen again for that share. `notes` records it, and what does not hold there.

        Raises:
            CalibrationError: an uncalibrated verifier, or a share outside (0, 1).
        """
        other = copy.copy(self)
        other.decision = with_prior(self.decision, prior)
        other.notes = prior_notes(self.notes, other.decision)
        return other

    def with_windowing(self, windowing: Windowing | str | None) -> Verifier:
        """The same verifier with long videos judged in windows, such as "max:8:4" (see `Windowing`); None: whole.

        `notes` say so where the calibration was fitted on margins made otherwise. `ConfigError`: no such windowing.
        """
        other = copy.copy(self)
        other.windowing = Windowing.parse(windowing) if isinstance(windowing, str) else windowing
        other.notes = windowing_notes(self.notes, self.decision, other.windowing)
        return other

    def as_entailment(self, threshold: float | str | None = None, **policy: Any) -> Entailment:
        """This verifier as the judge that MiRAGE's and MuRGAt's code call; `policy` is what `Entailment` takes."""
        return Entailment(self, threshold, **policy)

    def as_cross_encoder(self) -> CrossEncoding:
        """This verifier with the methods of a sentence-transformers CrossEncoder; see `CrossEncoding`."""
        return CrossEncoding(self)

    def predict(self, pairs: Any, **options: Any) -> Any:
        """P(supported) of each pair as one array, NaN for failures; options are those of `CrossEncoding.predict`."""
        return CrossEncoding(self).predict(pairs, **options)

    def score_media(
        self, claims: Iterable[tuple[str, str | None]], evidence: tuple[Evidence, ...], media: Media
    ) -> np.ndarray:
        """(K,) float32 margins of (claim, context) pairs on already decoded media; raises instead of returning NaN."""
        pairs = [self.encoder.prompt.bound(Pair("", claim, evidence, context=context)) for claim, context in claims]
        by_prefix: dict[tuple[Evidence, ...], list[Pair]] = {}
        for pair in pairs:
            by_prefix.setdefault(pair.evidence, []).append(pair)
        margins = {}
        for shown, group in by_prefix.items():
            encoded = self.reader.encoded(shown, media)
            ids = tuple(self.encoder.claim_ids(pair.claim, pair.context) for pair in group)
            self.encoder.check_length(encoded, ids)
            margins |= {id(p): m for p, m in zip(group, self.scorer.score([Segment(encoded, ids)])[0], strict=True)}
        return np.array([margins[id(pair)] for pair in pairs], dtype=np.float32)

    def verdict(self, margin: float, operating_point: str | None = None) -> Verdict:
        """Calibrate a margin, apply an operating point (the default one) and the abstain band."""
        return Judge(self.decision, operating_point).verdict(margin)

    def _source(self) -> Path:
        if self.directory is None:
            raise DirectoryError("verifier: was not loaded from a directory, got its parts; export its training run")
        if fingerprint(self.directory) != self.fingerprint:
            raise DirectoryError(f"{self.directory}: changed since it was loaded, got other files; load it again")
        return self.directory

    def _with(self, prior: float | None) -> Verifier:
        return self if prior is None else self.with_prior(prior)

    def _ask(
        self,
        pairs: Sequence[Pair],
        operating_point: str | None,
        keyed: bool,
        progress: Progress = None,
        shrink_frames: bool = False,
    ) -> Verdicts[Verdict]:
        self.scorer.check()
        scorer = BatchScorer(self.scorer, self.reader, self.batch_tokens, shrink_frames, self.read_threads)
        judge = Judge(self.decision, operating_point)
        if self.windowing is None:
            verdicts = scorer.verdicts(pairs, judge, keyed, progress)
        else:
            verdicts = verdicts_in_parts(pairs, Divider(self.windowing, self.reader), scorer, judge, keyed, progress)
        if UNRECORDED_EVIDENCE in self.notes:
            both = [(verdict, (verdict.note, UNRECORDED_EVIDENCE)) for verdict in verdicts]
            verdicts = [dataclasses.replace(verdict, note="; ".join(filter(None, notes))) for verdict, notes in both]
        return Verdicts(verdicts, pairs, self.media_root)


def _vision_features(parts: Parts, options: ScoringOptions) -> VisionFeatures | None:
    """The cache of what the vision tower makes of frames; None without its folder."""
    if options.vision_cache is None:
        return None
    parts.model.requires_grad_(False)  # a full model is loaded as one that could still be trained
    exact = next(parts.model.parameters()).dtype == torch.float32
    return VisionFeatures(
        options.vision_cache,
        parts.model,
        parts.encoder,
        media_root=options.media_root,
        frame_cache=options.frame_cache,
        dtype="float32" if exact else "bfloat16",
    )


def _golden_differ(verifier: Verifier) -> str | None:
    """How golden margins differ from those stored; None where all are within tolerance."""
    try:
        golden = recompute(str(verifier.directory), verifier.score_media, str(verifier.model.dtype)[len("torch.") :])
    except DirectoryError as error:
        return str(error)
    if golden.within:
        return None
    return f"a golden margin differs by {golden.max_difference:.2g} of at most {golden.allowed:.2g}"
