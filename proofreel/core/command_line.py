"""The words of a command: a mistyped one is a line with the nearest right one; a config that is missing, one with those
that ship.
"""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import json
import sys
import textwrap
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatch
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn

WIDTH = 118
# Which of the configs that ship a command reads, by their names; `sft` reads those that no other one does.
_NAMES = {
    "launch": "accelerate_*",
    "teacher": "teacher_*",
    "build": "*_build",
    "mine": "*mine",
    "rounds": "*_rounds",
    "run": "*_run",
    "distill": "*distill*",
    "nli": "*_nli*",
}


class CommandParser(argparse.ArgumentParser):
    """An ArgumentParser whose errors are one line that says what was meant; exit status 2, as usual.

    Args:
        configs: of `_NAMES`, or sft: what to name where the config is missing.
        keys: the dataclass whose keys the config has; `--help` lists them.
    """

    def __init__(self, *args: Any, configs: str | None = None, keys: Any = None, **kwargs: Any) -> None:
        super().__init__(*args, **{"formatter_class": argparse.RawDescriptionHelpFormatter, **kwargs})
        self.configs, self.keys = configs, keys

    def parse_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:  # type: ignore[override]
        """As argparse's, after a look for mistyped options, which would else be hidden by what is required."""
        self._refuse_unknown(args)
        return super().parse_args(args, namespace)

    def parse_intermixed_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:  # type: ignore[override]
        """As argparse's, after the same look."""
        self._refuse_unknown(args)
        return super().parse_intermixed_args(args, namespace)

    def format_help(self) -> str:
        """The usual help; then the keys of the config, and the configs that ship."""
        text = super().format_help()
        if self.keys is not None:
            keys = self.keys() if isinstance(self.keys, types.FunctionType) else self.keys
            text += "\nkeys of the config, and their defaults:\n" + "\n".join(key_lines(keys)) + "\n"
        if self.configs is not None:
            text += "\n" + "\n".join(textwrap.wrap(shipped_line(self.configs), WIDTH)) + "\n"
        return text

    def error(self, message: str) -> NoReturn:
        """One line, without the usage."""
        required = message.removeprefix("the following arguments are required: ")
        if required != message:
            names = [name for name in required.split(", ") if "=" not in name]  # overrides may be none
            message = f"required, got no {' and no '.join(names)}"
            if self.configs is not None and names[0].endswith("config"):
                message += f"; {shipped_line(self.configs)}"
        self.exit(2, f"error: {self.prog}: {message}; `{self.prog} --help` lists all\n")

    def _refuse_unknown(self, args: Sequence[str] | None) -> None:
        unknown = unknown_option(sys.argv[1:] if args is None else args, _options_of(self))
        if unknown is not None:
            self.error(unknown)


def unknown_option(words: Iterable[str], known: Iterable[str]) -> str | None:
    """What is wrong with the first word that looks like an option, is none and begins none; None if all are right."""
    options = sorted(option for option in known if option.startswith("--"))
    for word in words:
        if word == "--":
            return None
        name = word.partition("=")[0]
        if not name.startswith("--") or " " in name or any(option.startswith(name) for option in options):
            continue
        return f"unknown option, got {name}; did you mean {nearest(name, options)}?"
    return None


def nearest(word: str, known: Iterable[str]) -> str:
    """The known word that is most like this one."""
    return difflib.get_close_matches(word, sorted(known), n=1, cutoff=0.0)[0]


def shipped_configs(kind: str | None = None) -> list[Path]:
    """The configs that ship for a command (None: all of them), in the folder that they lie in."""
    spec = find_spec("proofreel.configs")
    folder = Path(next(iter((spec.submodule_search_locations if spec else None) or ["configs"])))
    return sorted(path for path in folder.glob("*.yaml") if kind in (None, _kind_of(path.stem)))


def _kind_of(name: str) -> str:
    return next((kind for kind, pattern in _NAMES.items() if fnmatch(name, pattern)), "sft")


def shipped_line(kind: str) -> str:
    """What ships for a command, in one sentence."""
    paths = shipped_configs(kind)
    return f"these ship in {shown(paths[0].parent)}: {' '.join(path.name for path in paths)}"


def shown(path: Path) -> Path:
    """A path as one would type it here."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def key_lines(cls: Any, prefix: str = "") -> list[str]:
    """A line per key of a config dataclass, down to the last one; what its docstring says of each.

    Args:
        cls: the dataclass.
        prefix: of nested keys: "negatives.".
    """
    hints, texts = typing.get_type_hints(cls), attribute_texts(cls)
    lines = []
    for f in dataclasses.fields(cls):
        key, nested = f"{prefix}{f.name}", _dataclass_in(hints[f.name])
        required = f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
        if nested is None or nested.is_list:
            value = "REQUIRED" if required else _default_text(f)
            choices = " | ".join(map(str, _choices(hints[f.name])))
            text = f"{key} = {value}{choices and f' ({choices})'}. {texts.get(f.name, '')}".rstrip(". ")
            lines += textwrap.wrap(text, WIDTH, initial_indent="  ", subsequent_indent="      ")
        if nested is not None:
            lines += key_lines(nested.cls, f"{key}[].") if nested.is_list else key_lines(nested.cls, f"{key}.")
    return lines


def attribute_texts(cls: Any) -> Mapping[str, str]:
    """What the section `Attributes:` of a class's docstring says of each."""
    section = (cls.__doc__ or "").partition("Attributes:\n")[2]
    texts: dict[str, str] = {}
    names, depth = list[str](), None
    for line in section.splitlines():
        indent = len(line) - len(line.lstrip())
        if not line.strip():
            break
        depth = indent if depth is None else depth
        if indent < depth:
            break
        if indent == depth:
            listed, _, text = line.strip().partition(": ")
            names = listed.split(", ")
            texts |= dict.fromkeys(names, text)
        else:
            texts |= {name: f"{texts[name]} {line.strip()}" for name in names}
    return texts


@dataclasses.dataclass(frozen=True)
class _Nested:
    cls: Any
    is_list: bool


def _dataclass_in(hint: Any) -> _Nested | None:
    """The dataclass that a value of this type is or holds."""
    if dataclasses.is_dataclass(hint):
        return _Nested(hint, False)
    origin = typing.get_origin(hint)
    for inner in typing.get_args(hint):
        if (nested := _dataclass_in(inner)) is not None:
            return _Nested(nested.cls, nested.is_list or origin in (list, tuple))
    return None


def _options_of(parser: argparse.ArgumentParser) -> set[str]:
    """The options of a parser and of its subcommands."""
    own = {option for action in parser._actions for option in action.option_strings}
    steps = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    return own.union(*(_options_of(step) for action in steps for step in action.choices.values()))


def _choices(hint: Any) -> tuple[Any, ...]:
    if typing.get_origin(hint) is typing.Literal:
        return typing.get_args(hint)
    return next((found for inner in typing.get_args(hint) if (found := _choices(inner))), ())


def _default_text(f: dataclasses.Field[Any]) -> str:
    """A default as YAML has it, on one line."""
    default = f.default if f.default_factory is dataclasses.MISSING else f.default_factory()
    return default if isinstance(default, str) and default else json.dumps(default, default=str)
