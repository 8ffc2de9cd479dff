"""Cross-fitting: a data set in folds of whole groups, and for each fold a data set that leaves it out.

    DATA/fold-0-00000-of-00001.parquet ...   every row, once
    DATA/manifest.json                       all folds: what the last verifier is trained on
    DATA/folds/fold-0/manifest.json          fold 0 is its `test`, the others are its `train` and `validation`

The data sets of the folds hold no rows of their own: their manifests name the shards above them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...core import Split, sha256_of
from .shards import MANIFEST

FOLDS = "folds"

Shards = list[dict[str, Any]]


def fold_names(n: int) -> tuple[str, ...]:
    """The names of `n` folds, in an order that sorting keeps."""
    return tuple(f"fold-{k:0{len(str(n - 1))}d}" for k in range(n))


def splits_without(names: Sequence[str], left_out: str | None, validates: bool) -> dict[Split, list[str]]:
    """Which folds the splits of a training hold: no fold is in two, and each is in one.

    Args:
        names: of all folds.
        left_out: the fold to test on; None for the last verifier, which is not tested.
        validates: the fold that follows is kept for choosing a checkpoint.
    """
    start = 0 if left_out is None else names.index(left_out)
    turned = [*names[start:], *names[:start]]
    test = [] if left_out is None else [turned.pop(0)]
    validation = [turned.pop(0)] if validates else []
    splits: dict[Split, list[str]] = {"train": sorted(turned), "validation": validation, "test": test}
    return {split: folds for split, folds in splits.items() if folds}


def write_folds(folder: Path, manifest: dict[str, Any], shards: Mapping[str, Shards], validates: bool) -> None:
    """Write the data set of every fold below `folder`, and note in `manifest`, which is not stored yet, what they are.

    Args:
        folder: where the manifest will lie.
        manifest: of the whole data set; gets `shards` by split, and `cross`.
        shards: of each fold.
        validates: see `splits_without`.
    """
    names, above = list(shards), Path("..", "..")
    cross: dict[str, Any] = {"validation": validates, "folds": {}}
    for name in names:
        held = {
            split: [entry | {"file": str(above / entry["file"])} for fold in folds for entry in shards[fold]]
            for split, folds in splits_without(names, name, validates).items()
        }
        view = {key: manifest[key] for key in ("schema_version", "media", "seed", "config", "git_revision", "versions")}
        view |= {"shards": held, "media_root": os.path.join(above, manifest["media_root"]), "fold": name}
        path = folder / FOLDS / name / MANIFEST
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(view, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        cross["folds"][name] = sha256_of(path)
    manifest["shards"] = {
        split: [entry for fold in folds for entry in shards[fold]]
        for split, folds in splits_without(names, None, validates).items()
    }
    manifest["cross"] = cross
