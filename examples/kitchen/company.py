"""Rows in which one clip stands among others that have nothing to do with its claims, for training. From the root:

python -m examples.kitchen.make --out runs/kitchen
python -m examples.kitchen.company --world runs/kitchen        # writes runs/kitchen/company.jsonl

Each clip of the train and validation splits is put among one to seven others of its split, in a drawn order, with its
own true and false claims. Claims that are also true of one of the others are left out: as every sentence is as often
false as true, sentences alone still say nothing. A data set is built of both files, `annotations.json` (format facts)
and `company.jsonl` (format pairs); see docs/attribution.md.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from examples.kitchen.sampling import generator
from proofreel.core import Label, Pair, VideoSegment
from proofreel.data_prep.importers import conceptual_claim, contextual_claim

SIZES = (2, 3, 5, 8)
SPLITS = ("train", "validation")


def main(argv: Sequence[str] | None = None) -> int:
    """Write the rows beside the annotations."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--world", type=Path, required=True, help="folder made by examples.kitchen.make")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help=f"clips of a row (default {SIZES})")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    annotations = json.loads((args.world / "annotations.json").read_text(encoding="utf-8"))
    rows = [pair for split in SPLITS for pair in in_company(annotations, split, args.sizes, args.seed)]
    out = args.world / "company.jsonl"
    out.write_text("".join(json.dumps(pair.to_dict()) + "\n" for pair in rows), encoding="utf-8")
    print(f"{out}: {len(rows)} rows, {sum(pair.label == 'supported' for pair in rows)} of them supported")
    return 0


def in_company(
    annotations: Sequence[Mapping[str, Any]], split: str, sizes: Sequence[int], seed: int = 0
) -> Iterator[Pair]:
    """The claims of every clip of a split about the clip and drawn others, where those do not decide."""
    clips = [each for each in annotations if each["split"] == split]
    truths = [set(claims_of(each, "")) for each in clips]
    rng = generator(seed, f"company/{split}")
    for place, clip in enumerate(clips):
        size = int(rng.choice(sizes))
        others = [int(i) + (i >= place) for i in rng.choice(len(clips) - 1, size - 1, replace=False)]
        cited = rng.permutation([place, *others]).tolist()
        evidence = tuple(VideoSegment(clips[i]["video"], clips[i]["start_s"], clips[i]["end_s"]) for i in cited)
        beside = set().union(*(truths[i] for i in others))
        signs: tuple[tuple[Label, str], ...] = (("supported", ""), ("refuted", "negative_"))
        for label, prefix in signs:
            for claim, role in claims_of(clip, prefix).items():
                if claim not in beside:
                    name = f"{clip['video']}+{size - 1}/{label}/{role}"
                    common = {"split": split, "group": clip["group"], "origin": f"{prefix}company"}
                    yield Pair(name, claim, evidence, label, role=role, **common)


def claims_of(clip: Mapping[str, Any], prefix: str) -> dict[str, str]:
    """Claim -> role of a clip's true claims, or of its false ones by the prefix "negative_"."""
    claims = {}
    for role, value in clip[f"{prefix}conceptual"].items():
        claims[conceptual_claim(role, value["text"] if prefix else value)] = role
    return claims | {contextual_claim(phrase["text"]): phrase["role"] for phrase in clip[f"{prefix}contextual"]}


if __name__ == "__main__":
    raise SystemExit(main())
