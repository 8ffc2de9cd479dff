"""Score one split of a data set with a verifier (uncalibrated or exported), or with an untrained model.

python eval/predict.py --verifier runs/demo/draft --data runs/demo/data --split test --out runs/demo/test.parquet
proofreel predict --verifier DIR --data DIR --split test --out test.parquet --controls mismatched-evidence
python eval/predict.py --zero-shot configs/teacher_endpoint.yaml --data DIR --split train --out teacher/train.parquet
accelerate launch --num_processes 8 eval/predict.py --zero-shot configs/teacher_72b_nf4.yaml --data DIR --split ...
proofreel predict --verifier DIR --data DIR --split test --out test.parquet --engine ray --actors 8 --gpus-per-actor 1

Stopped at any moment and started again with the same words, by as many processes as you like, it goes on where it was.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from proofreel.core import CommandParser, folder_here, place, written_to

CONTROLS = ["mismatched-evidence", "mismatched-sound", "no-sound", "zero-shot"]
_ALONE = ("no-sound", "zero-shot")  # by a verifier opened in another way


def main(argv: Sequence[str] | None = None) -> int:
    """Parse, score, write, and say how many rows failed."""
    args = _parser().parse_args(argv)
    return written_to(args.out, partial(_predict, args), args.overwrite)


def _predict(args: argparse.Namespace, out: Path) -> int:
    elsewhere, args.out = isinstance(args.out, str), out

    from proofreel.core import ProofreelError
    from proofreel.data_prep.dataset import read_split
    from proofreel.eval.scoring import hide_evidence

    try:
        _check(args)
        pairs = read_split(args.data, args.split)
        if args.claim_only:
            pairs = hide_evidence(pairs)
        _score(args, pairs, [None, *(c for c in args.controls if c not in _ALONE)])
        for control in (c for c in _ALONE if c in args.controls):
            _score(args, pairs, [control])
    except ProofreelError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if not elsewhere:
        _say_next(args)
    return 0


def _say_next(args: argparse.Namespace) -> None:
    """Calibrate on the calibration split, report on the test split, learn from a teacher on the train split."""
    from proofreel.core import say_next

    beside = args.out.parent / "calibrated"
    calibration = ("--calibration", beside if beside.is_dir() else "CALIBRATED")
    given = ("--predictions", args.out)
    if args.split == "train":
        say_next("teach", *given, *calibration, "--out", args.out.with_name("teacher.parquet"))
    elif args.split == "calibration":
        say_next("calibrate", *given, "--out", beside)
    else:
        say_next("report", *given, *calibration, "--out", args.out.parent / "report")


def _parser() -> argparse.ArgumentParser:
    parser = CommandParser(prog="proofreel predict", description=__doc__)
    judges = parser.add_mutually_exclusive_group(required=True)
    judges.add_argument("--verifier", type=folder_here, help="verifier directory, or its address")
    judges.add_argument(
        "--zero-shot",
        type=Path,
        metavar="CONFIG",
        help="YAML file of a model that is asked as it is: behind an endpoint, or a checkpoint (docs/teachers.md)",
    )
    parser.add_argument("--data", type=folder_here, required=True, help="data set that build wrote, or its address")
    parser.add_argument("--split", required=True, help="train, validation, calibration or test")
    parser.add_argument("--out", type=place, required=True, help="Parquet file to write, or its address")
    parser.add_argument(
        "--controls",
        nargs="+",
        choices=CONTROLS,
        default=[],
        help="score these as well, each into a file of its own beside --out: claims against another group's evidence; "
        "of the rows that hear, with another group's sound, or with none; the base alone, its adapter left out",
    )
    parser.add_argument(
        "--claim-only", action="store_true", help="hide the evidence (for a verifier trained with --claim_only true)"
    )
    parser.add_argument(
        "--untrained-evidence", action="store_true", help="also ask about kinds of evidence the verifier never saw"
    )
    parser.add_argument("--read-threads", type=int, help="segments decoded at once; default: one for each core")
    parser.add_argument("--no-merge", action="store_true", help="keep the adapter apart from the weights: slower")
    parser.add_argument(
        "--windowing",
        metavar="RULE:LENGTH_S:STRIDE_S",
        help="judge long videos in windows, e.g. max:8:4, noisy_or:8:4, mean_top_k:8:4:3; what is calibrated on these "
        "predictions is exported with it (default: as the verifier says)",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace a file that holds other predictions")
    _add_running(parser)
    return parser


def _add_running(parser: argparse.ArgumentParser) -> None:
    """How it runs, which changes no margin."""
    from proofreel.eval.scoring import add_ray_options

    parser.add_argument("--base", type=Path, help="base checkpoint, if not where the verifier says")
    parser.add_argument("--device", help="cpu, cuda, cuda:1, ...; default: a GPU if there is one, one per process")
    parser.add_argument(
        "--frame-cache", type=Path, help="folder that keeps decoded frames between runs; decoders then have a deadline"
    )
    parser.add_argument(
        "--vision-cache", type=Path, help="folder that keeps what the vision tower makes of frames between runs"
    )
    parser.add_argument(
        "--batch-tokens",
        type=int,
        default=4096,
        help="most tokens of several segments in one forward (default: 4096); more may be faster on a large GPU",
    )
    parser.add_argument(
        "--rows-per-block", type=int, default=256, help="what an interruption may cost each process (default: 256)"
    )
    parser.add_argument("--engine", choices=["own", "ray"], default="own", help="who computes: this process, a cluster")
    add_ray_options(parser)


def _check(args: argparse.Namespace) -> None:
    """Refuse a file that cannot be written, and what a zero-shot model has no place for."""
    from proofreel.core import ConfigError

    if args.out.is_dir() or args.out.suffix != ".parquet":
        raise ConfigError(f"--out: must be a Parquet file, got {args.out}; name it ....parquet")
    if args.zero_shot is None:
        return
    if args.engine == "ray":
        raise ConfigError("--engine: only --verifier is spread over a cluster, got ray; leave it out for --zero-shot")
    if args.base is not None:
        raise ConfigError(f"--base: the config names the checkpoint, got {args.base}; leave it out")
    if "zero-shot" in args.controls:
        raise ConfigError("--controls: the model has no adapter to leave out, got zero-shot; leave it out")


def _score(args: argparse.Namespace, pairs: list[Any], controls: Sequence[str | None]) -> None:
    """Score the pairs, and each control, into a file of its own, all of them by one model."""
    from proofreel.core import sha256_of
    from proofreel.eval.scoring import CONTROLS as CHANGED
    from proofreel.eval.scoring import Share, question_of, score_in_bulk

    with _judge(args, controls[0]) as (judge, model, elsewhere):
        for control in controls:
            rows = CHANGED[control](pairs) if control is not None and control in CHANGED else pairs
            source = (question_of(judge) if elsewhere is None else judge.question) | {
                "manifest_sha256": sha256_of(args.data / "manifest.json"),
                "control": "claim-only" if args.claim_only else control,
            }
            out = args.out if control is None else args.out.with_name(f"{args.out.stem}-{control}{args.out.suffix}")
            summary = score_in_bulk(
                out,
                judge,
                rows,
                source | ({"model": model} if model else {}),
                share=Share.of_launcher(),
                rows_per_block=args.rows_per_block,
                overwrite=args.overwrite,
                tell=lambda text: print(text, file=sys.stderr),
                elsewhere=elsewhere,
            )
            if summary is not None:
                _tell(out, summary)
        if hasattr(judge, "summary"):
            print(judge.summary(), file=sys.stderr)


@contextmanager
def _judge(args: argparse.Namespace, control: str | None) -> Iterator[tuple[Any, dict[str, Any] | None, Any]]:
    """Who answers, the name and revision of an untrained model, and what scores blocks elsewhere."""
    from proofreel.eval.scoring import judge_of_engine

    if args.zero_shot is not None:
        yield *_zero_shot(args), None
        return
    _warn_of_own_rows(args)
    with judge_of_engine(args, partial(_verifier, args, control), None) as (judge, elsewhere):
        yield judge, None, elsewhere


def _verifier(args: argparse.Namespace, control: str | None, frame_cache: Any) -> Any:
    """The verifier on this process's own device; of the control `zero-shot` the base, without its adapter.

    What is left without sound may be a kind of evidence that the verifier never saw: it is asked all the same.
    """
    from proofreel.eval.scoring import own_device
    from proofreel.models.verifier import Verifier

    verifier = Verifier.from_pretrained(
        args.verifier,
        device=args.device or own_device(),
        base=args.base,
        adapter=control != "zero-shot",
        frame_cache=frame_cache,
        vision_cache=args.vision_cache,
        prefix_cache_gib=0.0,  # all claims about a segment are asked together, and none later
        batch_tokens=args.batch_tokens,
        untrained_evidence=args.untrained_evidence or control == "no-sound",
        read_threads=args.read_threads,
        merge=not args.no_merge,
    )
    return verifier if args.windowing is None else verifier.with_windowing(args.windowing)


def _warn_of_own_rows(args: argparse.Namespace) -> None:
    from proofreel.data_prep.dataset import train_shards
    from proofreel.models.directory import trained_on

    if args.split == "train" and trained_on(args.verifier) == train_shards(args.data):
        print(
            "warning: the verifier was trained on these very rows, and is surer of them than of new ones, whatever its "
            "calibration: as a teacher it says little more of them than their labels do (docs/distillation.md)",
            file=sys.stderr,
        )


def _zero_shot(args: argparse.Namespace) -> tuple[Any, dict[str, Any]]:
    """Who answers, and the name and revision of the model."""
    from proofreel.core import ConfigError, load_config
    from proofreel.eval.scoring import own_device
    from proofreel.models.zero_shot import ZeroShotConfig, open_zero_shot

    config = load_config(ZeroShotConfig, args.zero_shot)
    if args.windowing is not None and config.endpoint is not None:
        raise ConfigError(f"--windowing: an endpoint judges evidence whole, got {args.windowing}; leave it out")
    judge, model = open_zero_shot(
        config,
        device=args.device or own_device(),
        frame_cache=_frame_cache(args),
        vision_cache=args.vision_cache,
        batch_tokens=args.batch_tokens,
    )
    if args.windowing is not None:
        judge = judge.with_windowing(args.windowing)  # type: ignore[union-attr]
    return judge, model


def _frame_cache(args: argparse.Namespace) -> Any:
    from proofreel.data_prep.media import FrameCache

    return FrameCache(args.frame_cache) if args.frame_cache else None


def _tell(out: Path, scored: Any) -> None:
    before = f", {scored.n_found} of them scored before" if scored.n_found else ""
    print(f"wrote {out}: {scored.n_rows} rows, {scored.n_failed} failed{before}")
    for pair_id, reason in scored.failures:
        print(f"  {pair_id}: {reason}")


if __name__ == "__main__":
    raise SystemExit(main())
