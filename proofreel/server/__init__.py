"""The server behind `proofreel serve`: one verifier over HTTP, in batches, within limits. Docs: docs/server.md."""

from typing import TYPE_CHECKING

from ..core import on_first_use

if TYPE_CHECKING:
    from .launch import Shared, cache_folder, check_exposure, load, own_names, run
    from .on_ray import Replicas, run_on_ray
    from .settings import Settings, limits
    from .workers import WORKER, Post, run_workers

__all__ = [
    "WORKER",
    "Post",
    "Replicas",
    "Settings",
    "Shared",
    "cache_folder",
    "check_exposure",
    "limits",
    "load",
    "own_names",
    "run",
    "run_on_ray",
    "run_workers",
]

__getattr__ = on_first_use(__name__, __file__)
