"""Packages a verifier's function depends on: recorded in its directory with a reason each, checked before it loads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version
from pathlib import Path

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from ..core.errors import DirectoryError
from .directory import Requirement

_ALWAYS = {
    "torch": Requirement(">=2.11", "its sdpa kernels take the claims' boolean masks"),
    "transformers": Requirement(
        ">=5.23,<6", "its names of modules and weights, and where it places text after a video"
    ),
    "safetensors": Requirement(">=0.6", "the weights' format"),
}
_SEES = {"torchvision": Requirement(">=0.26", "the video processor resizes and normalises frames with it")}
_ADAPTER = {"peft": Requirement(">=0.21", "the adapter's format")}
_QUANTISED = {"bitsandbytes": Requirement(">=0.50", "the adapter was trained over its NF4 weights")}


def requirements_of(sees: bool, adapter: bool, quantised: bool) -> dict[str, Requirement]:
    """What a verifier needs: one that looks at frames, one that is an adapter, one whose base is quantised."""
    return {
        **_ALWAYS,
        **(_SEES if sees else {}),
        **(_ADAPTER if adapter else {}),
        **(_QUANTISED if quantised else {}),
    }


def check_requirements(
    requirements: Mapping[str, Requirement],
    where: str | Path,
    version_of: Callable[[str], str] = installed_version,
) -> None:
    """Refuse packages that are absent or of another version, all of them in one sentence.

    Args:
        requirements: by package name, as pip knows it.
        where: the directory, for the message.
        version_of: how an installed version is found out.

    Raises:
        DirectoryError: naming each package, what is installed, what is needed and why.
    """
    wrong = []
    for name, requirement in requirements.items():
        try:
            wanted = SpecifierSet(requirement.versions)
        except InvalidSpecifier as error:
            raise DirectoryError(
                f"{where}: requirement of {name} is no version range, got {requirement.versions!r}; fetch it again"
            ) from error
        try:
            found = version_of(name)
        except PackageNotFoundError:
            wrong.append(f"{name} is not installed, needed is {requirement.versions} ({requirement.reason})")
            continue
        if not wanted.contains(found, prereleases=True):
            wrong.append(f"{name} is {found}, needed is {requirement.versions} ({requirement.reason})")
    if wrong:
        raise DirectoryError(f"{where}: made for other packages, got: {'; '.join(wrong)}; install those")
