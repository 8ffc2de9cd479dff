"""Scoring by one or several processes into one file: blocks of evidence, in any order, joined in the order of the rows.

Rows are put together by evidence, and these cut into blocks, the same ones however many processes there are. The claims
lie on disk (`claim_store`), and a process opens the blocks that it scores. Process r of W begins with blocks r, r + W,
...; each is a predictions file of its own in `<file>.blocks/`, written by `score_to`. As every block is scored by
itself, who scores it, and when, changes nothing: who has done his own takes those that nobody works on, a slow or dead
process's too. The first process joins them (`joining`). Processes meet in that folder only, where a block is locked by
who scores it; for one that stays locked the first process waits `wait_limit_s` and no longer.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tqdm import tqdm

from ...core import Pair, RowError, launched_as
from ...models.decision import Judge
from .claim_store import WAIT_LIMIT_S, ClaimStore, remove_claims, store_pairs
from .joining import Block, Finish, join
from .score import ScoringSummary, TakenError, difference, identity, score_to, scored

ROWS_PER_BLOCK = 256
_POLL_S, _TELL_EVERY_S, _LINE_EVERY_S = 0.2, 60.0, 30.0


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


def blocks_folder(path: Path) -> Path:
    """Where the claims and blocks of a file are while it is scored."""
    return path.with_name(f"{path.name}.blocks")


def score_in_bulk(
    path: str | Path,
    verifier: Any,
    claims: ClaimStore | Sequence[Pair],
    source: dict[str, Any] | None = None,
    *,
    share: Share = Share(),
    operating_point: str | None = None,
    rows_per_block: int = ROWS_PER_BLOCK,
    progress: bool = True,
    overwrite: bool = False,
    tell: Callable[[str], Any] = print,
    finish: Finish | None = None,
    finish_source: Mapping[str, Any] | None = None,
    elsewhere: BlockEngine | None = None,
    wait_limit_s: float = WAIT_LIMIT_S,
) -> ScoringSummary | None:
    """Score claims into a predictions file with two more columns: `verdict`, by the operating point, and `answer`.

    Args:
        path: Parquet file, on a disk that all processes share; rows in the order of `claims`.
        verifier: a `Verifier` or a `Cascade`, without kept prefixes.
        claims: stored in `blocks_folder(path)`, or pairs with ids that differ, the same in every process.
        source: what else the file's metadata should say.
        share: which process this is.
        operating_point: name of the threshold that labels.
        rows_per_block: of pairs, what an interruption may cost each process; more where many rows share evidence.
            Started again with another number, blocks are not known again.
        progress: a bar of this process's rows on stderr.
        overwrite: replace files of something else.
        tell: hears what the first process waits for.
        finish: makes the tables that are written of the joined ones, which come in order; their rows may be more.
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
    folder = blocks_folder(path)
    store = claims if isinstance(claims, ClaimStore) else store_pairs(folder, claims, rows_per_block)
    more = {"operating_point": point} | dict(finish_source or {})
    whole = identity(verifier, store.pairs_sha256, source | more)
    if path.is_file() and not (overwrite and difference(path, whole)):
        if other := difference(path, whole):
            raise RowError(f"{path}: holds something else, got {other}; write to another file or pass overwrite")
        remove_claims(folder)
        return scored(path, store.n_pairs) if share.rank == 0 else None
    blocks = [Block(folder / f"block-{b.number:06}.parquet", store, b) for b in store.blocks()]
    left = [b for b in blocks if not _is_there(b, verifier, source)]
    n_found = store.n_pairs - _n_rows(left)
    n_mine = store.n_pairs if elsewhere else _n_rows(blocks[share.rank :: share.world])
    with _bar(n_mine, n_found, progress and share.rank == 0) as bar:
        if elsewhere is not None:
            elsewhere(left, source, overwrite, bar.update)
        work = _Work(blocks, _WithBar(verifier, bar), source, overwrite, lambda: not difference(path, whole))
        work.score(share)
        if share.rank:
            if work.is_joined():
                remove_claims(folder)  # what this process may have put there since
            return None
        work.wait(tell, wait_limit_s)
    join(path, blocks, judge, whole, finish)
    remove_claims(folder)
    return scored(path, n_found)


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
        if _is_there(block, self.verifier, self.source) or (not block.file.is_file() and self.is_joined()):
            return True
        options = {"rows_per_part": block.stored.n_rows, "progress": False, "overwrite": self.overwrite}
        try:
            score_to(block.file, self.verifier, block.rows(), self.source, **options)
        except TakenError:
            return False
        except FileNotFoundError:  # the first process joined the file meanwhile, and removed what this one was at
            if not self.is_joined():
                raise
        return True


def _is_there(block: Block, verifier: Any, source: dict[str, Any]) -> bool:
    """Whether a block's file holds its rows as this verifier scores them."""
    return not difference(block.file, identity(verifier, block.stored.sha256, source))


def _n_rows(blocks: Iterable[Block]) -> int:
    return sum(block.stored.n_rows for block in blocks)
