"""Values of other libraries, known by what they can do: none of pandas, polars, pyarrow and datasets is imported."""

from __future__ import annotations

import dataclasses
import reprlib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

_OF_ROWS = {"claim", "evidence", "video", "frames", "image", "transcript", "text", "passage"}
_MISSING = ("NAType", "NaTType")  # pandas' own; comparing them raises


def plain(value: Any) -> Any:
    """The value without NumPy around a scalar or list; None for what stands for a missing value."""
    if isinstance(value, np.ndarray) and (value.dtype == object or value.ndim == 1):
        return value.tolist()
    if isinstance(value, np.generic):
        value = value.item()
    if type(value).__name__ in _MISSING or (isinstance(value, float) and value != value):
        return None
    return value


def shown(value: Any) -> str:
    """What a message shows of a value: a picture's bytes or a long text would fill it."""
    return _SHORT.repr(value)


def rows_of(table: Any) -> list[Any] | None:
    """The rows of a table: pandas, polars, Arrow, `datasets`, or a dict of columns. None for what is no table."""
    if hasattr(table, "iloc") and hasattr(table, "columns"):
        return table.to_dict("records")
    if hasattr(table, "to_dicts"):
        return table.to_dicts()
    if hasattr(table, "to_pylist") and hasattr(table, "column_names"):
        return table.to_pylist()
    if hasattr(table, "column_names") and hasattr(table, "features"):
        return list(_without_decoding(table))
    if isinstance(table, Mapping) and isinstance(plain(table.get("claim")), list):
        columns = {name: plain(values) for name, values in table.items()}
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    return None


def column_of(values: Any) -> Any:
    """The values of a column of pandas, polars, Arrow or NumPy as a list; anything else as it is."""
    for name in ("to_list", "to_pylist", "tolist"):
        if not isinstance(values, np.generic) and hasattr(values, name):
            return getattr(values, name)()
    return values


def row_of(value: Any) -> Mapping[str, Any] | None:
    """A row as a mapping: a dict, a row of a pandas table, or a named tuple of one; None for what is none."""
    if isinstance(value, Mapping):
        return value
    if is_column(value):
        return None
    if hasattr(value, "iloc") and hasattr(value, "index") and not hasattr(value, "columns"):
        return value.to_dict()
    if isinstance(value, tuple) and _OF_ROWS & set(getattr(value, "_fields", ())):
        return value._asdict()  # type: ignore[attr-defined]
    return None


def is_column(value: Any) -> bool:
    """Whether this is a column of pandas (a row's labels are names) or of Arrow."""
    if hasattr(value, "iloc") and hasattr(value, "index") and not hasattr(value, "columns"):
        return not all(isinstance(label, str) for label in value.index)
    return hasattr(value, "to_pylist") and not hasattr(value, "column_names")


def splits_of(value: Any) -> list[str] | None:
    """The names of the splits of a `datasets.DatasetDict`; None for anything else."""
    if isinstance(value, Mapping) and value and all(hasattr(each, "column_names") for each in value.values()):
        return [str(name) for name in value]
    return None


def _without_decoding(dataset: Any) -> Iterable[Any]:
    """The rows of a data set with its pictures and videos as they are stored, not as decoders or pixels."""
    for name, feature in (dataset.features or {}).items():
        if getattr(feature, "decode", False) is True and dataclasses.is_dataclass(feature):
            dataset = dataset.cast_column(name, dataclasses.replace(feature, decode=False))  # type: ignore[type-var]
    return dataset


_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 80
