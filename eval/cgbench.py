"""CG-Bench: does a model answer questions about long videos from the right clues?

    proofreel cgbench --annotation cgbench_mini.json --predictions model.jsonl --out CGBENCH
    proofreel cgbench --annotation A.json --predictions one.jsonl two.jsonl --convention code --out CGBENCH
    proofreel cgbench --annotation A.json --predictions P.jsonl --verifier DIR --language-model lm.yaml --out CGBENCH

Predictions are JSON lines: qid, and what was asked: long and clue (letters), intervals ([[start_s, end_s], ...]), open
(words); docs/scores.md has all keys. Prints accuracies, CRR, mIoU, rec.@IoU and acc.@IoU with intervals over videos,
and differences of every two models. Open answers are judged in two steps: a language model, and where it needs the
video, a verifier on the clues. Writes OUT/result.json with every question.
"""

import argparse
import dataclasses
import itertools
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from proofreel.core import CommandParser


def main(argv: Sequence[str] | None = None) -> int:
    """Read, judge, score and print; the exit status is 1 if the input is at fault."""
    args = _parser().parse_args(argv)

    from proofreel.core import ProofreelError

    try:
        _run(args)
    except ProofreelError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    from proofreel.eval.scores import add_language_option, add_verifier_options

    parser = CommandParser(prog="proofreel cgbench", description=__doc__)
    parser.add_argument("--annotation", type=Path, required=True, help="the benchmark's questions, JSON")
    parser.add_argument("--predictions", type=Path, nargs="+", required=True, help="one file for each model")
    parser.add_argument("--names", nargs="+", help="of the models (default: of the files)")
    parser.add_argument("--convention", choices=["paper", "code"], default="paper", help="see docs/scores.md")
    parser.add_argument("--unit", choices=["video", "question"], default="video", help="what is resampled whole")
    parser.add_argument("--draws", type=int, default=10_000, help="resamples (default: 10000)")
    parser.add_argument("--extension", default=".mp4", help="of the video files (default: .mp4)")
    parser.add_argument("--out", type=Path, required=True, help="folder to write to")
    add_language_option(parser, "judges open answers first")
    add_verifier_options(parser)
    return parser


def _run(args: argparse.Namespace) -> None:
    from proofreel.core import ConfigError
    from proofreel.eval.scores import (
        cgbench_differences,
        cgbench_scores,
        read_predictions_of,
        read_questions,
        shown,
        write_result,
    )

    names = args.names or [path.stem for path in args.predictions]
    if len(set(names)) != len(args.predictions):
        raise ConfigError(f"--names: one different name for each file, got {names}; pass as many as files")
    questions = read_questions(args.annotation)
    models = {name: read_predictions_of(path) for name, path in zip(names, args.predictions, strict=True)}
    judged: dict[str, Any] = {}
    judges: dict[str, Any] = {}
    if args.verifier and args.language_model:
        for name, rows in models.items():
            models[name], judged[name], judges[name] = _judged(args, name, questions, rows)
    elif args.verifier or args.language_model:
        raise ConfigError("open answers: two judges are needed, got one; pass --language-model and --verifier")
    options = {"convention": args.convention, "unit": args.unit, "n_draws": args.draws}
    results = {name: cgbench_scores(questions, rows, **options) for name, rows in models.items()}
    print(f"Percent with 95 % intervals over {args.unit}s; convention of the {args.convention}.")
    for name, result in results.items():
        print(f"\n{name}: {len(questions)} questions, unreadable {result.n_unreadable}")
        for score, value in result.scores.items():
            print(f"  {score:<16} {shown(value)}")
        if name in judged:
            print(f"  needed the video {sum(each.first == 'need visual clue' for each in judged[name].values())}")
            print(f"  verifier: {judges[name]}")
    differences = {}
    for one, other in itertools.combinations(names, 2):
        differences[f"{one} - {other}"] = cgbench_differences(questions, models[one], models[other], **options)
        print(f"\n{one} - {other}")
        for score, value in differences[f"{one} - {other}"].items():
            print(f"  {score:<16} {shown(value)}")
    costs = {name: judge.counts for name, judge in judges.items()}
    result = {"models": results, "differences": differences, "open_answers": judged, "judging": costs}
    print(f"\nwrote {write_result(args.out, result)}")


def _judged(args: argparse.Namespace, name: str, questions: Any, rows: Any) -> tuple[Any, dict[str, Any], Any]:
    """The rows with a verdict on each open answer, the two steps by question, and the judge that counts."""
    from proofreel.eval.scores import CountedJudge, by_verifier, judge_open_answers, open_language_model, open_verifier

    by_qid = {question.qid: question for question in questions}
    asked = [row for row in rows if row.open is not None and row.qid in by_qid]
    model = open_language_model(args.language_model)
    out = args.out / f"predictions-{name}.parquet"
    judge = CountedJudge(by_verifier(open_verifier(args), out, args.operating_point))
    judged = judge_open_answers(
        [by_qid[row.qid] for row in asked],
        [row.open for row in asked],
        model,
        judge,
        model.config.concurrency,
        args.extension,
    )
    of = {row.qid: each for row, each in zip(asked, judged, strict=True)}
    lines = [
        dataclasses.replace(
            row,
            open_correct=of[row.qid].judgment.supported,
            failed=(*row.failed, "open") if of[row.qid].judgment.supported is None else row.failed,
        )
        if row.qid in of
        else row
        for row in rows
    ]
    return lines, of, judge


if __name__ == "__main__":
    raise SystemExit(main())
