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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ... import core
from ...core import ConfigError, RowError, sha256_of, source_digest
from ..dataset import MANIFEST, SCHEMA_VERSION, CardStatistics, read_manifest, write_card, write_folds
from ..importers import Rejected
from ..language import LanguageModel
from .check_media import Look, check_media, look_at_files, look_at_probed, probe_media
from .config import BuildConfig, altering_packages, media_root_of, resolved
from .leakage import drop_leaking_negatives
from .merging import import_shards
from .negatives import make_negatives
from .sharding import (
    ROWS,
    SHARD_VERSION,
    Shard,
    ShardRecord,
    check_shard_place,
    comparable,
    publish_shard,
    read_by_all,
    read_shards,
)
from .sources import (
    check_options,
    import_shard,
    import_sources,
    other_files,
    source_entries,
    source_files,
)
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


def build(config: BuildConfig, skip_invalid: bool = False, address: str | None = None) -> dict[str, Any]:
    """Build the data set `config` describes and return its manifest.

    Args:
        config: with a folder as `output`.
        skip_invalid: leave out bad rows.
        address: where the data set will be sent, which its manifest and card then name instead of the folder.

    Raises:
        ConfigError: a path, share or number in the config that cannot be used; another build of this output is running.
        RowError: bad rows (unless `skip_invalid`), listed in `<output>.rejected.jsonl`; or no rows are left.
    """
    config = resolved(config)
    check_options(config)
    sources = _digests(config)
    others = _other_digests(config)
    root = media_root_of(config)
    return _build(
        config,
        _Annotations(
            lambda staging, model: import_sources(staging, config, root, model),
            lambda _: look_at_files(root, config.probing),
            _digest(config, sources | others),
            sources,
            others,
        ),
        skip_invalid,
        address,
    )


def merge_shards(config: BuildConfig, directories: Sequence[Path] = (), skip_invalid: bool = False) -> dict[str, Any]:
    """Build the data set `config` describes out of the shards of a build; every file has the bytes that `build` gives.

    Args:
        config: that of the shards.
        directories: of all shards, in any order; none: those beside the output.
        skip_invalid: as `build`.

    Raises:
        ConfigError, RowError: as `build`; shards that do not belong together, see `sharding.read_shards`.
    """
    config = resolved(config, lambda number: False)
    check_options(config)
    shards = read_shards(directories, config, _made_by(config))
    sources, others = read_by_all(shards, "sources"), read_by_all(shards, "other_files")
    if config.negatives.word_groups is not None:
        _refuse_other_words(config.negatives.word_groups, others)
    annotations = _Annotations(
        lambda staging, model: import_shards(staging, config, [path for path, _ in shards]),
        look_at_probed,
        _digest(config, {"merge of": [record.sha256 for _, record in shards]}),
        sources,
        others,
        [record.language_model for _, record in shards if record.language_model is not None],
    )
    return _build(config, annotations, skip_invalid)


def build_shard(config: BuildConfig, number: str) -> tuple[Path, ShardRecord]:
    """Read, check and look at what shard `number` ("2/4") has of the annotations, for `merge_shards`.

    Bad rows are kept for the merge, which reports those of all shards together.

    Returns:
        Its directory, and what its record says.

    Raises:
        ConfigError: as `build`; a number that is none.
    """
    shard = Shard.parse(number, config.sharding)
    config = resolved(config, shard.has_file)
    check_options(config)
    if shard.by == "groups" and any(source.statements != "template" for source in config.sources):
        raise ConfigError(
            "sharding: a model that writes statements is asked file by file, got groups; set sharding to files"
        )
    directory = shard.directory(config.output)
    check_shard_place(directory)
    sources, others = _digests(config, shard.has_file), _other_digests(config, shard.has_file)
    model = None if config.language_model is None else LanguageModel(config.language_model)
    with _workplace(directory) as folder:
        staging = Staging(folder / ROWS, _digest(config, sources | others | {"shard": str(shard)}))
        try:
            import_shard(staging, config, media_root_of(config), model, shard)
            if config.media == "required":
                probe_media(staging, look_at_files(media_root_of(config), config.probing))
            n_rows = sum(staging.value(f"SELECT COUNT(*) FROM {table}") for table in ("rows", "judgments"))
            n_files, rejected = staging.value("SELECT COUNT(*) FROM probed"), staging.count_rejected(blocking=True)
            staging.seal()
        finally:
            staging.close()
        record = ShardRecord(
            shard_version=SHARD_VERSION,
            number=shard.number,
            of=shard.of,
            config=comparable(config),
            made_by=_made_by(config),
            sources=sources,
            other_files=others,
            rows=n_rows,
            files=n_files,
            rejected=rejected,
            language_model=None if model is None else model.costs(),
            sha256=sha256_of(folder / ROWS),
        )
        publish_shard(folder, directory, record)
    return directory, record


@dataclass(frozen=True)
class _Annotations:
    """What a build begins with.

    Attributes:
        read: fills the staging database; gives how many repeated judgments were merged.
        look: what looks at media files.
        digest: equal for builds that would do the same.
        sources: SHA-256 of the annotation files.
        others: and of what they name.
        costs: of a model that was asked before.
    """

    read: Callable[[Staging, LanguageModel | None], int]
    look: Callable[[Staging], Look]
    digest: str
    sources: dict[str, str]
    others: dict[str, str]
    costs: Sequence[dict[str, int | float]] = ()


def _build(
    config: BuildConfig, annotations: _Annotations, skip_invalid: bool, address: str | None = None
) -> dict[str, Any]:
    output = Path(config.output)
    _check_output(output)
    with _workplace(output) as folder:
        staging = Staging(folder / ROWS, annotations.digest)
        try:
            notes = _stages(staging, config, annotations, skip_invalid)
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
                "sources": source_entries(staging, config, annotations.sources),
                "other_files": annotations.others,
                "seed": config.seed,
                "config": dataclasses.asdict(config) | ({"output": address} if address else {}),
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


def _stages(staging: Staging, config: BuildConfig, annotations: _Annotations, skip_invalid: bool) -> dict[str, Any]:
    """Everything up to the rows' being final; what the manifest says of it."""
    output = Path(config.output)
    model = None if config.language_model is None else LanguageModel(config.language_model)
    merged = annotations.read(staging, model)
    if (merged_repeats := staging.progress("together")) is None:
        staging.index("rows_claim")
        merged_repeats = merged + check_together(staging)
        staging.note("together", merged_repeats)
        staging.commit()
    if staging.progress("media") is None:
        staging.index("rows_evidence")
        staging.note("media", check_media(staging, annotations.look(staging)) if config.media == "required" else {})
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
    last_annotated = min((staging.progress(f"annotated/{split}") for split in staging.splits()), default=0)
    n_leaking = drop_leaking_negatives(staging, config.leaks, last_annotated)
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
        **({} if model is None else {"language_model": _added([*annotations.costs, model.costs()])}),
        **notes,
    }


def _digests(config: BuildConfig, is_read: Callable[[int], bool] = lambda number: True) -> dict[str, str]:
    """SHA-256 of the annotation files that are read."""
    return {file.path: source_digest(Path(file.path)) for file in source_files(config) if is_read(file.number)}


def _other_digests(config: BuildConfig, is_read: Callable[[int], bool] = lambda number: True) -> dict[str, str]:
    return {path: source_digest(Path(path), READ_BESIDE) for path in other_files(config, is_read)}


def _refuse_other_words(path: str, others: Mapping[str, str]) -> None:
    if source_digest(Path(path)) != others.get(path):
        raise RowError(f"{path}: the shards read other word groups, got other bytes here; give every machine the same")


def _added(costs: Sequence[Mapping[str, int | float]]) -> dict[str, int | float]:
    return {name: sum(cost[name] for cost in costs) for name in costs[0]}


def _made_by(config: BuildConfig) -> dict[str, str]:
    """SHA-256 of the code, and the versions of the libraries."""
    folders = (Path(core.__file__).parent, Path(__file__).parents[1])
    code = "".join(source_digest(folder, (".py", ".yaml")) for folder in folders)
    return {"code": hashlib.sha256(code.encode()).hexdigest(), **versions(altering_packages(config))}


def _digest(config: BuildConfig, read: Mapping[str, Any]) -> str:
    """Equal for builds that would do the same: config, bytes of all files read, code and libraries."""
    what = [dataclasses.asdict(config), read, _made_by(config)]
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
    splits = manifest["config"]["splits"]
    if splits["cross"] is not None:
        write_folds(temporary, manifest, manifest["shards"], validates=splits["validation"] > 0)
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
