"""The third step of a build: check the media.

Every file is opened once, in a process of its own. Every span must lie inside its file, every file below the media
root. The facts of a file are kept in the staging database (`files`). A shard of a build only opens its files and keeps
what they are (`probed`); the merge checks the rows by that.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from tqdm import tqdm

from ...core import Audio, Image, MediaError, VideoSegment, evidence_from_dict, media_path
from ..importers import Rejected, kind_of
from ..media import (
    ImageInfo,
    Kind,
    MediaFile,
    MediaInfo,
    SoundInfo,
    check_segment,
    check_sound,
    media_rows,
    notes_on_sound,
    outside_root,
    probe_each,
)
from .config import ProbingConfig
from .staging import Staging, Stored
from .validate import refuse

T = TypeVar("T")
_KINDS: dict[Kind, str] = {
    "video": "json_extract(m.part, '$.kind') = 'video'",
    "image": "json_extract(m.part, '$.kind') = 'image'",
    "audio": "(json_extract(m.part, '$.kind') = 'audio' OR json_extract(m.part, '$.sound'))",
}
"""What a file is used as, and the condition of the evidence that uses it so: a video that is heard is used twice."""

_TABLES: dict[Kind, str] = {"video": "files", "image": "files", "audio": "sounds"}
_COMMIT_EVERY_S = 2.0
_FETCHED_AT_ONCE = 8
_USED = "EXISTS (SELECT 1 FROM rows r WHERE r.e = m.e AND r.out = 0)"


Look = Callable[[Sequence[str], Kind], Iterator[tuple[str, MediaFile | str]]]
"""Gives every path with what the file is, or why it cannot be used."""


def check_media(staging: Staging, look: Look) -> dict[str, Any]:
    """Reject every row whose media is missing, unreadable, outside the root, marked absent, or does not hold its span.

    Files that can be read are kept as they are found; a build that was killed looks again only at the others.

    Returns:
        Tables of what the files are (`media_rows`), for the data set card.
    """
    for kind, is_used in _KINDS.items():
        bad = _look_at_new(staging, kind, look)
        for (path,) in staging.db.execute(f"{_paths(kind)} ORDER BY path").fetchall():
            stored = f"SELECT json FROM {_TABLES[kind]} WHERE path = ?"
            file = bad.get(path) or _file_of(staging.value(stored, (path,)))
            query = f"SELECT e, part FROM media m WHERE path = ? AND {is_used} AND {_USED}"
            for e, text in staging.db.execute(query, (path,)).fetchall():
                part = evidence_from_dict(json.loads(text))
                refuse(staging, _complaints(staging, e, part, file))
                if isinstance(file, MediaFile) and isinstance(file.info, SoundInfo):
                    _list_notes(staging, e, part, file.info)
    both = "SELECT path, json FROM files UNION ALL SELECT path, json FROM sounds ORDER BY path"
    return media_rows(_file_of(text) for _, text in staging.db.execute(both))


def _list_notes(staging: Staging, e: int, part: Any, info: SoundInfo) -> None:
    """List what is out of the ordinary with a sound, once for each span; its rows stay."""
    for note in notes_on_sound(part, info):
        for stored in itertools.islice(staging.rows("r.out = 0 AND r.e = ?", (e,)), 1):
            row, message = stored.row, f"{part.path}: {note}"
            staging.reject([Rejected(row.file, row.line, row.pair.id, kind_of(note), message, 0, blocking=False)])


def look_at_files(media_root: Path, rules: ProbingConfig) -> Look:
    """What opens every file, in processes of its own; what lies behind an address is fetched before."""

    def missing(path: str) -> str | None:
        if rules.outside_root == "refuse" and (message := outside_root(path, media_root)) is not None:
            return message
        try:
            file = media_path(path, media_root)
        except MediaError as error:
            return f"media file is missing: {error}"
        if os.path.exists(file):  # a path that is too long does not exist
            return None
        return f"{file}: media file is missing, got no such file; see media_root"

    def look(paths: Sequence[str], kind: Kind) -> Iterator[tuple[str, MediaFile | str]]:
        good: list[str] = []
        with ThreadPoolExecutor(_FETCHED_AT_ONCE) as pool:
            for path, message in zip(paths, pool.map(missing, paths), strict=True):
                if message is None:
                    good.append(path)
                else:
                    yield path, message
        probes = probe_each(good, media_root, kind, rules.workers, rules.timeout_s, rules.decode)
        yield from tqdm(
            probes,
            desc=f"probing {'sound' if kind == 'audio' else kind}s",
            total=len(good),
            unit="file",
            disable=not good,
        )

    return look


def look_at_probed(staging: Staging) -> Look:
    """What takes the files as the shards of this build found them."""

    def look(paths: Sequence[str], kind: Kind) -> Iterator[tuple[str, MediaFile | str]]:
        for path in paths:
            yield path, _outcome_of(staging.value("SELECT json FROM probed WHERE kind = ? AND path = ?", (kind, path)))

    return look


def probe_media(staging: Staging, look: Look) -> None:
    """Open every media file that the rows of a shard show and keep what it is; one that failed is opened again."""
    staging.db.execute("DELETE FROM probed WHERE json LIKE '\"%'")
    staging.commit()
    for kind, is_used in _KINDS.items():
        new = "SELECT path FROM probed WHERE kind = ?"
        query = f"SELECT DISTINCT path FROM media m WHERE {is_used} AND path NOT IN ({new}) ORDER BY path"
        paths = [path for (path,) in staging.db.execute(query, (kind,))]
        for path, file in _committed(staging, look(paths, kind)):
            text = json.dumps(file if isinstance(file, str) else dataclasses.asdict(file))
            staging.db.execute("INSERT INTO probed VALUES (?, ?, ?)", (kind, path, text))


def _paths(kind: Kind) -> str:
    return f"SELECT DISTINCT path FROM media m WHERE {_KINDS[kind]} AND {_USED}"


def _look_at_new(staging: Staging, kind: Kind, look: Look) -> dict[str, str]:
    """Look at the files that were not looked at yet, store those that can be used; returns why the others cannot."""
    bad: dict[str, str] = {}
    query = f"{_paths(kind)} AND path NOT IN (SELECT path FROM {_TABLES[kind]}) ORDER BY path"
    paths = [path for (path,) in staging.db.execute(query)]
    for path, file in _committed(staging, look(paths, kind)):
        if isinstance(file, str):
            bad[path] = file
            continue
        duration_s = None if isinstance(file.info, ImageInfo) else file.info.duration_s
        values = (path, file.pictures_sha256 or file.sha256, duration_s, json.dumps(dataclasses.asdict(file)))
        staging.db.execute(f"INSERT INTO {_TABLES[kind]} VALUES (?, ?, ?, ?)", values)
    return bad


def _committed(staging: Staging, items: Iterable[T]) -> Iterator[T]:
    """The items; what is done with them is committed now and then, and at the end."""
    committed = time.monotonic()
    for item in items:
        yield item
        if time.monotonic() - committed > _COMMIT_EVERY_S:
            staging.commit()
            committed = time.monotonic()
    staging.commit()


def _outcome_of(text: str) -> MediaFile | str:
    return json.loads(text) if text.startswith('"') else _file_of(text)


def _file_of(text: str) -> MediaFile:
    """The file that `_look_at_new` stored."""
    value = json.loads(text)
    info = value["info"]
    if "silences" in info:
        info["silences"] = tuple(tuple(span) for span in info["silences"])
    kind = SoundInfo if "silences" in info else MediaInfo if "codec" in info else ImageInfo
    return MediaFile(kind(**info), value["n_bytes"], value["sha256"], value["pictures_sha256"])


def _complaints(staging: Staging, e: int, part: Any, file: MediaFile | str) -> Iterator[tuple[Stored, str, str]]:
    for name, message in _problems(part, file):
        for stored in staging.rows("r.out = 0 AND r.e = ?", (e,)):
            yield stored, name, message


def _problems(part: VideoSegment | Image | Audio, file: MediaFile | str) -> Iterator[tuple[str, str]]:
    if isinstance(file, str):
        known = ("media file is missing", "media path leaves the media root")
        yield next((kind for kind in known if kind in file), "media is unreadable"), file
    elif isinstance(part, VideoSegment) and part.absent:
        message = f"{part.path}: media is marked absent, got a build that needs it; build with media=absent"
        yield "media is marked absent", message
    elif isinstance(part, (VideoSegment, Audio)) and isinstance(file.info, SoundInfo):
        yield from ((kind_of(message), f"{part.path}: {message}") for message in check_sound(part, file.info))
    elif isinstance(part, VideoSegment) and isinstance(file.info, MediaInfo):
        yield from ((kind_of(message), message) for message in check_segment(part, file.info))
    elif isinstance(part, Image) and isinstance(file.info, MediaInfo):
        message = f"{part.path}: not an image, got a video ({file.info.codec}); give a span of it as video evidence"
        yield "media is unreadable", message
