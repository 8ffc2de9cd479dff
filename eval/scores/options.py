"""Command-line options that the papers' scores share: a verifier as the judge, and a language model for its steps."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core import ConfigError, from_mapping, read_yaml

if TYPE_CHECKING:
    from ...data_prep.language import LanguageModel
    from ...models.verifier import Verifier


def add_verifier_options(parser: argparse.ArgumentParser) -> None:
    """--verifier and how it runs."""
    group = parser.add_argument_group("verifier")
    group.add_argument("--verifier", help="verifier directory, or hub id")
    group.add_argument("--media", type=Path, help="folder that relative paths of videos start from")
    group.add_argument("--operating-point", help="name of the threshold that labels; default: the shipped default")
    group.add_argument("--device", help="cpu, cuda, ...; default: a GPU if there is one")
    group.add_argument("--base", type=Path, help="base checkpoint, if not where the directory says")
    group.add_argument(
        "--untrained-evidence", action="store_true", help="also ask about kinds of evidence the verifier never saw"
    )


def add_language_option(parser: argparse.ArgumentParser, what: str) -> None:
    """--language-model, and what it is for."""
    parser.add_argument(
        "--language-model",
        type=Path,
        metavar="YAML",
        help=f"{what}: base_url, model, cache_dir and the other keys of docs/language-model.md",
    )


def open_verifier(args: argparse.Namespace) -> Verifier:
    """The verifier of the options.

    Raises:
        ConfigError: --media names no folder.
    """
    from ...models.verifier import Verifier

    if args.media is not None and not args.media.is_dir():
        raise ConfigError(f"--media: no such folder, got {args.media}; check the path")
    options: dict[str, Any] = {} if args.base is None else {"base": args.base}
    return Verifier.from_pretrained(
        args.verifier,
        device=args.device,
        media_root=args.media,
        prefix_cache_gib=0.0,  # all claims about an evidence are asked together, and none later
        untrained_evidence=args.untrained_evidence,
        **options,
    )


def open_language_model(path: Path) -> LanguageModel:
    """The client that a YAML file configures.

    Raises:
        ConfigError: no such file, or a wrong key or value.
    """
    from ...data_prep.language import LanguageModel, LanguageModelConfig

    if not path.is_file():
        raise ConfigError(f"--language-model: no such file, got {path}; write base_url and model into one")
    return LanguageModel(from_mapping(LanguageModelConfig, read_yaml(path), str(path)))
