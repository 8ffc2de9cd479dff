"""Check the media of a build: every file opened once, in its own process; every span inside its file and every file
below the media root. What was learned of a file is kept in the spool (`files`).
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tqdm import tqdm

from .build_config import ProbingConfig
from .checks import refuse
from .media import MediaInfo, check_segment
from .probing import ImageInfo, Kind, MediaFile, media_rows, outside_root, probe_all
from .records import kind_of
from .rows import Image, VideoSegment, evidence_from_dict, media_path
from .spool import Spool, Stored

_BATCH = 256
_USED = "m.e IN (SELECT e FROM rows WHERE out = 0)"
_KIND = "json_extract(m.part, '$.kind')"


def check_media(spool: Spool, media_root: Path, rules: ProbingConfig) -> dict[str, Any]:
    """Reject every row whose media is missing, unreadable, outside the root, marked absent, or does not hold its span.

    Returns:
        Tables of what the files are (`media_rows`), for the data set card.
    """
    kinds: tuple[Kind, ...] = ("video", "image")
    for kind in kinds:
        new = "path NOT IN (SELECT path FROM files)"  # a build that was killed has seen some
        query = f"SELECT DISTINCT path FROM media m WHERE {_KIND} = ? AND {_USED} AND {new} ORDER BY path"
        paths = [path for (path,) in spool.db.execute(query, (kind,))]
        with tqdm(total=len(paths), desc=f"probing {kind}s", unit="file", disable=not paths) as bar:
            for start in range(0, len(paths), _BATCH):
                found = _look(paths[start : start + _BATCH], media_root, kind, rules, bar)
                for path, file in found.items():
                    _keep(spool, path, file, kind)
                spool.commit()
    return media_rows(_file_of(text) for (text,) in spool.db.execute("SELECT json FROM files ORDER BY path"))


def _look(paths: list[str], media_root: Path, kind: Kind, rules: ProbingConfig, bar: Any) -> dict[str, MediaFile | str]:
    """What each file is, or the message that says why it cannot be used."""
    bad: dict[str, MediaFile | str] = {}
    for path in paths:
        if rules.outside_root == "refuse" and (message := outside_root(path, media_root)) is not None:
            bad[path] = message
        elif not (file := media_path(path, media_root)).exists():
            bad[path] = f"{file}: media file is missing, got no such file; see media_root"
    bar.update(len(bad))
    good = [path for path in paths if path not in bad]
    read = probe_all(good, media_root, kind, rules.workers, rules.timeout_s, rules.decode, progress=bar.update)
    return {**bad, **read}


def _keep(spool: Spool, path: str, file: MediaFile | str, kind: Kind) -> None:
    if isinstance(file, MediaFile):
        duration_s = file.info.duration_s if isinstance(file.info, MediaInfo) else None
        values = (path, file.sha256, duration_s, json.dumps(dataclasses.asdict(file)))
        spool.db.execute("INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?)", values)
    refuse(spool, list(_complaints(spool, path, file, kind)))


def _file_of(text: str) -> MediaFile:
    """The file that `_keep` stored."""
    value = json.loads(text)
    kind = MediaInfo if "codec" in value["info"] else ImageInfo
    return MediaFile(kind(**value["info"]), value["n_bytes"], value["sha256"])


def _complaints(spool: Spool, path: str, file: MediaFile | str, kind: Kind) -> Iterator[tuple[Stored, str, str]]:
    query = f"SELECT e, part FROM media m WHERE path = ? AND {_KIND} = ? AND {_USED}"
    for e, text in spool.db.execute(query, (path, kind)).fetchall():
        part: Any = evidence_from_dict(json.loads(text))
        for problem_kind, message in _problems(part, file):
            for stored in spool.rows("r.out = 0 AND r.e = ?", (e,)):
                yield stored, problem_kind, message


def _problems(part: VideoSegment | Image, file: MediaFile | str) -> Iterator[tuple[str, str]]:
    if isinstance(file, str):
        known = ("media file is missing", "media path leaves the media root")
        yield next((kind for kind in known if kind in file), "media is unreadable"), file
    elif isinstance(part, VideoSegment) and part.absent:
        message = f"{part.path}: media is marked absent, got a build that needs it; build with media=absent"
        yield "media is marked absent", message
    elif isinstance(part, VideoSegment) and isinstance(file.info, MediaInfo):
        yield from ((kind_of(message), message) for message in check_segment(part, file.info))
