"""The words of a training command, before anything heavy is imported: help, mistyped options, a missing config.

The names of inherited options are read from the source of transformers and TRL, which is not imported for it: that
takes longer than a user waits to learn of a slip.
"""

from __future__ import annotations

import ast
import dataclasses
import json
import sys
import textwrap
import typing
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from ..core import ConfigError, ProofreelError, nearest, read_yaml, require, shipped_line, unknown_option
from .settings import DistillArguments, VerdictArguments

WIDTH = 118
# Where the inherited settings are written: package, file in it, class.
_INHERITED = (
    ("transformers", "training_args.py", "TrainingArguments"),
    ("trl", "trainer/model_config.py", "ModelConfig"),
)


def begin(argv: Sequence[str] | None, script: str, description: str | None) -> int | None:
    """What a training command does at once; an exit status, or None to go on with training.

    Args:
        argv: words of the command line; None for those of this process.
        script: sft, nli or distill.
        description: the script's docstring.
    """
    words, distills = with_config_apart(argv), script == "distill"
    if "--help-all" not in words and {"-h", "--help"} & set(words):
        print(own_help(script, description))
        return 0
    try:
        require(script, "trl")
        if "--help-all" in words:
            print(help_of_all(distills))
            return 0
        check_words(words, distills)
        if "--config" not in words and not {"--dataset_dir", "--dataset-dir"} & set(words):
            raise ConfigError(f"command line: no config is named, got no --config; {shipped_line(script)}")
    except ProofreelError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return None


def with_config_apart(argv: Sequence[str] | None) -> list[str]:
    """The words, with `--config=x` as two, as TRL's parser wants it."""
    words = list(sys.argv[1:] if argv is None else argv)
    return [part for word in words for part in (word.split("=", 1) if word.startswith("--config=") else [word])]


def check_words(words: Sequence[str], distills: bool) -> None:
    """Refuse options and keys that no setting has.

    Raises:
        ConfigError: naming the nearest one; or a config that is missing or no mapping.
    """
    known = known_names(distills)
    options = {f"--{form}" for name in known for form in _forms(name)} | {"--config", "--help", "--help-all"}
    if (unknown := unknown_option(words, options)) is not None:
        own = unknown.split()[3].strip(";-")
        if not distills and own.replace("-", "_") in DistillArguments.__dataclass_fields__:
            raise ConfigError(f"command line: an option of train/distill.py, got --{own}; launch that script")
        raise ConfigError(f"command line: {unknown}")
    if "--config" not in words:
        return
    at = words.index("--config") + 1
    if at >= len(words):
        raise ConfigError("command line: --config names no file, got nothing after it; add the path")
    for key in read_yaml(words[at]):
        if key in known or key == "env":
            continue
        if key in DistillArguments.__dataclass_fields__:
            raise ConfigError(f"{words[at]}: a key of train/distill.py, got {key}; launch that script, or leave it out")
        raise ConfigError(f"{words[at]}: unknown key, got {key}; did you mean {nearest(str(key), known)}?")


def known_names(distills: bool) -> set[str]:
    """The names of all settings."""
    own = {*VerdictArguments.__dataclass_fields__, *(DistillArguments.__dataclass_fields__ if distills else ())}
    return own.union(*(inherited_names(*place) for place in _INHERITED))


@cache
def inherited_names(package: str, file: str, name: str) -> frozenset[str]:
    """The settings of a dataclass, from the source of its file; none where that package is not installed."""
    spec = find_spec(package)
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        tree = ast.parse((Path(folder) / file).read_text(encoding="utf-8"))
        (body,) = (node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name)
        fields = (s.target.id for s in body if isinstance(s, ast.AnnAssign) and isinstance(s.target, ast.Name))
        return frozenset(field for field in fields if not field.startswith("_"))
    return frozenset()


def own_help(script: str, description: str | None) -> str:
    """What a script is for, our own options, and where the others are."""
    kinds = (VerdictArguments, DistillArguments) if script == "distill" else (VerdictArguments,)
    lines = [f"usage: proofreel {script} --config FILE.yaml [--OPTION VALUE ...]", "", (description or "").strip(), ""]
    lines.append("Every option may stand in the config as well, as a key; the command line wins.")
    for kind in kinds:
        lines += ["", "options, and their defaults:" if kind is VerdictArguments else "about the teacher:"]
        hints = typing.get_type_hints(kind)
        for f in dataclasses.fields(kind):
            default = f.default if f.default_factory is dataclasses.MISSING else f.default_factory()
            shown = default if isinstance(default, str) and default else json.dumps(default)
            named = f"--{f.name} {_kind(hints[f.name])}"
            text = f"{f.metadata['help']} [{shown}]"
            lines += [f"  {named}", *textwrap.wrap(text, WIDTH, initial_indent=" " * 6, subsequent_indent=" " * 6)]
    others = "transformers' TrainingArguments (learning_rate, output_dir, ...) and TRL's ModelConfig (lora_r, ...)"
    lines += ["", f"  --help-all lists the options of {others} as well."]
    return "\n".join([*lines, "", *textwrap.wrap(shipped_line(script), WIDTH)])


def help_of_all(distills: bool) -> str:
    """The help of every option: our own first, then TRL's and transformers'."""
    from transformers import TrainingArguments
    from trl import ModelConfig, TrlParser

    own = (VerdictArguments, DistillArguments) if distills else (VerdictArguments,)
    return TrlParser((*own, ModelConfig, TrainingArguments)).format_help()  # type: ignore[arg-type]


def _kind(hint: object) -> str:
    """What is written after an option."""
    kinds = [kind for kind in (typing.get_args(hint) or (hint,)) if kind is not type(None)]
    many = typing.get_origin(hint) is list or any(typing.get_origin(kind) is list for kind in kinds)
    first = kinds[0] if not typing.get_args(kinds[0]) else typing.get_args(kinds[0])[0]
    word = "true|false" if first is bool else {int: "N", float: "X"}.get(first, "TEXT")  # type: ignore[call-overload]
    return f"{word} ..." if many else word


def _forms(name: str) -> tuple[str, ...]:
    """How an option may be written; one that is true by default also as its opposite."""
    dashed = name.replace("_", "-")
    return name, dashed, f"no_{name}", f"no-{dashed}"
