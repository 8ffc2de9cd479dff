"""How accurate must a verifier be, on the kitchen, where the truth is known? Claims of invented systems, and a command.

    python -m examples.kitchen.agreement --data runs/demo/data --out runs/agreement \
        --verdicts tuned=runs/demo/test.parquet:runs/demo/calibrated base=runs/demo/test-zero-shot.parquet

Eight systems describe every test clip in four claims each; a share of them is false, from 5 % of the best system's to
40 % of the worst one's. Ten clips are a topic. `proofreel agreement` then compares the order of the systems by each
verifier's verdicts with their order by the truth.
"""

from __future__ import annotations

import argparse
import csv
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from examples.kitchen.commands import python
from proofreel.core import Pair
from proofreel.data_prep.dataset import read_split

FALSE_SHARES = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4)
CLAIMS_PER_CLIP, CLIPS_PER_TOPIC = 4, 10


def main(argv: Sequence[str] | None = None) -> int:
    """Write the systems' claims, and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the demo's data set")
    parser.add_argument("--verdicts", nargs="+", required=True, help="as for `proofreel agreement`, of its test split")
    parser.add_argument("--out", type=Path, required=True, help="folder for all that is made")
    parser.add_argument("--seed", type=int, default=0, help="of the systems' claims")
    args = parser.parse_args(argv)
    args.out.mkdir(parents=True, exist_ok=True)
    path = args.out / "claims.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(("id", "topic", "system", "human"))
        writer.writerows(claims_of(read_split(args.data, "test"), args.seed))
    python("eval/agreement.py", "--claims", path, "--verdicts", *args.verdicts, "--out", args.out)
    return 0


def claims_of(pairs: Sequence[Pair], seed: int) -> Iterator[tuple[str, str, str, str]]:
    """Rows of the table: every system's claims about every clip, drawn from the test split without repeats."""
    rng = np.random.default_rng(seed)
    of_clip: dict[str, dict[bool, list[str]]] = defaultdict(lambda: {True: [], False: []})
    for pair in pairs:
        of_clip[pair.group][pair.label == "supported"].append(pair.id)
    for number, claims in enumerate(of_clip.values()):
        for share in FALSE_SHARES:
            n_false = int((rng.random(CLAIMS_PER_CLIP) < share).sum())
            for holds, n in ((True, CLAIMS_PER_CLIP - n_false), (False, n_false)):
                for id in rng.choice(claims[holds], size=n, replace=False):
                    topic = f"clips {number // CLIPS_PER_TOPIC * CLIPS_PER_TOPIC:03d}"
                    yield str(id), topic, f"{share:.0%} false", str(holds).lower()


if __name__ == "__main__":
    raise SystemExit(main())
