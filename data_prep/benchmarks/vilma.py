"""ViLMA (Kesen et al. 2024, arXiv 2311.07022): a caption and foils of a span of a video, each with a proficiency test.

Captions are supported claims, foils refuted ones. `valid` in `meta` says whether two of three people chose the caption
and one held the proficiency test's caption for right: the published evaluation (bin/eval.py) counts no others.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ...core import Label, RowError, VideoSegment
from ..importers import Record, Rejected, Row, read_json_members
from .base import Benchmark, claim_row, rows_of, text_of

PARTS = ("change-state-action", "relations")


def read(folder: Path, part: str) -> Iterator[Row | Rejected]:
    """A row for the caption and each foil, of the test and of its proficiency test."""

    def make(record: Record) -> Iterator[Row]:
        key, value = record.value
        video, item = _video(value), f"vilma/{part}/{key}"
        valid = value["mturk"]["caption"] >= 2 and value["proficiency"]["human"]["caption"] == 1
        for test, texts in (("main", value), ("proficiency", value["proficiency"])):
            if not isinstance(texts["foils"], list) or not texts["foils"]:
                raise RowError(f"foils must be a list of texts, got {texts['foils']!r}; give one at least")
            about = {"part": part, "item": item, "kind": test, "valid": valid, "rule": "caption"}
            claims: list[tuple[str, str, Label]] = [("caption", text_of(texts, "caption"), "supported")]
            foils: list[tuple[str, str, Label]] = [(f"foil {n}", f, "refuted") for n, f in enumerate(texts["foils"])]
            claims += foils
            for side, claim, label in claims:
                name = f"{item}/{test}/{side}"
                yield claim_row(record, name, claim, label, video, video.path, **about, side=side)

    yield from rows_of(read_json_members(folder / f"{part}.json"), make, "vilma")


def _video(value: dict[str, Any]) -> VideoSegment:
    """Files are named as the published reader names them (vl_bench/data.py), one folder a source data set."""
    dataset = text_of(value, "dataset")
    if value.get("youtube_id"):
        name = f"{value['youtube_id']}.mp4"
    else:
        number = value.get("video_file") or value["dataset_idx"]
        name = f"{number}.webm" if dataset == "something-something-v2" else f"{number}.mp4"
    if value.get("time_unit", "sec") != "sec":
        raise RowError(f"time_unit must be sec, got {value.get('time_unit')!r}; convert start and end to seconds")
    end_s = None if value.get("end_time") in (None, -1) else float(value["end_time"])  # -1: to the video's end
    return VideoSegment(f"{dataset}/{name}", float(value.get("start_time") or 0.0), end_s)


BENCHMARK = Benchmark(
    name="vilma",
    title="ViLMA",
    source="arXiv 2311.07022, github ilkerkesen/ViLMA",
    files={part: (f"{part}.json",) for part in PARTS},
    media="DATASET/ID.mp4 (something-something-v2/ID.webm), a folder for each source data set",
    read=read,
)
