"""Parameters of which CI runs the first: further seeds, families and whole tables are for `make test-all`."""

from collections.abc import Collection, Iterable
from typing import Any

import pytest

FAMILIES = ("qwen2_5_vl", "qwen3_vl", "qwen2_5_omni_thinker")
"""Backbones that see, by `model_type`."""


def first_of(values: Iterable[Any]) -> list[Any]:
    """All values; those after the first are nightly."""
    first, *others = values
    return [first, *(nightly(value) for value in others)]


def only(kept: Collection[Any], values: Iterable[Any]) -> list[Any]:
    """All values; those that are not kept are nightly."""
    return [value if value in kept else nightly(value) for value in values]


def nightly(value: Any) -> Any:
    """A parameter; a tuple is several, as for pytest itself."""
    return pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=pytest.mark.nightly)
