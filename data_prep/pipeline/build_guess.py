"""A look at what annotations need of a build: where their media lie, and splits that work. For `proofreel init`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ...core import SPLITS, Pair, Split, media_paths
from ..dataset import assign_splits
from .source_guess import VIDEOS, SourceGuess, has_extension, with_extension
from .usable_splits import FEW_GROUPS, FEWEST_FOLDS, SHARES, USUAL_FOLDS

LOOK = 1_000  # media files that are looked for


@dataclass(frozen=True)
class MediaGuess:
    """Where media lie: the root, and how many of the named files are there; no root without media."""

    root: Path | None
    n_named: int
    n_found: int


@dataclass(frozen=True)
class SplitsGuess:
    """Shares of the splits, how many groups each gets, and what is to be said of them."""

    shares: dict[Split, float]
    groups: dict[Split, int]
    remark: str


def guess_media(guess: SourceGuess, annotations: Path, media: Path | None) -> tuple[SourceGuess, MediaGuess]:
    """The root under which most of the named files lie, and the annotations with the ending that the files have."""
    beside = annotations if annotations.is_dir() else annotations.parent
    roots = [root for root in (media, media and media.parent, beside) if root is not None]
    best = _best_root(guess.pairs, roots)
    if best.n_found or not best.n_named or not has_extension(guess):
        return guess, best
    for extension in VIDEOS:
        other = with_extension(guess, annotations, extension)
        if (found := _best_root(other.pairs, roots)).n_found:
            return other, found
    return guess, best


def _best_root(pairs: Sequence[Pair], roots: Sequence[Path]) -> MediaGuess:
    names = dict.fromkeys(path for p in pairs for e in p.evidence for path in media_paths(e))
    if not names:
        return MediaGuess(None, 0, 0)
    looked = list(names)[:LOOK]
    counts = [sum((root / name).is_file() for name in looked) for root in roots]
    place = max(range(len(roots)), key=lambda i: counts[i])
    return MediaGuess(roots[place], len(looked), counts[place])


def guess_splits(pairs: Sequence[Pair]) -> SplitsGuess:
    """The first shares by which every split has two groups at least; else those that leave the most even ones."""
    sizes = Counter(pair.group for pair in pairs)
    fixed: dict[str, Split] = {pair.group: pair.split for pair in pairs if pair.split is not None}
    ways = []
    for shares in SHARES:
        drawn = Counter(assign_splits(sizes, shares, fixed=fixed).values())
        ways.append(SplitsGuess(shares, {split: drawn[split] for split in SPLITS}, ""))
    way = next((way for way in ways if min(way.groups.values()) >= 2), ways[-1])
    n = len(sizes)
    if fixed:
        remark = f"the annotations fix the splits of {len(fixed)} of {n} groups"
    elif min(way.groups.values()) < 2:
        remark = f"{n} groups are too few for four splits: a calibration or a test on one group says nothing"
        if (n_folds := min(USUAL_FOLDS, n // 2)) >= FEWEST_FOLDS:
            remark += f"; with {{cross: {n_folds}}} every group trains and tests in turn (docs/cross-fitting.md)"
    elif min(way.groups[s] for s in ("calibration", "test")) < FEW_GROUPS:
        remark = f"{n} groups: intervals will be wide, since calibration and test hold few of them"
    else:
        remark = f"{n} groups are enough for the usual shares"
    return SplitsGuess(way.shares, way.groups, remark)


def guess_swapped(pairs: Sequence[Pair]) -> tuple[int, str]:
    """How many negatives by swapped evidence each true claim needs, and why."""
    labels = Counter(pair.label for pair in pairs)
    n_true, n_false = labels["supported"], labels["refuted"] + labels["not_enough"]
    counts = f"{n_true} true and {n_false} false claims, {labels[None]} without a label"
    if len({pair.group for pair in pairs}) < 2:
        return 0, f"{counts}; negatives cannot be drawn from one group"
    if n_false * 3 < n_true:
        return 1, f"{counts}: each true claim is also asked of another group's evidence, as a false one"
    return 0, f"{counts}: enough to learn from"
