"""Options of a Ray cluster are refused where nothing reads them."""

from __future__ import annotations

import pytest

from proofreel.core import ConfigError
from proofreel.eval.scoring.ray_options import ray_workers, refuse_ray_options
from proofreel.score import _parser

COMMAND = ["DIR", "--claims", "claims.csv", "--out", "scored.parquet"]


@pytest.mark.parametrize("given", [("--actors", "8"), ("--gpus-per-actor", "1"), ("--ray-address", "auto")])
def test_an_option_of_ray_without_ray_is_an_error(given):
    with pytest.raises(ConfigError, match=f"{given[0]}: is read by --engine ray only"):
        refuse_ray_options(_parser().parse_args([*COMMAND, *given]))


def test_defaults_are_no_option_that_was_given():
    refuse_ray_options(_parser().parse_args(COMMAND))


@pytest.mark.parametrize(("actors", "pool"), [("8", (8, 8)), ("1:64", (1, 64))])
def test_numbers_of_actors(actors, pool):
    assert ray_workers(_parser().parse_args([*COMMAND, "--engine", "ray", "--actors", actors])).actors == pool


def test_an_actors_option_that_is_no_number():
    with pytest.raises(ConfigError, match="must be N or N:M, got 'many'"):
        ray_workers(_parser().parse_args([*COMMAND, "--engine", "ray", "--actors", "many"]))
