"""Rounds of hard-negative mining: train, judge all candidates, mine what the verifier got wrong, train anew.

    <output>/rounds.json         the configuration, and of each round what its rows and its verifier came to
    <output>/round-0/data        drawn at random; of later rounds mined, its manifest names the teacher
             round-0/run         the training run; `draft` in it is the round's verifier
             round-0/calibration.parquet, calibrated, train.parquet, teacher.parquet    of every round but the last

Each round trains from the same base with the same options, never from the round before: what differs between two
rounds is their negatives alone. A stage is a command that a user could type, with the files that are there once it has
succeeded; a stage that is done is not done again.

Apart from train/rounds.py because an entry script defines no class.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from ..core import ConfigError, RowError, expanded, read_yaml, sha256_of
from ..data_prep.dataset import MANIFEST, read_manifest
from ..eval.metrics import roc_auc
from ..eval.scoring import labels_of, margins_of, read_predictions
from .rounds_config import FREE, MADE_WITH, OVERRIDDEN, RoundsConfig, as_options, as_words, flat
from .stages import Stage, locked, read_record, run_stage, script, write_record


def stages_of(config: RoundsConfig, number: int) -> list[Stage]:
    """The commands of a round, in order; the last round's verifier is no teacher."""
    folder, python = round_folder(config, number), sys.executable
    data, run, calibrated = folder / "data", folder / "run", folder / "calibrated"
    train = config.train
    entry = script(f"train/{train.script}.py")
    trained = ("--config", train.config, *as_options(train.options), "--seed", config.seed, "--dataset_dir", data)
    mined = script("data_prep/mine.py"), "--config", write_mine_config(config, number)
    stages = [
        Stage("data", _words(python, *mined), data / MANIFEST),
        Stage("train", _words(*(train.launch or [python]), entry, *trained, "--output_dir", run), run / "draft"),
        _prediction(config, number, "calibration"),
        Stage(
            "calibrate",
            _words(
                *(python, script("eval/calibrate.py"), "--predictions", folder / "calibration.parquet"),
                *("--out", calibrated, *as_words(config.calibrate)),
            ),
            calibrated / "fitted_rows.json",
        ),
    ]
    if number < config.rounds:
        teacher = folder / "teacher.parquet"
        options = ("--predictions", folder / "train.parquet", "--calibration", calibrated, "--out", teacher)
        stages.append(_prediction(config, number, "train"))
        stages.append(Stage("teach", _words(python, script("eval/teach.py"), *options), teacher))
    return stages


def round_folder(config: RoundsConfig, number: int) -> Path:
    """Where a round lies."""
    return Path(config.output) / f"round-{number}"


def write_mine_config(config: RoundsConfig, number: int) -> Path:
    """The mining of a round as data_prep/mine.py reads it: round 0 has no teacher, and draws at random."""
    folder, mining = round_folder(config, number), config.mining
    if number == 0:
        mining = dataclasses.replace(mining, hard_share=0.0, positive_share_hard=None)
    values = {
        "data": config.data,
        "predictions": None if number == 0 else str(round_folder(config, number - 1) / "teacher.parquet"),
        "output": str(folder / "data"),
        "seed": config.seed,
        "mining": json.loads(json.dumps(dataclasses.asdict(mining))),
    }
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "mine.yaml"
    if not (folder / "data" / MANIFEST).exists():  # what was mined keeps what it was mined by
        path.write_text(yaml.safe_dump(values, sort_keys=False), encoding="utf-8")
    return path


def _prediction(config: RoundsConfig, number: int, split: str) -> Stage:
    """Score a split of the data set that holds all candidates: its calibration split is every round's."""
    folder, out = round_folder(config, number), round_folder(config, number) / f"{split}.parquet"
    inputs = ("--verifier", folder / "run" / "draft", "--data", config.data, "--split", split, "--out", out)
    launch = config.predict.launch or [sys.executable]
    words = _words(*launch, script("eval/predict.py"), *inputs, *as_words(config.predict.options))
    return Stage(f"predict {split}", words, out)


def _words(*words: object) -> tuple[str, ...]:
    return tuple(str(word) for word in words)


RECORD = "rounds.json"
FINGERPRINTED = "MANIFEST.sha256"  # of a verifier; models/directory/format.py, which names it, imports torch
SCHEMA_VERSION = 1


def run_rounds(config: RoundsConfig) -> dict[str, Any]:
    """Do what is not done yet of round 0 and `config.rounds` mined ones; returns what rounds.json holds.

    Raises:
        ConfigError: another run is at work there, or the rounds that are there had another configuration.
        RowError: no data set, or rounds that do not follow from each other.
        StageError: a command failed.
    """
    config = dataclasses.replace(config, **{key: expanded(getattr(config, key), key) for key in ("data", "output")})
    output = Path(config.output)
    with locked(output, "other rounds are") as lock:
        record = _taken_up(output, config)
        for number in range(config.rounds + 1):
            for stage in stages_of(config, number):
                _do(stage, number, lock)
                if stage.name == "data":
                    _check_chain(output, number)
                if stage.name == "train":
                    _check_judged(output / f"round-{number}")
            record["rounds"][number:] = [_came_to(output, number)]
            write_record(output / RECORD, record)
            _warn_of_other_rows(record["rounds"])
    return record


def rounds_summary(record: Mapping[str, Any]) -> str:
    """What the rounds end with: one line each, and where the verifiers lie."""
    lines = ["round  rows     hard (called supported)  AUC on the calibration split"]
    for each in record["rounds"]:
        counts = each["counts"]
        hard = f"{counts['hard']} ({counts['hard_called_supported']})"
        lines.append(f"{each['round']:<6} {each['rows']:<8} {hard:<24} {each['calibration']['auc']:.4f}")
    last = Path(record["config"]["output"]) / f"round-{record['config']['rounds']}"
    return "\n".join([*lines, f"verifier     {last / 'run' / 'draft'}", f"calibration  {last / 'calibrated'}"])


def _do(stage: Stage, number: int, lock: int) -> None:
    """Run a stage that is not done yet."""
    if stage.is_done:
        print(f"round {number}  {stage.name}: done before", flush=True)
        return
    if stage.name == "data" and stage.makes is not None:
        for left in stage.makes.parent.parent.glob("data.tmp-*"):
            shutil.rmtree(left)
    print(f"round {number}  {stage.name}", flush=True)
    run_stage(stage, f"round {number}, {stage.name}", "the rounds were", lock)


def _taken_up(output: Path, config: RoundsConfig) -> dict[str, Any]:
    """The record that is there, if its rounds had this configuration, or a new one; written."""
    record = {
        "schema_version": SCHEMA_VERSION,
        "config": json.loads(json.dumps(dataclasses.asdict(config))),
        "train_config": {k: v for k, v in read_yaml(config.train.config).items() if k not in OVERRIDDEN},
        "data": {"manifest_sha256": _manifest_sha256(Path(config.data))},
        "rounds": [],
    }
    record = json.loads(json.dumps(record, default=str))
    path = output / RECORD
    if path.exists():
        earlier = read_record(path, SCHEMA_VERSION, "rounds", list, "rounds")
        _check_same(earlier, record, output)
        record["rounds"] = earlier["rounds"][: config.rounds + 1]
    elif any(output.glob("round-*")):
        raise ConfigError(f"output: holds rounds without their {RECORD}, got {output}; name another folder")
    write_record(path, record)
    return record


def _check_same(earlier: Mapping[str, Any], now: Mapping[str, Any], output: Path) -> None:
    """What is free may differ (how many rounds, how fast they are scored), and what nothing was made with so far."""
    for part, name in (("config", ""), ("train_config", "train.config: "), ("data", "data: ")):
        before, after = flat(earlier.get(part) or {}), flat(now[part])
        for key in sorted({*before, *after} - FREE):
            stage = key.partition(".")[0] if part == "config" else part
            made = MADE_WITH.get(key, MADE_WITH.get(stage, ""))
            if before.get(key) != after.get(key) and (output / made).exists():
                raise ConfigError(
                    f"{name}{key}: the rounds in {output} began with {before.get(key)!r}, got {after.get(key)!r}; set "
                    "it back to go on, or name another output"
                )


def _manifest_sha256(data: Path) -> str:
    read_manifest(data)
    return sha256_of(data / MANIFEST)


def _check_chain(output: Path, number: int) -> None:
    """A round's rows were mined by the teacher that lies in the round before, and its run was trained on them."""
    folder = output / f"round-{number}"
    manifest = read_manifest(folder / "data")
    if number:
        teacher = output / f"round-{number - 1}" / "teacher.parquet"
        if sha256_of(teacher) != manifest["mining"]["predictions"]["sha256"]:
            raise RowError(
                f"{folder}: was mined by another teacher, got {teacher} now; remove {folder} to mine it again"
            )
    run = folder / "run" / "run.json"
    if run.exists() and _read_run(run) != manifest["shards"]:
        raise RowError(f"{folder}: its run was trained on other rows, got {run}; remove all of it but its data")


def _check_judged(folder: Path) -> None:
    """What a round's verifier is said to have judged was judged by the one that lies there."""
    verifier = sha256_of(folder / "run" / "draft" / FINGERPRINTED)
    for name in ("calibration.parquet", "train.parquet"):
        if not (folder / name).exists():
            continue
        judge = read_predictions(folder / name)[1].get("verifier_fingerprint")
        if judge != verifier:
            raise RowError(
                f"{folder / name}: was judged by another verifier than the one in {folder / 'run'}, got "
                f"{str(judge)[:12]} instead of {verifier[:12]}; remove all of {folder} but its data and run"
            )


def _read_run(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))["dataset"]
    except (OSError, ValueError, KeyError) as error:
        round_ = path.parent.parent
        raise RowError(f"{path}: is no record of a run, got {error!r}; remove all of {round_} but its data") from error


def _came_to(output: Path, number: int) -> dict[str, Any]:
    """What a round's rows and its verifier came to."""
    folder = output / f"round-{number}"
    mining = read_manifest(folder / "data")["mining"]
    predictions, source = read_predictions(folder / "calibration.parquet")
    used = [p for p in predictions if p.error is None and p.label is not None]
    return {
        "round": number,
        "manifest_sha256": _manifest_sha256(folder / "data"),
        "rows": mining["counts"]["positives"] + mining["counts"]["negatives"],
        "teacher": mining["teacher"],
        "counts": mining["counts"],
        "verifier_fingerprint": source.get("verifier_fingerprint"),
        "validation_auc": _last_auc(folder / "run" / "metrics.jsonl"),
        "calibration": {"auc": float(roc_auc(margins_of(used), labels_of(used))), "rows": len(used)},
    }


def _last_auc(metrics: Path) -> float | None:
    """AUC of the run's last evaluation; None where it made none."""
    if not metrics.exists():
        return None
    lines = (json.loads(line) for line in metrics.read_text(encoding="utf-8").splitlines())
    return next((line["eval_auc"] for line in reversed([*lines]) if "eval_auc" in line), None)


def _warn_of_other_rows(rounds: list[dict[str, Any]]) -> None:
    if (now := rounds[-1]["rows"]) != (first := rounds[0]["rows"]):
        print(f"warning: round {rounds[-1]['round']} has {now} rows, round 0 had {first}: candidates ran out")
