"""Make altered claims and altered evidence, segment by segment of a split, reading the spool and appending to it.

Each stretch of work is committed with the segment it ends at, so that a killed build goes on from there.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from tqdm import tqdm

from ..core.pairs import Pair, Split
from .altered.altered_by_model import altered_by_model
from .altered.altered_claims import altered_claims
from .altered.altered_evidence import ORIGINS, altered_evidence
from .altered.known_evidence import Known
from .altered.vocabulary import Vocabulary
from .altered.word_groups import SHIPPED, read_word_groups
from .build_config import BuildConfig
from .language.answers import map_ordered
from .language.language_model import LanguageModel
from .negatives import normal_claim
from .records import Rejected, Row
from .spool import Spool, Stored

_COMMIT_EVERY = 20_000
_COMMIT_MODEL_EVERY = 50  # answers of a model cost more than rows
_THERE = "negatives that were there already"


@dataclass(frozen=True)
class _Made:
    """What came of one segment: new pairs, what could not be made, what a model never answered usably."""

    pairs: Sequence[Pair] = ()
    missing: Counter[str] | None = None
    rejected: Sequence[Rejected] = ()


def alter_split(
    spool: Spool,
    config: BuildConfig,
    split: Split,
    last: int,
    vocabulary: Vocabulary | None,
    model: LanguageModel | None,
) -> Counter[str]:
    """Append the altered claims and altered evidence of one split's rows up to number `last`.

    Returns:
        What could not be made, by reason.
    """
    rules = config.negatives
    total: Counter[str] = Counter()
    if any(getattr(rules.altered_evidence, origin) for origin in ORIGINS):
        total += _in_stretches(spool, f"altered_evidence/{split}", _evidence(spool, config, split, last))
    if rules.altered_per_claim and vocabulary is not None:
        total += _in_stretches(spool, f"altered_claims/{split}", _claims(spool, config, split, last, vocabulary))
    if rules.by_model.per_claim and vocabulary is not None and model is not None:
        work = _by_model(spool, config, split, last, vocabulary, model)
        total += _in_stretches(spool, f"altered_by_model/{split}", work, _COMMIT_MODEL_EVERY)
    return total


def collect_vocabulary(spool: Spool, config: BuildConfig) -> Vocabulary:
    """What is true where in the kept rows of the data set, with the word groups the config names."""
    groups = read_word_groups(config.negatives.word_groups or SHIPPED)
    supported = spool.rows("r.out = 0 AND r.label = 'supported'", db=spool.reader())
    return Vocabulary.collect((stored.row.pair for stored in supported), groups)


Segment = tuple[int, list[Stored]]
Work = Any  # a function of the last segment done: Iterator[tuple[Segment, _Made]]


def _in_stretches(spool: Spool, step: str, work: Work, every: int = _COMMIT_EVERY) -> Counter[str]:
    state = spool.progress(step) or {"after": 0, "missing": {}, "done": False}
    missing = Counter(state["missing"])
    if state["done"]:
        return missing
    pending = 0
    for (e, stored), made in tqdm(work(state["after"]), desc=step, unit="segment", mininterval=1.0):
        places = {s.row.pair.id: s.row for s in stored}
        rows = [_row(pair, places[pair.meta["claim_of"]]) for pair in made.pairs]
        there = len(rows) - spool.add_new(rows)
        missing.update({_THERE: there, **(made.missing or {})})
        spool.reject(made.rejected)
        pending += max(len(rows), 1)
        if pending >= every:
            spool.note(step, {"after": e, "missing": missing, "done": False})
            spool.commit()
            pending = 0
    spool.note(step, {"missing": missing, "done": True})
    spool.commit()
    return missing


def _row(pair: Pair, source: Row) -> Row:
    return Row(pair, source.file, source.line, source.record)


def _stored_segments(spool: Spool, split: Split, last: int, after: int) -> Iterator[Segment]:
    """The rows of each segment of a split, in the order of the segments, as they are before any row is made."""
    where = "g.split = ? AND r.out = 0 AND r.n <= ? AND r.e > ?"
    rows = spool.rows(where, (split, last, after), "r.e, r.n", spool.reader())
    for e, same in itertools.groupby(rows, lambda stored: stored.e):
        yield e, list(same)


def _pairs(stored: Sequence[Stored]) -> list[Pair]:
    return [s.row.pair for s in stored]


def _evidence(spool: Spool, config: BuildConfig, split: Split, last: int) -> Work:
    def work(after: int) -> Iterator[tuple[Segment, _Made]]:
        rules = config.negatives
        rows = spool.rows("g.split = ? AND r.out = 0 AND r.n <= ?", (split, last), db=spool.reader())
        durations = dict(spool.db.execute("SELECT path, duration_s FROM files WHERE duration_s IS NOT NULL"))
        known = Known.of((s.row.pair for s in rows), durations, rules.generic_claims, config.seed)
        for e, stored in _stored_segments(spool, split, last, after):
            found = [altered_evidence(pair, rules.altered_evidence, known, config.seed) for pair in _pairs(stored)]
            missing = sum((m for _, m in found), Counter[str]())
            named = Counter({f"negatives {origin} without a place": number for origin, number in missing.items()})
            yield (e, stored), _Made([pair for pairs, _ in found for pair in pairs], named)

    return work


def _claims(spool: Spool, config: BuildConfig, split: Split, last: int, vocabulary: Vocabulary) -> Work:
    def work(after: int) -> Iterator[tuple[Segment, _Made]]:
        true_of, per_claim = _true_in_groups(spool), config.negatives.altered_per_claim
        for e, stored in _stored_segments(spool, split, last, after):
            made, missing = altered_claims(_pairs(stored), vocabulary, per_claim, config.seed, true_of(stored))
            yield (e, stored), _Made(made, Counter({"altered claims without a value": missing}))

    return work


def _by_model(
    spool: Spool, config: BuildConfig, split: Split, last: int, vocabulary: Vocabulary, model: LanguageModel
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

    def work(after: int) -> Iterator[tuple[Segment, _Made]]:
        true_of = _true_in_groups(spool)
        asked, given = itertools.tee((s, true_of(s[1])) for s in _stored_segments(spool, split, last, after))
        for (segment, _), answer in zip(given, map_ordered(ask, asked, model.config.concurrency), strict=False):
            if isinstance(answer, BaseException):
                first = segment[1][0].row
                message = f"no altered claims by the model, got {answer}; ask again, or go on without them"
                kind = "no altered claims by the model"
                yield segment, _Made(rejected=[Rejected(first.file, first.line, first.record, kind, message, 0, False)])
            else:
                pairs, rejected = answer
                places = {s.row.pair.id: s.row for s in segment[1]}
                placed = [
                    dataclasses.replace(item, file=places[item.id].file, line=places[item.id].line)
                    for item in rejected
                    if item.id is not None
                ]
                yield segment, _Made(pairs, Counter({"altered claims no model gave": len(rejected)}), placed)

    return work


def _true_in_groups(spool: Spool) -> Callable[[Sequence[Stored]], Set[str]]:
    """A function: normalised claims that hold anywhere in the groups of a segment's rows. Remembers the last groups."""

    @lru_cache(maxsize=1)  # segments of a group follow one another
    def true_in(groups: frozenset[str]) -> Set[str]:
        query = "SELECT DISTINCT claim FROM rows WHERE grp = ? AND label = 'supported'"
        return {normal_claim(claim) for group in groups for (claim,) in spool.db.execute(query, (group,))}

    return lambda stored: true_in(frozenset(s.row.pair.group for s in stored))
