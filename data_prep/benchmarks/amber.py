"""AMBER (Wang et al. 2023, arXiv 2311.07397), its discriminative questions: existence, attribute and relation.

Questions and answers lie in two files, joined by id. The generative task is not read: it judges free captions.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ...core import Image, RowError
from ..importers import Record, Rejected, Row, read_json_records
from .base import Benchmark, rows_of, text_of, yes_no_row

KINDS = {
    "discriminative-hallucination": "existence",
    "discriminative-attribute-state": "state",
    "discriminative-attribute-number": "number",
    "discriminative-attribute-action": "action",
    "discriminative-relation": "relation",
    "relation": "relation",  # as the published file writes it where the answer is no
}


def read(folder: Path, part: str) -> Iterator[Row | Rejected]:
    """A row a question."""
    answers: dict[Any, Any] = {}
    for record in read_json_records(folder / "annotations.json"):
        if isinstance(record, Rejected):
            yield record
        else:
            answers[record.value.get("id")] = record.value

    def make(record: Record) -> Iterator[Row]:
        number = record.value["id"]
        if number not in answers:
            raise RowError(f"id has no answer, got {number!r}; annotations.json must be of the same release")
        kind = KINDS.get(answers[number].get("type"))
        if kind is None:
            raise RowError(f"type is unknown, got {answers[number].get('type')!r}; use one of {list(KINDS)}")
        image, item = text_of(record.value, "image"), f"amber/{number}"
        about = {"part": "discriminative", "item": item, "kind": kind}
        yield yes_no_row(record, item, record.value["query"], answers[number]["truth"], Image(image), image, **about)

    yield from rows_of(read_json_records(folder / "query_discriminative.json"), make, "amber")


BENCHMARK = Benchmark(
    name="amber",
    title="AMBER (discriminative)",
    source="arXiv 2311.07397, github junyangwang0410/AMBER",
    files={"discriminative": ("query_discriminative.json", "annotations.json")},
    media="AMBER_*.jpg, as in image/",
    read=read,
)
