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
            run_workers,
        )

        token = args.token or os.environ.get("PROOFREEL_TOKEN")
        check_exposure(args.host, token, args.no_token)
        hosts = (*own_names(args.host), *args.allowed_host)
        settings = Settings(token, hosts, **{n: getattr(args, n) for n in limits()})
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
    for name, (default, explanation) in limits().items():
        flag = f"--{name.replace('_', '-')}"
        parser.add_argument(flag, type=type(default), default=default, metavar="N", help=explanation)
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
