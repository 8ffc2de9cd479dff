"""What a run asks of a Ray cluster, and the options that say so: apart, so that `--help` imports no torch."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

from ...core import ConfigError


@dataclass(frozen=True)
class RayWorkers:
    """What a run asks of the cluster.

    Attributes:
        actors: verifiers, each in a process of its own; (fewest, most) lets Ray add and remove them.
        gpus_each, cpus_each: of a verifier. A part of a GPU lets several share one.
        decoders: processes that decode at once, ahead of the verifiers; 0 leaves decoding to the verifiers.
        cpus_per_decoder: that Ray sets aside for each.
        address: of a cluster; None takes the one of RAY_ADDRESS, or starts a small one in this machine.
    """

    actors: int | tuple[int, int] = 1
    gpus_each: float = 0.0
    cpus_each: float = 1.0
    decoders: int = 1
    cpus_per_decoder: float = 1.0
    address: str | None = None

    def __post_init__(self) -> None:
        """`ConfigError` for a pool of nobody, or less than nothing of something."""
        fewest, most = self.pool
        if not 1 <= fewest <= most:
            raise ConfigError(f"actors: must be at least 1, fewest first, got {self.actors}; give N or (N, M)")
        for name in ("gpus_each", "cpus_each", "decoders", "cpus_per_decoder"):
            if getattr(self, name) < 0:
                raise ConfigError(f"{name}: must not be negative, got {getattr(self, name)}; 0 asks for none")

    @property
    def pool(self) -> tuple[int, int]:
        """Fewest and most actors."""
        return (self.actors, self.actors) if isinstance(self.actors, int) else self.actors

    @property
    def local_cpus(self) -> int:
        """Logical CPUs of a cluster started here: for everything at once, and two more to read and to write with."""
        return int(self.pool[1] * self.cpus_each + self.decoders * self.cpus_per_decoder) + 2


def add_ray_options(parser: argparse.ArgumentParser) -> None:
    """The options that `ray_workers` reads."""
    group = parser.add_argument_group("on a Ray cluster (--engine ray, docs/many-machines.md)")
    group.add_argument("--actors", default="1", metavar="N[:M]", help="verifiers at once; N:M, and Ray chooses")
    group.add_argument("--gpus-per-actor", type=float, default=0.0, help="of each verifier; 0.5: two share one")
    group.add_argument("--cpus-per-actor", type=float, default=1.0, help="that Ray sets aside for each verifier")
    group.add_argument("--decoders", type=int, default=1, help="processes that decode ahead; 0: verifiers decode")
    group.add_argument("--cpus-per-decoder", type=float, default=1.0, help="that Ray sets aside for each of them")
    group.add_argument("--ray-address", help="of the cluster; default: RAY_ADDRESS, or one in this machine")


def refuse_ray_options(args: argparse.Namespace) -> None:
    """`ConfigError` for options of a cluster that nothing would read, as the engine is another."""
    parser = argparse.ArgumentParser()
    add_ray_options(parser)
    for name, default in vars(parser.parse_args([])).items():
        if (given := getattr(args, name)) != default:
            option = "--" + name.replace("_", "-")
            raise ConfigError(f"{option}: is read by --engine ray only, got {given} with --engine {args.engine}")


def ray_workers(args: argparse.Namespace) -> RayWorkers:
    """What the options say; `ConfigError` for numbers that are none."""
    try:
        pool = [int(number) for number in args.actors.split(":")]
    except ValueError:
        pool = []
    if len(pool) not in (1, 2):
        raise ConfigError(f"--actors: must be N or N:M, got {args.actors!r}; e.g. 8, or 1:64")
    return RayWorkers(
        (pool[0], pool[-1]),
        args.gpus_per_actor,
        args.cpus_per_actor,
        args.decoders,
        args.cpus_per_decoder,
        args.ray_address,
    )
