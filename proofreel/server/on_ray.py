"""A Ray Serve deployment of the server: replicas of the same service, on one machine or many.

    proofreel serve DIR --engine ray --replicas 2 --gpus-per-replica 1
    serve deploy examples/clusters/serve-config.yaml        # `app` below, by Ray's own configuration

Ray's proxy takes the connections and hands each request to a replica; the page, the limits and the answers are those of
`proofreel serve`. Of the counters, /metrics shows those of the replica that answers.
"""

from __future__ import annotations

import dataclasses
import math
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from proofreel.core import ConfigError, ProofreelError, is_address, optional_package
from proofreel.eval.scoring import ray_cluster

from .launch import Shared, load, swept
from .settings import Settings, limits

APP = "proofreel"
STARTS = 3
"""How often Ray tries to start a replica before it gives up."""


class ReplicasError(ProofreelError, RuntimeError):
    """Ray could not start the replicas."""


@dataclasses.dataclass(frozen=True)
class Replicas:
    """How many servers Ray keeps, and what each asks of the cluster.

    Attributes:
        number: of replicas; (fewest, most) lets Ray add and remove them with the load.
        gpus_each, cpus_each: of a replica. A part of a GPU lets several share one.
        address: of a cluster; None takes the one of RAY_ADDRESS, or starts a small one in this machine.
    """

    number: int | tuple[int, int] = 1
    gpus_each: float = 0.0
    cpus_each: float = 1.0
    address: str | None = None

    def __post_init__(self) -> None:
        """`ConfigError` for no replica, or less than nothing of something."""
        fewest, most = self.bounds
        if not 1 <= fewest <= most:
            raise ConfigError(f"replicas: must be at least 1, fewest first, got {self.number}; give N or N:M")
        for name in ("gpus_each", "cpus_each"):
            if getattr(self, name) < 0:
                raise ConfigError(f"{name}: must not be negative, got {getattr(self, name)}; 0 asks for none")

    @property
    def bounds(self) -> tuple[int, int]:
        """Fewest and most."""
        return (self.number, self.number) if isinstance(self.number, int) else self.number

    @property
    def local_cpus(self) -> int:
        """Logical CPUs of a cluster started here: for all replicas, and two more for what passes requests on."""
        return math.ceil(self.bounds[1] * self.cpus_each) + 2

    @property
    def elsewhere(self) -> bool:
        """Whether the cluster was there before and stays."""
        return bool(self.address or os.environ.get("RAY_ADDRESS"))

    def options(self, settings: Settings) -> dict[str, Any]:
        """Of a deployment."""
        fewest, most = self.bounds
        count: dict[str, Any] = {"num_replicas": fewest}
        if fewest != most:
            count = {"autoscaling_config": {"min_replicas": fewest, "max_replicas": most}}
        return count | {
            "ray_actor_options": {"num_cpus": self.cpus_each, "num_gpus": self.gpus_each},
            "max_ongoing_requests": settings.queue,  # each holds a claim: it is the server's own queue that says 429
            "max_constructor_retry_count": STARTS,
            "graceful_shutdown_timeout_s": settings.drain_s,
        }


class Replica:
    """One server of several, in a process of Ray's."""

    def __init__(
        self,
        directory: str,
        media_root: str | None,
        settings: Settings,
        cache: str,
        shared: Shared,
        how: dict[str, Any],
    ) -> None:
        Path(shared.uploads).mkdir(parents=True, exist_ok=True)
        self.service = load(directory, media_root, settings, cache, shared, **how)

    def __serve_build_asgi_app__(self) -> Any:
        """What Ray's replica answers with."""
        return self.service.app

    def check_health(self) -> None:
        """Ray starts a replica again whose network fails."""
        if not self.service.desk.healthy:
            raise RuntimeError("the network failed on several batches in a row")


def deployment(
    directory: str,
    media_root: str | None,
    settings: Settings,
    cache: str,
    replicas: Replicas,
    how: dict[str, Any],
) -> Any:
    """A Ray Serve application of a verifier's server; `how` goes to `Verifier.from_pretrained`.

    Frames and uploads lie in the folder `cache`: where replicas are on several machines, one that all of them see.
    """
    serve = optional_package("ray.serve", "--engine ray")
    wrapped = serve.deployment(serve.ingress()(Replica), name=APP).options(**replicas.options(settings))
    return wrapped.bind(directory, media_root, settings, cache, Shared.below(cache), how)


def app(args: Mapping[str, Any]) -> Any:
    """The application of a Ray Serve configuration file (`import_path: proofreel.server.on_ray:app`).

    Args:
        args: `directory` and `frame_cache`, which are required; `media_root`; `token`, else PROOFREEL_TOKEN of the
            environment, or `no_token: true`; `allowed_hosts` (a list; "*" if Ray's proxy is reached by any name), the
            limits of `proofreel serve` by their names, and `number` (N or [N, M]), `gpus_each` and `cpus_each` of the
            replicas. `how` holds further arguments of `Verifier.from_pretrained`.

    Raises:
        ConfigError: a key that means nothing, is missing, or holds what cannot be; or no token.
    """
    given = dict(args)
    settings = {name: given.pop(name) for name in limits() if name in given}
    asked = {name: given.pop(name) for name in ("number", "gpus_each", "cpus_each") if name in given}
    if isinstance(asked.get("number"), list):
        asked["number"] = tuple(asked["number"])
    named = {"directory", "frame_cache", "media_root", "token", "no_token", "allowed_hosts", "how"}
    if unknown := sorted({*given} - named):
        raise ConfigError(f"args: unknown key, got {unknown[0]}; known are {sorted(named)}, the limits, and replicas")
    if missing := [name for name in ("directory", "frame_cache") if not given.get(name)]:
        raise ConfigError(f"args: required, got no {missing[0]}; add it")
    token = given.get("token") or os.environ.get("PROOFREEL_TOKEN")
    if token is None and given.get("no_token") is not True:
        raise ConfigError(
            "args: others can reach Ray's proxy, got no token; add it, set PROOFREEL_TOKEN, or say no_token: true"
        )
    own = Settings(token, tuple(given.get("allowed_hosts", ())), **settings)
    where = given["directory"], given.get("media_root"), own, given["frame_cache"]
    return deployment(*where, Replicas(**asked), given.get("how", {}))


def run_on_ray(
    directory: str | Path,
    media_root: str | Path | None,
    settings: Settings,
    listening: tuple[str, int],
    frame_cache: str | None,
    replicas: Replicas,
    **how: Any,
) -> None:
    """Serve by replicas on a Ray cluster until SIGINT or SIGTERM; the address is printed once connections are taken.

    Raises:
        ConfigError: Ray is not installed, no cluster answers or it serves a verifier already, or several machines
            without `frame_cache`.
        ReplicasError: Ray could not start the replicas.
    """
    serve = optional_package("ray.serve", "--engine ray")
    if replicas.elsewhere and frame_cache is None:
        raise ConfigError("--engine ray: a cluster needs a folder that all replicas see, got no --frame-cache; name it")
    how = {name: whole(value) if name == "base" and value is not None else value for name, value in how.items()}
    with tempfile.TemporaryDirectory(prefix="proofreel-frames-") as own, swept(Path(own)):
        host, port = listening
        there, root = (None if path is None else whole(path) for path in (directory, media_root))
        application = deployment(str(there), root, settings, whole(frame_cache or own), replicas, how)
        with ray_cluster(replicas):
            stop = threading.Event()
            for number in (signal.SIGINT, signal.SIGTERM):  # now, as Ray has just set handlers of its own
                signal.signal(number, lambda *_: stop.set())
            serve.start(http_options={"host": host, "port": port})
            host, port = _listening(host, port)
            if APP in serve.status().applications:
                raise ConfigError(
                    f"--engine ray: a cluster serves one verifier, got the application {APP!r} there already; end it "
                    "first, or name another cluster"
                )
            try:
                _start(serve, application)
                print(f"serving {there} by {replicas.number} replicas on http://{host}:{port}", flush=True)
                stop.wait()
            finally:
                serve.delete(APP)
                if not replicas.elsewhere:  # a cluster may serve other applications
                    serve.shutdown()


def _listening(host: str, port: int) -> tuple[str, int]:
    """Where Ray's proxy takes connections: where other applications have had it started already, if there are any."""
    from ray.serve.context import _get_global_client  # nothing public says it

    client = _get_global_client()
    there = (host, port) if client is None else (client.http_config.host or host, client.http_config.port)
    if there != (host, port):
        already = f"{there[0]}:{there[1]} already, not on {host}:{port}"
        print(f"note: Ray Serve of this cluster listens on {already}", file=sys.stderr, flush=True)
    return there


def _start(serve: Any, application: Any) -> None:
    from ray.serve.exceptions import RayServeException

    try:
        serve.run(application, name=APP, route_prefix="/")
    except RayServeException as error:  # another application has our place
        raise ReplicasError(f"--engine ray: {str(error).strip().rpartition(chr(10))[2]}") from None
    except RuntimeError:
        states = serve.status().applications[APP].deployments.values()
        said = [state.message.strip().rpartition("\n")[2] for state in states]  # the error itself, below its traceback
        raise ReplicasError(f"--engine ray: replicas do not start, got {'; '.join(said)}") from None


def whole(path: str | Path) -> str:
    """A path as other processes find it; an address or a hub id stays as it is."""
    return str(Path(path).resolve()) if not is_address(str(path)) and Path(path).exists() else str(path)
