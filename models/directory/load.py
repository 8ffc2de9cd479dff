"""The parts of a verifier directory, loaded and checked: its weights over their base, and the encoder it describes."""

from __future__ import annotations

import dataclasses
import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch

from ...core import (
    Audio,
    CalibrationError,
    ConfigError,
    DirectoryError,
    ModelInputError,
    Passage,
    VideoSegment,
    require,
)
from ...data_prep.media import SAMPLE_RATE, Frames, Sound
from ..backbones import load_backbone, load_processor, resolve_base, vision_layout, weights_sha256
from ..decision import CALIBRATION_FILE, Decision, read_decision
from ..engine import Head, make_head
from ..inputs import TIME_RULES, Encoder, LabelWords, Media, Windowing
from .adapter_files import adapter_config, check_adapter, check_adapter_files
from .format import EvidenceKind, VerifierConfig, check_requirements, find_verifier, fingerprint, read_directory

_log = logging.getLogger(__name__)

UNRECORDED_EVIDENCE = (
    "records no kinds of evidence it was trained on: what it says of other kinds than those means nothing, and it "
    "cannot refuse them"
)
"""The note of a directory, and of each of its verdicts, that was written before kinds of evidence were recorded."""

Dtype = Literal["float32", "bfloat16", "float16"]
Quantization = Literal["nf4", False] | None


# Settings of bitsandbytes that a directory may record, and their values; names of dtypes are looked up in torch.
_DTYPES = get_args(Dtype)
_QUANTIZATION: dict[str, tuple[Any, ...]] = {
    "_load_in_4bit": (True,),
    "_load_in_8bit": (False,),
    "bnb_4bit_compute_dtype": _DTYPES,
    "bnb_4bit_quant_storage": (*_DTYPES, "uint8"),
    "bnb_4bit_quant_type": ("nf4", "fp4"),
    "bnb_4bit_use_double_quant": (True, False),
    "load_in_4bit": (True,),
    "load_in_8bit": (False,),
    "quant_method": ("bitsandbytes",),
}


@dataclass(frozen=True)
class Parts:
    """What a verifier is made of: a verifier directory, loaded.

    Attributes:
        model: on its device.
        encoder, head: as the directory describes them.
        claims_per_row: most claims of one forward pass.
        decision: calibration and thresholds; None of an uncalibrated verifier.
        fingerprint: of the directory.
        modalities: kinds of evidence it was trained on; None: not recorded.
        windowing: how long videos are judged; None: whole.
        notes: what differs from the verifier that was calibrated, a sentence each.
        directory: what was loaded, on this machine.
    """

    model: Any
    encoder: Encoder
    head: Head
    claims_per_row: int = 32
    decision: Decision | None = None
    fingerprint: str = ""
    modalities: Sequence[EvidenceKind] | None = None
    windowing: Windowing | None = None
    notes: Sequence[str] = ()
    directory: Path | None = None


def load_parts(
    path_or_hub_id: str | Path,
    *,
    revision: str | None = None,
    device: str | torch.device | None = None,
    dtype: str | torch.dtype | None = None,
    quantization: Quantization = None,
    base: str | Path | None = None,
    adapter: bool = True,
    network: Callable[[Path, VerifierConfig], Any] | None = None,
) -> Parts:
    """Fetch, check and load a verifier directory; arguments as of `Verifier.from_pretrained`.

    `network` makes what stands in the place of the network, from the folder and its configuration as it is to run.

    Files come first, then packages, then weights: nothing of a directory is used before all of it was checked.

    Raises:
        ConfigError: a dtype or quantization of another name.
        DirectoryError: what is wrong, in one sentence.
    """
    directory = find_verifier(path_or_hub_id, revision)
    recorded = read_directory(directory)
    unused = {"bitsandbytes"} if quantization is False else set()
    check_requirements({name: r for name, r in recorded.requirements.items() if name not in unused}, directory)
    config, notes = run_as(recorded, dtype, quantization)
    if not adapter:
        notes = (*notes, "runs without its adapter: uncalibrated verdicts of the base")
    if config.modalities is None:
        notes = (*notes, UNRECORDED_EVIDENCE)
        _warn_once(f"{directory}: {UNRECORDED_EVIDENCE}; export it again from its training run")
    device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    if network is None:
        model = load_weights(directory, config, base, adapter, device)
        n_rows = len(model.get_input_embeddings().weight)
    else:
        model = network(directory, config)
        n_rows = model.config.get_text_config().vocab_size
    encoder = _checked_encoder(directory, model.config, n_rows, config)
    try:
        words = LabelWords.of(config.prompt, encoder.tokenizer)
    except ModelInputError as error:
        raise DirectoryError(f"{directory}: not the tokenizer this verifier was trained with; {error}") from error
    if (words.supported_id, words.refuted_id) != (config.supported_id, config.refuted_id):
        raise DirectoryError(
            f"{directory}: label words tokenise to {words}, recorded were {config.supported_id} and "
            f"{config.refuted_id}; the tokenizer is not the one this verifier was trained with"
        )
    if encoder.layout.sees and config.time_rule != TIME_RULES[0]:
        _warn_once(
            f"{directory}: keeps the time rule {config.time_rule!r}, by which some regular frames stand one position "
            f"early, and its margins; `proofreel export --time-rule {TIME_RULES[0]} --recalibrate` of its training run "
            "takes up today's (docs/positions.md)"
        )
    calibrated = adapter and (directory / CALIBRATION_FILE).is_file()
    return Parts(
        model,
        encoder,
        head_of(config),
        config.claims_per_row,
        _decision(directory) if calibrated else None,
        fingerprint(directory),
        config.modalities,
        config.windowing,
        notes,
        directory.absolute(),
    )


def _decision(directory: Path) -> Decision:
    try:
        return read_decision(directory)
    except CalibrationError as error:
        raise DirectoryError(str(error)) from error


def _checked_encoder(directory: Path, model_config: Any, n_rows: int, config: VerifierConfig) -> Encoder:
    """The encoder, after text and, of a backbone that sees, a blank video became what the network takes.

    The network knows `n_rows` tokens.

    A processor can be loaded and still fail on the first picture: statistics of two channels, a placeholder of another
    id.
    """
    blank = Frames(np.zeros((2, 56, 56, 3), np.uint8), np.array([0.0, 0.5]), "drawn")
    try:
        encoder = make_encoder(directory / "processor", model_config, config)
        encoder.evidence((Passage("A."),), Media())
        if encoder.layout.sees:
            encoder.evidence((VideoSegment("blank.mp4", 0.0, 1.0),), Media((blank,)))
        if encoder.layout.hears:
            silence = Sound(np.zeros(SAMPLE_RATE, np.float32), 0.0)
            encoder.evidence((Audio("silence.wav", 0.0, 1.0),), Media(sounds=(silence,)))
        n_ids = 1 + max(encoder.tokenizer.get_vocab().values())
        if n_ids > n_rows:
            raise ModelInputError(f"token ids up to {n_ids - 1} for a network that knows {n_rows}")
    except DirectoryError:
        raise
    except Exception as error:  # any, of libraries that were given damaged settings
        raise DirectoryError(
            f"{directory}: its processor does not make what the network takes, got {type(error).__name__}: "
            f"{str(error)[:300]}; fetch the directory again"
        ) from error
    return encoder


@cache
def _warn_once(text: str) -> None:
    """Once per process."""
    _log.warning("%s", text)


def run_as(
    config: VerifierConfig, dtype: str | torch.dtype | None = None, quantization: Quantization = None
) -> tuple[VerifierConfig, tuple[str, ...]]:
    """The configuration as it is to run, and in words what that changes of the function that was calibrated.

    Args:
        config: as recorded.
        dtype: of the weights; None: as recorded.
        quantization: "nf4" quantises the base (or full model), False does not; None: as recorded.

    Raises:
        ConfigError: a dtype or quantization of another name.
    """
    name = config.dtype if dtype is None else str(dtype).removeprefix("torch.")
    if name not in _DTYPES:
        raise ConfigError(
            f"dtype: must be one of {list(_DTYPES)}, got {dtype!r}; leave it out to keep the recorded one"
        )
    if quantization not in ("nf4", False, None):
        raise ConfigError(
            f'quantization: must be "nf4", False or None, got {quantization!r}; None keeps the recorded one'
        )
    recorded, wanted, notes = config.quantization, config.quantization, []
    if quantization is False:
        wanted = None
    elif quantization == "nf4" and (recorded is None or recorded.get("bnb_4bit_quant_type") != "nf4"):
        wanted = {
            "load_in_4bit": True,
            "bnb_4bit_quant_type": "nf4",
            "bnb_4bit_use_double_quant": True,
            "bnb_4bit_compute_dtype": name,
        }
    if name != config.dtype:
        notes.append(f"calibrated in {config.dtype}, runs in {name}")
    if wanted != recorded:
        notes.append(f"calibrated over {_named(recorded)} weights, runs over {_named(wanted)} ones")
    return dataclasses.replace(config, dtype=name, quantization=wanted), tuple(notes)  # type: ignore[arg-type]


def load_weights(
    directory: Path,
    config: VerifierConfig,
    base: str | Path | None = None,
    adapter: bool = True,
    device: torch.device | None = None,
) -> Any:
    """The network of a verifier directory: adapter over its checked base (or that base alone), or its full model.

    Without its adapter, an NLI verifier's head stands where training started it from the verdict words.

    Raises:
        DirectoryError: another base, or weights that are missing, misshapen or foreign: none is ever left at random.
    """
    dtype, head = getattr(torch, config.dtype), head_of(config)
    quantised = _quantization(directory, config)
    # Quantised weights cannot be moved later on.
    options: dict[str, Any] = {"dtype": dtype, "quantization_config": quantised, "head": head}
    options["device_map"] = {"": str(device)} if quantised is not None and device is not None else None
    if config.weights == "full":
        if not adapter:
            raise DirectoryError(
                f"{directory}: holds a full model, got adapter=False; there is no adapter to leave out"
            )
        return _placed(load_backbone(directory / "model", head_may_be_new=False, **options), quantised, device)
    from peft import PeftModel

    if adapter:
        check_adapter_files(directory / "adapter")
    base_path = find_base(directory, config, base)
    # With an adapter the head's weights are in its file: what stands in their place until then does not matter.
    words = None if adapter else LabelWords(config.supported_id, config.refuted_id)
    model = load_backbone(base_path, words=words, **options)
    if not adapter:
        return _placed(model, quantised, device)
    folder = directory / "adapter"
    try:
        adapted = PeftModel.from_pretrained(
            model, str(folder), autocast_adapter_dtype=False, config=adapter_config(folder)
        )
    except (DirectoryError, MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:  # a head that is missing, tensors of other shapes, settings of other types
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise DirectoryError(
            f"{folder}: the adapter's weights do not fit this base and head, missing or misshapen: {reason}; "
            "export the verifier again"
        ) from error
    check_adapter(folder, adapted)
    return _placed(adapted, quantised, device)


def head_of(config: VerifierConfig) -> Head:
    """How a verifier's logits are read."""
    return make_head(config.head, LabelWords(config.supported_id, config.refuted_id), config.labels)


def find_base(directory: Path, config: VerifierConfig, base: str | Path | None = None) -> Path:
    """The base checkpoint's folder, refused unless its weights are those the adapter was trained on.

    A folder beside the directory wins over a hub id of that name; a hub id is fetched in its recorded commit only.
    """
    beside = directory / config.base.path
    path = Path(base) if base is not None else beside if beside.is_dir() else None
    if path is None:
        try:
            if (
                "/" in config.base.path
                and not config.base.path.startswith(".")
                and not _is_commit(config.base.revision)
            ):
                raise DirectoryError(
                    f"{config.base.path}: a hub id needs its commit, got revision {config.base.revision!r}"
                )
            path = resolve_base(config.base.path, config.base.revision)
        except DirectoryError as error:
            raise DirectoryError(f"{directory}: its base model was not found; pass base=<folder>. {error}") from error
    if (actual := weights_sha256(path)) != config.base.weights_sha256:
        raise DirectoryError(
            f"{path}: not the base this verifier was trained on, got weights {actual[:12]} instead of "
            f"{config.base.weights_sha256[:12]}; pass base=<the right checkpoint>"
        )
    wanted, snapshot = config.base.revision, path.resolve()
    if _is_commit(wanted) and snapshot.parent.name == "snapshots" and snapshot.name != wanted:
        raise DirectoryError(
            f"{path}: another revision of the base than this verifier was trained on, got {snapshot.name[:12]} instead "
            f"of {str(wanted)[:12]}; pass base=<the right checkpoint>"
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
        config.time_rule,
        config.chat,
    )


def _is_commit(revision: str | None) -> bool:
    return revision is not None and re.fullmatch(r"[0-9a-f]{40}", revision) is not None


def _placed(model: Any, quantised: Any, device: torch.device | None) -> Any:
    return model if quantised is not None or device is None else model.to(device)


def _named(quantization: dict[str, Any] | None) -> str:
    return "unquantised" if quantization is None else str(quantization.get("bnb_4bit_quant_type", "fp4")).upper()


def _quantization(directory: Path, config: VerifierConfig) -> Any:
    if config.quantization is None:
        return None
    for key, value in config.quantization.items():
        if value not in _QUANTIZATION.get(key, ()):
            raise DirectoryError(
                f"{directory}: a quantization setting that is refused, got {key}: {value!r}; export the verifier again"
            )
    require("quantization", "bitsandbytes")
    from transformers import BitsAndBytesConfig

    return BitsAndBytesConfig(**config.quantization)
