"""Leaks from one split into another: the same media file, or the same long claim, annotated or made.

A part of the splitting step that can be tested without any split. Groups that share such a thing are tied: tied groups
go into one split (`move`), or the build refuses (`refuse`). Media are the same when their bytes are, and videos when
their coded pictures are, as in a remuxed copy. Claims are the same when only case, punctuation and articles differ.
Short claims ("Object is pan.") recur in every data set, so only claims of at least `claim_words` words count; whether
short ones give a label away is measured by the claim-only probe.

Negatives are made after the groups are divided, so a made claim that another split holds is left out.
"""

from __future__ import annotations

import hashlib
import itertools
import re
import sqlite3
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ...core import Split
from .config import LeakPolicy, LeaksConfig
from .staging import LEFT_OUT, Staging

_ARTICLES = frozenset({"a", "an", "the"})
_LISTED = 3  # files that are the same, in a message


@dataclass
class Ties:
    """Groups tied to one another, and by what.

    Attributes:
        leader: {group: the first group of its tied set}, for tied groups only.
        counts: per kind ("media", "claims"), how many files or claims tie groups.
        examples: per group, one thing that ties it, in words.
    """

    leader: dict[str, str] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=lambda: {"media": 0, "claims": 0})
    examples: dict[str, str] = field(default_factory=dict)

    def of(self, group: str) -> str:
        """The group that stands for a group's tied set; itself if it is free."""
        while (above := self.leader.get(group, group)) != group:
            self.leader[group] = self.leader.get(above, above)
            group = above
        return group

    def tie(self, kind: str, groups: Iterable[str], example: str) -> None:
        """Tie two or more groups."""
        first, *others = sorted(groups)
        self.counts[kind] += 1
        for group in (first, *others):
            self.examples.setdefault(group, example)
            a, b = sorted((self.of(first), self.of(group)))
            self.leader[b] = self.leader[a] = a


def find_ties(staging: Staging, rules: LeaksConfig, policy: LeakPolicy) -> Ties:
    """Every tie between groups of the kept rows by a thing for which the rules name this policy."""
    ties = Ties()
    if rules.media == policy:
        for groups, paths in _shared_media(staging):
            ties.tie("media", groups, _files_in_words(paths))
    if rules.claims == policy:
        for groups, claims in _shared_claims(staging, rules.claim_words):
            ties.tie("claims", groups, f"claim {claims[0]!r}")
    return ties


def torn(ties: Ties, splits: Mapping[str, Split]) -> list[list[str]]:
    """The tied sets whose groups are in two or more splits, each sorted."""
    sets: dict[str, list[str]] = {}
    for group in sorted(ties.leader):
        sets.setdefault(ties.of(group), []).append(group)
    return [groups for groups in sets.values() if len({splits[g] for g in groups if g in splits}) > 1]


def loose_claim(claim: str) -> str:
    """A claim without case, punctuation, articles and spacing: near-duplicates have it in common."""
    words = re.findall(r"\w+", unicodedata.normalize("NFKC", claim).casefold())
    return " ".join(word for word in words if word not in _ARTICLES)


def _files_in_words(paths: Sequence[str]) -> str:
    if len(paths) == 1:
        return f"media file {paths[0]!r}"
    return f"media files {', '.join(map(repr, paths))}, which show the same pictures"


def _shared_media(staging: Staging) -> Iterator[tuple[set[str], list[str]]]:
    """Groups that show the same file: by content where it was hashed, else by path."""
    query = """SELECT DISTINCT COALESCE(f.content, s.content, m.path) AS content, r.grp, m.path
        FROM media m JOIN rows r ON r.e = m.e LEFT JOIN files f ON f.path = m.path LEFT JOIN sounds s ON s.path = m.path
        WHERE r.out = 0 ORDER BY content, m.path, r.grp"""
    yield from _several(staging.reader().execute(query))


def drop_leaking_negatives(staging: Staging, rules: LeaksConfig, last_annotated: int) -> int:
    """Leave out made rows whose claim another split holds; returns how many.

    An annotated claim stays where it is. A claim that was only made stays in the first split that has it.

    Args:
        staging: with its negatives.
        rules: `allow` leaves all claims.
        last_annotated: number of the last row that was not made.
    """
    if rules.claims == "allow":
        return 0
    reader = _long_claims(staging, "g.split, r.n", rules.claim_words)
    several = """SELECT key, split, n FROM loose WHERE key IN
        (SELECT key FROM loose GROUP BY key HAVING COUNT(DISTINCT split) > 1) ORDER BY key, n"""
    order, leaking = staging.splits(), list[tuple[int]]()
    for _, rows in itertools.groupby(reader.execute(several), key=lambda row: row[0]):
        places = [(split, n) for _, split, n in rows]
        homes = {split for split, n in places if n <= last_annotated}
        homes = homes or {min((split for split, _ in places), key=order.index)}
        leaking += [(n,) for split, n in places if n > last_annotated and split not in homes]
    staging.db.executemany(f"UPDATE rows SET out = {LEFT_OUT} WHERE n = ?", leaking)
    staging.commit()
    return len(leaking)


def _shared_claims(staging: Staging, min_words: int) -> Iterator[tuple[set[str], list[str]]]:
    reader = _long_claims(staging, "r.grp, r.claim", min_words)
    yield from _several(reader.execute("SELECT DISTINCT key, grp, claim FROM loose ORDER BY key, grp, claim"))


def _long_claims(staging: Staging, columns: str, min_words: int) -> sqlite3.Connection:
    """A connection with a table `loose`: of every long claim a key, equal for near-duplicates, and `columns`."""
    reader = staging.reader()
    names = ", ".join(column.partition(".")[2] for column in columns.split(", "))
    reader.execute(f"CREATE TEMP TABLE loose (key BLOB, {names})")
    spaces = "LENGTH(r.claim) - LENGTH(REPLACE(r.claim, ' ', ''))"
    long = f"""SELECT r.claim, {columns} FROM rows r LEFT JOIN groups g ON g.name = r.grp
        WHERE r.out = 0 AND {spaces} >= ?"""
    keys = (
        (hashlib.blake2b(loose.encode(), digest_size=16).digest(), *values)
        for claim, *values in staging.db.execute(long, (min_words - 1,))
        if len((loose := loose_claim(claim)).split()) >= min_words
    )
    reader.executemany("INSERT INTO loose VALUES (?, ?, ?)", keys)
    return reader


def _several(rows: Iterable[tuple[bytes | str, str, str]]) -> Iterator[tuple[set[str], list[str]]]:
    """(groups, at most `_LISTED` texts) for every run of equal keys with more than one group."""
    for _, run in itertools.groupby(rows, key=lambda row: row[0]):
        groups, texts = set[str](), list[str]()
        for _, group, text in run:
            groups.add(group)
            if text not in texts and len(texts) < _LISTED:
                texts.append(text)
        if len(groups) > 1:
            yield groups, texts
