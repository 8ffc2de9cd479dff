"""Join what cross-fitted verifiers said of the folds that each was trained without: one prediction of every row.

A row is taken from the verifier that saw nothing of its group. That is checked here, not believed: each verifier's own
record of its training rows must be the `train` split of its fold's data set, and each file must hold the fold's rows.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...core import ConfigError, RowError, evidence_kinds, sha256_of
from ...data_prep.dataset import FOLDS, MANIFEST, iter_split, read_manifest, train_shards
from ...models.directory import fingerprint, recipe_of, trained_on
from .predictions import CROSS_FITTED, Prediction, read_predictions

_OF_SOUND = ("mismatched-sound", "no-sound")  # controls of the rows that hear, and of no other
_OWN = {"verifier_fingerprint", "manifest_sha256", "pairs_sha256"}  # what differs from fold to fold


@dataclass(frozen=True)
class _Fold:
    """A fold's file: which fold it is of, by whom, and where."""

    name: str
    path: Path
    verifier: Path
    rows: list[Prediction]
    source: dict[str, Any]


def join_folds(data: Path, verifiers: Sequence[Path], files: Sequence[Path]) -> tuple[list[Prediction], dict[str, Any]]:
    """Every row once, its `split` the name of its fold, in the order of the folds; and the source of the whole.

    Args:
        data: the data set in folds.
        verifiers: trained each on the data set of one fold.
        files: what each of them said of its fold's `test` split, in the same order.

    Raises:
        ConfigError: as many files as verifiers are needed, one of each fold; or `data` has no folds.
        RowError: a file that is not of its verifier and fold, rows that are missing, or verifiers of several recipes.
    """
    known = (read_manifest(data).get("cross") or {}).get("folds") or {}
    if not known:
        raise ConfigError(f"--data: is not in folds, got {data}; build it with splits.cross")
    if len(verifiers) != len(files):
        raise ConfigError(f"--verifiers: needs one for every file, got {len(verifiers)} for {len(files)}; pair them")
    by_manifest = {sha256: name for name, sha256 in known.items()}
    folds = [_read(data, verifier, file, by_manifest) for verifier, file in zip(verifiers, files, strict=True)]
    folds.sort(key=lambda fold: fold.name)
    if [fold.name for fold in folds] != sorted(known):
        raise ConfigError(
            f"--predictions: needs a file of every fold, once, got {[fold.name for fold in folds]}; they are "
            f"{sorted(known)}"
        )
    recipe, source = _common(folds)
    source |= {
        "manifest_sha256": sha256_of(data / MANIFEST),
        CROSS_FITTED: {
            "folds": {fold.name: fold.source["verifier_fingerprint"] for fold in folds},
            "recipe_sha256": recipe,
        },
    }
    return [dataclasses.replace(row, split=fold.name) for fold in folds for row in fold.rows], source


def _read(data: Path, verifier: Path, file: Path, by_manifest: Mapping[str, str]) -> _Fold:
    rows, source = read_predictions(file)
    name = by_manifest.get(source.get("manifest_sha256", ""))
    if name is None:
        raise RowError(f"{file}: predictions of other data, got rows of no fold of {data}; predict the folds again")
    folder = data / FOLDS / name
    base_alone = source.get("control") == "zero-shot"  # which has no adapter, and so another fingerprint
    if not base_alone and source.get("verifier_fingerprint") != fingerprint(verifier):
        raise RowError(
            f"{file}: of another verifier, got fingerprint {str(source.get('verifier_fingerprint'))[:12]} instead of "
            f"{fingerprint(verifier)[:12]}; predict {name} with {verifier}"
        )
    if trained_on(verifier) != train_shards(folder):
        raise RowError(
            f"{verifier}: was not trained on {folder}, got {file}, predictions of {name}, whose rows it may have seen; "
            "train it there"
        )
    rows_of_fold = iter_split(folder, "test")
    if source.get("control") in _OF_SOUND:
        rows_of_fold = (pair for pair in rows_of_fold if "audio" in evidence_kinds(pair.evidence))
    wanted = {pair.id for pair in rows_of_fold}
    if (differing := wanted ^ {row.pair_id for row in rows}) or {row.split for row in rows} != {"test"}:
        some = f", for example {min(differing)!r}" if differing else ""
        raise RowError(f"{file}: does not hold the rows of {name}, got {len(differing)} other or missing ones{some}")
    return _Fold(name, file, verifier, rows, source)


def _common(folds: Sequence[_Fold]) -> tuple[str, dict[str, Any]]:
    """The recipe of all folds' verifiers, and what their predictions' sources say alike."""
    first = folds[0]
    recipe = recipe_of(first.verifier)
    if recipe is None:
        raise RowError(f"{first.verifier}: does not record by which settings it was trained; train it again")
    for fold in folds[1:]:
        if recipe_of(fold.verifier) != recipe:
            raise RowError(
                f"{fold.verifier}: trained with other settings than {first.verifier}, got recipe "
                f"{str(recipe_of(fold.verifier))[:12]} instead of {recipe[:12]}; train all folds alike"
            )
        for key in sorted({*first.source, *fold.source} - _OWN):
            if first.source.get(key) != fold.source.get(key):
                raise RowError(
                    f"{fold.path}: {key} differs from {first.path}, got {fold.source.get(key)!r} and "
                    f"{first.source.get(key)!r}; predict all folds alike"
                )
    return recipe, {key: value for key, value in first.source.items() if key not in _OWN}
