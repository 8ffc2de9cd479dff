"""Packages that only some installs have: imported when a feature needs one, named with the extra that brings it."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from .errors import ConfigError

# The extra of pyproject.toml that brings each package which scoring does without.
EXTRAS = {
    "trl": "train",
    "deepspeed": "train",
    "bitsandbytes": "train",
    "wandb": "train",
    "datasets": "train",
    "fastapi": "serve",
    "uvicorn": "serve",
    "httpx": "serve",
    "prometheus_client": "serve",
    "rouge_score": "overlap",
    "bert_score": "overlap",
}


def optional_package(name: str, where: str) -> Any:
    """Import a package of an extra.

    Args:
        name: as it is imported.
        where: what needs it, as a message begins: a key, an option, a command.

    Raises:
        ConfigError: it is not installed; the message says which extra brings it.
    """
    require(where, name)
    return import_module(name)


def require(where: str, *names: str) -> None:
    """`ConfigError` unless these packages are installed; nothing is imported."""
    missing = [name for name in names if find_spec(name) is None]
    if missing:
        extras = ",".join(sorted({EXTRAS[name] for name in missing}))
        raise ConfigError(
            f"{where}: needs packages of an extra, got no {' and no '.join(missing)}; run pip install "
            f'"proofreel[{extras}]"'
        )
