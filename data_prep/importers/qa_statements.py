"""Questions with answers become statements that may be true or false.

The template keeps question and answer word for word; a language model writes better sentences and comes in as a plain
function, so that nothing here knows about models. The options of a multiple-choice question are cleaned here too.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence

from ...core import RowError

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_LETTERED = re.compile(r"\(?([A-Z])\s*[.):]\s*(?=\S)")

# Takes (question, answer) pairs and gives one statement for each, in order; "" where it has none. May raise RowError.
Rewrite = Callable[[list[tuple[str, str]]], list[str]]


def statement(question: str, answer: str) -> str:
    """`The answer to the question "<question>" is: <answer>.`

    Whitespace is collapsed; commas, colons and semicolons at the end of the answer go, a full stop comes unless the
    answer ends a sentence itself.

    Raises:
        RowError: an empty question or answer.
    """
    question, answer = _one_line(question), _one_line(answer).rstrip(" ,;:")
    if not question or not answer:
        raise RowError(f"statement: question or answer is empty, got {question!r} and {answer!r}; write both")
    return f'The answer to the question "{question}" is: {answer}{"" if answer[-1] in ".!?" else "."}'


def statements(
    questions: Sequence[tuple[str, str]], rewrite: Rewrite | None = None, fall_back: bool = False
) -> list[str]:
    """One statement per (question, answer), by `rewrite` where given, else by the template.

    Args:
        fall_back: use the template where `rewrite` gave nothing usable, instead of raising.

    Raises:
        RowError: an empty question or answer; what `rewrite` raises, or a rewritten statement that is missing, empty,
            or the same as another answer's (it has lost the answer), without `fall_back`; a wrong number of statements.
    """
    by_template = [statement(question, answer) for question, answer in questions]
    if rewrite is None:
        return by_template
    try:
        written = rewrite(list(questions))
    except RowError:
        if not fall_back:
            raise
        written = [""] * len(questions)
    if len(written) != len(questions):
        raise RowError(
            f"statements: rewriting must give one statement per answer, got {len(written)} for {len(questions)}; "
            "repair the model's output"
        )
    written = [_one_line(text) if isinstance(text, str) else "" for text in written]
    keys = [same_text(text) for text in written]
    usable = [
        bool(key) and not any(key == other and by_template[i] != by_template[j] for j, other in enumerate(keys))
        for i, key in enumerate(keys)
    ]
    if not all(usable) and not fall_back:
        lost = usable.index(False)
        raise RowError(
            f"statements: rewriting lost the answer, got {written[lost]!r} for {questions[lost]!r}; "
            "write it again or allow the template"
        )
    return [text if good else plain for text, good, plain in zip(written, usable, by_template, strict=True)]


def option_number(letter: object, options: Sequence[str]) -> int:
    """Which option a letter names, from 0.

    Raises:
        RowError: no single capital letter, or one beyond the options.
    """
    if len(options) > len(LETTERS):
        raise RowError(f"more options than letters, got {len(options)}; give at most {len(LETTERS)}")
    known = LETTERS[: len(options)]
    if not isinstance(letter, str) or len(letter.strip()) != 1 or letter.strip() not in known:
        raise RowError(f"the right answer names no option, got {letter!r} for {len(options)} options; use one letter")
    return known.index(letter.strip())


def plain_options(options: Sequence[str]) -> list[str]:
    """The options without their letters, if each opens with its own ("A. red", "(B) blue"); otherwise as they are."""
    letters = [_LETTERED.match(option.strip()) for option in options]
    if options and all(m and m.group(1) == letter for m, letter in zip(letters, LETTERS, strict=False)):
        return [option.strip()[m.end() :] for option, m in zip(options, letters, strict=True) if m]
    return list(options)


def distinct_options(options: Sequence[str], right: int) -> tuple[list[int], list[tuple[int, int]]]:
    """The numbers of the options to keep, and (repeated, the one kept instead) of the others.

    Options are the same if `same_text` is: a data set cannot hold them both with different labels. Of the same
    ones the right answer stays, else the first.
    """
    first = {same_text(options[right]): right}
    for number, option in enumerate(options):
        first.setdefault(same_text(option), number)
    kept = sorted(first.values())
    repeated = [(n, first[same_text(option)]) for n, option in enumerate(options) if n not in kept]
    return kept, repeated


def same_text(text: str) -> str:
    """A form equal for texts that differ only in case, width, spaces or the punctuation at their end."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split()).rstrip(" .,;:")


def _one_line(text: str) -> str:
    return re.sub(r"[ \t\r\n]+", " ", text).strip()
