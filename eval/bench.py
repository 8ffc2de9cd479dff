"""Public benchmarks: VideoHallucer, TempCompass, ViLMA, HallusionBench, POPE, VSR, AMBER, each with its own score.

    proofreel bench videohallucer --annotations videohallucer_datasets --out BENCH
    proofreel bench pope --annotations pope --media val2014 --verifier DIR --out BENCH
    proofreel bench vsr --annotations vsr --media images --zero-shot endpoint.yaml --parts test --out BENCH
    proofreel bench all --annotations benchmarks --out BENCH

Without media it says what there is: counts, how questions became statements, and how far a text probe tells true
statements from false ones (`claim-only AUC`); `all` reads a folder for each benchmark and writes OUT/claim_only.md.
With --media and a judge it scores, writes predictions that a stopped run goes on from, and gives the benchmark's own
score, calibrated metrics, controls and an entry for a model card: OUT/NAME/result.json, card.md, statements.jsonl,
*.parquet, report/.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from proofreel.core import CommandParser

CONTROLS = ["claim-only", "mismatched-evidence"]


def main(argv: Sequence[str] | None = None) -> int:
    """Read, and score where there is media; the exit status is 1 if the input is at fault."""
    args = _parser().parse_args(argv)

    from proofreel.core import ProofreelError

    try:
        if args.benchmark == "all":
            _look_at_all(args)
        else:
            _run(args)
    except ProofreelError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    from proofreel.data_prep.benchmarks import BENCHMARKS
    from proofreel.eval.scores import add_verifier_options

    parser = CommandParser(prog="proofreel bench", description=__doc__)
    parser.add_argument("benchmark", choices=[*BENCHMARKS, "all"])
    parser.add_argument("--annotations", type=Path, required=True, help="folder of the published annotation files")
    parser.add_argument("--parts", nargs="+", default=[], help="only these parts (default: all)")
    parser.add_argument("--out", type=Path, required=True, help="folder to write to")
    parser.add_argument("--zero-shot", type=Path, metavar="CONFIG", help="YAML of an untrained model or an endpoint")
    parser.add_argument("--controls", nargs="*", choices=CONTROLS, default=CONTROLS, help="default: both")
    parser.add_argument("--partial", action="store_true", help="score what media is there; the rest is counted")
    parser.add_argument("--skip-damaged", action="store_true", help="go on without damaged records; they are counted")
    parser.add_argument("--draws", type=int, default=10_000, help="resamples (default: 10000)")
    parser.add_argument("--seed", type=int, default=0, help="of the text probe's folds (default: 0)")
    parser.add_argument("--batch-tokens", type=int, default=4096, help="most tokens in one forward (default: 4096)")
    parser.add_argument("--overwrite", action="store_true", help="replace files that hold other predictions")
    add_verifier_options(parser)
    return parser


def _look_at_all(args: argparse.Namespace) -> None:
    """Counts and claim-only AUC of every benchmark whose folder is there."""
    from proofreel.core import ConfigError, RowError
    from proofreel.data_prep.benchmarks import BENCHMARKS
    from proofreel.eval.benchmarks import claim_only, claim_only_table, counts_of, counts_text, read_statements
    from proofreel.eval.scores import write_result

    if args.media or args.verifier or args.zero_shot or args.parts:
        raise ConfigError(
            "bench all: only looks at annotations, got --media, --verifier, --zero-shot or --parts; name one"
        )
    there = {name: each for name, each in BENCHMARKS.items() if (args.annotations / name).is_dir()}
    if not there:
        raise RowError(
            f"{args.annotations}: no folder of a benchmark, got none of {list(BENCHMARKS)}; make one for each"
        )
    rows, result = [], {}
    for name, benchmark in there.items():
        pairs, damaged = read_statements(benchmark, args.annotations / name, (), args.skip_damaged)
        counts, probes = counts_of(pairs) | {"damaged": len(damaged)}, claim_only(pairs, args.seed)
        print(counts_text(benchmark, counts))
        rows += [(benchmark.title, probe) for probe in probes]
        result[name] = {"counts": counts, "claim_only": probes}
    absent = [name for name in BENCHMARKS if name not in there]
    table = claim_only_table(rows)
    print(f"\n{table}" + (f"\n\nnot there: {', '.join(absent)}" if absent else ""))
    print(f"\nwrote {write_result(args.out, result)}")
    (args.out / "claim_only.md").write_text(table + "\n", encoding="utf-8")


def _run(args: argparse.Namespace) -> None:
    """One benchmark: what there is, and with media and a judge its scores."""
    from proofreel.core import ConfigError
    from proofreel.data_prep.benchmarks import BENCHMARKS
    from proofreel.data_prep.dataset import write_pairs
    from proofreel.eval.benchmarks import (
        claim_only,
        claim_only_table,
        counts_of,
        counts_text,
        read_statements,
        with_media,
        without_files,
    )
    from proofreel.eval.scores import write_result

    benchmark = BENCHMARKS[args.benchmark]
    if args.verifier and args.zero_shot:
        raise ConfigError("bench: one judge at a time, got --verifier and --zero-shot; leave one out")
    if (args.verifier or args.zero_shot) and args.media is None:
        raise ConfigError(f"--media: no folder to look at, got none; {benchmark.name} needs {benchmark.media}")
    if args.media is not None and not args.media.is_dir():
        raise ConfigError(f"--media: no such folder, got {args.media}; {benchmark.name} needs {benchmark.media}")
    pairs, damaged = read_statements(benchmark, args.annotations, args.parts, args.skip_damaged)
    counts, probes = counts_of(pairs) | {"damaged": len(damaged)}, claim_only(pairs, args.seed)
    print(counts_text(benchmark, counts))
    print(f"\n{claim_only_table([(benchmark.title, probe) for probe in probes])}\n")
    result: dict[str, Any] = {"benchmark": benchmark.name, "counts": counts, "claim_only": probes}
    missing: list[str] = []
    if args.media is None:
        print(f"no media: scoring needs --media with {benchmark.media}, and --verifier or --zero-shot")
    else:
        missing = with_media(pairs, args.media)[1]
        first = f", the first {missing[0]}" if missing else ""
        print(f"media: {counts['files'] - len(missing)} of {counts['files']} files are there{first}")
    result["missing"] = missing
    if args.verifier or args.zero_shot:
        if missing and not args.partial:
            raise ConfigError(
                f"--media: files are missing, got {len(missing)} of {counts['files']}, the first {missing[0]}; the "
                f"folder needs {benchmark.media}; add them, or pass --partial to score the others"
            )
        kept = without_files(pairs, missing)
        if args.media is None or not kept:
            raise ConfigError(f"--media: none of the files is there, got {args.media}; it needs {benchmark.media}")
        notes = [f"Only {len(kept)} of {len(pairs)} statements: media is missing."] if len(kept) < len(pairs) else []
        notes += [f"{len(damaged)} damaged records left out."] if damaged else []
        notes += [f"Only the parts {', '.join(args.parts)}."] if args.parts else []
        result |= _scored(args, benchmark, with_media(kept, args.media)[0], probes[0], notes)
    folder = args.out / benchmark.name
    folder.mkdir(parents=True, exist_ok=True)
    write_pairs(folder / "statements.jsonl", with_media(pairs, args.media)[0] if args.media else pairs)
    print(f"\nwrote {write_result(folder, result)} and {folder / 'statements.jsonl'}")


def _scored(args: argparse.Namespace, benchmark: Any, pairs: list[Any], probe: Any, notes: list[str]) -> dict[str, Any]:
    """Scores of the judge and of each control; writes predictions, the card's entry and a report."""
    from proofreel.eval.benchmarks import PROTOCOLS, answers_of, card_entry, headline_text, scores_table
    from proofreel.eval.calibration import read_fitted_rows
    from proofreel.eval.reports import UNCALIBRATED, jsonable, make_report, measure, write_report
    from proofreel.eval.scoring import hide_evidence, mismatch_evidence, read_predictions
    from proofreel.models.decision import Judge

    folder = args.out / benchmark.name
    conditions = {"judge": pairs}
    conditions |= {"mismatched-evidence": mismatch_evidence(pairs)} if "mismatched-evidence" in args.controls else {}
    conditions |= {"claim-only": hide_evidence(pairs)} if "claim-only" in args.controls else {}
    systems, predictions, source = {}, {}, {}
    judge, model = _judge(args)
    decision = judge.decision
    decider = Judge(decision, args.operating_point)

    def decide(margin: float, pair: Any) -> bool:
        label = decider.verdict(margin, pair).label
        return margin >= 0 if label is None else label == "supported"

    for name, rows in conditions.items():
        path = folder / ("predictions.parquet" if name == "judge" else f"predictions-{name}.parquet")
        if name == "claim-only" and args.verifier:
            judge = None  # two would not fit where one just does
            judge, model = _judge(args, untrained=True)
        _score(
            args, judge, rows, path, {"benchmark": benchmark.name, "control": None if name == "judge" else name} | model
        )
        predictions[name], of_file = read_predictions(path)
        systems[name] = PROTOCOLS[benchmark.name](answers_of(rows, predictions[name], decide), args.draws)
        if name == "judge":
            source = of_file
    print(f"\n{scores_table(systems)}")
    numbers = measure(
        predictions["judge"],
        decision or UNCALIBRATED,
        source=source,
        fitted_rows=read_fitted_rows(args.verifier) if decision else None,
        controls=[(name, rows) for name, rows in predictions.items() if name != "judge"],
        title=benchmark.title,
    )
    print(f"\nover all statements: {headline_text(numbers['headline'])}")
    for note in notes:
        print(f"note: {note}")
    (folder / "card.md").write_text(card_entry(benchmark, systems, numbers["headline"], probe, notes), encoding="utf-8")
    print(f"wrote {folder / 'card.md'}")
    if decision:
        controls = [(name, folder / f"predictions-{name}.parquet") for name in conditions if name != "judge"]
        report = make_report(folder / "predictions.parquet", Path(args.verifier), controls, None, benchmark.title)
        print(f"wrote {write_report(folder / 'report', report)[0]}")
    return {"scores": systems, "metrics": jsonable(numbers), "notes": notes}


def _judge(args: argparse.Namespace, untrained: bool = False) -> tuple[Any, dict[str, Any]]:
    """Who answers; a verifier is let judge the sentence of the claim-only control, whatever it was trained on."""
    from proofreel.core import load_config
    from proofreel.eval.scores import open_verifier

    if args.verifier:
        allowed = argparse.Namespace(**{**vars(args), "untrained_evidence": args.untrained_evidence or untrained})
        return open_verifier(allowed), {}
    from proofreel.eval.scoring import own_device
    from proofreel.models.zero_shot import ZeroShotConfig, open_zero_shot

    config = load_config(ZeroShotConfig, args.zero_shot)
    judge, model = open_zero_shot(config, device=args.device or own_device(), batch_tokens=args.batch_tokens)
    return judge, {"model": model}


def _score(args: argparse.Namespace, judge: Any, pairs: list[Any], path: Path, source: dict[str, Any]) -> None:
    """Score into a file, statements about one evidence together, so that a pair is asked in one packed call."""
    from proofreel.eval.scoring import question_of, score_in_bulk

    summary = score_in_bulk(path, judge, pairs, question_of(judge) | source, overwrite=args.overwrite)
    if summary is None:
        return
    print(f"wrote {path}: {summary.n_rows} statements, {summary.n_failed} failed")
    for pair_id, reason in summary.failures:
        print(f"  {pair_id}: {reason}")


if __name__ == "__main__":
    raise SystemExit(main())
