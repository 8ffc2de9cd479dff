"""VSR (Liu et al. 2023, arXiv 2205.00363): captions of two objects' places in a COCO picture, true or false."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ...core import Image, RowError
from ..importers import Record, Rejected, Row, read_json_records
from .base import Benchmark, claim_row, rows_of, text_of

PARTS = ("test", "dev")


def read(folder: Path, part: str) -> Iterator[Row | Rejected]:
    """A row a caption."""
    number = iter(range(1_000_000))

    def make(record: Record) -> Iterator[Row]:
        value, item = record.value, f"vsr/{part}/{next(number)}"
        if value.get("label") not in (0, 1):
            raise RowError(f"label must be 0 or 1, got {value.get('label')!r}; correct it")
        image, label = text_of(value, "image"), "supported" if value["label"] else "refuted"
        about = {"part": part, "item": item, "kind": text_of(value, "relation"), "rule": "caption"}
        yield claim_row(record, item, text_of(value, "caption"), label, Image(image), image, **about)

    yield from rows_of(read_json_records(folder / f"zeroshot_{part}.jsonl"), make, "vsr")


BENCHMARK = Benchmark(
    name="vsr",
    title="VSR (zero-shot split)",
    source="arXiv 2205.00363, github cambridgeltl/visual-spatial-reasoning",
    files={part: (f"zeroshot_{part}.jsonl",) for part in PARTS},
    media="NAME.jpg for each picture, as in images/ (COCO's train2017 and val2017)",
    read=read,
)
