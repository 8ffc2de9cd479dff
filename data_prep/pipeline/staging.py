"""The staging database: the rows of a build on disk while it runs, in bounded memory.

One SQLite file in the build's working folder. Rows are numbered in the order they arrive; evidence is stored once and
rows point at it. Every change is committed together with the progress of the build (`progress`), so that the file of a
killed build holds a state that the build itself passes through, and the next run continues from it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...core import Evidence, Frames, Image, Pair, Split, evidence_from_dict, evidence_to_dict, media_paths
from ..dataset import in_order
from ..importers import Rejected, Row
from ..negatives import SWAPPED, normal_claim

KEPT, REJECTED, REPEATED, NOT_ASKED, LEFT_OUT = range(5)
"""Why a row is not in the data set (`rows.out`); 0 for a row that is."""

_PAIR_COLUMNS = (
    "id, claim, context, label, soft_label, split, grp, role, origin, modality, weight, teacher_margin, meta"
)
_SCHEMA = """
CREATE TABLE IF NOT EXISTS progress (step TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS evidence (e INTEGER PRIMARY KEY, digest BLOB UNIQUE, json TEXT);
CREATE TABLE IF NOT EXISTS media (path TEXT, e INTEGER, part TEXT, PRIMARY KEY (path, e, part)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS files (path TEXT PRIMARY KEY, content TEXT, duration_s REAL, json TEXT) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS sounds (path TEXT PRIMARY KEY, content TEXT, duration_s REAL, json TEXT) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS probed (kind TEXT, path TEXT, json TEXT, PRIMARY KEY (kind, path)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS rejected (
    number INTEGER PRIMARY KEY, file TEXT, line INTEGER, kind TEXT, blocking INTEGER, json TEXT, place INTEGER);
CREATE TABLE IF NOT EXISTS judgments (
    n INTEGER PRIMARY KEY, key BLOB, file TEXT, line INTEGER, record TEXT, json TEXT);
CREATE TABLE IF NOT EXISTS groups (name TEXT PRIMARY KEY, split TEXT) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS rows (
    n INTEGER PRIMARY KEY, claim_key BLOB, e INTEGER, out INTEGER, file INTEGER, line INTEGER, record TEXT,
    id TEXT, claim TEXT, context TEXT, label TEXT, soft_label REAL, split TEXT, grp TEXT, role TEXT, origin TEXT,
    modality TEXT, weight REAL, teacher_margin REAL, meta TEXT);
"""
INDEXES = {"rows_claim": "claim_key, e", "rows_evidence": "e, n", "rows_group": "grp"}
ROW_COLUMNS = f"claim_key, e, out, file, line, record, {_PAIR_COLUMNS}"
_JUDGMENT = "file, line, record, json"
JUDGMENT_COLUMNS = "key, file, line, record, json"
REJECTED_COLUMNS = "file, line, kind, blocking, json, place"
_REJECT = f"INSERT INTO rejected ({REJECTED_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?)"
_INSERT = "INSERT INTO rows VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)"
_SWAP = f"""INSERT INTO rows SELECT ?1, claim_key, ?2, {KEPT}, file, line, record, ?3, claim, context, ?4, NULL, split,
    ?5, role, '{SWAPPED}', modality, weight, NULL, '{{"claim_of": ' || json_quote(id) || '}}' FROM rows WHERE n = ?6"""
_CACHED_EVIDENCE = 20_000

Place = Callable[[tuple[Evidence, ...]], tuple[Evidence, ...]]


@dataclass(frozen=True)
class Stored:
    """A row of the staging database: its number, its evidence's number, and the pair with where it came from."""

    n: int
    e: int
    row: Row


def claim_key(claim: str) -> bytes:
    """Equal for claims that count as the same sentence."""
    return _digest(normal_claim(claim))


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def evidence_json(evidence: tuple[Evidence, ...]) -> str:
    """The text in which evidence is stored, in the staging database and in shards."""
    return _json(_dicts(evidence))


def _dicts(evidence: tuple[Evidence, ...]) -> list[dict[str, Any]]:
    return [evidence_to_dict(part) for part in evidence]


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


class Staging:
    """The working file of one build. `digest` says what is being built: a file of another build is begun anew."""

    def __init__(self, path: Path, digest: str) -> None:
        self.path = path
        if path.exists() and not self._is_of(digest):
            for file in path.parent.glob(f"{path.name}*"):
                file.unlink()
        self.db = self._connect()
        self.db.executescript(_SCHEMA)
        self._files: dict[str, int] = {}
        self._known: dict[tuple[Evidence, ...], int] = {}
        self._latest: tuple[Any, int] = (None, 0)
        self._meta: tuple[Any, str] = (None, "null")
        self._last = self.value("SELECT MAX(n) FROM rows") or 0
        self.note("digest", digest)
        self.commit()

    def _connect(self) -> sqlite3.Connection:
        db = sqlite3.connect(self.path)
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = NORMAL")
        db.execute("PRAGMA cache_size = -65536")
        return db

    def _is_of(self, digest: str) -> bool:
        try:
            with sqlite3.connect(self.path) as db:
                row = db.execute("SELECT value FROM progress WHERE step = 'digest'").fetchone()
            return row == (json.dumps(digest),)
        except sqlite3.DatabaseError:
            return False

    def close(self) -> None:
        """Close the file; it may be opened again."""
        self.db.close()

    def commit(self) -> None:
        """Commit every change since the last commit, progress included."""
        self.db.commit()

    def progress(self, step: str) -> Any:
        """What was noted of a step, None if nothing."""
        row = self.db.execute("SELECT value FROM progress WHERE step = ?", (step,)).fetchone()
        return None if row is None else json.loads(row[0])

    def note(self, step: str, value: Any) -> None:
        """Note how far a step has come; valid from the next commit."""
        self.db.execute("INSERT OR REPLACE INTO progress VALUES (?, ?)", (step, json.dumps(value)))

    def value(self, query: str, parameters: Sequence[Any] = ()) -> Any:
        """The one value a query gives."""
        return self.db.execute(query, parameters).fetchone()[0]

    def index(self, *names: str) -> None:
        """Have these indexes over the rows and no others: each costs time with every row that is added."""
        for name, columns in INDEXES.items():
            if name in names:
                self.db.execute(f"CREATE INDEX IF NOT EXISTS {name} ON rows ({columns})")
            else:
                self.db.execute(f"DROP INDEX IF EXISTS {name}")

    def reader(self) -> sqlite3.Connection:
        """A second connection that sees the state of now while this one goes on writing."""
        return sqlite3.connect(f"file:{self.path}?mode=ro", uri=True)

    def scratch(self, name: str) -> str:
        """The path of a file beside this one for work that a killed build does again; an older one is removed."""
        path = self.path.with_name(f"{name}.sqlite")
        path.unlink(missing_ok=True)
        return str(path)

    def seal(self) -> None:
        """Close the file for good: all that is in it lies in this one file."""
        self.commit()
        self.db.execute("PRAGMA journal_mode = DELETE")
        self.db.close()

    def add(self, rows: Iterable[Row], place: Place | None = None, numbers: Iterable[int] | None = None) -> int:
        """Append rows, their evidence as `place` gives it; returns how many. `numbers`: theirs, where not the next."""
        values = [self._values(row, place) for row in rows]
        if numbers is not None:
            values = [(number, *rest) for number, (_, *rest) in zip(numbers, values, strict=True)]
        self.db.executemany(_INSERT, values)
        return len(values)

    def add_copies(self, rows: Sequence[tuple[Any, ...]]) -> None:
        """Append rows of another staging database: all columns but the number, evidence and file as numbered here."""
        self.db.executemany(_INSERT, ((self._last + i, *row) for i, row in enumerate(rows, start=1)))
        self._last += len(rows)

    def add_judgments(
        self, rows: Iterable[Row], key: Callable[[Row], str], place: Place, numbers: Iterable[int]
    ) -> None:
        """Keep rows that are not yet rows of the data set: judgments, which are joined by `key` when all are there."""
        values = (
            (n, _digest(key(placed)), row.file, row.line, row.record, _pair_json(placed.pair))
            for n, row in zip(numbers, rows, strict=True)
            for placed in [_placed(row, place)]
        )
        self.judge_copies(values)

    def judge_copies(self, rows: Iterable[Sequence[Any]]) -> None:
        """Keep judgments as they are stored."""
        self.db.executemany("INSERT INTO judgments VALUES (?, ?, ?, ?, ?, ?)", rows)

    def judgments(self, first: int, last: int) -> Iterator[Row]:
        """The kept judgments with these numbers, in order."""
        query = f"SELECT {_JUDGMENT} FROM judgments WHERE n BETWEEN ? AND ? ORDER BY n"
        return (_judgment(values) for values in self.reader().execute(query, (first, last)))

    def joint_judgments(self, first: int, last: int, after: int) -> Iterator[tuple[int, list[Row]]]:
        """(number of the first, all) judgments of one key, by that number; of those whose first comes after `after`."""
        self.db.execute("CREATE INDEX IF NOT EXISTS judgments_key ON judgments (key, n)")
        self.commit()
        reader = self.reader()
        ends = "(SELECT {}(n) FROM judgments i WHERE i.key = j.key AND i.n BETWEEN ?1 AND ?2)"
        query = f"""SELECT n, key, {ends.format("MIN")}, {ends.format("MAX")}, {_JUDGMENT} FROM judgments j
            WHERE n > ?3 AND n <= ?2 ORDER BY n"""
        same = f"SELECT {_JUDGMENT} FROM judgments WHERE key = ? AND n BETWEEN ? AND ? ORDER BY n"
        for n, key, lowest, highest, *values in reader.execute(query, (first, last, after)):
            if n == lowest:
                all_of = [values] if n == highest else reader.execute(same, (key, n, highest))
                yield n, [_judgment(one) for one in all_of]

    def add_new(self, rows: Iterable[Row]) -> int:
        """Append the rows whose claim is not yet asked of their evidence; returns how many. Wants `rows_claim`."""
        known = "SELECT 1 FROM rows WHERE claim_key = ? AND e = ? LIMIT 1"
        before = self._last
        for row in rows:
            values = self._values(row)
            if self.db.execute(known, (values[1], values[2])).fetchone() is None:
                self.db.execute(_INSERT, values)
            else:
                self._last -= 1
        return self._last - before

    def copy_swapped(self, swaps: Sequence[tuple[int, str, str, str, int]]) -> None:
        """Append copies of rows that ask their claim of other evidence: (evidence, id, label, group, row number)."""
        numbered = ((self._last + i, *swap) for i, swap in enumerate(swaps, start=1))
        self.db.executemany(_SWAP, numbered)
        self._last += len(swaps)

    def _values(self, row: Row, place: Place | None = None) -> tuple[Any, ...]:
        pair = row.pair
        evidence = pair.evidence if place is None else place(pair.evidence)
        if pair.meta is not self._meta[0]:
            self._meta = (pair.meta, json.dumps(pair.meta, ensure_ascii=False, allow_nan=False))
        self._last += 1
        return (
            *(self._last, claim_key(pair.claim), self.evidence_number(evidence), KEPT),
            *(self.file_number(row.file), row.line, row.record),
            *(pair.id, pair.claim, pair.context, pair.label, pair.soft_label, pair.split, pair.group, pair.role),
            *(pair.origin, pair.modality, float(pair.weight)),  # SQLite has no place for an integer of 64 bits or more
            *(None if pair.teacher_margin is None else float(pair.teacher_margin), self._meta[1]),
        )

    def evidence_number(self, evidence: tuple[Evidence, ...]) -> int:
        """The number of a piece of evidence, stored if it is new."""
        if evidence is self._latest[0]:
            return self._latest[1]
        number = self._known.get(evidence)
        if number is None:
            if len(self._known) >= _CACHED_EVIDENCE:
                self._known.clear()
            number = self._known[evidence] = self._store(evidence)
        self._latest = (evidence, number)
        return number

    def _store(self, evidence: tuple[Evidence, ...]) -> int:
        text = evidence_json(evidence)
        digest = _digest(text)
        row = self.db.execute("SELECT e FROM evidence WHERE digest = ?", (digest,)).fetchone()
        if row is not None:
            return row[0]
        number = self.db.execute("INSERT INTO evidence (digest, json) VALUES (?, ?)", (digest, text)).lastrowid
        assert number is not None
        for part in evidence:
            for path in media_paths(part):
                alone = Image(path) if isinstance(part, Frames) else part  # each frame is a picture of its own
                entry = (path, number, json.dumps(evidence_to_dict(alone), ensure_ascii=False))
                self.db.execute("INSERT OR IGNORE INTO media VALUES (?, ?, ?)", entry)
        return number

    def file_number(self, file: str) -> int:
        """The number of an annotation file, noted if it is new."""
        if file not in self._files:
            self._files = {**(self.progress("files") or {})}
            self._files.setdefault(file, len(self._files))
            self.note("files", self._files)
        return self._files[file]

    def reject(self, items: Iterable[Rejected], place: int | None = None) -> None:
        """Keep what cannot be used, for the list at the end; `place` numbers the annotation, where one was read."""
        rows = ((item.file, item.line, item.kind, item.blocking, json.dumps(vars(item)), place) for item in items)
        self.reject_copies(rows)

    def reject_copies(self, rows: Iterable[Sequence[Any]]) -> None:
        """Keep rejections as they are stored: their columns but the number."""
        self.db.executemany(_REJECT, rows)

    def rejected(self, blocking: bool = False) -> Iterator[Rejected]:
        """Everything rejected so far, or what is blocking of it, by file and line."""
        query = "SELECT json FROM rejected WHERE blocking >= ? ORDER BY file, COALESCE(line, 0), number"
        return (Rejected(**json.loads(text)) for (text,) in self.db.execute(query, (blocking,)))

    def count_rejected(self, blocking: bool = False) -> dict[str, int]:
        """The number of rejections of each kind."""
        query = "SELECT kind, COUNT(*) FROM rejected WHERE blocking >= ? GROUP BY kind ORDER BY kind"
        return dict(self.db.execute(query, (blocking,)))

    def splits(self) -> list[Split]:
        """The splits that hold groups, in order; of a cross-fitting build its folds."""
        return in_order(split for (split,) in self.db.execute("SELECT DISTINCT split FROM groups"))

    def split_of(self, groups: Iterable[str]) -> Iterator[str]:
        """The split of each group."""
        splits = dict(self.db.execute("SELECT name, split FROM groups"))
        return (splits[group] for group in groups)

    def take_out(self, numbers: Iterable[int], why: int) -> None:
        """Mark rows as not part of the data set."""
        self.db.executemany("UPDATE rows SET out = ? WHERE n = ?", ((why, n) for n in numbers))

    def rows(
        self, where: str, parameters: Sequence[Any] = (), order: str = "r.n", db: sqlite3.Connection | None = None
    ) -> Iterator[Stored]:
        """Rows (alias `r`) that satisfy an SQL condition, as pairs, each with the split of its group (alias `g`)."""
        names = {number: file for file, number in (self.progress("files") or {}).items()}
        columns = ", ".join(f"r.{name.strip()}" for name in _PAIR_COLUMNS.split(","))
        query = f"""SELECT r.n, r.e, r.file, r.line, r.record, v.json, COALESCE(g.split, r.split), {columns}
            FROM rows r JOIN evidence v ON v.e = r.e LEFT JOIN groups g ON g.name = r.grp
            WHERE {where} ORDER BY {order}"""
        evidence: dict[int, tuple[Evidence, ...]] = {}
        for n, e, file, line, record, text, split, *values in (db or self.db).execute(query, parameters):
            if e not in evidence:
                if len(evidence) >= _CACHED_EVIDENCE:
                    evidence.clear()
                evidence[e] = evidence_of(text)
            yield Stored(n, e, Row(_pair(values, split, evidence[e]), names[file], line, record))


def _placed(row: Row, place: Place) -> Row:
    pair = dataclasses.replace(row.pair, evidence=place(row.pair.evidence))
    return Row(pair, row.file, row.line, row.record)


def _pair_json(pair: Pair) -> str:
    return _json({**vars(pair), "evidence": _dicts(pair.evidence)})


def _judgment(values: Sequence[Any]) -> Row:
    file, line, record, text = values
    return Row(Pair.from_dict(json.loads(text)), file, line, record)


def evidence_of(text: str) -> tuple[Evidence, ...]:
    """The evidence that `evidence_json` wrote."""
    return tuple(evidence_from_dict(part) for part in json.loads(text))


def _pair(values: Sequence[Any], split: Any, evidence: tuple[Evidence, ...]) -> Pair:
    name, claim, context, label, soft_label, _, group, role, origin, modality, weight, margin, meta = values
    return Pair(
        *(name, claim, evidence, label, context, soft_label, split, group, role, origin, modality, weight, margin),
        meta=json.loads(meta) if meta != "{}" else {},
    )
