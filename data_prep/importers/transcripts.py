"""Read what is said in a video from SRT, WebVTT or JSON, and cut out what is said in a span.

Published files are irregular: cues numbered from 0 or not at all, hours left out, `0:00:5,000`, markup, captions that
roll (each cue repeats the line before). All of that is read. What cannot be read is an error with file and line.
"""

from __future__ import annotations

import functools
import html
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, TypeGuard, TypeVar

from ...core import MediaError, Transcript
from .base import Rejected, read_json_members, read_json_records

_TIME = r"(?:([0-9]{1,3}):)?([0-9]{1,3}):([0-9]{1,2})(?:[.,]([0-9]{1,6}))?"
_TIMES = re.compile(rf"\s*{_TIME}\s*-->\s*{_TIME}(?:\s.*)?")
_MARKUP = re.compile(r"</?[A-Za-z][^<>]*>|</?>|<[0-9][0-9:.]*>|\{\\[^{}]*\}")
_ROLLING_GAP_S, _MAX_ROLLING_LINES = 0.1, 4
SUFFIXES = (".srt", ".vtt", ".json")


@dataclass(frozen=True)
class Cue:
    """What is said in [start_s, end_s] (seconds)."""

    start_s: float
    end_s: float
    text: str


class Transcripts:
    """The transcripts of many videos: a folder of `<video stem>.srt|.vtt|.json`, or one JSON file with `video` keys.

    Raises:
        MediaError: `source` does not exist, or is a file of one video.
    """

    def __init__(self, source: Path) -> None:
        if not source.exists():
            raise MediaError(f"{source}: no such transcripts, got neither a file nor a folder; check the path")
        if source.is_file() and source.suffix not in (".json", ".jsonl"):
            raise MediaError(
                f"{source}: one file for all videos is JSON, got {source.suffix!r}; name its folder instead"
            )
        self.source = source
        self._read = functools.lru_cache(maxsize=256)(read_cues)
        self._all: dict[str, list[Cue]] | None = None

    def cues(self, video: str) -> Sequence[Cue] | None:
        """The cues of a video, by its file name or its name without extension; None where there is no transcript.

        Raises:
            MediaError: there is one and it cannot be read.
        """
        name = PurePosixPath(video)
        if self.source.is_dir():
            files = (os.path.join(self.source, name.stem + suffix) for suffix in SUFFIXES)
            file = next((file for file in files if os.path.isfile(file)), None)
            return None if file is None else self._read(Path(file))
        if self._all is None:
            self._all = read_cues_by_video(self.source)
        return next((self._all[key] for key in (video, name.name, name.stem) if key in self._all), None)


def read_cues(path: Path) -> list[Cue]:
    """The cues of one video's transcript, in order of time; cues without text are left out.

    Args:
        path: `.srt`, `.vtt` or `.json`: a list of `{"start_s"|"start", "end_s"|"end", "text"}` in seconds, or an object
            that holds this list under `segments`, as Whisper writes it.

    Raises:
        MediaError: no such file, another suffix, not UTF-8, or a cue that cannot be read, with its line.
    """
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise MediaError(f"{path}: unknown kind of transcript, got {path.suffix!r}; give one of {list(SUFFIXES)}")
    if suffix != ".json":
        text = _text_of(path)
        return _unrolled(_sorted(_caption_cues(str(path), text, suffix == ".vtt" or text.startswith("WEBVTT"))))
    cues = list(_json_cues(path))
    if len(videos := {video for video, _ in cues}) > 1:
        raise MediaError(f"{path}: cues of several videos, got {sorted(map(str, videos))[:3]}; split them by video")
    return _sorted(cue for _, cue in cues)


def read_cues_by_video(path: Path) -> dict[str, list[Cue]]:
    """The cues of a JSON list whose entries also name their `video`; errors as `read_cues`."""
    by_video: dict[str, list[Cue]] = {}
    for video, cue in _json_cues(path):
        if video is None:
            raise MediaError(f"{path}: a cue names no video, got {cue.text[:40]!r}; give every entry a 'video'")
        by_video.setdefault(video, []).append(cue)
    return {video: _sorted(cues) for video, cues in by_video.items()}


def transcript_of(cues: Iterable[Cue], start_s: float, end_s: float) -> Transcript | None:
    """What is said in [start_s, end_s): the whole text of every cue that overlaps it, or None where nothing is."""
    texts = [c.text for c in cues if c.start_s < end_s and (c.end_s > start_s or c.start_s >= start_s)]
    return Transcript(" ".join(texts), start_s, end_s) if texts else None


@dataclass(frozen=True)
class _Lines:
    """A cue as it is shown: its text line by line."""

    start_s: float
    end_s: float
    text: tuple[str, ...]


def _text_of(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        got = f"byte 0x{error.object[error.start]:02x}"
        raise MediaError(f"{path}:{line}: text is not UTF-8, got {got}; save the file as UTF-8") from None
    except OSError as error:
        raise MediaError(f"{path}: transcript cannot be opened, got {error.strerror}; check the path") from error


def _caption_cues(file: str, text: str, vtt: bool) -> Iterator[_Lines]:
    """The cues of an SRT or VTT text: blocks of lines with a time line first or after a name."""
    for number, (line, block) in enumerate(_blocks(text)):
        if vtt and (re.match(r"(?:NOTE|STYLE|REGION)(?:\s|$)", block[0]) or (number == 0 and "-->" not in block[0])):
            if number == 0 and not block[0].startswith("WEBVTT"):
                raise MediaError(f"{file}:{line}: the header is missing, got {block[0][:40]!r}; start with WEBVTT")
            if any("-->" in content for content in block):
                raise MediaError(f"{file}:{line}: a cue in another block, got {block[0][:40]!r}; part them by a line")
            continue
        at = next((n for n, content in enumerate(block[:2]) if "-->" in content), None)
        if at is None:
            raise MediaError(f"{file}:{line}: text without a time line, got {block[0][:40]!r}; put it under its cue")
        start_s, end_s = _times(f"{file}:{line + at}", block[at])
        if more := [n for n, content in enumerate(block[at + 1 :], start=at + 1) if "-->" in content]:
            got = block[more[0]][:40]
            raise MediaError(f"{file}:{line + more[0]}: a time line in a cue's text, got {got!r}; part them by a line")
        shown = tuple(clean for content in block[at + 1 :] if (clean := _clean(content)))
        if shown:
            yield _Lines(start_s, end_s, shown)


def _blocks(text: str) -> Iterator[tuple[int, list[str]]]:
    """Runs of lines that are not empty, and the line (from 1) each starts on."""
    block: list[str] = []
    for number, line in enumerate([*re.split(r"\r\n|\n|\r", text), ""], start=1):
        if line.strip():
            block.append(line)
        elif block:
            yield number - len(block), block
            block = []


def _times(where: str, line: str) -> tuple[float, float]:
    times = _TIMES.fullmatch(line)
    if times is None:
        raise MediaError(f"{where}: times cannot be read, got {line[:60]!r}; write 00:00:01,000 --> 00:00:02,500")
    parts = times.groups()
    if any(int(parts[n]) > 59 for n in (2, 6)) or any(parts[n] and int(parts[n + 1]) > 59 for n in (0, 4)):
        raise MediaError(f"{where}: minutes or seconds are 60 or more, got {line[:60]!r}; fix the times")
    start_s, end_s = _seconds(*parts[:4]), _seconds(*parts[4:])
    _check_span(where, start_s, end_s)
    return start_s, end_s


def _seconds(hours: str | None, minutes: str, seconds: str, fraction: str | None) -> float:
    whole = int(hours or 0) * 3600 + int(minutes) * 60 + int(seconds)
    return float(f"{whole}.{fraction or 0}")


def _check_span(where: str, start_s: float, end_s: float) -> None:
    if start_s < 0 or end_s < start_s:
        raise MediaError(f"{where}: span is negative or reversed, got [{start_s}, {end_s}]; fix the times")


def _clean(line: str) -> str:
    """A line as it is read aloud: without tags, override codes and entities."""
    return " ".join(html.unescape(_MARKUP.sub("", line)).split())


_Timed = TypeVar("_Timed", Cue, _Lines)


def _sorted(cues: Iterable[_Timed]) -> list[_Timed]:
    return sorted(cues, key=lambda cue: (cue.start_s, cue.end_s))


def _unrolled(cues: Iterable[_Lines]) -> list[Cue]:
    """Cues without the lines that the cue before still shows; a cue of nothing else prolongs that one."""
    kept: list[Cue] = []
    before: _Lines | None = None
    for cue in cues:
        again = 0
        if before is not None and abs(cue.start_s - before.end_s) <= _ROLLING_GAP_S:
            shared = range(min(len(cue.text), len(before.text), _MAX_ROLLING_LINES) + 1)
            again = max(n for n in shared if before.text[len(before.text) - n :] == cue.text[:n])
        if fresh := cue.text[again:]:
            kept.append(Cue(cue.start_s, cue.end_s, " ".join(fresh)))
        else:
            kept[-1] = Cue(kept[-1].start_s, max(kept[-1].end_s, cue.end_s), kept[-1].text)
        before = cue
    return kept


def _json_cues(path: Path) -> Iterator[tuple[str | None, Cue]]:
    """(video or None, cue) of every entry of a JSON transcript that has text."""
    for where, entry in _entries(path):
        start_s, end_s, text, video = _entry(where, entry)
        _check_span(where, start_s, end_s)
        if clean := _clean(text):
            yield video, Cue(start_s, end_s, clean)


def _entries(path: Path) -> Iterator[tuple[str, Any]]:
    """(place, value) of every entry of a list, of JSON lines, or of the list under `segments`."""
    text = _text_of(path).lstrip()
    if not text:
        raise MediaError(f"{path}: transcript is empty, got no text; write [] where nothing is said")
    whole = path.suffix == ".json" and text.startswith("{")
    for item in read_json_members(path) if whole else read_json_records(path):
        if isinstance(item, Rejected):
            raise MediaError(str(item))
        if not whole:
            yield f"{item.file}:{item.line}", item.value
        elif item.value[0] == "segments":
            if not isinstance(item.value[1], list):
                raise MediaError(f"{path}:{item.line}: segments must be a list, got {item.value[1]!r:.40}; write [...]")
            yield from ((f"{path}:{item.line}: segments[{n}]", entry) for n, entry in enumerate(item.value[1]))
            return
    if whole:
        raise MediaError(f"{path}: no list of cues, got an object without 'segments'; give a list or that key")


def _entry(where: str, entry: Any) -> tuple[float, float, str, str | None]:
    if not isinstance(entry, dict):
        raise MediaError(f"{where}: a cue must be an object, got {entry!r:.60}; write {{'start_s', 'end_s', 'text'}}")
    start_s, end_s = (entry.get(f"{name}_s", entry.get(name)) for name in ("start", "end"))
    if not (_is_time(start_s) and _is_time(end_s)):
        got = [start_s, end_s]
        raise MediaError(f"{where}: a cue needs start_s and end_s in seconds, got {got}; fix the times")
    text, video = entry.get("text"), entry.get("video")
    if not isinstance(text, str):
        raise MediaError(f"{where}: a cue needs its text, got {text!r}; write what is said, '' for nothing")
    if video is not None and not isinstance(video, str):
        raise MediaError(f"{where}: video must be a file name, got {video!r}; quote it")
    return float(start_s), float(end_s), text, video


def _is_time(value: Any) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and -1e9 < value < 1e9  # NaN is neither
