"""A model that was never trained to verify, asked by a prompt: behind an endpoint, or a checkpoint on this machine.

    judge, about = open_zero_shot(load_config(ZeroShotConfig, "configs/teacher_72b_nf4.yaml"))
    verdicts = judge.score_pairs(pairs)

Its margins are those of its own yes and no, uncalibrated: a teacher to be calibrated on gold labels first.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch

from ...core import ConfigError, Prompt, named_prompt, require
from ...data_prep.language import LanguageModel, LanguageModelConfig, normal_word
from ...data_prep.media import FrameCache, FrameSampling
from ..backbones import load_backbone, load_processor, resolve_base, vision_layout, weights_sha256
from ..directory import Dtype, Parts
from ..engine import NextToken
from ..inputs import TIME_RULES, Encoder, LabelWords, PositionRule
from ..verifier import BATCH_TOKENS, ScoringOptions, Verifier
from .endpoint import HostedVerifier, hash_of


@dataclass(frozen=True)
class LocalModel:
    """A checkpoint to be asked as it is.

    Attributes:
        path: a folder, or a hub id.
        revision: commit, tag or branch of a hub id.
        dtype: of the weights, and what quantised ones compute in.
        quantization: nf4 stores the linear layers of the language model in 4 bits; null does not.
        max_tokens: of evidence and one claim; what is longer fails its row.
        position_rule: as of a verifier (docs/positions.md).
        claims_per_row: most claims that follow one prefix in one forward.
    """

    path: str
    revision: str | None = None
    dtype: Dtype = "bfloat16"
    quantization: Literal["nf4"] | None = None
    max_tokens: int = 8192
    position_rule: PositionRule = "published"
    claims_per_row: int = 32

    def __post_init__(self) -> None:
        """Refuse numbers that cannot work."""
        for name in ("max_tokens", "claims_per_row"):
            if (value := getattr(self, name)) < 1:
                raise ConfigError(f"model.{name}: must be at least 1, got {value}; fix the number")


@dataclass(frozen=True)
class ZeroShotConfig:
    """Who is asked, and how: a prompt, what is seen of a video, and either an endpoint or a model.

    `named_prompt` stands for a whole `prompt` (`NAMED_PROMPTS`), `instruction` for what a reranker is asked.

    Raises:
        ConfigError: both or neither, words that do not distinguish an endpoint's answers, or an endpoint that is asked
            to go on with an answer.
    """

    endpoint: LanguageModelConfig | None = None
    model: LocalModel | None = None
    prompt: Prompt = field(default_factory=Prompt)
    sampling: FrameSampling = field(default_factory=FrameSampling)
    named_prompt: str = "proofreel"
    instruction: str | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be asked, before anything is loaded or paid."""
        named = named_prompt(self.named_prompt, self.instruction)
        if self.named_prompt != "proofreel" and self.prompt not in (Prompt(), named):
            raise ConfigError(
                f"zero-shot: give `prompt` or `named_prompt`, got both with {self.named_prompt!r}; leave one out"
            )
        if self.named_prompt != "proofreel":
            object.__setattr__(self, "prompt", named)
        if self.endpoint is not None and self.prompt.one_turn:
            raise ConfigError(
                "prompt: an endpoint is asked in turns of its own, got a prompt with an opening; ask a local model"
            )
        if (self.endpoint is None) == (self.model is None):
            got = "neither" if self.model is None else "both"
            raise ConfigError(f"zero-shot: give `endpoint` or `model`, got {got}; one of them is asked")
        if self.endpoint is None:
            return
        words = [self.prompt.supported_word, self.prompt.refuted_word]
        if len({normal_word(word) for word in words} - {""}) < 2:
            raise ConfigError(f"prompt: its words must differ in more than case and space, got {words}; choose others")
        if self.prompt.response_prefix:
            raise ConfigError(
                "prompt.response_prefix: an endpoint begins its answers itself, got "
                f"{self.prompt.response_prefix!r}; leave it empty, or ask a local model"
            )


def open_zero_shot(
    config: ZeroShotConfig,
    *,
    device: str | torch.device | None = None,
    media_root: str | Path | None = None,
    frame_cache: FrameCache | None = None,
    vision_cache: str | Path | None = None,
    batch_tokens: int = BATCH_TOKENS,
) -> tuple[Verifier | HostedVerifier, dict[str, Any]]:
    """Who answers, ready to be asked, and what a predictions file should say of the model: name and revision.

    Args:
        config: who, and how.
        device: of a local model; a GPU if there is one.
        media_root, frame_cache, vision_cache, batch_tokens: as for `Verifier.from_pretrained`; an endpoint needs only
            the first two.

    Raises:
        ConfigError: no key for the endpoint, or a vision cache for it.
        DirectoryError: no such checkpoint, or one that cannot be loaded.
        ModelInputError: a word of the prompt is not one token of the checkpoint's.
    """
    if config.endpoint is None:
        return _local(config, device, media_root, frame_cache, vision_cache, batch_tokens)
    if vision_cache is not None:
        raise ConfigError(f"vision cache: an endpoint's own is out of reach, got {vision_cache}; leave it out")
    hosted = HostedVerifier(LanguageModel(config.endpoint), config.prompt, config.sampling, media_root, frame_cache)
    return hosted, {"name": config.endpoint.model, "revision": None}


def _local(
    config: ZeroShotConfig,
    device: str | torch.device | None,
    media_root: str | Path | None,
    frame_cache: FrameCache | None,
    vision_cache: str | Path | None,
    batch_tokens: int,
) -> tuple[Verifier, dict[str, Any]]:
    local = config.model
    assert local is not None
    base = _base_of(local)
    # Before the weights, which take minutes: a word that is no token.
    processor = load_processor(base)
    words = LabelWords.of(config.prompt, processor.tokenizer)
    model = _weights_of(local, base, torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu")))
    layout = vision_layout(model.config)
    encoder = Encoder(processor, layout, config.prompt, config.sampling, local.position_rule, local.max_tokens)
    name = base.resolve().name if Path(local.path).is_dir() else local.path
    revision = None if Path(local.path).is_dir() else base.name
    parts = Parts(
        model,
        encoder,
        NextToken(words),
        local.claims_per_row,
        fingerprint=_fingerprint(config, local, base),
        notes=(f"zero-shot, never trained to verify: {name}",),
    )
    # Without a prefix cache: all claims about a segment are scored together, and none later.
    verifier = Verifier(parts, ScoringOptions(media_root, frame_cache, vision_cache, 0.0, batch_tokens))
    return verifier, {"name": name, "revision": revision}


def _base_of(local: LocalModel) -> Path:
    if Path(local.path).is_dir() and local.revision is not None:
        raise ConfigError(f"model.revision: a folder has no revisions, got {local.revision!r}; leave it out")
    return resolve_base(local.path, local.revision)


def _weights_of(local: LocalModel, base: Path, device: torch.device) -> Any:
    dtype = getattr(torch, local.dtype)
    if local.quantization is None:
        return load_backbone(base, dtype=dtype).to(device).requires_grad_(False)
    require("model.quantization", "bitsandbytes")
    from transformers import BitsAndBytesConfig

    quantised = BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type=local.quantization,
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=dtype,
    )
    # Quantised weights cannot be moved later on.
    model = load_backbone(base, dtype=dtype, quantization_config=quantised, device_map={"": str(device)})
    return model.requires_grad_(False)


def _fingerprint(config: ZeroShotConfig, local: LocalModel, base: Path) -> str:
    """Hash of all that a margin depends on; of the checkpoint what is in it, not where it lies."""
    of_model = {name: getattr(local, name) for name in ("dtype", "quantization", "max_tokens", "position_rule")}
    inputs = {"prompt": config.prompt.sha256, "sampling": config.sampling.as_recorded()}
    inputs["time_rule"] = TIME_RULES[0]
    return hash_of({"weights_sha256": weights_sha256(base)} | of_model | inputs)
