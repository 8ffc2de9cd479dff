"""The build: annotations of any known format in, one validated, split data set directory out.

It runs the steps of this package, each of them repeatable: import, check, divide, make negatives, write shards,
describe. The state is kept in `<output>.building`: a killed build continues from it, and gives the same bytes as one
that was not killed.
"""

from __future__ import annotations

import dataclasses
import fcntl
import hashlib
import itertools
import json
import os
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ... import core
from ...core import SPLITS, ConfigError, RowError
from ..dataset import MANIFEST, SCHEMA_VERSION, CardStatistics, read_manifest, write_card
from ..importers import Rejected
from ..language import LanguageModel
from .check_media import check_media
from .config import BuildConfig, altering_packages, media_root_of, resolved
from .leakage import drop_leaking_negatives
from .negatives import make_negatives
from .sources import annotation_files, check_options, import_sources, other_files, source_digest, source_entries
from .splitting import divide
from .staging import NOT_ASKED, Staging
from .usable_splits import unusable_splits
from .validate import check_together
from .write import (
    git_revision,
    media_in_several_splits,
    probe_staging,
    staging_counts,
    statistics_of,
    versions,
    write_staging,
)

REJECTED = "rejected.jsonl"
READ_BESIDE = (".json", ".jsonl", ".srt", ".vtt")
SHOWN_REJECTED = 20


def build(config: BuildConfig, skip_invalid: bool = False) -> dict[str, Any]:
    """Build the data set `config` describes and return its manifest.

    Raises:
        ConfigError: a path, share or number in the config that cannot be used; another build of this output is running.
        RowError: bad rows (unless `skip_invalid`), listed in `<output>.rejected.jsonl`; or no rows are left.
    """
    config = resolved(config)
    check_options(config)
    output = Path(config.output)
    _check_output(output)
    digests = {path: source_digest(Path(path)) for path in annotation_files(config)}
    others = {path: source_digest(Path(path), READ_BESIDE) for path in other_files(config)}
    with _workplace(output) as folder:
        staging = Staging(folder / "rows.sqlite", _digest(config, digests | others))
        try:
            notes = _stages(staging, config, skip_invalid)
            shards = write_staging(staging, folder, config.rows_per_shard)
            statistics = statistics_of(staging)
            manifest = {
                "schema_version": SCHEMA_VERSION,
                "counts": staging_counts(staging, statistics),
                "shards": shards,
                "media": config.media,
                "media_root": os.path.relpath(media_root_of(config).resolve(), output.resolve()),
                **notes,
                "media_in_several_splits": media_in_several_splits(staging),
                "sources": source_entries(staging, config, digests),
                "other_files": others,
                "seed": config.seed,
                "config": dataclasses.asdict(config),
                "git_revision": git_revision(),
                "versions": versions(altering_packages(config)),
                **altered_by(config),
                "shortcut_probe": probe_staging(staging, config.seed) if config.shortcut_probe else None,
            }
            return _publish(output, folder, staging, manifest, statistics)
        except RowError:
            # After a repair the digest of the build differs: there is nothing to continue.
            shutil.rmtree(folder, ignore_errors=True)
            raise
        finally:
            staging.close()


def altered_by(config: BuildConfig) -> dict[str, str]:
    """What alters claims in this build; nothing where none are altered."""
    if not config.negatives.altered_per_claim or config.negatives.balanced:
        return {}
    return {"altered_by": "rules, WordNet and parser" if altering_packages(config) else "rules"}


def _stages(staging: Staging, config: BuildConfig, skip_invalid: bool) -> dict[str, Any]:
    """Everything up to the rows' being final; what the manifest says of it."""
    output, root = Path(config.output), media_root_of(config)
    model = None if config.language_model is None else LanguageModel(config.language_model)
    merged = import_sources(staging, config, root, model)
    if (merged_repeats := staging.progress("together")) is None:
        staging.index("rows_claim")
        merged_repeats = merged + check_together(staging)
        staging.note("together", merged_repeats)
        staging.commit()
    if staging.progress("media") is None:
        staging.index("rows_evidence")
        staging.note("media", check_media(staging, root, config.probing) if config.media == "required" else {})
        staging.commit()
    total = staging.value("SELECT COUNT(*) FROM rows")
    _stop_if_bad(staging, total, output, skip_invalid)
    if (notes := staging.progress("divided")) is None:
        not_asked = _take_out_unasked(staging, config)
        notes = {"not_asked": not_asked, **divide(staging, config)}
        staging.note("divided", notes)
        staging.commit()
    left_out = make_negatives(staging, config, model) + Counter(
        {"annotated rows not asked for": notes.pop("not_asked")}
    )
    n_leaking = drop_leaking_negatives(staging, config.leaks, staging.progress(f"annotated/{SPLITS[0]}"))
    left_out["made claims that another split holds"] = n_leaking
    if not staging.value("SELECT COUNT(*) FROM rows WHERE out = 0"):
        _write_rejected(_list_beside(output), staging.rejected())
        raise RowError(f"{output}: no rows are left, got {total} rows in; see {_list_beside(output)}")
    return {
        "unusable_splits": unusable_splits(staging, config, notes.pop("other_ways")),
        "rejected": staging.count_rejected(),
        "left_out": {reason: number for reason, number in sorted(left_out.items()) if number},
        "merged_repeats": merged_repeats,
        "media_files": staging.progress("media"),
        **({} if model is None else {"language_model": model.costs()}),
        **notes,
    }


def _digest(config: BuildConfig, digests: dict[str, str]) -> str:
    """Equal for builds that would do the same: config, bytes of all files read, code and libraries."""
    folders = (Path(core.__file__).parent, Path(__file__).parents[1])
    code = [source_digest(folder, (".py", ".yaml")) for folder in folders]
    what = [dataclasses.asdict(config), digests, code, versions(altering_packages(config))]
    return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()


def _take_out_unasked(staging: Staging, config: BuildConfig) -> int:
    if config.negatives.balanced:
        unasked = "label IS NOT 'supported'"
    elif not config.negatives.annotated:
        unasked = "origin = 'negative_annotated'"
    else:
        return 0
    return staging.db.execute(f"UPDATE rows SET out = {NOT_ASKED} WHERE out = 0 AND {unasked}").rowcount


def _stop_if_bad(staging: Staging, total: int, output: Path, skip_invalid: bool) -> None:
    kinds = staging.count_rejected(blocking=True)
    if not kinds or skip_invalid:
        return
    beside = _list_beside(output)
    _write_rejected(beside, staging.rejected())
    shown = [f"  {item}" for item in itertools.islice(staging.rejected(blocking=True), SHOWN_REJECTED)]
    if (more := sum(kinds.values()) - SHOWN_REJECTED) > 0:
        shown.append(f"  ... and {more} more")
    counted = ", ".join(f"{number} x {kind}" for kind, number in kinds.items())
    remedy = f"all are in {beside}; repair them, or go on without them by --skip-invalid"
    raise RowError("\n".join([f"{output}: bad annotations, got {counted} (beside {total} rows); {remedy}", *shown]))


def _check_output(output: Path) -> None:
    if output.exists() and any(output.iterdir() if output.is_dir() else [output]):
        try:
            read_manifest(output, any_version=True)
        except RowError as error:
            raise ConfigError(f"output: exists and is no data set, got {output}; name another ({error})") from None


@contextmanager
def _workplace(output: Path) -> Iterator[Path]:
    """The build's working folder, locked against other builds; removed unless the build was interrupted."""
    folder = output.with_name(f"{output.name}.building")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / "lock").open("w")
    except OSError as error:
        raise ConfigError(f"output: nothing can be written beside it, got {error}; name another folder") from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(f"output: another build is writing it, got {output}; wait for it to end") from None
        yield folder


def _publish(
    output: Path, folder: Path, staging: Staging, manifest: dict[str, Any], statistics: CardStatistics
) -> dict[str, Any]:
    """Put the finished files together and rename them: a data set is written completely or not at all."""
    files = [entry["file"] for entries in manifest["shards"].values() for entry in entries]
    temporary = folder / "dataset"
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    for name in files:
        (folder / name).rename(temporary / name)
    _write_rejected(temporary / REJECTED, staging.rejected())
    if manifest["config"]["card"]:
        write_card(temporary, manifest, statistics, manifest["shortcut_probe"])
    text = json.dumps(manifest, indent=1, ensure_ascii=False) + "\n"
    (temporary / MANIFEST).write_text(text, encoding="utf-8")
    if output.exists():
        shutil.rmtree(folder / "replaced", ignore_errors=True)
        output.rename(folder / "replaced")
    temporary.rename(output)
    shutil.rmtree(folder)
    _list_beside(output).unlink(missing_ok=True)
    return json.loads(text)


def _list_beside(output: Path) -> Path:
    return output.with_name(f"{output.name}.{REJECTED}")


def _write_rejected(path: Path, rejected: Iterable[Rejected]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as file:
        file.writelines(f"{json.dumps(dataclasses.asdict(item), ensure_ascii=True)}\n" for item in rejected)
