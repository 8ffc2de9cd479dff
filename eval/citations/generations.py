"""Generated responses: questions read from a file, answered one by one, and kept so that a stopped run goes on."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...core import ConfigError, RowError, write_whole
from ...data_prep.importers import Rejected, read_json_records
from .programs import Question


def read_murgat_questions(path: str | Path) -> list[Question]:
    """Questions about videos: records with `video`, `question` and, as wanted, `options` and `id`.

    Raises:
        RowError: no such file, a record that cannot be read (with its line), or an id twice.
    """
    path = Path(path)
    if not path.is_file():
        raise RowError(f"{path}: no such file, got no questions; check the path")
    questions: dict[str, Question] = {}
    for record in read_json_records(path):
        if isinstance(record, Rejected):
            raise RowError(f"{record.file}:{record.line}: {record.reason}")
        question = _question(record.value, f"{record.file}:{record.line}")
        if question.id in questions:
            raise RowError(f"{record.file}:{record.line}: two questions have the id {question.id!r}; give each its own")
        questions[question.id] = question
    if not questions:
        raise RowError(f"{path}: no questions, got an empty file; give at least one")
    return list(questions.values())


def _question(value: Any, where: str) -> Question:
    row: dict[str, Any] = value if isinstance(value, dict) else {}
    texts = [row.get(name) for name in ("video", "question")]
    options = row.get("options") or []
    if not all(isinstance(text, str) and text for text in texts) or not isinstance(options, list):
        got = f"{value!r:.120}"
        raise RowError(f'{where}: a question is {{"video": ..., "question": ..., "options": [...]}}, got {got}; fix it')
    id = str(row.get("id") or f"{row['video']}: {row['question']}")
    kept = {name: value for name, value in row.items() if name in ("options", "answer")}
    return Question(id, row["video"], row["question"], tuple(map(str, options)), kept)


def generate(
    questions: Sequence[Question],
    answer: Callable[[Question], dict[str, Any]],
    path: Path,
    settings: Mapping[str, Any],
) -> list[dict[str, Any]]:
    """The record of each question, in order; the file grows by one at a time, and only what lacks is asked.

    Args:
        questions: what is asked.
        answer: a question's record; one with `program_error` is asked again by the next run.
        path: JSON lines.
        settings: all that answers depend on; the file must have been made with the same.

    Raises:
        ConfigError: the file was made with other settings.
    """
    kept = _kept(path, dict(settings))
    records = []
    for question in questions:
        record = kept.get(question.id)
        if record is None or (record["video"], record["question"]) != (question.video, question.question):
            record = answer(question) | {"program": dict(settings)}
        records.append(record)
        later = [kept[q.id] for q in questions[len(records) :] if q.id in kept]
        lines = "".join(json.dumps(each, ensure_ascii=False) + "\n" for each in [*records, *later])
        write_whole(path.parent, path, lines.encode())
    return records


def _kept(path: Path, settings: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Records of an earlier run that have an answer, by id."""
    if not path.is_file():
        return {}
    records = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    if other := [record for record in records if record.get("program") != settings]:
        got = f"{other[0].get('program')} for {other[0].get('id')!r}"
        raise ConfigError(f"{path}: made with other settings, got {got}; name another folder or remove the file")
    return {record["id"]: record for record in records if "program_error" not in record}
