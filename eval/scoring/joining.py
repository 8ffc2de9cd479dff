"""The blocks of a file joined in the order of the rows, a few thousand rows in memory at a time.

What a block adds to its claims is two numbers and perhaps a reason: these are put on disk by the claim's place, and
the rows are then written from the first to the last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ...core import Pair, RowError
from ...data_prep.exports import in_batches
from ...models.decision import Judge, Verdict
from .claim_store import ClaimStore, StoredBlock
from .predictions import as_table, with_source
from .score import into_place, prediction_of

Finish = Callable[[Iterator[pa.Table]], Iterator[pa.Table]]
"""Makes the tables that are written, at least one, of the joined ones."""
_ROWS_AT_ONCE = 8192


@dataclass(frozen=True)
class Block:
    """Rows that are scored together, and the predictions file that they are scored into."""

    file: Path
    store: ClaimStore
    stored: StoredBlock

    def rows(self) -> list[Pair]:
        """They are read whenever they are asked for."""
        return self.store.of_block(self.stored.number)


def join(
    path: Path,
    blocks: Sequence[Block],
    judge: Judge,
    source: dict[str, Any],
    finish: Finish | None,
) -> None:
    """All blocks in the order of the rows, with what the decision makes of them, whole or not at all."""
    scores = _Scores(blocks)
    tables = (with_source(_decided(table, judge), source) for table in scores.tables())
    written = tables if finish is None else finish(tables)
    temporary, first = blocks[0].file.with_name(".joined"), next(written)
    with pq.ParquetWriter(temporary, first.schema) as writer:
        for table in chain([first], written):
            writer.write_table(table)
    path.parent.mkdir(parents=True, exist_ok=True)
    into_place(temporary, path)


class _Scores:
    """What the blocks say of every claim, on disk: 16 bytes for each, by its place in the input."""

    def __init__(self, blocks: Sequence[Block]) -> None:
        self.store, folder = blocks[0].store, blocks[0].file.parent
        shape = max(self.store.n_items, 1)
        self.margins = np.memmap(folder / ".margins", np.float32, "w+", shape=shape)
        self.probabilities = np.memmap(folder / ".probabilities", np.float64, "w+", shape=shape)
        self.reasons = np.memmap(folder / ".reasons", np.int32, "w+", shape=shape)  # 0: none
        self.texts: dict[str | None, int] = {None: 0}  # many claims fail for one reason
        for block in blocks:
            self._take(block)

    def _take(self, block: Block) -> None:
        table = pq.read_table(block.file, columns=["margin", "p_supported", "error"])
        places = self.store.places_of_block(block.stored.number)
        if len(table) != len(places):
            raise RowError(f"{block.file}: must hold {len(places)} rows, got {len(table)}; remove it and score again")
        self.margins[places] = table["margin"].to_numpy()
        self.probabilities[places] = table["p_supported"].to_numpy()
        errors = table["error"].to_pylist()
        self.reasons[places] = [self.texts.setdefault(error, len(self.texts)) for error in errors]

    def tables(self) -> Iterator[pa.Table]:
        """Predictions in the order of the rows; one table at least."""
        texts = list(self.texts)
        for rows in in_batches(self.store.pairs(), _ROWS_AT_ONCE):
            verdicts = (
                Verdict(float(self.probabilities[n]), float(self.margins[n]), None, texts[self.reasons[n]])
                for n, _ in rows
            )
            yield as_table([prediction_of(pair, verdict) for (_, pair), verdict in zip(rows, verdicts, strict=True)])
        if not self.store.n_pairs:
            yield as_table([])


def _decided(table: pa.Table, judge: Judge) -> pa.Table:
    """The table with a verdict and an answer for each row that has a score."""
    p = table["p_supported"].to_numpy()
    judged, failed = ~np.isnan(p), np.isnan(p)
    columns: dict[str, Any] = {"verdict": None, "answer": None}
    if judge.point is not None:
        columns["verdict"] = np.where(judge.point.decide(p), "supported", "not_supported")
    if judge.decision is not None and judge.decision.abstain is not None:
        columns["answer"] = np.full(len(p), "", dtype=object)
        columns["answer"][judged] = judge.decision.abstain.decide(p[judged])
    for name, values in columns.items():
        none = pa.nulls(len(p), pa.string())
        table = table.append_column(name, none if values is None else pa.array(values, pa.string(), mask=failed))
    return table
