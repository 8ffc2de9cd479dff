"""Proofreel(claim, evidence) -> P(supported): multimodal claim verifiers, trained, calibrated and published.

Public names load on first use, so that `import proofreel` and `proofreel --help` are instant and import no torch.
"""

from importlib import import_module
from importlib.metadata import version as _version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from proofreel.core.errors import ProofreelError
    from proofreel.core.pairs import Image, Pair, Passage, Transcript, VideoSegment
    from proofreel.models.attribution import Attributed
    from proofreel.models.cascade import Cascade
    from proofreel.models.citing import CitedClaim, Sources
    from proofreel.models.cross_encoding import CrossEncoding
    from proofreel.models.entailment import Entailment
    from proofreel.models.localization import Localization
    from proofreel.models.verdicts import Ranked, Verdict
    from proofreel.models.verifier import Verifier
    from proofreel.models.windows import Windowing

__version__ = _version("proofreel")

_HOME = {
    "Attributed": "models.attribution",
    "Cascade": "models.cascade",
    "CitedClaim": "models.citing",
    "CrossEncoding": "models.cross_encoding",
    "Entailment": "models.entailment",
    "Image": "core.pairs",
    "Localization": "models.localization",
    "Pair": "core.pairs",
    "Passage": "core.pairs",
    "ProofreelError": "core.errors",
    "Ranked": "models.verdicts",
    "Sources": "models.citing",
    "Transcript": "core.pairs",
    "Verdict": "models.verdicts",
    "Verifier": "models.verifier",
    "VideoSegment": "core.pairs",
    "Windowing": "models.windows",
}

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


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'proofreel' has no attribute {name!r}; public names are {__all__}")
    return getattr(import_module(f".{_HOME[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
