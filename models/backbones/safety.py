"""What may be read of a folder from a stranger: JSON that is only data, weights that are no pickle.

Nothing here loads, imports or runs anything that a file names. A key that would make a library fetch code, import a
class or read another folder is refused; names of classes must be among those of a backbone (`processor_classes`).

transformers renders chat templates in Jinja's sandbox, which keeps them from running code, but not from running for
ever or filling the memory. So a template may only use the constructs listed here; those of supported checkpoints do. A
loop inside a loop goes over a part of what the outer one goes over, and nothing doubles what a variable holds, so that
the time is at most quadratic in the conversation. Docs: docs/verifier-directory.md.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from jinja2 import Environment, TemplateSyntaxError, nodes
from safetensors import SafetensorError, safe_open

from ...core import DirectoryError
from .families import processor_classes

MAX_CHARACTERS = 2**16  # released ones have under 3,000
_NODES = (
    nodes.Template, nodes.Output, nodes.TemplateData, nodes.Const, nodes.Name, nodes.NSRef, nodes.Assign, nodes.If,
    nodes.For, nodes.Break, nodes.Continue, nodes.Getattr, nodes.Getitem, nodes.Slice, nodes.Tuple, nodes.List,
    nodes.Dict, nodes.Pair, nodes.Keyword, nodes.Compare, nodes.Operand, nodes.And, nodes.Or, nodes.Not, nodes.Neg,
    nodes.Add, nodes.Sub, nodes.Concat, nodes.Mod, nodes.CondExpr, nodes.Filter, nodes.Test, nodes.Call,
)  # fmt: skip
_FILTERS = {"default", "first", "last", "length", "lower", "string", "tojson", "trim", "upper"}
_GROWS = {"string", "tojson"}  # they escape: what is escaped twice may be twice as long
_FUNCTIONS = {"namespace", "raise_exception"}
_METHODS = {"endswith", "lstrip", "rstrip", "split", "startswith", "strip"}


def check_chat_template(text: str, where: str) -> None:
    """`DirectoryError` unless the template is short, and of the constructs that always end."""
    if len(text) > MAX_CHARACTERS:
        raise DirectoryError(f"{where}: too long for a chat template, got {len(text)} of {MAX_CHARACTERS} characters")
    try:
        tree = Environment(extensions=["jinja2.ext.loopcontrols"]).parse(text)
    except (TemplateSyntaxError, RecursionError) as error:
        raise DirectoryError(f"{where}: not a chat template, got {error}; use the checkpoint's own") from error
    assigned = {target.name for node in tree.find_all(nodes.Assign) for target in _targets(node.target)}
    for node in (tree, *tree.find_all(nodes.Node)):
        if problem := _problem(node) or (_growth(node, assigned) if isinstance(node, nodes.Assign) else None):
            line = getattr(node, "lineno", 1)
            raise DirectoryError(f"{where}: line {line}: {problem}; use the checkpoint's own template")
    _check_loops(tree, None, assigned, _shortened(tree, assigned), where)


def _problem(node: nodes.Node) -> str | None:
    """What about this node alone is refused."""
    kind = type(node).__name__
    if not isinstance(node, _NODES):
        return f"a construct that is refused, got {kind}"
    if isinstance(node, nodes.Getattr) and node.attr.startswith("_"):
        return f"an attribute that is not data, got {node.attr!r}"
    if isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Const) and str(node.arg.value).startswith("_"):
        return f"an attribute that is not data, got {node.arg.value!r}"
    if isinstance(node, nodes.Filter):
        nested = node.name in _GROWS and any(f.name in _GROWS for f in node.find_all(nodes.Filter))
        return f"a filter that is refused, got {node.name!r}" if node.name not in _FILTERS or nested else None
    if isinstance(node, nodes.Call):
        called = node.node
        known = (isinstance(called, nodes.Name) and called.name in _FUNCTIONS) or (
            isinstance(called, nodes.Getattr) and called.attr in _METHODS
        )
        return None if known else "a call of what is not listed, got " + getattr(called, "name", kind)
    if isinstance(node, nodes.Mod) and not _is_loop_counter(node.left):  # of text, it is formatting
        return "a remainder of something other than the loop's counter"
    if isinstance(node, nodes.For) and (node.recursive or not isinstance(node.target, nodes.Name)):
        return "a loop that calls itself or has several variables"
    return None


def _growth(node: nodes.Assign, assigned: set[str]) -> str | None:
    """An assignment may add to one variable what the conversation holds, never one variable to another."""
    for part in (node.node, *node.node.find_all(nodes.Expr)):
        if isinstance(part, nodes.Filter) and part.name in _GROWS:
            return f"an assignment of escaped text, got {part.name!r}"
        if isinstance(part, (nodes.List, nodes.Tuple, nodes.Dict)) and any(part.find_all(nodes.Name)):
            return "an assignment of a list of variables"
    names = [n.name for n in (node.node, *node.node.find_all(nodes.Name)) if isinstance(n, nodes.Name)]
    joins = isinstance(node.node, (nodes.Add, nodes.Concat)) or any(node.node.find_all((nodes.Add, nodes.Concat)))
    if joins and sum(name in assigned for name in names) > 1:
        return "an assignment that joins variables"
    return None


def _shortened(tree: nodes.Node, assigned: set[str]) -> set[str]:
    """Names that only ever stand for a part of something given, as in `set rest = messages[1:]`."""
    assignments = list(tree.find_all(nodes.Assign))
    return {
        name
        for name in assigned
        if all(
            isinstance(a.target, nodes.Name) and _root(a.node) is not None and _root(a.node) not in assigned
            for a in assignments
            if any(target.name == name for target in _targets(a.target))
        )
    }


def _check_loops(node: nodes.Node, outer: str | None, assigned: set[str], parts: set[str], where: str) -> None:
    """Outer loops go over what is given, inner ones over a part of their outer loop's variable."""
    for child in node.iter_child_nodes():
        if not isinstance(child, nodes.For):
            _check_loops(child, outer, assigned, parts, where)
            continue
        root, name = _root(child.iter), child.target.name if isinstance(child.target, nodes.Name) else ""
        allowed = root not in assigned or root in parts if outer is None else root == outer and root not in assigned
        if root is None or not allowed:
            raise DirectoryError(
                f"{where}: line {child.lineno}: a loop that may not end, over more than a part of the loop around it; "
                "use the checkpoint's own template"
            )
        _check_loops(child, name, assigned, parts, where)


def _root(node: nodes.Node) -> str | None:
    """The name at the start of `name.part[0]...`; None for anything that is computed."""
    while isinstance(node, (nodes.Getattr, nodes.Getitem)):
        node = node.node
    return node.name if isinstance(node, nodes.Name) else None


def _is_loop_counter(node: nodes.Node) -> bool:
    return isinstance(node, nodes.Getattr) and _root(node) == "loop" and node.attr in ("index", "index0")


def _targets(node: nodes.Node) -> Iterator[nodes.Name | nodes.NSRef]:
    if isinstance(node, (nodes.Name, nodes.NSRef)):
        yield node
    yield from node.find_all((nodes.Name, nodes.NSRef))


MAX_JSON_BYTES = 4 * 2**20
MAX_VOCABULARY_BYTES = 64 * 2**20  # released tokenizer.json files have 11 MB
_VOCABULARIES = ("tokenizer.json", "vocab.json", "model.safetensors.index.json")
MAX_PATTERN, MAX_REPETITIONS = 2000, 8  # characters and repetitions of a pattern of module names

_READ = {
    "adapter_config.json",
    "added_tokens.json",
    "chat_template.json",
    "config.json",
    "generation_config.json",
    "preprocessor_config.json",
    "processor_config.json",
    "special_tokens_map.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "video_preprocessor_config.json",
    "vocab.json",
}

# Orders to a library: code of a repository, of the hub's kernels, or of a Python path; files and models elsewhere.
_ORDERS = {
    "audio_tokenizer",
    "auto_map",
    "auto_mapping",
    "base_model_class",
    "code_revision",
    "custom_generate",
    "custom_pipelines",
    "kernel_config",
    "megatron_config",
    "parent_library",
    "transformers_weights",
    "trust_remote_code",
    "use_kernels",
}
_FILE_KEYS = re.compile(r".*_files?$")
_ATTENTION_KEYS = re.compile(r".*(attn|experts)_implementation.*")
# Of an adapter's settings, those that say how its matrices are applied; every other one must be off.
_ADAPTER_SETTINGS = {
    "alpha_pattern",
    "base_model_name_or_path",  # a note: the base comes from verifier_config.json
    "bias",
    "exclude_modules",
    "fan_in_fan_out",
    "inference_mode",
    "layers_pattern",
    "layers_to_transform",
    "lora_alpha",
    "lora_bias",
    "lora_dropout",
    "modules_to_save",
    "peft_type",
    "peft_version",
    "r",
    "rank_pattern",
    "revision",  # of the base; a note, too
    "target_modules",
    "task_type",
    "use_dora",
    "use_rslora",
}
_ADAPTER_VALUES: dict[str, tuple[Any, ...]] = {
    "peft_type": ("LORA",),
    "task_type": ("CAUSAL_LM", None),
    "modules_to_save": (None, [], ["score"]),
    "bias": ("none", "all", "lora_only"),
    "init_lora_weights": (True, False, "gaussian"),  # what stands in the file replaces them
    "megatron_core": ("megatron.core",),  # imported only where megatron_config is set, which is refused
    "qalora_group_size": (16,),  # peft's default; of no effect while use_qalora is off
}


def read_json(path: Path, max_bytes: int = MAX_JSON_BYTES) -> Any:
    """A JSON file read strictly; `DirectoryError` if it is too large, no JSON, repeats a key, or holds NaN or infinity.

    Readers differ in which of two equal keys they keep, so that a checked value need not be the one that is used.
    """
    if (size := path.stat().st_size) > max_bytes:
        raise DirectoryError(
            f"{path}: too large for what it is, got {size} bytes of at most {max_bytes}; fetch it again"
        )
    try:
        return json.loads(
            path.read_text(encoding="utf-8"), object_pairs_hook=_object, parse_constant=_number, parse_float=_number
        )
    except RecursionError as error:
        raise DirectoryError(f"{path}: nested too deeply to be read, got more levels than Python reads") from error
    except ValueError as error:
        raise DirectoryError(f"{path}: not valid JSON, got {error}; fetch it again") from error


def check_settings(folder: Path, *, whole: bool = False) -> None:
    """The settings of a checkpoint or processor folder (its top level): only data, and only known classes.

    Args:
        folder: of a checkpoint, a processor, or a part of a verifier directory.
        whole: check every JSON file, also those that no library reads.

    Raises:
        DirectoryError: naming the file and the first thing in it that is refused.
    """
    for path in sorted(folder.glob("*.json")):
        if not whole and path.name not in _READ and not path.name.endswith(".index.json"):
            continue
        value = read_json(path, MAX_VOCABULARY_BYTES if path.name in _VOCABULARIES else MAX_JSON_BYTES)
        if path.name == "adapter_config.json":
            _check_adapter(path, value)
        elif path.name.endswith(".safetensors.index.json"):
            _check_index(path, value)
        elif path.name not in _VOCABULARIES:  # a token may be called anything
            _check_orders(path, value)
    for path in sorted(folder.glob("**/*.jinja")):
        check_chat_template(path.read_text(encoding="utf-8", errors="replace"), str(path))


def check_safetensors(path: Path) -> None:
    """`DirectoryError` unless the file is in the safetensors format; its header is read, nothing is unpickled."""
    try:
        with safe_open(path, "np") as tensors:
            tensors.keys()
    except (SafetensorError, OSError) as error:
        with path.open("rb") as file:
            start = file.read(2)
        if start == b"PK" or start[:1] == b"\x80":  # of torch.save and of pickle; a header's length may be the same
            raise DirectoryError(
                f"{path}: a pickle under another name, got {start!r} at its start; remove it"
            ) from error
        raise DirectoryError(f"{path}: not a safetensors file, got {error}; fetch it again") from error


def is_plain_name(name: str) -> bool:
    """Whether `name` is the name of a file, and nothing that leads to another folder on any system."""
    return name not in ("", ".", "..") and PurePosixPath(name).name == name == PureWindowsPath(name).name


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))
        raise ValueError(f"the key {twice!r} twice")
    return values


def _number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text}, which is no number")
    return value


def _items(value: Any) -> Iterator[tuple[str, Any]]:
    """Every key with its value, at every depth."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key, inner
            yield from _items(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _items(inner)


def _check_orders(path: Path, value: Any) -> None:
    classes = processor_classes()
    for key, inner in _items(value):
        if key in _ORDERS and inner not in (None, False, {}, []):
            raise DirectoryError(f"{path}: asks for code or files from elsewhere, got {key}: {inner!r}; remove it")
        if _FILE_KEYS.fullmatch(key) and inner is not None:
            raise DirectoryError(f"{path}: names another file to be read, got {key}: {inner!r}; remove it")
        if _ATTENTION_KEYS.fullmatch(key) and "/" in str(inner):
            raise DirectoryError(f"{path}: asks for a kernel from the hub, got {key}: {inner!r}; remove it")
        if key in classes and inner is not None and str(inner) not in classes[key]:
            raise DirectoryError(
                f"{path}: a class that is not loaded here, got {key}: {inner!r}; known are {sorted(classes[key])}"
            )
        if key == "quant_method" and inner != "bitsandbytes":
            raise DirectoryError(f"{path}: weights of a foreign format, got {key}: {inner!r}; use unquantised weights")
        if key in ("chat_template", "template") and isinstance(inner, str):
            check_chat_template(inner, f"{path}: {key}")


def _check_adapter(path: Path, values: Any) -> None:
    if not isinstance(values, dict):
        raise DirectoryError(f"{path}: must be a JSON object, got {type(values).__name__}; fetch it again")
    for key, value in values.items():
        allowed = _ADAPTER_VALUES.get(key)
        off = value in (None, False) or value in ({}, [])
        if (value not in allowed) if allowed is not None else (key not in _ADAPTER_SETTINGS and not off):
            raise DirectoryError(
                f"{path}: a setting that is refused, got {key}: {value!r}; export the verifier again, with plain LoRA"
            )
    if "peft_type" not in values:
        raise DirectoryError(f"{path}: says of no kind of adapter, got no peft_type; export the verifier again")
    for key in ("target_modules", "exclude_modules", "layers_pattern"):
        for pattern in [values.get(key)] if isinstance(values.get(key), str) else values.get(key) or []:
            # Repeated groups, and many repetitions one after another, take for ever on names that do not match.
            if (
                len(str(pattern)) > MAX_PATTERN
                or re.search(r"\)[*+{]", str(pattern))
                or len(re.findall(r"[*+{]", str(pattern))) > MAX_REPETITIONS
            ):
                raise DirectoryError(f"{path}: a pattern that may not end, got {key}: {pattern!r}; name the layers")


def _check_index(path: Path, value: Any) -> None:
    names = value.get("weight_map") if isinstance(value, dict) else None
    if not isinstance(names, dict):
        raise DirectoryError(f"{path}: maps no weights to files, got {type(names).__name__}; fetch it again")
    for name in set(names.values()):
        if not isinstance(name, str) or not is_plain_name(name) or not name.endswith(".safetensors"):
            raise DirectoryError(f"{path}: not a safetensors file beside it, got {name!r}; fetch it again")
        if not (path.parent / name).is_file():
            raise DirectoryError(f"{path}: a file of weights is missing, got no {name}; fetch it again")
