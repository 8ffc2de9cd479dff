"""Proofreel(claim, evidence) -> P(supported): multimodal claim verifiers, trained, calibrated and published.

Public names load on first use, so that `import proofreel` and `proofreel --help` are instant and import no torch.
"""

import logging as _logging
from typing import TYPE_CHECKING
from typing import Any as _Any

from proofreel.core import on_first_use
from proofreel.core import own_version as _own_version
from proofreel.core import show_evidence_with as _show_evidence_with

if TYPE_CHECKING:
    from proofreel.core import (
        Audio,
        Frames,
        Image,
        Pair,
        Passage,
        ProofreelError,
        Transcript,
        VideoSegment,
        allow_remote,
    )
    from proofreel.models.cascades import Cascade
    from proofreel.models.decision import Ranked, Verdict
    from proofreel.models.inputs import Windowing
    from proofreel.models.questions import as_pairs
    from proofreel.models.verifier import (
        Attributed,
        CitedClaim,
        CrossEncoding,
        Entailment,
        Localization,
        Sources,
        Verifier,
    )

__version__ = _own_version()


def _is_not_about_cpu_kernel(record: _logging.LogRecord) -> bool:
    # bitsandbytes looks for an optional CPU kernel when it is imported, even where nothing is quantised. It is imported
    # by peft, trl and transformers, so only this file is sure to run before.
    return not str(record.msg).startswith("Failed to load CPU gemm_4bit_forward")


_logging.getLogger("bitsandbytes.backends.cpu.ops").addFilter(_is_not_about_cpu_kernel)

__all__ = [
    "Attributed",
    "Audio",
    "Cascade",
    "CitedClaim",
    "CrossEncoding",
    "Entailment",
    "Frames",
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
    "allow_remote",
    "as_pairs",
]


__getattr__ = on_first_use(__name__, __file__)


def _evidence_html(evidence: tuple[_Any, ...]) -> str:
    from proofreel.models.display import evidence_html

    return evidence_html(evidence)


_show_evidence_with(_evidence_html)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
