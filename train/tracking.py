"""Whether a run can be tracked as its `report_to` says, which is known before anything is loaded."""

from __future__ import annotations

import os

from transformers import TrainingArguments

from ..core import ConfigError, optional_package
from .checkpoints import decided_on_rank_0

_UNSENT = ("offline", "dryrun", "disabled")


def check_tracking(training: TrainingArguments) -> None:
    """Refuse a run that wandb would stop when training begins.

    Only the process that logs needs an account. Nothing is asked over the network, and nobody at the terminal.

    Raises:
        ConfigError: `report_to` names wandb, which is not installed, or which has no key and is to send the run.
    """
    if "wandb" in (training.report_to or ()):
        decided_on_rank_0(_check_wandb, training)


def _check_wandb() -> None:
    wandb = optional_package("wandb", "report_to")
    if os.environ.get("WANDB_MODE") in _UNSENT or wandb.login(prompt=False, verify=False):
        return
    raise ConfigError(
        "report_to: wandb has no login here, got no WANDB_API_KEY and no key in .netrc; run `wandb login`, set "
        "WANDB_MODE=offline, or pass --report_to none"
    )
