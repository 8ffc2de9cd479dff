"""The second step of a build: check every row, and report all that is wrong together.

Each check takes the rows that passed the ones before it. What fails becomes a `Rejected`, one per annotation and
problem, however many facts the annotation holds.
"""

from __future__ import annotations

import dataclasses
import json
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any

from ...core import Pair, evidence_key, problems_of
from ..importers import Rejected, Row, kind_of
from ..negatives import normal_claim
from .staging import REJECTED, REPEATED, Staging, Stored

Complaint = tuple[Row, str, str]  # row, kind, message

# Rows of equal identity ask the same question of the same evidence. Where every annotator's row is kept, they may
# disagree, so the annotator is part of it.
_ANNOTATOR = "CASE WHEN INSTR(meta, '\"annotator\"') THEN JSON_EXTRACT(meta, '$.annotator') END"
_IDENTITY = f"claim_key, e, context, {_ANNOTATOR}"
_SAME = f"claim_key = ? AND e = ? AND context IS ? AND {_ANNOTATOR} IS ?"


def check_contents(rows: Sequence[Row]) -> tuple[list[Row], list[Rejected]]:
    """The rows that satisfy the row contract, and what is wrong with the others."""
    good, complaints = [], []
    sound: Any = None  # the evidence of the last good row: the facts of one annotation share theirs
    for row in rows:
        problems = problems_of(row.pair, evidence_checked=row.pair.evidence is sound)
        problems.extend(_storage_problems(row.pair))
        if problems:
            complaints.extend((row, kind_of(problem), problem) for problem in problems)
        else:
            good.append(row)
            sound = row.pair.evidence
    return good, _per_annotation(complaints)


def check_together(staging: Staging) -> int:
    """Reject rows that contradict one another; exact repeats of a judged pair are merged into the first.

    Returns:
        How many repeats were merged.
    """
    for check in (_repeated_ids, _contradictions, _fixed_splits):
        refuse(staging, check(staging))
    merged = 0
    for first, *identity in _repeated(staging, "MIN(n), ", "COUNT(*) > 1"):
        later = f"UPDATE rows SET out = {REPEATED} WHERE {_SAME} AND out = 0 AND n > ?"
        merged += staging.db.execute(later, (*identity, first)).rowcount
    return merged


def refuse(staging: Staging, complaints: Iterable[tuple[Stored, str, str]]) -> None:
    """Take rows out for the reasons given."""
    problems = list(complaints)
    staging.take_out({stored.n for stored, _, _ in problems}, REJECTED)
    staging.reject(_per_annotation((stored.row, kind, message) for stored, kind, message in problems))


def _storage_problems(pair: Pair) -> Iterator[str]:
    try:
        if pair.meta:
            json.dumps(pair.meta, ensure_ascii=False, allow_nan=False).encode()
        "".join((pair.group, pair.role, pair.origin, pair.id, pair.context or "")).encode()
    except UnicodeEncodeError as error:
        yield f"text holds half a surrogate pair, got {error.object[error.start : error.end]!r}; repair the encoding"
    except (TypeError, ValueError) as error:
        if pair.meta:  # other wrong types are problems of the row
            yield f"meta must hold JSON values only, got {error}; store text, numbers, lists and objects"


def _repeated(staging: Staging, columns: str, having: str) -> list[tuple[Any, ...]]:
    """Columns and identity of the kept rows that share theirs, where `having` holds."""
    twice = "SELECT claim_key, e FROM rows GROUP BY claim_key, e HAVING COUNT(*) > 1"
    query = f"""SELECT {columns}{_IDENTITY} FROM rows WHERE out = 0 AND (claim_key, e) IN ({twice})
        GROUP BY {_IDENTITY} HAVING {having} ORDER BY MIN(n)"""
    return staging.db.execute(query).fetchall()


def _repeated_ids(staging: Staging) -> Iterator[tuple[Stored, str, str]]:
    repeated = "SELECT id FROM rows WHERE out = 0 GROUP BY id HAVING COUNT(*) > 1"
    rows = staging.rows(f"r.out = 0 AND r.id IN ({repeated})")
    for same in _grouped(rows, lambda row: row.pair.id):
        labels = list(dict.fromkeys(str(stored.row.pair.label) for stored in same))
        places = ", ".join(f"{stored.row.file}:{stored.row.line}" for stored in same)
        if len({(_identity(stored.row), stored.row.pair.label) for stored in same}) > 1:
            kind = "id is used for different rows" if len(labels) == 1 else "id is used with different labels"
            message = f"{kind}, got {labels} at {places}; give every annotation its own id"
            yield from ((stored, kind, message) for stored in same)
        else:
            message = f"id is used twice for the same row, got {places}; remove the copies"
            yield from ((stored, kind_of(message), message) for stored in same[1:])


def _contradictions(staging: Staging) -> Iterator[tuple[Stored, str, str]]:
    for identity in _repeated(staging, "", "COUNT(DISTINCT label) > 1"):
        numbers = f"SELECT n FROM rows WHERE {_SAME}"
        same = list(staging.rows(f"r.out = 0 AND r.n IN ({numbers})", identity))
        labels = ", ".join(f"{s.row.pair.label} at {s.row.file}:{s.row.line}" for s in same)
        message = f"the same claim and evidence have different labels, got {labels}; keep one"
        yield from ((s, kind_of(message), f"{same[0].row.pair.claim!r}: {message}") for s in same)


def _fixed_splits(staging: Staging) -> Iterator[tuple[Stored, str, str]]:
    torn = "SELECT grp FROM rows WHERE out = 0 GROUP BY grp HAVING COUNT(DISTINCT split) > 1"
    for same in _grouped(staging.rows(f"r.out = 0 AND r.grp IN ({torn})"), lambda row: row.pair.group):
        splits = sorted({s.row.pair.split for s in same if s.row.pair.split is not None})
        message = f"group has two fixed splits, got {splits} for {same[0].row.pair.group!r}; fix one split per group"
        yield from ((s, kind_of(message), message) for s in same)


def _identity(row: Row) -> Hashable:
    """Rows with equal identity ask the same question of the same evidence."""
    return normal_claim(row.pair.claim), row.pair.context, evidence_key(row.pair.evidence)


def _grouped(rows: Iterable[Stored], key: Callable[[Row], Hashable]) -> list[list[Stored]]:
    groups: dict[Hashable, list[Stored]] = defaultdict(list)
    for stored in rows:
        groups[key(stored.row)].append(stored)
    return list(groups.values())


def _per_annotation(complaints: Iterable[Complaint]) -> list[Rejected]:
    merged: dict[Hashable, Rejected] = {}
    for row, kind, message in complaints:
        key = (row.file, row.line, row.record, message)
        if (before := merged.get(key)) is not None:
            merged[key] = dataclasses.replace(before, id=row.record, pairs=(before.pairs or 0) + 1)
        else:
            merged[key] = Rejected(row.file, row.line, row.pair.id, kind, message, pairs=1)
    return list(merged.values())
