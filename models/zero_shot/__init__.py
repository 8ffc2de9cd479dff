"""Judges that were never trained to verify: behind an endpoint, or a checkpoint on this machine."""

from typing import TYPE_CHECKING

from ...core import on_first_use

if TYPE_CHECKING:
    from .config import ZeroShotConfig, open_zero_shot
    from .endpoint import HostedVerifier, evidence_parts, refuse_control
    from .local import LocalLanguageModel

__all__ = [
    "HostedVerifier",
    "LocalLanguageModel",
    "ZeroShotConfig",
    "evidence_parts",
    "open_zero_shot",
    "refuse_control",
]

__getattr__ = on_first_use(__name__, __file__)
