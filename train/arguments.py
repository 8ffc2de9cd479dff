"""The words and the config of a training run, read and checked: our own settings, transformers' and TRL's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import torch
from transformers import TrainingArguments
from trl import ModelConfig, TrlParser

from ..core import ConfigError, is_address, local_folder
from ..models.engine import HEADS
from .launch_words import check_words, with_config_apart
from .settings import PEAK_TFLOPS, DistillArguments, VerdictArguments

HEAD_INITS = ("verdict_words", "random")
BAD_ROWS = ("stop", "skip")
LABEL_COUNTS = tuple(sorted({len(labels) for head in HEADS.values() for labels in head.label_sets}))


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
    argv = with_config_apart(words)
    check_words(argv, DistillArguments in kinds)
    parser = _Parser(kinds, description=__doc__)  # type: ignore[arg-type]
    arguments, training, model, *more, rest = parser.parse_args_and_config(args=argv, return_remaining_strings=True)
    if rest:
        raise ConfigError(f"command line: not an option, got {rest[0]}; write --name value, as {_as_option(rest[0])}")
    for name, value in (("dataset_dir", arguments.dataset_dir), ("model_name_or_path", model.model_name_or_path)):
        if not value:
            raise ConfigError(f"{name}: is required, got nothing; add it to the config or pass --{name}")
    if is_address(arguments.dataset_dir):
        arguments.dataset_dir = str(local_folder(arguments.dataset_dir))
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


class _Parser(TrlParser):
    """TRL's parser, whose own errors would come with the usage of some 200 options."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"command line: {message}; --help-all lists all options")


def _as_option(word: str) -> str:
    name, given, value = word.partition("=")
    return f"--{name} {value}" if given else f"--config {word}" if word.endswith(".yaml") else "--learning_rate 1e-4"


def torch_dtype(model: ModelConfig, checkpoint_dtype: Any) -> torch.dtype:
    """The dtype to load weights in: as asked, or the checkpoint's own."""
    if model.dtype in (None, "auto"):
        return checkpoint_dtype or torch.float32
    if model.dtype not in ("float32", "bfloat16", "float16"):
        raise ConfigError(f"dtype: must be float32, bfloat16, float16 or auto, got {model.dtype!r}; pick one")
    return getattr(torch, model.dtype)
