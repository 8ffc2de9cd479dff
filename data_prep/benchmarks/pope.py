"""POPE (Li et al. 2023, arXiv 2305.10355): is an object in a COCO picture? Three splits of absent objects."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ...core import Image
from ..importers import Record, Rejected, Row, read_json_records
from .base import Benchmark, rows_of, text_of, yes_no_row

PARTS = ("random", "popular", "adversarial")


def read(folder: Path, part: str) -> Iterator[Row | Rejected]:
    """A row a question."""

    def make(record: Record) -> Iterator[Row]:
        image = text_of(record.value, "image")
        item = f"pope/{part}/{record.value['question_id']}"
        about = {"part": part, "item": item, "kind": part}
        yield yes_no_row(record, item, record.value["text"], record.value["label"], Image(image), image, **about)

    # The published files end in .json and hold one object a line.
    yield from rows_of(read_json_records(folder / f"coco_pope_{part}.json", lines=True), make, "pope")


BENCHMARK = Benchmark(
    name="pope",
    title="POPE",
    source="arXiv 2305.10355, github AoiDragon/POPE",
    files={part: (f"coco_pope_{part}.json",) for part in PARTS},
    media="COCO_val2014_*.jpg, as in COCO's val2014/",
    read=read,
)
