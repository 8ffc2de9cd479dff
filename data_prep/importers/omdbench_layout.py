"""The layout of OMD-Bench anchors, read and checked: what shows an anchor, and what is asked about it.

Our own layout, as the benchmark's files are not public; docs/formats.md describes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...core.errors import RowError
from ...core.pairs import LABELS, Label
from ..statements import option_number, plain_options, same_text, statement

DATA = ("real", "synthetic")
ABSTENTION = "I cannot answer"
_TEXTS = ("id", "video", "audio", "audio_file", "text")
_KEYS = {*_TEXTS, "split", "questions", "claims"}
_QUESTION_KEYS = {"question", "options", "answer", "abstention", "key"}


@dataclass(frozen=True)
class Question:
    """One question about an anchor.

    Attributes:
        text: the question.
        options: without letters, and without the one that abstains.
        answer: the option that is right for the anchor.
        key: which option is right for which anchor (appendix A.8); the anchor's own `answer` included.
    """

    text: str
    options: tuple[str, ...]
    answer: str
    key: Mapping[str, str]


@dataclass(frozen=True)
class Anchor:
    """An object or event with what shows it on three channels. `audio` is what is heard, in words, unless `audio_file`
    names what a transcript is to be found for; `data` is "real" or "synthetic"."""

    id: str
    data: str
    video: str
    audio: str
    audio_file: str
    text: str
    questions: tuple[Question, ...]
    claims: tuple[tuple[str, Label], ...]


def anchor_of(value: Any) -> Anchor | str:
    """The anchor a record describes, or the first thing wrong with it."""
    if problem := _problem_of(value):
        return problem
    texts = {key: value.get(key) or "" for key in _TEXTS}
    try:
        questions = tuple(_question(item, value["id"]) for item in value.get("questions") or [])
    except RowError as error:
        return str(error)
    claims = tuple((item["claim"], item["label"]) for item in value.get("claims") or [])
    return Anchor(**texts, data=value.get("split") or DATA[0], questions=questions, claims=claims)


def _problem_of(value: Any) -> str | None:
    if not isinstance(value, dict):
        return f"anchor must be an object, got {type(value).__name__}; write {{'id': ..., 'video': ...}}"
    if unknown := sorted(set(value) - _KEYS):
        return f"unknown keys, got {unknown}; an anchor has {sorted(_KEYS)}"
    for key in _TEXTS:
        if not isinstance(value.get(key), (str, type(None))):
            return f"{key} must be text, got {value[key]!r:.60}; quote it"
        if key not in ("audio", "audio_file") and not (value.get(key) or "").strip():
            return f"{key} is missing, got {value.get(key)!r}; an anchor is shown on all three channels"
    if bool(value.get("audio")) == bool(value.get("audio_file")):
        return f"audio must be given once, got {value.get('audio')!r:.40} and {value.get('audio_file')!r:.40}; give one"
    if value.get("split") not in (*DATA, None):
        return f"split must be one of {list(DATA)}, got {value['split']!r}; it names the kind of media here"
    for key, is_good in (("questions", _is_question), ("claims", _is_claim)):
        items = value.get(key)
        if not isinstance(items, (list, type(None))) or not all(is_good(item) for item in items or []):
            return f"{key} cannot be read, got {items!r:.80}; see docs/formats.md for the layout"
    if not (value.get("questions") or value.get("claims")):
        return f"anchor asks nothing, got {sorted(value)}; give questions or claims"
    return None


def _is_question(item: Any) -> bool:
    return (
        isinstance(item, dict)
        and {"question", "options", "answer"} <= set(item) <= _QUESTION_KEYS
        and all(isinstance(item.get(key, ""), str) for key in ("question", "answer", "abstention"))
        and isinstance(item["options"], list)
        and all(isinstance(option, str) and option.strip() for option in item["options"])
        and isinstance(item.get("key", {}), dict)
        and all(isinstance(option, str) for option in item.get("key", {}).values())
    )


def _is_claim(item: Any) -> bool:
    return (
        isinstance(item, dict)
        and set(item) == {"claim", "label"}
        and isinstance(item["claim"], str)
        and item["label"] in LABELS
    )


def _question(item: dict[str, Any], anchor: str) -> Question:
    raw = item["options"]
    options = plain_options(raw)
    for option in options:
        statement(item["question"], option)  # raises where none can be made
    if len({same_text(option) for option in options}) < len(options):
        raise RowError(f"an option is given twice, got {options}; keep one")
    silent = [option for option in options if same_text(option) == same_text(ABSTENTION)]
    if item.get("abstention"):
        silent = [options[_named(item["abstention"], raw)]]
    key = {name: options[_named(option, raw)] for name, option in item.get("key", {}).items()}
    answer = options[_named(item["answer"], raw)]
    if key.setdefault(anchor, answer) != answer or any(option in silent for option in key.values()):
        raise RowError(
            f"answer contradicts key or abstains, got {answer!r} and {key}; give each anchor its true option"
        )
    return Question(item["question"], tuple(o for o in options if o not in silent), answer, key)


def _named(name: str, raw: list[str]) -> int:
    """The number of the option that a letter or the option's own words, with its letter or without, name."""
    for options in (raw, plain_options(raw)):
        if same := [n for n, option in enumerate(options) if same_text(option) == same_text(name)]:
            return same[0]
    return option_number(name, raw)
