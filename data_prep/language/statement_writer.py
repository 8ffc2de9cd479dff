"""Statements by a language model: (question, answer) pairs of a benchmark rewritten as plain declarative claims."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

from ..errors import RowError
from ..statements import Rewrite
from .answers import Complete, LanguageModelError, ask, json_parser
from .language_model import LanguageModel, LanguageModelConfig

_SYSTEM = (
    "You turn answers to questions about a video into declarative sentences. Each sentence states exactly what the "
    "given answer claims, in one sentence that can be understood without the question. Never correct, judge or soften "
    "an answer, even where it looks wrong. Do not mention the question or that there are options."
)
_FORMAT = 'Reply with JSON only: {"statements": ["...", ...]}, one sentence per pair, in the same order.'


@dataclass(frozen=True)
class _Statements:
    statements: tuple[str, ...]


def statement_writer(config: LanguageModelConfig) -> Rewrite:
    """A rewriter that asks the endpoint; see `rewriter`."""
    return rewriter(LanguageModel(config))


def rewriter(complete: Complete) -> Rewrite:
    """A `Rewrite` for `statements.statements` through a language model.

    What the model never answers usably is a RowError with the reason: the importer rejects the question.
    """

    def rewrite(questions: list[tuple[str, str]]) -> list[str]:
        pairs = [{"question": question, "answer": answer} for question, answer in questions]
        text = f"{json.dumps(pairs, ensure_ascii=False, indent=1)}\n\n{_FORMAT}"
        messages = [{"role": "system", "content": _SYSTEM}, {"role": "user", "content": text}]
        try:
            return ask(complete, messages, _parser(len(questions)))
        except LanguageModelError as error:
            raise RowError(
                f"statements: the language model wrote none, got {error}; ask again, or use the template"
            ) from error

    return rewrite


def _parser(number: int) -> Callable[[str], list[str]]:
    def parse(text: str) -> list[str]:
        found = list(json_parser(_Statements)(text).statements)
        if len(found) != number or not all(sentence.strip() for sentence in found):
            raise ValueError(f"write {number} sentences, none of them empty, got {len(found)}")
        return found

    return parse
