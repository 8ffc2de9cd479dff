"""OMD-Bench: what a model does when video, audio and text disagree, in all eight conditions of replaced channels.

    proofreel omd --answers gemini.jsonl qwen.jsonl --out OMD
    proofreel omd --verifier VERIFIER --anchors anchors.jsonl --media videos/ --out OMD
    proofreel omd --verifier HEARING --anchors anchors.jsonl --media videos/ --clips CLIPS --sound noise --out OMD

Answers are JSON lines, one for each question and condition: question, anchor, condition (C000 to C111), target, answer;
docs/scores.md has all keys. A verifier answers with the option it supports most, and abstains where it supports none;
its answers are written to OUT/answers-NAME.jsonl, and predictions are kept, so that a stopped run goes on. Prints the
paper's tables with intervals over seed questions, and writes OUT/result.json with every answer.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from proofreel.core import CommandParser


def main(argv: Sequence[str] | None = None) -> int:
    """Read or ask for answers, measure them and print; the exit status is 1 if the input is at fault."""
    args = _parser().parse_args(argv)

    from proofreel.core import ProofreelError
    from proofreel.eval.conflicts import omd_markdown, omd_result
    from proofreel.eval.scores import plain, write_result

    try:
        answers, judges = _answers(args)
        result = omd_result(answers, args.unit, args.draws)
        print(omd_markdown(result))
        for name, judge in judges.items():
            print(f"\n{name}: {judge}")
        costs = {name: judge.counts for name, judge in judges.items()}
        print(f"\nwrote {write_result(args.out, plain(result) | {'judging': costs})}")
    except ProofreelError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    from proofreel.eval.scores import add_verifier_options

    parser = CommandParser(prog="proofreel omd", description=__doc__)
    parser.add_argument("--answers", type=Path, nargs="+", default=[], help="files of answers, one for each model")
    parser.add_argument("--names", nargs="+", help="of the models, the verifier last (default: from the files)")
    parser.add_argument("--anchors", type=Path, help="anchors for the verifier, in the format `omdbench`")
    parser.add_argument("--transcripts", default="", help="folder or JSON of transcripts of anchors' audio files")
    parser.add_argument(
        "--heard", action="store_true", help="the audio channel is heard: audio files, or videos' sound"
    )
    parser.add_argument(
        "--clips",
        type=Path,
        metavar="FOLDER",
        help="write the pictures and sound of each condition into one clip there, and ask about it",
    )
    parser.add_argument(
        "--pictures",
        choices=["another", "black", "blurred"],
        help="of --clips where corrupted; default: another's",
    )
    parser.add_argument(
        "--sound", choices=["another", "removed", "noise"], help="of --clips where corrupted; default: another's"
    )
    parser.add_argument("--seed", type=int, default=0, help="draws what replaces a channel (default: 0)")
    parser.add_argument("--unit", choices=["question", "anchor"], default="question", help="what is resampled whole")
    parser.add_argument("--draws", type=int, default=10_000, help="resamples (default: 10000)")
    parser.add_argument("--out", type=Path, required=True, help="folder to write to")
    add_verifier_options(parser)
    return parser


def _answers(args: argparse.Namespace) -> tuple[dict[str, Any], dict[str, Any]]:
    """Answers by name of the model, and the verifier as a judge that counts."""
    from proofreel.core import ConfigError
    from proofreel.eval.conflicts import read_answers

    if bool(args.verifier) != bool(args.anchors) or not (args.answers or args.verifier):
        raise ConfigError("omd: answers, or a verifier with anchors, are needed; pass --answers, or both of the others")
    names = args.names or [path.stem for path in args.answers] + (["verifier"] if args.verifier else [])
    if len(set(names)) != len(args.answers) + bool(args.verifier):
        raise ConfigError(f"--names: one different name for each model, got {names}; pass as many as models")
    answers: dict[str, Any] = {name: read_answers(path) for name, path in zip(names, args.answers, strict=False)}
    judges = {}
    if args.verifier:
        answers[names[-1]], judges[names[-1]] = _ask(args, names[-1])
    return answers, judges


def _ask(args: argparse.Namespace, name: str) -> tuple[Any, Any]:
    """The verifier's answers, also written to a file that `--answers` reads; and who gave them."""
    from proofreel.core import RowError
    from proofreel.eval.conflicts import answers_by_judge
    from proofreel.eval.scores import CountedJudge, by_verifier, open_verifier, write_rows

    if not args.anchors.is_file():
        raise RowError(f"{args.anchors}: no such file, got nothing to read; check the path given with --anchors")
    pairs = _rows(args)
    if not pairs:
        raise RowError(f"{args.anchors}: no anchors, got an empty file; write one JSON object per line")
    verifier = open_verifier(args)
    threshold = 0.5 if verifier.decision is None else verifier.decision.point(args.operating_point).threshold
    judge = CountedJudge(by_verifier(verifier, args.out / f"predictions-{name}.parquet", args.operating_point))
    answers = answers_by_judge(judge, pairs, threshold)
    print(f"wrote {write_rows(answers, args.out / f'answers-{name}.jsonl')}")
    return answers, judge


def _rows(args: argparse.Namespace) -> list[Any]:
    """The anchors' rows in eight conditions, about their files as they are or about clips that are written now."""
    from proofreel.core import ConfigError, RowError
    from proofreel.data_prep.exports import Corruptions, write_conflict_clips
    from proofreel.data_prep.importers import OMDBenchOptions, Row, conflicting_rows

    if args.clips is not None:
        how = Corruptions(args.pictures or "another", args.sound or "another")
        return write_conflict_clips(args.anchors, args.clips, args.media, how, args.seed)
    if args.pictures or args.sound:
        raise ConfigError(f"--clips: needed to corrupt pictures and sound, got {args.pictures or args.sound}; name one")
    audio = "sound" if args.heard else "transcript"
    pairs = []
    for item in conflicting_rows(args.anchors, OMDBenchOptions(args.seed, args.transcripts, audio=audio)):
        if not isinstance(item, Row):
            raise RowError(str(item))
        pairs.append(item.pair)
    return pairs


if __name__ == "__main__":
    raise SystemExit(main())
