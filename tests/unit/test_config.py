"""A YAML file becomes a frozen dataclass, or an error that names the key and the nearest right one."""

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest

from proofreel.core.config import from_mapping, load_config, read_yaml
from proofreel.core.errors import ConfigError


@dataclass(frozen=True)
class Inner:
    rate: float = 1.0
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Config:
    output: str
    seed: int = 0
    mode: Literal["a", "b"] = "a"
    root: Path | None = None
    flag: bool = False
    inner: Inner = field(default_factory=Inner)
    parts: tuple[Inner, ...] = ()
    table: dict[str, int] = field(default_factory=dict)
    free: Any = None


def load(tmp_path: Path, text: str, *overrides: str) -> Config:
    path = tmp_path / "x.yaml"
    path.write_text(text, encoding="utf-8")
    return load_config(Config, path, overrides)


def test_every_kind_of_value_is_read(tmp_path):
    text = """
output: o
seed: 3
mode: b
root: somewhere
flag: true
inner: {rate: 1e-4, names: [x, y]}
parts: [{rate: 2}, {}]
table: {k: 1}
free: [1, {a: null}]
"""
    wanted = Config(
        "o", 3, "b", Path("somewhere"), True, Inner(1e-4, ("x", "y")), (Inner(2.0), Inner()), {"k": 1}, [1, {"a": None}]
    )
    assert load(tmp_path, text) == wanted


def test_a_config_cannot_be_changed_after_loading(tmp_path):
    with pytest.raises(dataclasses.FrozenInstanceError):
        load(tmp_path, "output: o").seed = 1  # type: ignore[misc]


def test_overrides_win_and_reach_into_mappings_and_lists(tmp_path):
    text = "output: o\ninner: {rate: 1, names: [x]}\nparts: [{rate: 1}, {rate: 2}]\ntable:"
    config = load(tmp_path, text.replace("\ntable:", ""), "seed=7", "inner.rate=0.5", "parts.1.rate=9", "table.k=1")
    assert (config.seed, config.inner, config.table) == (7, Inner(0.5, ("x",)), {"k": 1})
    assert [part.rate for part in config.parts] == [1.0, 9.0]


def test_an_override_may_fill_a_key_left_null(tmp_path):
    assert load(tmp_path, "output: o\ninner:\n", "inner.rate=2").inner.rate == 2.0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("output: o\nsede: 1", "unknown key, got sede; did you mean seed"),
        ("output: o\ninner: {rat: 1}", r"got inner\.rat; did you mean inner\.rate"),
        ("output: o\n5: 1", "unknown key, got 5"),
        ("seed: 1", "required key is missing, got no output"),
        ("output: o\noutput: p", "line 2: key given twice"),
        ("output: o\ninner: {rate: 1, rate: 2}", "key given twice"),
        ("output: o\n? [a, b]\n: 1", "line 2: a key must be a name"),
        ("output: o\nseed: '1'", "seed must be int, got '1'"),
        ("output: o\nseed: true", "seed must be int, got True"),
        ("output: o\nseed: 1.5", "seed must be int"),
        ("output: o\nseed:", "seed must be int, got None"),
        ("output: 3", "output must be str"),
        ("output: o\nflag: 1", "flag must be bool"),
        ("output: o\nmode: c", r"mode is not one of \['a', 'b'\], got 'c'"),
        ("output: o\ninner: 3", "inner must be a mapping"),
        ("output: o\ninner: {rate: fast}", r"inner\.rate must be float"),
        ("output: o\ninner: {names: x}", r"inner\.names must be a list"),
        ("output: o\nparts: [{rat: 1}]", r"parts\[0\]\.rat"),
        ("output: o\ntable: [1]", "table must be a mapping"),
        ("output: o\ntable: {k: x}", r"table\.k must be int"),
        ("[1, 2]", "must be a mapping"),
        ("", "must be a mapping"),
        ("a: [", "not valid YAML"),
    ],
)
def test_what_is_wrong_is_named_with_file_and_key(tmp_path, text, words):
    with pytest.raises(ConfigError, match=words) as caught:
        load(tmp_path, text)
    assert "x.yaml" in str(caught.value)


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("seed", "must read key=value"),
        ("sede=1", "did you mean seed"),
        ("seed.deep=1", "cannot set a key inside a value, got seed.deep"),
        ("parts.4.rate=1", "no such list item, got parts.4"),
        ("parts.x.rate=1", "no such list item"),
        ("seed=[", "value is not YAML"),
    ],
)
def test_a_wrong_override_is_named(tmp_path, override, words):
    with pytest.raises(ConfigError, match=words):
        load(tmp_path, "output: o\nseed: 1\nparts: [{}]", override)


def test_files_that_are_missing_or_not_utf8_are_config_errors(tmp_path):
    with pytest.raises(ConfigError, match="no such config file"):
        read_yaml(tmp_path / "none.yaml")
    (tmp_path / "latin.yaml").write_bytes("output: caf\xe9".encode("latin-1"))
    with pytest.raises(ConfigError, match="UTF-8"):
        read_yaml(tmp_path / "latin.yaml")


def test_a_byte_order_mark_is_accepted(tmp_path):
    (tmp_path / "bom.yaml").write_bytes(b"\xef\xbb\xbfoutput: o")
    assert read_yaml(tmp_path / "bom.yaml") == {"output": "o"}


def test_defaults_are_those_of_the_dataclass():
    assert from_mapping(Config, {"output": "o"}, "here") == Config("o")
