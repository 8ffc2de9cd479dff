"""Statements by a language model: (question, answer) pairs of a benchmark rewritten as plain declarative claims."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tqdm import tqdm

from ...core import RowError
from ..importers import Rejected, Row, statement
from .answers import Complete, LanguageModelError, ask, json_parser, map_ordered

_SYSTEM = (
    "You turn answers to questions about a video into declarative sentences. Each sentence states exactly what the "
    "given answer claims, in one sentence that can be understood without the question. Never correct, judge or soften "
    "an answer, even where it looks wrong. Do not mention the question or that there are options."
)
_FORMAT = 'Reply with JSON only: {"statements": ["...", ...]}, one sentence per pair, in the same order.'


@dataclass(frozen=True)
class _Statements:
    statements: tuple[str, ...]


Questions = tuple[tuple[str, str], ...]
Read = Callable[..., Iterator[Row | Rejected]]


def read_with_statements(
    read: Read, path: Path, options: Any, model: Complete, concurrency: int, fall_back: bool
) -> Iterator[Row | Rejected]:
    """The rows of an annotation file, with statements by the model.

    The file is read twice: once to learn what will be asked, so that many questions can be put to the model side by
    side, and once with the answers. A question that the model never answers usably is a RowError, which the importer
    turns into a rejection; with `fall_back` its statements come from the template.

    Args:
        read: `read(path, options, rewrite=..., fall_back=...)` of an importer.
        path: the annotation file.
        options: the importer's.
        model: the language model.
        concurrency: questions under way at once.
        fall_back: use the template where the model gives nothing usable.
    """
    batches: dict[Questions, None] = {}

    def note(questions: list[tuple[str, str]]) -> list[str]:
        batches[tuple(questions)] = None
        return [statement(question, answer) for question, answer in questions]

    for _ in read(path, options, rewrite=note, fall_back=True):
        pass
    statements = map_ordered(lambda questions: _write(model, questions), batches, concurrency)
    answers = dict(zip(batches, tqdm(statements, desc="statements", total=len(batches), unit="question"), strict=True))

    def written(questions: list[tuple[str, str]]) -> list[str]:
        answer = answers[tuple(questions)]
        if not isinstance(answer, LanguageModelError):
            return answer
        if fall_back:
            return [""] * len(questions)
        raise RowError(
            f"statements: the language model wrote none, got {answer}; ask again, or use the template"
        ) from answer

    yield from read(path, options, rewrite=written, fall_back=fall_back)


def _write(model: Complete, questions: Questions) -> list[str]:
    pairs = [{"question": question, "answer": answer} for question, answer in questions]
    text = f"{json.dumps(pairs, ensure_ascii=False, indent=1)}\n\n{_FORMAT}"
    return ask(
        model, [{"role": "system", "content": _SYSTEM}, {"role": "user", "content": text}], _parser(len(questions))
    )


def _parser(number: int) -> Callable[[str], list[str]]:
    def parse(text: str) -> list[str]:
        statements = list(json_parser(_Statements)(text).statements)
        if len(statements) != number or not all(sentence.strip() for sentence in statements):
            raise ValueError(f"write {number} sentences, none of them empty, got {len(statements)}")
        return statements

    return parse
