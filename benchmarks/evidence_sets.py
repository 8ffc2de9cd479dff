"""Sets of citations of which some support a claim and the others have nothing to do with it, on the kitchen's clips.

    python -m benchmarks.evidence_sets --media DIR [--verifiers DIR ...] [--windowings whole mean_top_k:1.25:0.125:7]
        [--sets 100] [--seeds 1300 1301 1302 1303] [--prompts 15] [--out FILE]

Of sets of 1, 3 and 8 clips, half hold one that supports the claim, the others none, in a drawn order. A set is exactly
right where recall, every `relevant` and every `necessary` are. By `one_prompt` all clips are asked about at once, by
`pieces` the surest clip counts, by `largest` the surest of both. As stored: labels by the verifier's own operating
point, which was fitted to near misses of single clips. Otherwise calibration and threshold are fitted to the clips of
drawn sets of the calibration split, for clips judged whole or by the mean of overlapping windows.
"""

from __future__ import annotations

import argparse
import copy
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.pages import made_on, publish
from examples.kitchen.encoding import write_video
from examples.kitchen.filming import film, plan_clips
from examples.kitchen.sampling import FPS
from examples.kitchen.vocabulary import conceptual, contextual
from proofreel.core import VideoSegment
from proofreel.data_prep.importers import conceptual_claim, contextual_claim
from proofreel.eval.calibration import fit_calibration, fit_sets
from proofreel.eval.decisions import fit_points
from proofreel.eval.metrics import ece_event, roc_auc
from proofreel.models.decision import Decision
from proofreel.models.verifier import Attributed, AttributionPairs, CitedClaim, SetCalibration, SetRule, Verifier

VERIFIER = Path(__file__).resolve().parents[1] / "checkpoints" / "kitchen-verifier"
SIZES = (1, 3, 8)
FIT_SIZES = (1, 2, 3, 5, 8)
TARGET = "cost:2:1"
"""Each clip of the company is a chance of a false alarm, so one counts twice a miss."""
WHOLE = "whole"
PIECES: SetRule = "pieces"

Clips = dict[VideoSegment, set[str]]
Sets = list[tuple[CitedClaim, list[bool]]]


class Judging(NamedTuple):
    """Rows of the table: who judges, by which rules (scored once for all), and on how many sets of each seed."""

    name: str
    verifier: Verifier
    rules: tuple[SetRule, ...]
    n_sets: int


def clips(media: Path, split: str, seed: int, n: int) -> Clips:
    """Clips and the claims that are true of each; rendered, in a folder of their seed, where they are missing."""
    claims = {}
    for video in plan_clips(seed, split, n):
        path = f"{seed}/{video.path}"
        if not (media / path).is_file():
            write_video(media / path, film(video), FPS)
        facts = video.steps[0].scene.facts
        true = {conceptual_claim(*fact) for fact in conceptual(facts).items()}
        claims[VideoSegment(path)] = true | {contextual_claim(phrase) for phrase in contextual(facts).values()}
    return claims


def drawn(of: Clips, size: int, n_sets: int, seed: int) -> Sets:
    """Claims that cite `size` clips, and which of them support each: one in every other set."""
    rng, sets = np.random.default_rng([seed, size]), []
    everything, known = list(of), sorted(set().union(*of.values()))
    while len(sets) < n_sets:
        claim, n_true = known[rng.integers(len(known))], 1 - len(sets) % 2
        true, false = ([c for c in everything if (claim in of[c]) == holds] for holds in (True, False))
        if len(true) < n_true or len(false) < size - n_true:
            continue
        cited = [true[i] for i in rng.choice(len(true), n_true, replace=False)]
        cited += [false[i] for i in rng.choice(len(false), size - n_true, replace=False)]
        cited = [cited[i] for i in rng.permutation(size)]
        sets.append((CitedClaim(claim, cited), [claim in of[clip] for clip in cited]))
    return sets


def exactly(found: Attributed, holds: list[bool]) -> tuple[bool, bool, bool]:
    """Whether recall, all `relevant` and all `necessary` are right."""
    needed = [each and sum(holds) == 1 for each in holds]
    return (found.recall.label == "supported") == any(holds), found.relevant == (*holds,), found.necessary == (*needed,)


def fitted(verifier: Verifier, of: Clips, n_sets: int) -> tuple[Verifier, SetCalibration, str]:
    """The verifier with calibration and threshold of the clips of drawn sets, and the calibration of sets; a note."""
    sets = [each for size in FIT_SIZES for each in drawn(of, size, n_sets, seed=1)]
    found = verifier.attribute_many([claim for claim, _ in sets], sets=PIECES)
    rows = [
        (cite.alone.margin, holds, cite.evidence)
        for each, (_, all_hold) in zip(found, sets, strict=True)
        for cite, holds in zip(each.citations, all_hold, strict=True)
        if cite.alone is not None
    ]
    margins, labels = np.array([row[0] for row in rows]), np.array([float(row[1]) for row in rows])
    groups = np.array([row[2].path for row in rows if isinstance(row[2], VideoSegment)])
    aggregation = None if verifier.windowing is None else verifier.windowing.rule
    calibration = fit_calibration(margins, labels, "platt", groups, aggregation=aggregation)
    points = fit_points(calibration.predict(margins), labels, groups, [TARGET])
    other = copy.copy(verifier)
    other.decision = Decision(calibration, points, points[0].name)
    calibration_of_sets = fit_sets(found, [any(holds) for _, holds in sets])
    note = (
        f"AUC of {len(margins)} clips in the fitted sets {roc_auc(margins, labels):.4f}; threshold "
        f"{points[0].threshold:.3f}; sets: slope {calibration_of_sets.slope:.3f}, intercept "
        f"{calibration_of_sets.intercept:.3f}, {calibration_of_sets.per_log_n:.3f} per log(n)"
    )
    return other, calibration_of_sets, note


def rows_of(judging: Judging, size: int, tests: Sequence[tuple[int, Clips]]) -> list[str]:
    """A row for each rule: means over the seeds' sets, and the lowest and highest seed of those exactly right."""
    if size == 1 and PIECES not in judging.rules:
        return []  # of a single clip all rules say the same
    right: dict[str, list[list[tuple[bool, bool, bool]]]] = {rule: [] for rule in judging.rules}
    supports: list[list[bool]] = []
    for seed, of in tests:
        sets = drawn(of, size, judging.n_sets, seed)
        claims, reader = [claim for claim, _ in sets], judging.verifier.reader
        asked = {rule: AttributionPairs(claims, reader, rule) for rule in judging.rules}
        verdicts = judging.verifier.score_pairs([(p.claim, p.evidence) for p in asked[judging.rules[0]].pairs])
        for rule, pairs in asked.items():
            found = pairs.attributions(verdicts)
            right[rule].append([exactly(each, holds) for each, (_, holds) in zip(found, sets, strict=True)])
        supports.append([any(holds) for _, holds in sets])
    return [_row(judging, size, rule, np.array(right[rule]), np.array(supports)) for rule in judging.rules]


def _row(judging: Judging, size: int, rule: SetRule, right: np.ndarray, support: np.ndarray) -> str:
    """`right` of shape (seeds, sets, 3), `support` of shape (seeds, sets)."""
    exact = np.asarray(right.all(axis=2))
    shares = [*right.mean(axis=(0, 1)), exact[support].mean(), exact[~support].mean(), exact.mean()]
    cells = " | ".join(f"{100 * share:.0f} %" for share in shares)
    spread = " to ".join(f"{100 * share:.0f}" for share in (exact.mean(axis=1).min(), exact.mean(axis=1).max()))
    return f"| {size} | {judging.name} | `{rule}` | {exact.size} | {cells} | {spread} % |"


def probabilities(verifier: Verifier, of: Clips, calibration: SetCalibration) -> list[str]:
    """What the calibration of sets is worth, on sets judged from single clips."""
    lines = [
        "| clips | calibration error | with sets calibrated | Brier score | with sets calibrated |",
        "|---|---|---|---|---|",
    ]
    for size in SIZES[1:]:
        sets = drawn(of, size, 200, seed=3)
        found = [a.recall for a in verifier.attribute_many([claim for claim, _ in sets], sets=PIECES)]
        y = np.array([float(any(holds)) for _, holds in sets])
        p = np.array([each.p_supported for each in found])
        after = calibration.predict([each.margin for each in found], np.full(len(found), size))
        numbers = [ece_event(p, y), ece_event(after, y), np.mean((p - y) ** 2), np.mean((after - y) ** 2)]
        lines.append(f"| {size} | " + " | ".join(f"{x:.3f}" for x in numbers) + " |")
    return lines


def judgings(path: Path, args: argparse.Namespace, fit: Clips, probed: Clips) -> tuple[list[Judging], list[str]]:
    """The rows of one verifier, and lines on what was fitted for it."""
    verifier = Verifier.from_pretrained(path, device="cpu", media_root=args.media)
    rows, lines = list[Judging](), list[str]()
    if verifier.decision is not None:
        rows.append(Judging(f"{path.name}, as stored", verifier, (PIECES,), args.sets))
    for windowing in args.windowings:
        cut = verifier if windowing == WHOLE else verifier.with_windowing(windowing)
        other, calibration, note = fitted(cut, fit, args.fit_sets)
        name = f"{path.name}, {windowing}"
        rows.append(Judging(name, other, (PIECES,), args.sets))
        if windowing == WHOLE:
            rows.append(Judging(name, other, ("largest", "one_prompt"), args.prompts))
        lines += ["", f"{name}: {note}"]
        lines += ["", *probabilities(other, probed, calibration)] if windowing == WHOLE else []
    return rows, lines


def main() -> None:
    """Render, fit, judge and print; write only where asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--media", type=Path, required=True, help="folder of the clips")
    parser.add_argument("--verifiers", type=Path, nargs="+", default=[VERIFIER])
    parser.add_argument("--windowings", nargs="+", default=[WHOLE, "mean_top_k:1.25:0.125:7"])
    parser.add_argument("--sets", type=int, default=100, help="judged ones of each size and seed (default 100)")
    parser.add_argument("--prompts", type=int, default=15, help="where prompts of several clips are asked (default 15)")
    parser.add_argument("--clips", type=int, default=100, help="of each seed (default 100)")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1300, 1301, 1302, 1303], help="of the test clips")
    parser.add_argument("--fit-seed", type=int, default=410)
    parser.add_argument("--fit-sets", type=int, default=150, help="of each size (default 150)")
    parser.add_argument("--out", type=Path, help="also write the table to this file")
    args = parser.parse_args()
    began = time.time()
    fit = clips(args.media, "calibration", args.fit_seed, args.clips)
    tests = [(seed, clips(args.media, "test", seed, args.clips)) for seed in args.seeds]
    both = [judgings(path, args, fit, tests[0][1]) for path in args.verifiers]
    rows = [row for of_verifier, _ in both for row in of_verifier]
    lines = [
        "# Citations in irrelevant company",
        "",
        f"    python -m benchmarks.evidence_sets --media DIR{_given(args)}",
        "",
        f"Sets of test clips of {len(tests)} seeds, half of them with one clip that supports the claim. In the last "
        "column: lowest to highest seed.",
        "",
        "| clips | judged by | rule | sets | together right | relevant right | necessary right | exactly right with "
        "support | without | exactly right | seeds |",
        "|---" * 11 + "|",
        *(text for size in SIZES for row in rows for text in rows_of(row, size, tests)),
        "",
        f"Fitted, for `{TARGET}`, on {args.fit_sets} sets each of {', '.join(map(str, FIT_SIZES))} clips of other "
        "videos. Probabilities: of 200 sets of each size.",
        *(each for _, lines in both for each in lines),
        "",
        made_on(began),
    ]
    publish(lines, args.out)


def _given(args: argparse.Namespace) -> str:
    names = [path.name for path in args.verifiers]
    return "" if args.verifiers == [VERIFIER] else f" --verifiers {' '.join(names)}"


if __name__ == "__main__":
    main()
