"""Evidence as a caller holds it: files, spans of files, texts, pictures in memory, and rows that name any of these.

A string that ends like a media file is that file. Where there is none of that name, it is an error, never a text:
`Passage("...")` says that something is a text. The rules are listed in docs/asking.md.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...core import (
    EVIDENCE_KINDS,
    Audio,
    Evidence,
    Frames,
    Image,
    MediaError,
    ModelInputError,
    Passage,
    RowError,
    Transcript,
    VideoSegment,
    address_problem,
    evidence_from_dict,
    is_address,
    media_path,
    own_name,
    problems_of_evidence,
)
from ...data_prep.importers import Cue, cell_seconds, read_cues, transcript_of
from ..decision import JudgedWindow, Ranked
from .memory import bytes_evidence, data_url_evidence, is_picture, picture_evidence
from .values import plain, row_of, shown

IMAGES = {".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp", ".bmp", ".tif", ".tiff", ".avif"}
AUDIO = {".mp3", ".wav", ".m4a", ".aac", ".flac", ".ogg", ".opus", ".wma"}
VIDEOS = {".mp4", ".m4v", ".mov", ".mkv", ".webm", ".avi", ".mpg", ".mpeg", ".ts", ".mts", ".m2ts", ".wmv", ".flv"}
VIDEOS |= {".3gp", ".ogv", ".gif"}
CAPTIONS, TEXTS = {".srt", ".vtt"}, {".txt", ".md"}
_ENDINGS = IMAGES | AUDIO | VIDEOS | CAPTIONS | TEXTS
_LONGEST_NAME, _WORDS_OF_NAME = 1024, 12  # characters and words; a longer text is no name of a file
EXAMPLES = "e.g. 'clip.mp4', ('clip.mp4', 2.8, 9.4), Image('frame.jpg') or Passage('She slices a carrot.')"

_DATA_URL = re.compile(r"data:(?:image|video)/[\w.+-]+;base64,")

Root = str | Path | None


def as_evidence(held: Any, media_root: Root = None, where: str = "evidence") -> tuple[Evidence, ...]:
    """What a caller holds as evidence, judged together.

    Args:
        held: see docs/asking.md.
        media_root: folder that relative paths start from; what does not lie there is looked for in the working folder.
        where: opens the message of an error.

    Raises:
        ModelInputError: what is no evidence; a text that ends like a media file and names none.
        MediaError: a transcript that cannot be read.
    """
    held = plain(held)
    if isinstance(held, str):
        return _of_text(held, media_root, where)
    if isinstance(held, os.PathLike):
        return (_of_file(os.fspath(held), media_root, where),)
    if isinstance(held, (VideoSegment, Image, Audio)):
        return (dataclasses.replace(held, path=str(held.path)) if isinstance(held.path, Path) else held,)
    if isinstance(held, Frames):
        in_memory = not all(isinstance(path, str) for path in held.paths)
        return (_frames(held.paths, held.times_s, held.end_s, media_root, where) if in_memory else held,)
    if isinstance(held, (Transcript, Passage)):
        return (held,)
    if isinstance(held, (JudgedWindow, Ranked)):
        return as_evidence(held.segment if isinstance(held, JudgedWindow) else held.evidence, media_root, where)
    if isinstance(held, Cue):
        return (Transcript(held.text, held.start_s, held.end_s),)
    if is_picture(held):
        return (picture_evidence(held, where),)
    if isinstance(held, (bytes, bytearray)):
        return (bytes_evidence(bytes(held), None, where),)
    if (row := row_of(held)) is not None:
        return _of_mapping(row, media_root, where)
    if isinstance(stored := getattr(held, "_hf_encoded", None), Mapping):  # a decoder of `datasets`
        return _of_mapping(stored, media_root, where)
    if isinstance(held, (list, tuple)) and held:
        return _of_several(held, media_root, where)
    raise ModelInputError(
        f"{where}: must be a file, a text, an image or several of these, got {shown(held)}; {EXAMPLES}"
    )


def media_evidence(path: str | Path) -> VideoSegment | Image | Audio:
    """What a media file is, by the ending of its name: an image or, whole, a sound or a video without its own."""
    ending = Path(own_name(str(path))).suffix.lower()
    if ending in AUDIO:
        return Audio(str(path))
    return Image(str(path)) if ending in IMAGES else VideoSegment(str(path))


def is_media_name(text: str) -> bool:
    """Whether a text is one line that ends like the name of a file that evidence may be."""
    name = text.strip()
    return len(name) <= _LONGEST_NAME and "\n" not in name and Path(name).suffix.lower() in _ENDINGS


def evidence_of_row(row: Mapping[str, Any], media_root: Root, where: str) -> tuple[Evidence, ...]:
    """The evidence that the columns of a plain row name, in the order video, frames, image, transcript, text;
    may be empty.

    Raises:
        ModelInputError: a column that holds something else. RowError: a time that is none.
    """
    cells = {name: plain(row.get(name)) for name in (*_EVIDENCE_COLUMNS, *_TIME_COLUMNS)}
    times = {name: next((cells[key] for key in keys if cells[key] is not None), None) for name, keys in _TIMES.items()}
    start_s, end_s = (cell_seconds(times, name) for name in _TIMES)
    evidence: list[Evidence] = []
    if (video := cells["video"]) not in (None, ""):
        is_path = isinstance(video, str) and not is_address(video)
        (piece,) = as_evidence(Path(video) if is_path else video, media_root, f"{where}, video")
        evidence.append(_cut(piece, start_s or 0.0, end_s, f"{where}, video"))
    if (frames := cells["frames"]) not in (None, ""):
        evidence.append(_frames(frames, cells["times_s"], end_s, media_root, f"{where}, frames"))
    if (image := cells["image"]) not in (None, ""):
        evidence += _images(image, media_root, f"{where}, image")
    if (said := cells["transcript"]) not in (None, ""):
        evidence.append(_transcript(said, start_s, end_s, media_root, f"{where}, transcript"))
    for name in ("text", "passage"):
        if (text := cells[name]) not in (None, ""):
            if not isinstance(text, str):
                raise ModelInputError(f"{where}: {name} must be text, got {shown(text)}; write it as text")
            evidence.append(Passage(text))
    timed = any(cells[name] is not None for name in ("video", "frames", "transcript"))
    if evidence and not (start_s is None and end_s is None) and not timed:
        raise ModelInputError(
            f"{where}: times belong to a video or transcript, got neither; name one or drop the times"
        )
    return tuple(evidence)


_EVIDENCE_COLUMNS = ("video", "frames", "times_s", "image", "transcript", "text", "passage")
_TIMES = {"start_s": ("start_s", "start"), "end_s": ("end_s", "end")}
_TIME_COLUMNS = ("start_s", "start", "end_s", "end")


def _of_text(text: str, media_root: Root, where: str) -> tuple[Evidence, ...]:
    name = text.strip()
    if _DATA_URL.match(name):
        return (data_url_evidence(name, where),)
    if (stored := _stored(name)) is not None:
        return stored
    if is_address(name) and " " not in name and is_media_name(own_name(name)):
        if problem := address_problem(name):
            raise ModelInputError(f"{where}: {problem}")
        return (_of_file(name, media_root, where),)
    if not is_media_name(name):
        return (_of_file(name, media_root, where),) if _is_path(name, media_root) else (Passage(text),)
    if not os.path.isfile(media_path(_located(name, media_root), media_root)):
        if len(name.split()) > _WORDS_OF_NAME:
            return (Passage(text),)
        root = os.getcwd() if media_root is None else media_root
        raise ModelInputError(
            f"{where}: names a file that is not there, got {name!r}, looked for in {root}; fix the path, or, if it is "
            f"a text, say so: Passage({name!r})"
        )
    return (_of_file(name, media_root, where),)


def _is_path(name: str, media_root: Root) -> bool:
    """Whether a text with a separator or an ending names what is there, so that it is not judged as words."""
    like_a_path = len(name) <= _LONGEST_NAME and "\n" not in name and ("/" in name or Path(name).suffix)
    return bool(like_a_path) and os.path.exists(media_path(_located(name, media_root), media_root))


def _stored(text: str) -> tuple[Evidence, ...] | None:
    """Evidence out of the JSON text in which predictions, and data sets of before, hold it; None for other texts."""
    if not (text.startswith("[{") and '"kind"' in text):
        return None
    try:
        pieces = json.loads(text)
        return tuple(evidence_from_dict(piece) for piece in pieces)
    except (ValueError, RowError):
        return None


def _located(path: str, media_root: Root) -> str:
    """The path as evidence holds it: absolute where the file lies in the working folder and not in the media root."""
    path = os.path.expanduser(path)
    if is_address(path):
        return path
    if media_root is None or media_path(path, media_root).exists() or not os.path.exists(path):
        return path
    return os.path.abspath(path)


def _of_file(path: str, media_root: Root, where: str) -> Evidence:
    located = _located(path.strip(), media_root)
    ending = Path(own_name(located)).suffix.lower()
    if is_address(located) and ending not in CAPTIONS | TEXTS:
        return media_evidence(located)
    file = media_path(located, media_root)
    if file.is_dir():
        raise ModelInputError(f"{where}: is a folder, got {str(file)!r}; name one file in it, {EXAMPLES}")
    if ending in CAPTIONS:
        cues = _cues(file, _changed(file))
        if transcript := transcript_of(cues, 0.0, max((cue.end_s for cue in cues), default=0.0)):
            return transcript
        raise MediaError(f"{file}: nothing is said, got no cues with text; leave it out")
    if ending in TEXTS:
        try:
            return Passage(file.read_text(encoding="utf-8-sig"))
        except (OSError, UnicodeDecodeError) as error:
            raise MediaError(f"{file}: not a readable text, got {error}; check the path") from error
    return media_evidence(located)


def _changed(file: Path) -> int:
    return file.stat().st_mtime_ns if file.exists() else 0


@functools.lru_cache(maxsize=256)
def _cues(file: Path, changed: int) -> list[Cue]:
    return read_cues(file)


def _of_several(held: list[Any] | tuple[Any, ...], media_root: Root, where: str) -> tuple[Evidence, ...]:
    if is_span(held):
        path, start, *end = held
        start_s = cell_seconds({"start_s": plain(start)}, "start_s") or 0.0
        end_s = cell_seconds({"end_s": plain(end[0])}, "end_s") if end else None
        if Path(path).suffix.lower() in CAPTIONS:
            return (_transcript(path, start_s, end_s, media_root, where),)
        (piece,) = as_evidence(path, media_root, where)
        return (_cut(piece, start_s, end_s, where),)
    if all(isinstance(piece, Cue) for piece in held):
        cues = [piece for piece in held if isinstance(piece, Cue)]
        return (Transcript(" ".join(c.text for c in cues), cues[0].start_s, max(c.end_s for c in cues)),)
    return tuple(piece for each in held for piece in as_evidence(each, media_root, where))


def is_span(held: Any) -> bool:
    """Whether a value is (file, start) or (file, start, end), the times in seconds or as M:SS."""
    if not isinstance(held, (list, tuple)) or len(held) not in (2, 3):
        return False
    path, start, *end = held
    is_file = isinstance(path, os.PathLike) or (isinstance(path, str) and is_media_name(path))
    return is_file and _is_time(start) and all(each is None or _is_time(each) for each in end)


def _is_time(value: Any) -> bool:
    value = plain(value)
    if isinstance(value, str):
        return ":" in value and value.replace(":", "").replace(".", "").strip().isdigit()
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _cut(piece: Evidence, start_s: float, end_s: float | None, where: str) -> Evidence:
    """A whole file as its span."""
    if isinstance(piece, (VideoSegment, Audio)):
        if (piece.start_s, piece.end_s) == (0.0, None):
            return dataclasses.replace(piece, start_s=start_s, end_s=end_s)
        if (start_s, end_s) == (0.0, None):
            return piece
        raise ModelInputError(f"{where}: two spans are given, got {piece} and [{start_s}, {end_s}]; give one of them")
    if (start_s, end_s) != (0.0, None):
        raise ModelInputError(f"{where}: times belong to a video, got {shown(piece)}; {EXAMPLES}")
    return piece


def _images(image: Any, media_root: Root, where: str) -> tuple[Evidence, ...]:
    if isinstance(image, (list, tuple)):
        return tuple(piece for each in image for piece in _images(plain(each), media_root, where))
    if isinstance(image, os.PathLike) or (isinstance(image, str) and not _DATA_URL.match(image)):
        return (Image(_located(os.fspath(image).strip(), media_root)),)
    return as_evidence(image, media_root, where)


def _frames(held: Any, times_s: Any, end_s: float | None, media_root: Root, where: str) -> Frames:
    """Frames whose files are found, or made of pictures in memory; what is wrong with their number or times."""
    held, times_s = plain(held), plain(times_s)
    held = json.loads(held) if isinstance(held, str) and held.startswith("[") else held
    if not isinstance(held, (list, tuple)):
        raise ModelInputError(f"{where}: must be a list of image files or pictures, got {shown(held)}; {_FRAMES}")
    paths: list[str] = []
    for i, each in enumerate(held):
        (piece,) = _images(plain(each), media_root, f"{where}[{i}]")
        if not isinstance(piece, Image):
            raise ModelInputError(f"{where}[{i}]: a frame must be a picture, got {shown(each)}; {_FRAMES}")
        paths.append(piece.path)
    frames = Frames(tuple(paths), times_s, end_s)
    if problems := problems_of_evidence(frames):
        raise ModelInputError(f"{where}: {problems[0]}")
    return frames


_FRAMES = "e.g. Frames(['0001.png', '0002.png'], times_s=[0.0, 0.5])"


def _transcript(said: Any, start_s: float | None, end_s: float | None, media_root: Root, where: str) -> Transcript:
    """What is said, as text, as cues, or as a file of them, which is cut to the span."""
    if isinstance(said, os.PathLike) or (
        isinstance(said, str) and Path(own_name(said.strip())).suffix.lower() in CAPTIONS
    ):
        file = media_path(_located(os.fspath(said).strip(), media_root), media_root)
        cues = _cues(file, _changed(file))
        start_s, end_s = start_s or 0.0, max((c.end_s for c in cues), default=0.0) if end_s is None else end_s
        if transcript := transcript_of(cues, start_s, end_s):
            return transcript
        raise MediaError(f"{file}: nothing is said, got [{start_s}, {end_s}] s; leave it out")
    if isinstance(said, str):
        return Transcript(said, start_s, end_s)
    pieces = as_evidence(said, media_root, where)
    if len(pieces) == 1 and isinstance(pieces[0], Transcript):
        return pieces[0]
    raise ModelInputError(f"{where}: must be what is said, or its .srt or .vtt file, got {shown(said)}; e.g. 'Hello.'")


def _of_mapping(row: Mapping[str, Any], media_root: Root, where: str) -> tuple[Evidence, ...]:
    known = {key: value for key, value in row.items() if plain(value) is not None}
    try:
        if "kind" in known:
            return as_evidence(evidence_from_dict({k: plain(v) for k, v in known.items()}, where), media_root, where)
        if set(row) <= {"bytes", "path"} and known:  # how `datasets` stores pictures and videos
            data, path = known.get("bytes"), known.get("path")
            return (bytes_evidence(data, path, where),) if data else as_evidence(Path(str(path)), media_root, where)
        if "path" in known:
            known = {("video" if key == "path" else key): value for key, value in known.items()}
        if set(known) <= {*_EVIDENCE_COLUMNS, *_TIME_COLUMNS} and (pieces := evidence_of_row(known, media_root, where)):
            return pieces
    except RowError as error:
        raise ModelInputError(str(error) if str(error).startswith(where) else f"{where}: {error}") from error
    raise ModelInputError(
        f"{where}: a dict must name evidence, got the keys {sorted(map(str, row))}; e.g. {{'video': 'clip.mp4', "
        f"'start_s': 2.8, 'end_s': 9.4}} or {{'kind': 'passage', 'text': '...'}} of {sorted(EVIDENCE_KINDS)}"
    )
