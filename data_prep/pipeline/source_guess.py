"""A look at annotations nobody has described: their format, and of tables what each column is. For `proofreel init`.

A format is recognised by reading: every importer tries the first records, and the one that makes the most of them wins.
Of a table that no importer knows, columns are guessed by their names and by what their values look like.
"""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from ...core import Pair, ProofreelError, RowError, problems_of
from ..importers import IMPORTERS, SUFFIXES, Rejected, Row, cell, tables

LOOK = 500  # items by which importers are compared, and rows by which columns are guessed
MOST = 100_000  # rows by which groups and labels are counted
ENOUGH = 0.5  # share of readable items below which a format is not the one
VIDEOS = (".mp4", ".mkv", ".webm", ".avi", ".mov", ".m4v")
IMAGES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif")
NAMES: dict[str, tuple[str, ...]] = {
    "claim": ("claim", "statement", "hypothesis", "assertion", "fact", "sentence", "caption"),
    "label": (
        "label",
        "gold",
        "gold_label",
        "verdict",
        "supported",
        "is_supported",
        "entailment",
        "judgment",
        "answer",
    ),
    "video": ("video", "video_path", "video_file", "clip", "video_id"),
    "image": ("image", "image_path", "image_file", "image_link", "img"),
    "passage": ("text", "passage", "premise", "document", "doc", "evidence", "reference", "article"),
    "transcript": ("transcript", "subtitles", "asr", "speech"),
    "start": ("start_s", "start", "start_time", "begin", "onset"),
    "end": ("end_s", "end", "end_time", "stop", "offset"),
    "group": ("group", "topic", "source_id", "document_id", "doc_id", "video_group"),
    "context": ("context",),
    "role": ("role",),
    "id": ("id", "claim_id", "uid", "pair_id"),
}
"""Names by which a column is known for a field, the likeliest first; case does not count."""
MEANINGS = {
    "supported": ("supported", "supports", "support", "true", "1", "yes", "entailment", "entailed", "correct"),
    "refuted": (
        "refuted",
        "refutes",
        "false",
        "0",
        "no",
        "contradiction",
        "contradicted",
        "not_supported",
        "incorrect",
    ),
    "not_enough": ("not_enough", "neutral", "nei", "not enough info", "unverifiable", "unknown", "unsupported"),
}
"""What values of a label column mean; case does not count."""


@dataclass(frozen=True)
class SourceGuess:
    """What annotations are, and why that is thought.

    Attributes:
        format, options: of the build's source.
        reasons: by what they are about: `format`, or the name of an option.
        pairs: those that were read.
        rejected: items that make no pair, as far as was looked.
    """

    format: str
    options: dict[str, Any]
    reasons: dict[str, str]
    pairs: tuple[Pair, ...]
    rejected: tuple[Rejected, ...]


def guess_source(path: Path) -> SourceGuess:
    """The format of annotations, and their rows by it.

    Raises:
        RowError: no such file, or nothing that any importer or a table's columns explain.
    """
    if not path.exists():
        raise RowError(f"{path}: no such file, got nothing to look at; check the path")
    tried = {name: _tried(name, path) for name in IMPORTERS if name != "table"}
    shares = {name: _share(*found) for name, found in tried.items() if found[0]}
    best = max(shares, key=lambda name: (shares[name], tried[name][0]), default="")
    if best and shares[best] >= ENOUGH:
        n_read, n_rejected = tried[best]
        reason = f"{n_read} of the first {n_read + n_rejected} items are read by it; " + _others(shares, best)
        return _read(path, best, _own_options(best), {"format": reason})
    options, reasons = _table_options(path)
    return _read(path, "table", options, {"format": "no other format reads the file"} | reasons)


def with_extension(guess: SourceGuess, path: Path, extension: str) -> SourceGuess:
    """The same annotations with another ending of media files."""
    return _read(path, guess.format, guess.options | {"extension": extension}, guess.reasons)


def has_extension(guess: SourceGuess) -> bool:
    """Whether media files are named by ids, and their ending is an option."""
    options = IMPORTERS[guess.format].options
    return options is not None and "extension" in {f.name for f in dataclasses.fields(options)}


def _tried(name: str, path: Path) -> tuple[int, int]:
    """How many of the first items an importer reads, and rejects."""
    importer = IMPORTERS[name]
    if path.is_dir() and not importer.reads_folders:
        return 0, 0
    try:
        items = list(islice(importer.read(path, importer.parse_options(_own_options(name), name)), LOOK))
    except (ProofreelError, OSError, UnicodeDecodeError):
        return 0, 0
    n_read = sum(isinstance(item, Row) for item in items)
    return n_read, sum(item.blocking for item in items if isinstance(item, Rejected))


def _share(n_read: int, n_rejected: int) -> float:
    return n_read / max(n_read + n_rejected, 1)


def _others(shares: dict[str, float], best: str) -> str:
    others = [f"{name} ({share:.0%})" for name, share in sorted(shares.items()) if name != best]
    return "no other format reads any" if not others else f"less by {', '.join(others)}"


def _own_options(name: str) -> dict[str, Any]:
    return {"omdbench": {"split": ""}, "mirage_judgments": {"annotators": "majority"}}.get(name, {})


def _read(path: Path, format: str, options: dict[str, Any], reasons: dict[str, str]) -> SourceGuess:
    importer = IMPORTERS[format]
    items = list(islice(importer.read(path, importer.parse_options(options, "init")), MOST))
    rows = [item for item in items if isinstance(item, Row)]
    rejected = [item for item in items if isinstance(item, Rejected) and item.blocking]
    bad = [row for row in rows if problems_of(row.pair)]
    rejected += [Rejected(r.file, r.line, r.pair.id, "", "; ".join(problems_of(r.pair))) for r in bad]
    pairs = tuple(row.pair for row in rows if not problems_of(row.pair))
    if not pairs:
        first = f", the first: {rejected[0]}" if rejected else ""
        raise RowError(f"{path}: no row is a claim about evidence, got {len(rejected)} that are not{first}")
    return SourceGuess(format, options, reasons, pairs, tuple(rejected))


# ---- tables


def _table_options(path: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """Which column is what, and why; `RowError` where no claim or no evidence is among them."""
    if not path.is_dir() and path.suffix not in SUFFIXES:
        raise RowError(f"{path}: not a known kind of table, got {path.suffix!r}; use one of {list(SUFFIXES)}")
    columns = _columns(path)
    if not columns:
        raise RowError(f"{path}: no format reads it, got {_why_empty(path)}; see docs/formats.md")
    options: dict[str, Any] = {}
    reasons: dict[str, str] = {}
    for name in NAMES:
        if found := _column_of(name, columns, options.values()):
            options[name], reasons[name] = found
    for kind, endings in (("video", VIDEOS), ("image", IMAGES)):
        if kind in options and not _ends_with(columns[options[kind]], endings) and _is_prose(columns[options[kind]]):
            del options[kind], reasons[kind]
    if "claim" not in options:
        raise RowError(f"{path}: no column looks like claims, got {sorted(columns)}; name it {NAMES['claim'][0]}")
    if not {"video", "image", "passage", "transcript"} & set(options):
        raise RowError(
            f"{path}: no column looks like evidence, got {sorted(columns)}; name one video, image, transcript or text"
        )
    if not {"video", "transcript"} & set(options):
        for name in ("start", "end"):
            options.pop(name, None)
    if "id" in options and len(set(map(str, columns[options["id"]]))) < len(columns[options["id"]]):
        del options["id"]
    options |= _labels(options, columns, reasons)
    return options, reasons


def _columns(path: Path) -> dict[str, list[Any]]:
    """The first values of every column with one, by dotted name."""
    values: dict[str, list[Any]] = {}
    for table in tables(path):
        if isinstance(table, Rejected):
            continue
        names = frozenset().union(*islice(table.names(), LOOK))
        for record in islice(table.records(names), LOOK):
            if not isinstance(record, Rejected) and isinstance(record.value, dict):
                for name in sorted(names):
                    if (value := cell(record.value, name)) is not None and not isinstance(value, dict):
                        values.setdefault(name, []).append(value)
    return values


def _why_empty(path: Path) -> str:
    """The first thing that is wrong with what should be a table."""
    for table in tables(path):
        if isinstance(table, Rejected):
            return table.reason
        for record in table.records(frozenset()):
            return record.reason if isinstance(record, Rejected) else "rows without a column"
    return "no row"


def _column_of(name: str, columns: dict[str, list[Any]], taken: Any) -> tuple[str, str] | None:
    """The column of a field, and why."""
    free = [column for column in columns if column not in taken]
    by_name = {column.rpartition(".")[2].lower(): column for column in reversed(free)}
    for known in NAMES[name]:
        if known in by_name and _fits(name, columns[by_name[known]]):
            return by_name[known], f"by its name, e.g. {_shown(columns[by_name[known]])}"
    endings = {"video": VIDEOS, "image": IMAGES}.get(name)
    for column in free if endings else ():
        if _ends_with(columns[column], endings or ()):
            return column, f"its values are names of {name} files, e.g. {_shown(columns[column])}"
    return None


def _fits(name: str, values: Sequence[Any]) -> bool:
    """Whether values can be those of a field at all."""
    if name == "label":
        return all(isinstance(value, (str, bool, int, float)) for value in values) and len(set(values)) <= 10
    if name in ("start", "end"):
        return all(isinstance(value, (str, int, float)) and not isinstance(value, bool) for value in values)
    if name in ("id", "group"):
        return all(isinstance(value, (str, int)) for value in values)
    return all(isinstance(value, str) for value in values)


def _ends_with(values: Sequence[Any], endings: tuple[str, ...]) -> bool:
    return bool(values) and all(isinstance(v, str) and v.lower().endswith(endings) for v in values)


def _is_prose(values: Sequence[Any]) -> bool:
    return any(isinstance(value, str) and value.count(" ") > 3 for value in values)


def _labels(options: dict[str, Any], columns: dict[str, list[Any]], reasons: dict[str, str]) -> dict[str, Any]:
    """What label values mean, as options of the table; without a column every claim is taken for true."""
    if "label" not in options:
        reasons["constants"] = "no column of labels: every claim is taken for true, and negatives are drawn"
        return {"label": "", "constants": ["label=supported"]}
    known = {word: label for label, words in MEANINGS.items() for word in words}
    values = Counter(
        value if isinstance(value, str) else json.dumps(_plain(value)) for value in columns[options["label"]]
    )
    meanings = {value: known.get(value.strip().lower().replace("-", "_"), "none") for value in values}
    if unknown := sorted(value for value, meaning in meanings.items() if meaning == "none" and value):
        reasons["labels"] = f"{unknown} are no known labels, and count as no judgment: correct them"
    else:
        reasons["labels"] = "by what values of that name usually mean: " + ", ".join(
            f"{v!r} {n}x" for v, n in values.items()
        )
    return {"labels": [f"{value}={meaning}" for value, meaning in meanings.items()] + ["null=none"]}


def _plain(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _shown(values: Sequence[Any]) -> str:
    text = " ".join(str(values[0]).split())
    return repr(text if len(text) <= 40 else f"{text[:40]}...")
