"""Make the negatives a config asks for, split by split, reading the spool and appending to it.

Swapped evidence is made claim by claim (all rows of a claim at once), altered claims and altered evidence segment by
segment; each stretch of work is committed with the place it ends at. A balanced split is chosen as a whole in memory.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from tqdm import tqdm

from .build_config import BuildConfig
from .negatives import Segments, balanced_pairs, normal_claim, swaps_of_claim
from .records import Row
from .rows import SPLITS, Pair, Split
from .spool import LEFT_OUT, Spool, Stored, claim_key

_COMMIT_EVERY = 20_000
_IN_SPLIT = "g.split = ? AND r.out = 0 AND r.n <= ?"

Work = Iterator[tuple[str | int, list[Row], Counter[str]]]
"""What was made of one unit: where it ends (to go on from after a kill), the new rows, what could not be made."""


def make_negatives(spool: Spool, config: BuildConfig) -> Counter[str]:
    """Append the negatives of every split to the spool; how many rows were left out or could not be made, by reason."""
    rules = config.negatives
    left_out: Counter[str] = Counter()
    for split in SPLITS:
        if (last := spool.progress(f"annotated/{split}")) is None:
            last = spool.value("SELECT COALESCE(MAX(n), 0) FROM rows")
            spool.note(f"annotated/{split}", last)
        if rules.balanced:
            left_out += _balance(spool, config, split, last)
        elif rules.swapped_per_claim:
            left_out += _in_stretches(
                spool, f"swapped/{split}", lambda after, s=split, n=last: _swaps(spool, config, s, n, after)
            )
    return left_out


def _in_stretches(spool: Spool, step: str, work: Callable[[str | int | None], Work]) -> Counter[str]:
    """Add what `work` makes, committed now and then together with where to go on from."""
    state = spool.progress(step) or {"after": None, "left_out": {}, "done": False}
    left_out = Counter(state["left_out"])
    if state["done"]:
        return left_out
    pending = 0
    for after, rows, missing in tqdm(work(state["after"]), desc=step, unit="unit", mininterval=1.0):
        made = spool.add_new(rows)
        left_out += missing
        left_out["negatives that were there already"] += len(rows) - made
        pending += made
        if pending >= _COMMIT_EVERY:
            spool.note(step, {"after": after, "left_out": left_out, "done": False})
            spool.commit()
            pending = 0
    spool.note(step, {"left_out": left_out, "done": True})
    spool.commit()
    return left_out


def _swaps(spool: Spool, config: BuildConfig, split: Split, last: int, after: str | int | None) -> Work:
    rules = config.negatives
    reader = spool.reader()
    firsts = f"SELECT MIN(r.n) FROM rows r JOIN groups g ON g.name = r.grp WHERE {_IN_SPLIT} GROUP BY r.e"
    stands = spool.rows(f"r.n IN ({firsts})", (split, last), db=reader)
    segments = Segments.of((stored.row.pair for stored in stands), config.seed)
    generic = {normal_claim(claim) for claim in rules.generic_claims}
    start = bytes.fromhex(str(after or ""))
    rows = spool.rows(f"{_IN_SPLIT} AND r.claim_key > ?", (split, last, start), "r.claim_key, r.n", reader)
    for key, same in itertools.groupby(rows, lambda stored: claim_key(stored.row.pair.claim)):
        stored = list(same)
        pairs = [s.row.pair for s in stored]
        if not any(pair.label == "supported" for pair in pairs) or normal_claim(pairs[0].claim) in generic:
            continue
        made, missing = swaps_of_claim(pairs, segments, rules.swapped_per_claim, config.seed, rules.swapped_label)
        yield key.hex(), _rows(made, stored), Counter({"swapped negatives without a segment": missing})


def _rows(made: Iterable[Pair], stored: Sequence[Stored]) -> list[Row]:
    """New pairs as rows that name the place of the row they were made from."""
    places = {s.row.pair.id: s.row for s in stored}
    return [dataclasses.replace(places[pair.meta["claim_of"]], pair=pair) for pair in made]


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
