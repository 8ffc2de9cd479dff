"""What a language model is asked for MuRGAt, and how it answers: prompts from files, a yes or no in three styles."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from ...data_prep.language import parse_json, without_thoughts, yes_or_no

Style = Literal["simple", "cot", "json"]
"""How a yes or no is asked for (section 4.2): the word alone; reasoning, then the word; a JSON object with both."""

_PROMPTS = Path(__file__).parent / "prompts"
_ANSWER = re.compile(r"answer\W*:", re.IGNORECASE)


def prompt(name: str, **values: str) -> str:
    """A prompt from its file, with `{name}`s filled in; braces of JSON in it stay."""
    text = (_PROMPTS / f"{name}.txt").read_text(encoding="utf-8")
    return re.sub(r"\{(\w+)\}", lambda match: values[match[1]], text)


def reasoned_answer(text: str) -> bool:
    """The verdict after the last `Answer:`; ValueError where there is none."""
    answer = without_thoughts(text)
    answers = [*_ANSWER.finditer(answer)]
    if not answers:
        raise ValueError(f"the last line reads `Answer: YES` or `Answer: NO`, got {text.strip()[-120:]!r}")
    return yes_or_no(answer[answers[-1].end() :])


def json_answer(text: str) -> bool:
    """The verdict under `label` of a JSON object; ValueError where there is none."""
    value = parse_json(text)
    label = value.get("label") if isinstance(value, dict) else None
    if isinstance(label, bool):
        return label
    if not isinstance(label, str):
        raise ValueError(f'the answer is an object with "label": "YES" or "NO", got {text.strip()[:120]!r}')
    return yes_or_no(label)


ANSWERS: dict[Style, Callable[[str], bool]] = {"simple": yes_or_no, "cot": reasoned_answer, "json": json_answer}


def user_turn(text: str) -> list[dict[str, str]]:
    """A conversation of one question."""
    return [{"role": "user", "content": text}]
