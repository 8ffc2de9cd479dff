"""The HTML of evidence, verdicts, attributions and localizations, in inline styles that follow the page's own colours.

Every text of a caller is escaped. Rows are tables, so that a page that drops styles still shows them as rows. Colours
are seen on light and dark pages, and words say what they say.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path, PurePath
from typing import Any

from ...core import Evidence, Frames, Image, Pair, Passage, Transcript, VideoSegment
from ..decision import Ranked, Verdict
from .frames import frames_of

_MOST_ROWS, _MOST_FRAMED, _MOST_CHARS = 50, 6, 400
_COLOURS = {"supported": "#2e9e5b", "not_supported": "#d1495b", "refuted": "#d1495b", "abstain": "#c98a12"}
_PLAIN = "#7a8794"
_BOX = "font-size:13px;line-height:1.45;color:inherit;margin:4px 0 10px"
_TABLE = "border-collapse:collapse;border:0;margin:0 0 8px;font-size:inherit;color:inherit"
_ROW = "background:none"
_CELL = "border:0;padding:1px 10px 1px 0;text-align:left;vertical-align:middle;white-space:normal"
_TRACK = "background:rgba(128,128,128,.3)"
_QUIET = "opacity:.75"

Root = str | Path | None


def evidence_html(evidence: Iterable[Evidence], media_root: Root = None) -> str:
    """Pieces of evidence, one under another: name and span, and a few frames of what lies on this machine."""
    return _box("".join(_piece(piece, media_root, True) for piece in evidence))


def verdicts_html(verdicts: Sequence[Verdict], pairs: Sequence[Pair] = (), media_root: Root = None) -> str:
    """Verdicts as bars beside their claims, under the evidence that neighbours share; a note of all stands once."""
    notes = {verdict.note for verdict in verdicts}
    note = notes.pop() if len(notes) == 1 and len(verdicts) > 1 else None
    parts, rows, n_framed, above = [], [], 0, None
    for i, verdict in enumerate(verdicts[:_MOST_ROWS]):
        pair = pairs[i] if i < len(pairs) else None
        if pair is not None and pair.evidence != above:
            parts += [_table(rows)] if rows else []
            rows, above = [], pair.evidence
            parts += [_piece(piece, media_root, n_framed < _MOST_FRAMED) for piece in above]
            n_framed += 1
        rows.append(_row(verdict, "" if pair is None else pair.claim, verdict.note != note))
    parts += [_table(rows)] if rows else []
    if len(verdicts) > _MOST_ROWS:
        parts.append(_quiet(f"... and {len(verdicts) - _MOST_ROWS} more"))
    if note:
        parts.append(_quiet(note))
    return _box("".join(parts) or "no verdicts")


def ranking_html(claim: str, ranked: Sequence[Ranked], media_root: Root = None) -> str:
    """The claim, then every evidence with its place in the input and its bar."""
    pairs = [Pair(claim=f"evidence {each.index}", evidence=_pieces(each)) for each in ranked]
    head = f'<b dir="auto">{_text(claim)}</b>' if claim else ""
    return _box(head + verdicts_html([each.verdict for each in ranked], pairs, media_root))


def attributed_html(attributed: Any, media_root: Root = None) -> str:
    """The claim with its verdict on all citations, then every citation with its own."""
    parts = [_table([_row(attributed.recall, attributed.claim)])]
    if attributed.contradiction:
        parts.append(_quiet(attributed.contradiction))
    judged = zip(attributed.citations, attributed.necessary, strict=True)
    for number, (cite, necessary) in enumerate(judged, start=1):
        name = getattr(cite.citation, "text", None)
        head = f"<b>citation {number}</b>{'' if name is None else ' ' + _text(name)}"
        if necessary is not None:
            head += f' <span style="{_QUIET}">{"necessary" if necessary else "not necessary"}</span>'
        evidence = "" if cite.evidence is None else _piece(cite.evidence, media_root, number <= _MOST_FRAMED)
        why = cite.problem.message if cite.problem is not None else cite.note
        alone = "" if cite.alone is None else _table([_row(cite.alone, "this citation alone")])
        body = f"{head}{_quiet(why) if why else ''}{evidence}{alone}"
        parts.append(f'<div style="margin:6px 0 0 12px">{body}</div>')
    return _box("".join(parts))


def localization_html(located: Any, media_root: Root = None) -> str:
    """The claim, where in the video it holds on a line of time, and frames of the surest interval."""
    windows = located.windows
    start_s = min((w.segment.start_s for w in windows), default=0.0)
    end_s = max((w.segment.end_s or w.segment.start_s for w in windows), default=0.0)
    length_s = (end_s - start_s) or 1.0
    marks = "".join(
        f'<div title="{each.p_supported:.3f}" style="position:absolute;top:0;height:100%;border-radius:3px;'
        f"left:{100 * (each.start_s - start_s) / length_s:.2f}%;"
        f'width:{100 * (each.end_s - each.start_s) / length_s:.2f}%;background:{_COLOURS["supported"]}"></div>'
        for each in located.intervals
    )
    line = (
        '<div style="position:relative;height:12px;max-width:520px;border-radius:3px;margin:4px 0;'
        f'{_TRACK}">{marks}</div>{_quiet(f"{start_s:g} s to {end_s:g} s")}'
    )
    intervals = "; ".join(f"{i.start_s:g} to {i.end_s:g} s: {i.p_supported:.3f}" for i in located.intervals)
    about = located.error or intervals or "holds in no window"
    parts = [f'<b dir="auto">{_text(located.claim)}</b>', line, f"<div>{_text(about)}</div>"]
    if located.intervals and windows:
        best = max(located.intervals, key=lambda each: each.p_supported)
        first = windows[0].segment
        shown = next((w.segment for w in windows if w.segment.start_s >= best.start_s), first)
        if isinstance(first, VideoSegment):
            shown = VideoSegment(first.path, best.start_s, best.end_s)
        parts.append(_piece(shown, media_root, True))
    return _box("".join(parts))


def facts_html(name: str, facts: Mapping[str, Any]) -> str:
    """What an object is, name by name."""
    rows = [_cells(f'<span style="{_QUIET}">{_text(key)}</span>', _text(value)) for key, value in facts.items()]
    return _box(f"<b>{_text(name)}</b>{_table(rows)}")


def verdicts_text(verdicts: Sequence[Verdict], pairs: Sequence[Pair] = ()) -> str:
    """Verdicts as lines of text: probability, label, claim."""
    return _lines(f"{len(verdicts)} verdict{'' if len(verdicts) == 1 else 's'}", verdicts, [p.claim for p in pairs])


def ranking_text(claim: str, ranked: Sequence[Ranked]) -> str:
    """A claim, then evidences as lines of text: probability, label, name."""
    names = [" and ".join(map(_name, _pieces(each))) for each in ranked]
    return _lines(repr(claim), [each.verdict for each in ranked], names)


def _lines(head: str, verdicts: Sequence[Verdict], names: Sequence[str]) -> str:
    lines = [head]
    for i, verdict in enumerate(verdicts[:_MOST_ROWS]):
        p = "     " if math.isnan(verdict.p_supported) else f"{verdict.p_supported:.3f}"
        words = [p, f"{_said(verdict):<13}", *map(repr, names[i : i + 1]), *filter(None, [verdict.error])]
        lines.append("  " + "  ".join(words).rstrip())
    if len(verdicts) > _MOST_ROWS:
        lines.append(f"  ... and {len(verdicts) - _MOST_ROWS} more")
    return "\n".join(lines)


def _said(verdict: Verdict) -> str:
    if verdict.error is not None:
        return "failed"
    return verdict.answer or verdict.label or "uncalibrated"


def _pieces(ranked: Ranked) -> tuple[Evidence, ...]:
    return ranked.evidence if isinstance(ranked.evidence, tuple) else (ranked.evidence,)


def _row(verdict: Verdict, claim: str, with_note: bool = True) -> str:
    """Bar, probability, label, claim."""
    said = _said(verdict)
    p = verdict.p_supported
    number, percent = ("-", 0.0) if math.isnan(p) else (f"{p:.3f}", 100 * min(max(p, 0.0), 1.0))
    bar = (
        f'<div style="width:90px;height:10px;border-radius:5px;{_TRACK};overflow:hidden">'
        f'<div style="width:{percent:.1f}%;height:100%;background:{_COLOURS.get(said, _PLAIN)}"></div></div>'
    )
    why = "".join(
        f' <span style="{_QUIET}">{_text(each)}</span>'
        for each in (verdict.error, verdict.note if with_note else None)
        if each
    )
    words = f'<b style="white-space:nowrap">{_text(said.replace("_", " "))}</b>'
    return _cells(bar, number, words, f'<span dir="auto">{_text(claim)}</span>{why}')


def _piece(piece: Evidence, media_root: Root, frames: bool) -> str:
    if isinstance(piece, (Transcript, Passage)):
        quote = "border-left:3px solid rgba(128,128,128,.5);padding-left:8px;margin:2px 0"
        return f'{_quiet(_name(piece))}<div dir="auto" style="{quote}">{_text(piece.text)}</div>'
    name = _name(piece)
    style = "height:84px;margin:2px 4px 2px 0;border-radius:3px;display:inline-block"
    addresses = frames_of(piece, media_root) if frames else ()
    pictures = "".join(f'<img src="{each}" alt="frame of {_text(name)}" style="{style}"/>' for each in addresses)
    return f"{_quiet(name)}<div>{pictures}</div>"


def _name(piece: Evidence) -> str:
    if isinstance(piece, Passage):
        return "passage"
    if isinstance(piece, Frames):
        return f"{len(piece.paths)} frames, {piece.start_s:g} s to {piece.until_s:g} s"
    span = "" if isinstance(piece, Image) else _span(piece.start_s, piece.end_s)
    return f"{'transcript' if isinstance(piece, Transcript) else PurePath(str(piece.path)).name}{span}"


def _span(start_s: float | None, end_s: float | None) -> str:
    if start_s is None or (start_s == 0 and end_s is None):
        return ""
    return f", {start_s:g} s to {'the end' if end_s is None else f'{end_s:g} s'}"


def _table(rows: Sequence[str]) -> str:
    return f'<table style="{_TABLE}">{"".join(rows)}</table>'


def _cells(*cells: str) -> str:
    columns = "".join(f'<td style="{_CELL}">{cell}</td>' for cell in cells)
    return f'<tr style="{_ROW}">{columns}</tr>'


def _quiet(text: str) -> str:
    return f'<div style="{_QUIET}">{_text(text)}</div>'


def _box(inner: str) -> str:
    return f'<div style="{_BOX}">{inner}</div>'


def _text(value: Any) -> str:
    text = str(value)
    return escape(text if len(text) <= _MOST_CHARS else f"{text[: _MOST_CHARS - 1]}…")
