"""vLLM in the place of our own network: the same encoder, calibration and verdicts, its engine for the margins.

    verifier = Verifier.from_pretrained(directory, engine="vllm")

What goes to vLLM are the token ids of evidence and claim in our order, so that its prefix cache shares the evidence,
and frames of their final size. What comes back are the log-probabilities of the two verdict words, whose difference is
the margin. Three things are checked: that vLLM reads the very tokens that our encoder writes (every answer), that it
places a video's frames where the verifier was trained to see them (every video), and the golden margins (once, at the
start).

Apart from verifier.py because nothing else may depend on vLLM, which is not installed with the package.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image as PILImage

from ...core import ConfigError, DirectoryError, Evidence, ModelInputError, optional_package
from ...data_prep.media import Frames
from ..backbones import read_config
from ..directory import VerifierConfig
from ..engine import PrefixCache, Segment, SegmentReader
from ..inputs import EncodedEvidence, Encoder, LabelWords, Media, temporal_positions

FAMILIES = ("qwen2_5_vl", "qwen2", "llama", "qwen3")
"""Model types whose positions vLLM computes as we do, from its sources; which were tried is in docs/interchange.md."""

MOST_SHOWN = {"video": 4, "image": 8}
"""Videos and images of one evidence; `engine_options` may set `limit_mm_per_prompt` otherwise."""

_NUDGE = 2e-6  # seconds are sent as 32-bit numbers, and positions are cut, not rounded: this keeps 3.9999999 a 4


@dataclass(frozen=True)
class ServedEvidence(EncodedEvidence):
    """A prefix as vLLM takes it.

    Attributes:
        prompt_ids: token ids with one placeholder for each video and image.
        shown: `multi_modal_data` of a request.
        names: `multi_modal_uuids`: what is shown is hashed once, not once a claim.
    """

    prompt_ids: tuple[int, ...] = ()
    shown: dict[str, Any] | None = None
    names: dict[str, list[str]] | None = None


class VllmNetwork:
    """A `vllm.LLM` over a verifier's whole model, where `Verifier` holds its network."""

    training = False

    def __init__(self, directory: Path, config: VerifierConfig, options: dict[str, Any] | None = None) -> None:
        """Start the engine.

        Args:
            directory: of the verifier.
            config: as it is to run.
            options: further arguments of `vllm.LLM`.

        Raises:
            ConfigError: vLLM is not installed, or refuses an option.
            DirectoryError: a verifier that it cannot run: an adapter, a head, another family or position rule.
        """
        self.config = check_served(directory, config)
        vllm = optional_package("vllm", 'engine="vllm"')
        self.words = LabelWords(config.supported_id, config.refuted_id)
        text = self.config.get_text_config()
        given: dict[str, Any] = {
            "dtype": config.dtype,
            "max_model_len": min(config.max_tokens + 1, text.max_position_embeddings),  # and the verdict
            "enable_prefix_caching": True,
            "logprobs_mode": "processed_logprobs",
            "max_logprobs": 2,
        }
        if hasattr(self.config, "vision_config"):
            given["limit_mm_per_prompt"] = MOST_SHOWN
        try:
            self.llm = vllm.LLM(model=str(directory / "model"), **(given | (options or {})))
        except (TypeError, ValueError) as error:
            raise ConfigError(
                f"engine_options: vLLM refuses them, got {error}; see the arguments of vllm.LLM"
            ) from error
        ids = [config.supported_id, config.refuted_id]
        self.sampling = vllm.SamplingParams(
            max_tokens=1, temperature=1.0, top_p=1.0, logprobs=2, allowed_token_ids=ids, detokenize=False
        )
        self.dtype: torch.dtype = getattr(torch, config.dtype)

    def eval(self) -> VllmNetwork:
        """Itself: it never trains."""
        return self

    def to(self, device: Any) -> None:
        """`ConfigError`: it stays where it started."""
        raise ConfigError(f"to: vLLM chose its device when it started, got {device}; load it anew")

    def ask(self, requests: Sequence[dict[str, Any]]) -> list[Any]:
        """vLLM's outputs, in order."""
        return self.llm.generate(list(requests), self.sampling, use_tqdm=False)


def check_served(directory: Path, config: VerifierConfig) -> Any:
    """The model's configuration; `DirectoryError` where vLLM cannot give the margins of this verifier."""
    why, remedy = None, "use the default engine"
    if config.weights != "full":
        why, remedy = "an adapter over a base", "export it with --merge"
    elif config.quantization is not None:
        why = "quantised weights"
    elif config.head != "next_token":
        why = f"the head {config.head!r}, where vLLM gives log-probabilities of words"
    elif not (directory / "model" / "tokenizer.json").is_file():
        why, remedy = "a model folder without its tokenizer", "export it again with this release"
    if why is None:
        model_config = read_config(directory / "model")
        if model_config.model_type not in FAMILIES:
            why = f"a {model_config.model_type} network (of {', '.join(FAMILIES)})"
        elif hasattr(model_config, "vision_config") and config.position_rule != "published":
            why = f"the position rule {config.position_rule!r}, where vLLM places text after a video as published"
        else:
            return model_config
    raise DirectoryError(f'{directory}: engine="vllm" cannot run it, got {why}; {remedy}')


class VllmReader(SegmentReader):
    """Reads evidence as requests."""

    def encoded(self, evidence: tuple[Evidence, ...], media: Any) -> EncodedEvidence:
        """As the encoder has it, with what vLLM is given in the place of pixels."""
        whole = self.encoder.evidence(evidence, media)
        values: dict[str, Any] = {field.name: getattr(whole, field.name) for field in fields(EncodedEvidence)}
        values["vision"] = {}
        shown, names = _shown(media, self.encoder, whole.vision)
        ids = tuple(self.encoder.unexpanded_ids(evidence).tolist())
        return ServedEvidence(**values, prompt_ids=ids, shown=shown, names=names)


class VllmScorer:
    """What `PrefixScorer` is to the rest: margins of segments. vLLM keeps prefixes itself."""

    def __init__(self, network: VllmNetwork, lock: Any, claims_per_chunk: int) -> None:
        """`lock` lets one thread in at a time."""
        self.model, self.lock, self.claims_per_chunk = network, lock, claims_per_chunk
        self.prefixes = PrefixCache(0)
        self.device = torch.device("cpu")  # of what it is given; vLLM chooses where it computes

    def check(self) -> None:
        """There is nothing that could be in training mode."""

    def score(self, segments: Sequence[Segment], claims_per_chunk: int | None = None) -> list[np.ndarray]:
        """(K,) float32 margins of every claim of each segment; the claims about one evidence follow each other.

        Raises:
            ModelInputError: vLLM read other tokens than the encoder wrote, or gave no log-probability of a word.
        """
        requests = [_request(segment.evidence, claim) for segment in segments for claim in segment.claims]
        with self.lock:
            outputs = iter(self.model.ask(requests))
        return [
            np.array([self._margin(next(outputs), segment, claim) for claim in segment.claims], dtype=np.float32)
            for segment in segments
        ]

    def _margin(self, output: Any, segment: Segment, claim: torch.Tensor) -> float:
        expected = [*segment.evidence.ids_P.tolist(), *claim.tolist()]
        if list(output.prompt_token_ids) != expected:
            raise ModelInputError(
                f"vLLM: reads other tokens than the verifier was trained on, got {len(output.prompt_token_ids)} "
                f"instead of {len(expected)}; use the default engine"
            )
        first, words = output.outputs[0].logprobs[0], self.model.words
        if missing := [i for i in (words.supported_id, words.refuted_id) if i not in first]:
            raise ModelInputError(
                f"vLLM: gave no log-probability of token {missing[0]}, got {sorted(first)}; ask again"
            )
        return first[words.supported_id].logprob - first[words.refuted_id].logprob


def _request(evidence: EncodedEvidence, claim: torch.Tensor) -> dict[str, Any]:
    assert isinstance(evidence, ServedEvidence)
    request: dict[str, Any] = {"prompt_token_ids": [*evidence.prompt_ids, *claim.tolist()]}
    if evidence.shown:
        request |= {"multi_modal_data": evidence.shown, "multi_modal_uuids": evidence.names}
        request["mm_processor_kwargs"] = {"do_resize": False}
    return request


def _shown(
    media: Media, encoder: Encoder, vision: dict[str, torch.Tensor]
) -> tuple[dict[str, Any] | None, dict[str, list[str]] | None]:
    shown: dict[str, Any] = {}
    if media.videos:
        seconds = vision["second_per_grid_ts"].tolist()
        shown["video"] = [_video(*each, encoder) for each in zip(media.videos, seconds, strict=True)]
    if media.images_HWC:
        shown["image"] = [PILImage.fromarray(np.ascontiguousarray(image)) for image in media.images_HWC]
    if not shown:
        return None, None
    names = {"video": [_name(v.pixels_FHWC, v.times_s) for v in media.videos]} if media.videos else {}
    if media.images_HWC:
        names["image"] = [_name(image) for image in media.images_HWC]
    return shown, names


def _name(*arrays: np.ndarray) -> str:
    total = hashlib.sha256()
    for array in arrays:
        total.update(f"{array.dtype} {array.shape}".encode())
        total.update(np.ascontiguousarray(array).data)
    return total.hexdigest()


def _video(video: Frames, seconds: float, encoder: Encoder) -> tuple[np.ndarray, dict[str, Any]]:
    """Frames, and the metadata from which vLLM counts their seconds.

    Raises:
        ModelInputError: vLLM would place these frames at other positions than the verifier was trained to see them at.
    """
    depth, n_frames = encoder.processor.video_processor.temporal_patch_size, len(video.times_s)
    fps = depth / (seconds * (1 + _NUDGE))
    per_second, n_patches = encoder.layout.tokens_per_second, -(-n_frames // depth)
    ours = temporal_positions(n_patches, torch.tensor([seconds], dtype=torch.float64), per_second, encoder.time_rule)
    theirs = (np.arange(n_patches) * (float(np.float32(depth / fps)) * per_second)).astype(np.int64)
    if ours[0].tolist() != theirs.tolist():
        raise ModelInputError(
            f"vLLM: places frames {seconds:.6f} s apart at {theirs.tolist()}, where the verifier was trained to see "
            f"them at {ours[0].tolist()}; use the default engine for this evidence"
        )
    metadata = {
        "fps": fps,
        "total_num_frames": n_frames,
        "duration": n_frames / fps,
        "frames_indices": list(range(n_frames)),
        "video_backend": "opencv",  # one of the names that vLLM knows; nothing is decoded
    }
    return np.ascontiguousarray(video.pixels_FHWC), metadata
