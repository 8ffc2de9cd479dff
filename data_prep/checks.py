"""Check every row of a build, so that all that is wrong is reported together, before anything is trained.

Each check takes the rows that passed the ones before it. What fails becomes a `Rejected`, one per annotation and
problem, however many facts the annotation holds.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from pathlib import Path

import PIL.Image
from tqdm import tqdm

from .errors import MediaError
from .media import check_segment, probe
from .negatives import normal_claim
from .records import Rejected, Row, kind_of
from .rows import Image, VideoSegment, evidence_key, media_path, problems_of

Complaint = tuple[Row, str, str]  # row, kind, message


def check_rows(rows: Sequence[Row], media_root: Path, probe_media: bool) -> tuple[list[Row], list[Rejected], int]:
    """Sort rows into good and rejected.

    Args:
        rows: in file order.
        media_root: what media paths are relative to.
        probe_media: open every media file once; False in an annotation-only build.

    Returns:
        The good rows in order, the rejected, and how many exact repeats of a judged pair were merged into the first.
    """
    checks: list[Callable[[Sequence[Row]], list[Complaint]]] = [
        _contents,
        _repeated_ids,
        _contradictions,
        _fixed_splits,
    ]
    if probe_media:
        checks.append(lambda good: _media(good, media_root))
    good, complaints = list(rows), []
    for check in checks:
        found = check(good)
        bad = {id(row) for row, _, _ in found}
        good = [row for row in good if id(row) not in bad]
        complaints.extend(found)
    kept = list({_identity(row): row for row in reversed(good)}.values())[::-1]
    return kept, _per_annotation(complaints), len(good) - len(kept)


def _contents(rows: Sequence[Row]) -> list[Complaint]:
    return [(row, kind_of(problem), problem) for row in rows for problem in problems_of(row.pair)]


def _repeated_ids(rows: Sequence[Row]) -> list[Complaint]:
    found: list[Complaint] = []
    for same in _grouped(rows, lambda row: row.pair.id):
        labels = list(dict.fromkeys(str(row.pair.label) for row in same))
        places = ", ".join(f"{row.file}:{row.line}" for row in same)
        if len({(_identity(row), row.pair.label) for row in same}) > 1:
            kind = "id is used for different rows" if len(labels) == 1 else "id is used with different labels"
            message = f"{kind}, got {labels} at {places}; give every annotation its own id"
            found.extend((row, kind, message) for row in same)
        else:
            message = f"id is used twice for the same row, got {places}; remove the copies"
            found.extend((row, kind_of(message), message) for row in same[1:])
    return found


def _contradictions(rows: Sequence[Row]) -> list[Complaint]:
    found: list[Complaint] = []
    for same in _grouped(rows, _identity):
        if len({row.pair.label for row in same} - {None}) > 1:
            labels = ", ".join(f"{row.pair.label} at {row.file}:{row.line}" for row in same)
            message = f"the same claim and evidence have different labels, got {labels}; keep one"
            found.extend((row, kind_of(message), f"{same[0].pair.claim!r}: {message}") for row in same)
    return found


def _fixed_splits(rows: Sequence[Row]) -> list[Complaint]:
    found: list[Complaint] = []
    for same in _grouped(rows, lambda row: row.pair.group):
        splits = sorted({row.pair.split for row in same if row.pair.split is not None})
        if len(splits) > 1:
            message = f"group has two fixed splits, got {splits} for {same[0].pair.group!r}; fix one split per group"
            found.extend((row, kind_of(message), message) for row in same)
    return found


def _media(rows: Sequence[Row], media_root: Path) -> list[Complaint]:
    segments = {e: None for row in rows for e in row.pair.evidence if isinstance(e, (VideoSegment, Image))}
    by_path: dict[str, list[VideoSegment | Image]] = defaultdict(list)
    for segment in segments:
        by_path[segment.path].append(segment)
    problems: dict[VideoSegment | Image, list[tuple[str, str]]] = {}
    for path, parts in tqdm(by_path.items(), desc="probing media", unit="file"):
        problems.update(_file_problems(path, parts, media_root))
    return [
        (row, kind, message)
        for row in rows
        for evidence in row.pair.evidence
        if isinstance(evidence, (VideoSegment, Image))
        for kind, message in problems[evidence]
    ]


def _file_problems(
    path: str, parts: Iterable[VideoSegment | Image], media_root: Path
) -> dict[VideoSegment | Image, list[tuple[str, str]]]:
    file = media_path(path, media_root)
    problems: dict[VideoSegment | Image, list[tuple[str, str]]] = {part: [] for part in parts}
    if not file.is_file():
        missing = ("media file is missing", f"{file}: media file is missing, got no such file; see media_root")
        return {part: [missing] for part in problems}
    segments = [part for part in problems if isinstance(part, VideoSegment)]
    for part in segments:
        if part.absent:
            message = f"{path}: media is marked absent, got a build that needs it; build with media=absent"
            problems[part].append(("media is marked absent", message))
    if segments:
        try:
            info = probe(path, media_root)
        except MediaError as error:
            return {part: [("media is unreadable", str(error))] for part in problems}
        for part in segments:
            problems[part].extend((kind_of(message), message) for message in check_segment(part, info))
    elif message := _image_problem(file):
        return {part: [("media is unreadable", message)] for part in problems}
    return problems


def _image_problem(file: Path) -> str | None:
    try:
        with PIL.Image.open(file) as image:
            image.verify()
    except (OSError, SyntaxError) as error:  # Pillow reports a damaged PNG as a SyntaxError
        return f"{file}: not a readable image, got {error}; save it again"
    return None


def _identity(row: Row) -> Hashable:
    """Rows with equal identity ask the same question of the same evidence."""
    return normal_claim(row.pair.claim), row.pair.context, evidence_key(row.pair.evidence)


def _grouped(rows: Iterable[Row], key: Callable[[Row], Hashable]) -> list[list[Row]]:
    """The groups of two or more rows with an equal key."""
    groups: dict[Hashable, list[Row]] = defaultdict(list)
    for row in rows:
        groups[key(row)].append(row)
    return [group for group in groups.values() if len(group) > 1]


def _per_annotation(complaints: Iterable[Complaint]) -> list[Rejected]:
    merged: dict[Hashable, Rejected] = {}
    for row, kind, message in complaints:
        key = (row.file, row.line, row.record, message)
        if (before := merged.get(key)) is not None:
            merged[key] = dataclasses.replace(before, id=row.record, pairs=(before.pairs or 0) + 1)
        else:
            merged[key] = Rejected(row.file, row.line, row.pair.id, kind, message, pairs=1)
    return list(merged.values())
