"""Check the media of a build: every file opened once, every span inside its file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import PIL.Image
from tqdm import tqdm

from .checks import refuse
from .errors import MediaError
from .media import check_segment, probe
from .records import kind_of
from .rows import Image, VideoSegment, evidence_from_dict, media_path
from .spool import Spool, Stored

_USED = "m.e IN (SELECT e FROM rows WHERE out = 0)"


def check_media(spool: Spool, media_root: Path) -> None:
    """Reject every row whose media is missing, unreadable, marked absent, or does not hold its span."""
    paths = [path for (path,) in spool.db.execute(f"SELECT DISTINCT path FROM media m WHERE {_USED} ORDER BY path")]
    for path in tqdm(paths, desc="probing media", unit="file"):
        refuse(spool, list(_complaints(spool, path, media_root)))


def _complaints(spool: Spool, path: str, media_root: Path) -> Iterator[tuple[Stored, str, str]]:
    for e, text in spool.db.execute(f"SELECT e, part FROM media m WHERE path = ? AND {_USED}", (path,)).fetchall():
        part: Any = evidence_from_dict(json.loads(text))
        for kind, message in _problems(part, media_root):
            for stored in spool.rows("r.out = 0 AND r.e = ?", (e,)):
                yield stored, kind, message


def _problems(part: VideoSegment | Image, media_root: Path) -> Iterator[tuple[str, str]]:
    file = media_path(part.path, media_root)
    if not file.is_file():
        yield "media file is missing", f"{file}: media file is missing, got no such file; see media_root"
    elif isinstance(part, Image):
        try:
            with PIL.Image.open(file) as image:
                image.verify()
        except (OSError, SyntaxError) as error:  # Pillow reports a damaged PNG as a SyntaxError
            yield "media is unreadable", f"{file}: not a readable image, got {error}; save it again"
    elif part.absent:
        message = f"{part.path}: media is marked absent, got a build that needs it; build with media=absent"
        yield "media is marked absent", message
    else:
        try:
            yield from ((kind_of(m), m) for m in check_segment(part, probe(part.path, media_root)))
        except MediaError as error:
            yield "media is unreadable", str(error)
