"""Score the rows of a data set with a verifier, into predictions that carry where they come from.

Scoring into a Parquet file that survives its process: killed at any moment and started again, it goes on.

Rows are scored in parts, in order, a part ending where the evidence changes. Each part is a predictions file of its
own in `<file>.partial/`, renamed into place when it is whole; at the end they are joined, the whole is renamed to its
final name, and the parts removed. A part is scored by itself, so a resumed run gives the rows of an uninterrupted one,
and only one part is in memory.

Every file records the verifier's fingerprint and a hash of the pairs: parts of anything else are refused.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import math
import os
import shutil
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from tqdm import tqdm

from ...core import Pair, RowError, evidence_key
from ...models.decision import Verdict
from ...models.verifier import Verifier
from ...models.zero_shot import HostedVerifier
from .predictions import Prediction, read_source, write_predictions


def predict(
    verifier: Verifier, pairs: Sequence[Pair], progress: bool = True, shrink_frames: bool = False
) -> list[Prediction]:
    """One prediction per pair, in order; failures carry their reason. Progress goes to stderr."""
    shrinking: dict[str, Any] = {"shrink_frames": True} if shrink_frames else {}  # an endpoint knows no such choice
    verdicts = verifier.score_pairs(pairs, progress=progress, **shrinking)
    return [prediction_of(pair, verdict) for pair, verdict in zip(pairs, verdicts, strict=True)]


def prediction_of(pair: Pair, verdict: Verdict) -> Prediction:
    """The row that says what a verifier said of a pair."""
    return Prediction(
        pair_id=pair.id,
        margin=verdict.margin,
        p_supported=verdict.p_supported if not math.isnan(verdict.margin) else math.nan,
        label=pair.label,
        split=pair.split,
        group=pair.group,
        role=pair.role,
        origin=pair.origin,
        modality=pair.modality,
        error=verdict.error,
        claim=pair.claim,
        evidence=evidence_key(pair.evidence),
    )


def question_of(judge: Verifier | HostedVerifier) -> dict[str, Any]:
    """What the predictions' source says of the question: the prompt's hash, and the labels whose first is the margin's.

    A student that asks another question, or orders its labels in another way, must not learn from these margins.
    """
    if isinstance(judge, HostedVerifier):
        return {"prompt_sha256": judge.prompt.sha256, "labels": list(judge.labels)}
    return {"prompt_sha256": judge.encoder.prompt.sha256, "labels": list(judge.head.labels)}


class TakenError(RowError):
    """Another process is writing this very file; it holds the lock until its end, by whatever death."""


ROWS_PER_PART = 1024
SHOWN_FAILURES = SHOWN_NOTES = 10


@dataclass(frozen=True)
class ScoringSummary:
    """What a predictions file holds.

    Attributes:
        n_rows: all rows.
        n_failed: those that the verifier could not judge.
        failures: the first of them, with the reason.
        n_found: rows that were there before.
        n_bad: rows that were no claim about evidence, where the file keeps them.
    """

    n_rows: int
    n_failed: int
    failures: tuple[tuple[str, str], ...]
    n_found: int
    n_bad: int = 0


def score_to(
    path: str | Path,
    verifier: Verifier,
    pairs: Sequence[Pair],
    source: dict[str, Any] | None = None,
    *,
    rows_per_part: int = ROWS_PER_PART,
    progress: bool = True,
    overwrite: bool = False,
    shrink_frames: bool = False,
) -> ScoringSummary:
    """Score pairs into a predictions file, going on where an earlier call was stopped.

    Args:
        path: Parquet file; if it is there and holds these predictions already, nothing is done.
        verifier: who scores; without kept prefixes (`prefix_cache_gib=0`), a resumed run makes the same batches.
        pairs: with ids that differ.
        source: what else the file's metadata should say (JSON values); `read_predictions` gives it back.
        rows_per_part: what an interruption may cost; a part is longer where many rows share evidence.
        progress: a bar on stderr.
        overwrite: replace a file, and drop parts, of something else.
        shrink_frames: where memory runs out even for one claim, judge the evidence on fewer frames; how many claims
            were, is said on stderr.

    Raises:
        RowError: two pairs with one id; a file or parts of another verifier, other pairs or another source.
    """
    shrinking: dict[str, Any] = {"shrink_frames": True} if shrink_frames else {}
    refuse_twice(pairs)
    path, source = Path(path), identity(verifier, pairs_sha256(pairs), (source or {}) | shrinking)
    if path.is_file() and not overwrite:
        _refuse_other(path, source)
        shutil.rmtree(_folder(path), ignore_errors=True)  # the last run ended between its last two steps
        return scored(path, len(pairs))
    with _alone(path) as parts:
        n_found = _begin(parts, source, overwrite)
        with tqdm(total=len(pairs), initial=n_found, unit="claim", desc="scoring", disable=not progress) as bar:
            for start, stop in _cuts(pairs, n_found, rows_per_part):
                verdicts = verifier.score_pairs(pairs[start:stop], progress=bar.update, **shrinking)
                for line in on_notes(verdicts, shrink_frames):
                    bar.write(line, file=sys.stderr)
                rows = [prediction_of(*both) for both in zip(pairs[start:stop], verdicts, strict=True)]
                _write(parts / _part_name(start, stop), rows, source)
        _join(parts, path, len(pairs))
        return scored(path, n_found)


def on_notes(verdicts: Sequence[Verdict], shrink_frames: bool) -> Iterator[str]:
    """What is said on stderr of verdicts that have a note: memory where it made evidence another, then of media."""
    noted = Counter(verdict.note for verdict in verdicts if verdict.note is not None)
    of_memory = {note: n for note, n in noted.items() if "memory ran out" in note}
    if of_memory and shrink_frames:
        yield f"memory ran out for {sum(of_memory.values())} claims, the first: {next(iter(of_memory))}"
    others = [(note, n) for note, n in noted.items() if note not in of_memory]
    yield from (f"note, for {n} claims: {note}" for note, n in others[:SHOWN_NOTES])
    if len(others) > SHOWN_NOTES:
        yield f"and {len(others) - SHOWN_NOTES} other notes"


def pairs_sha256(pairs: Iterable[Pair]) -> str:
    """Hash of all that pairs say, in their order; of media files only the names."""
    return lines_sha256(map(pair_line, pairs))


def pair_line(pair: Pair) -> str:
    """A pair as the line of JSON that is hashed."""
    return json.dumps(pair.to_dict(), sort_keys=True, ensure_ascii=True)


def lines_sha256(lines: Iterable[str]) -> str:
    """Hash of pairs that are lines of JSON."""
    digest = hashlib.sha256()
    for line in lines:
        digest.update(line.encode() + b"\n")
    return digest.hexdigest()


_HEAD, _LOCK = "head.parquet", "lock"


def _folder(path: Path) -> Path:
    return path.with_name(f"{path.name}.partial")


def _part_name(start: int, stop: int) -> str:
    return f"rows-{start:010}-{stop:010}.parquet"


@contextmanager
def _alone(path: Path) -> Iterator[Path]:
    """The folder of a file's parts, ours alone; removed once the file is whole, kept while it is not."""
    parts = _folder(path)
    parts.mkdir(parents=True, exist_ok=True)
    with (parts / _LOCK).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # the kernel lets go, by whatever death
        except BlockingIOError:
            raise TakenError(f"{path}: another process is writing it, got a locked {parts}; wait for its end") from None
        yield parts
        shutil.rmtree(parts)


def refuse_twice(pairs: Sequence[Pair]) -> None:
    """`RowError` for an id that occurs twice."""
    seen: set[str] = set()
    for pair in pairs:
        if pair.id in seen:
            raise RowError(f"pairs: an id occurs twice, got {pair.id!r}; number the rows")
        seen.add(pair.id)


def identity(verifier: Verifier, sha256_of_pairs: str, source: dict[str, Any]) -> dict[str, Any]:
    """The source of the predictions: what must be equal for parts to belong together."""
    identity_of = source | {
        "verifier_fingerprint": verifier.fingerprint,
        "calibrated": verifier.decision is not None,
        "pairs_sha256": sha256_of_pairs,
    }
    if verifier.windowing is not None:
        identity_of["aggregation"] = verifier.windowing.rule
    if verifier.notes:
        identity_of["verifier_notes"] = list(verifier.notes)
    return json.loads(json.dumps(identity_of))


def _begin(parts: Path, source: dict[str, Any], overwrite: bool) -> int:
    """Start in an empty folder, or check what an earlier run left; how many rows it holds."""
    started = (parts / _HEAD).is_file()
    if started and not overwrite:
        _refuse_other(parts / _HEAD, source)
    done = _done(parts) if started and not difference(parts / _HEAD, source) else []
    kept = {_LOCK, *(_part_name(*both) for both in done), *([_HEAD] if done else [])}
    for file in sorted(parts.iterdir(), reverse=True):  # the head last, as it tells what the others are
        if file.name not in kept:
            file.unlink()
    if not done:
        _write(parts / _HEAD, [], source)
    return done[-1][1] if done else 0


def _done(parts: Path) -> list[tuple[int, int]]:
    """(start, stop) rows of the parts that follow one another from the first row on."""
    parts_done: list[tuple[int, int]] = []
    for name in sorted(p.stem.split("-") for p in parts.glob("rows-*.parquet")):
        if int(name[1]) == (parts_done[-1][1] if parts_done else 0):
            parts_done.append((int(name[1]), int(name[2])))
    return parts_done


def _cuts(pairs: Sequence[Pair], start: int, rows_per_part: int) -> Iterator[tuple[int, int]]:
    """(start, stop) of the parts still to be scored; rows in a row that share evidence stay together."""
    while start < len(pairs):
        stop = min(start + max(rows_per_part, 1), len(pairs))
        while stop < len(pairs) and pairs[stop].evidence == pairs[stop - 1].evidence:
            stop += 1
        yield start, stop
        start = stop


def _write(path: Path, rows: Sequence[Prediction], source: dict[str, Any]) -> None:
    """A whole file under its name, or none."""
    temporary = path.with_name(f".{path.name}")
    write_predictions(temporary, rows, source)
    into_place(temporary, path)


def _join(parts: Path, path: Path, n_rows: int) -> None:
    temporary = parts / ".joined"
    with pq.ParquetWriter(temporary, pq.read_schema(parts / _HEAD)) as writer:
        for start, stop in _done(parts):
            writer.write_table(pq.read_table(parts / _part_name(start, stop)))
    if (n_joined := pq.read_metadata(temporary).num_rows) != n_rows:
        raise RowError(f"{parts}: must hold {n_rows} rows, got {n_joined}; remove the folder and score again")
    into_place(temporary, path)


def into_place(temporary: Path, path: Path) -> None:
    with temporary.open("rb") as file:
        os.fsync(file.fileno())
    temporary.replace(path)


def difference(path: Path, source: dict[str, Any]) -> str:
    """What tells a file's source from this one; empty if nothing does."""
    try:
        stored = read_source(path, pq.read_schema(path).metadata or {})
    except FileNotFoundError:  # or no longer there: who joins a file removes its blocks
        stored = {}
    keys = [key for key in {**source, **stored} if stored.get(key) != source.get(key)]
    return ", ".join(f"{key} {stored.get(key)!r} instead of {source.get(key)!r}" for key in keys)


def _refuse_other(path: Path, source: dict[str, Any]) -> None:
    if other := difference(path, source):
        raise RowError(
            f"{path}: holds predictions of something else, got {other}; write to another file, remove it, or "
            "pass overwrite"
        )


def scored(path: Path, n_found: int) -> ScoringSummary:
    """What a whole file holds."""
    failures: list[tuple[str, str]] = []
    file, n_failed, n_bad = pq.ParquetFile(path), 0, 0
    columns = [name for name in ("pair_id", "error", "status") if name in file.schema_arrow.names]
    for batch in file.iter_batches(columns=columns):
        rows = [row for row in batch.to_pylist() if row["error"] is not None]
        failed = [(row["pair_id"], row["error"]) for row in rows if row.get("status") != "bad"]
        n_failed, n_bad = n_failed + len(failed), n_bad + len(rows) - len(failed)
        failures += failed[: SHOWN_FAILURES - len(failures)]
    return ScoringSummary(file.metadata.num_rows, n_failed, tuple(failures), n_found, n_bad)
