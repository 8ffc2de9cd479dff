"""Import CG-Bench: multiple-choice questions about long videos, with the intervals that hold the answer (the clues).

The right answer is a supported statement about the clue segments, every distractor a refuted one. Asked of other
spans of the same video, the answer becomes `not_enough`. The layout is that of cgbench_mini.json (CG-Bench/CG-Bench);
a question may have several clues, which belong together (CG-Bench paper, section 3: they are merged into one).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from ...core import (
    ConfigError,
    Label,
    Pair,
    RowError,
    Span,
    VideoSegment,
    complement,
    draw_apart,
    is_seconds,
    merged,
    without,
)
from .base import Importer, Record, Rejected, Row, kind_of, read_json_members, read_json_records, reject
from .qa_statements import LETTERS, Rewrite, distinct_options, option_number, plain_options, same_text, statements

_TEXT_KEYS = ("video_uid", "question", "answer", "domain", "sub_category")
_UNREADABLE = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
_ROUNDED_S = 1.0  # `duration` is in whole seconds, rounded up


@dataclass(frozen=True)
class CGBenchOptions:
    """How questions become rows.

    Attributes:
        clues: `joint`: all clue segments together are the evidence; `each`: one row per clue segment, which is wrong
            for questions that need them all (counting, order).
        non_clue_per_question: how many times the answer is asked of spans without a clue; with `each`, per clue.
        gap_s: seconds that such spans keep from every clue.
        seed: draws them, together with the question's id.
        durations: `video_meta_info.json`, with exact durations; relative to the annotation file. "": the rounded
            `duration` of the questions.
        extension: of the video files, `<video_uid><extension>`.
    """

    clues: str = "joint"
    non_clue_per_question: int = 1
    gap_s: float = 10.0
    seed: int = 0
    durations: str = ""
    extension: str = ".mp4"


@dataclass(frozen=True)
class _ClueQuestion:
    """A checked annotation."""

    record: Record
    id: str
    video: str
    choices: list[str]
    right: int
    clues: tuple[Span, ...]
    free_until_s: float


def read(
    path: Path, options: CGBenchOptions | None = None, rewrite: Rewrite | None = None, fall_back: bool = False
) -> Iterator[Row | Rejected]:
    """Every question of a file as rows, and what cannot be one as rejections.

    Args:
        rewrite, fall_back: write the statements by a language model, see `statements`.

    Raises:
        ConfigError: an option is out of range, or `durations` names no file.
    """
    options = options or CGBenchOptions()
    _check(options)
    measured = list(_read_durations(path.parent / options.durations)) if options.durations else []
    yield from (item for item in measured if isinstance(item, Rejected))
    durations = dict(item for item in measured if not isinstance(item, Rejected)) if options.durations else None
    for record in read_json_records(path):
        if isinstance(record, Rejected):
            yield record
            continue
        name = record.value.get("qid") if isinstance(record.value, dict) else None
        try:
            question = _question(record, options, durations)
            yield from _rows(question, options, rewrite, fall_back)
        except RowError as error:
            yield reject(record, str(error), id=None if name is None else f"cgbench/{name}")


def _check(options: CGBenchOptions) -> None:
    if options.clues not in ("joint", "each"):
        raise ConfigError(f"clues: no such way to use clues, got {options.clues!r}; use 'joint' or 'each'")
    for name in ("non_clue_per_question", "gap_s"):
        value = getattr(options, name)
        if not (math.isfinite(value) and value >= 0):
            raise ConfigError(f"{name}: must be a number >= 0, got {value!r}; 0 turns it off")


def _read_durations(path: Path) -> Iterator[tuple[str, float] | Rejected]:
    if not path.is_file():
        raise ConfigError(f"durations: no such file, got {path}; name video_meta_info.json or leave it out")
    for item in read_json_members(path):
        if isinstance(item, Rejected):
            yield item
            continue
        video, meta = item.value
        duration_s = meta.get("duration") if isinstance(meta, dict) else None
        if is_seconds(duration_s) and duration_s > 0:
            yield video, duration_s
        else:
            yield reject(item, f"duration must be a number of seconds, got {duration_s!r}; measure the video", id=video)


def _question(record: Record, options: CGBenchOptions, durations: dict[str, float] | None) -> _ClueQuestion:
    value = record.value
    _check_types(value)
    choices = plain_options(value["choices"])
    right = option_number(value.get("right_answer"), choices)
    if same_text(value["answer"]) not in (same_text(choices[right]), same_text(value["choices"][right])):
        raise RowError(
            f"right_answer is another choice than answer, got {value['right_answer']!r}, {choices[right]!r} for "
            f"{value['answer']!r}; correct one of them"
        )
    video, until_s = value["video_uid"], value["duration"] - _ROUNDED_S
    duration_s = value["duration"]
    if durations is not None:
        if video not in durations:
            raise RowError(f"video has no duration, got no {video!r} in {options.durations}; add it there")
        duration_s = until_s = durations[video]
    clues = merged(value["clue_intervals"])
    if clues[-1][1] > duration_s:
        raise RowError(f"clue ends after the video, got {clues[-1][1]} of {duration_s} s; correct the interval")
    return _ClueQuestion(record, f"cgbench/{value['qid']}", video + options.extension, choices, right, clues, until_s)


def _check_types(value: Any) -> None:
    if not isinstance(value, dict):
        raise RowError(f"annotation must be an object, got {type(value).__name__}; see docs/formats.md")
    if isinstance(value.get("qid"), bool) or not isinstance(value.get("qid"), (int, str)) or value["qid"] == "":
        raise RowError(f"qid must be a number or text, got {value.get('qid')!r}; number the questions")
    if _UNREADABLE.search(str(value["qid"])):
        raise RowError(f"qid holds control or surrogate characters, got {value['qid']!r}; number the questions")
    for key in _TEXT_KEYS:
        if not isinstance(value.get(key), str) or not value[key].strip():
            raise RowError(f"{key} must be text, got {value.get(key)!r}; fill it in")
    choices, intervals = value.get("choices"), value.get("clue_intervals")
    if not isinstance(choices, list) or not all(isinstance(c, str) and c.strip() for c in choices):
        raise RowError(f"choices must be a list of texts, got {choices!r}; write [text, ...]")
    if not is_seconds(value.get("duration")):
        raise RowError(f"duration must be a number of seconds, got {value.get('duration')!r}; measure the video")
    pairs = isinstance(intervals, list) and all(isinstance(i, list) and len(i) == 2 for i in intervals)
    if not intervals or not pairs or not all(is_seconds(time) for interval in intervals for time in interval):
        raise RowError(f"clue_intervals must be pairs of seconds, got {intervals!r}; write [[start, end], ...]")


def _rows(
    question: _ClueQuestion, options: CGBenchOptions, rewrite: Rewrite | None, fall_back: bool
) -> Iterator[Row | Rejected]:
    text, right = question.record.value["question"], question.right
    kept, repeated = distinct_options(question.choices, right)
    claims = dict(zip(kept, statements([(text, question.choices[n]) for n in kept], rewrite, fall_back), strict=True))
    parts = [("", question.clues)]
    if options.clues == "each":
        parts = [(f"/clue/{number}", (clue,)) for number, clue in enumerate(question.clues)]
    for suffix, clues in parts:
        for number, claim in claims.items():
            label, origin = ("supported", "annotated") if number == right else ("refuted", "distractor")
            yield _row(question, LETTERS[number] + suffix, number, claim, clues, label, origin)
    for again, first in repeated:
        message = f"choice repeats another, got {LETTERS[again]} like {LETTERS[first]}; one row is kept for both"
        yield _left_out(question, message, 1)
    for suffix, clues in parts:
        drawn = _non_clues(question, clues, suffix, options)
        for number, spans in enumerate(drawn):
            name = f"{LETTERS[right]}{suffix}/non_clue/{number}"
            yield _row(question, name, right, claims[right], spans, "not_enough", "non_clue")
        if missing := options.non_clue_per_question - len(drawn):
            message = f"no room for spans without a clue, got {question.free_until_s} s of video; lower gap_s"
            yield _left_out(question, message, missing)


def _non_clues(
    question: _ClueQuestion, clues: tuple[Span, ...], suffix: str, options: CGBenchOptions
) -> list[tuple[Span, ...]]:
    """Spans as many and as long as these clues, away from all clues and from each other; fewer where no room is."""
    rng = Random(f"{options.seed}/{question.id}{suffix}")
    free = complement(question.clues, question.free_until_s, options.gap_s)
    drawn: list[tuple[Span, ...]] = []
    for _ in range(options.non_clue_per_question):
        spans = draw_apart([end_s - start_s for start_s, end_s in clues], free, rng)
        if spans is None:
            break
        drawn.append(spans)
        free = without(free, spans)
    return drawn


def _row(
    question: _ClueQuestion, name: str, number: int, claim: str, spans: Iterable[Span], label: Label, origin: str
) -> Row:
    record = question.record
    kept = {key: record.value[key] for key in ("qid", "question", "domain")}
    pair = Pair(
        id=f"{question.id}/{name}",
        claim=claim,
        evidence=tuple(VideoSegment(question.video, start_s, end_s) for start_s, end_s in spans),
        label=label,
        group=record.value["video_uid"],
        role=record.value["sub_category"],
        origin=origin,
        meta={**kept, "answer": question.choices[number]},
    )
    return Row(pair, record.file, record.line, question.id)


def _left_out(question: _ClueQuestion, message: str, pairs: int) -> Rejected:
    record = question.record
    return Rejected(record.file, record.line, question.id, kind_of(message), message, pairs, blocking=False)


IMPORTER = Importer(
    name="cgbench",
    description="CG-Bench questions about long videos, with the intervals that hold the answer.",
    read=read,
    options=CGBenchOptions,
    writes_statements=True,
)
