"""A data set directory in, one with a mined train split out; the other splits are copied byte for byte.

The rules of mining are in negatives/hard_mining.py, the reading of scores in negatives/scores.py.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from re import fullmatch
from typing import Any

from ...core import (
    SPLITS,
    ConfigError,
    Evidence,
    Pair,
    RowError,
    evidence_key,
    expanded,
    media_paths,
    sha256_of,
    with_media_paths,
)
from ..dataset import (
    CARD,
    MANIFEST,
    PICTURES,
    SCHEMA_VERSION,
    CardStatistics,
    ShortcutReport,
    claim_only_probe,
    read_manifest,
    read_split,
    write_card,
    write_shards,
)
from ..negatives import Mined, MiningConfig, Review, Score, mine, read_scores
from .write import git_revision, versions

REVIEW = "review.jsonl"
REJECTED = "rejected.jsonl"
SHARD = r"[a-z]+-\d{5,}-of-\d{5,}\.parquet"
LEFT_OUT = ("not_drawn", "too_certain", "unlabelled")
"""Of the counts of mining, those of rows that did not come into train."""
INHERITED = ("media", "rejected", "left_out", "merged_repeats", "leaks", "held_out", "sources", "seed", "config")
"""What the manifest says of the annotations and the build holds of a mined data set too; the rest is made anew."""


@dataclass(frozen=True)
class MineConfig:
    """Everything a mined data set depends on; docs/negatives.md explains each key at length.

    Attributes:
        data: data set with the candidates.
        predictions: on its train split, calibrated; null: all negatives are drawn at random.
        output: the new data set; an older one there is replaced.
        seed: draws the random ones.
        mining: the mix.
    """

    data: str
    predictions: str | None
    output: str
    seed: int = 0
    mining: MiningConfig = field(default_factory=MiningConfig)


def mine_data_set(config: MineConfig) -> dict[str, Any]:
    """Mine the train split of `config.data`, write the new data set and return its manifest.

    Raises:
        ConfigError: an unset variable, an output that is the input or no data set, or a share of hard rows without
            predictions.
        RowError: no data set or predictions there, predictions of other rows or uncalibrated ones that are not
            allowed, or nothing left to train on.
    """
    data, output = Path(expanded(config.data, "data")), Path(expanded(config.output, "output"))
    predictions = None if config.predictions is None else Path(expanded(config.predictions, "predictions"))
    _check_output(output, data, predictions)
    parent = read_manifest(data)
    if "cross" in parent:
        raise ConfigError(
            f"data: negatives mined over folds would carry claims from one into another, got {data}, a data set in "
            f"{len(parent['cross']['folds'])} folds; build it without splits.cross"
        )
    root = Path(os.path.normpath(data.resolve() / parent["media_root"]))
    splits = {split: _stored(read_split(data, split), root) for split in SPLITS if split in parent["shards"]}
    scores, source = (None, {}) if predictions is None else _read_teacher(predictions, config.mining)
    mined = mine(splits.get("train", []), scores, config.mining, config.seed, str(predictions or "predictions"))
    if not mined.pairs:
        raise RowError(f"{output}: no rows to train on, got {mined.counts}; is there a labelled train split in {data}?")
    rows = [*mined.pairs, *(pair for split, pairs in splits.items() if split != "train" for pair in pairs)]
    manifest_sha256 = sha256_of(data / MANIFEST)
    manifest = {
        "schema_version": SCHEMA_VERSION,
        "counts": _counts(rows),
        "shards": parent["shards"],
        "media_root": os.path.relpath(root, output.resolve()),
        "media_in_several_splits": _media_in_several_splits(rows),
        **{key: parent[key] for key in INHERITED if key in parent},
        "git_revision": git_revision(),
        "versions": versions(),
        "mining": {
            "teacher": None if predictions is None else _teacher(source),
            "config": dataclasses.asdict(config),
            "counts": mined.counts,
            "claim_only_probe": _probed(mined.pairs, config.seed).as_dict(),
            "predictions": predictions
            and {"sha256": sha256_of(predictions), "rows": len(scores or ()), "source": source},
            "scored_this_manifest": _same(source.get("manifest_sha256"), manifest_sha256),
            "parent": {"manifest_sha256": manifest_sha256, "shards": parent["shards"], "mining": parent.get("mining")},
        },
    }
    statistics = CardStatistics()
    statistics.add_many(rows)
    return _write(output, data, mined, manifest, statistics)


def mining_summary(manifest: dict[str, Any]) -> str:
    """The closing message of a run: how the train split was drawn, and which rows to review."""
    mining = manifest["mining"]
    counts, output = mining["counts"], mining["config"]["output"]
    drawn = ", ".join(f"{number} {name}" for name, number in counts["drawn_from"].items())
    hard = f" ({counts['positives_hard']} hard)" if counts["positives_hard"] else ""
    lines = [
        f"train: {counts['positives']} positives{hard}, {counts['negatives']} negatives",
        f"negatives: {counts['hard']} hard ({counts['hard_called_supported']} of them called supported), "
        f"{counts['random']} random; drawn from {drawn}",
    ]
    notes = {
        "positives_missing": "positives fewer than `positives` asks for: there are no more",
        "missing": "negatives could not be drawn: there are no more",
        "hard_replaced_by_random": "hard negatives replaced by random ones: too few are scored",
        "too_certain": f"negatives look true and were never judged: in {REVIEW}, not in train",
        "unscored": f"rows without a usable prediction: in {REVIEW}, never drawn as hard",
        "unlabelled": "rows without a label left out",
    }
    lines.extend(f"{counts[key]} {text}" for key, text in notes.items() if counts[key])
    if mining["scored_this_manifest"] is False:
        lines.append(
            "warning: the predictions name another manifest than this data set's; what they tell of its rows does match"
        )
    lines.extend(f"warning: {line}" for line in mining["claim_only_probe"]["warnings"])
    return "\n".join([*lines, f"wrote {output}"])


def _check_output(output: Path, data: Path, predictions: Path | None) -> None:
    """What lies in `output` is replaced: it must be a data set, with nothing else in it."""
    if output.resolve() == data.resolve():
        raise ConfigError(f"output: is the data set that is mined, got {output}; name another directory")
    for read in (data, predictions):
        if read is not None and output.resolve() in read.resolve().parents:
            raise ConfigError(f"output: holds {read}, got {output}; name another directory, this one is replaced")
    if output.exists() and any(output.iterdir() if output.is_dir() else [output]):
        try:
            read_manifest(output, any_version=True)
        except RowError as error:
            raise ConfigError(f"output: exists and is no data set, got {output}; name another ({error})") from None
        ours = {MANIFEST, CARD, PICTURES, REVIEW, REJECTED}
        if foreign := sorted(p.name for p in output.iterdir() if p.name not in ours and not fullmatch(SHARD, p.name)):
            raise ConfigError(
                f"output: holds more than a data set, got {foreign[:3]} in {output}; move it away, or name another "
                "directory, this one is replaced"
            )


def _read_teacher(predictions: Path, config: MiningConfig) -> tuple[dict[str, Score], dict[str, Any]]:
    """Scores and their source; the guard's threshold means something for calibrated probabilities only."""
    scores, source = read_scores(predictions)
    if source.get("calibrated") is not True and config.uncalibrated == "refuse":
        raise RowError(
            f"{predictions}: must say that its probabilities are calibrated on gold labels, got calibrated: "
            f"{json.dumps(source.get('calibrated'))}; calibrate them (eval/calibrate.py, then eval/teach.py), or set "
            "mining.uncalibrated: allow"
        )
    return scores, source


def _read_from(predictions: Path, scores: Mapping[str, Score], source: Mapping[str, Any]) -> dict[str, Any]:
    return {"sha256": sha256_of(predictions), "rows": len(scores), "source": source}


def _teacher(source: Mapping[str, Any]) -> dict[str, Any]:
    """The verifier whose scores chose the hard negatives, as far as the predictions name it."""
    several = {"teachers": source["teachers"]} if "teachers" in source else {}
    names = ("verifier_fingerprint", "calibrated", "prompt_sha256")
    return {**{name: source.get(name) for name in names}, **several}


def _probed(pairs: Sequence[Pair], seed: int) -> ShortcutReport:
    """Whether labels of the mined rows can be guessed from their claims: mining may prefer telling sentences."""
    claim_of = {p.id: p.claim for p in pairs}
    rows = ((p.claim, p.label, p.group, p.role, p.origin, claim_of.get(p.meta.get("claim_of", ""))) for p in pairs)
    claims, labels, groups, roles, origins, sources = map(list, zip(*rows, strict=True))
    return claim_only_probe(claims, labels, groups, roles, origins, sources, seed)


def _same(recorded: str | None, actual: str) -> bool | None:
    return None if recorded is None else recorded == actual


def _stored(pairs: Sequence[Pair], root: Path) -> list[Pair]:
    """Pairs with media paths relative to the media root again, as they are stored."""
    prefix = f"{root}{os.sep}"

    def relative(piece: Evidence) -> Evidence:
        return with_media_paths(piece, lambda path: path.removeprefix(prefix))

    return [dataclasses.replace(pair, evidence=tuple(map(relative, pair.evidence))) for pair in pairs]


def _write(
    output: Path, data: Path, mined: Mined, manifest: dict[str, Any], statistics: CardStatistics
) -> dict[str, Any]:
    """Write under a temporary name beside `output`, then rename: a data set is written completely or not at all."""
    output.parent.mkdir(parents=True, exist_ok=True)
    temporary = output.with_name(f"{output.name}.tmp-{os.getpid()}")
    temporary.mkdir()
    try:
        manifest = {**manifest, "shards": _shards(temporary, data, mined.pairs, manifest["shards"])}
        if (data / REJECTED).is_file():
            shutil.copyfile(data / REJECTED, temporary / REJECTED)
        _write_review(temporary / REVIEW, mined.review)
        if manifest.get("config", {}).get("card", True):
            write_card(temporary, _on_card(manifest), statistics, manifest["mining"]["claim_only_probe"])
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
    return json.loads(text)


def _on_card(manifest: dict[str, Any]) -> dict[str, Any]:
    """The manifest that the card describes: this run's own config, and what mining left out of train."""
    mining = manifest["mining"]
    left = {
        f"by mining: {name.replace('_', ' ')}": mining["counts"][name] for name in LEFT_OUT if mining["counts"][name]
    }
    return {**manifest, "config": mining["config"], "left_out": {**manifest.get("left_out", {}), **left}}


def _shards(directory: Path, data: Path, train: Sequence[Pair], parent: dict[str, Any]) -> dict[str, Any]:
    """The `shards` of the new manifest: train written anew, the files of the other splits copied as they are."""
    shards = {"train": write_shards(directory, train)["train"], **{s: f for s, f in parent.items() if s != "train"}}
    for split, files in shards.items():
        for file in files if split != "train" else ():
            shutil.copyfile(data / file["file"], directory / file["file"])
    return shards


def _counts(pairs: Sequence[Pair]) -> dict[str, dict[str, Any]]:
    """Rows, groups, segments, and rows per label, role, origin and modality: per split, and of "all"."""
    counts: dict[str, dict[str, Any]] = {}
    for split in (*SPLITS, "all"):
        if rows := [pair for pair in pairs if split in (pair.split, "all")]:
            counts[split] = {
                "rows": len(rows),
                "groups": len({pair.group for pair in rows}),
                "segments": len({evidence_key(pair.evidence) for pair in rows}),
            }
            for name in ("label", "role", "origin", "modality"):
                counts[split][name] = dict(sorted(Counter(str(getattr(pair, name)) for pair in rows).items()))
    return counts


def _media_in_several_splits(pairs: Iterable[Pair]) -> list[str]:
    splits: dict[str, set[str | None]] = {}
    for pair in pairs:
        for piece in pair.evidence:
            for path in media_paths(piece):
                splits.setdefault(path, set()).add(pair.split)
    return sorted(path for path, names in splits.items() if len(names) > 1)


def _write_review(path: Path, review: Sequence[Review]) -> None:
    lines = (json.dumps(item.to_dict(), ensure_ascii=False, allow_nan=False) for item in review)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
