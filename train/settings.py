"""The settings of a training run that are our own: their names, defaults and one sentence on each.

Nothing here loads torch, so that `--help` and a mistyped option are answered at once. What a value may be is checked by
train/arguments.py, and by the parts that the values are for.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..core import NAMED_PROMPTS, ConfigError, Prompt, named_prompt
from ..data_prep.media import FrameSampling
from ..models.backbones import lora_parts

# TFLOP/s of one card, dense, in bfloat16.
PEAK_TFLOPS = {
    "h200": 989.0,  # NVIDIA H200 data sheet, SXM: half of 1,979 with sparsity
    "h100": 989.0,  # NVIDIA H100 data sheet, SXM
    "h100-pcie": 756.0,  # the same, PCIe: half of 1,513
    "a100": 312.0,  # NVIDIA A100 data sheet
    "l40s": 362.0,  # NVIDIA L40S data sheet
    "a10": 125.0,  # NVIDIA A10 data sheet
    "l4": 121.0,  # NVIDIA L4 data sheet: half of 242
    "4090": 165.2,  # NVIDIA Ada architecture paper, appendix A
    "3090": 71.0,  # NVIDIA Ampere GA102 architecture paper, table 3
}

_PROMPT, _SAMPLING = Prompt(), FrameSampling()
LORA_PARTS = lora_parts()


@dataclass
class VerdictArguments:
    """Data, prompt, frames and packing of a verdict fine-tuning run."""

    dataset_dir: str = field(default="", metadata={"help": "Data set folder written by data_prep/build.py."})
    claims_per_row: int = field(
        default=16,
        metadata={"help": "Most claims packed behind one evidence: they share its cost. 1 where a backbone cannot."},
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
        default="published", metadata={"help": "Where text resumes after a video: one of published, hf5."}
    )
    system_prompt: str = field(default=_PROMPT.system, metadata={"help": "The system turn."})
    claim_template: str = field(default=_PROMPT.claim, metadata={"help": "The claim's turn; holds {claim}."})
    response_prefix: str = field(
        default=_PROMPT.response_prefix, metadata={"help": "Text of the answer before the verdict word."}
    )
    supported_word: str = field(default=_PROMPT.supported_word, metadata={"help": "Verdict word: supported."})
    refuted_word: str = field(default=_PROMPT.refuted_word, metadata={"help": "Verdict word: not supported."})

    named_prompt: str = field(
        default="proofreel", metadata={"help": f"A whole question by its name: one of {', '.join(NAMED_PROMPTS)}."}
    )
    prompt_instruction: str | None = field(
        default=None, metadata={"help": "What a reranker's prompt asks for; else its published default."}
    )

    def prompt(self) -> Prompt:
        """The prompt this run trains with.

        Raises:
            ConfigError: an unknown name, or a named prompt beside words of its own.
        """
        named = named_prompt(self.named_prompt, self.prompt_instruction)
        if self.named_prompt != "proofreel":
            if self._written() != _PROMPT:
                raise ConfigError(
                    f"named_prompt: stands for all prompt keys, got {self.named_prompt!r} beside others; leave them out"
                )
            return named
        return self._written()

    def _written(self) -> Prompt:
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
    head: str = field(default="next_token", metadata={"help": "What the student is: one of next_token nli."})
    alpha: float = field(
        default=0.5,
        metadata={"help": "Share of the label in the loss of rows that have one; the rest is the teacher's."},
    )
    temperature: float = field(default=2.0, metadata={"help": "Softens both verdict distributions."})
    soft_loss: str = field(default="kl", metadata={"help": "The teacher's part: kl (of verdicts), or margin_mse."})
    listwise_weight: float = field(
        default=0.0,
        metadata={"help": "Weight of keeping the teacher's order of the claims about one evidence."},
    )
    distrust: float = field(
        default=0.05,
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
