"""Score a file of claims with a verifier or a cascade: one row out for every row in, in order, with its own columns.

proofreel score checkpoints/kitchen-verifier --claims claims.csv --media videos/ --out scored.csv
proofreel score hub/verifier --claims generations.json --media videos/ --transcripts subtitles/ --out scored.parquet
accelerate launch --num_processes 8 -m proofreel.score DIR --claims claims.parquet --media videos/ --out scored.parquet
accelerate launch --config_file configs/accelerate_machines.yaml proofreel/score.py DIR --claims ... (a shared disk)
proofreel score DIR --claims claims.parquet --out scored.parquet --engine ray --actors 8 --gpus-per-actor 1

Stopped at any moment and started again with the same words, by as many processes as you like, it goes on where it was.
The exit status is 0 if every row has a score, 3 if the file is written and some rows have none (under a launcher 0), 1
if it is not written.
"""

from __future__ import annotations

import argparse
import errno
import json
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proofreel.core import CommandParser, launched_as, place, written_to

if TYPE_CHECKING:
    from proofreel.eval.scoring import ClaimStore

SHOWN = 20  # bad rows and failures that are printed; all are in files
OUTPUTS = (".csv", ".jsonl", ".parquet")
SOME_WITHOUT_SCORE = 3  # exit status


def main(argv: Sequence[str] | None = None) -> int:
    """Read, score, write, and say what was bad; exit status 1 where nothing is written, 3 where rows have no score."""
    args = _parser().parse_args(argv)
    return written_to(args.out, partial(_score, args), args.overwrite, good=(0, SOME_WITHOUT_SCORE))


def _score(args: argparse.Namespace, out: Path) -> int:
    args.out = out
    rank, world_size = launched_as()

    from proofreel.core import ProofreelError, RowError, media_path

    claims = None
    try:
        _check_out(args.out)
        args.claims = media_path(args.claims, None)
        claims = _claims(args)
        if rank == 0:
            _list_rejected(args.out, claims)
        if claims.n_rejected and (args.strict or not claims.n_pairs):
            reason = "--strict allows none" if args.strict else "no row is left"
            raise RowError(f"{args.claims}: {claims.n_rejected} bad rows; {reason}")
        totals = _scored(args, claims)
    except ProofreelError as error:
        if claims is not None:
            claims.discard()
        print(f"error: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        print(f"error: {args.out}: the disk is full; free some space and run this again: it goes on", file=sys.stderr)
        return 1
    if totals is None:
        return 0
    n_bad, n_rows = claims.n_rejected, claims.n_items
    before = f"; {totals.n_found} of them scored before" if totals.n_found else ""
    n_scored = n_rows - totals.n_failed - n_bad
    print(f"wrote {args.out}: {n_rows} rows, {n_scored} scored, {totals.n_failed} failed, {n_bad} bad{before}")
    for pair_id, reason in totals.failures[:SHOWN]:
        print(f"  {pair_id}: {reason}")
    # a launcher would take any other status for a crash
    return SOME_WITHOUT_SCORE if world_size == 1 and totals.n_failed + n_bad else 0


def _check_out(out: Path) -> None:
    from proofreel.core import RowError

    if out.suffix not in OUTPUTS:
        raise RowError(f"{out}: is no kind of table that is written, got {out.suffix!r}; use one of {list(OUTPUTS)}")


def _parser() -> argparse.ArgumentParser:
    from proofreel.data_prep.exports import claim_formats
    from proofreel.eval.scoring import add_ray_options

    parser = CommandParser(prog="proofreel score", description=__doc__)
    parser.add_argument("directory", help="verifier or cascade directory, its address, or hub id")
    parser.add_argument(
        "--claims", required=True, help=".jsonl, .json, .csv, .parquet or a folder of tables; or an address"
    )
    parser.add_argument("--media", type=Path, help="folder that relative paths of videos and images start from")
    parser.add_argument("--out", type=place, required=True, help="file or address to write: .csv, .jsonl or .parquet")
    parser.add_argument("--outside-media", action="store_true", help="follow paths that lead out of --media, too")
    parser.add_argument("--format", choices=claim_formats(), help="of the claims; default: the first record's")
    parser.add_argument("--transcripts", type=Path, help="folder or JSON of transcripts, for MuRGAt's audio citations")
    parser.add_argument("--jointly", action="store_true", help="MiRAGE: all cited videos of a sentence as one evidence")
    parser.add_argument("--heard", action="store_true", help="MuRGAt, MiRAGE: audio citations and videos are heard")
    parser.add_argument("--strict", action="store_true", help="stop before scoring if any row is bad")
    parser.add_argument("--prior", type=float, help="share of supported claims where the answers are used")
    parser.add_argument("--operating-point", help="name of the threshold that labels; default: the shipped default")
    parser.add_argument(
        "--dtype", choices=["float32", "bfloat16", "float16"], help="of the weights; default: as trained"
    )
    parser.add_argument("--device", help="cpu, cuda, ...; default: a GPU if there is one, of several one per process")
    parser.add_argument("--revision", help="commit, tag or branch of a hub id")
    parser.add_argument("--base", type=Path, help="base checkpoint, if not where the directory says")
    parser.add_argument("--frame-cache", type=Path, help="folder that keeps decoded frames; decoders have a deadline")
    parser.add_argument("--batch-tokens", type=int, default=4096, help="most tokens of several segments in one forward")
    parser.add_argument("--rows-per-block", type=int, default=256, help="what an interruption may cost each process")
    parser.add_argument(
        "--untrained-evidence", action="store_true", help="also ask about kinds of evidence the verifier never saw"
    )
    parser.add_argument("--read-threads", type=int, help="segments decoded at once; default: one for each core")
    parser.add_argument("--no-merge", action="store_true", help="keep the adapter apart from the weights: slower")
    parser.add_argument("--overwrite", action="store_true", help="replace a file that holds something else")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    parser.add_argument(
        "--engine",
        choices=["own", "ray", "vllm"],
        default="own",
        help="who computes: this process, a cluster (docs/many-machines.md), or vLLM (docs/interchange.md)",
    )
    add_ray_options(parser)
    return parser


def _claims(args: argparse.Namespace) -> ClaimStore:
    """The claims on disk beside the output, read by whichever process comes first."""
    from proofreel.core import MediaError, RowError, own_version, source_digest
    from proofreel.data_prep.exports import format_of, rows_sha256, stream_claims
    from proofreel.eval.scoring import blocks_folder, store_claims

    if args.media is not None and not args.media.is_dir():
        raise MediaError(f"{args.media}: no such folder, got nothing under --media; check the path")
    if not args.claims.exists():
        raise RowError(f"{args.claims}: no such file, got nothing to read; check the path given with --claims")
    format = args.format or format_of(args.claims)
    prompts = _prompts(args) if format == "chat" else ()
    options: dict[str, Any] = {"jointly": args.jointly, "heard": args.heard}
    options["inside"] = None if args.outside_media else args.media
    claims = partial(stream_claims, args.claims, format, transcripts=args.transcripts, prompts=prompts, **options)
    args.rows_sha256 = rows_sha256(args.claims)
    key = {name: str(value) for name, value in options.items()} | {
        "rows_sha256": args.rows_sha256,
        "format": format,
        "transcripts": None if args.transcripts is None else source_digest(args.transcripts),
        "prompts": [prompt.sha256 for prompt in prompts],
        "version": own_version(),
    }
    return store_claims(
        blocks_folder(_predictions(args.out)),
        key,
        claims,
        rows_per_block=args.rows_per_block,
        progress=not args.quiet,
        tell=_tell,
    )


def _predictions(out: Path) -> Path:
    """A Parquet output is a file of predictions; beside another lies one, by which a later run knows its rows."""
    return out if out.suffix == ".parquet" else out.with_name(f"{out.name}.predictions.parquet")


def _tell(text: str) -> None:
    print(text, file=sys.stderr)


def _prompts(args: argparse.Namespace) -> tuple[Any, ...]:
    """The words of the verifier's own prompt: chat rows exported for it may have them."""

    from proofreel.models.cascades import is_cascade, read_cascade, stage_folder
    from proofreel.models.directory import find_verifier, read_directory

    folder = find_verifier(args.directory, args.revision)
    if is_cascade(folder):
        folder = stage_folder(folder, read_cascade(folder)[0].stages[-1])
    return (read_directory(folder).prompt,)


def _list_rejected(out: Path, claims: ClaimStore) -> None:
    """Print the first bad rows, and write all of them beside the output."""
    listed = out.with_name(f"{out.stem}.rejected.jsonl")
    listed.unlink(missing_ok=True)
    if claims.unused:
        print(f"note: columns that mean nothing here: {', '.join(claims.unused)}", file=sys.stderr)
    if not claims.n_rejected:
        return
    listed.parent.mkdir(parents=True, exist_ok=True)
    with listed.open("w", encoding="utf-8") as file:
        for number, r in enumerate(claims.rejected()):
            if number < SHOWN:
                print(f"bad row: {r}", file=sys.stderr)
            row = {"file": r.file, "line": r.line, "id": r.id, "kind": r.kind, "reason": r.reason}
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
    print(f"{claims.n_rejected} bad rows have no score, all in {listed}", file=sys.stderr)


def _scored(args: argparse.Namespace, claims: ClaimStore) -> Any:
    """Score the good rows, and write every row; what was scored, in the first process."""
    from proofreel.core import RowError
    from proofreel.data_prep.exports import given_rows
    from proofreel.eval.scoring import Share, judge_of_engine, score_in_bulk, with_every_row, write_scored_rows

    share, predictions = Share.of_launcher(), _predictions(args.out)
    is_parquet = predictions == args.out
    if args.out.exists() and not predictions.exists() and not args.overwrite:
        raise RowError(f"{args.out}: holds something else, got no {predictions.name}; name another file or --overwrite")
    with judge_of_engine(args, partial(_opened, args), args.media) as (verifier, elsewhere):
        for note in verifier.notes if share.rank == 0 else ():
            print(f"note: {note}", file=sys.stderr)
        totals = score_in_bulk(
            predictions,
            verifier,
            claims,
            {"claims": args.claims.name, "format": claims.format, "rejected": claims.n_rejected},
            share=share,
            operating_point=args.operating_point,
            progress=not args.quiet,
            overwrite=args.overwrite,
            tell=_tell,
            finish=(lambda tables: with_every_row(tables, given_rows(args.claims, claims))) if is_parquet else None,
            finish_source={"rows_sha256": args.rows_sha256},
            elsewhere=elsewhere,
        )
    if totals is not None and not is_parquet:
        write_scored_rows(args.out, predictions, given_rows(args.claims, claims))
    return totals


def _opened(args: argparse.Namespace, frame_cache: Any) -> Any:
    """The verifier or cascade, on this process's own device."""
    from proofreel.eval.scoring import own_device
    from proofreel.models.cascades import Cascade, is_cascade
    from proofreel.models.directory import find_verifier
    from proofreel.models.verifier import Verifier

    folder = find_verifier(args.directory, args.revision)
    options: dict[str, Any] = {} if args.base is None else {"base": args.base}
    verifier = (Cascade if is_cascade(folder) else Verifier).from_pretrained(
        folder,
        device=args.device or own_device(),
        dtype=args.dtype,
        media_root=args.media,
        frame_cache=frame_cache,
        prefix_cache_gib=0.0,  # all claims about a segment are asked together, and none later
        batch_tokens=args.batch_tokens,
        untrained_evidence=args.untrained_evidence,
        read_threads=args.read_threads,
        merge=not args.no_merge,
        **({"engine": "vllm"} if args.engine == "vllm" else {}),
        **options,
    )
    return verifier if args.prior is None else verifier.with_prior(args.prior)


if __name__ == "__main__":
    raise SystemExit(main())
