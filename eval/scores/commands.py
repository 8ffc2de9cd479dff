"""What the commands of the papers' scores share: rows read, results written, a verifier and a language model opened."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ...core import ConfigError, RowError, from_mapping, read_yaml
from ...data_prep.importers import Rejected, read_json_records

if TYPE_CHECKING:
    from ...data_prep.language import LanguageModel
    from ...models.verifier import Verifier

T = TypeVar("T")


def read_rows(cls: type[T], path: str | Path, key: Callable[[T], Any]) -> list[T]:
    """The rows of a JSON lines file or a JSON list, names and types checked.

    Args:
        cls: dataclass of a row.
        path: the file.
        key: what no two rows may share; it may raise RowError for a row that is at fault.

    Raises:
        RowError: no such file, or the first line that cannot be read, with its number.
        ConfigError: the first row with a wrong name or type, with its number.
    """
    path = Path(path)
    if not path.is_file():
        raise RowError(f"{path}: no such file, got nothing to read; check the path")
    rows: dict[Any, T] = {}
    for record in read_json_records(path):
        if isinstance(record, Rejected):
            raise RowError(str(record))
        where = f"{record.file}:{record.line}"
        if not isinstance(record.value, dict):
            raise RowError(f"{where}: a row must be an object, got {record.value!r:.60}; write {{name: value}}")
        try:
            row = from_mapping(cls, record.value, where)
            name = key(row)
        except RowError as error:
            raise RowError(f"{where}: {error}") from error
        if name in rows:
            raise RowError(f"{where}: a row is given twice, got {name!r}; keep one")
        rows[name] = row
    if not rows:
        raise RowError(f"{path}: nothing to score, got no row; write one JSON object per line")
    return list(rows.values())


def write_rows(rows: Iterable[Any], path: str | Path) -> Path:
    """Dataclasses as JSON lines, without the fields that hold their default; `read_rows` reads them."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(_given(row), ensure_ascii=False) + "\n" for row in rows)
    path.write_text(text, encoding="utf-8")
    return path


def write_result(folder: str | Path, result: Any) -> Path:
    """`result.json` of a typed result, in a folder made if need be."""
    from .intervals import plain  # brings torch, which --help must not

    path = Path(folder) / "result.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(plain(result), indent=1, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")
    return path


def _given(row: Any) -> dict[str, Any]:
    from .intervals import plain

    values = {f.name: getattr(row, f.name) for f in dataclasses.fields(row)}
    return {f.name: plain(values[f.name]) for f in dataclasses.fields(row) if values[f.name] != f.default}


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
