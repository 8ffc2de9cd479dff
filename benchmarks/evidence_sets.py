"""Sets of citations of which some support a claim and the others have nothing to do with it, on the kitchen's clips.

    python -m benchmarks.evidence_sets --media DIR [--verifier DIR] [--sets 60] [--out FILE]

Of sets of 1, 3 and 8 clips, half hold one that supports the claim, the others none, in a drawn order. A set is exactly
right where recall, every `relevant` and every `necessary` are. By `one_prompt` all clips are asked about at once, by
`largest` the surest clip or all in one prompt counts. The probability of sets is fitted on clips of the calibration
split, and judged on clips of the test split.
"""

from __future__ import annotations

import argparse
import os
import platform
import time
from importlib.metadata import version
from pathlib import Path

import numpy as np

from examples.kitchen.encoding import write_video
from examples.kitchen.filming import film, plan_clips
from examples.kitchen.sampling import FPS
from examples.kitchen.vocabulary import conceptual, contextual
from proofreel.core import VideoSegment
from proofreel.data_prep.importers import conceptual_claim, contextual_claim
from proofreel.eval.calibration import fit_sets
from proofreel.eval.metrics import ece_event
from proofreel.models.decision import Verdict
from proofreel.models.verifier import Attributed, AttributionPairs, CitedClaim, SetCalibration, SetRule, Verifier

VERIFIER = Path(__file__).resolve().parents[1] / "checkpoints" / "kitchen-verifier"
SIZES = (1, 3, 8)
FIT_SIZES = (2, 3, 5, 8)
RULES: tuple[SetRule, ...] = ("one_prompt", "largest")


def clips(media: Path, split: str, seed: int, n: int) -> dict[VideoSegment, set[str]]:
    """Clips and the claims that are true of each; rendered where they are missing."""
    claims = {}
    for video in plan_clips(seed, split, n):
        if not (media / video.path).is_file():
            write_video(media / video.path, film(video), FPS)
        facts = video.steps[0].scene.facts
        told = {conceptual_claim(*fact) for fact in conceptual(facts).items()}
        claims[VideoSegment(video.path)] = told | {contextual_claim(phrase) for phrase in contextual(facts).values()}
    return claims


def drawn(of: dict[VideoSegment, set[str]], size: int, n_sets: int, seed: int) -> list[tuple[CitedClaim, list[bool]]]:
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


def judged(
    verifier: Verifier, claims: list[CitedClaim], prompts: bool = True
) -> list[tuple[AttributionPairs, list[Verdict]]]:
    """The questions of every claim and their answers; without `prompts` only single clips are asked about."""
    asked = [AttributionPairs([claim], verifier.reader) for claim in claims]
    flat = [pair for each in asked for pair in each.pairs if prompts or len(pair.evidence) == 1]
    answers = iter(verifier.score_pairs([(pair.claim, pair.evidence) for pair in flat]))
    blank = Verdict(0.0, -99.0, "not_supported")
    return [
        (each, [next(answers) if prompts or len(pair.evidence) == 1 else blank for pair in each.pairs])
        for each in asked
    ]


def fitted(verifier: Verifier, of: dict[VideoSegment, set[str]], n_sets: int) -> SetCalibration:
    """The calibration of sets, from single clips alone: of irrelevant company, one prompt is hardly ever the surest."""
    sets = [each for size in FIT_SIZES for each in drawn(of, size, n_sets, seed=1)]
    found = [
        pairs.attributions(said)[0] for pairs, said in judged(verifier, [claim for claim, _ in sets], prompts=False)
    ]
    return fit_sets(found, [any(holds) for _, holds in sets])


def lines_of(verifier: Verifier, of: dict[VideoSegment, set[str]], n: int) -> list[str]:
    """The table."""
    lines = [
        "| clips | rule | together right | relevant right | necessary right | exactly right | of sets with support | "
        "contradictions said |",
        "|---" * 8 + "|",
    ]
    for size in SIZES:
        sets = drawn(of, size, n, seed=2)
        answers = judged(verifier, [claim for claim, _ in sets])
        for rule in RULES:
            found = [pairs.attributions(said, rule)[0] for pairs, said in answers]
            right = np.array([exactly(each, holds) for each, (_, holds) in zip(found, sets, strict=True)])
            with_support = np.array([any(holds) for _, holds in sets])
            exact = np.all(right, axis=1)
            shares = [*right.mean(axis=0), exact.mean(), exact[with_support].mean()]
            shares.append(np.mean([each.contradiction is not None for each in found]))
            cells = " | ".join(f"{100 * share:.0f} %" for share in shares)
            lines.append(f"| {size} | `{rule}` | {cells} |")
    return lines


def probabilities(verifier: Verifier, of: dict[VideoSegment, set[str]], calibration: SetCalibration) -> list[str]:
    """What the calibration of sets is worth, on sets judged from single clips."""
    lines = [
        "| clips | calibration error | with sets calibrated | Brier score | with sets calibrated |",
        "|---|---|---|---|---|",
    ]
    for size in SIZES[1:]:
        sets = drawn(of, size, 400, seed=3)
        answers = judged(verifier, [claim for claim, _ in sets], prompts=False)
        found = [pairs.attributions(said)[0].recall for pairs, said in answers]
        y = np.array([float(any(holds)) for _, holds in sets])
        p = np.array([each.p_supported for each in found])
        after = calibration.predict([each.margin for each in found], np.full(len(found), size))
        numbers = [ece_event(p, y), ece_event(after, y), np.mean((p - y) ** 2), np.mean((after - y) ** 2)]
        lines.append(f"| {size} | " + " | ".join(f"{x:.3f}" for x in numbers) + " |")
    return lines


def main() -> None:
    """Render, fit, judge and print; write only where asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--media", type=Path, required=True, help="folder of the clips")
    parser.add_argument("--verifier", type=Path, default=VERIFIER)
    parser.add_argument("--sets", type=int, default=60, help="judged ones of each size (default 60)")
    parser.add_argument("--clips", type=int, default=60, help="of either split (default 60)")
    parser.add_argument("--out", type=Path, help="also write the table to this file")
    args = parser.parse_args()
    began = time.time()
    verifier = Verifier.from_pretrained(args.verifier, device="cpu", media_root=args.media)
    calibration = fitted(verifier, clips(args.media, "calibration", 400, args.clips), 200)
    test = clips(args.media, "test", 300, args.clips)
    packages = ", ".join(f"{name} {version(name)}" for name in ("torch", "transformers", "numpy"))
    lines = [
        "# Citations in irrelevant company",
        "",
        "    python -m benchmarks.evidence_sets --media DIR",
        "",
        f"{args.sets} sets of each size, half of them with one clip that supports the claim; verifier "
        f"`{args.verifier.name}`, trained on single clips.",
        "",
        *lines_of(verifier, test, args.sets),
        "",
        "The probability of sets by `largest`, 400 sets of each size, judged from single clips alone:",
        "",
        *probabilities(verifier, test, calibration),
        "",
        f"Fitted on {calibration.n} sets of {calibration.sizes[0]} to {calibration.sizes[1]} clips of other videos: "
        f"slope {calibration.slope:.3f}, intercept {calibration.intercept:.3f}, "
        f"{calibration.per_log_n:.3f} per log(n).",
        "",
        f"{os.cpu_count()} cores of {platform.machine()}, Python {platform.python_version()}, {packages}; "
        f"{time.time() - began:.0f} s.",
    ]
    print("\n".join(lines))
    if args.out:
        args.out.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
