"""The fifth step of a build: append the negatives that a config asks for to the staging database, split by split.

Swapped negatives are made claim by claim (all rows of a claim at once), altered claims and altered evidence segment by
segment. Each stretch of work is committed with the place it ends at, so that a killed build continues there. A balanced
split is chosen as a whole in memory.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from tqdm import tqdm

from ...core import Pair, Split, evidence_key
from ..importers import Rejected, Row
from ..language import LanguageModel, map_ordered
from ..negatives import (
    ORIGINS,
    SHIPPED,
    ClaimRow,
    EvenSwaps,
    Grammar,
    Known,
    Segments,
    Sentences,
    Vocabulary,
    WordGroups,
    WordNet,
    altered_by_model,
    altered_claims,
    altered_evidence,
    is_sentence,
    normal_claim,
    read_word_groups,
    segment_rank,
    swap_targets,
    swapped_suffix,
)
from .config import BuildConfig, altering_packages
from .staging import INDEXES, LEFT_OUT, Staging, Stored, claim_key, evidence_of

_COMMIT_EVERY = 20_000
_COMMIT_MODEL_EVERY = 50  # answers of a model cost more than rows
_THERE = "negatives that were there already"
_NO_FACTS = (
    "altered claims of rows that are neither facts nor verb phrases (need the parser of proofreel[negatives], "
    "docs/negatives.md)"
)


@dataclass(frozen=True)
class _SegmentNegatives:
    """The result of one segment: new pairs, counts of those that could not be made, unusable answers of the model."""

    pairs: Sequence[Pair] = ()
    missing: Counter[str] | None = None
    rejected: Sequence[Rejected] = ()


def alter_split(
    staging: Staging,
    config: BuildConfig,
    split: Split,
    last: int,
    vocabulary: Vocabulary | None,
    model: LanguageModel | None,
    sentences: Sentences | None = None,
) -> Counter[str]:
    """Append the altered claims and altered evidence of one split's rows up to number `last`.

    Returns:
        What could not be made, by reason.
    """
    rules = config.negatives
    total: Counter[str] = Counter()
    if any(getattr(rules.altered_evidence, origin) for origin in ORIGINS):
        total += _in_stretches(staging, f"altered_evidence/{split}", _evidence(staging, config, split, last))
    if rules.altered_per_claim and vocabulary is not None:
        total += _in_stretches(
            staging, f"altered_claims/{split}", _claims(staging, config, split, last, vocabulary, sentences)
        )
    if rules.by_model.per_claim and vocabulary is not None and model is not None:
        work = _by_model(staging, config, split, last, vocabulary, model)
        total += _in_stretches(staging, f"altered_by_model/{split}", work, _COMMIT_MODEL_EVERY)
    return total


def collect_vocabulary(staging: Staging, config: BuildConfig) -> Vocabulary:
    """What is true of each segment in the kept rows, with the word groups the config names."""
    groups = word_groups_of(config)
    supported = staging.rows("r.out = 0 AND r.label = 'supported'", db=staging.reader())
    return Vocabulary.collect((stored.row.pair for stored in supported), groups)


def word_groups_of(config: BuildConfig) -> WordGroups:
    """The word groups that the config names, with WordNet where it is installed."""
    groups = read_word_groups(config.negatives.word_groups or SHIPPED)
    return dataclasses.replace(groups, wordnet=WordNet.installed()) if altering_packages(config) else groups


def collect_sentences(staging: Staging, config: BuildConfig) -> Sentences | None:
    """What the true sentences say; None where there are none, or no parser."""
    if not altering_packages(config):
        return None
    supported = staging.rows("r.out = 0 AND r.label = 'supported'", db=staging.reader())
    claims = ((s.row.pair.group, s.row.pair.claim) for s in supported if is_sentence(s.row.pair))
    if (first := next(claims, None)) is None or (grammar := Grammar.installed()) is None:
        return None
    every = tqdm(itertools.chain([first], claims), desc="reading claims", unit="claim", mininterval=1.0)
    return Sentences.collect(every, grammar, word_groups_of(config))


Segment = tuple[int, list[Stored]]
Work = Any  # a function of the last segment done: Iterator[tuple[Segment, _SegmentNegatives]]


def _in_stretches(staging: Staging, step: str, work: Work, every: int = _COMMIT_EVERY) -> Counter[str]:
    state = staging.progress(step) or {"after": 0, "missing": {}, "done": False}
    missing = Counter(state["missing"])
    if state["done"]:
        return missing
    pending = 0
    for (e, stored), made in tqdm(work(state["after"]), desc=step, unit="segment", mininterval=1.0):
        places = {s.row.pair.id: s.row for s in stored}
        rows = [_row(pair, places[pair.meta["claim_of"]]) for pair in made.pairs]
        there = len(rows) - staging.add_new(rows)
        missing.update({_THERE: there, **(made.missing or {})})
        staging.reject(made.rejected)
        pending += max(len(rows), 1)
        if pending >= every:
            staging.note(step, {"after": e, "missing": missing, "done": False})
            staging.commit()
            pending = 0
    staging.note(step, {"missing": missing, "done": True})
    staging.commit()
    return missing


def _row(pair: Pair, source: Row) -> Row:
    return Row(pair, source.file, source.line, source.record)


def _stored_segments(staging: Staging, split: Split, last: int, after: int) -> Iterator[Segment]:
    """The rows of each segment of a split, in the order of the segments, as they are before any row is made."""
    where = "g.split = ? AND r.out = 0 AND r.n <= ? AND r.e > ?"
    rows = staging.rows(where, (split, last, after), "r.e, r.n", staging.reader())
    for e, same in itertools.groupby(rows, lambda stored: stored.e):
        yield e, list(same)


def _pairs(stored: Sequence[Stored]) -> list[Pair]:
    return [s.row.pair for s in stored]


def _evidence(staging: Staging, config: BuildConfig, split: Split, last: int) -> Work:
    def work(after: int) -> Iterator[tuple[Segment, _SegmentNegatives]]:
        rules = config.negatives
        rows = staging.rows("g.split = ? AND r.out = 0 AND r.n <= ?", (split, last), db=staging.reader())
        lengths = """SELECT path, MIN(duration_s) FROM (SELECT * FROM files UNION ALL SELECT * FROM sounds)
            WHERE duration_s IS NOT NULL GROUP BY path"""  # a window is seen and heard to its end
        durations = dict(staging.db.execute(lengths))
        pairs = (s.row.pair for s in rows)
        known = Known.of(pairs, durations, rules.generic_claims, config.seed, staging.scratch("known"))
        for e, stored in _stored_segments(staging, split, last, after):
            altered = [altered_evidence(pair, rules.altered_evidence, known, config.seed) for pair in _pairs(stored)]
            missing = sum((m for _, m in altered), Counter[str]())
            named = Counter({f"negatives {origin} without a place": number for origin, number in missing.items()})
            yield (e, stored), _SegmentNegatives([pair for pairs, _ in altered for pair in pairs], named)

    return work


def _claims(
    staging: Staging,
    config: BuildConfig,
    split: Split,
    last: int,
    vocabulary: Vocabulary,
    sentences: Sentences | None,
) -> Work:
    def work(after: int) -> Iterator[tuple[Segment, _SegmentNegatives]]:
        true_of, per_claim = _true_in_groups(staging), config.negatives.altered_per_claim
        for e, stored in _stored_segments(staging, split, last, after):
            pairs = _pairs(stored)
            made, missing = altered_claims(pairs, vocabulary, per_claim, config.seed, true_of(stored), sentences)
            unread = 0 if sentences is not None else sum(p.label == "supported" and is_sentence(p) for p in pairs)
            counts = {"altered claims without a value": missing - per_claim * unread, _NO_FACTS: per_claim * unread}
            yield (e, stored), _SegmentNegatives(made, Counter(counts))

    return work


def _by_model(
    staging: Staging, config: BuildConfig, split: Split, last: int, vocabulary: Vocabulary, model: LanguageModel
) -> Work:
    rules = config.negatives.by_model

    def ask(item: tuple[Segment, Set[str]]) -> tuple[list[Pair], list[Rejected]]:
        (_, stored), true = item
        return altered_by_model(
            _pairs(stored),
            model,
            vocabulary,
            per_claim=rules.per_claim,
            attempts=rules.attempts,
            known_only=rules.known_only,
            true_in_group=true,
        )

    def work(after: int) -> Iterator[tuple[Segment, _SegmentNegatives]]:
        true_of = _true_in_groups(staging)
        questions, given = itertools.tee((s, true_of(s[1])) for s in _stored_segments(staging, split, last, after))
        for (segment, _), answer in zip(given, map_ordered(ask, questions, model.config.concurrency), strict=False):
            if isinstance(answer, BaseException):
                first = segment[1][0].row
                message = f"no altered claims by the model, got {answer}; ask again, or go on without them"
                kind = "no altered claims by the model"
                yield (
                    segment,
                    _SegmentNegatives(
                        rejected=[Rejected(first.file, first.line, first.record, kind, message, 0, False)]
                    ),
                )
            else:
                pairs, rejected = answer
                places = {s.row.pair.id: s.row for s in segment[1]}
                placed = [
                    dataclasses.replace(item, file=places[item.id].file, line=places[item.id].line)
                    for item in rejected
                    if item.id is not None
                ]
                yield (
                    segment,
                    _SegmentNegatives(pairs, Counter({"altered claims no model gave": len(rejected)}), placed),
                )

    return work


def _true_in_groups(staging: Staging) -> Callable[[Sequence[Stored]], Set[str]]:
    """A function: normalised claims that hold anywhere in the groups of a segment's rows. Remembers the last groups."""

    @lru_cache(maxsize=1)  # segments of a group follow one another
    def true_in(groups: frozenset[str]) -> Set[str]:
        query = "SELECT DISTINCT claim FROM rows WHERE grp = ? AND label = 'supported'"
        return {normal_claim(claim) for group in groups for (claim,) in staging.db.execute(query, (group,))}

    return lambda stored: true_in(frozenset(s.row.pair.group for s in stored))


_IN_SPLIT = "g.split = ? AND r.out = 0 AND r.n <= ?"


def make_negatives(staging: Staging, config: BuildConfig, model: LanguageModel | None) -> Counter[str]:
    """Append the negatives of every split to the staging database.

    Returns:
        How many rows were left out or could not be made, by reason.
    """
    rules = config.negatives
    facts = not rules.balanced and bool(rules.altered_per_claim or rules.by_model.per_claim)
    altered = facts or any(getattr(rules.altered_evidence, origin) for origin in ORIGINS)
    staging.index(*(INDEXES if altered else ["rows_group"]))
    vocabulary = collect_vocabulary(staging, config) if facts else None
    sentences = collect_sentences(staging, config) if facts else None
    left_out: Counter[str] = Counter()
    for split in staging.splits():
        if (last := staging.progress(f"annotated/{split}")) is None:
            last = staging.value("SELECT COALESCE(MAX(n), 0) FROM rows")
            staging.note(f"annotated/{split}", last)
        if rules.balanced:
            left_out += _balance(staging, config, split, last)
            continue
        if rules.swapped_per_claim:
            left_out += _swap_split(staging, config, split, last)
        left_out += alter_split(staging, config, split, last, vocabulary, model, sentences)
    return left_out


def _swap_split(staging: Staging, config: BuildConfig, split: Split, last: int) -> Counter[str]:
    """Swapped negatives of a split. The new rows are copied inside the database: a claim asked of other evidence."""
    rules, step = config.negatives, f"swapped/{split}"
    state = staging.progress(step) or {"after": "", "missing": 0, "done": False}
    missing = state["missing"]
    pending: list[tuple[Any, ...]] = []
    if not state["done"]:
        segments, suffixes, _ = _segment_index(staging, config, split, last)
        start = bytes.fromhex(state["after"])
        generic = {claim_key(claim) for claim in rules.generic_claims}
        for after, ns, claims in tqdm(
            _claim_rows(staging, split, last, start), desc=step, unit="claim", mininterval=1.0
        ):
            if after in generic:
                continue
            chosen, without = swap_targets(claims, segments, rules.swapped_per_claim, config.seed)
            missing += without
            for i, j in chosen:
                row = (segments.keys[j], claims[i].id + suffixes[j], rules.swapped_label, segments.groups[j], ns[i])
                pending.append(row)
            if len(pending) >= _COMMIT_EVERY:
                staging.copy_swapped(pending)
                staging.note(step, {"after": after.hex(), "missing": missing, "done": False})
                staging.commit()
                pending.clear()
        staging.copy_swapped(pending)
        staging.note(step, {"missing": missing, "done": True})
        staging.commit()
    return Counter({"swapped negatives without a segment": missing})


def _segment_index(
    staging: Staging, config: BuildConfig, split: Split, last: int
) -> tuple[Segments[int], list[str], list[str]]:
    """The segments of a split (evidence numbers, group of the first row of each), what ids get from each, its key."""
    query = f"""SELECT f.e, r.grp, v.json FROM
        (SELECT r.e AS e, MIN(r.n) AS n FROM groups g CROSS JOIN rows r ON r.grp = g.name
         WHERE {_IN_SPLIT} GROUP BY r.e) f
        JOIN rows r ON r.n = f.n JOIN evidence v ON v.e = f.e"""
    ranked = [
        (evidence_key(evidence_of(text)), e, group) for e, group, text in staging.db.execute(query, (split, last))
    ]
    ranked.sort(key=lambda item: segment_rank(config.seed, item[0]))
    segments = Segments([e for _, e, _ in ranked], [group for *_, group in ranked])
    return segments, [swapped_suffix(key) for key, *_ in ranked], [key for key, *_ in ranked]


def _claim_rows(
    staging: Staging, split: Split, last: int, after: bytes
) -> Iterator[tuple[bytes, list[int], list[ClaimRow[int]]]]:
    """(claim, numbers of its rows, the rows) for each claim of a split that follows the claim `after`."""
    query = f"""SELECT r.claim_key, r.n, r.id, r.e, r.grp, r.label IS 'supported'
        FROM groups g CROSS JOIN rows r ON r.grp = g.name
        WHERE {_IN_SPLIT} AND r.claim_key > ? ORDER BY r.claim_key, r.n"""
    rows = staging.reader().execute(query, (split, last, after))
    for key, same in itertools.groupby(rows, lambda row: row[0]):
        same_evidence = list(same)
        yield key, [row[1] for row in same_evidence], [ClaimRow(*row[2:]) for row in same_evidence]


def _balance(staging: Staging, config: BuildConfig, split: Split, last: int) -> Counter[str]:
    """Positives and as many swapped negatives of a split; claims that cannot be balanced are taken out.

    The choice is made of numbers (`EvenSwaps`); the rows are read twice, claim by claim, and copied in the database.
    """
    if (done := staging.progress(f"balanced/{split}")) is not None:
        return Counter(done)
    rules = config.negatives
    segments, suffixes, keys = _segment_index(staging, config, split, last)
    generic = {normal_claim(claim) for claim in rules.generic_claims}
    swaps = EvenSwaps(keys, segments.groups, generic, config.seed, staging.scratch("claims"))
    number_of = {e: number for number, e in enumerate(segments.keys)}
    _number_claims(staging, split, last)
    left_out: Counter[str] = Counter({"claims generic": 0, "claims unbalanceable": 0})
    kept: dict[int, int] = {}  # number of a claim -> its number among the balanced ones
    names: set[str] = set()
    for claim, rows in _numbered_rows(staging, split, last):
        held, groups = [number_of[row.e] for row in rows], (row.group for row in rows)
        names.update(row.id for row in rows if "/swapped/" in row.id)
        if (reason := swaps.add(normal_claim(rows[0].claim), held, groups)) is None:
            kept[claim] = len(kept)
        else:
            left_out[f"claims {reason}"] += len(rows)
    swaps.assign()
    pending: list[tuple[Any, ...]] = []
    for claim, rows in _numbered_rows(staging, split, last):
        if claim not in kept:
            staging.take_out((row.n for row in rows), LEFT_OUT)
            continue
        for row, j in zip(rows, swaps.targets(kept[claim]), strict=True):
            if (name := row.id + suffixes[j]) not in names:
                pending.append((segments.keys[j], name, rules.swapped_label, segments.groups[j], row.n))
        if len(pending) >= _COMMIT_EVERY:
            staging.copy_swapped(pending)
            pending.clear()
    staging.copy_swapped(pending)
    staging.note(f"balanced/{split}", left_out)
    staging.commit()
    return left_out


class _ClaimedRow(NamedTuple):
    n: int
    id: str
    e: int
    group: str
    claim: str


def _number_claims(staging: Staging, split: Split, last: int) -> None:
    """Number the claims of a split by their first rows (table `claims`)."""
    staging.db.execute("DROP TABLE IF EXISTS claims")
    staging.db.execute("CREATE TABLE claims (number INTEGER PRIMARY KEY, key BLOB UNIQUE)")
    staging.db.execute(
        f"""INSERT INTO claims (key) SELECT r.claim_key FROM groups g CROSS JOIN rows r ON r.grp = g.name
        WHERE {_IN_SPLIT} GROUP BY r.claim_key ORDER BY MIN(r.n)""",
        (split, last),
    )
    staging.commit()


def _numbered_rows(staging: Staging, split: Split, last: int) -> Iterator[tuple[int, list[_ClaimedRow]]]:
    """(number, rows) of every claim, as they are before any row is made or taken out."""
    query = f"""SELECT c.number, r.n, r.id, r.e, r.grp, r.claim FROM groups g CROSS JOIN rows r ON r.grp = g.name
        JOIN claims c ON c.key = r.claim_key WHERE {_IN_SPLIT} ORDER BY c.number, r.n"""
    rows = staging.reader().execute(query, (split, last))
    for number, same in itertools.groupby(rows, lambda row: row[0]):
        yield number, [_ClaimedRow(*row[1:]) for row in same]
