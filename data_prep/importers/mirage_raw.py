"""Import WikiVideo in its raw form (`final_data_2025.json`): lists of ticks, all sentences of one video after another.

An object of topics. `audio_lists`, `video_lists`, `ocr_lists` and `neither_lists` hold one list per (video, sentence),
video-major in the order of `videos`, each with one boolean per claim of that sentence. Here every pair was judged, so
an unticked claim is an annotated negative, unlike in the normalised form (mirage.py).
"""

from __future__ import annotations

import reprlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...core import VideoSegment
from .base import Importer, Record, Rejected, Row, read_json_members, reject
from .mirage import check_channels, judged_row, kept_out, perceived, video_file, video_meta, videos_problem
from .mirage_grounding import CHANNELS, merge_judgments, video_name

_TICKS = (*(f"{channel}_lists" for channel in CHANNELS), "neither_lists")
_DERIVED = "video_ocr_lists"


@dataclass(frozen=True)
class MirageRawOptions:
    """How the raw JSON is read; all options are those of the normalised form."""

    extension: str = ".mp4"
    channels: tuple[str, ...] = tuple(CHANNELS)
    sound: bool = False


def read(path: Path, options: MirageRawOptions) -> Iterator[Row | Rejected]:
    """One row per (distinct claim, video) of every topic. A claim of several sentences is merged as repeats are.

    Raises:
        ConfigError: `channels` is empty or names one that was not annotated.
    """
    check_channels(options.channels)
    for record in read_json_members(path):
        if isinstance(record, Rejected):
            yield record
            continue
        topic, value = record.value
        sentences = _sentences(value)
        if isinstance(sentences, str):
            yield reject(record, sentences, id=topic)
            continue
        judgments = list(_judgments(record, value, sentences, options))
        rows, conflicts = merge_judgments(item for item in judgments if isinstance(item, Row))
        yield from (item for item in judgments if isinstance(item, Rejected))
        yield from conflicts
        yield from (perceived(row, options.channels) for row in rows)


def _sentences(value: Any) -> list[tuple[str, list[str]]] | str:
    """A topic's (sentence, claims), each once, or what is wrong with the topic as a whole."""
    if not isinstance(value, dict):
        return f"topic must be an object, got {reprlib.repr(value)}; write {{'videos': ..., 'claims': ...}}"
    if problem := videos_problem(value.get("videos")):
        return problem
    for key in ("claims", *_TICKS):
        if not isinstance(value.get(key), list):
            return f"{key} must be a list, got {reprlib.repr(value.get(key))}; repair the topic"
    claims, n_videos, n_lists = value["claims"], len(value["videos"]), len(value[_TICKS[0]])
    for entry in claims:
        if not _is_sentence(entry):
            return f"claims must be [sentence, [claim, ...]] each, got {reprlib.repr(entry)}; repair the entry"
    if n_lists not in (len(claims), len(claims) * n_videos) or n_lists % n_videos:
        return (
            f"{_TICKS[0]} does not fit claims and videos, got {n_lists} lists for {len(claims)} entries of claims and "
            f"{n_videos} videos; expected one list per sentence and video: {len(claims)} where claims are repeated "
            f"per video, else {len(claims) * n_videos}"
        )
    once = claims[: n_lists // n_videos]
    if claims not in (once, once * n_videos):
        return f"claims must be the same for every video, got blocks of {len(once)} that differ; repair the topic"
    for key in _lists_of(value):
        if not isinstance(value[key], list) or len(value[key]) != n_lists:
            got = len(value[key]) if isinstance(value[key], list) else reprlib.repr(value[key])
            return (
                f"{key} has the wrong length, got {got}; expected {n_lists} = {len(once)} sentences x {n_videos} videos"
            )
    return [(sentence, texts) for sentence, texts in once]


def _judgments(
    record: Record, value: dict[str, Any], sentences: list[tuple[str, list[str]]], options: MirageRawOptions
) -> Iterator[Row | Rejected]:
    """Every single judgment: the k-th list of a video is its k-th sentence."""
    contexts: dict[str, list[str]] = {}
    for sentence, claims in sentences:
        for claim in claims:
            contexts.setdefault(claim, []).append(sentence)
    for v, (name, about) in enumerate(value["videos"].items()):
        video = VideoSegment(video_file(video_name(name), options.extension), sound=options.sound)
        for s, (sentence, claims) in enumerate(sentences):
            at = v * len(sentences) + s
            if problem := _list_problem(value, at, len(claims)):
                yield kept_out(record, record.value[0], f"{problem}: {name!r}, {sentence!r}", len(claims))
                continue
            for number, claim in enumerate(claims):
                channels = [channel for channel in CHANNELS if value[f"{channel}_lists"][at][number]]
                if problem := _tick_problem(value, at, number, channels):
                    yield kept_out(record, record.value[0], f"{problem}: {name!r}, {claim!r}", 1)
                    continue
                others = [other for other in dict.fromkeys(contexts[claim]) if other != sentence]
                yield judged_row(
                    record, video, claim, [sentence, *others], channels, video_meta(about), origin="annotated"
                )


def _list_problem(value: dict[str, Any], at: int, n_claims: int) -> str | None:
    for key in _lists_of(value):
        ticks = value[key][at]
        if not isinstance(ticks, list) or len(ticks) != n_claims or not all(isinstance(tick, bool) for tick in ticks):
            return f"{key} needs a boolean per claim, got {reprlib.repr(ticks)} at [{at}]; expected {n_claims} of them"
    return None


def _tick_problem(value: dict[str, Any], at: int, number: int, channels: list[str]) -> str | None:
    neither = value["neither_lists"][at][number]
    if neither == bool(channels):
        return f"'neither' contradicts the other ticks, got {neither} with {channels}; judge it again"
    if value.get(_DERIVED) is None:
        return None
    derived, expected = value[_DERIVED][at][number], bool({"video", "ocr"} & set(channels))
    if derived != expected:
        return f"{_DERIVED} contradicts video and ocr, got {derived} with {channels}; judge it again"
    return None


def _lists_of(value: dict[str, Any]) -> tuple[str, ...]:
    """The keys of a topic's lists of ticks; the derived one may be missing."""
    return _TICKS if value.get(_DERIVED) is None else (*_TICKS, _DERIVED)


def _is_sentence(entry: Any) -> bool:
    return (
        isinstance(entry, list)
        and len(entry) == 2
        and isinstance(entry[0], str)
        and isinstance(entry[1], list)
        and all(isinstance(claim, str) for claim in entry[1])
    )


IMPORTER = Importer(
    name="mirage_raw",
    description="WikiVideo claims with their supporting videos, raw JSON of ticks.",
    read=read,
    options=MirageRawOptions,
)
