"""VideoHallucer (Wang et al. 2024, arXiv 2406.16338): pairs of a basic and a hallucinated question about a video.

Layout of patrick-tssn/VideoHallucer: `PART.json`, and videos in `PART/videos/`. The basic question and the hallucinated
one are right or wrong together; each is asked about its own video (they differ in `semantic_detail` only). Of the two
files of fact detection `fact_detect.json` is read, which the published evaluation reads by default.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ...core import VideoSegment
from ..importers import Record, Rejected, Row, read_json_records
from .base import Benchmark, rows_of, text_of, yes_no_row

PAPER_PARTS = ("object_relation", "temporal", "semantic_detail", "external_factual", "external_nonfactual")
PARTS = (*PAPER_PARTS, "fact_detect", "interaction")
SIDES = ("basic", "hallucination")


def read(folder: Path, part: str) -> Iterator[Row | Rejected]:
    """Two rows a record."""
    number = iter(range(1_000_000))

    def make(record: Record) -> Iterator[Row]:
        item = f"videohallucer/{part}/{next(number)}"
        first = text_of(record.value["basic"], "video")
        shared = Path(first).stem.removesuffix("_a") if part == "semantic_detail" else Path(first).stem
        for side in SIDES:
            value = record.value[side]
            video = VideoSegment(f"{part}/videos/{text_of(value, 'video')}")
            about = {"part": part, "item": item, "side": side, "kind": record.value.get("type") or part}
            group = f"interaction/{shared}" if part == "interaction" else shared  # its files are only numbered
            yield yes_no_row(record, f"{item}/{side}", value["question"], value["answer"], video, group, **about)

    yield from rows_of(read_json_records(folder / f"{part}.json"), make, "videohallucer")


BENCHMARK = Benchmark(
    name="videohallucer",
    title="VideoHallucer",
    source="arXiv 2406.16338, github patrick-tssn/VideoHallucer",
    files={part: (f"{part}.json",) for part in PARTS},
    media="PART/videos/NAME.mp4 for each part, as in videohallucer_datasets/",
    read=read,
)
