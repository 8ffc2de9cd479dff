"""Files that the papers' scores read and write: one JSON object per line in, one result out."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

from ...core import RowError, from_mapping
from ...data_prep.importers import Rejected, read_json_records
from .intervals import plain

T = TypeVar("T")


def read_rows(cls: type[T], path: str | Path, key: Callable[[T], Any]) -> list[T]:
    """The rows of a JSON lines file or a JSON list, names and types checked.

    Args:
        cls: dataclass of a row.
        path: the file.
        key: what no two rows may share.

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
        except RowError as error:
            raise RowError(f"{where}: {error}") from error
        if key(row) in rows:
            raise RowError(f"{where}: a row is given twice, got {key(row)!r}; keep one")
        rows[key(row)] = row
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
    path = Path(folder) / "result.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(plain(result), indent=1, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")
    return path


def _given(row: Any) -> dict[str, Any]:
    values = {f.name: getattr(row, f.name) for f in dataclasses.fields(row)}
    return {f.name: plain(values[f.name]) for f in dataclasses.fields(row) if values[f.name] != f.default}
