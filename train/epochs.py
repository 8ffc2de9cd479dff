"""The batches of an epoch: the order of its rows, and loader workers that may die.

torch tells of a dead worker by a signal handler that raises wherever the process happens to be, in the middle of an
optimiser step, say. Here nothing is raised but by the loader itself, when it is asked for the next batch.

Apart from the trainer because processes and signals are its subject, not losses and metrics.
"""

from __future__ import annotations

import math
import signal
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from accelerate import skip_first_batches
from torch.utils.data import Sampler

from .dataset import IDLE, BatchedRows, GroupDataset
from .faults import RunError, dead_workers

_NAMED = 3  # rows named in a message


class EpochOrder(Sampler[int]):
    """Every row of an epoch once, in an order that depends on seed and epoch only, however many processes share it.

    Where processes share an epoch, `IDLE` rows fill up its last batches: left to accelerate, other rows would come
    twice to the ranks that run short, and count twice.
    """

    def __init__(self, n_rows: int, multiple: int, seed: int, shuffle: bool = True) -> None:
        """`multiple` is what all processes take in one micro-batch; 1 needs no filling up."""
        self.n_rows, self.multiple, self.seed, self.shuffle = n_rows, multiple, seed, shuffle
        self._epoch = 0

    def start(self, epoch: int) -> None:
        """Give the order of this epoch from now on."""
        self._epoch = epoch

    def __len__(self) -> int:
        """Rows of an epoch, idle ones among them."""
        return math.ceil(self.n_rows / self.multiple) * self.multiple

    def __iter__(self) -> Iterator[int]:
        """Indices of rows, idle ones last."""
        generator = torch.Generator().manual_seed(self.seed + self._epoch)
        yield from torch.randperm(self.n_rows, generator=generator).tolist() if self.shuffle else range(self.n_rows)
        yield from [IDLE] * (len(self) - self.n_rows)


class BatchStream:
    """Hands out the batches of an epoch; where a worker died over a row that may be left out, goes on without it."""

    def __init__(self, loader: Any, skip: bool) -> None:
        """`loader` is accelerate's; `skip` leaves the row out that a worker died over, else it stops the run."""
        self.loader, self.skip = loader, skip
        self._restarted: Iterator[Any] | None = None
        self._taken = 0

    def begin(self, taken: int) -> None:
        """A new epoch, of which `taken` batches were taken before the run was resumed."""
        self._restarted, self._taken = None, taken

    def next(self, iterator: Iterator[Any]) -> Any:
        """The next batch, of the epoch's iterator or of the one that took its place.

        Raises:
            StopIteration: there is none.
            RunError: a worker died, and the row may not be left out, or no row was to blame.
        """
        while True:
            try:
                batch = next(self._restarted or iterator)
            except RuntimeError as error:
                survive(error, self.loader.dataset, self.skip)
                self.loader.end()
                self.loader.base_dataloader._iterator = None  # of persistent workers, one of which is no more
                self._restarted = iter(skip_first_batches(self.loader, self._taken))
            else:
                self._taken += 1
                return batch
            finally:
                _leave_child_signals()


def survive(error: RuntimeError, dataset: Any, skip: bool) -> None:
    """Mark the row that a loader worker died over as not to be read again; raise what cannot be survived.

    Raises:
        RuntimeError: `error`, if it is about something else.
        RunError: names the row, where it may not be left out or there is none.
    """
    if not (pids := dead_workers(error)):
        raise error
    rows: GroupDataset = dataset.rows if isinstance(dataset, BatchedRows) else dataset
    blamed = [i for i in rows.reading.of(pids) if i not in rows.dead]
    what = f"a loader worker died while it read this, got: {str(error).strip()}"
    if not skip or not blamed:
        names = "; ".join(f"row {few([p.id for p in rows.groups[i]])}" for i in blamed) or "no row"
        raise RunError(
            f"{names}: {what}; give workers more memory or take fewer (dataloader_num_workers), re-encode the file, or "
            "leave the row out (bad_rows: skip)"
        ) from error
    rows.dead.update(dict.fromkeys(blamed, what))


def few(ids: Sequence[str]) -> str:
    """Names of rows, a few of many."""
    return ", ".join(ids[:_NAMED]) + (f" and {len(ids) - _NAMED} more" if len(ids) > _NAMED else "")


def _leave_child_signals() -> None:
    """Undo torch's handler of a child's death; without it the loader looks whether its workers live as it waits."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
