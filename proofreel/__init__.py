"""Proofreel(claim, evidence) -> P(supported): multimodal claim verifiers, trained, calibrated and published.

Public names load on first use, so that `import proofreel` and `proofreel --help` are instant and import no torch.
"""

from importlib.metadata import version as _version
from typing import TYPE_CHECKING

from proofreel.core import on_first_use

if TYPE_CHECKING:
    from proofreel.core import Image, Pair, Passage, ProofreelError, Transcript, VideoSegment
    from proofreel.models.cascades import Cascade
    from proofreel.models.decision import Ranked, Verdict
    from proofreel.models.inputs import Windowing
    from proofreel.models.verifier import (
        Attributed,
        CitedClaim,
        CrossEncoding,
        Entailment,
        Localization,
        Sources,
        Verifier,
    )

__version__ = _version("proofreel")

__all__ = [
    "Attributed",
    "Cascade",
    "CitedClaim",
    "CrossEncoding",
    "Entailment",
    "Image",
    "Localization",
    "Pair",
    "Passage",
    "ProofreelError",
    "Ranked",
    "Sources",
    "Transcript",
    "Verdict",
    "Verifier",
    "VideoSegment",
    "Windowing",
]


__getattr__ = on_first_use(__name__, __file__)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
