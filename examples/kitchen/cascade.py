"""A cascade on the kitchen: the shipped verifier with 2 frames where it is sure, with all frames where it is not.

python -m examples.kitchen.cascade --out runs/kitchen-cascade                        # about 60 test clips, on a CPU
python -m examples.kitchen.cascade --out runs/kitchen-cascade --frames 4 --target cost:0.6

Fits on the calibration clips, saves one directory, loads it again, asks it about the test clips, and reports which
stage answered, what that saved and what it cost in AUC.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from examples.kitchen.make import main as make
from proofreel.data_prep.build import main as build
from proofreel.data_prep.dataset import read_split
from proofreel.eval.cascades import costs_of, fit_cascade, markdown, measure, score_stages, write_cascade_report
from proofreel.models.cascades import Cascade, CascadeStage, View, shares
from proofreel.models.verifier import Verifier

ROOT = Path(__file__).resolve().parent.parent.parent
SEED = 91  # a world for neither training nor calibration


def main(argv: Sequence[str] | None = None) -> int:
    """Run every step and print the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/kitchen-cascade"), help="folder for all outputs")
    parser.add_argument("--verifier", type=Path, default=ROOT / "checkpoints" / "kitchen-verifier")
    parser.add_argument("--clips", type=int, nargs=2, default=[40, 60], help="calibration test")
    parser.add_argument("--frames", type=int, default=2, help="what the cheap stage sees of a clip")
    parser.add_argument("--target", default="auc_loss:0.02", help="auc_loss:X or cost:X (see eval/cascades/fit.py)")
    args = parser.parse_args(argv)
    data = _data(args.out, args.clips)
    verifier = Verifier.from_pretrained(args.verifier, prefix_cache_gib=0.0)
    views = [View(max_frames=args.frames), View()]
    stages = [CascadeStage.of(verifier, view) for view in views]
    names = [f"at most {args.frames} frames", "all frames"]

    pairs = read_split(data, "calibration")
    scored = score_stages(stages, pairs, args.out / "calibration")
    # Claims come one by one here: 16 about one clip, asked together, share what the network reads of it. Pictures are
    # counted alone, as they are nearly all that real videos cost; of these small clips the words cost as much.
    costs = [costs_of(stage, pairs) for stage in stages]
    fitted = fit_cascade(scored, costs, args.target, unit="visual_tokens", together=False)
    for each in [*sorted(fitted.candidates, key=lambda c: c.risk)[::5], fitted.chosen]:
        line = f"AUC {each.auc:.4f}, visual tokens {each.cost:.0%}, {each.answered[0]:.0%} answered by {names[0]}"
        print(f"risk {each.risk:+.3f}: {line}{'  <- chosen' if each == fitted.chosen else ''}")

    test = read_split(data, "test")
    seconds: dict[str, float] = {}
    scored = []
    for name, stage in zip(names, stages, strict=True):
        began = time.perf_counter()
        scored += score_stages([stage], test, args.out / name.replace(" ", "-"))
        seconds[f"{name}, every claim"] = time.perf_counter() - began
    costs = [costs_of(stage, test) for stage in stages]
    report = args.out / "report"
    write_cascade_report(report, measure(fitted.plan, scored, costs, names), "A cascade on the kitchen")

    directory = args.out / "cascade"
    cascade = Cascade([verifier, verifier], views=views, plan=fitted.plan)
    if not directory.exists():
        cascade.save_pretrained(directory, [args.verifier] * 2, report=report)
    loaded = Cascade.from_pretrained(directory, prefix_cache_gib=0.0)
    began = time.perf_counter()
    verdicts = loaded.score_pairs(test, progress=True)
    seconds["the cascade"] = time.perf_counter() - began
    numbers: dict[str, Any] = measure(fitted.plan, scored, costs, names, seconds)
    write_cascade_report(report, numbers, "A cascade on the kitchen")
    print(markdown(numbers, "A cascade on the kitchen"))
    unfitted = Cascade([verifier, verifier], bands=[(0.1, 0.9)], views=views)
    for name, answers in (
        ("all frames", verifier.score_pairs(test)),
        ("the cascade", verdicts),
        ("the cascade without a fit, band 0.1 to 0.9", unfitted.score_pairs(test)),
    ):
        right = sum((v.label == "supported") == (p.label == "supported") for v, p in zip(answers, test, strict=True))
        print(f"accuracy of {name}: {right / len(test):.3f}")
    print(f"directory {directory}; asked again through it: {shares(verdicts, 2)}")
    return 0


def _data(out: Path, clips: Sequence[int]) -> Path:
    """A small kitchen as a data set, made once."""
    world, data = out / "kitchen", out / "data"
    if not data.exists():
        sizes = ["--clips", "24", "8", *map(str, clips), "--long", "0", "0", "0", "0", "--seed", str(SEED)]
        make(["--out", str(world), *sizes])
        source = f"sources=[{{format: facts, path: {world / 'annotations.json'}}}]"
        build(["--config", str(ROOT / "configs" / "kitchen_build.yaml"), f"output={data}", source])
    return data


if __name__ == "__main__":
    raise SystemExit(main())
