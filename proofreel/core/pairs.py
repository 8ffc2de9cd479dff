"""The row of every data set: a claim, its evidence and its label.

`Pair` is what importers yield, what data sets store and what `Verifier.score_pairs` takes. Evidence is one of six
frozen types; a pair holds a tuple of them, judged together.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, SupportsFloat, get_args

from .errors import RowError
from .remote import is_address, local_file, with_local_part

Label = Literal["supported", "refuted", "not_enough"]
Split = Literal["train", "validation", "calibration", "test"]
Modality = Literal["visual", "audio", "ocr", "text", "mixed"]

LABELS: tuple[Label, ...] = get_args(Label)
SPLITS: tuple[Split, ...] = get_args(Split)
MODALITIES: tuple[Modality, ...] = get_args(Modality)
MAX_CLAIM_CHARS = 2_000
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")  # Unicode's Cc and Cs without tab and newline


_HTML: list[Callable[[tuple[Any, ...]], str]] = []


def show_evidence_with(render: Callable[[tuple[Any, ...]], str]) -> None:
    """Say how notebooks show evidence; the package does when it is imported, since this module reads no media."""
    _HTML[:] = [render]


def _as_html(evidence: Any) -> str | None:
    """For notebooks; None, for which they show the text instead, where it cannot be made."""
    try:
        return _HTML[0]((evidence,))
    except Exception:  # whatever a path holds: to look at a value never fails
        return None


@dataclass(frozen=True)
class VideoSegment:
    """The span [start_s, end_s] (seconds) of a video file. `end_s=None` means to the end of the file.

    `path` is relative to the data set's media root, or absolute. `absent=True` marks media that is known not to be
    here (annotation-only builds): such a row can be counted and split, never trained on or scored. `sound=True` lets
    the video's own sound be heard with its pictures, by a verifier that hears.
    """

    path: str
    start_s: float = 0.0
    end_s: float | None = None
    absent: bool = False
    sound: bool = False
    _repr_html_ = _as_html


@dataclass(frozen=True)
class Audio:
    """What is heard in the span [start_s, end_s] (seconds) of a file with sound; `end_s=None` means to its end.

    The file may be a video: its pictures are not shown then.
    """

    path: str
    start_s: float = 0.0
    end_s: float | None = None
    _repr_html_ = _as_html


@dataclass(frozen=True)
class Transcript:
    """What is said in a span, as text; times in seconds, None where unknown."""

    text: str
    start_s: float | None = None
    end_s: float | None = None
    _repr_html_ = _as_html


@dataclass(frozen=True)
class Image:
    """One still image file."""

    path: str
    _repr_html_ = _as_html


@dataclass(frozen=True)
class Passage:
    """A piece of reference text."""

    text: str
    _repr_html_ = _as_html


@dataclass(frozen=True)
class AskedFirst(Passage):
    """A claim that stands before its evidence, of prompts that ask so; no evidence, and in no file (`Prompt.bound`)."""


@dataclass(frozen=True, init=False)
class Frames:
    """Frames of a video that somebody has sampled already: image files of one size, and when each is shown.

    Attributes:
        paths: one file per frame, two at least, each like the path of an `Image`.
        times_s: seconds from the start of the video; strictly increasing.
        end_s: when the last frame is over; None: it is shown as long as the others are on average.
    """

    paths: tuple[str, ...]
    times_s: tuple[float, ...]
    end_s: float | None = None
    _repr_html_ = _as_html

    def __init__(self, paths: Iterable[Any], times_s: Iterable[float], end_s: float | None = None) -> None:
        """Any sequences; what is wrong with them is said where pairs are checked.

        `as_evidence` and `Verifier.score` also take pictures in memory in the place of paths, and store them.
        """
        known = isinstance(paths, Iterable) and not isinstance(paths, str)
        files = tuple(str(path) if isinstance(path, Path) else path for path in paths) if known else paths
        times = tuple(map(_seconds, times_s)) if isinstance(times_s, Iterable) else times_s
        for name, value in (("paths", files), ("times_s", times), ("end_s", end_s)):
            object.__setattr__(self, name, value)

    @property
    def start_s(self) -> float:
        """When the first frame is shown."""
        return self.times_s[0]

    @property
    def until_s(self) -> float:
        """When the last frame is over."""
        if self.end_s is not None:
            return self.end_s
        return self.times_s[-1] + (self.times_s[-1] - self.times_s[0]) / max(1, len(self.times_s) - 1)


def _seconds(value: Any) -> Any:
    """A number of NumPy or a whole number as a float: equal times are equal evidence."""
    return float(value) if isinstance(value, SupportsFloat) and not isinstance(value, (bool, str)) else value


Moving = VideoSegment | Frames
"""Evidence that the network sees as a video."""
Visual = VideoSegment | Frames | Image
Evidence = VideoSegment | Transcript | Image | Passage | Frames | Audio
EVIDENCE_KINDS: dict[str, type] = {
    "video": VideoSegment,
    "transcript": Transcript,
    "image": Image,
    "passage": Passage,
    "frames": Frames,
    "audio": Audio,
}
_KIND_OF: dict[type, str] = {cls: kind for kind, cls in EVIDENCE_KINDS.items()} | {AskedFirst: "claim"}


@dataclass(frozen=True)
class Pair:
    """One claim judged against one tuple of evidence.

    Attributes:
        id: unique in its data set; a pair that is only scored needs none.
        claim: one sentence that may be true or false.
        evidence: judged together; never empty.
        label: None for a row without a judgment.
        context: the sentence or paragraph the claim was taken from.
        soft_label: probability of supported in [0, 1], where annotators or a teacher disagree.
        split: one of `SPLITS`; None before the build assigns it.
        group: the video, topic or dialogue that ties rows together statistically. No group is in two splits.
        role: e.g. Action, Object, Tool, Location, contextual.
        origin: how the row was made: `annotated`, `negative_annotated`, `swapped_evidence`, ...
        modality: what supports (or would support) the claim.
        weight: factor of this row in a training loss.
        teacher_margin: log-odds a teacher gave, for distillation.
        meta: anything else, JSON-serialisable.
    """

    id: str = ""
    claim: str = ""
    evidence: tuple[Evidence, ...] = ()
    label: Label | None = None
    context: str | None = None
    soft_label: float | None = None
    split: Split | None = None
    group: str = ""
    role: str = ""
    origin: str = "annotated"
    modality: Modality = "visual"
    weight: float = 1.0
    teacher_margin: float | None = None
    meta: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """A plain dict of JSON values; `from_dict` gives an equal pair back."""
        row = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        row["evidence"] = [evidence_to_dict(e) for e in self.evidence]
        return row

    @classmethod
    def from_dict(cls, row: Mapping[str, Any], where: str = "row") -> Pair:
        """The pair a dict describes.

        Raises:
            RowError: an unknown or missing key, or evidence of no known kind; `where` opens the message.
        """
        known = {f.name for f in dataclasses.fields(cls)}
        if unknown := sorted(set(row) - known):
            raise RowError(f"{where}: unknown keys, got {unknown}; a pair has {sorted(known)}")
        if missing := sorted({"id", "claim", "evidence"} - set(row)):
            raise RowError(f"{where}: required keys are missing, got no {missing}; add them")
        if not isinstance(row["evidence"], (list, tuple)):
            raise RowError(f"{where}: evidence must be a list of objects, got {row['evidence']!r}; wrap it in a list")
        values = {k: v for k, v in row.items() if k != "evidence"}
        return cls(evidence=tuple(evidence_from_dict(e, where) for e in row["evidence"]), **values)


def evidence_to_dict(evidence: Evidence) -> dict[str, Any]:
    """`{"kind": "video", "path": ..., ...}`: the stored form of one piece of evidence."""
    lists = {k: list(v) if isinstance(v, tuple) else v for k, v in vars(evidence).items()}
    if lists.get("sound") is False:  # keys and records of evidence that is only seen stay what they were
        del lists["sound"]
    return {"kind": _KIND_OF[type(evidence)], **lists}


def evidence_kinds(evidences: Iterable[Evidence]) -> tuple[str, ...]:
    """The sorted kinds of these pieces as a verifier takes them: frames are a video; its own sound is audio."""
    kinds: set[str] = set()
    for e in evidences:
        if isinstance(e, AskedFirst):
            continue
        kinds.add("video" if isinstance(e, Frames) else _KIND_OF[type(e)])
        if isinstance(e, VideoSegment) and e.sound:
            kinds.add("audio")
    return tuple(sorted(kinds))


def evidence_from_dict(row: Any, where: str = "evidence") -> Evidence:
    """The evidence a stored dict describes; `RowError` on an unknown kind or wrong keys."""
    kind = row.get("kind") if isinstance(row, Mapping) else None
    if not isinstance(kind, str) or kind not in EVIDENCE_KINDS:
        raise RowError(f"{where}: evidence kind must be one of {sorted(EVIDENCE_KINDS)}, got {kind!r}; fix `kind`")
    try:
        return EVIDENCE_KINDS[kind](**{k: v for k, v in row.items() if k != "kind"})
    except TypeError as error:
        raise RowError(f"{where}: {kind} evidence has wrong keys, got {sorted(row)}; {error}") from error


def evidence_key(evidence: tuple[Evidence, ...]) -> str:
    """A string equal for equal evidence: rows that share it are stored, trained and scored together."""
    return json.dumps([evidence_to_dict(e) for e in evidence], sort_keys=True, ensure_ascii=False)


def problems_of(pair: Pair, *, evidence_checked: bool = False) -> list[str]:
    """Everything wrong with a pair that can be seen without opening its media, each as one message.

    `evidence_checked` leaves out what its evidence says: rows that share one need it checked once.
    """
    problems = [*_claim_problems(pair.claim), *_vocabulary_problems(pair), *_type_problems(pair)]
    if evidence_checked:
        return problems
    if not pair.evidence:
        problems.append("evidence is empty, got (); give at least one piece of evidence")
    for evidence in pair.evidence:
        problems.extend(_evidence_problems(evidence))
    return problems


def _claim_problems(claim: Any) -> Iterable[str]:
    if not isinstance(claim, str):
        yield f"claim must be a string, got {claim!r}; write it as text"
    elif not claim.strip():
        yield f"claim is empty, got {claim!r}; write the claim or leave the row out"
    elif len(claim) > MAX_CLAIM_CHARS:
        yield f"claim is longer than {MAX_CLAIM_CHARS} characters, got {len(claim)}; split it into atomic claims"
    elif _CONTROL.search(claim):
        yield f"claim holds control or surrogate characters, got {claim!r}; remove them"


def _vocabulary_problems(pair: Pair) -> Iterable[str]:
    if pair.label is not None and pair.label not in LABELS:
        yield f"label is outside the vocabulary, got {pair.label!r}; use one of {list(LABELS)}"
    if pair.split is not None and pair.split not in SPLITS:
        yield f"split is unknown, got {pair.split!r}; use one of {list(SPLITS)}"
    if pair.modality not in MODALITIES:
        yield f"modality is unknown, got {pair.modality!r}; use one of {list(MODALITIES)}"
    if pair.soft_label is not None and not (_is_number(pair.soft_label) and 0 <= pair.soft_label <= 1):
        yield f"soft_label must be a probability, got {pair.soft_label!r}; give a number in [0, 1]"
    if not (_is_number(pair.weight) and pair.weight >= 0):
        yield f"weight must be a number >= 0, got {pair.weight!r}; use 1.0 for an ordinary row"
    if not pair.id or not isinstance(pair.id, str):
        yield f"id must be a non-empty string, got {pair.id!r}; number the rows"


def _type_problems(pair: Pair) -> Iterable[str]:
    for name in ("group", "role", "origin"):
        if not isinstance(getattr(pair, name), str):
            yield f"{name} must be a string, got {getattr(pair, name)!r}; write it as text"
    if pair.context is not None and not isinstance(pair.context, str):
        yield f"context must be a string or null, got {pair.context!r}; write it as text"
    if pair.teacher_margin is not None and not _is_number(pair.teacher_margin):
        yield f"teacher_margin must be a finite number or null, got {pair.teacher_margin!r}; give log-odds"
    if not isinstance(pair.meta, dict):
        yield f"meta must be an object, got {pair.meta!r}; write {{name: value}}"


def problems_of_evidence(evidence: Evidence) -> list[str]:
    """What is wrong with a piece of evidence that can be seen without opening its media."""
    return list(_evidence_problems(evidence))


def _evidence_problems(evidence: Evidence) -> Iterable[str]:
    if isinstance(evidence, (Transcript, Passage)):
        if not isinstance(evidence.text, str) or not evidence.text.strip():
            yield f"evidence text is empty, got {evidence.text!r}; give the text or leave the evidence out"
    elif isinstance(evidence, Frames):
        yield from _frames_problems(evidence)
    elif not isinstance(evidence.path, str) or not evidence.path:
        yield f"evidence has no path, got {evidence.path!r}; name the media file"
    if isinstance(evidence, (VideoSegment, Audio)) and evidence.start_s is None:
        yield "start_s is missing, got None; a segment starts at a number of seconds, 0 for the start of the file"
    if isinstance(evidence, (VideoSegment, Transcript, Audio)):
        yield from span_problems(evidence.start_s, evidence.end_s)


def _frames_problems(frames: Frames) -> Iterable[str]:
    paths, times_s = frames.paths, frames.times_s
    if not (isinstance(paths, tuple) and all(isinstance(path, str) and path for path in paths)):
        yield f"frames have no paths, got {paths!r:.100}; give a list of image files"
    elif not (isinstance(times_s, tuple) and all(map(_is_number, times_s))):
        yield f"frames have no times, got times_s={times_s!r:.100}; give the seconds at which each is shown"
    elif len(paths) != len(times_s):
        yield f"frames and times differ in number, got {len(paths)} and {len(times_s)}; give one time per frame"
    elif len(paths) < 2:
        yield f"frames are fewer than two, got {len(paths)}; give more of them, or a single one as an image"
    elif times_s[0] < 0:
        yield f"times_s[0] is negative, got {times_s[0]}; times count from the start of the video"
    elif (at := next((i for i in range(1, len(times_s)) if times_s[i] <= times_s[i - 1]), None)) is not None:
        got = f"times_s[{at - 1}] = {times_s[at - 1]}, times_s[{at}] = {times_s[at]}"
        yield f"times of frames do not increase, got {got}; put the frames in order of time, each once"
    elif frames.end_s is not None and not (_is_number(frames.end_s) and frames.end_s > times_s[-1]):
        yield f"end_s of frames must come after the last, got {frames.end_s!r} with a frame at {times_s[-1]} s; fix it"


def media_paths(evidence: Evidence) -> tuple[str, ...]:
    """The files that a piece of evidence names, in its order; none for text."""
    if isinstance(evidence, Frames):
        return evidence.paths
    return (evidence.path,) if isinstance(evidence, (VideoSegment, Image, Audio)) else ()


def with_media_paths(evidence: Evidence, rename: Callable[[str], str]) -> Evidence:
    """The same piece with every file of this machine under its new name; texts and addresses as they are."""
    if isinstance(evidence, Frames):
        return dataclasses.replace(evidence, paths=tuple(with_local_part(path, rename) for path in evidence.paths))
    if isinstance(evidence, (VideoSegment, Image, Audio)):
        return dataclasses.replace(evidence, path=with_local_part(evidence.path, rename))
    return evidence


def media_name(evidence: Visual | Audio) -> str:
    """What messages call a piece: its file, or the first of its files."""
    return media_paths(evidence)[0]


def span_problems(start_s: float | None, end_s: float | None) -> Iterable[str]:
    """What is wrong with a span of time, without knowing the media's duration."""
    for name, value in (("start_s", start_s), ("end_s", end_s)):
        if value is not None and not _is_number(value):
            yield f"{name} must be a finite number of seconds, got {value!r}; fix the time"
            return
    if start_s is not None and start_s < 0:
        yield f"start_s is negative, got {start_s}; times count from the start of the file"
    if start_s is not None and end_s is not None and end_s <= start_s:
        yield f"span is reversed or empty, got [{start_s}, {end_s}]; end_s must be greater than start_s"


def _is_number(value: Any) -> bool:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer beyond the floats
        return False


def media_path(path: str, media_root: str | Path | None) -> Path:
    """Where a stored media path lies on this machine: absolute paths as they are, others under `media_root`.

    What lies behind an address is fetched, where that is allowed (see `remote`); `MediaError` where it cannot be.
    """
    if is_address(path):
        return local_file(path, lambda archive: media_path(archive, media_root))
    candidate = Path(path)
    return candidate if candidate.is_absolute() or media_root is None else Path(media_root) / candidate
