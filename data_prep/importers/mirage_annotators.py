"""Make rows of several annotators' judgments (mirage_judgments.py) of the same claims: all, majority or share."""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Literal, get_args

from ...core.errors import ConfigError
from ...core.pairs import Label
from ..records import Rejected, Row, kind_of

Mode = Literal["all", "majority", "soft"]
MODES: tuple[Mode, ...] = get_args(Mode)
COPY_MIN_CLAIMS = 100


def merge_annotators(rows: Iterable[Row], mode: Mode = "soft") -> tuple[list[Row], list[Rejected]]:
    """One row per claim, or per claim and annotator, out of single judgments.

    Args:
        rows: of `mirage_judgments.read`, over all files.
        mode: `all` keeps every annotator's row. `majority` gives one row per claim with the label most annotators
            gave; an even split is kept out. `soft` does the same and sets `soft_label` to the share of annotators who
            found support; an even split has no label there, only its `soft_label`. What nobody judged is kept out.

    Returns:
        The rows in order of first appearance, and what was kept out, none of it blocking. `meta["votes"]` counts. A
        file that repeats another annotator's judgments of at least `COPY_MIN_CLAIMS` claims one by one is no second
        opinion: it is listed, and has no vote. In `all` its rows stay, marked by `meta["copy_of"]`.

    Raises:
        ConfigError: an unknown mode.
    """
    if mode not in MODES:
        raise ConfigError(f"mode: is unknown, got {mode!r}; use one of {list(MODES)}")
    files: dict[str, list[Row]] = defaultdict(list)
    items: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        files[row.file].append(row)
        items[_item_of(row)].append(row)
    copies = _copies(files)
    results = [_copy_listed(files, file, original) for file, original in copies.items()]
    for name, same in items.items():
        if mode == "all":
            results += [_single(row, files, copies) for row in same]
        else:
            results.append(_vote(name, [row for row in same if row.file not in copies] or same, mode))
    return [r for r in results if isinstance(r, Row)], [r for r in results if isinstance(r, Rejected)]


def _item_of(row: Row) -> str:
    """What was judged, without who judged it."""
    return row.pair.id.rpartition("/annotator_")[0]


def _copies(files: dict[str, list[Row]]) -> dict[str, str]:
    """Files that hold the same judgments as another one, claim by claim, and that other one.

    Annotators of the released files disagree on 4 to 36 % of claims: equal judgments of a hundred are no chance.
    """
    found: dict[str, str] = {}
    originals: dict[frozenset[tuple[str, str | None]], str] = {}
    for file, rows in files.items():
        judgments = frozenset((_item_of(row), row.pair.label) for row in rows)
        original = originals.setdefault(judgments, file)
        if original != file and len(judgments) >= COPY_MIN_CLAIMS:
            found[file] = original
    return found


def _copy_listed(files: dict[str, list[Row]], file: str, original: str) -> Row | Rejected:
    row = files[file][0]
    message = f"judgments copy another annotator's, got all {len(files[file])} equal to {original}; they have no vote"
    return Rejected(row.file, None, None, kind_of(message), message, pairs=0, blocking=False)


def _single(row: Row, files: dict[str, list[Row]], copies: dict[str, str]) -> Row | Rejected:
    if row.pair.label is None:
        return _kept_out([row], f"claim was left unjudged, got null for {row.pair.claim!r}; judge it")
    if row.file not in copies:
        return row
    original = files[copies[row.file]][0].pair.meta["annotator"]
    return dataclasses.replace(row, pair=dataclasses.replace(row.pair, meta={**row.pair.meta, "copy_of": original}))


def _vote(name: str, same: Sequence[Row], mode: Mode) -> Row | Rejected:
    votes = Counter(row.pair.label for row in same)
    supported, against = votes["supported"], votes["not_enough"]
    if supported + against == 0:
        return _kept_out(same, f"claim was left unjudged, got null for {same[0].pair.claim!r}; judge it")
    if supported == against and mode == "majority":
        labels = ", ".join(f"{row.pair.label} at {row.file}:{row.line}" for row in same)
        return _kept_out(same, f"annotators are evenly split, got {labels}; adjudicate it: this pair is kept out")
    label: Label | None = None if supported == against else "supported" if supported > against else "not_enough"
    meta = {key: value for key, value in same[0].pair.meta.items() if key != "annotator"}
    pair = dataclasses.replace(
        same[0].pair,
        id=name,
        label=label,
        soft_label=supported / (supported + against) if mode == "soft" else None,
        meta={**meta, "votes": {"supported": supported, "not_enough": against, "unjudged": votes[None]}},
    )
    return dataclasses.replace(same[0], pair=pair)


def _kept_out(same: Sequence[Row], message: str) -> Rejected:
    first = same[0]
    return Rejected(first.file, first.line, first.pair.id, kind_of(message), message, pairs=1, blocking=False)
