"""Read a YAML file into a frozen dataclass, with errors that name the key and the nearest right one.

Used wherever torch must not be imported (build, calibrate, report, export). Training uses TRL's parser instead.
"""

from __future__ import annotations

import dataclasses
import difflib
import os
import types
import typing
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin

import yaml

from .command_line import shipped_configs, shown
from .errors import ConfigError

T = TypeVar("T")


class _StrictLoader(yaml.SafeLoader):
    """SafeLoader that refuses a key given twice (PyYAML keeps the last one silently)."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, (list, dict)):
                raise ConfigError(f"line {key_node.start_mark.line + 1}: a key must be a name, got {key!r}; quote it")
            if key in seen:
                raise ConfigError(f"line {key_node.start_mark.line + 1}: key given twice, got {key!r}; keep one")
            seen.add(key)
        return super().construct_mapping(node, deep)


def read_yaml(path: str | Path) -> dict[str, Any]:
    """The mapping a YAML file holds.

    Raises:
        ConfigError: no such file, not YAML, a duplicate key, or not a mapping.
    """
    path = Path(path)
    if not path.is_file():
        raise ConfigError(f"{path}: no such config file; {_instead_of(path)}")
    try:
        value = yaml.load(path.read_text(encoding="utf-8-sig"), Loader=_StrictLoader)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not valid YAML in UTF-8, got {error}; fix the file") from error
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    if not isinstance(value, dict):
        raise ConfigError(f"{path}: must be a mapping of keys to values, got {type(value).__name__}; see configs/")
    return value


def _instead_of(path: Path) -> str:
    shipped = {file.name: file for file in shipped_configs()}
    near = difflib.get_close_matches(path.with_suffix(".yaml").name, shipped, n=1, cutoff=0.8)
    return f"did you mean {shown(shipped[near[0]])}, which ships?" if near else "check the path given with --config"


def load_config(cls: type[T], path: str | Path, overrides: Sequence[str] = ()) -> T:
    """Read `path` into the dataclass `cls`; `overrides` are `key.path=value` strings that win over the file."""
    values = read_yaml(path)
    for override in overrides:
        key, separator, text = override.partition("=")
        if not separator:
            raise ConfigError(f"command line: an override must read key=value, got {override!r}; add the value")
        _put(values, key.strip().split("."), _override_value(override, text))
    return from_mapping(cls, values, where=str(path))


def expanded(path: str, key: str) -> str:
    """A path with `~` and `$VARIABLE`s filled in; ConfigError, naming the key, where a variable is unset."""
    expansion = os.path.expanduser(os.path.expandvars(path))
    if "$" in expansion:
        raise ConfigError(f"{key}: an environment variable is unset, got {path}; set it first")
    return expansion


def from_mapping(cls: type[T], values: dict[str, Any], where: str, prefix: str = "") -> T:
    """Build the dataclass `cls` from a mapping, checking names and types all the way down."""
    hints = typing.get_type_hints(cls)
    fields = {f.name: f for f in dataclasses.fields(cls)}  # type: ignore[arg-type]
    for key in values:
        if key not in fields:
            near = difflib.get_close_matches(str(key), fields, n=1, cutoff=0.0)
            raise ConfigError(f"{where}: unknown key, got {prefix}{key}; did you mean {prefix}{near[0]}?")
    for name, f in fields.items():
        required = f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
        if required and name not in values:
            raise ConfigError(f"{where}: required key is missing, got no {prefix}{name}; add it")
    return cls(**{k: _convert(v, hints[k], where, f"{prefix}{k}") for k, v in values.items()})


def _override_value(override: str, text: str) -> Any:
    try:
        return yaml.load(text, Loader=_StrictLoader)
    except (yaml.YAMLError, ConfigError) as error:
        raise ConfigError(f"command line: the value is not YAML, got {override!r}; quote it ({error})") from error


def _put(values: dict[str, Any], keys: list[str], value: Any) -> None:
    """Set `values[a][b][c]`; a key that is null or absent becomes a mapping, a list item is named by its number."""
    here: Any = values
    for depth, key in enumerate(keys):
        name = ".".join(keys[: depth + 1])
        if isinstance(here, list):
            if not key.isdecimal() or int(key) >= len(here):
                raise ConfigError(f"command line: no such list item, got {name}; the list has {len(here)} items from 0")
            index: Any = int(key)
        elif isinstance(here, dict):
            index = key
        else:
            raise ConfigError(
                f"command line: cannot set a key inside a value, got {name}; override {keys[0]} as a whole"
            )
        if depth == len(keys) - 1:
            here[index] = value
        elif isinstance(here, dict) and here.get(index) is None:
            here[index] = {}
        here = here[index]


def _convert(value: Any, hint: Any, where: str, key: str) -> Any:
    origin, args = get_origin(hint), get_args(hint)
    if origin in (typing.Union, types.UnionType):
        if value is None and type(None) in args:
            return None
        return _convert(value, next(a for a in args if a is not type(None)), where, key)
    if origin is Literal:
        if value not in args:
            raise ConfigError(f"{where}: {key} is not one of {list(args)}, got {value!r}; pick one")
        return value
    if origin in (tuple, list):
        if not isinstance(value, list):
            raise ConfigError(f"{where}: {key} must be a list, got {value!r}; write [a, b]")
        return origin(_convert(v, args[0], where, f"{key}[{i}]") for i, v in enumerate(value))
    if origin is dict:
        if not isinstance(value, dict):
            raise ConfigError(f"{where}: {key} must be a mapping, got {value!r}; write {{name: value}}")
        return {k: _convert(v, args[1], where, f"{key}.{k}") for k, v in value.items()}
    if dataclasses.is_dataclass(hint):
        if not isinstance(value, dict):
            raise ConfigError(f"{where}: {key} must be a mapping, got {value!r}; indent its keys below it")
        return from_mapping(hint, value, where, prefix=f"{key}.")  # type: ignore[arg-type]
    return _scalar(value, hint, where, key)


def _scalar(value: Any, hint: Any, where: str, key: str) -> Any:
    if hint is float and isinstance(value, (int, float, str)) and not isinstance(value, bool):
        try:
            return float(value)  # YAML 1.1 reads 1e-4 as a string
        except ValueError:
            pass
    elif hint is Path and isinstance(value, str):
        return Path(value)
    elif hint is Any or (isinstance(value, hint) and not (hint is int and isinstance(value, bool))):
        return value
    raise ConfigError(f"{where}: {key} must be {hint.__name__}, got {value!r}; fix the value")
