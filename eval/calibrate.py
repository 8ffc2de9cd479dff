"""Fit a calibration and thresholds on predictions of the calibration split.

    python eval/calibrate.py --predictions runs/demo/calibration.parquet --out runs/demo/calibrated
    proofreel calibrate --predictions runs/demo/calibration.parquet --out runs/demo/calibrated --method platt
    proofreel calibrate ... --objective f1 precision_at:0.95 cost:5:1 --per-group role --prior 0.1

Writes calibration.json and thresholds.json (what an exported verifier ships) and fitted_rows.json (ids and groups, with
which a report proves that its test rows were not fitted on).
"""

import argparse
import hashlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from proofreel.core import CommandParser


def main(argv: Sequence[str] | None = None) -> int:
    """Parse arguments, fit, write, and say what was fitted."""
    args = _parser().parse_args(argv)

    from proofreel.core import ProofreelError
    from proofreel.eval.calibration import (
        PerGroup,
        fit_decision,
        fit_folds,
        write_fitted_rows,
        write_folds_fitted,
    )
    from proofreel.eval.scoring import CROSS_FITTED, read_predictions, refuse_teacher_file
    from proofreel.models.decision import write_decision

    try:
        predictions, source = read_predictions(args.predictions)
        refuse_teacher_file(args.predictions, source)
        cross = source.get(CROSS_FITTED)
        fitted_on = {
            "split": "calibration" if cross is None else "out-of-fold",
            "predictions_sha256": hashlib.sha256(args.predictions.read_bytes()).hexdigest(),
            **(
                {"verifier_fingerprint": source.get("verifier_fingerprint")} if cross is None else {CROSS_FITTED: cross}
            ),
        }
        per_group = args.per_group and PerGroup(args.per_group, args.min_group_n)
        if cross is not None:
            _refuse_guarantees(args)
        decision = fit_decision(
            predictions,
            args.method,
            args.objective,
            fitted_on,
            where=str(args.predictions),
            per_group=per_group,
            prior=read_predictions(args.prior_from)[0] if args.prior_from else args.prior,
            aggregation=source.get("aggregation"),
            abstain=args.abstain,
            risks=args.control_risk,
            **({} if cross is None else {"splits": sorted(cross["folds"])}),
        )
        folds = {} if cross is None else fit_folds(predictions, args.method, per_group, decision, str(args.predictions))
    except ProofreelError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    paths = [*write_decision(args.out, decision), *write_folds_fitted(args.out, folds)]
    paths.append(write_fitted_rows(args.out, predictions))
    _say(decision, len(predictions))
    for path in paths:
        print(f"wrote        {path}")
    _say_next(args, source)
    return 0


def _refuse_guarantees(args: argparse.Namespace) -> None:
    """A guarantee is about the verifier that made the margins; of the last one, nobody has margins of unseen rows."""
    from proofreel.core import CalibrationError

    if args.control_risk or (args.abstain and len(args.abstain) > 2):
        raise CalibrationError(
            f"{args.predictions}: a guarantee holds for the verifier whose margins these are, got those of "
            "cross-fitted ones; leave --control-risk and guaranteed bands out, or calibrate on a split"
        )


def _say_next(args: argparse.Namespace, source: dict[str, Any]) -> None:
    """Report on the test split, which is to be scored first."""
    from proofreel.core import folder_beside, say_next

    test = args.predictions if "cross_fitted" in source else args.predictions.with_name("test.parquet")
    if test.is_file():
        say_next("report", "--predictions", test, "--calibration", args.out, "--out", test.with_name("report"))
        return
    verifier = folder_beside(test, "MANIFEST.sha256", source.get("verifier_fingerprint"), "VERIFIER")
    data = folder_beside(test, "manifest.json", source.get("manifest_sha256"), "DATA")
    say_next("predict", "--verifier", verifier, "--data", data, "--split", "test", "--out", test)


def _parser() -> argparse.ArgumentParser:
    from proofreel.models.decision import CALIBRATORS, GROUP_KEYS, RISKS, SIMPLE_CRITERIA

    parser = CommandParser(prog="proofreel calibrate", description=__doc__)
    parser.add_argument("--predictions", type=Path, required=True, help="Parquet of the calibration split")
    parser.add_argument("--out", type=Path, required=True, help="folder to write to")
    parser.add_argument(
        "--method", choices=["auto", *CALIBRATORS], default="auto", help="auto: by log-loss on groups held out"
    )
    parser.add_argument(
        "--objective",
        nargs="+",
        default=["f1"],
        help=f"what thresholds serve, the default one first: {', '.join(SIMPLE_CRITERIA)}, cost:FP:FN, precision_at:P, "
        "recall_at:R; the last two are reached on these rows, and guarantee nothing on others: see --control-risk",
    )
    parser.add_argument("--per-group", choices=GROUP_KEYS, help="correct the calibration for each value of a column")
    parser.add_argument("--min-group-n", type=int, default=100, help="rows a value needs for a correction of its own")
    parser.add_argument(
        "--abstain",
        type=_band,
        metavar="WHAT:TARGET",
        help="a band without verdicts: selective_accuracy:0.95 (cover as much as possible at this accuracy on these "
        "rows; guarantees nothing on others), selective_accuracy_guaranteed:0.95:0.1 (the same on other groups, as a "
        "mean over them, with chance 1 - 0.1) or max_abstention:0.2 (be as accurate as possible, abstaining on no "
        "more)",
    )
    parser.add_argument(
        "--control-risk",
        nargs="+",
        type=_risk,
        default=[],
        metavar="RISK:BOUND:DELTA",
        help=f"points with a guarantee over groups: one of {', '.join(RISKS)} at most BOUND with chance 1 - DELTA",
    )
    prior = parser.add_mutually_exclusive_group()
    prior.add_argument("--prior", type=float, help="positive rate to state probabilities for, inside (0, 1)")
    prior.add_argument("--prior-from", type=Path, help="predictions to estimate that rate from; labels are not used")
    return parser


def _band(text: str) -> Any:
    from proofreel.core import CalibrationError
    from proofreel.eval.decisions import parse_band

    try:
        return parse_band(text)
    except CalibrationError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _risk(text: str) -> tuple[str, float, float]:
    from proofreel.models.decision import RISKS

    words = text.split(":")
    if len(words) != 3 or words[0] not in RISKS:
        raise argparse.ArgumentTypeError(f"RISK:BOUND:DELTA with a risk of {list(RISKS)}, got {text!r}")
    return words[0], float(words[1]), float(words[2])


def unpromised(decision: Any) -> list[tuple[str, str]]:
    """Targets reached on the calibration rows alone: the name of each, and the option that promises it."""
    risks = {"precision_at": "false_discovery_rate", "recall_at": "miss_rate"}
    options = [
        (point.name, f"--control-risk {risks[point.objective]}:{1 - point.target:.4g}:0.1")
        for point in decision.points
        if point.objective in risks and point.target < 1
    ]
    if (band := decision.abstain) is not None and band.objective == "selective_accuracy" and band.target < 1:
        option = f"--abstain selective_accuracy_guaranteed:{band.target:.4g}:0.1"
        options.append((f"the abstain band's {band.objective}", option))
    return options


_FEW_VERDICTS = 20  # below, a precision that is out of reach is often met by chance, and its interval lies too high


def _say(decision: Any, n_rows: int) -> None:
    c, point = decision.calibration, decision.point()
    print(f"calibration  {c.describe()}")
    if choice := c.fitted_on.get("choice"):
        print(f"chosen       {choice['chosen']}: {choice['rule']}")
        for each in choice["candidates"]:
            print(f"  {each['method']:<18} {each['nll']:.5f} nats, difference ± {each['se_of_difference']:.5f}")
        for name, reason in choice["not_tried"].items():
            print(f"  {name:<18} not tried: {reason}")
    if gain := c.fitted_on.get("per_group"):
        print(f"per group    {gain['nll_without']:.5f} nats without, {gain['nll_with']:.5f} with (groups held out)")
        for value, reason in c.by_group.left.items():
            print(f"  {value:<18} keeps the overall map: {reason}")
    if estimate := c.fitted_on.get("prior_estimate"):
        state = "converged" if estimate["converged"] else "NOT CONVERGED"
        print(
            f"prior        {estimate['prior']:.4f} by EM on {estimate['n']} rows, {state} in {estimate['steps']} steps"
        )
        print("             holds if supported and other rows look as in the calibration split")
    print(f"fitted on    {c.n} of {n_rows} rows, {c.n_groups} groups, positive rate {c.positive_rate:.3f}")
    print(f"threshold    supported if p >= {point.threshold:.4f} ({point.name}: {point.metric:.3f})")
    for each in decision.points:
        if (promise := each.guarantee) is not None:
            chance = "on average" if promise.delta is None else f"with chance {1 - promise.delta:g}"
            print(f"guaranteed   {each.name}: p >= {each.threshold:.4f} keeps it to {promise.at_most:g} {chance},")
            print("             as a mean over groups: a video of 100 claims counts as one of 5")
    for each in decision.points:
        if each.objective == "precision_at" and (n := each.tp + each.fp) < _FEW_VERDICTS:
            print(f"WARNING      {each.name} rests on {n:.0f} supported verdicts, which may be right by chance")
    for name, promised in unpromised(decision):
        print(f"no promise   {name}: reached on these rows, about as often missed as kept on others")
        print(f"             with a promise: {promised}")
    if (band := decision.abstain) is not None:
        print(
            f"abstain      between {band.refute_at_or_below:.4f} and {band.support_at_or_above:.4f}: "
            f"{band.coverage:.1%} get a verdict, {band.selective_accuracy:.1%} of them right"
        )
        if (promise := band.guarantee) is not None:
            print(f"guaranteed   {band.target:g} of its verdicts on other groups, with chance {1 - promise.delta:g},")
            print("             are right, as a mean over groups that get a verdict")
    for caution in c.cautions():
        print(f"WARNING      {caution}")


if __name__ == "__main__":
    raise SystemExit(main())
