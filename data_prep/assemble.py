"""The build: annotations of any known format in, one validated, split data set directory out."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from .build_config import BuildConfig, fractions_of, media_root_of, resolved
from .checks import check_rows
from .dataset import MANIFEST, SCHEMA_VERSION, read_manifest, write_shards
from .errors import ConfigError, RowError
from .manifest import count_rejected, counts_per_split, git_revision, media_in_several_splits
from .negatives import balanced_pairs, swapped_negatives
from .records import Rejected
from .rows import SPLITS, Pair, Split
from .sources import import_sources
from .splits import assign_splits

REJECTED = "rejected.jsonl"
SHOWN_REJECTED = 20


def build(config: BuildConfig, skip_invalid: bool = False) -> dict[str, Any]:
    """Build the data set `config` describes and return its manifest.

    Raises:
        ConfigError: a path, share or number in the config that cannot be used.
        RowError: bad rows (unless `skip_invalid`), listed in `<output>.rejected.jsonl`; or no rows are left.
    """
    config = resolved(config)
    output = Path(config.output)
    root = media_root_of(config)
    found = import_sources(config, root)
    rows, rejected, repeats = check_rows(found.rows, root, probe_media=config.media == "required")
    rejected = sorted([*found.rejected, *rejected], key=lambda item: (item.file, item.line or 0))
    _stop_if_bad(rejected, len(found.rows), output, skip_invalid)
    pairs, left_out = _select(_split([row.pair for row in rows], config), config)
    if not pairs:
        _write_rejected(_list_beside(output), rejected)
        raise RowError(f"{output}: no rows are left, got {len(found.rows)} rows in; see {_list_beside(output)}")
    manifest = {
        "schema_version": SCHEMA_VERSION,
        "counts": counts_per_split(pairs),
        "media": config.media,
        "media_root": os.path.relpath(root.resolve(), output.resolve()),
        "rejected": count_rejected(rejected),
        "left_out": left_out,
        "merged_repeats": found.merged + repeats,
        "media_in_several_splits": media_in_several_splits(pairs),
        "sources": found.sources,
        "seed": config.seed,
        "config": dataclasses.asdict(config),
        "git_revision": git_revision(),
    }
    return _write(output, pairs, manifest, rejected)


def _stop_if_bad(rejected: Sequence[Rejected], total: int, output: Path, skip_invalid: bool) -> None:
    blocking = [item for item in rejected if item.blocking]
    if not blocking or skip_invalid:
        return
    beside = _list_beside(output)
    _write_rejected(beside, rejected)
    shown = [f"  {item}" for item in blocking[:SHOWN_REJECTED]]
    if len(blocking) > SHOWN_REJECTED:
        shown.append(f"  ... and {len(blocking) - SHOWN_REJECTED} more")
    kinds = ", ".join(f"{number} x {kind}" for kind, number in count_rejected(blocking).items())
    remedy = f"all are in {beside}; repair them, or go on without them by --skip-invalid"
    raise RowError("\n".join([f"{output}: bad annotations, got {kinds} (beside {total} rows); {remedy}", *shown]))


def _split(pairs: Sequence[Pair], config: BuildConfig) -> list[Pair]:
    counted = [p for p in pairs if _kept(p, config)]
    sizes = Counter(pair.group for pair in counted)
    fixed: dict[str, Split] = {pair.group: pair.split for pair in counted if pair.split is not None}
    splits = assign_splits(sizes, fractions_of(config), config.seed, fixed)
    return [dataclasses.replace(pair, split=splits.get(pair.group)) for pair in pairs]


def _kept(pair: Pair, config: BuildConfig) -> bool:
    if config.negatives.balanced:
        return pair.label == "supported"
    return config.negatives.annotated or pair.origin != "negative_annotated"


def _select(pairs: Sequence[Pair], config: BuildConfig) -> tuple[list[Pair], dict[str, int]]:
    """The rows of the data set, negatives made split by split; and how many rows were left out, by reason."""
    rules = config.negatives
    kept = [pair for pair in pairs if _kept(pair, config)]
    left_out = Counter({"annotated rows not asked for": len(pairs) - len(kept)})
    chosen: list[Pair] = []
    for split in SPLITS:
        rows = [pair for pair in kept if pair.split == split]
        if rules.balanced:
            rows, reasons = balanced_pairs(rows, rules.generic_claims, config.seed, rules.swapped_label)
            left_out.update({f"claims {reason}": number for reason, number in reasons.items()})
        elif rules.swapped_per_claim:
            made, missing = swapped_negatives(
                rows, rules.swapped_per_claim, rules.generic_claims, config.seed, rules.swapped_label
            )
            rows = [*rows, *made]
            left_out["swapped negatives without a segment"] += missing
        chosen.extend(rows)
    return chosen, {reason: number for reason, number in sorted(left_out.items()) if number}


def _write(
    output: Path, pairs: Iterable[Pair], manifest: dict[str, Any], rejected: Sequence[Rejected]
) -> dict[str, Any]:
    """Write under a temporary name beside `output`, then rename: a data set is there whole or not at all."""
    if output.exists() and any(output.iterdir() if output.is_dir() else [output]):
        try:
            read_manifest(output)
        except RowError as error:
            raise ConfigError(f"output: exists and is no data set, got {output}; name another ({error})") from None
    output.parent.mkdir(parents=True, exist_ok=True)
    temporary = output.with_name(f"{output.name}.tmp-{os.getpid()}")
    temporary.mkdir()
    try:
        manifest = {**manifest, "shards": write_shards(temporary, pairs)}
        _write_rejected(temporary / REJECTED, rejected)
        text = json.dumps(manifest, indent=1, ensure_ascii=False) + "\n"
        (temporary / MANIFEST).write_text(text, encoding="utf-8")
        if output.exists():
            old = output.with_name(f"{output.name}.old-{os.getpid()}")
            output.rename(old)
            temporary.rename(output)
            shutil.rmtree(old)
        else:
            temporary.rename(output)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    _list_beside(output).unlink(missing_ok=True)
    return json.loads(text)


def _list_beside(output: Path) -> Path:
    return output.with_name(f"{output.name}.{REJECTED}")


def _write_rejected(path: Path, rejected: Iterable[Rejected]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = (json.dumps(dataclasses.asdict(item), ensure_ascii=True) for item in rejected)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
