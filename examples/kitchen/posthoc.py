"""Post-hoc attribution where the truth is known: citations found by a verifier, judged by itself and by the truth.

python -m examples.kitchen.posthoc --out runs/kitchen-posthoc            # 20 videos of 3 to 5 steps

A response about a video says of each step one thing that is true, and one that holds nowhere in it. Its facts are
looked for by the verifier, or given a random span; MURGAT-Score then asks the verifier, or the truth: a citation shows
a fact if it overlaps a step of which the fact is true by at least a second. A finder that is also the judge praises
itself: both judges are printed.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable, Sequence
from pathlib import Path

from examples.kitchen.encoding import write_video
from examples.kitchen.filming import film, plan_long
from examples.kitchen.localize import VERIFIER, facts_of
from examples.kitchen.sampling import FPS
from proofreel.core import Citation, Pair, Span, VideoSegment, overlap_s
from proofreel.eval.citations import (
    FindMoments,
    Found,
    GivenFact,
    GivenResponse,
    GivenSentence,
    Moment,
    Search,
    attributed_post_hoc,
    judge_responses,
    moments_by_verifier,
    murgat_system_scores,
    surest,
    write_murgat_responses,
)
from proofreel.eval.scores import JudgePairs, Judgment, by_questions, by_verifier
from proofreel.models.inputs import Windowing
from proofreel.models.verifier import Sources, Verifier

SHOWN_S = 1.0
Truth = dict[tuple[str, str], list[Span]]


def main(argv: Sequence[str] | None = None) -> int:
    """Render what is missing, attribute, score, and print."""
    parser = argparse.ArgumentParser(description="Post-hoc attribution in the kitchen's longer videos.")
    parser.add_argument("--out", type=Path, required=True, help="folder of the videos and responses.json")
    parser.add_argument("--videos", type=int, default=20, help="how many (default 20)")
    parser.add_argument("--seed", type=int, default=100, help="of the videos (default 100)")
    parser.add_argument("--windowing", default="max:2:1", help="rule, length and stride (default max:2:1)")
    args = parser.parse_args(argv)
    verifier = Verifier.from_pretrained(VERIFIER, device="cpu", media_root=args.out)
    responses, truth, ends = written(args)
    write_murgat_responses(args.out / "responses.json", responses)
    itself = by_verifier(verifier, progress=False)
    judges = {"the verifier": itself, "the truth": by_truth(truth)}
    windows = moments_by_verifier(itself, verifier.reader, Sources, Windowing.parse(args.windowing))
    finders: dict[str, FindMoments] = {
        "the verifier": lambda searches: [surest(found) for found in windows(searches)],
        "chance": at_random(ends),
    }
    names = ("coverage", "precision", "recall", "f1", "murgat")
    print(f"{'found by':<14}{'judged by':<14}" + "".join(f"{name:>24}" for name in names))
    for finder, find in finders.items():
        attributed, _ = attributed_post_hoc(responses, find)
        for name, judge in judges.items():
            judged, _ = judge_responses(attributed, judge, verifier.reader, Sources)
            mean = murgat_system_scores(judged, 2000).mean
            cells = ((mean[n], mean[n].interval) for n in names)
            shown = [f"{s.value:.3f} [{i.low:.3f}, {i.high:.3f}]" if i else "-" for s, i in cells]
            print(f"{finder:<14}{name:<14}" + "".join(f"{cell:>24}" for cell in shown))
    return 0


def written(args: argparse.Namespace) -> tuple[list[GivenResponse], Truth, dict[str, float]]:
    """A response for each video, when its facts are true, and when the videos end."""
    responses: list[GivenResponse] = []
    truth: Truth = {}
    ends: dict[str, float] = {}
    for video in plan_long(args.seed, "test", args.videos):
        frames = film(video)
        if not (args.out / video.path).is_file():
            write_video(args.out / video.path, frames, FPS)
        ends[video.path] = len(frames) / FPS
        holds = facts_of(video)
        truth |= {(video.path, claim): spans for claim, spans in holds.items()}
        rng = random.Random(video.path)
        sentences = []
        for step in video.steps:
            true = [claim for claim, spans in holds.items() if (step.start_s, step.end_s) in spans]
            false = [claim for claim, spans in holds.items() if not spans]
            for claim in (rng.choice(true), rng.choice(false)):
                sentences.append(GivenSentence(claim, True, (GivenFact(claim, ()),)))
        responses.append(GivenResponse(video.path, video.path, tuple(sentences), True, False))
    return responses, truth, ends


def by_truth(truth: Truth) -> JudgePairs:
    """Judge by what the videos show."""

    def shown(pair: Pair) -> Judgment:
        segments = [e for e in pair.evidence if isinstance(e, VideoSegment) and e.end_s is not None]
        spans = [(segment.start_s, segment.end_s or segment.start_s) for segment in segments]
        steps = truth[segments[0].path, pair.claim]
        yes = any(overlap_s([span], [step]) >= SHOWN_S for span in spans for step in steps)
        return Judgment(yes, float(yes))

    return by_questions(lambda pairs: [shown(pair) for pair in pairs])


def at_random(ends: dict[str, float]) -> Callable[[Sequence[Search]], list[Found]]:
    """Three seconds anywhere, for every fact."""

    def find(searches: Sequence[Search]) -> list[Found]:
        rng = random.Random(0)
        starts = [float(rng.randrange(max(1, int(ends[search.video]) - 2))) for search in searches]
        cites = [Citation("visual", start_s, start_s + 3.0, f"visual, {start_s}") for start_s in starts]
        return [Found((Moment(cite),)) for cite in cites]

    return find


if __name__ == "__main__":
    raise SystemExit(main())
