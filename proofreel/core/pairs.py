"""The row of every data set: a claim, its evidence and its label.

`Pair` is what importers yield, what data sets store and what `Verifier.score_pairs` takes. Evidence is one of four
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
from typing import Any, Literal, get_args

from .errors import RowError

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
    here (annotation-only builds): such a row can be counted and split, never trained on or scored.
    """

    path: str
    start_s: float = 0.0
    end_s: float | None = None
    absent: bool = False
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


Evidence = VideoSegment | Transcript | Image | Passage
EVIDENCE_KINDS: dict[str, type] = {
    "video": VideoSegment,
    "transcript": Transcript,
    "image": Image,
    "passage": Passage,
}
_KIND_OF: dict[type, str] = {cls: kind for kind, cls in EVIDENCE_KINDS.items()}


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
    return {"kind": _KIND_OF[type(evidence)], **vars(evidence)}


def evidence_kinds(evidences: Iterable[Evidence]) -> tuple[str, ...]:
    """The sorted kinds of these pieces, out of video, transcript, image and passage."""
    return tuple(sorted({_KIND_OF[type(e)] for e in evidences}))


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


def _evidence_problems(evidence: Evidence) -> Iterable[str]:
    if isinstance(evidence, (Transcript, Passage)):
        if not isinstance(evidence.text, str) or not evidence.text.strip():
            yield f"evidence text is empty, got {evidence.text!r}; give the text or leave the evidence out"
    elif not isinstance(evidence.path, str) or not evidence.path:
        yield f"evidence has no path, got {evidence.path!r}; name the media file"
    if isinstance(evidence, VideoSegment) and evidence.start_s is None:
        yield "start_s is missing, got None; a segment starts at a number of seconds, 0 for the start of the file"
    if isinstance(evidence, (VideoSegment, Transcript)):
        yield from span_problems(evidence.start_s, evidence.end_s)


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
    """Where a stored media path lies on this machine: absolute paths as they are, others under `media_root`."""
    candidate = Path(path)
    return candidate if candidate.is_absolute() or media_root is None else Path(media_root) / candidate
