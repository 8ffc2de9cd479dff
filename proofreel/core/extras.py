"""Packages that only some installs have: imported when a feature needs one, named with the extra that brings it."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any

from .errors import ConfigError

# The extra of pyproject.toml that brings each package which scoring does without.
EXTRAS = {
    "trl": "train",
    "deepspeed": "train",
    "bitsandbytes": "train",
    "wandb": "train",
    "fastapi": "serve",
    "uvicorn": "serve",
    "httpx": "serve",
    "prometheus_client": "serve",
    "tenacity": "serve",
    "rouge_score": "overlap",
    "bert_score": "overlap",
    "spacy": "negatives",
    "en_core_web_sm": "negatives",
    "wn": "negatives",
    "gguf": "gguf",
    "vllm": "vllm",
    "ray": "ray",
}


def optional_package(name: str, where: str) -> Any:
    """Import a package of an extra.

    Args:
        name: of the package or of a module in it, as it is imported.
        where: what needs it, as a message begins: a key, an option, a command.

    Raises:
        ConfigError: it is not installed; the message says which extra brings it.
    """
    require(where, name.partition(".")[0])
    return import_module(name)


def require(where: str, *names: str) -> None:
    """`ConfigError` unless these packages are installed; nothing is imported."""
    missing = [name for name in names if not is_installed(name)]
    if missing:
        absent = " and no ".join(missing)
        raise ConfigError(f"{where}: needs packages that are not installed, got no {absent}; run {pip_line(*missing)}")


def is_installed(name: str) -> bool:
    """Whether a package can be imported, by its name there; nothing is imported."""
    try:
        return find_spec(name) is not None
    except ValueError:  # it is hidden: None stands for it in sys.modules
        return False


def pip_line(*names: str) -> str:
    """The command that installs the extras which bring these packages."""
    extras = ",".join(sorted({EXTRAS[name] for name in names}))
    return f'pip install "proofreel[{extras}]"'


def own_version() -> str:
    """The version of this package; "uninstalled" where it runs from a folder of files, without an installation."""
    try:
        return version("proofreel")
    except PackageNotFoundError:
        return "uninstalled"
