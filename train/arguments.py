"""Settings of a training run, beyond transformers' TrainingArguments and TRL's ModelConfig."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from transformers import TrainingArguments
from trl import ModelConfig, TrlParser

from ..core import ConfigError, Prompt
from ..data_prep.media import FrameSampling
from ..models.backbones import lora_parts
from ..models.engine import HEADS
from ..models.inputs import POSITION_RULES
from .cost import PEAK_TFLOPS
from .distillation_loss import Distillation

_PROMPT, _SAMPLING, _DISTILLATION = Prompt(), FrameSampling(), Distillation()
LORA_PARTS = lora_parts()
HEAD_INITS = ("verdict_words", "random")
BAD_ROWS = ("stop", "skip")
LABEL_COUNTS = tuple(sorted({len(labels) for head in HEADS.values() for labels in head.label_sets}))


@dataclass
class VerdictArguments:
    """Data, prompt, frames and packing of a verdict fine-tuning run."""

    dataset_dir: str = field(default="", metadata={"help": "Data set folder written by data_prep/build.py."})
    claims_per_row: int = field(
        default=16, metadata={"help": "Most claims packed behind one evidence: they share its cost."}
    )
    tokens_per_row: int | None = field(
        default=None,
        metadata={"help": "Most tokens of a packed row, evidence and claims; longer groups become several rows."},
    )
    tokens_per_batch: int | None = field(
        default=None,
        metadata={
            "help": "Most tokens of a micro-batch, padding included: rows of like length are batched up to this, and "
            "up to per_device_train_batch_size."
        },
    )
    max_tokens: int = field(
        default=8192, metadata={"help": "Longest prompt (evidence plus one claim) in tokens; longer rows are refused."}
    )
    cache_gib: float = field(
        default=1.0,
        metadata={"help": "Encoded evidence each loader process keeps in memory, in GiB; 0 decodes every time."},
    )
    frame_cache: str | None = field(
        default=None,
        metadata={"help": "Folder that keeps decoded frames between epochs and runs; decoders then have a deadline."},
    )
    vision_cache: str | None = field(
        default=None,
        metadata={
            "help": 'Folder that keeps what the frozen vision tower makes of evidence; filled before training. "": none'
        },
    )
    vision_cache_gib: float = field(
        default=100.0,
        metadata={"help": "Most that `vision_cache` may hold, in GiB; a run whose features do not fit is refused."},
    )
    validate_only: bool = field(
        default=False, metadata={"help": "Check every row, print the arithmetic of the run, and stop before training."}
    )
    card: str = field(
        default="h100", metadata={"help": f"Whose hours the plan estimates: one of {', '.join(PEAK_TFLOPS)}."}
    )
    price: float | None = field(default=None, metadata={"help": "Money per hour of one card, for the plan's estimate."})
    claim_only: bool = field(
        default=False, metadata={"help": "Control: hide the evidence, to learn what the claims alone give away."}
    )
    train_vision: bool = field(
        default=False, metadata={"help": "Full fine-tuning only: train the vision tower as well."}
    )
    lora_parts: list[str] = field(
        default_factory=lambda: ["language_model"],
        metadata={"help": f"Where LoRA goes, unless lora_target_modules says: some of {' '.join(LORA_PARTS)}."},
    )
    adapter_from: str | None = field(
        default=None,
        metadata={"help": "Verifier directory, on the same base, whose adapter LoRA starts from; else it is new."},
    )
    labels: int = field(default=2, metadata={"help": "NLI head: 2 labels (supported, refuted), or 3 (and not_enough)."})
    head_init: str = field(
        default="verdict_words",
        metadata={"help": "NLI head: verdict_words starts it from the output layer's rows of the two words; random."},
    )
    class_weights: list[float] | None = field(
        default=None,
        metadata={"help": "Factor of each label in the loss, in the order supported, refuted (, not_enough)."},
    )
    balance_classes: bool = field(
        default=False, metadata={"help": "Class weights from the train split, so that every label weighs the same."}
    )
    focal_gamma: float = field(
        default=0.0, metadata={"help": "Focal loss: claims the model is sure of count less; 0 is cross-entropy."}
    )
    paired_weight: float = field(
        default=0.0,
        metadata={"help": "Weight of the paired loss: a gold claim must beat each negative on the same evidence."},
    )
    paired_margin: float = field(default=1.0, metadata={"help": "By how much (in log-odds) it must beat it."})
    bad_rows: str = field(
        default="stop",
        metadata={"help": "A row that cannot be read in mid-run: stop (named), or skip (counted and listed)."},
    )
    read_timeout_s: float = field(
        default=120.0,
        metadata={"help": "A video that takes longer to read than this counts as unreadable; 0: no limit."},
    )
    early_stopping: int | None = field(
        default=None, metadata={"help": "Stop after so many evaluations without a better metric_for_best_model."}
    )
    fps: float = field(default=_SAMPLING.fps, metadata={"help": "Frames per second of evidence."})
    min_frames: int = field(default=_SAMPLING.min_frames, metadata={"help": "Fewest frames of a segment; even."})
    max_frames: int = field(default=_SAMPLING.max_frames, metadata={"help": "Most frames of a segment; even."})
    min_pixels: int = field(default=_SAMPLING.min_pixels, metadata={"help": "Fewest pixels of a frame."})
    max_pixels: int = field(default=_SAMPLING.max_pixels, metadata={"help": "Most pixels of a frame."})
    position_rule: str = field(
        default="published", metadata={"help": f"Where text resumes after a video: one of {POSITION_RULES}."}
    )
    system_prompt: str = field(default=_PROMPT.system, metadata={"help": "The system turn."})
    claim_template: str = field(default=_PROMPT.claim, metadata={"help": "The claim's turn; holds {claim}."})
    response_prefix: str = field(
        default=_PROMPT.response_prefix, metadata={"help": "Text of the answer before the verdict word."}
    )
    supported_word: str = field(default=_PROMPT.supported_word, metadata={"help": "Verdict word: supported."})
    refuted_word: str = field(default=_PROMPT.refuted_word, metadata={"help": "Verdict word: not supported."})

    def prompt(self) -> Prompt:
        """The prompt this run trains with."""
        return Prompt(
            system=self.system_prompt,
            claim=self.claim_template,
            response_prefix=self.response_prefix,
            supported_word=self.supported_word,
            refuted_word=self.refuted_word,
        )

    def sampling(self) -> FrameSampling:
        """The frames this run trains with."""
        return FrameSampling(self.fps, self.min_frames, self.max_frames, self.min_pixels, self.max_pixels)


@dataclass
class DistillArguments:
    """Settings of a distilling run about its teacher."""

    teacher: str = field(
        default="", metadata={"help": "Predictions file of the train split, calibrated: eval/teach.py writes it."}
    )
    head: str = field(default="next_token", metadata={"help": f"What the student is: one of {' '.join(HEADS)}."})
    alpha: float = field(
        default=_DISTILLATION.alpha,
        metadata={"help": "Share of the label in the loss of rows that have one; the rest is the teacher's."},
    )
    temperature: float = field(
        default=_DISTILLATION.temperature, metadata={"help": "Softens both verdict distributions."}
    )
    soft_loss: str = field(
        default=_DISTILLATION.soft_loss, metadata={"help": "The teacher's part: kl (of verdicts), or margin_mse."}
    )
    listwise_weight: float = field(
        default=_DISTILLATION.listwise_weight,
        metadata={"help": "Weight of keeping the teacher's order of the claims about one evidence."},
    )
    distrust: float = field(
        default=_DISTILLATION.distrust,
        metadata={"help": "Labels that the teacher gives less than this are noise: the row learns from it alone."},
    )
    missing_teacher: str = field(
        default="refuse", metadata={"help": "Rows without a usable margin: refuse, or train on their labels alone."}
    )
    uncalibrated_teacher: bool = field(
        default=False, metadata={"help": "Take margins whose probabilities are not calibrated on gold labels."}
    )
    other_prompt: bool = field(
        default=False, metadata={"help": "Take margins of a teacher that was asked with another prompt."}
    )


def parse(argv: Sequence[str] | None) -> tuple[VerdictArguments, TrainingArguments, ModelConfig]:
    """Read `--config x.yaml` and command-line overrides through TRL's parser.

    Raises:
        ConfigError: an unknown key (naming the nearest), or a required one missing.
    """
    return _parse(argv, VerdictArguments, TrainingArguments, ModelConfig)


def parse_distill(
    argv: Sequence[str] | None,
) -> tuple[DistillArguments, VerdictArguments, TrainingArguments, ModelConfig]:
    """As `parse`, and what is said of the teacher before it."""
    arguments, training, model, distill = _parse(
        argv, VerdictArguments, TrainingArguments, ModelConfig, DistillArguments
    )
    if not distill.teacher:
        raise ConfigError("teacher: is required, got nothing; add it to the config or pass --teacher")
    if distill.head not in HEADS:
        raise ConfigError(f"head: must be one of {tuple(HEADS)}, got {distill.head!r}; pick one")
    return distill, arguments, training, model


def _parse(words: Sequence[str] | None, *kinds: Any) -> Any:
    parser = TrlParser(kinds, description=__doc__)  # type: ignore[arg-type]
    argv = None if words is None else list(words)
    _refuse_unknown_keys(parser, argv)
    arguments, training, model, *more = parser.parse_args_and_config(args=argv)
    for name, value in (("dataset_dir", arguments.dataset_dir), ("model_name_or_path", model.model_name_or_path)):
        if not value:
            raise ConfigError(f"{name}: is required, got nothing; add it to the config or pass --{name}")
    for name in ("claims_per_row", "tokens_per_row", "tokens_per_batch", "max_tokens"):
        if (value := getattr(arguments, name)) is not None and value < 1:
            raise ConfigError(f"{name}: must be at least 1, got {value}; correct it or leave it out")
    for name, known in (
        ("head_init", HEAD_INITS),
        ("bad_rows", BAD_ROWS),
        ("labels", LABEL_COUNTS),
        ("card", tuple(PEAK_TFLOPS)),
    ):
        if (value := getattr(arguments, name)) not in known:
            raise ConfigError(f"{name}: must be one of {known}, got {value!r}; pick one")
    # TrainingArguments keeps the word as a string, and the Trainer would look for a folder of that name.
    spelled: dict[Any, Any] = {"true": True, "false": None}
    resume = training.resume_from_checkpoint
    training.resume_from_checkpoint = spelled.get(str(resume).lower(), resume)
    # Rows are built by our own collator and labels are ours: the Trainer must not drop or guess anything.
    training.remove_unused_columns, training.label_names = False, ["labels"]
    return arguments, training, model, *more


def torch_dtype(model: ModelConfig, checkpoint_dtype: Any) -> torch.dtype:
    """The dtype to load weights in: as asked, or the checkpoint's own."""
    if model.dtype in (None, "auto"):
        return checkpoint_dtype or torch.float32
    if model.dtype not in ("float32", "bfloat16", "float16"):
        raise ConfigError(f"dtype: must be float32, bfloat16, float16 or auto, got {model.dtype!r}; pick one")
    return getattr(torch, model.dtype)


def _refuse_unknown_keys(parser: TrlParser, argv: list[str] | None) -> None:
    """TRL's own message for an unknown YAML key does not say what was meant; ours does."""
    import difflib
    import sys

    from ..core import read_yaml

    words = list(sys.argv[1:] if argv is None else argv)
    if "--config" not in words or words.index("--config") + 1 >= len(words):
        return
    path = words[words.index("--config") + 1]
    known = {action.dest for action in parser._actions} | {"env"}
    for key in read_yaml(path):
        if key not in known and key in DistillArguments.__dataclass_fields__:
            raise ConfigError(f"{path}: a key of train/distill.py, got {key}; launch that script, or leave it out")
        if key not in known:
            near = difflib.get_close_matches(key, sorted(known), n=1, cutoff=0.0)[0]
            raise ConfigError(f"{path}: unknown key, got {key}; did you mean {near}?")
