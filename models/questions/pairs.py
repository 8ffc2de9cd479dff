"""Pairs as a caller holds them: tuples, rows, tables, files of claims, records of our importers.

A row's columns mean what they mean to `proofreel score` (`data_prep/exports/claim_files.py`). Where none is given, an
id is the row's place, and a modality that of its evidence.
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import functools
import json
import re
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from ...core import LABELS, MODALITIES, SPLITS, Evidence, ModelInputError, Pair, Prompt, ProofreelError, RowError
from ...data_prep.exports import COLUMNS, is_chat_row, pair_of_chat, read_claims
from ...data_prep.importers import IMPORTERS, SUFFIXES, Rejected, Row, modality_of
from .claims import one_claim
from .evidence import Root, as_evidence, evidence_of_row, is_span
from .memory import is_picture
from .values import column_of, is_column, plain, row_of, rows_of, shown, splits_of

_EXAMPLE = "e.g. [('The pan is on the stove.', 'clip.mp4')] or [{'claim': '...', 'video': 'clip.mp4', 'start_s': 2.8}]"
_PAIR_FIELDS = tuple(field.name for field in dataclasses.fields(Pair))
_COLUMNS = {name for names in COLUMNS.values() for name in names}
_EVIDENCE = {
    name for field in ("video", "frames", "times", "image", "transcript", "passage") for name in COLUMNS[field]
}
_TIMES = {name for field in ("start", "end") for name in COLUMNS[field]}
_LIKE_A_TIME = re.compile(r"(?:.*[_ ])?(?:start|begin|from|onset|end|stop|until|offset)(?:s|ing)?(?:[_ ].*)?", re.I)
_LABEL_OF = {"1": "supported", "true": "supported", "0": "refuted", "false": "refuted"} | {x: x for x in LABELS}
_FACTS = {"conceptual", "contextual", "negative_conceptual", "negative_contextual"}
_MURGAT = {"facts", "evaluations", "model_generation"}


def as_pairs(held: Any, media_root: Root = None, *, one_each: bool = False) -> list[Pair]:
    """What a caller holds as pairs, in order.

    Args:
        held: see docs/asking.md.
        media_root: as for `as_evidence`.
        one_each: refuse records that hold several claims, so that there is one pair for every row.

    Raises:
        ModelInputError: what is no pair. RowError: a file of claims that cannot be read, or has bad rows.
        MediaError: a transcript that cannot be read.
    """
    if isinstance(held, (str, Path)):
        return _of_file(held)
    if splits := splits_of(held):
        raise ModelInputError(
            f"pairs: a data set of several splits, got {splits}; choose one, e.g. data[{splits[0]!r}]"
        )
    rows = rows_of(held)
    if rows is None:
        if not is_one_pair(held) and (isinstance(held, (bytes, Mapping)) or not isinstance(held, Iterable)):
            raise ModelInputError(f"pairs: must be a list of pairs, rows or a table, got {shown(held)}; {_EXAMPLE}")
        rows = [held] if is_one_pair(held) else list(held)
    pairs: list[Pair] = []
    for number, row in enumerate(rows):
        found = _pairs_of(row, number, media_root)
        if one_each and len(found) != 1:
            raise ModelInputError(
                f"pair {number}: holds {len(found)} claims, got {shown(row)}; for a verdict on each, "
                "verifier.score_pairs(as_pairs(rows))"
            )
        pairs += found
    return pairs


def is_one_pair(held: Any) -> bool:
    """Whether this is one pair and not a list of them: a `Pair`, an importer's row, (claim, evidence), or a row."""
    if isinstance(held, (Pair, Row)):
        return True
    if isinstance(held, (tuple, list)) and row_of(held) is None:
        return len(held) >= 2 and isinstance(held[0], str) and not _are_sentences_alone(held)
    row = row_of(held)
    return row is not None and rows_of(held) is None and splits_of(held) is None


def as_evidences(held: Any, media_root: Root = None) -> list[tuple[Evidence, ...]]:
    """Several evidences, each judged by itself: a list, or a table with a row for each."""
    rows: Any = column_of(held) if is_column(held) else rows_of(held)
    if rows is None:
        one = isinstance(held, (str, bytes, bytearray)) or is_picture(held) or row_of(held) is not None or is_span(held)
        rows = [held] if one or not hasattr(held, "__iter__") else held
    return [_evidence_of(row, media_root, f"evidence {i}") for i, row in enumerate(rows)]


def _evidence_of(held: Any, media_root: Root, where: str) -> tuple[Evidence, ...]:
    row = row_of(held)
    if row is None or "kind" in row or "path" in row:
        return as_evidence(held, media_root, where)
    return _columns_evidence(row, media_root, where)


def _are_sentences_alone(held: tuple[Any, ...] | list[Any]) -> bool:
    return len(held) > 2 and not is_span(held[1:])


def _pairs_of(held: Any, number: int, media_root: Root) -> list[Pair]:
    where = f"pair {number}"
    if isinstance(held, Row):
        held = held.pair
    if isinstance(held, Pair):
        return [_completed(held, number, media_root, where)]
    if isinstance(held, (tuple, list)) and len(held) >= 2 and isinstance(held[0], str) and row_of(held) is None:
        claim, *given = held
        if len(given) > 1 and not is_span(given):
            raise ModelInputError(
                f"{where}: must be (claim, evidence), got {shown(held)}; put several pieces in a list, e.g. "
                "('She names the dish.', ['clip.mp4', 'clip.srt'])"
            )
        evidence = as_evidence(tuple(given) if len(given) > 1 else given[0], media_root, where)
        return [Pair(str(number), one_claim(claim, where), evidence, modality=modality_of(evidence))]
    row = row_of(held)
    if row is None:
        raise ModelInputError(f"{where}: must be a claim with its evidence, got {shown(held)}; {_EXAMPLE}")
    return _of_row(row, number, media_root, where)


def _completed(pair: Pair, number: int, media_root: Root, where: str) -> Pair:
    """The pair with an id and a tuple of evidence; as it is where it has both."""
    pieces = pair.evidence if isinstance(pair.evidence, tuple) else (None,)
    if pair.id and all(isinstance(p, Evidence) and isinstance(getattr(p, "path", ""), str) for p in pieces):
        return pair
    evidence = as_evidence(pair.evidence, media_root, where) if pair.evidence != () else ()
    return dataclasses.replace(pair, id=pair.id or str(number), evidence=evidence)


def _of_row(row: Mapping[str, Any], number: int, media_root: Root, where: str) -> list[Pair]:
    if is_chat_row(row):
        return [_named(where, lambda: pair_of_chat(row, str(number), (Prompt(),)))]
    if "claim" not in row:
        return _of_record(row, where)
    cells = {name: plain(value) for name, value in row.items()}
    evidence = _columns_evidence(row, media_root, where)
    claim = cells["claim"]
    fields: dict[str, Any] = {
        name: cells[name]
        for name in _PAIR_FIELDS
        if name not in ("claim", "evidence", "label", "split", "modality", "meta") and cells.get(name) is not None
    }
    for name in ("id", "group", "role"):
        if isinstance(fields.get(name), int):
            fields[name] = str(fields[name])
    label = cells.get("label")
    key = label if isinstance(label, str) else json.dumps(label, default=repr).removesuffix(".0")
    split, modality = cells.get("split"), cells.get("modality")
    values = {"id": str(number), "meta": _meta(cells.get("meta"))} | fields
    return [
        Pair(
            claim="" if claim is None else one_claim(claim, where),
            evidence=evidence,
            label=_LABEL_OF.get(key),  # type: ignore[arg-type]
            split=split if split in SPLITS else None,
            modality=modality if modality in MODALITIES else modality_of(evidence),
            **values,
        )
    ]


def _meta(value: Any) -> dict[str, Any]:
    """What a row keeps besides: an object, or the JSON text of one, as data sets have it in Parquet."""
    if isinstance(value, str) and value.startswith("{"):
        with contextlib.suppress(ValueError):
            return json.loads(value)
    return dict(value) if isinstance(value, Mapping) else {}


def _columns_evidence(row: Mapping[str, Any], media_root: Root, where: str) -> tuple[Evidence, ...]:
    """The evidence of a row: of its `evidence` column, or of the plain columns; () where all are empty."""
    if "evidence" not in row:
        if problem := _column_problem(tuple(map(str, row))):
            raise ModelInputError(f"{where}: {problem}")
        return _named(where, lambda: evidence_of_row(row, media_root, where))
    held = plain(row["evidence"])
    times = [plain(row.get(name)) for name in ("start_s", "end_s")] if "start_s" in row else []
    times = times or [plain(row.get(name)) for name in ("start", "end")]
    if any(time is not None for time in times):
        held = (held, times[0] or 0.0, times[1])
        if not is_span(held):
            raise ModelInputError(f"{where}: times belong to a file, got {shown(held)}; e.g. 'evidence': 'clip.mp4'")
    return () if held is None or held == [] else as_evidence(held, media_root, where)


@functools.lru_cache(maxsize=64)
def _column_problem(names: tuple[str, ...]) -> str | None:
    """Why rows of these columns cannot be used: some that may be meant would be ignored, and evidence be misread."""
    if not _EVIDENCE & set(names):
        return f"no column names evidence, got {list(names)}; {_EXAMPLE}"
    for name in sorted(set(names) - _COLUMNS - set(_PAIR_FIELDS)):
        near = difflib.get_close_matches(name.lower(), sorted(_EVIDENCE | _TIMES), n=1, cutoff=0.8)
        if near and near[0] not in names:
            return f"unknown column, got {name!r}; did you mean {near[0]!r}? Rename or drop it"
        if {"video", "transcript"} & set(names) and not _TIMES & set(names) and _LIKE_A_TIME.fullmatch(name):
            return f"a column may be a time, got {name!r}; rename it to start_s or end_s, or drop it"
    return None


def _of_record(row: Mapping[str, Any], where: str) -> list[Pair]:
    """The pairs of a record without a claim of its own, by the importer whose format it has."""
    if _FACTS & set(row):
        return _imported("facts", [dict(row)], where)
    if _MURGAT & set(row):
        return _imported("murgat", [dict(row)], where)
    mirage = IMPORTERS["mirage_predictions"].claims
    if mirage and row and all(isinstance(v, Mapping) and mirage.recognises(dict(v), True) for v in row.values()):
        return _imported("mirage_predictions", dict(row), where)
    near = next((name for name in map(str, row) if difflib.get_close_matches(name.lower(), ["claim"], cutoff=0.7)), "")
    if not near and (pairs := _of_alone(row, where)):
        return pairs
    hint = f"rename {near!r} to 'claim', " if near else ""
    raise ModelInputError(f"{where}: no claim, got the columns {sorted(map(str, row))}; {hint}{_EXAMPLE}")


def _of_alone(row: Mapping[str, Any], where: str) -> list[Pair]:
    """The pairs of a record of a format whose records stand alone; none where it is none of theirs.

    Others need more than a record: Video-MMMU's track is the name of its file, OMD-Bench's decoys are other records.
    """
    for name, records in (("cgbench", [dict(row)]), ("youcook2", dict(row)), ("mirage", dict(row))):
        with contextlib.suppress(ProofreelError):
            if pairs := _imported(name, records, where):
                return pairs
    return []


def _imported(name: str, records: Any, where: str) -> list[Pair]:
    """The pairs that an importer makes of records, which it reads from a file."""
    importer = IMPORTERS[name]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "records.json"
        file.write_text(json.dumps(records, default=plain), encoding="utf-8")
        items = list(importer.read(file, importer.options() if importer.options else None))
    for item in items:
        if isinstance(item, Rejected):
            raise ModelInputError(f"{where}: {item.reason} (read as a record of the format {name!r})")
    return [item.pair for item in items if isinstance(item, Row)]


def _of_file(path: str | Path) -> list[Pair]:
    if Path(path).suffix.lower() not in SUFFIXES:
        raise ModelInputError(f"pairs: must be a list of pairs, rows or a table, got {shown(str(path))}; {_EXAMPLE}")
    claims = read_claims(path)
    if claims.rejected:
        raise RowError(
            f"{claims.rejected[0]}; {len(claims.rejected)} bad rows in all. `proofreel score` gives a row for each"
        )
    return list(claims.pairs)


def _named(where: str, read: Callable[[], Any]) -> Any:
    """What `read` gives; its `RowError` as the one of this place."""
    try:
        return read()
    except RowError as error:
        raise ModelInputError(f"{where}: {error}") from error
