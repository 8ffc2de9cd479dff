"""Citations such as `(visual, 0:15; audio, 0:12-0:14)`, read from running text, and the sentences they belong to.

A citation names a modality and a moment or a range of a video (MuRGAt, section 3.1 and figure 11). What looks like
one and cannot be read is kept as `Malformed`, with the reason; ordinary parentheses stay in the text. Times count to
the second: a point `0:15` is that second, [15, 16) by default, and a range `0:15-0:18` is [15, 18], as the published
evaluation cuts it. `cited_sentences` cuts a generated text into sentences, each with its citations. Every pattern is
bounded, so reading takes time linear in the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

CitedModality = Literal["visual", "audio", "ocr"]
WORDS: dict[str, CitedModality] = {
    **dict.fromkeys(("visual", "visuals", "video", "frame", "frames"), "visual"),
    **dict.fromkeys(("audio", "speech", "transcript", "sound"), "audio"),
    **dict.fromkeys(("ocr", "on-screen text", "on screen text", "onscreen text"), "ocr"),
}
"""What a citation may call its modality, in lower case."""
POINT_S = 1.0

_WORD = "(?ai:visuals?|video|frames?|audio|speech|transcript|sound|ocr|on[- ]?screen text)"
_DASH = "[-\u2010-\u2015\u2212]"
_TIME = r"[0-9]{1,3}:[0-9]{2}(?::[0-9]{2})?(?:\.[0-9]{1,9})?(?![0-9:])"
_RANGE = rf"{_TIME}(?:\s{{0,3}}{_DASH}\s{{0,3}}{_TIME})?"
_RANGES = rf"{_RANGE}(?:\s{{0,3}}[,;]\s{{0,3}}(?:{_WORD}\s{{0,3}}[,:]?\s{{0,3}})?{_RANGE}){{0,20}}"
_CLOSED = re.compile(r"[(\[][^()\[\]]*[)\]]")
_STRAY = re.compile(
    rf"[(\[]\s{{0,3}}{_WORD}\s{{0,3}}[,:]?\s{{0,3}}{_RANGES}"
    rf"|(?<!\w){_WORD}\s{{0,3}},\s{{0,3}}{_RANGES}\s{{0,3}}[)\]]"
)
_LEADING_WORD = re.compile(rf"({_WORD})(?:\s*,\s*|\s*:\s*(?=[0-9])|\s+(?=[0-9]{{1,3}}:)|\s*$)")
_PARTS = re.compile(r"(?:([0-9]{1,3}):)?([0-9]{1,3}):([0-9]{1,2}(?:\.[0-9]{1,9})?)")
_TIME_LIKE = re.compile(r"[0-9]{1,3}:[0-9]{2}(?![0-9])")
_JOINS = {"", ",", ";", "&", "and", ", and"}
_CLOSER = {"(": ")", "[": "]"}


@dataclass(frozen=True)
class Citation:
    """A moment (`start_s == end_s`) or range of one modality, in seconds; `text` is how it was written."""

    modality: CitedModality
    start_s: float
    end_s: float
    text: str = field(default="", compare=False)

    def span(self, point_s: float = POINT_S) -> tuple[float, float]:
        """(start_s, end_s) as evidence: a range as it is, a point as the `point_s` seconds that begin there."""
        return self.start_s, self.end_s if self.end_s > self.start_s else self.start_s + point_s


@dataclass(frozen=True)
class Malformed:
    """Text that looks like a citation and cannot be read as one, and why."""

    text: str
    reason: str


@dataclass(frozen=True)
class Cited:
    """What a text cites.

    Attributes:
        items: citations and malformed ones, in the order of the text.
        spans: per entry of `items`, where its `text` stands: [start, end) in characters.
        removed: the merged spans that `text` lacks, brackets included.
        text: without its citations, well-formed or not; whitespace and punctuation closed up around the gaps.
    """

    items: tuple[Citation | Malformed, ...]
    spans: tuple[tuple[int, int], ...]
    removed: tuple[tuple[int, int], ...]
    text: str

    @property
    def citations(self) -> tuple[Citation, ...]:
        return tuple(item for item in self.items if isinstance(item, Citation))

    @property
    def malformed(self) -> tuple[Malformed, ...]:
        return tuple(item for item in self.items if isinstance(item, Malformed))


_Located = tuple[Citation | Malformed, int]  # and where its text starts


def parse_citations(text: str) -> Cited:
    """Every citation of a running text, and the text without them. Never raises."""
    located: list[_Located] = []
    groups: list[tuple[int, int]] = []
    for start, end, inside in _candidates(text):
        if inside:
            if not any(_is_meant(part) for part, _ in _split(text[start + 1 : end - 1], start + 1, ";")):
                continue
            located.extend(_group(text, start, end))
        else:
            opened = text[start] in _CLOSER
            located.append(
                (Malformed(text[start:end], f"the bracket is not {'closed' if opened else 'opened'}"), start)
            )
        groups.append((start, end))
    removed = _merged(text, groups)
    items = tuple(item for item, _ in located)
    spans = tuple((at, at + len(item.text)) for item, at in located)
    return Cited(items, spans, tuple(removed), _without(text, removed))


def parse_citation_list(text: str) -> tuple[Citation | Malformed, ...]:
    """The citations of a string that holds nothing else, with brackets or without: "(visual, 0:15)", "audio, 0:03"."""
    cited = parse_citations(text)
    if cited.items and not cited.text.strip(" .,;"):
        return cited.items
    inner = text.strip()
    if any(bracket in inner for bracket in "()[]"):
        return (Malformed(inner, "this is not a citation alone"),)
    return tuple(item for item, _ in _segments(inner, 0)) or (Malformed(inner, "there is no citation"),)


def parse_citation(text: str) -> Citation | Malformed:
    """The single citation of a string, with brackets or without; several are `Malformed`."""
    items = parse_citation_list(text)
    return items[0] if len(items) == 1 else Malformed(text, f"one citation was expected, not {len(items)}")


def render_citations(citations: Iterable[Citation]) -> str:
    """`(visual, 0:15-0:18; audio, 1:02:03)`: read back, the same citations to the millisecond; "" for none."""
    parts = []
    for c in citations:
        times = _clock(c.start_s) if c.start_s == c.end_s else f"{_clock(c.start_s)}-{_clock(c.end_s)}"
        parts.append(f"{c.modality}, {times}")
    return f"({'; '.join(parts)})" if parts else ""


def _candidates(text: str) -> Iterator[tuple[int, int, bool]]:
    """(start, end, whether both brackets are there) of everything that may be a citation, in order."""
    position = 0
    for closed in _CLOSED.finditer(text):
        yield from ((s.start(), s.end(), False) for s in _STRAY.finditer(text, position, closed.start()))
        yield closed.start(), closed.end(), True
        position = closed.end()
    yield from ((s.start(), s.end(), False) for s in _STRAY.finditer(text, position))


def _group(text: str, start: int, end: int) -> Iterator[_Located]:
    """The citations of one bracketed group that is meant as one."""
    if _CLOSER[text[start]] != text[end - 1]:
        yield Malformed(text[start:end], "the brackets do not match"), start
    else:
        yield from _segments(text[start + 1 : end - 1], start + 1)


def _segments(inner: str, offset: int) -> Iterator[_Located]:
    for segment, at in _split(inner, offset, ";"):
        yield from _segment(segment, at)


def _segment(segment: str, offset: int) -> Iterator[_Located]:
    """One modality and its ranges, separated by commas; another modality's name among them takes over."""
    modality: CitedModality | None = None
    waiting: tuple[str, int] | None = None  # a modality that still lacks a time
    for part, at in _split(segment, offset, ","):
        if name := _LEADING_WORD.match(part):
            if waiting:
                yield Malformed(waiting[0], "a time is missing"), waiting[1]
            modality, waiting = WORDS[name[1].lower()], (part, at)
            if not (rest := part[name.end() :]):
                continue
        else:
            rest = part
        if modality is None:
            what = "the modality is missing" if _TIME_LIKE.match(segment) else "the modality is unknown"
            yield Malformed(segment, what), offset
            return
        if not any(char in "0123456789" for char in rest):  # a word: what follows is not this modality's
            start = waiting[1] if waiting else at
            reason = "a time is missing" if waiting else "the modality is unknown"
            yield Malformed(segment[start - offset :], reason), start
            return
        read = _span(rest)
        written, where = (segment[waiting[1] - offset : at - offset + len(part)], waiting[1]) if waiting else (part, at)
        yield (Malformed(written, read) if isinstance(read, str) else Citation(modality, *read, written)), where
        waiting = None
    if waiting:
        yield Malformed(waiting[0], "a time is missing"), waiting[1]


def _span(text: str) -> tuple[float, float] | str:
    """(start_s, end_s) of a time or range, or what is wrong with it."""
    sides = re.split(_DASH, text)
    if len(sides) > 2:
        return "a range has two times"
    times = [_seconds(side.strip()) for side in sides]
    for time in times:
        if isinstance(time, str):
            return time
    start_s, end_s = float(times[0]), float(times[-1])
    return (start_s, end_s) if start_s <= end_s else "the range is reversed"


def _seconds(text: str) -> float | str:
    parts = _PARTS.fullmatch(text)
    if parts is None:
        return "the time is missing" if not text else "the time is not M:SS or H:MM:SS"
    hours, minutes, seconds = parts.groups()
    if len(seconds.partition(".")[0]) != 2 or (hours and len(minutes) != 2):
        return "the time is not M:SS or H:MM:SS"
    if float(seconds) >= 60:
        return "seconds are 60 or more"
    if hours and int(minutes) >= 60:
        return "minutes are 60 or more"
    return round(int(hours or 0) * 3600 + int(minutes) * 60 + float(seconds), 9)


def _is_meant(segment: str) -> bool:
    """Whether a part of a bracket means to be a citation: it opens with a modality, or is times after few words."""
    if _LEADING_WORD.match(segment):
        return True
    words = segment[:400].replace(",", " ").split()
    first = next((n for n, word in enumerate(words[:4]) if _TIME_LIKE.match(word)), None)
    return first is not None and all(_is_time_word(word) for word in words[first:])


def _is_time_word(word: str) -> bool:
    return word.lower() in ("to", "and") or re.fullmatch(rf"(?:[0-9:.]|{_DASH})+", word) is not None


def _split(text: str, offset: int, separator: str) -> Iterator[tuple[str, int]]:
    """The non-empty parts of a text, stripped, and where each starts."""
    for part in text.split(separator):
        if stripped := part.strip():
            yield stripped, offset + len(part) - len(part.lstrip())
        offset += len(part) + 1


def _merged(text: str, groups: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Groups as spans: neighbours joined, and brackets around that would be left empty taken along."""
    merged: list[tuple[int, int]] = []
    for start, end in groups:
        if merged and text[merged[-1][1] : start].strip().lower() in _JOINS:
            start = merged.pop()[0]
        while start > 0 and _CLOSER.get(text[start - 1]) == text[end : end + 1]:
            start, end = start - 1, end + 1
        merged.append((start, end))
    return merged


def _without(text: str, removed: list[tuple[int, int]]) -> str:
    pieces: list[str] = []
    position = 0
    for start, end in [*removed, (len(text), len(text))]:
        piece = text[position:start]
        if position:
            _close_gap(pieces, piece)
        else:
            pieces.append(piece)
        position = end
    return "".join(pieces).strip()


def _close_gap(pieces: list[str], right: str) -> None:
    """Append what follows a removed citation, without a doubled space or stop where it was."""
    left, kept = pieces[-1].rstrip(), right.lstrip()
    between = pieces[-1][len(left) :] + right[: len(right) - len(kept)]
    if left[-1:] in (",", ";", ":") and (not kept or kept[0] in ".!?;,"):
        left = left[:-1].rstrip()
    elif left[-1:] in (".", "!", "?") and kept[:1] == ".":
        kept = kept[1:]
        between = between + kept[: len(kept) - len(kept.lstrip())]
        kept = kept.lstrip()
    if not left:
        kept = kept.lstrip(",;: ")
    gap = "\n" if "\n" in between else " "
    glued = not left or left[-1] in "([" or not kept or kept[0] in ".,;:!?)]"
    pieces[-1] = left
    pieces.append(kept if glued else gap + kept)


def _clock(time_s: float) -> str:
    milliseconds = round(time_s * 1000)
    seconds, fraction = divmod(milliseconds, 1000)
    minutes, seconds = divmod(seconds, 60)
    clock = f"{minutes}:{seconds:02d}" if minutes < 60 else f"{minutes // 60}:{minutes % 60:02d}:{seconds:02d}"
    return clock + (f".{fraction:03d}".rstrip("0") if fraction else "")


_STOP = re.compile(r"(?<![.!?])[.!?]+[\"'”’)\]]*(?=\s+[^\sa-z]|\s*$)|\n+")
_ABBREVIATION = re.compile(
    r"(?i:\b(?:mr|mrs|ms|dr|prof|st|vs|cf|ca|approx|fig|vol|e\.g|i\.e|a\.m|p\.m|u\.s))\.$"
    r"|(?:^|\n)[ \t]*[0-9]{1,2}\.$"
)
_LETTER = re.compile(r"(?:^|[\s(\"'“‘.])[^\W\d_]\.$")
_LABEL = "(?:options?|answers?|choices?|statements?|figure|point|step|plan)"
_LABELLED = re.compile(rf"(?i:\b{_LABEL}(?: (?:is|are))? )\S\.$")
_NEXT_WORD = re.compile(r"[ \t]+([^\W\d_](?:\.|[^\W\d_]*))")
_OPENER = re.compile(
    "(?i:an?|after|again|all|also|although|another|as|at|because|before|both|but|by|each|finally|first|for|from|hence"
    "|her|here|his|how|however|he|if|in|instead|its|it|i|later|meanwhile|my|neither|next|not|now|no|on|one|only|or|our"
    "|second|she|since|some|so|that|their|then|there|therefore|these|they|the|this|those|thus|we|what|when|where|which"
    "|while|who|why|with|you|your|option|answer|choice)"
)


def _is_initial(text: str, stop: re.Match[str]) -> bool:
    before = text[max(0, stop.start() - 24) : stop.start() + 1]
    following = _NEXT_WORD.match(text, stop.end(), stop.end() + 40)
    return (
        stop.group() == "."
        and _LETTER.search(before) is not None
        and before[-2].isupper()
        and following is not None
        and following[1][0].isupper()
        and _OPENER.fullmatch(following[1]) is None
        and not _LABELLED.search(before)
    )


def cited_sentences(text: str) -> list[str]:
    """The sentences of a text, each with its citations, also those written after its full stop.

    A sentence ends at . ! or ? before whitespace and no small letter, or at a line break; not after an abbreviation,
    an initial or the number of a list item, and not inside a citation. A single capital letter is an initial before a
    capitalised word ("A. Smith", "J. R. Smith"), but not before a word that opens sentences ("Therefore A. Then") nor
    as a label ("Option A. Smith", "The answer is A. Smith"). "Vitamin C. Smith" is thus taken for a name.
    """
    ends: list[int] = []
    removed = parse_citations(text).removed
    position, number = 0, 0
    for stop in _STOP.finditer(text):
        while number < len(removed) and removed[number][1] <= stop.start():
            number += 1
        if stop.end() <= position or (number < len(removed) and removed[number][0] <= stop.start()):
            continue
        if "\n" not in stop.group() and (
            _ABBREVIATION.search(text, max(0, stop.start() - 24), stop.start() + 1) or _is_initial(text, stop)
        ):
            continue
        position = stop.end()
        if number < len(removed) and not text[position : removed[number][0]].strip():
            position = removed[number][1]
            while text[position : position + 1] in (".", "!", "?"):
                position += 1
        ends.append(position)
    starts = [0, *ends]
    sentences = (text[a:b].strip() for a, b in zip(starts, [*ends, len(text)], strict=True))
    return [sentence for sentence in sentences if sentence]
