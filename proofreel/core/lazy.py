"""Public names of a package that load on first use, so that naming one imports nothing heavy before it is needed."""

from __future__ import annotations

import ast
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any


def on_first_use(package: str, file: str) -> Callable[[str], Any]:
    """The `__getattr__` of a package whose `__init__` imports its public names under `if TYPE_CHECKING:`.

    Those imports say, for type checkers and for this function alike, which module holds each name.

    Args:
        package: the `__name__` of the package.
        file: the `__file__` of its `__init__`.
    """
    guarded = [node for node in ast.parse(Path(file).read_text(encoding="utf-8")).body if isinstance(node, ast.If)]
    imports = [node for block in guarded for node in block.body if isinstance(node, ast.ImportFrom)]
    home = {alias.name: "." * node.level + str(node.module) for node in imports for alias in node.names}

    def attribute(name: str) -> Any:
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}; public names are {sorted(home)}")
        return getattr(import_module(home[name], package), name)

    return attribute
