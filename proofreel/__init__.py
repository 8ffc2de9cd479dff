"""Proofreel(claim, evidence) -> P(supported): multimodal claim verifiers, trained, calibrated and published.

Public names load on first use, so that `import proofreel` and `proofreel --help` are instant and import no torch.
"""

from importlib import import_module
from importlib.metadata import version as _version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from proofreel.core.errors import ProofreelError
    from proofreel.core.pairs import Image, Pair, Passage, Transcript, VideoSegment
    from proofreel.models.cascade.cascade import Cascade
    from proofreel.models.decision.verdict import Ranked, Verdict
    from proofreel.models.inputs.windowing import Windowing
    from proofreel.models.verifier.attribution import Attributed, CitedClaim, Sources
    from proofreel.models.verifier.compat import CrossEncoding, Entailment
    from proofreel.models.verifier.localization import Localization
    from proofreel.models.verifier.verifier import Verifier

__version__ = _version("proofreel")

_HOME = {
    "Attributed": "models.verifier.attribution",
    "Cascade": "models.cascade.cascade",
    "CitedClaim": "models.verifier.attribution",
    "CrossEncoding": "models.verifier.compat",
    "Entailment": "models.verifier.compat",
    "Image": "core.pairs",
    "Localization": "models.verifier.localization",
    "Pair": "core.pairs",
    "Passage": "core.pairs",
    "ProofreelError": "core.errors",
    "Ranked": "models.decision.verdict",
    "Sources": "models.verifier.attribution",
    "Transcript": "core.pairs",
    "Verdict": "models.decision.verdict",
    "Verifier": "models.verifier.verifier",
    "VideoSegment": "core.pairs",
    "Windowing": "models.inputs.windowing",
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
