"""HallusionBench (Guan et al. 2024, arXiv 2310.14566): yes/no questions about figures and altered figures.

Questions without a figure (`visual_input` 0) are claims about the sentence that the claim-only control uses, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ...core import Image, Passage, RowError
from ..importers import Record, Rejected, Row, read_json_records
from .base import Benchmark, rows_of, text_of, yes_no_row

NO_FIGURE = Passage("No evidence is given.")


def read(folder: Path, part: str) -> Iterator[Row | Rejected]:
    """A row a question."""
    yield from rows_of(read_json_records(folder / "HallusionBench.json"), _make, "hallusionbench")


def _make(record: Record) -> Iterator[Row]:
    value = record.value
    keys = ("category", "subcategory", "set_id", "figure_id", "question_id", "visual_input", "gt_answer")
    category, kind, of_set, figure, question, visual, answer = (text_of(value, key) for key in keys)
    if answer not in ("0", "1"):
        raise RowError(f"gt_answer must be 0 or 1, got {answer!r}; correct it")
    evidence = NO_FIGURE if visual == "0" else Image(text_of(value, "filename").removeprefix("./"))
    group = f"{category}/{kind}/{of_set}"
    about = {
        "part": "all",
        "item": f"{group}/{question}",
        "kind": category,
        "figure": None if category == "VS" and figure == "0" else f"{group}/{figure}",
        "easy": figure == "0",
    }
    name = f"hallusionbench/{group}/{figure}/{question}"
    yield yes_no_row(record, name, value["question"], ("no", "yes")[int(answer)], evidence, group, **about)


BENCHMARK = Benchmark(
    name="hallusionbench",
    title="HallusionBench",
    source="arXiv 2310.14566, github tianyi-lab/HallusionBench",
    files={"all": ("HallusionBench.json",)},
    media="CATEGORY/SUBCATEGORY/SET_FIGURE.png, as in hallusion_bench/",
    read=read,
)
