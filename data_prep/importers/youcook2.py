"""Import YouCook2: every described segment of a cooking video is a supported claim about that segment.

The layout is that of youcookii_annotations_trainval.json. There are no negatives in it: a build makes them, from other
videos or from other segments of the same one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...core import Pair, RowError, Split, VideoSegment, is_seconds
from .base import Importer, Record, Rejected, Row, read_json_members, reject
from .facts import contextual_claim

SUBSETS: dict[str, Split] = {"training": "train", "validation": "test"}


@dataclass(frozen=True)
class YouCook2Options:
    """How segments become rows.

    Attributes:
        use_subsets: fix the data set's own subsets: training -> train, validation -> test (the sentences of the
            published test subset are not public). Otherwise the build draws the splits.
        extension: of the video files, `<video id><extension>`.
    """

    use_subsets: bool = False
    extension: str = ".mp4"


def read(path: Path, options: YouCook2Options | None = None) -> Iterator[Row | Rejected]:
    """Every segment as a row; the line is that of its video."""
    for record in read_json_members(path, "database"):
        if isinstance(record, Rejected):
            yield record
            continue
        video, value = record.value
        try:
            _check_video(value)
        except RowError as error:
            yield reject(record, str(error), id=video)
            continue
        for number, annotation in enumerate(value["annotations"]):
            try:
                yield _row(record, annotation, options or YouCook2Options())
            except RowError as error:
                yield reject(record, str(error), id=f"{video}/annotations/{number}")


def _check_video(value: Any) -> None:
    if not isinstance(value, dict) or not isinstance(value.get("annotations"), list):
        raise RowError(f"video has no list of annotations, got {_short(value)}; see docs/formats.md")
    if not is_seconds(value.get("duration")):
        raise RowError(f"duration must be a number of seconds, got {value.get('duration')!r}; measure the video")
    if value.get("subset") not in list(SUBSETS):  # a list has no hash
        raise RowError(f"subset is unknown, got {value.get('subset')!r}; use one of {list(SUBSETS)}")
    if not isinstance(value.get("recipe_type", ""), str):
        raise RowError(f"recipe_type must be text, got {value['recipe_type']!r}; quote it")


def _row(record: Record, annotation: Any, options: YouCook2Options) -> Row:
    video, value = record.value
    if not isinstance(annotation, dict):
        raise RowError(f"annotation must be an object, got {annotation!r}; write {{'segment': ...}}")
    number, sentence = annotation.get("id"), annotation.get("sentence")
    if isinstance(number, bool) or not isinstance(number, (int, str)):
        raise RowError(f"id must be a number or text, got {number!r}; number the annotations")
    if not isinstance(sentence, str) or not sentence.strip():
        raise RowError(f"sentence must be text, got {sentence!r}; describe the segment")
    start_s, end_s = _segment(annotation.get("segment"), value["duration"])
    name = f"youcook2/{video}/{number}"
    pair = Pair(
        id=name,
        claim=contextual_claim(re.sub(r"[ \t\r\n]+", " ", sentence)),
        evidence=(VideoSegment(video + options.extension, start_s, end_s),),
        label="supported",
        split=SUBSETS[value["subset"]] if options.use_subsets else None,
        group=video,
        role="caption",
        meta={"recipe_type": value.get("recipe_type", ""), "subset": value["subset"]},
    )
    return Row(pair, record.file, record.line, name)


def _segment(segment: Any, duration_s: float) -> tuple[float, float]:
    if not isinstance(segment, list) or len(segment) != 2 or not all(is_seconds(time) for time in segment):
        raise RowError(f"segment must be two finite numbers of seconds, got {segment!r}; write [start, end]")
    start_s, end_s = segment
    if not 0 <= start_s < end_s:
        raise RowError(f"segment is reversed, empty or negative, got {segment!r}; correct the times")
    if end_s > duration_s:
        raise RowError(f"segment ends after the video, got {end_s} of {duration_s} s; correct the times")
    return start_s, end_s


def _short(value: Any) -> str:
    return repr(sorted(value))[:80] if isinstance(value, dict) else repr(value)[:80]


IMPORTER = Importer(
    name="youcook2",
    description="YouCook2 captions of segments of cooking videos.",
    read=read,
    options=YouCook2Options,
)
