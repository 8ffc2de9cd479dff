"""A benchmark's statements before anybody is asked: counts, missing media, and what the text alone gives away."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...core import Audio, Image, Label, Pair, RowError, VideoSegment
from ...data_prep.benchmarks import Benchmark, benchmark_rows
from ...data_prep.dataset import claim_only_scores
from ...data_prep.importers import Rejected
from ..uncertainty import delong


@dataclass(frozen=True)
class ClaimOnly:
    """How well a text probe separates true statements from false ones without any evidence.

    Attributes:
        part: `all`, or a part of the benchmark, probed by itself.
        auc: of scores from folds without the row's group; NaN where there is none.
        low, high: 95 %, by group (DeLong, clustered).
        n, n_supported, n_groups: statements, true ones, and what folds and interval keep whole.
        reason: why there is no AUC.
    """

    part: str
    auc: float
    low: float
    high: float
    n: int
    n_supported: int
    n_groups: int
    reason: str | None = None


def read_statements(
    benchmark: Benchmark, folder: Path, parts: Sequence[str] = (), skip_damaged: bool = False
) -> tuple[list[Pair], list[Rejected]]:
    """Statements in file order, and the records that are none.

    Raises:
        RowError: a damaged record, with its file and line, unless `skip_damaged`; no statement at all.
    """
    items = list(benchmark_rows(benchmark, folder, parts))
    damaged = [item for item in items if isinstance(item, Rejected)]
    if damaged and not skip_damaged:
        raise RowError(f"{damaged[0]} ({len(damaged)} in all; --skip-damaged goes on without them)")
    pairs = [item.pair for item in items if not isinstance(item, Rejected)]
    if not pairs:
        raise RowError(f"{folder}: nothing to ask, got no statement of {benchmark.name}; check the files")
    return pairs, damaged


def counts_of(pairs: Sequence[Pair]) -> dict[str, Any]:
    """Statements by part, label and the rule that made them; groups and files."""
    return {
        "statements": len(pairs),
        "supported": sum(pair.label == "supported" for pair in pairs),
        "groups": len({pair.group for pair in pairs}),
        "files": len({path for pair in pairs for path in _paths(pair)}),
        "parts": dict(Counter(str(pair.meta["part"]) for pair in pairs)),
        "rules": dict(Counter(str(pair.meta["rule"]) for pair in pairs)),
    }


def with_media(pairs: Sequence[Pair], media: Path) -> tuple[list[Pair], list[str]]:
    """Pairs whose files are named from `media` on, and the files that are not there."""
    files = sorted({path for pair in pairs for path in _paths(pair)})
    missing = [path for path in files if not (media / path).is_file()]
    placed = [
        dataclasses.replace(
            pair,
            evidence=tuple(
                dataclasses.replace(e, path=str(media / e.path)) if isinstance(e, VideoSegment | Image | Audio) else e
                for e in pair.evidence
            ),
        )
        for pair in pairs
    ]
    return placed, missing


def without_files(pairs: Sequence[Pair], missing: Sequence[str]) -> list[Pair]:
    """Pairs of whole items all of whose files are there: half of a pair of questions would be no pair."""
    gone = set(missing)
    broken = {str(pair.meta["item"]) for pair in pairs if gone & set(_paths(pair))}
    return [pair for pair in pairs if str(pair.meta["item"]) not in broken]


def claim_only(pairs: Sequence[Pair], seed: int = 0) -> list[ClaimOnly]:
    """The probe of all statements, and of each part where there are several."""
    parts: dict[str, list[Pair]] = {"all": list(pairs)}
    for pair in pairs:
        parts.setdefault(str(pair.meta["part"]), []).append(pair)
    if len(parts) == 2 or "all" in {str(pair.meta["part"]) for pair in pairs}:
        parts = {"all": list(pairs)}
    return [_probe(part, rows, seed) for part, rows in parts.items()]


def _probe(part: str, pairs: Sequence[Pair], seed: int) -> ClaimOnly:
    groups = [pair.group for pair in pairs]
    labels: list[Label] = [pair.label for pair in pairs if pair.label is not None]
    counts = (len(pairs), sum(label == "supported" for label in labels), len(set(groups)))
    scores, reason = claim_only_scores([pair.claim for pair in pairs], labels, groups, seed)
    if scores is None:
        return ClaimOnly(part, math.nan, math.nan, math.nan, *counts, reason)
    auc = delong(scores, np.array([label == "supported" for label in labels], dtype=float), np.array(groups))
    return ClaimOnly(part, auc.value, auc.low, auc.high, *counts)


def _paths(pair: Pair) -> list[str]:
    return [e.path for e in pair.evidence if isinstance(e, VideoSegment | Image | Audio)]
