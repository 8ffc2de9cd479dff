"""TempCompass (Liu et al. 2024, arXiv 2403.00476): temporal aspects of short videos.

Of its four tasks yes/no and caption matching are read. Each option of a caption-matching question is a claim, the right
one supported and the other refuted. Multiple choice and captioning are not read: their files are not of this layout.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ...core import RowError, VideoSegment
from ..importers import Record, Rejected, Row, read_json_members
from .base import Benchmark, claim_row, rows_of, text_of, yes_no_row

DIMENSIONS = ("action", "direction", "speed", "order", "attribute_change")


def read(folder: Path, part: str) -> Iterator[Row | Rejected]:
    """One row a yes/no question, one an option of a caption-matching question."""
    make = _yes_no if part == "yes_no" else _options
    yield from rows_of(read_json_members(folder / f"{part}.json"), make, "tempcompass")


def _yes_no(record: Record) -> Iterator[Row]:
    for item, about, question, video, group in _questions(record, "yes_no"):
        yield yes_no_row(record, item, question["question"], question["answer"], video, group, **about)


def _options(record: Record) -> Iterator[Row]:
    for item, about, question, video, group in _questions(record, "caption_matching"):
        head, *options = text_of(question, "question").split("\n")
        right = text_of(question, "answer")
        if options.count(right) != 1 or len(options) < 2 or not all(": " in option for option in options):
            raise RowError(f"answer must be one of the options, got {right!r} for {options}; correct one of them")
        for number, option in enumerate(options):
            letter, _, caption = option.partition(": ")
            said = {
                "question": head,
                "answer": letter,
                "rule": "option",
                "side": "right" if option == right else letter,
            }
            label = "supported" if option == right else "refuted"
            yield claim_row(record, f"{item}/{number}", caption, label, video, group, **said, **about)


def _questions(record: Record, part: str) -> Iterator[tuple[str, dict[str, str], dict[str, str], VideoSegment, str]]:
    name, aspects = record.value
    for kind, questions in aspects.items():
        if kind not in DIMENSIONS:
            raise RowError(f"dimension is unknown, got {kind!r}; use one of {list(DIMENSIONS)}")
        for number, question in enumerate(questions):
            item = f"tempcompass/{part}/{name}/{kind}/{number}"
            yield item, {"part": part, "item": item, "kind": kind}, question, VideoSegment(f"{name}.mp4"), name


BENCHMARK = Benchmark(
    name="tempcompass",
    title="TempCompass",
    source="arXiv 2403.00476, github llyx97/TempCompass",
    files={"yes_no": ("yes_no.json",), "caption_matching": ("caption_matching.json",)},
    media="ID.mp4 for each video, as in videos/",
    read=read,
)
