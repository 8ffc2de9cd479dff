"""Values of published JSON files against a JSON Schema, which lies beside the code that reads the file."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any


def schema_problem(values: Any, schema: Path) -> str | None:
    """Where `values` depart most from a schema, and how; None where they do not.

    Args:
        values: as `json` reads them.
        schema: a file, JSON Schema 2020-12.
    """
    from jsonschema.exceptions import best_match

    worst: Any = best_match(_validator(schema).iter_errors(values))
    if worst is None:
        return None
    place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in worst.absolute_path).lstrip(".")
    return f"{place or 'the whole'}: {worst.message[:300]}"


@cache
def _validator(schema: Path) -> Any:
    from jsonschema import Draft202012Validator

    return Draft202012Validator(json.loads(schema.read_text(encoding="utf-8")))
