"""Import role-typed facts (DualFact): one annotated segment in, one pair per true or false fact out.

The neutral format, a JSON list or JSON lines, is described in docs/formats.md. A conceptual fact (a semantic role and
its value) becomes the sentence "<Role> is <value>." of DualFact, section 3; a contextual fact is a verb phrase and
becomes a sentence by a capital and a full stop. The caption never becomes the claim's context: it would give the
answer away.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ...core import SPLITS, Evidence, Label, Pair, Transcript, VideoSegment, is_seconds
from .base import Importer, Record, Rejected, Row, read_json_records, reject

_TEXT_KEYS = ("id", "group", "caption", "caption_implicit")
_ROLE_KEYS = ("conceptual", "negative_conceptual")
_PHRASE_KEYS = ("contextual", "negative_contextual")
KEYS = (
    "video",
    "start_s",
    "end_s",
    *_TEXT_KEYS,
    *_ROLE_KEYS,
    *_PHRASE_KEYS,
    "distractors",
    "split",
    "transcript",
    "meta",
)


def read_facts(path: Path, options: None = None) -> Iterator[Row | Rejected]:
    """Every fact of an annotation file as a row, and every annotation that cannot be one as a rejection."""
    for record in read_json_records(path):
        if isinstance(record, Rejected):
            yield record
            continue
        if problems := _structure_problems(record.value):
            name = record.value.get("id") if isinstance(record.value, dict) else None
            yield from (reject(record, problem, id=name if isinstance(name, str) else None) for problem in problems)
            continue
        yield from _rows(record)


def conceptual_claim(role: str, value: str) -> str:
    """DualFact's rendering of a semantic role and its value."""
    return f"{role} is {value.strip().rstrip('.')}." if value.strip() else ""


def contextual_claim(phrase: str) -> str:
    """A verb phrase as a sentence: "chop carrot" -> "Chop carrot."."""
    phrase = phrase.strip()
    if not phrase:
        return ""
    return phrase[0].upper() + phrase[1:] + ("" if phrase[-1] in ".!?" else ".")


def _rows(record: Record) -> Iterator[Row]:
    annotation = {key: value for key, value in record.value.items() if value is not None}
    annotation["video"] = os.path.normpath(annotation["video"])  # "./a.mp4" and "a.mp4" are one group
    name = annotation.get("id") or _default_id(annotation)
    common: dict[str, Any] = {
        "evidence": _evidence(annotation),
        "group": annotation.get("group", annotation["video"]),
        "split": annotation.get("split"),
        "meta": _meta(annotation),
    }
    kinds: tuple[tuple[Label, str, str], ...] = (("supported", "", ""), ("refuted", "negative_", "not/"))
    for label, prefix, mark in kinds:
        for role, number, claim, kind in _claims(annotation, prefix):
            origin = f"{prefix}{kind or 'annotated'}"
            pair = Pair(f"{name}/{mark}{role}/{number}", claim, label=label, role=role, origin=origin, **common)
            yield Row(pair, record.file, record.line, name)


def _claims(annotation: dict[str, Any], prefix: str) -> Iterator[tuple[str, int, str, str | None]]:
    """(role, number, claim, kind) of every fact of one sign."""
    for role, values in annotation.get(f"{prefix}conceptual", {}).items():
        for number, value in enumerate(values if isinstance(values, list) else [values]):
            fact = _as_fact(value)
            yield role, number, conceptual_claim(role, fact["text"]), fact.get("kind")
    for number, phrase in enumerate(annotation.get(f"{prefix}contextual", [])):
        fact = _as_fact(phrase)
        yield fact.get("role", "contextual"), number, contextual_claim(fact["text"]), fact.get("kind")


def _as_fact(value: Any) -> dict[str, str]:
    """A fact is its text, or an object that also tags it: {"text", "role" (of a phrase), "kind"}."""
    return value if isinstance(value, dict) else {"text": value}


def _default_id(annotation: dict[str, Any]) -> str:
    end_s = annotation.get("end_s")
    return f"{annotation['video']}@{annotation.get('start_s', 0):.12g}-{'end' if end_s is None else f'{end_s:.12g}'}"


def _evidence(annotation: dict[str, Any]) -> tuple[Evidence, ...]:
    start_s, end_s = annotation.get("start_s", 0.0), annotation.get("end_s")
    segment = VideoSegment(annotation["video"], start_s, end_s)
    transcript = annotation.get("transcript")
    return (segment,) if transcript is None else (segment, Transcript(transcript, start_s, end_s))


def _meta(annotation: dict[str, Any]) -> dict[str, Any]:
    kept = {key: annotation[key] for key in ("caption", "caption_implicit", "distractors") if key in annotation}
    return {**annotation.get("meta", {}), **kept}


def _structure_problems(value: Any) -> list[str]:
    """Everything wrong with an annotation's keys and types; what its pairs say is checked later, like any pair's."""
    if not isinstance(value, dict):
        return [f"annotation must be an object, got {type(value).__name__}; write {{'video': ...}}"]
    problems = []
    for key in value:
        if key not in KEYS:
            near = difflib.get_close_matches(key, KEYS, n=1, cutoff=0.0)[0]
            problems.append(f"unknown key, got {key!r}; did you mean {near!r}? (free keys go into 'meta')")
    if not isinstance(value.get("video"), str) or not value["video"]:
        problems.append(f"video must be a file name, got {value.get('video')!r}; name the video")
    known = {key: item for key, item in value.items() if item is not None}
    problems.extend(_value_problems(known))
    if not problems and not any(known.get(key) for key in (*_ROLE_KEYS, "contextual", "negative_contextual")):
        problems.append(f"annotation holds no facts, got {sorted(known)}; give conceptual or contextual facts")
    return problems


def _value_problems(known: dict[str, Any]) -> Iterator[str]:
    for key in ("start_s", "end_s"):
        if not is_seconds(known.get(key, 0)):
            yield f"{key} must be a finite number of seconds, got {known[key]!r:.40}; fix the time"
    for key in (*_TEXT_KEYS, "transcript"):
        if not isinstance(known.get(key, ""), str):
            yield f"{key} must be text, got {known[key]!r}; quote it"
    for key in _ROLE_KEYS:
        roles = known.get(key, {})
        if not isinstance(roles, dict) or not all(_is_fact(v) or _is_facts(v) for v in roles.values()):
            yield f"{key} must map roles to a value or a list of values, got {roles!r}; write {{role: value}}"
        elif bad := [role for role in roles if not role.strip() or role == "contextual"]:
            yield f"{key} has an unusable role name, got {bad[0]!r}; name the role, e.g. Action"
    for key in _PHRASE_KEYS:
        if not _is_facts(known.get(key, []), "role"):
            yield f"{key} must be a list of phrases, got {known[key]!r}; write [text, ...] or [{{text, role, kind}}]"
    distractors = known.get("distractors", [])
    if not (isinstance(distractors, list) and all(isinstance(item, str) for item in distractors)):
        yield f"distractors must be a list of texts, got {distractors!r}; write [text, ...]"
    if not isinstance(known.get("meta", {}), dict):
        yield f"meta must be an object, got {known['meta']!r}; write {{name: value}}"
    if known.get("split", SPLITS[0]) not in SPLITS:
        yield f"split is unknown, got {known['split']!r}; use one of {list(SPLITS)}"


def _is_fact(value: Any, *more_keys: str) -> bool:
    if not isinstance(value, dict):
        return isinstance(value, str)
    return (
        "text" in value
        and set(value) <= {"text", "kind", *more_keys}
        and all(isinstance(v, str) for v in value.values())
    )


def _is_facts(value: Any, *more_keys: str) -> bool:
    return isinstance(value, list) and all(_is_fact(item, *more_keys) for item in value)


IMPORTER = Importer(
    name="facts",
    description="Role-typed facts of annotated segments: DualFact's content in a neutral layout.",
    read=read_facts,
)
