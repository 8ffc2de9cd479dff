"""Fit a cascade: a cheap verifier answers where it is sure, the next one where it is not. Report what that saves.

    python eval/cascade.py fit --verifiers VERIFIER VERIFIER --views frames:2 all --data DATA --out CASCADE
    proofreel cascade fit --verifiers small large --data DATA --out CASCADE --predictions small.parquet large.parquet
    proofreel cascade report --cascade CASCADE --data DATA --split test --out REPORT

`fit` scores the calibration split with every verifier, or takes their predictions of it (eval/predict.py), and writes a
cascade directory, which `proofreel score` and `Cascade.from_pretrained` open. `report` does the same with a split that
nothing was fitted on, and writes report.md and report.json. docs/cascade.md explains targets, costs and numbers.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from proofreel.core import CommandParser

UNITS = ["flops", "tokens", "visual_tokens"]


def main(argv: Sequence[str] | None = None) -> int:
    """Parse arguments, and run `fit` or `report`; the exit status is 1 if the input is at fault."""
    args = _parser().parse_args(argv)

    from proofreel.core import ProofreelError

    try:
        _fit(args) if args.step == "fit" else _report(args)
    except ProofreelError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = CommandParser(prog="proofreel cascade", description=__doc__)
    steps = parser.add_subparsers(dest="step", required=True, metavar="fit|report")
    fit = steps.add_parser("fit", help="verifiers and their calibration split -> cascade directory")
    fit.add_argument("--verifiers", type=Path, nargs="+", required=True, help="directories in order of cost, >= 2")
    fit.add_argument(
        "--views",
        nargs="+",
        metavar="VIEW",
        help="what each is shown: all, frames:2 (at most so many of a video), kinds:transcript,passage, or "
        "frames:2+kinds:video (default: all)",
    )
    _add_rows(fit, "calibration")
    fit.add_argument("--out", type=Path, required=True, help="cascade directory to write")
    fit.add_argument(
        "--target",
        default="auc_loss:0.005",
        help="auc_loss:X (cheapest with an AUC at most X below the last verifier's) or cost:X (best at no more than X "
        "of its cost); default: auc_loss:0.005",
    )
    fit.add_argument("--unit", choices=UNITS, default="flops", help="what costs are counted in (default: flops)")
    fit.add_argument(
        "--one-by-one", action="store_true", help="claims come one at a time: each pays for its evidence again"
    )
    fit.add_argument("--method", default="platt", help="calibration of every stage (default: platt)")
    fit.add_argument("--objective", nargs="+", default=["f1"], help="as for `proofreel calibrate`")
    fit.add_argument("--abstain", metavar="WHAT:TARGET", help="a band without verdicts, as for `proofreel calibrate`")
    fit.add_argument("--refer", action="store_true", help="write where the verifiers are instead of copying them")

    report = steps.add_parser("report", help="cascade directory and a held-out split -> report.md, report.json")
    report.add_argument("--cascade", type=Path, required=True, help="directory that `fit` wrote")
    report.add_argument("--split", default="test", help="split to report on (default: test)")
    _add_rows(report, "reported")
    report.add_argument("--out", type=Path, required=True, help="folder to write to")
    report.add_argument("--names", nargs="+", help="what the report calls each stage")
    report.add_argument("--title", default="Cascade", help="of the report")
    return parser


def _add_rows(parser: argparse.ArgumentParser, split: str) -> None:
    """Where the rows and the predictions of them come from, and how verifiers run."""
    parser.add_argument("--data", type=Path, required=True, help="data set folder written by data_prep/build.py")
    parser.add_argument(
        "--predictions",
        type=Path,
        nargs="+",
        help=f"Parquet of the {split} split by each verifier, in order (default: score it)",
    )
    parser.add_argument(
        "--scores", type=Path, help="folder for such files, so that a stopped run goes on (default: OUT-scores)"
    )
    parser.add_argument("--device", help="cpu, cuda, cuda:1, ...; default: a GPU if there is one")
    parser.add_argument(
        "--frame-cache", type=Path, help="folder that keeps decoded frames between runs; decoders then have a deadline"
    )
    parser.add_argument(
        "--untrained-evidence", action="store_true", help="also ask about kinds of evidence a verifier never saw"
    )


def _fit(args: argparse.Namespace) -> None:
    from proofreel.core import ConfigError, say_next
    from proofreel.eval.cascades import fit_cascade
    from proofreel.eval.decisions import parse_band
    from proofreel.models.cascades import Cascade, CascadeStage, View
    from proofreel.models.verifier import Verifier

    views = [View.parse(text) for text in args.views or ["all"] * len(args.verifiers)]
    if len(args.verifiers) < 2 or len(views) != len(args.verifiers):
        raise ConfigError(
            f"--verifiers: two or more, with as many --views, got {len(args.verifiers)} and {len(views)}; "
            "name a verifier twice to show it two views"
        )
    abstain = None if args.abstain is None else parse_band(args.abstain)
    if args.out.exists():
        raise ConfigError(f"--out: exists already, got {args.out}; choose another name or remove it")
    loaded = {path: Verifier.from_pretrained(path, **_options(args)) for path in dict.fromkeys(args.verifiers)}
    verifiers = [loaded[path] for path in args.verifiers]
    stages = [CascadeStage.of(*both) for both in zip(verifiers, views, strict=True)]
    predictions, costs, fitted_on = _rows(args, stages, "calibration")
    fitted = fit_cascade(
        predictions,
        costs,
        args.target,
        args.method,
        args.objective,
        unit=args.unit,
        together=not args.one_by_one,
        fitted_on=fitted_on,
        abstain=abstain,
    )
    cascade = Cascade(verifiers, views=views, plan=fitted.plan)
    path = cascade.save_pretrained(args.out, args.verifiers, inside=not args.refer)
    _say(fitted, args.unit)
    print(f"wrote        {path}")
    say_next("score", path, "--claims", "CLAIMS.csv", "--media", "VIDEOS", "--out", "scored.csv")


def _report(args: argparse.Namespace) -> None:
    from proofreel.core import ConfigError
    from proofreel.eval.cascades import markdown, measure, write_cascade_report
    from proofreel.models.cascades import Cascade

    if args.split == "calibration":
        raise ConfigError("--split: the cascade was fitted on this one, got calibration; report on another")
    cascade = Cascade.from_pretrained(args.cascade, **_options(args))
    names = args.names or [f"stage {i} ({stage.view.describe()})" for i, stage in enumerate(cascade.stages)]
    if len(names) != len(cascade.stages):
        raise ConfigError(f"--names: one for each of {len(cascade.stages)} stages, got {names}; give as many")
    predictions, costs, _ = _rows(args, cascade.stages, args.split)
    numbers = measure(cascade.plan, predictions, costs, names)
    paths = write_cascade_report(args.out, numbers, args.title)
    print(markdown(numbers, args.title))
    for path in paths:
        print(f"wrote {path}")


def _options(args: argparse.Namespace) -> dict[str, Any]:
    """How verifiers are loaded. Nothing is asked twice, so no evidence is kept in memory."""
    from proofreel.data_prep.media import FrameCache

    frames = FrameCache(args.frame_cache) if args.frame_cache else None
    common = {"device": args.device, "untrained_evidence": args.untrained_evidence}
    return common | {"frame_cache": frames, "prefix_cache_gib": 0.0}


def _rows(args: argparse.Namespace, stages: Sequence[Any], split: str) -> tuple[list[Any], list[Any], dict[str, Any]]:
    """Predictions and costs of each stage over a split, and where the rows come from."""
    from proofreel.core import sha256_of
    from proofreel.data_prep.dataset import read_split
    from proofreel.eval.cascades import costs_of, read_stages, score_stages

    pairs = read_split(args.data, split)
    source = {"manifest_sha256": sha256_of(args.data / "manifest.json")}
    if args.predictions:
        predictions = read_stages(args.predictions, stages, pairs)
    else:
        folder = args.scores or args.out.with_name(f"{args.out.name}-scores")
        predictions = score_stages(stages, pairs, folder, source)
    return predictions, [costs_of(stage, pairs) for stage in stages], {"split": split} | source


def _say(fitted: Any, unit: str) -> None:
    """The chosen candidate among every fifth of the others, and the default threshold."""
    others = sorted(fitted.candidates, key=lambda c: c.risk)[::5]
    for each in sorted({*others, fitted.chosen}, key=lambda c: c.risk):
        shares = ", ".join(f"{share:.1%}" for share in each.answered)
        mark = "  <- chosen" if each == fitted.chosen else ""
        print(f"risk {each.risk:+.4f}  AUC {each.auc:.4f}, {unit} {each.cost:.1%}, answered {shares}{mark}")
    decision = fitted.plan.decision
    point = decision.point()
    print(f"fitted on    {decision.calibration.n} rows, {decision.calibration.n_groups} groups")
    print(f"threshold    supported if p >= {point.threshold:.4f} ({point.name}: {point.metric:.3f})")


if __name__ == "__main__":
    raise SystemExit(main())
