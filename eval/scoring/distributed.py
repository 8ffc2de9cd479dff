"""Scoring by one or several processes into one file: blocks of evidence, in any order, joined in the order of the rows.

Rows are put together by evidence, and these cut into blocks, the same ones however many processes there are. Process r
of W begins with blocks r, r + W, ...; each is a predictions file of its own in `<file>.blocks/`, written by `score_to`.
As every block is scored by itself, who scores it, and when, changes nothing: who has done his own takes those that
nobody works on, a slow or dead process's too. The first process joins them. Processes meet in that folder only, where
a block is locked by who scores it; for one that stays locked the first process waits `wait_limit_s` and no longer.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from tqdm import tqdm

from ...core import Pair, RowError, evidence_key, launched_as
from ...models.decision import Decision, Judge
from .predictions import with_source
from .score import ScoringSummary, TakenError, difference, identity, into_place, score_to, scored

ROWS_PER_BLOCK = 256
WAIT_LIMIT_S = 6 * 3600.0
_POLL_S, _TELL_EVERY_S, _LINE_EVERY_S = 0.2, 60.0, 30.0


@dataclass(frozen=True)
class Block:
    """Rows that are scored together, and the predictions file that they are scored into."""

    file: Path
    rows: list[Pair]


BlockEngine = Callable[[Sequence[Block], dict[str, Any], bool, Callable[[int], Any]], None]
"""Scores blocks elsewhere, such as on a cluster: blocks, their source, whether to overwrite, and who hears of rows."""


@dataclass(frozen=True)
class Share:
    """Which of several processes this is: number `rank`, from 0, of `world`."""

    rank: int = 0
    world: int = 1

    @classmethod
    def of_launcher(cls) -> Share:
        """As accelerate launch, torchrun, or else srun number their processes; alone where nothing launched this."""
        if (wanted := _processes_left_out()) > 1:
            print(
                f"warning: --num_processes: accelerate starts one process under --cpu, got {wanted}; for that many "
                f"launch with --config_file configs/accelerate_ddp.yaml --num_processes {wanted}",
                file=sys.stderr,
            )
        return cls(*launched_as())


def _processes_left_out() -> int:
    """N of `accelerate launch --cpu --num_processes N`, which starts one process and says N nowhere else."""
    if "WORLD_SIZE" in os.environ or os.environ.get("ACCELERATE_USE_CPU", "").lower() not in ("true", "1"):
        return 0
    try:
        words = Path(f"/proc/{os.getppid()}/cmdline").read_text(encoding="utf-8", errors="replace").split("\0")
    except OSError:  # no Linux
        return 0
    wanted = re.search(r"--num[_-]processes[= ](\d+)", " ".join(words))
    return int(wanted[1]) if wanted else 0


def own_device() -> str | None:
    """Of one process, any; of several on a machine, one each, as the launcher numbers them."""
    import torch

    if os.environ.get("ACCELERATE_USE_CPU", "").lower() in ("true", "1"):
        return "cpu"
    local = os.environ.get("LOCAL_RANK", os.environ.get("SLURM_LOCALID"))
    if local is None or not torch.cuda.is_available():
        return None
    return f"cuda:{int(local) % torch.cuda.device_count()}"


def score_in_bulk(
    path: str | Path,
    verifier: Any,
    pairs: Sequence[Pair],
    source: dict[str, Any] | None = None,
    *,
    share: Share = Share(),
    operating_point: str | None = None,
    rows_per_block: int = ROWS_PER_BLOCK,
    progress: bool = True,
    overwrite: bool = False,
    tell: Callable[[str], Any] = print,
    finish: Callable[[pa.Table], pa.Table] | None = None,
    finish_source: Mapping[str, Any] | None = None,
    elsewhere: BlockEngine | None = None,
    wait_limit_s: float = WAIT_LIMIT_S,
) -> ScoringSummary | None:
    """Score pairs into a predictions file with two more columns: `verdict`, by the operating point, and `answer`.

    Args:
        path: Parquet file, on a disk that all processes share; rows in the order of `pairs`.
        verifier: a `Verifier` or a `Cascade`, without kept prefixes.
        pairs: all of them, in every process, with ids that differ.
        source: what else the file's metadata should say.
        share: which process this is.
        operating_point: name of the threshold that labels.
        rows_per_block: what an interruption may cost each process; more where many rows share evidence. Started again
            with another number, blocks are not known again.
        progress: a bar of this process's rows on stderr.
        overwrite: replace files of something else.
        tell: hears what the first process waits for.
        finish: makes the table that is written of the joined one; its rows may be more.
        finish_source: what else the metadata should say of the whole file, but not of its blocks: where only this
            changes, nothing is scored again.
        elsewhere: scores the blocks instead of this process, which then needs no more of the verifier than its
            fingerprint, decision, windowing and notes.
        wait_limit_s: seconds without a new block for which the first process waits for those that others hold.

    Returns:
        What the file holds; None in every process but the first.

    Raises:
        RowError: two pairs with one id, or files of another verifier, other pairs or another source.
        CalibrationError: no such operating point.
    """
    path, judge, source = Path(path), Judge(verifier.decision, operating_point), source or {}
    point = None if judge.point is None else judge.point.name
    whole = identity(verifier, pairs, source | {"operating_point": point} | dict(finish_source or {}))
    folder = path.with_name(f"{path.name}.blocks")
    if path.is_file() and not (overwrite and difference(path, whole)):
        if other := difference(path, whole):
            raise RowError(f"{path}: holds something else, got {other}; write to another file or pass overwrite")
        if share.rank == 0:
            shutil.rmtree(folder, ignore_errors=True)
        return scored(path, len(pairs)) if share.rank == 0 else None
    places = blocks_of(pairs, rows_per_block)
    blocks = [Block(folder / f"block-{n:06}.parquet", [pairs[i] for i in block]) for n, block in enumerate(places)]
    left = [b for b in blocks if not _is_there(b, verifier, source)]
    n_found = len(pairs) - sum(len(b.rows) for b in left)
    with _bar(len(pairs) if elsewhere else _of_share(blocks, share), n_found, progress and share.rank == 0) as bar:
        if elsewhere is not None:
            elsewhere(left, source, overwrite, bar.update)
        work = _Work(blocks, _WithBar(verifier, bar), source, overwrite, lambda: not difference(path, whole))
        work.score(share)
        if share.rank:
            return None
        work.wait(tell, wait_limit_s)
    _join(path, [b.file for b in blocks], places, judge, verifier.decision, whole, finish)
    shutil.rmtree(folder)
    return scored(path, n_found)


def blocks_of(pairs: Sequence[Pair], rows_per_block: int = ROWS_PER_BLOCK) -> list[list[int]]:
    """Places of the rows of each block, at least so many but in the last one; rows that share evidence are together."""
    same: dict[str, list[int]] = {}
    for place, pair in enumerate(pairs):
        same.setdefault(evidence_key(pair.evidence), []).append(place)
    blocks: list[list[int]] = [[]]
    for places in same.values():
        if len(blocks[-1]) >= max(rows_per_block, 1):
            blocks.append([])
        blocks[-1] += places
    return blocks


def _bar(total: int, n_found: int, shown: bool) -> Any:
    """Claims done, their rate and the time left; in a log, a line every half minute. Found rows are no work."""
    every_s = 0.1 if sys.stderr.isatty() else _LINE_EVERY_S
    return tqdm(total=total, initial=n_found, unit="claim", desc="scoring", disable=not shown, mininterval=every_s)


class _WithBar:
    """The verifier, whose every finished claim moves one bar over all blocks."""

    def __init__(self, verifier: Any, bar: Any) -> None:
        self.verifier, self.bar = verifier, bar
        self.fingerprint, self.decision, self.notes = verifier.fingerprint, verifier.decision, verifier.notes
        self.windowing = verifier.windowing

    def score_pairs(self, pairs: Sequence[Pair], progress: Any = None) -> Any:
        """As the verifier does."""
        return self.verifier.score_pairs(pairs, progress=self.bar.update)


@dataclass(frozen=True)
class _Work:
    """All blocks of a file, as one of several processes works on them; `is_joined` says that nothing is left."""

    blocks: Sequence[Block]
    verifier: Any
    source: dict[str, Any]
    overwrite: bool
    is_joined: Callable[[], bool]

    def score(self, share: Share) -> None:
        """Score one's own blocks in order, then others' from the last one back; leave out those that are taken."""
        own = self.blocks[share.rank :: share.world]
        others = [b for n, b in enumerate(self.blocks) if n % share.world != share.rank]
        for block in [*own, *reversed(others)]:
            self._score(block)

    def wait(self, tell: Callable[[str], Any], limit_s: float) -> None:
        """Until every block is there; takes over those that a process left. `RowError` where none comes in time."""
        left, since, told = list(self.blocks), time.monotonic(), time.monotonic()
        while still := [block for block in left if not self._score(block)]:
            now = time.monotonic()
            since = now if len(still) < len(left) else since
            left = still
            what = f"{len(left)} of {len(self.blocks)} blocks of other processes, first {left[0].file.name}"
            if now - since > limit_s:
                raise RowError(
                    f"{left[0].file.parent}: a block must come every {limit_s:g} s, got none while waiting for {what}; "
                    "end the process that holds it and run this again: it goes on, or wait longer (wait_limit_s)"
                )
            if now - told > _TELL_EVERY_S:
                told = now
                tell(f"waiting for {what}")
            time.sleep(_POLL_S)

    def _score(self, block: Block) -> bool:
        """Score a block unless it is there; False where another process is at it."""
        is_gone = not block.file.is_file() and self.is_joined()
        if is_gone or _is_there(block, self.verifier, self.source):
            return True
        options = {"rows_per_part": len(block.rows), "progress": False, "overwrite": self.overwrite}
        try:
            score_to(block.file, self.verifier, block.rows, self.source, **options)
        except TakenError:
            return False
        return True


def _is_there(block: Block, verifier: Any, source: dict[str, Any]) -> bool:
    """Whether a block's file holds its rows as this verifier scores them."""
    return block.file.is_file() and not difference(block.file, identity(verifier, block.rows, source))


def _of_share(blocks: Sequence[Block], share: Share) -> int:
    """Rows that a process begins with."""
    return sum(len(block.rows) for block in blocks[share.rank :: share.world])


def _join(
    path: Path,
    files: Sequence[Path],
    blocks: Sequence[Sequence[int]],
    judge: Judge,
    decision: Decision | None,
    source: dict[str, Any],
    finish: Callable[[pa.Table], pa.Table] | None,
) -> None:
    """All blocks in the order of the rows, with what the decision makes of them, whole or not at all."""
    table = pa.concat_tables([pq.read_table(file) for file in files])
    places = np.array([place for block in blocks for place in block], dtype=np.int64)
    if len(table) != len(places):
        raise RowError(f"{path}: blocks must hold {len(places)} rows, got {len(table)}; remove them and score again")
    table = with_source(table.take(pa.array(np.argsort(places))), source)
    p = table["p_supported"].to_numpy()
    judged, failed = ~np.isnan(p), np.isnan(p)
    columns: dict[str, Any] = {"verdict": None, "answer": None}
    if judge.point is not None:
        columns["verdict"] = np.where(judge.point.decide(p), "supported", "not_supported")
    if decision is not None and decision.abstain is not None:
        columns["answer"] = np.full(len(p), "", dtype=object)
        columns["answer"][judged] = decision.abstain.decide(p[judged])
    for name, values in columns.items():
        none = pa.nulls(len(p), pa.string())
        table = table.append_column(name, none if values is None else pa.array(values, pa.string(), mask=failed))
    temporary = files[0].with_name(".joined")
    pq.write_table(table if finish is None else finish(table), temporary)
    path.parent.mkdir(parents=True, exist_ok=True)
    into_place(temporary, path)
