"""NLVR (Suhr et al. 2017, CC-BY-4.0) as rows that a build reads: a sentence, its picture, and what five raters said.

    python -m examples.nlvr.pairs --nlvr DIR --out runs/nlvr/source

`DIR` holds dev.json and test.json of lil-lab/nlvr (nlvr/), with dev_images.tar and test_images.tar. A verifier is
trained and calibrated on dev, and tested on the public test. Each example has six pictures: its three boxes in every
order, under one label. Examples with one sentence are one group; those of dev whose sentence the test has are left
out. Writes OUT/nlvr.jsonl, and the pictures beside it.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
import tarfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from proofreel.core import Image, Label, Pair, RowError, Split
from proofreel.data_prep.dataset import assign_splits, write_pairs

LABELS: dict[Any, Label] = {"true": "supported", "false": "refuted"}
SHARES: dict[Split, float] = {
    "train": 0.8,
    "validation": 0.05,
    "calibration": 0.15,
    "test": 0.0,
}  # of dev
ORDERS = 6  # of three boxes


def main(argv: Sequence[str] | None = None) -> int:
    """Read, unpack, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nlvr", type=Path, required=True, help="folder with dev.json, test.json and both archives")
    parser.add_argument("--out", type=Path, required=True, help="folder to write to")
    parser.add_argument("--orders", type=int, default=ORDERS, help=f"pictures of a dev example, 1 to {ORDERS}")
    parser.add_argument("--test-orders", type=int, default=1, help=f"pictures of a test example, 1 to {ORDERS}")
    parser.add_argument("--seed", type=int, default=0, help="of the splits")
    args = parser.parse_args(argv)
    if not (0 < args.orders <= ORDERS and 0 < args.test_orders <= ORDERS):
        parser.exit(2, f"--orders, --test-orders: must be 1 to {ORDERS}, got {args.orders} and {args.test_orders}\n")
    try:
        pairs, left_out = read_nlvr(args.nlvr, args.orders, args.test_orders, args.seed)
        unpack(args.nlvr, args.out, {e.path for pair in pairs for e in pair.evidence if isinstance(e, Image)})
    except RowError as error:
        parser.exit(1, f"error: {error}\n")
    write_pairs(args.out / "nlvr.jsonl", pairs)
    counts = dict(Counter(pair.split for pair in pairs))
    print(
        f"wrote {args.out / 'nlvr.jsonl'}: {counts}, {left_out} examples of dev left out: the test has their sentence"
    )
    return 0


def read_nlvr(folder: Path, orders: int = ORDERS, test_orders: int = 1, seed: int = 0) -> tuple[list[Pair], int]:
    """Pairs with splits, and how many examples of dev have a sentence of the test."""
    dev, test = (
        list(_examples(folder / f"{part}.json", part, n)) for part, n in (("dev", orders), ("test", test_orders))
    )
    tested = {pair.group for pair in test}
    kept = [pair for pair in dev if pair.group not in tested]
    splits = assign_splits(Counter(pair.group for pair in kept), SHARES, seed)
    placed = [dataclasses.replace(pair, split=splits[pair.group]) for pair in kept]
    placed += [dataclasses.replace(pair, split="test") for pair in test]
    return placed, (len(dev) - len(kept)) // orders


def unpack(folder: Path, out: Path, paths: set[str]) -> None:
    """Write the pictures of these paths, as they are."""
    for part in ("dev", "test"):
        archive = folder / f"{part}_images.tar"
        if not archive.is_file():
            raise RowError(f"{archive}: no such file, got nothing to unpack; copy it from lil-lab/nlvr")
        with tarfile.open(archive) as tar:
            for member in tar:
                if member.name in paths and member.isfile() and (content := tar.extractfile(member)) is not None:
                    target = out / member.name
                    target.parent.mkdir(parents=True, exist_ok=True)
                    target.write_bytes(content.read())
    if missing := sorted(path for path in paths if not (out / path).is_file()):
        raise RowError(
            f"{folder}: pictures are missing, got no {missing[0]} and {len(missing) - 1} more; copy the archives again"
        )


def sentence_key(sentence: str) -> str:
    """What sentences have in common that differ in case, spaces, punctuation and articles alone."""
    words = re.sub(r"[^a-z0-9 ]", " ", sentence.lower()).split()
    return " ".join(word for word in words if word not in ("a", "an", "the"))


def _examples(file: Path, part: str, orders: int) -> Iterator[Pair]:
    if not file.is_file():
        raise RowError(f"{file}: no such file, got nothing to read; copy it from lil-lab/nlvr")
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            value = json.loads(line)
            sentence, name, votes = value["sentence"], value["identifier"], value["evals"]
            label, directory = LABELS[value["label"]], value["directory"]
        except (ValueError, KeyError, TypeError) as error:
            raise RowError(
                f"{file}:{number}: no example of NLVR, got {type(error).__name__} {error}; copy the file again"
            ) from error
        for order in range(orders):
            yield Pair(
                id=f"nlvr/{part}/{name}/{order}",
                claim=" ".join(sentence.split()),
                evidence=(Image(f"{part}/images/{directory}/{part}-{name}-{order}.png"),),
                label=label,
                group=sentence_key(sentence),
                meta={"part": part, "example": name, "votes": dict(Counter(votes.values()))},
            )


if __name__ == "__main__":
    raise SystemExit(main())
