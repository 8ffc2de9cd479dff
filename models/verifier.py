"""`Verifier`: load a verifier directory in one line, ask it claims about evidence.

    v = Verifier.from_pretrained("checkpoints/kitchen-verifier")
    v.score(["Ingredient is carrot."], VideoSegment("clip.mp4", 0.0, 2.0))

A failure is never a verdict: what cannot be read comes back with NaN and a reason.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from ..data_prep.errors import DirectoryError, ModelInputError, ProofreelError
from ..data_prep.frame_cache import FrameCache
from ..data_prep.rows import Evidence, Pair, evidence_key, problems_of
from .backbone import load_backbone, load_processor, resolve_base, vision_layout, weights_sha256
from .calibration import CALIBRATION_FILE, IDENTITY, Decision, read_decision
from .directory import VerifierConfig, fingerprint, read_directory
from .encoding import Encoder, Media, read_media
from .heads import NextToken
from .packing import collate, pack, to_device
from .prompt import LabelWords
from .verdict import margins


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
        words: LabelWords,
        claims_per_row: int,
        decision: Decision | None = None,
        media_root: str | Path | None = None,
        fingerprint: str = "",
        frame_cache: FrameCache | None = None,
    ) -> None:
        """Parts are taken as they are; `from_pretrained` checks them. `decision=None` is an uncalibrated draft."""
        self.model = model.eval()
        self.encoder, self.words, self.claims_per_row = encoder, words, claims_per_row
        self.decision, self.media_root, self.fingerprint = decision, media_root, fingerprint
        self.frame_cache = frame_cache

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
    ) -> Verifier:
        """Load a verifier directory.

        Args:
            directory: a local folder written by export (or a draft written by training).
            device: where to run; a GPU if there is one.
            base: where the base checkpoint lies, if not where the directory says.
            media_root: folder that relative paths in evidence start from.
            adapter: False leaves the trained adapter and its calibration out: the base's zero-shot verdicts.
            frame_cache: keeps decoded frames on disk, and gives decoders a deadline.

        Raises:
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
        calibrated = adapter and (directory / CALIBRATION_FILE).is_file()
        decision = read_decision(directory) if calibrated else None
        per_row, mark = config.claims_per_row, fingerprint(directory)
        return cls(model, encoder, words, per_row, decision, media_root, mark, frame_cache)

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
        groups: dict[str, list[int]] = {}
        for i, pair in enumerate(pairs):
            groups.setdefault(evidence_key(pair.evidence), []).append(i)
        verdicts: list[Verdict] = [_failed("not scored")] * len(pairs)
        for indices in groups.values():
            for i, verdict in zip(indices, self._score_group([pairs[i] for i in indices]), strict=True):
                verdicts[i] = verdict
            if progress is not None:
                progress(len(indices))
        return verdicts

    def score_media(
        self, claims: Iterable[tuple[str, str | None]], evidence: tuple[Evidence, ...], media: Media
    ) -> np.ndarray:
        """(K,) float32 margins of (claim, context) pairs on already decoded media; raises instead of returning NaN."""
        ids = [self.encoder.claim_ids(claim, context) for claim, context in claims]
        return self._margins(ids, evidence, media)

    def verdict(self, margin: float) -> Verdict:
        """Calibrate a margin and apply the default threshold."""
        if math.isnan(margin):
            return _failed("the network returned NaN; check dtype and weights")
        calibration = self.decision.calibration if self.decision else IDENTITY
        p = float(calibration.predict(np.float64(margin)))
        if self.decision is None:
            return Verdict(p, margin, None)
        return Verdict(p, margin, "supported" if self.decision.point().decide(p) else "not_supported")

    def _score_group(self, pairs: list[Pair]) -> list[Verdict]:
        """Verdicts of pairs that share evidence. A claim that cannot be encoded fails alone; the evidence fails all."""
        verdicts: dict[int, Verdict] = {}
        ids: dict[int, torch.Tensor] = {}
        for i, pair in enumerate(pairs):
            try:
                ids[i] = self._claim_ids(pair)
            except ProofreelError as error:
                verdicts[i] = _failed(str(error))
        try:
            if ids:
                media = read_media(pairs[0].evidence, self.encoder.sampling, self.media_root, self.frame_cache)
                found = self._margins(list(ids.values()), pairs[0].evidence, media)
                verdicts |= {i: self.verdict(float(m)) for i, m in zip(ids, found, strict=True)}
        except ProofreelError as error:
            verdicts |= {i: _failed(str(error)) for i in ids}
        return [verdicts[i] for i in range(len(pairs))]

    def _claim_ids(self, pair: Pair) -> torch.Tensor:
        if problems := problems_of(pair):
            raise ModelInputError("; ".join(problems))
        return self.encoder.claim_ids(pair.claim, pair.context)

    @torch.inference_mode()
    def _margins(self, ids: list[torch.Tensor], evidence: tuple[Evidence, ...], media: Media) -> np.ndarray:
        encoded = self.encoder.evidence(evidence, media)
        self.encoder.check_length(encoded, ids)
        device = next(self.model.parameters()).device
        found = []
        for i in range(0, len(ids), self.claims_per_row):
            batch = collate([pack(encoded, ids[i : i + self.claims_per_row])], self.encoder.pad_id)
            batch = to_device(batch, device)
            found.append(margins(self.model, batch, NextToken(self.words), self.encoder.layout)[0].cpu().numpy())
        return np.concatenate(found)


def load_weights(directory: Path, config: VerifierConfig, base: str | Path | None = None, adapter: bool = True) -> Any:
    """The network of a verifier directory: adapter over its checked base (or that base alone), or its full model."""
    dtype = getattr(torch, config.dtype)
    if config.weights == "full":
        if not adapter:
            raise DirectoryError(
                f"{directory}: holds a full model, got adapter=False; there is no adapter to leave out"
            )
        return load_backbone(directory / "model", dtype=dtype)
    from peft import PeftModel

    base_path = find_base(directory, config, base)
    model = load_backbone(base_path, dtype=dtype, quantization_config=_quantization(config))
    if not adapter:
        return model
    return PeftModel.from_pretrained(model, str(directory / "adapter"), autocast_adapter_dtype=False)


def find_base(directory: Path, config: VerifierConfig, base: str | Path | None = None) -> Path:
    """The base checkpoint's folder, refused unless its weights are those the adapter was trained on."""
    beside = directory / config.base.path
    path = Path(base) if base is not None else beside if beside.is_dir() else None
    if path is None:
        try:
            path = resolve_base(config.base.path, config.base.revision)
        except DirectoryError as error:
            raise DirectoryError(f"{directory}: its base model was not found; pass base=<folder>. {error}") from error
    if (found := weights_sha256(path)) != config.base.weights_sha256:
        raise DirectoryError(
            f"{path}: not the base this verifier was trained on, got weights {found[:12]} instead of "
            f"{config.base.weights_sha256[:12]}; pass base=<the right checkpoint>"
        )
    return path


def make_encoder(processor_path: str | Path, model_config: Any, config: VerifierConfig) -> Encoder:
    """The encoder a verifier configuration describes."""
    return Encoder(
        load_processor(processor_path),
        vision_layout(model_config),
        config.prompt,
        config.sampling,
        config.position_rule,
        config.max_tokens,
    )


def _quantization(config: VerifierConfig) -> Any:
    if config.quantization is None:
        return None
    from transformers import BitsAndBytesConfig

    return BitsAndBytesConfig(**config.quantization)


def _failed(reason: str) -> Verdict:
    return Verdict(math.nan, math.nan, None, reason)
