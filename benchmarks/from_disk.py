"""How long does a real clip take from the file to sixteen probabilities, and where does the time go?

    python -m benchmarks.from_disk --clips FOLDER --other CHECKOUT --out benchmarks/results/from_disk.md

Nine seconds of each clip, 18 frames, sixteen claims, the kitchen's small verifier told to look at frames of up to 256 x
784 pixels. `CHECKOUT` is a working tree of an earlier commit (`git worktree add`): both sides take turns, a process
each, and give margins that are compared. One clip: one call of `Verifier.score`. All clips: one call of `score_pairs`.
Reading is decoding and resizing in the reader's process; patches are what the processor makes of frames; the network is
the rest of the call. Claim by claim: one call for each of the sixteen claims, nothing kept between calls, so that each
reads the clip again; "counted x" is what counting the network's operations allows, as in `shared_prefix`; reading comes
on top, which one call does once. Decoding by cores: all clips read by as many readers as the process is given cores,
nothing else.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.pages import made_on, publish
from benchmarks.trees import ROOT, run_in

CLAIMS = [f"{role} is {value}." for role in ("Action", "Tool") for value in "abcdefgh"]
SECONDS, PIXELS = 9.0, (128 * 784, 256 * 784)
STAGES = ("reading", "patches", "one clip", "claim by claim", "all clips")


def main(argv: Sequence[str] | None = None) -> int:
    """Measure both sides and publish."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clips", type=Path, required=True, help="folder of video files; unreadable ones are left out")
    parser.add_argument("--other", type=Path, help="working tree of an earlier commit")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, help="page to write")
    parser.add_argument("--side", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--cores", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.cores:
        print(json.dumps(_read_by(args.cores, args.clips)))
        return 0
    if args.side:
        print(json.dumps(_measured(args.clips, args.side)))
        return 0
    began, load = time.time(), os.getloadavg()[0]
    sides = {"before": args.other, "now": ROOT} if args.other else {"now": ROOT}
    rounds, by_cores, clips = [], [], ("--clips", str(args.clips.resolve()))
    for _ in range(args.rounds):
        rounds.append(
            {name: run_in(tree, "from_disk", *clips, "--side", str(tree.resolve())) for name, tree in sides.items()}
        )
        every = range(1, (os.cpu_count() or 1) + 1)
        by_cores.append({n: run_in(ROOT, "from_disk", *clips, "--cores", str(n)) for n in every})
    made = (
        f"`python -m benchmarks.from_disk`; {made_on(began, ('torch', 'av', 'pillow'))} Load average {load:.1f} before."
    )
    publish([*_page(rounds), *_scaling(by_cores), made], args.out)
    return 0


def _measured(folder: Path, tree: Path) -> dict[str, Any]:
    """Wall seconds of each stage, by clip, and the margins."""
    from proofreel import ProofreelError, Verifier, VideoSegment
    from proofreel.models.inputs import read_media

    verifier: Any = Verifier.from_pretrained(
        tree / "checkpoints" / "kitchen-verifier", device="cpu", prefix_cache_gib=0
    )
    encoder = verifier.encoder
    encoder.max_tokens = 8192
    low, high = PIXELS
    encoder.sampling = dataclasses.replace(encoder.sampling, fps=2.0, max_frames=64, min_pixels=low, max_pixels=high)
    seconds: dict[str, dict[str, float]] = {name: {} for name in STAGES}
    segments, margins, allowed = {}, {}, {}
    for file in sorted(folder.iterdir()):
        segment = VideoSegment(str(file), 0.0, SECONDS)
        try:
            media = read_media((segment,), encoder.sampling)
        except ProofreelError:
            continue  # damaged on purpose, too short, a sound
        segments[file.name] = segment
        seconds["reading"][file.name] = _best(lambda s=segment: read_media((s,), encoder.sampling))
        seconds["patches"][file.name] = _best(lambda m=media: encoder.pixels(m))
        verdicts = verifier.score(CLAIMS, segment)
        assert not verdicts[0].error, verdicts[0].error
        margins[file.name] = [verdict.margin for verdict in verdicts]
        seconds["one clip"][file.name] = _best(lambda s=segment: verifier.score(CLAIMS, s))
        if tree == ROOT:
            seconds["claim by claim"][file.name] = _best(lambda s=segment: [verifier.score([c], s) for c in CLAIMS], 1)
            allowed[file.name] = _counted(verifier, segment, media)
    pairs = [(claim, segment) for segment in segments.values() for claim in CLAIMS]
    assert not any(verdict.error for verdict in verifier.score_pairs(pairs))
    seconds["all clips"]["all"] = _best(lambda: verifier.score_pairs(pairs))
    return {"seconds": seconds, "margins": margins, "counted": allowed}


def _counted(verifier: Any, segment: Any, media: Any) -> float:
    from benchmarks.shared_prefix import counted  # knows the package of this tree only

    claims = [verifier.encoder.claim_ids(claim) for claim in CLAIMS]
    return counted(verifier.model.config, "scoring", verifier.encoder.evidence((segment,), media), claims)


def _read_by(n_cores: int, folder: Path) -> float:
    """Clips a second, of `n_cores` readers on as many cores."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:n_cores])  # children are held to it too
    from proofreel import ProofreelError, VideoSegment
    from proofreel.data_prep.media import FrameSampling
    from proofreel.models.inputs import read_media

    sampling = FrameSampling(fps=2.0, max_frames=64, min_pixels=PIXELS[0], max_pixels=PIXELS[1])
    segments = []
    for file in sorted(folder.iterdir()):
        segment = VideoSegment(str(file), 0.0, SECONDS)
        with contextlib.suppress(ProofreelError):
            read_media((segment,), sampling)
            segments.append(segment)
    asked = [segment for segment in segments for _ in range(4)]
    with ThreadPoolExecutor(n_cores) as readers:
        taken = _best(lambda: list(readers.map(lambda segment: read_media((segment,), sampling), asked)))
    return len(asked) / taken


def _scaling(rounds: Sequence[dict[int, float]]) -> list[str]:
    lines = ["| cores and readers | clips/s | times one core |", "| ---: | ---: | ---: |"]
    for n in rounds[0]:
        rate, of = statistics.median(one[n] for one in rounds), sorted(one[n] / one[1] for one in rounds)
        lines.append(f"| {n} | {rate:.2f} | {statistics.median(of):.2f} ({of[0]:.2f} to {of[-1]:.2f}) |")
    return [*lines, ""]


def _best(call: Callable[[], Any], times: int = 3) -> float:
    taken = []
    for _ in range(times):
        start = time.perf_counter()
        call()
        taken.append(time.perf_counter() - start)
    return min(taken)


def _page(rounds: Sequence[dict[str, dict[str, Any]]]) -> list[str]:
    sides = list(rounds[0])
    clips = list(rounds[0][sides[0]]["margins"])
    heads = [f"{stage}: {' / '.join(sides)} ms" for stage in STAGES[:3]]
    lines = ["# A clip from disk", "", (__doc__ or "").partition("\n\n")[2].partition("\n\n")[2].strip(), ""]
    lines += [f"| clip | {' | '.join(heads)} | ratio |", f"| --- |{' ---: |' * 4}"]
    for clip in clips:
        cells = [" / ".join(f"{1e3 * _median(rounds, s, stage, clip):.0f}" for s in sides) for stage in STAGES[:3]]
        lines.append(f"| {clip} | {' | '.join(cells)} | {_ratio(rounds, sides, 'one clip', clip)} |")
    together = " / ".join(f"{_median(rounds, s, 'all clips', 'all'):.2f}" for s in sides)
    lines += [
        "",
        *_apart(rounds),
        f"All {len(clips)} clips in one call: {together} s, ratio {_ratio(rounds, sides, 'all clips', 'all')}.",
    ]
    if len(sides) > 1:
        differences = [
            abs(a - b)
            for one in rounds
            for clip in clips
            for a, b in zip(*(one[side]["margins"][clip] for side in sides), strict=True)
        ]
        lines.append(f"Largest difference of a margin: {max(differences):.1e}.")
    lines += [
        "",
        "Ratios: before over now, median of the rounds (lowest to highest). Times: best of three, median of rounds.",
    ]
    return [*lines, ""]


def _apart(rounds: Sequence[dict[str, dict[str, Any]]]) -> list[str]:
    """Sixteen calls of one claim over one call of sixteen, now."""
    lines = ["| clip | claim by claim ms | one call ms | measured x | counted x |", f"| --- |{' ---: |' * 4}"]
    for clip, allowed in rounds[0]["now"]["counted"].items():
        apart, together = (_median(rounds, "now", stage, clip) for stage in ("claim by claim", "one clip"))
        cells = [f"{1e3 * apart:.0f}", f"{1e3 * together:.0f}", f"{apart / together:.2f}", f"{allowed:.2f}"]
        lines.append(f"| {clip} | {' | '.join(cells)} |")
    return [*lines, ""]


def _median(rounds: Sequence[dict[str, dict[str, Any]]], side: str, stage: str, clip: str) -> float:
    return statistics.median(one[side]["seconds"][stage][clip] for one in rounds)


def _ratio(rounds: Sequence[dict[str, dict[str, Any]]], sides: Sequence[str], stage: str, clip: str) -> str:
    if len(sides) < 2:
        return "-"
    of = sorted(one[sides[0]]["seconds"][stage][clip] / one[sides[1]]["seconds"][stage][clip] for one in rounds)
    return f"{statistics.median(of):.2f} ({of[0]:.2f} to {of[-1]:.2f})"


if __name__ == "__main__":
    raise SystemExit(main())
