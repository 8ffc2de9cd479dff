"""Does a score computed with a verifier rank systems as the score computed from people's labels does?

    python eval/agreement.py --claims claims.csv --verdicts 7b=seven.parquet:calibrated small=small.parquet --out OUT
    proofreel agreement --claims claims.jsonl --verdicts 7b=seven.parquet --cost 7b=0.4 --out OUT

The claims are a table (CSV, TSV, JSON, JSONL, Parquet, Arrow) with a row for each claim that people judged: `id`,
`topic`, `system` and `human` (true or false, 1 or 0, supported or refuted). Several systems may make one claim.
Verdicts are predictions files of the same ids (eval/predict.py, `proofreel score`), each with its calibration folder if
it has one; without, p >= 0.5 is supported.
Writes agreement.md, agreement.json and agreement.png: agreement of each verifier, and how accurate one must be.
docs/scores.md explains the numbers.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from proofreel.core import CommandParser

ACCURACIES = (0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.0)


def main(argv: Sequence[str] | None = None) -> int:
    """Parse, join, compare and write; the exit status is 1 if the input is at fault."""
    args = _parser().parse_args(argv)

    from proofreel.core import ProofreelError
    from proofreel.eval.scores import accuracy_curve, agreement, agreement_markdown, draw_agreement, read_judged_claims

    try:
        claims = read_judged_claims(args.claims)
        costs = dict(_cost(text) for text in args.cost)
        verdicts = dict(_verdicts(text, [claim.id for claim in claims]) for text in args.verdicts)
        if unknown := sorted(costs.keys() - verdicts.keys()):
            raise _refused(f"--cost: names no verifier of --verdicts, got {unknown}; use their names")
        results = {name: agreement(claims, answers) for name, answers in verdicts.items()}
        curve = accuracy_curve(claims, ACCURACIES)
        args.out.mkdir(parents=True, exist_ok=True)
    except ProofreelError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    text = agreement_markdown(results, curve, costs, args.unit)
    (args.out / "agreement.md").write_text(text, encoding="utf-8")
    (args.out / "agreement.json").write_text(_json(results, curve, costs, args.unit), encoding="utf-8")
    draw_agreement(args.out / "agreement.png", results, curve)
    print(text)
    print(f"wrote        {args.out / 'agreement.md'}, agreement.json, agreement.png")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = CommandParser(prog="proofreel agreement", description=__doc__)
    parser.add_argument("--claims", type=Path, required=True, help="table of claims that people judged")
    parser.add_argument(
        "--verdicts", nargs="+", required=True, metavar="NAME=FILE[:DIR]", help="predictions, and a calibration folder"
    )
    parser.add_argument("--cost", nargs="+", default=[], metavar="NAME=NUMBER", help="of a claim, to stand beside it")
    parser.add_argument("--unit", default="s", help="of these costs (default: s)")
    parser.add_argument("--out", type=Path, required=True, help="folder to write to")
    return parser


def _cost(text: str) -> tuple[str, float]:
    name, _, number = text.partition("=")
    try:
        return name, float(number)
    except ValueError:
        raise _refused(f"--cost: must read name=number, got {text!r}; e.g. 7b=0.4") from None


def _verdicts(text: str, ids: Sequence[str]) -> tuple[str, list[bool | None]]:
    """A verifier's name and its verdicts of the claims, None where it failed; all claims must have been scored."""
    from proofreel.eval.reports import read_contender

    contender = read_contender(text)
    scored = contender.scored
    rows = {prediction.pair_id: i for i, prediction in enumerate(scored.predictions)}
    if missing := [i for i in ids if i not in rows]:
        raise _refused(f"--verdicts: {contender.name} lacks {len(missing)} claims, e.g. {missing[0]!r}; score them all")
    threshold = scored.point.threshold
    return contender.name, [None if (p := scored.p[rows[i]]) != p else bool(p >= threshold) for i in ids]


def _json(results: dict[str, Any], curve: Sequence[Any], costs: dict[str, float], unit: str) -> str:
    from dataclasses import asdict

    from proofreel.eval.reports import jsonable

    verifiers = {name: asdict(result) | {"cost_per_claim": costs.get(name)} for name, result in results.items()}
    values = {"unit": unit, "verifiers": verifiers, "accuracy_curve": [asdict(point) for point in curve]}
    return json.dumps(jsonable(values), indent=1) + "\n"


def _refused(message: str) -> Exception:
    from proofreel.core import RowError

    return RowError(message)


if __name__ == "__main__":
    raise SystemExit(main())
