"""Proofreel(claim, evidence) -> P(supported): multimodal claim verifiers, trained, calibrated and published.

Public names load on first use, so that `import proofreel` and `proofreel --help` are instant and import no torch.
"""

from importlib import import_module
from importlib.metadata import version as _version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from proofreel.data_prep.errors import ProofreelError
    from proofreel.data_prep.rows import Image, Pair, Passage, Transcript, VideoSegment
    from proofreel.models.verifier import Verdict, Verifier

__version__ = _version("proofreel")

_HOME = {
    "Image": "data_prep.rows",
    "Pair": "data_prep.rows",
    "Passage": "data_prep.rows",
    "ProofreelError": "data_prep.errors",
    "Transcript": "data_prep.rows",
    "Verdict": "models.verifier",
    "Verifier": "models.verifier",
    "VideoSegment": "data_prep.rows",
}

__all__ = ["Image", "Pair", "Passage", "ProofreelError", "Transcript", "Verdict", "Verifier", "VideoSegment"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'proofreel' has no attribute {name!r}; public names are {__all__}")
    return getattr(import_module(f".{_HOME[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
