"""Where in longer videos does a claim hold: the kitchen verifier's windows against the steps. From the repository root:

python -m examples.kitchen.localize --out runs/kitchen-long                       # 20 videos of 3 to 5 steps: 3 minutes
python -m examples.kitchen.localize --out runs/kitchen-long --windowing max:2:1 --threshold 0.8

Of every video, each fact of each step is looked for, and facts that hold nowhere in it: values that no step shows, and
phrases made of two steps. Printed are tIoU and its shares beside chance and beside naming the whole video; the AUC of
"holds somewhere" for each aggregation and for the video judged whole; and its calibration error with the calibration of
single clips, and with one fitted after the aggregation on videos of the calibration split.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import cast

from examples.kitchen.encoding import write_video
from examples.kitchen.filming import Video, film, plan_long
from examples.kitchen.sampling import FPS
from examples.kitchen.vocabulary import ROLES, VALUES, concept, conceptual, contextual
from proofreel.core import Span, VideoSegment
from proofreel.data_prep.importers import conceptual_claim, contextual_claim
from proofreel.eval.calibration import fit_calibration
from proofreel.eval.metrics import ece_event, roc_auc
from proofreel.eval.scores import GroundingScores, localization_scores
from proofreel.models.inputs import Windowing
from proofreel.models.verifier import Localization, Verifier, localize

VERIFIER = Path(__file__).resolve().parents[2] / "checkpoints" / "kitchen-verifier"
THRESHOLDS = (0.3, 0.5, 0.7)


def main(argv: Sequence[str] | None = None) -> int:
    """Render what is missing, localise, and print the scores."""
    parser = argparse.ArgumentParser(description="Localise facts in the kitchen's longer videos.")
    parser.add_argument("--out", type=Path, required=True, help="folder of the videos")
    parser.add_argument("--verifier", type=Path, default=VERIFIER, help="verifier directory (default: the shipped one)")
    parser.add_argument("--videos", type=int, default=20, help="how many (default 20)")
    parser.add_argument("--seed", type=int, default=100, help="of the videos (default 100)")
    parser.add_argument("--windowing", default="max:2:0.5", help="rule, length and stride (default max:2:0.5)")
    parser.add_argument("--threshold", type=float, help="on a window's probability (default: the operating point)")
    args = parser.parse_args(argv)
    verifier = Verifier.from_pretrained(args.verifier, device="cpu", media_root=args.out)
    localizations, references, whole = search(verifier, "test", args)
    print(f"{args.videos} videos of seed {args.seed}, windows {args.windowing}")
    print_scores(localizations, references)
    print_aucs(localizations, references, whole, Windowing.parse(args.windowing))
    print_calibration(localizations, references, *search(verifier, "calibration", args)[:2], args.windowing)
    return 0


def search(
    verifier: Verifier, split: str, args: argparse.Namespace
) -> tuple[list[Localization], list[list[Span]], list[float]]:
    """Every claim looked for in every video, where each holds, and its margin with the video judged whole."""
    localizations: list[Localization] = []
    references: list[list[Span]] = []
    whole: list[float] = []
    for video in plan_long(args.seed, split, args.videos):
        if not (args.out / video.path).is_file():
            write_video(args.out / video.path, film(video), FPS)
        holds = facts_of(video)
        localizations += localize(verifier, list(holds), video.path, windowing=args.windowing, threshold=args.threshold)
        whole += [v.margin for v in verifier.score(list(holds), VideoSegment(video.path))]
        references += holds.values()
    return localizations, references, whole


def facts_of(video: Video) -> dict[str, list[Span]]:
    """Claim -> spans of the steps of which it is true; none for claims that hold nowhere in the video."""
    holds: dict[str, list[Span]] = {}
    shown = [step.scene.facts for step in video.steps]
    for step, facts in zip(video.steps, shown, strict=True):
        true = [conceptual_claim(*fact) for fact in conceptual(facts).items()]
        true += [contextual_claim(phrase) for phrase in contextual(facts).values()]
        for claim in true:
            holds.setdefault(claim, []).append((step.start_s, step.end_s))
    for role in ROLES:
        for value in VALUES[role]:
            holds.setdefault(conceptual_claim(role, concept(role, value)), [])
    for facts, other in zip(shown, [*shown[1:], shown[0]], strict=True):
        for role in ("ingredient", "tool"):  # seen with the action of another step
            mixed = dataclasses.replace(facts, **{role: getattr(other, role)})
            for phrase in contextual(mixed).values():
                holds.setdefault(contextual_claim(phrase), [])
    return holds


def print_scores(localizations: Sequence[Localization], references: Sequence[Sequence[Span]]) -> None:
    """One line for the verifier, chance and the whole video; then the false alarms."""
    scores = localization_scores(localizations, references, THRESHOLDS)
    print(f"{'':<24}{'mean tIoU':>10}" + "".join(f"{f'tIoU >= {t}':>13}" for t in THRESHOLDS))
    rows: dict[str, GroundingScores] = {
        "verifier": scores.named,
        "same lengths at random": scores.chance,
        "the whole video": scores.whole,
    }
    for name, row in rows.items():
        print(f"{name:<24}{row.miou:>10.3f}" + "".join(f"{row.recall_at[t]:>13.3f}" for t in THRESHOLDS))
    named = sum(bool(each.intervals) for each, spans in zip(localizations, references, strict=True) if spans)
    print(f"{scores.named.n} claims that hold somewhere, {named} of them found, {scores.named.n_failed} failed")
    print(f"{scores.n_nowhere} claims that hold nowhere, an interval named for {scores.false_alarms:.1%}")


def print_aucs(
    localizations: Sequence[Localization],
    references: Sequence[Sequence[Span]],
    whole: Sequence[float],
    windows: Windowing,
) -> None:
    """How well one number per claim and video tells those that hold somewhere from those that hold nowhere."""
    somewhere = [bool(spans) for spans in references]
    rules = (("max", 1), ("noisy_or", 1), ("mean_top_k", 3))
    for aggregation, top_k in rules:
        rule = dataclasses.replace(windows, aggregation=aggregation, top_k=top_k)
        margins = [rule.aggregate([w.verdict.margin for w in each.windows]) for each in localizations]
        print(f"AUC of holding somewhere, {rule.rule:<20}{float(roc_auc(margins, somewhere)):.3f}")
    print(f"AUC of holding somewhere, {'judged whole':<20}{float(roc_auc(whole, somewhere)):.3f}")


def print_calibration(
    localizations: Sequence[Localization],
    references: Sequence[Sequence[Span]],
    fit_localizations: Sequence[Localization],
    fit_references: Sequence[Sequence[Span]],
    rule: str,
) -> None:
    """What a calibration fitted after the aggregation, on videos of the calibration split, is worth."""
    margins, fit_margins = ([each.verdict.margin for each in some] for some in (localizations, fit_localizations))
    labels, fit_labels = ([float(bool(spans)) for spans in some] for some in (references, fit_references))
    groups = [cast(VideoSegment, each.windows[0].segment).path for each in fit_localizations]
    fitted = fit_calibration(fit_margins, fit_labels, "platt", groups, aggregation=rule)
    before = ece_event([each.verdict.p_supported for each in localizations], labels)
    after = ece_event(fitted.predict(margins), labels)
    print(f"ECE of {rule} by the calibration of single clips {before:.3f}, fitted after aggregation {after:.3f}")


if __name__ == "__main__":
    raise SystemExit(main())
