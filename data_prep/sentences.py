"""Cut a generated text into sentences, each with the citations that belong to it."""

from __future__ import annotations

import re

from .citations import parse_citations

_STOP = re.compile(r"(?<![.!?])[.!?]+[\"'”’)\]]*(?=\s+[^\sa-z]|\s*$)|\n+")
_ABBREVIATION = re.compile(
    r"(?i:\b(?:mr|mrs|ms|dr|prof|st|vs|cf|ca|approx|fig|vol|e\.g|i\.e|a\.m|p\.m|u\.s))\.$"
    r"|(?:^|\n)[ \t]*[0-9]{1,2}\.$"
    r"|\b(?!Option|Answer|Choice|Statement|Figure|Point|Step|Plan)[A-Z][a-z]+ [A-Z]\.$"
)


def cited_sentences(text: str) -> list[str]:
    """The sentences of a text, each with its citations, also those written after its full stop.

    A sentence ends at . ! or ? before whitespace and no small letter, or at a line break; not after an abbreviation,
    an initial or the number of a list item, and not inside a citation.
    """
    ends: list[int] = []
    removed = parse_citations(text).removed
    position, number = 0, 0
    for stop in _STOP.finditer(text):
        while number < len(removed) and removed[number][1] <= stop.start():
            number += 1
        if stop.end() <= position or (number < len(removed) and removed[number][0] <= stop.start()):
            continue
        if "\n" not in stop.group() and _ABBREVIATION.search(text, max(0, stop.start() - 24), stop.start() + 1):
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
