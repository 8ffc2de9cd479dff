"""Claims on disk while they are scored: read once, by one process, and opened block by block by all.

One SQLite file holds every item of the input in order, a pair as the line of JSON that is hashed, and which of them
make a block. It is written in passes over the disk, so that memory does not grow with the claims, then renamed into
place and only read. Whoever comes first writes it, under a lock; who comes later with the same `key` finds it, after a
stop too. It lies in the folder of the blocks and goes with it.
"""

from __future__ import annotations

import dataclasses
import errno
import fcntl
import hashlib
import json
import os
import shutil
import sqlite3
import sys
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from ...core import Pair, RowError, evidence_key
from ...data_prep.exports import ClaimRow, ClaimStream, repeated
from ...data_prep.importers import Rejected
from ...data_prep.media import picture_directory
from .score import lines_sha256, pair_line, pairs_sha256, refuse_twice

FILE, _LOCK = "claims.sqlite", "claims.lock"
WAIT_LIMIT_S = 6 * 3600.0
_FORMAT = 1
_POLL_S, _TELL_EVERY_S, _LINE_EVERY_S = 0.2, 60.0, 30.0
_SCHEMA = """
PRAGMA journal_mode = OFF;
PRAGMA synchronous = OFF;
PRAGMA locking_mode = EXCLUSIVE;
PRAGMA cache_size = -65536;
CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT);
CREATE TABLE files (file INTEGER PRIMARY KEY, name TEXT UNIQUE);
CREATE TABLE items (n INTEGER PRIMARY KEY, file INTEGER, line INTEGER, id BLOB, evidence BLOB, json TEXT);
CREATE TABLE evidence (first INTEGER PRIMARY KEY, digest BLOB, rows INTEGER, block INTEGER);
CREATE TABLE blocks (block INTEGER PRIMARY KEY, rows INTEGER, sha256 TEXT);
"""
_EVERY_ROW = "SELECT name, line, id IS NOT NULL, json FROM items CROSS JOIN files USING (file) ORDER BY n"
_IN_BLOCKS = "FROM evidence e CROSS JOIN items i ON i.evidence = e.digest"  # in this order of loops: no sorting


@dataclass(frozen=True)
class StoredBlock:
    """Rows that are scored together: which block they are, how many, and the hash of what they say."""

    number: int
    n_rows: int
    sha256: str


class ClaimStore:
    """Claims that `store_claims` wrote, of which only what is asked for is in memory.

    Attributes:
        path: its file.
        format, unused: of the file of claims, as `ClaimFile` has them.
        n_items: all items of the input; n_pairs, n_rejected: those that are claims about evidence, and the others.
        pairs_sha256: hash of all pairs in order.
        has_pictures: pictures were in the file of claims itself; reading it keeps them on the machine that reads.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._db = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)
        weakref.finalize(self, self._db.close)
        facts = {name: json.loads(value) for name, value in self._db.execute("SELECT * FROM facts")}
        self.key: dict[str, Any] = facts["key"]
        self.format: str = facts["format"]
        self.unused: tuple[str, ...] = tuple(facts["unused"])
        self.n_items: int = facts["n_items"]
        self.n_pairs: int = facts["n_pairs"]
        self.n_rejected = self.n_items - self.n_pairs
        self.pairs_sha256: str = facts["pairs_sha256"]
        self.has_pictures: bool = facts["has_pictures"]

    @property
    def rows(self) -> Iterator[ClaimRow]:
        """Every item in order."""
        for file, line, is_pair, text in self._db.execute(_EVERY_ROW):
            item = json.loads(text)
            yield ClaimRow(json.loads(file), line, Pair.from_dict(item) if is_pair else Rejected(**item))

    def rejected(self) -> Iterator[Rejected]:
        """The items that are no claim about evidence, or repeat an id."""
        for (text,) in self._db.execute("SELECT json FROM items WHERE id IS NULL ORDER BY n"):
            yield Rejected(**json.loads(text))

    def pairs(self) -> Iterator[tuple[int, Pair]]:
        """Place among all items and pair, in order."""
        for place, text in self._db.execute("SELECT n, json FROM items WHERE id IS NOT NULL ORDER BY n"):
            yield place, Pair.from_dict(json.loads(text))

    def has(self, id: str) -> bool:
        """Whether a pair is called so."""
        return self._db.execute("SELECT 1 FROM items WHERE id = ?", (_text(id),)).fetchone() is not None

    def discard(self) -> None:
        """Remove the claims, where no block was begun: who scores again reads them again."""
        folder = self.path.parent
        if folder.is_dir() and {file.name for file in folder.iterdir()} <= {FILE, _LOCK}:
            remove_claims(folder)

    def blocks(self) -> list[StoredBlock]:
        """All blocks, without their rows; one that is empty where there is no pair."""
        return [StoredBlock(*row) for row in self._db.execute("SELECT * FROM blocks ORDER BY block")]

    def of_block(self, number: int) -> list[Pair]:
        """The rows of a block: those that share evidence together, in the order in which evidence is first met."""
        return [Pair.from_dict(json.loads(text)) for (text,) in self._of_block("i.json", number)]

    def places_of_block(self, number: int) -> NDArray[np.int64]:
        """The places of a block's rows among all items, shape (rows,)."""
        return np.array([place for (place,) in self._of_block("i.n", number)], dtype=np.int64)

    def _of_block(self, column: str, number: int) -> sqlite3.Cursor:
        query = f"SELECT {column} {_IN_BLOCKS} WHERE e.block = ? ORDER BY e.first, i.n"
        return self._db.execute(query, (number,))


def store_claims(
    folder: Path,
    key: Mapping[str, Any],
    claims: Callable[[], ClaimStream],
    *,
    rows_per_block: int,
    progress: bool = False,
    tell: Callable[[str], Any] = print,
    wait_limit_s: float = WAIT_LIMIT_S,
) -> ClaimStore:
    """The claims of `folder`, written there unless they are there.

    Args:
        folder: of the blocks; all processes share it.
        key: what the claims are of, JSON values; claims of another key are replaced.
        claims: opens the input, if it must be read. A second pair with an id becomes a rejected one.
        rows_per_block: a block has at least so many, but for the last one, and whole evidences.
        progress: a bar of the items read on stderr.
        tell: hears that another process is reading.
        wait_limit_s: how long to wait for it.

    Raises:
        RowError: another process holds the lock for longer than that.
    """
    key = json.loads(json.dumps({"format_of_store": _FORMAT, "rows_per_block": rows_per_block, **key}))
    with _lock_of(folder, tell, wait_limit_s):
        path = folder / FILE
        if not (path.is_file() and _is_of(path, key)):
            temporary = folder / f".{FILE}"
            temporary.unlink(missing_ok=True)
            with _room_said(path), closing(sqlite3.connect(temporary, isolation_level=None)) as db:
                db.executescript(_SCHEMA)
                with _sorting_in(folder, db):
                    _write(db, key, claims(), progress)
            temporary.replace(path)
            return ClaimStore(path)
        store = ClaimStore(path)
    if store.has_pictures:  # they are kept on each machine, and may have been deleted since
        for _ in claims().rows():
            pass
    return store


def store_pairs(folder: Path, pairs: Sequence[Pair], rows_per_block: int) -> ClaimStore:
    """The same of pairs that are in memory; `RowError` where two have one id."""
    refuse_twice(pairs)
    key = {"pairs_sha256": pairs_sha256(pairs)}
    rows = ClaimStream(lambda: (ClaimRow("", None, pair) for pair in pairs), "")
    return store_claims(folder, key, lambda: rows, rows_per_block=rows_per_block)


@contextmanager
def _room_said(path: Path) -> Iterator[None]:
    """What SQLite says of a full disk, as the operating system says it."""
    try:
        yield
    except sqlite3.OperationalError as error:
        if "full" not in str(error):
            raise
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path)) from error


@contextmanager
def _sorting_in(folder: Path, db: sqlite3.Connection) -> Iterator[None]:
    """Sorting needs as much room as what is sorted: it is taken where the claims lie."""
    quoted = str(folder.absolute()).replace("'", "''")
    db.execute(f"PRAGMA temp_store_directory = '{quoted}'")  # of this process, so it is set back
    try:
        yield
    finally:
        db.execute("PRAGMA temp_store_directory = ''")


def _is_of(path: Path, key: Mapping[str, Any]) -> bool:
    try:
        return ClaimStore(path).key == key
    except (sqlite3.DatabaseError, KeyError, TypeError):
        return False


def remove_claims(folder: Path) -> None:
    """Remove a folder of claims and blocks. If somebody is reading claims into it, he will find that they are done."""
    with suppress(FileNotFoundError, BlockingIOError), (folder / _LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)


def _lock_of(folder: Path, tell: Callable[[str], Any], limit_s: float) -> TextIO:
    """The open file whose lock makes the folder's claims ours alone; the kernel lets go, by whatever death."""
    began = told = time.monotonic()
    while (lock := _try_lock(folder)) is None:
        now = time.monotonic()
        if now - began > limit_s:
            raise RowError(f"{folder}: another process reads the claims, got no end of it in {limit_s:g} s; end it")
        if now - told > _TELL_EVERY_S:
            told = now
            tell("waiting for the process that reads the claims")
        time.sleep(_POLL_S)
    return lock


def _try_lock(folder: Path) -> TextIO | None:
    """None where another has the lock, or had it and removed the folder with it."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        lock = (folder / _LOCK).open("w")
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _is_there(folder / _LOCK, lock.fileno()):
            return lock
    except BlockingIOError:
        pass
    lock.close()
    return None


def _is_there(path: Path, descriptor: int) -> bool:
    """Whether an open file is still the one of this name."""
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _write(db: sqlite3.Connection, key: Mapping[str, Any], claims: ClaimStream, progress: bool) -> None:
    facts: dict[str, Any] = {"key": key, "format": claims.format, "unused": list(claims.unused)}
    db.execute("BEGIN")
    every_s = 0.1 if sys.stderr.isatty() else _LINE_EVERY_S
    shown = tqdm(claims.rows(), unit="claim", desc="reading", disable=not progress, mininterval=every_s)
    db.executemany("INSERT INTO items VALUES (?, ?, ?, ?, ?, ?)", _items(db, shown))
    db.execute("CREATE INDEX by_id ON items (id) WHERE id IS NOT NULL")
    _reject_repeated(db)
    db.execute("CREATE INDEX by_evidence ON items (evidence, n) WHERE evidence IS NOT NULL")
    _cut_into_blocks(db, key["rows_per_block"])
    pairs = (text for (text,) in db.execute("SELECT json FROM items WHERE id IS NOT NULL ORDER BY n"))
    facts["pairs_sha256"] = lines_sha256(pairs)
    pictures = json.dumps(str(picture_directory()))[1:-1]
    found = db.execute("SELECT EXISTS (SELECT 1 FROM items WHERE id IS NOT NULL AND INSTR(json, ?))", (pictures,))
    facts["has_pictures"] = bool(found.fetchone()[0])
    facts["n_items"], facts["n_pairs"] = db.execute("SELECT COUNT(*), COUNT(id) FROM items").fetchone()
    db.executemany("INSERT INTO facts VALUES (?, ?)", ((name, json.dumps(value)) for name, value in facts.items()))
    db.execute("COMMIT")


def _items(db: sqlite3.Connection, rows: Iterable[ClaimRow]) -> Iterator[tuple[Any, ...]]:
    files: dict[str, int] = {}
    for n, row in enumerate(rows):
        if row.file not in files:
            files[row.file] = len(files)
            db.execute("INSERT INTO files VALUES (?, ?)", (files[row.file], json.dumps(row.file)))
        yield n, files[row.file], row.line, *_stored(row)


def _stored(row: ClaimRow) -> tuple[bytes | None, bytes | None, str]:
    """Id, hash of the evidence, and all of it as JSON; the first two are of pairs only."""
    if isinstance(row.item, Rejected):
        return None, None, json.dumps(dataclasses.asdict(row.item))
    evidence = hashlib.blake2b(_text(evidence_key(row.item.evidence)), digest_size=16)
    return _text(row.item.id), evidence.digest(), pair_line(row.item)


def _text(text: str) -> bytes:
    """As SQLite takes any text, also halves of characters that JSON may hold."""
    return text.encode("utf-8", "surrogatepass")


def _reject_repeated(db: sqlite3.Connection) -> None:
    """Every pair but the first of an id becomes a rejected item."""
    for (id,) in db.execute("SELECT id FROM items WHERE id IS NOT NULL GROUP BY id HAVING COUNT(*) > 1").fetchall():
        same = db.execute("SELECT n FROM items WHERE id = ? ORDER BY n", (id,)).fetchall()
        for (n,) in same[1:]:
            file, line, text = db.execute(
                "SELECT name, line, json FROM items JOIN files USING (file) WHERE n = ?", (n,)
            ).fetchone()
            row = repeated(ClaimRow(json.loads(file), line, Pair.from_dict(json.loads(text))))
            db.execute("UPDATE items SET (id, evidence, json) = (?, ?, ?) WHERE n = ?", (*_stored(row), n))


def _cut_into_blocks(db: sqlite3.Connection, rows_per_block: int) -> None:
    """Number the blocks of evidences, in the order in which these are first met, and hash what each block says."""
    same = db.execute(
        "SELECT MIN(n), evidence, COUNT(*) FROM items WHERE evidence IS NOT NULL GROUP BY evidence ORDER BY MIN(n)"
    )
    db.executemany("INSERT INTO evidence VALUES (?, ?, ?, ?)", _in_blocks(same, rows_per_block))
    db.execute("CREATE INDEX by_block ON evidence (block, first)")
    texts = db.execute(f"SELECT e.block, i.json {_IN_BLOCKS} ORDER BY e.first, i.n")
    hashed = ((block, lines_sha256(text for _, text in rows)) for block, rows in groupby(texts, key=itemgetter(0)))
    db.executemany("INSERT INTO blocks SELECT ?1, SUM(rows), ?2 FROM evidence WHERE block = ?1 GROUP BY block", hashed)
    if not db.execute("SELECT 1 FROM blocks").fetchone():
        db.execute("INSERT INTO blocks VALUES (0, 0, ?)", (lines_sha256(()),))


def _in_blocks(evidences: Iterable[tuple[int, bytes, int]], rows_per_block: int) -> Iterator[tuple[Any, ...]]:
    block = held = 0
    for first, digest, n_rows in evidences:
        if held >= max(rows_per_block, 1):
            block, held = block + 1, 0
        held += n_rows
        yield first, digest, n_rows, block
