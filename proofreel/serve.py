"""Serve a verifier over HTTP, with a page for people. Needs the extra: pip install "proofreel[serve]".

proofreel serve checkpoints/kitchen-verifier --media-root examples/kitchen
PROOFREEL_TOKEN=SECRET proofreel serve DIR --media-root videos --host 0.0.0.0 --allowed-host judge.example.org
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from proofreel.core import CommandParser, ConfigError, ProofreelError, place, require
from proofreel.server import Settings, limits

RAY_OPTIONS = {"replicas": "1", "gpus_per_replica": 0.0, "cpus_per_replica": 1.0, "ray_address": None}
NEEDED = ("fastapi", "uvicorn", "prometheus_client")


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until a signal; exit status 1 if it cannot be begun."""
    args = _parser().parse_args(argv)
    try:
        require("serve", *NEEDED)

        from proofreel.server import (
            WORKER,
            Post,
            cache_folder,
            check_exposure,
            load,
            own_names,
            run,
            run_on_ray,
            run_workers,
        )

        token = args.token or os.environ.get("PROOFREEL_TOKEN")
        check_exposure(args.host, token, args.no_token)
        hosts = (*own_names(args.host), *args.allowed_host)
        settings = Settings(token, hosts, **{n: getattr(args, n) for n in limits()})
        if args.engine == "ray":
            if args.workers > 1 or args.port == 0:
                raise ConfigError(
                    "--engine ray: Ray starts the processes, got --workers or --port 0; use --replicas and a port"
                )
            where = (args.host, args.port), args.frame_cache, _replicas(args)
            run_on_ray(args.directory, args.media_root, settings, *where, device=args.device, **_how(args))
            return 0
        for name, default in RAY_OPTIONS.items():
            if (got := getattr(args, name)) != default:
                raise ConfigError(f"--{name.replace('_', '-')}: is read by --engine ray only, got {got}; add that")
        if args.workers < 1:
            raise ConfigError(f"--workers: must be at least 1, got {args.workers}; one serves alone")
        if args.workers > 1 and WORKER not in os.environ:
            run_workers(sys.argv[1:] if argv is None else argv, args.workers, args.host, args.port, args.frame_cache)
            return 0
        if (post := Post.of_environment()) is not None:
            how = {"device": post.device(args.device), **_how(args)}
            post.serve(load(args.directory, args.media_root, settings, post.cache, post.shared, **how))
            return 0
        with cache_folder(args.frame_cache) as cache:
            how = {"device": args.device, **_how(args)}
            run(load(args.directory, args.media_root, settings, cache, **how), args.host, args.port)
    except ProofreelError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _replicas(args: argparse.Namespace) -> Any:
    from proofreel.server import Replicas

    numbers = args.replicas.split(":")
    if not all(number.isdecimal() for number in numbers) or len(numbers) > 2:
        raise ConfigError(f"--replicas: must be N or N:M, got {args.replicas!r}; e.g. 8, or 1:8")
    asked = int(numbers[0]) if len(numbers) == 1 else (int(numbers[0]), int(numbers[1]))
    return Replicas(asked, args.gpus_per_replica, args.cpus_per_replica, args.ray_address)


def _how(args: argparse.Namespace) -> dict[str, Any]:
    return {"base": args.base, "untrained_evidence": args.untrained_evidence, "merge": not args.no_merge}


def _parser() -> argparse.ArgumentParser:
    form = argparse.ArgumentDefaultsHelpFormatter
    parser = CommandParser(prog="proofreel serve", description=__doc__, formatter_class=form)
    parser.add_argument("directory", type=place, help="verifier directory, or its address")
    parser.add_argument(
        "--media-root",
        type=Path,
        help="folder outside of which no file is read; none: only texts and uploads are judged",
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    parser.add_argument("--port", type=int, default=8000, help="0 takes a free one")
    parser.add_argument("--token", help="what requests must carry; better given as PROOFREEL_TOKEN, unseen by ps")
    parser.add_argument("--no-token", action="store_true", help="let in everybody who reaches --host, without a token")
    parser.add_argument(
        "--allowed-host",
        action="append",
        default=[],
        metavar="NAME",
        help="name by which requests call this server, besides localhost and --host; again for another; * for any",
    )
    parser.add_argument("--base", type=Path, help="base checkpoint, if not where the directory says")
    parser.add_argument("--device", help="cpu, cuda, ...; of several GPUs each worker takes one")
    parser.add_argument("--workers", type=int, default=1, help="processes that serve on the one port")
    parser.add_argument("--frame-cache", help="folder that keeps decoded frames; else a temporary one")
    parser.add_argument("--untrained-evidence", action="store_true", help="judge kinds of evidence not trained on, too")
    parser.add_argument("--no-merge", action="store_true", help="keep the adapter apart from the weights: slower")
    ray = parser.add_argument_group("on a Ray cluster (docs/many-machines.md)")
    ray.add_argument("--engine", choices=["own", "ray"], default="own", help="who starts the processes: Ray Serve, too")
    ray.add_argument("--replicas", default=RAY_OPTIONS["replicas"], metavar="N[:M]", help="N:M, and Ray chooses")
    ray.add_argument("--gpus-per-replica", type=float, default=0.0, help="of each; 0.5: two share one")
    ray.add_argument("--cpus-per-replica", type=float, default=1.0, help="that Ray sets aside for each")
    ray.add_argument("--ray-address", help="of the cluster; else RAY_ADDRESS, or one is started in this machine")
    for name, (default, explanation) in limits().items():
        flag = f"--{name.replace('_', '-')}"
        parser.add_argument(flag, type=type(default), default=default, metavar="N", help=explanation)
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
