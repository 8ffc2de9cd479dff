"""Import the MiRAGE grounding judgments: does this video support this claim, by sound, picture or on-screen text?

The files are a task platform's CSV export with JSON inside cells (alexmartin1722/mirage,
data/wikivideo/human_judgments/grounding_judgments). A claim is supported when audio, video or ocr is ticked. Only the
columns below are read: columns that name annotators are never read.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from ...core import Modality, Pair, VideoSegment, evidence_key
from .base import Importer, Merge, Record, Rejected, Row, kind_of, read_csv_records, reject

CHANNELS: dict[str, Modality] = {"audio": "audio", "video": "visual", "ocr": "ocr"}
_ANSWERS = (*CHANNELS, "neither")
COLUMNS = {"Input.id", "Input.payload", *(f"Answer.{name}" for name in _ANSWERS)}
_PAYLOAD_KEYS = {"Wiki_Title": str, "Claim_Sentence": str, "Extracted_Claims": list, "Video_Url": str}


@dataclass(frozen=True)
class GroundingOptions:
    """How the judgments are read.

    Attributes:
        sound: the videos are heard as well as seen, as the annotators did; for a verifier that hears.
    """

    sound: bool = False


def read_judgments(path: Path, options: GroundingOptions = GroundingOptions()) -> Iterator[Row | Rejected]:
    """Every single judgment of a file, repeats included: one row per (task, claim)."""
    for record in read_csv_records(path, COLUMNS):
        if isinstance(record, Rejected):
            yield record
            continue
        try:
            yield from _rows(record, options.sound)
        except ValueError as error:
            yield reject(record, str(error), id=record.value["Input.id"])


def merge_judgments(rows: Iterable[Row]) -> tuple[list[Row], list[Rejected]]:
    """One row per (claim, video): repeats merged, with all the channels ticked; disagreements kept out.

    Systems share claims, so a (claim, video) may be judged again in another task or file. `meta["judgments"]` counts.
    """
    return MERGE.all_of(list(rows))


def _judged(row: Row) -> str:
    return f"{row.pair.claim}\0{evidence_key(row.pair.evidence)}"


def _join(same: Sequence[Row], options: object, known: None) -> Iterator[Row | Rejected]:
    if len({row.pair.label for row in same}) > 1:
        yield from _conflicts(same)
    else:
        yield _merge(same)


MERGE = Merge(_judged, _join)


def _rows(record: Record, sound: bool) -> Iterator[Row]:
    payload = _json_cell(record, "Input.payload", dict)
    for key, kind in _PAYLOAD_KEYS.items():
        if not isinstance(payload.get(key), kind):
            raise ValueError(f"payload needs {key} as {kind.__name__}, got {payload.get(key)!r}; repair the row")
    claims = payload["Extracted_Claims"]
    answers = {name: _json_cell(record, f"Answer.{name}", list) for name in _ANSWERS}
    for name, ticks in answers.items():
        if len(ticks) != len(claims) or not all(isinstance(tick, bool) for tick in ticks):
            raise ValueError(f"Answer.{name} must be {len(claims)} booleans, got {ticks!r}; one per extracted claim")
    for number, claim in enumerate(claims):
        channels = [name for name in CHANNELS if answers[name][number]]
        if bool(channels) == answers["neither"][number]:
            raise ValueError(f"'neither' contradicts the other answers, got {channels} and neither; judge it again")
        yield Row(_pair(payload, claim, channels, sound), record.file, record.line, record.value["Input.id"])


def _pair(payload: dict[str, Any], claim: Any, channels: list[str], sound: bool) -> Pair:
    video = video_name(payload["Video_Url"])
    digest = hashlib.sha256(f"{video}\n{claim}".encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return Pair(
        id=f"{PurePosixPath(video).stem}/{digest}",
        claim=claim,
        evidence=(VideoSegment(video, sound=sound),),
        # An unticked claim was not contradicted: the annotators only found no support for it in this video.
        label="supported" if channels else "not_enough",
        context=payload["Claim_Sentence"] or None,
        group=payload["Wiki_Title"],
        modality=modality_of(channels),
        meta={"channels": channels},
    )


def video_name(url: str) -> str:
    """The file name at the end of a video's address; "watch?v=ID" (an upstream slip) is read as ID."""
    name = PurePosixPath(url).name.removeprefix("watch?v=")
    return name.partition("&")[0] if "&" in name else name


def modality_of(channels: list[str]) -> Modality:
    """The modality of a pair that these channels support: `mixed` for several, `visual` for none."""
    if len(channels) > 1:
        return "mixed"
    return CHANNELS[channels[0]] if channels else "visual"


def _merge(same: Sequence[Row]) -> Row:
    if len(same) == 1:
        return same[0]
    channels = [name for name in CHANNELS if any(name in row.pair.meta["channels"] for row in same)]
    meta = same[0].pair.meta | {"channels": channels, "judgments": len(same)}
    return dataclasses.replace(
        same[0], pair=dataclasses.replace(same[0].pair, modality=modality_of(channels), meta=meta)
    )


def _conflicts(same: Sequence[Row]) -> Iterator[Rejected]:
    labels = [f"{row.pair.label} at {row.file}:{row.line}" for row in same]
    message = f"judgments conflict, got {', '.join(labels)}; adjudicate them: this pair is kept out"
    for row in same:
        yield Rejected(row.file, row.line, row.pair.id, kind_of(message), message, pairs=1, blocking=False)


def _json_cell(record: Record, column: str, kind: type) -> Any:
    try:
        value = json.loads(record.value[column])
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"{column} is not JSON, got {record.value[column][:40]!r} ({error}); repair the cell"
        ) from None
    if not isinstance(value, kind):
        raise ValueError(f"{column} must be a JSON {kind.__name__}, got {value!r}; repair the cell")
    return value


IMPORTER = Importer(
    name="grounding",
    description="MiRAGE grounding judgments: whether a video supports a claim, as CSV.",
    read=read_judgments,
    options=GroundingOptions,
    merge=MERGE,
)
