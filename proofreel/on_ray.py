"""Score a Ray Dataset of rows with a verifier: grouped by evidence by Ray, one Parquet part for each group of rows.

    from proofreel.on_ray import RayWorkers, score
    score(ray.data.read_parquet("claims/"), "verifier", "scored/", parts=4096, workers=RayWorkers(64, gpus_each=1))

No process holds all rows. The module is not called `ray`: a script started as `python proofreel/score.py` has this
folder first on its path, and would find it in place of the package.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from proofreel.core import ConfigError, Pair, ProofreelError, evidence_key, problems_of
from proofreel.data_prep.media import FrameCache
from proofreel.eval.scoring import (
    Prediction,
    RayWorkers,
    Stages,
    facts_of,
    packed,
    quiet_data,
    ray_cluster,
    write_predictions,
)
from proofreel.models.cascades import Cascade, is_cascade
from proofreel.models.directory import find_verifier
from proofreel.models.questions import as_pairs
from proofreel.models.verifier import Verifier

__all__ = ["RayWorkers", "score"]

BAD = ".bad.parquet"
_NAN = float("nan")


def score(
    dataset: Any,
    verifier: str | Path,
    out: str | Path,
    *,
    parts: int,
    workers: RayWorkers | None = None,
    media_root: str | Path | None = None,
    frame_cache: FrameCache | None = None,
    prior: float | None = None,
    overwrite: bool = False,
    **options: Any,
) -> int:
    """Score every row of a Dataset into a folder of predictions files.

    Args:
        dataset: a Ray Dataset whose rows name a claim, its evidence and an `id` (docs/asking.md lists the columns).
        verifier: directory or hub id of a verifier or cascade, as every machine finds it.
        out: folder on a disk that all machines share; `part-000017.parquet` holds the rows whose evidence falls there,
            `part-000017.bad.parquet` those that are no claim about evidence, with the reason as their error.
        parts: how many files; a part is read, decoded and scored as one, and what a stop or a lost worker costs.
            Started again with the same number, whole parts are not scored again.
        workers: what is asked of the cluster; one verifier and one decoder on CPUs where None.
        media_root: folder that relative paths start from, on every machine.
        frame_cache: kept frames, on a disk that the decoders share.
        prior: as for `Verifier.with_prior`.
        overwrite: replace parts of something else.
        options: of `Verifier.from_pretrained`, such as `dtype`.

    Returns:
        How many rows are in the parts.

    Raises:
        ConfigError: no part, or no ray or cluster. RowError: parts of other rows or another verifier.
    """
    if parts < 1:
        raise ConfigError(f"parts: must be at least 1, got {parts}; one for each few hundred rows is a good number")
    workers, folder = workers or RayWorkers(), Path(out).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    open_verifier = partial(_open, str(verifier), media_root, prior, options)
    quiet_data()
    with ray_cluster(workers):
        facts = facts_of(open_verifier, workers)
        placed = dataset.map_batches(partial(_placed, parts=parts, media_root=media_root), batch_format="pyarrow")
        blocks = placed.groupby("part").map_groups(partial(_block, folder=folder), batch_format="pyarrow")
        stages = Stages(open_verifier, facts, workers, media_root, frame_cache, {"parts": parts}, overwrite)
        return sum(row["n_rows"] for row in stages.scored(blocks).iter_rows())


def _open(directory: str, media_root: Any, prior: float | None, options: Mapping[str, Any], frame_cache: Any) -> Any:
    folder = find_verifier(directory)
    kind = Cascade if is_cascade(folder) else Verifier
    given = {"media_root": media_root, "frame_cache": frame_cache, "prefix_cache_gib": 0.0, **options}
    verifier = kind.from_pretrained(folder, **given)
    return verifier if prior is None else verifier.with_prior(prior)


@dataclass(frozen=True)
class _Bad:
    """A row that is no claim about evidence."""

    id: str
    claim: str
    reason: str


def _placed(table: pa.Table, parts: int, media_root: Any) -> pa.Table:
    """For each row its part, by its evidence, and the pair it is, or why it is none."""
    items = [_read(row, media_root) for row in table.to_pylist()]
    keys = [evidence_key(item.evidence) if isinstance(item, Pair) else item.id for item in items]
    return pa.table(
        {
            "part": [int.from_bytes(hashlib.sha256(key.encode()).digest()[:8]) % parts for key in keys],
            "key": keys,
            "id": [item.id for item in items],
            "pair": pa.array([packed([item]) if isinstance(item, Pair) else None for item in items], pa.large_binary()),
            "claim": [item.claim for item in items],
            "reason": pa.array([item.reason if isinstance(item, _Bad) else None for item in items], pa.string()),
        }
    )


def _read(row: dict[str, Any], media_root: Any) -> Pair | _Bad:
    name = str(row.get("id") or "")
    shown = {"id": name or hashlib.sha256(repr(row).encode()).hexdigest()[:16], "claim": str(row.get("claim") or "")}
    if not name:
        return _Bad(**shown, reason="id: a row must have one, got none; number the rows")
    try:
        pair = as_pairs([row], media_root, one_each=True)[0]
    except ProofreelError as error:
        return _Bad(**shown, reason=str(error))
    problems = problems_of(pair)
    return _Bad(**shown, reason="; ".join(problems)) if problems else pair


def _block(table: pa.Table, folder: Path) -> pa.Table:
    """A part's rows, by evidence and id, so that a later run has them in the same order; the bad ones are written."""
    rows = table.sort_by([("key", "ascending"), ("id", "ascending")]).to_pylist()
    pairs: dict[str, Pair] = {}
    bad: dict[str, Prediction] = {}
    for row in rows:
        reason = row["reason"] or (f"id occurs twice, got {row['id']!r}; number the rows" if row["id"] in pairs else "")
        if reason:
            name = f"{row['id']}#{len(bad)}"
            values = {"label": None, "split": None, "group": "", "role": "", "origin": "", "modality": ""}
            bad[name] = Prediction(name, _NAN, _NAN, **values, error=reason, claim=row["claim"])
        else:
            pairs[row["id"]] = Pair.from_dict(json.loads(row["pair"])[0])
    file = folder / f"part-{rows[0]['part']:06}.parquet"
    if bad:
        write_predictions(file.with_suffix(BAD), list(bad.values()), {"bad": True})
    return pa.table({"file": [str(file)], "pairs": pa.array([packed(list(pairs.values()))], pa.large_binary())})
