"""Altered claims of a built data set to read one by one, and whether their text alone gives them away.

    python benchmarks/altered_captions.py --data FOLDER [--read 200] [--seed 2022]

Prints the AUC of the claim-only probe (TF-IDF and logistic regression, grouped cross-validation) of altered claims
against the very claims that they were made from, in all and by origin, and then numbered pairs, drawn at random, of
the true and the altered claim.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence
from pathlib import Path

from proofreel.core import Pair
from proofreel.data_prep.dataset import claim_only_probe, read_manifest, read_split


def main() -> None:
    """Print the table and the pairs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, type=Path, help="data set with altered claims")
    parser.add_argument("--read", type=int, default=200, help="pairs to print")
    parser.add_argument("--seed", type=int, default=2022, help="draws them")
    arguments = parser.parse_args()
    rows = [pair for split in read_manifest(arguments.data)["shards"] for pair in read_split(arguments.data, split)]
    by_id = {pair.id: pair for pair in rows}
    altered = sorted((pair for pair in rows if pair.origin.startswith("altered_claim")), key=lambda pair: pair.id)
    both = [(by_id[pair.meta["claim_of"]], pair) for pair in altered]
    print(f"all: {len(both)} pairs, AUC {auc(both):.3f}")
    for origin in sorted({pair.origin for pair in altered}):
        part = [item for item in both if item[1].origin == origin]
        print(f"{origin}: {len(part)} pairs, AUC {auc(part):.3f}")
    for number, (true, pair) in enumerate(random.Random(arguments.seed).sample(both, arguments.read), 1):
        print(f"{number} {pair.origin[-1]} | {true.claim} | {pair.claim}")


def auc(both: Sequence[tuple[Pair, Pair]]) -> float:
    """Of the claims alone, true ones against those made from them."""
    rows = [pair for item in both for pair in item]
    report = claim_only_probe(
        [pair.claim for pair in rows],
        [pair.label for pair in rows],
        [pair.group for pair in rows],
        [pair.role for pair in rows],
        [pair.origin for pair in rows],
    )
    return float("nan") if report.overall.value is None else report.overall.value


if __name__ == "__main__":
    main()
