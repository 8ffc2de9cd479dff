"""Rows worth looking at, with their evidence made visible: frame strips, images and text.

Apart from the page because it alone opens media files: those of a row that cannot be read are named, and the page is
written without them.
"""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image as PILImage

from ...core import Audio, Evidence, Frames, Image, Passage, ProofreelError, Transcript, Visual, evidence_from_dict
from ...data_prep.media import FrameSampling, fetched, guarded, read_image, read_media_piece
from ...data_prep.negatives import name_origin
from .table_rows import Scored

_LABELS = {"not_enough": "not enough information"}
FRAME_HEIGHT = 150
SAMPLING = FrameSampling(fps=2, min_frames=4, max_frames=6)


@dataclass(frozen=True)
class Exhibit:
    """One piece of evidence as a page shows it."""

    caption: str
    images: tuple[str, ...] = ()  # data URIs
    text: str = ""
    problem: str = ""
    size: tuple[int, int] = (0, 0)  # width and height of the first picture, in pixels


@dataclass(frozen=True)
class Clip:
    """One row as a page shows it. `verdict` is empty where scoring failed."""

    kind: str
    claim: str
    label: str
    verdict: str
    p: float
    margin: float
    error: str
    about: str
    exhibits: tuple[Exhibit, ...]


def pick_clips(scored: Scored, per_kind: int = 4) -> dict[str, list[int]]:
    """Row numbers by kind: right verdicts (half supported), the most confident errors, and failures.

    Rows of evidence not shown yet come first, so that one video does not fill the page.
    """
    judged = [i for i, p in enumerate(scored.predictions) if p.error is None and p.label is not None]
    is_supported = scored.point.decide(scored.p)
    wrong = sorted(
        (i for i in judged if is_supported[i] != scored.labels[i]), key=lambda i: -abs(scored.p[i] - scored.labels[i])
    )
    right = sorted(
        (i for i in judged if is_supported[i] == scored.labels[i]), key=lambda i: abs(scored.p[i] - scored.labels[i])
    )
    yes, no = [i for i in right if is_supported[i]], [i for i in right if not is_supported[i]]
    failed = [i for i, p in enumerate(scored.predictions) if p.error is not None]
    half = (per_kind + 1) // 2
    return {
        "right": _varied(yes, scored, half) + _varied(no, scored, per_kind - half),
        "wrong": _varied(wrong, scored, per_kind),
        "failed": _varied(failed, scored, per_kind),
    }


def _varied(rows: Sequence[int], scored: Scored, n: int) -> list[int]:
    seen: set[str] = set()
    fresh = [i for i in rows if (key := scored.predictions[i].evidence) not in seen and not seen.add(key)]
    is_fresh = set(fresh)
    return [*fresh, *(i for i in rows if i not in is_fresh)][:n]


def make_clips(scored: Scored, media_root: Path | None, per_kind: int = 4) -> list[Clip]:
    """The picked rows with their evidence read; what cannot be read is shown as the reason why."""
    clips = []
    for kind, rows in pick_clips(scored, per_kind).items():
        for i in rows:
            row = scored.predictions[i]
            verdict = "supported" if scored.point.decide(scored.p[i]) else "not supported"
            clips.append(
                Clip(
                    kind=kind,
                    claim=row.claim or f"(pair {row.pair_id})",
                    label=_LABELS.get(row.label or "", row.label or "unlabelled"),
                    verdict="" if row.error is not None else verdict,
                    p=float(scored.p[i]),
                    margin=row.margin,
                    error=row.error or "",
                    about=" · ".join(
                        part for part in (row.role, name_origin(row.origin)[0], row.group, row.pair_id) if part
                    ),
                    exhibits=tuple(_exhibits(row.evidence, media_root)),
                )
            )
    return clips


def _exhibits(stored: str, media_root: Path | None) -> Iterable[Exhibit]:
    try:
        pieces = [evidence_from_dict(value) for value in json.loads(stored or "[]")]
    except ValueError as error:  # a RowError is one
        yield Exhibit("evidence", problem=str(error))
        return
    yield from (exhibit_of(evidence, media_root) for evidence in pieces)


def exhibit_of(evidence: Evidence, media_root: Path | None, sampling: FrameSampling = SAMPLING) -> Exhibit:
    """Evidence as a page shows it; media that cannot be read are a problem that is named in place.

    Args:
        evidence: of any kind.
        media_root: what relative paths start from.
        sampling: how many frames of a video.
    """
    caption = caption_of(evidence)
    try:
        if isinstance(evidence, (Transcript, Passage)):
            return Exhibit(caption, text=evidence.text)
        if isinstance(evidence, Audio):
            return Exhibit(caption, text="(heard, not shown)")
        pictures = _pictures(evidence, media_root, sampling)
        return Exhibit(caption, tuple(_data_uri(each) for each in pictures), size=pictures[0].size)
    except (ProofreelError, OSError) as error:
        return Exhibit(caption, problem=str(error))


def _pictures(evidence: Visual, media_root: Path | None, sampling: FrameSampling) -> list[PILImage.Image]:
    if isinstance(evidence, Image):
        return [PILImage.fromarray(read_image(evidence.path, media_root))]
    frames = guarded(read_media_piece, evidence, sampling, media_root, name=fetched(evidence, media_root))
    return [PILImage.fromarray(frame) for frame in frames.pixels_FHWC]


def caption_of(evidence: Evidence) -> str:
    """What evidence is called: its file and span."""
    if isinstance(evidence, Passage):
        return "passage"
    if isinstance(evidence, Frames):
        return f"{len(evidence.paths)} frames, {evidence.start_s:.1f}–{evidence.until_s:.1f} s"
    name = "transcript" if isinstance(evidence, Transcript) else Path(evidence.path).name
    if isinstance(evidence, Image) or evidence.start_s is None:
        return name
    end = "end" if evidence.end_s is None else f"{evidence.end_s:.1f}"
    return f"{name}, {evidence.start_s:.1f}–{end} s"


def _data_uri(picture: PILImage.Image) -> str:
    height = min(FRAME_HEIGHT, picture.height)
    width = max(1, round(picture.width * height / picture.height))
    stored = io.BytesIO()
    picture.resize((width, height), PILImage.Resampling.LANCZOS).save(stored, "JPEG", quality=82)
    return "data:image/jpeg;base64," + base64.b64encode(stored.getvalue()).decode()
