"""Where in longer kitchen videos a claim holds: a fitted rule beside the operating point of single clips.

    python -m benchmarks.localization --media DIR [--windowings max:1:0.25 max:1.5:0.25] [--out FILE]

The rule (windows, averaging, two thresholds, edges) is fitted on videos of the calibration split, for at most 10 %
false alarms there, and judged on videos of the test split. Claims are every fact of every step, and facts that hold
nowhere in the video.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import platform
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from examples.kitchen.encoding import write_video
from examples.kitchen.filming import film, plan_long
from examples.kitchen.localize import THRESHOLDS, VERIFIER, facts_of
from examples.kitchen.sampling import FPS
from proofreel.core import Span
from proofreel.eval.scores import LocalizationScores, fit_intervals, localization_scores
from proofreel.models.verifier import IntervalRule, Localization, Verifier, localize

BEFORE = "max:2:0.5"


def searched(
    verifier: Verifier, media: Path, split: str, seed: int, n: int, windowing: str
) -> tuple[list[Localization], list[list[Span]]]:
    """Every claim looked for in every video, and where each holds."""
    localizations: list[Localization] = []
    references: list[list[Span]] = []
    for video in plan_long(seed, split, n):
        if not (media / video.path).is_file():
            write_video(media / video.path, film(video), FPS)
        holds = facts_of(video)
        localizations += localize(verifier, list(holds), video.path, windowing=windowing)
        references += holds.values()
    return localizations, references


def by_rule(rule: IntervalRule, localizations: Sequence[Localization]) -> list[Localization]:
    """The same windows, with the intervals of a rule."""
    return [dataclasses.replace(each, intervals=rule.intervals(each.windows)) for each in localizations]


def line(name: str, scores: LocalizationScores) -> str:
    """A row of the table."""
    named = scores.named
    shares = " | ".join(f"{named.recall_at[t]:.3f}" for t in THRESHOLDS)
    return f"| {name} | {named.miou:.3f} | {shares} | {100 * scores.false_alarms:.1f} % |"


def main() -> None:
    """Render, fit, judge and print; write only where asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--media", type=Path, required=True, help="folder of the videos")
    parser.add_argument("--verifier", type=Path, default=VERIFIER)
    parser.add_argument("--windowings", nargs="+", default=["max:1:0.25", "max:1.5:0.25"], help="tried while fitting")
    parser.add_argument("--fit-videos", type=int, default=24)
    parser.add_argument("--videos", type=int, default=20, help="of the test split")
    parser.add_argument("--out", type=Path, help="also write the page to this file")
    args = parser.parse_args()
    began = time.time()
    verifier = Verifier.from_pretrained(args.verifier, device="cpu", media_root=args.media)
    fit = {w: searched(verifier, args.media, "calibration", 200, args.fit_videos, w) for w in args.windowings}
    references = fit[args.windowings[0]][1]
    rule = fit_intervals({w: found for w, (found, _) in fit.items()}, references)
    before, truth = searched(verifier, args.media, "test", 100, args.videos, BEFORE)
    windows, _ = searched(verifier, args.media, "test", 100, args.videos, rule.windowing)
    packages = ", ".join(f"{name} {version(name)}" for name in ("torch", "transformers", "numpy"))
    found = {
        f"operating point of single clips, `{BEFORE}`": localization_scores(before, truth, THRESHOLDS),
        f"operating point of single clips, `{rule.windowing}`": localization_scores(windows, truth, THRESHOLDS),
        "fitted rule": localization_scores(by_rule(rule, windows), truth, THRESHOLDS),
    }
    fitted = found["fitted rule"]
    lines = [
        "# Where a claim holds: a fitted rule",
        "",
        "    python -m benchmarks.localization --media DIR",
        "",
        f"{args.videos} kitchen videos of 3 to 5 steps, {fitted.named.n} claims that hold somewhere, "
        f"{fitted.n_nowhere} that hold nowhere; verifier `{args.verifier.name}`, trained on clips of 2 s. Claims that "
        "hold and are not found count as tIoU 0.",
        "",
        "| rule | mean tIoU | " + " | ".join(f">= {t}" for t in THRESHOLDS) + " | false alarms |",
        "|---|---|---|---|---|---|",
        *(line(name, scores) for name, scores in found.items()),
        "",
        f"Fitted on {args.fit_videos} other videos, trying {', '.join(f'`{w}`' for w in args.windowings)}:",
        "",
        "```json",
        json.dumps(rule.to_dict(), indent=2),
        "```",
        "",
        f"{os.cpu_count()} cores of {platform.machine()}, Python {platform.python_version()}, {packages}; "
        f"{time.time() - began:.0f} s.",
    ]
    print("\n".join(lines))
    if args.out:
        args.out.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
