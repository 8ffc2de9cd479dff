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

from proofreel.core import CommandParser, ProofreelError, require
from proofreel.server import Settings, limits

NEEDED = ("fastapi", "uvicorn", "prometheus_client")


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until a signal; exit status 1 if it cannot be begun."""
    args = _parser().parse_args(argv)
    try:
        require("serve", *NEEDED)

        from proofreel.server import cache_folder, check_exposure, load, own_names, run

        token = args.token or os.environ.get("PROOFREEL_TOKEN")
        check_exposure(args.host, token, args.no_token)
        hosts = (*own_names(args.host), *args.allowed_host)
        settings = Settings(token, hosts, **{n: getattr(args, n) for n in limits()})
        with cache_folder(args.frame_cache) as cache:
            how = {"device": args.device, "base": args.base, "untrained_evidence": args.untrained_evidence}
            how["merge"] = not args.no_merge
            run(load(args.directory, args.media_root, settings, cache, **how), args.host, args.port)
    except ProofreelError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    form = argparse.ArgumentDefaultsHelpFormatter
    parser = CommandParser(prog="proofreel serve", description=__doc__, formatter_class=form)
    parser.add_argument("directory", type=Path, help="verifier directory")
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
    parser.add_argument("--device", help="cpu, cuda, ...")
    parser.add_argument("--frame-cache", help="folder that keeps decoded frames; else a temporary one")
    parser.add_argument("--untrained-evidence", action="store_true", help="judge kinds of evidence not trained on, too")
    parser.add_argument("--no-merge", action="store_true", help="keep the adapter apart from the weights: slower")
    for name, (default, explanation) in limits().items():
        flag = f"--{name.replace('_', '-')}"
        parser.add_argument(flag, type=type(default), default=default, metavar="N", help=explanation)
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
