"""Make the negatives a config asks for, split by split, reading the spool and appending to it.

Swapped evidence is made here, claim by claim (all rows of a claim at once), altered claims and evidence in `altering`;
each stretch of work is committed with the place it ends at. A balanced split is chosen as a whole in memory.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from tqdm import tqdm

from ..core.pairs import SPLITS, Pair, Split, evidence_key
from .altered.altered_evidence import ORIGINS
from .altering import alter_split, collect_vocabulary
from .build_config import BuildConfig
from .language.language_model import LanguageModel
from .negatives import Asked, Segments, balanced_pairs, segment_rank, swap_targets, swapped_suffix
from .records import Row
from .spool import INDEXES, LEFT_OUT, Spool, Stored, claim_key, evidence_of

_COMMIT_EVERY = 20_000
_IN_SPLIT = "g.split = ? AND r.out = 0 AND r.n <= ?"


def make_negatives(spool: Spool, config: BuildConfig, model: LanguageModel | None) -> Counter[str]:
    """Append the negatives of every split to the spool; how many rows were left out or could not be made, by reason."""
    rules = config.negatives
    facts = not rules.balanced and bool(rules.altered_per_claim or rules.by_model.per_claim)
    altered = facts or any(getattr(rules.altered_evidence, origin) for origin in ORIGINS)
    spool.index(*(INDEXES if altered else ["rows_group"]))
    vocabulary = collect_vocabulary(spool, config) if facts else None
    left_out: Counter[str] = Counter()
    for split in SPLITS:
        if (last := spool.progress(f"annotated/{split}")) is None:
            last = spool.value("SELECT COALESCE(MAX(n), 0) FROM rows")
            spool.note(f"annotated/{split}", last)
        if rules.balanced:
            left_out += _balance(spool, config, split, last)
            continue
        if rules.swapped_per_claim:
            left_out += _swap_split(spool, config, split, last)
        left_out += alter_split(spool, config, split, last, vocabulary, model)
    return left_out


def _swap_split(spool: Spool, config: BuildConfig, split: Split, last: int) -> Counter[str]:
    """Swapped negatives of a split. The new rows are copied inside the spool: a claim asked of other evidence."""
    rules, step = config.negatives, f"swapped/{split}"
    state = spool.progress(step) or {"after": "", "missing": 0, "done": False}
    missing = state["missing"]
    pending: list[tuple[Any, ...]] = []
    if not state["done"]:
        segments, suffixes = _segment_index(spool, config, split, last)
        start = bytes.fromhex(state["after"])
        generic = {claim_key(claim) for claim in rules.generic_claims}
        for after, ns, asked in tqdm(_asked(spool, split, last, start), desc=step, unit="claim", mininterval=1.0):
            if after in generic:
                continue
            chosen, without = swap_targets(asked, segments, rules.swapped_per_claim, config.seed)
            missing += without
            for i, j in chosen:
                row = (segments.keys[j], asked[i].id + suffixes[j], rules.swapped_label, segments.groups[j], ns[i])
                pending.append(row)
            if len(pending) >= _COMMIT_EVERY:
                spool.copy_swapped(pending)
                spool.note(step, {"after": after.hex(), "missing": missing, "done": False})
                spool.commit()
                pending.clear()
        spool.copy_swapped(pending)
        spool.note(step, {"missing": missing, "done": True})
        spool.commit()
    return Counter({"swapped negatives without a segment": missing})


def _segment_index(spool: Spool, config: BuildConfig, split: Split, last: int) -> tuple[Segments[int], list[str]]:
    """The segments of a split (evidence numbers, group of the first row of each), and what ids get from each."""
    query = f"""SELECT f.e, r.grp, v.json FROM
        (SELECT r.e AS e, MIN(r.n) AS n FROM groups g CROSS JOIN rows r ON r.grp = g.name
         WHERE {_IN_SPLIT} GROUP BY r.e) f
        JOIN rows r ON r.n = f.n JOIN evidence v ON v.e = f.e"""
    found = [(evidence_key(evidence_of(text)), e, group) for e, group, text in spool.db.execute(query, (split, last))]
    found.sort(key=lambda item: segment_rank(config.seed, item[0]))
    segments = Segments([e for _, e, _ in found], [group for *_, group in found])
    return segments, [swapped_suffix(key) for key, *_ in found]


def _asked(spool: Spool, split: Split, last: int, after: bytes) -> Iterator[tuple[bytes, list[int], list[Asked[int]]]]:
    """(claim, numbers of its rows, the rows) for each claim of a split that follows the claim `after`."""
    query = f"""SELECT r.claim_key, r.n, r.id, r.e, r.grp, r.label IS 'supported'
        FROM groups g CROSS JOIN rows r ON r.grp = g.name
        WHERE {_IN_SPLIT} AND r.claim_key > ? ORDER BY r.claim_key, r.n"""
    rows = spool.reader().execute(query, (split, last, after))
    for key, same in itertools.groupby(rows, lambda row: row[0]):
        found = list(same)
        yield key, [row[1] for row in found], [Asked(*row[2:]) for row in found]


def _rows(made: Iterable[Pair], stored: Sequence[Stored]) -> list[Row]:
    """New pairs as rows that name the place of the row they were made from."""
    places = {s.row.pair.id: s.row for s in stored}
    rows = ((pair, places[pair.meta["claim_of"]]) for pair in made)
    return [Row(pair, row.file, row.line, row.record) for pair, row in rows]


def _balance(spool: Spool, config: BuildConfig, split: Split, last: int) -> Counter[str]:
    if (done := spool.progress(f"balanced/{split}")) is not None:
        return Counter(done)
    rules = config.negatives
    stored = list(spool.rows(_IN_SPLIT, (split, last)))
    pairs = [s.row.pair for s in stored]
    chosen, reasons = balanced_pairs(pairs, rules.generic_claims, config.seed, rules.swapped_label)
    kept = {pair.id for pair in chosen}
    spool.take_out((s.n for s in stored if s.row.pair.id not in kept), LEFT_OUT)
    annotated = {pair.id for pair in pairs}
    spool.add(_rows((pair for pair in chosen if pair.id not in annotated), stored))
    left_out = Counter({f"claims {reason}": number for reason, number in reasons.items()})
    spool.note(f"balanced/{split}", left_out)
    spool.commit()
    return left_out
