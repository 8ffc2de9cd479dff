"""Import WikiVideo/MiRAGE in its normalised form: the claims of a topic's reference article and the topic's videos.

Files: `human_eval_subset.json` (alexmartin1722/mirage) and `final_data*.json` (alexmartin1722/wikivideo), an object of
topics. Only support was annotated: a listed video that is not among a claim's supporting videos is an implicit
negative. The files repeat a topic's sentences once per video and write some video ids as `watch?v=ID`; both are undone.
"""

from __future__ import annotations

import hashlib
import reprlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from ...core import ConfigError, Pair, VideoSegment
from .base import Importer, Record, Rejected, Row, kind_of, read_json_members, reject
from .mirage_grounding import CHANNELS, modality_of, video_name

_VIDEO_META = ("language", "video_type", "relevance")


@dataclass(frozen=True)
class MirageOptions:
    """How the normalised JSON is read.

    Attributes:
        implicit_negatives: make `not_enough` pairs of the listed videos that do not support a claim.
        extension: of the video files; the annotation holds bare ids.
        channels: those of audio, video and ocr a verifier perceives. A pair supported on others alone is neither
            positive nor negative for it: it is kept out and listed.
        sound: the videos are heard as well as seen, all of them; for a verifier that hears.
    """

    implicit_negatives: bool = True
    extension: str = ".mp4"
    channels: tuple[str, ...] = tuple(CHANNELS)
    sound: bool = False


def read(path: Path, options: MirageOptions) -> Iterator[Row | Rejected]:
    """One row per (distinct claim, listed video) of every topic, in file order.

    Raises:
        ConfigError: `channels` is empty or names one that was not annotated.
    """
    check_channels(options.channels)
    for record in read_json_members(path):
        if isinstance(record, Rejected):
            yield record
            continue
        topic, value = record.value
        if problems := structure_problems(value):
            yield from (reject(record, problem, id=topic) for problem in problems)
        else:
            yield from _topic_rows(record, topic, value, options)


def group_of(topic: str) -> str:
    """The group of a topic, the same in every file of the release: some write spaces, some underscores."""
    return topic.replace("_", " ")


def video_file(address: str, extension: str) -> str:
    """The media path of a video given by id, watch address or path: only the file name is kept."""
    name = video_name(address)
    return name if PurePosixPath(name).suffix else name + extension


def digest_of(*texts: str) -> str:
    """A short, stable name of texts that have no id."""
    return hashlib.sha256("\n".join(texts).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def contexts_of(value: dict[str, Any]) -> dict[str, list[str]]:
    """The sentences each distinct claim of a topic was taken from (most have one), in file order."""
    contexts: dict[str, list[str]] = {}
    for sentence, claims in zip(value["original_article"], value["claims"], strict=True):
        for claim in claims:
            if sentence not in contexts.setdefault(claim, []):
                contexts[claim].append(sentence)
    return contexts


def check_channels(channels: Iterable[str]) -> None:
    """Raise `ConfigError` unless `channels` is a choice of the annotated ones."""
    chosen = list(channels)
    if not chosen or not set(chosen) <= set(CHANNELS):
        raise ConfigError(f"channels: must be some of {list(CHANNELS)}, got {chosen}; name what the verifier perceives")


def kept_out(record: Record | Row, id: str, message: str, pairs: int, blocking: bool = True) -> Rejected:
    """A rejection that says how many pairs are lost by it."""
    return Rejected(record.file, record.line, id, kind_of(message), message, pairs, blocking)


def judged_row(
    record: Record,
    video: VideoSegment,
    claim: str,
    sentences: list[str],
    channels: list[str],
    meta: dict[str, Any],
    origin: str,
) -> Row:
    """The row of a claim and a video, supported on `channels`, or on none."""
    topic = record.value[0]
    also = {"other_contexts": sentences[1:]} if len(sentences) > 1 else {}
    pair = Pair(
        id=f"wikivideo/{PurePosixPath(video.path).stem}/{digest_of(claim)}",
        claim=claim,
        evidence=(video,),
        label="supported" if channels else "not_enough",
        context=sentences[0],
        group=group_of(topic),
        origin=origin,
        modality=modality_of(channels),
        meta={"channels": channels, **meta, **also},
    )
    return Row(pair, record.file, record.line, topic)


def perceived(row: Row, channels: tuple[str, ...]) -> Row | Rejected:
    """The row, or why a verifier that perceives only `channels` cannot use it."""
    ticked = row.pair.meta["channels"]
    if not ticked or set(ticked) & set(channels):
        return row
    message = f"support is on no chosen channel, got {ticked} of {row.pair.id}; see the option `channels`"
    return kept_out(row, row.record, message, pairs=1, blocking=False)


def _topic_rows(record: Record, topic: str, value: dict[str, Any], options: MirageOptions) -> Iterator[Row | Rejected]:
    videos = {video_name(name): about for name, about in value["videos"].items()}
    contexts, judged = contexts_of(value), value["claims_to_supporting_videos"]
    for claim, sentences in contexts.items():
        if claim not in judged:
            message = f"claim has no entry in claims_to_supporting_videos, got {claim!r}; add it, or an empty list"
            yield kept_out(record, topic, message, len(videos))
        elif problem := _entry_problem(judged[claim]):
            yield kept_out(record, topic, f"{problem}: see the claim {claim!r}", len(videos))
        else:
            meta = {"query_id": value["query_id"]} if value.get("query_id") else {}
            yield from _claim_rows(record, claim, sentences, judged[claim], videos, meta, options)
    for claim in judged:
        if claim not in contexts:
            message = f"claim is in no sentence of `claims`, got {claim!r}; add it to its sentence"
            yield kept_out(record, topic, message, len(videos))


def _claim_rows(
    record: Record,
    claim: str,
    sentences: list[str],
    entry: dict[str, Any],
    videos: dict[str, dict[str, Any]],
    meta: dict[str, Any],
    options: MirageOptions,
) -> Iterator[Row | Rejected]:
    topic = record.value[0]
    supporting = {video_name(name): name for name in entry["supporting_videos"]}
    ticked: dict[str, set[str]] = {}
    for name, ticks in entry["videos_modalities"].items():
        ticked.setdefault(video_name(name), set()).update(channel for channel in CHANNELS if ticks[channel])
    for name in dict.fromkeys([*supporting, *ticked]):
        if name not in videos:
            message = f"supporting video is not listed, got {supporting.get(name, name)!r}; add it to `videos`"
            yield kept_out(record, topic, f"{message}: see the claim {claim!r}", 1)
    for video, about in videos.items():
        channels = [channel for channel in CHANNELS if channel in ticked.get(video, ())]
        if bool(channels) != (video in supporting):
            what = f"{video!r} in {'supporting_videos' if video in supporting else 'videos_modalities'} alone"
            message = f"supporting_videos and videos_modalities contradict each other, got {what}; judge it again"
            yield kept_out(record, topic, f"{message}: see the claim {claim!r}", 1)
        elif channels or options.implicit_negatives:
            origin = "annotated" if channels else "implicit_negative"
            details = {**meta, **video_meta(about)}
            segment = VideoSegment(video_file(video, options.extension), sound=options.sound)
            yield perceived(judged_row(record, segment, claim, sentences, channels, details, origin), options.channels)


def video_meta(about: dict[str, Any]) -> dict[str, Any]:
    """What is worth keeping of a listed video's description."""
    return {key: about[key] for key in _VIDEO_META if about.get(key) is not None}


def videos_problem(videos: Any) -> str | None:
    """What is wrong with a topic's `videos`: an object of ids, each described by texts and whole numbers."""
    if not isinstance(videos, dict) or not videos:
        return f"videos must be an object of at least one id, got {reprlib.repr(videos)}; write {{id: {{...}}}}"
    names = [video_name(name) for name in videos]
    if repeated := [name for name in names if not name or names.count(name) > 1]:
        return f"videos must have different ids, got {repeated}; keep one of each"
    for name, about in videos.items():
        if not isinstance(about, dict) or not all(isinstance(item, str | int | None) for item in about.values()):
            return (
                f"video must be described by texts and whole numbers, got {reprlib.repr(about)} for {name!r}; repair it"
            )
    return None


def structure_problems(value: Any) -> list[str]:
    """Everything wrong with the keys and types of a topic; its claims' entries are checked one by one."""
    if not isinstance(value, dict):
        return [f"topic must be an object, got {reprlib.repr(value)}; write {{'claims': ..., 'videos': ...}}"]
    problems = []
    for key in ("claims", "original_article"):
        if not isinstance(value.get(key), list):
            problems.append(
                f"{key} must be a list with one entry per sentence, got {reprlib.repr(value.get(key))}; repair it"
            )
    if problems:
        return problems
    claims, sentences = value["claims"], value["original_article"]
    if not all(_is_texts(item) for item in claims):
        problems.append(
            f"claims must be lists of texts, got {reprlib.repr(_first(claims, _is_texts))}; write [[claim, ...], ...]"
        )
    if not _is_texts(sentences):
        problems.append("original_article must be a list of texts, got another type inside; write [sentence, ...]")
    if len(claims) != len(sentences):
        problems.append(
            f"original_article must be aligned with claims, got {len(sentences)} for {len(claims)}; repair it"
        )
    if not isinstance(value.get("claims_to_supporting_videos"), dict):
        got = value.get("claims_to_supporting_videos")
        problems.append(f"claims_to_supporting_videos must be an object, got {reprlib.repr(got)}; write {{claim: ...}}")
    if not isinstance(value.get("query_id") or "", str):
        problems.append(f"query_id must be text, got {value['query_id']!r}; quote it")
    problem = videos_problem(value.get("videos"))
    return problems if problem is None else [*problems, problem]


def _entry_problem(entry: Any) -> str | None:
    if not isinstance(entry, dict) or not _is_texts(entry.get("supporting_videos")):
        return f"supporting_videos must be a list of video ids, got {reprlib.repr(entry)}; write [id, ...]"
    modalities = entry.get("videos_modalities")
    if not isinstance(modalities, dict) or not all(_is_ticks(ticks) for ticks in modalities.values()):
        return f"videos_modalities must tick {list(CHANNELS)} per video, got {reprlib.repr(modalities)}; write booleans"
    return None


def _is_ticks(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(value.get(channel), bool) for channel in CHANNELS)


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _first(values: list[Any], good: Any) -> Any:
    return next(value for value in values if not good(value))


IMPORTER = Importer(
    name="mirage",
    description="WikiVideo claims with their supporting videos, normalised JSON.",
    read=read,
    options=MirageOptions,
)
