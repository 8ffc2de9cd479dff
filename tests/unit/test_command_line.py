"""A slip on a command line is one line that says what was meant; help lists keys; a missing config names what ships."""

import argparse
import ast
import dataclasses
import io
from contextlib import redirect_stderr, redirect_stdout
from importlib import import_module
from pathlib import Path
from typing import Literal

import pytest
import yaml

from proofreel.cli import COMMANDS, main
from proofreel.core import CommandParser, ConfigError, load_config, shipped_configs, unknown_option
from proofreel.core.command_line import attribute_texts, key_lines
from proofreel.data_prep.pipeline import BuildConfig

ROOT = Path(__file__).resolve().parents[2]
OF_KIND = {
    **{"build": "sources", "mine": "mining", "rounds": "rounds", "run": "build", "launch": "compute_environment"},
    **{"sft": "model_name_or_path", "nli": "model_name_or_path", "distill": "alpha", "teacher": "sampling"},
}


def outcome(*words):
    """Status, what was printed, and the errors."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            status = main(words)
        except SystemExit as end:
            status = end.code
    return status, out.getvalue(), err.getvalue()


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["biuld"], "build"),
        (["scroe", "x"], "score"),
        (["build", "--confg", "x"], "--config"),
        (["build", "--config", "x", "--skip_invalid"], "--skip-invalid"),
        (["score", "x", "--claim_file=y"], "--claims"),
        (["cascade", "fit", "--verifer", "x"], "--verifiers"),
        (["predict", "--verifeir", "x"], "--verifier"),
        (["sft", "--lerning_rate", "3"], "--learning_rate"),
        (["sft", "--claims-per-rows", "3"], "--claims-per-row"),
        (["distill", "--teachr", "x"], "--teacher"),
        (["nli", "--configg=x"], "--config"),
    ],
)
def test_a_slip_is_one_line_with_what_was_meant(words, meant):
    status, out, err = outcome(*words)
    assert status
    assert not out
    assert err.count("\n") == 1
    assert f"did you mean {meant}?" in err


@pytest.mark.parametrize("command", ["build", "mine", "rounds", "run", "sft", "nli", "distill"])
def test_a_missing_config_names_those_that_ship_on_one_line(command):
    status, _, err = outcome(command)
    assert status
    assert err.count("\n") == 1
    assert all(path.name in err for path in shipped_configs(command))


@pytest.mark.parametrize("kind", OF_KIND)
def test_what_ships_for_a_command_has_its_keys(kind):
    paths = shipped_configs(kind)
    assert paths
    for path in paths:
        keys = yaml.safe_load(path.read_text(encoding="utf-8"))
        assert OF_KIND[kind] in keys, path
        if kind in ("sft", "nli"):
            header = path.read_text(encoding="utf-8").partition("\nmodel_name")[0]
            assert f"train/{kind}.py" in header or f"script: {kind}" in header, path


def test_every_config_ships_for_one_command():
    assert sorted(p for kind in OF_KIND for p in shipped_configs(kind)) == shipped_configs()


def test_a_config_that_is_not_there_is_looked_for_among_those_that_ship():
    with pytest.raises(ConfigError, match=r"did you mean .*kitchen_build\.yaml, which ships"):
        load_config(BuildConfig, "elsewhere/kitchen_biuld.yml")
    with pytest.raises(ConfigError, match="check the path"):
        load_config(BuildConfig, "my.yaml")


@pytest.mark.parametrize("command", ["build", "mine", "rounds", "run"])
def test_help_lists_every_key(command):
    status, out, _ = outcome(command, "--help")
    assert status == 0
    for path in shipped_configs(command):
        for key in yaml.safe_load(path.read_text(encoding="utf-8")):
            assert f"  {key}" in out, (path, key)


@pytest.mark.parametrize("command", ["build", "mine", "rounds", "run"])
def test_help_says_of_every_key_what_it_is(command):
    keys = outcome(command, "--help")[1].partition("keys of the config, and their defaults:\n")[2].partition("\n\n")[0]
    lines = [line.strip() for line in keys.replace("\n      ", " ").splitlines()]
    assert len(lines) > 8
    assert [line for line in lines if ". " not in line] == []


@dataclasses.dataclass(frozen=True)
class Inner:
    """Inner.

    Attributes:
        size: of what is inside, in
            two lines.
        other, third: b: c.

    No attribute: this.
    """

    size: int
    other: Literal["a", "b"] = "a"


@dataclasses.dataclass(frozen=True)
class Outer:
    """Outer."""

    one: Inner
    several: tuple[Inner, ...] = ()
    perhaps: Inner | None = None
    word: str = ""
    flag: bool = True


def test_keys_are_listed_down_to_the_last_with_defaults_choices_and_what_they_mean():
    assert key_lines(Outer) == [
        "  one.size = REQUIRED. of what is inside, in two lines",
        "  one.other = a (a | b). b: c",
        "  several = []",
        "  several[].size = REQUIRED. of what is inside, in two lines",
        "  several[].other = a (a | b). b: c",
        "  perhaps.size = REQUIRED. of what is inside, in two lines",
        "  perhaps.other = a (a | b). b: c",
        '  word = ""',
        "  flag = true",
    ]
    assert attribute_texts(Outer) == {}


def test_what_argparse_takes_is_no_slip():
    known = ["-h", "--help", "--max-frames", "--out"]
    assert unknown_option(["--max", "3", "--out=x", "-5", "--", "--nothing"], known) is None
    assert unknown_option(["a claim -- with dashes", "--two words", "k=--v"], known) is None
    assert unknown_option(["--out-file=x"], known) == "unknown option, got --out-file; did you mean --out?"


def test_options_of_subcommands_are_known_and_errors_are_one_line(capsys):
    parser = CommandParser(prog="x")
    step = parser.add_subparsers(dest="step", required=True).add_parser("fit")
    step.add_argument("--depth", type=int)
    assert parser.parse_args(["fit", "--depth", "3"]).depth == 3
    with pytest.raises(SystemExit) as end:
        parser.parse_args(["fit", "--depth", "deep"])
    assert end.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_every_command_parses_with_our_parser():
    training = {"sft", "nli", "distill"}
    for name, (module, _) in COMMANDS.items():
        tree = ast.parse(Path(str(import_module(module).__file__)).read_text(encoding="utf-8"))
        made = {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
        assert "argparse.ArgumentParser" not in made, name
        assert ("CommandParser" in made) != (name in training), name
    assert issubclass(CommandParser, argparse.ArgumentParser)
