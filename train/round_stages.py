"""The commands of one round, in order, and what is there once each has succeeded."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path

import yaml

from ..data_prep.dataset import MANIFEST
from .rounds_config import RoundsConfig, as_options, as_words

SCRIPTS = Path(__file__).resolve().parent.parent


@dataclasses.dataclass(frozen=True)
class Stage:
    """One command of a round, and what is there once it has succeeded."""

    name: str
    command: tuple[str, ...]
    makes: Path


def stages_of(config: RoundsConfig, number: int) -> list[Stage]:
    """The commands of a round, in order; the last round's verifier teaches nobody."""
    folder, python = round_folder(config, number), sys.executable
    data, run, calibrated = folder / "data", folder / "run", folder / "calibrated"
    train = config.train
    entry = _script(f"train/{train.script}.py")
    trained = ("--config", train.config, *as_options(train.options), "--seed", config.seed, "--dataset_dir", data)
    mined = _script("data_prep/mine.py"), "--config", write_mine_config(config, number)
    stages = [
        Stage("data", _words(python, *mined), data / MANIFEST),
        Stage("train", _words(*(train.launch or [python]), entry, *trained, "--output_dir", run), run / "draft"),
        _prediction(config, number, "calibration"),
        Stage(
            "calibrate",
            _words(
                *(python, _script("eval/calibrate.py"), "--predictions", folder / "calibration.parquet"),
                *("--out", calibrated, *as_words(config.calibrate)),
            ),
            calibrated / "fitted_rows.json",
        ),
    ]
    if number < config.rounds:
        teacher = folder / "teacher.parquet"
        taught = ("--predictions", folder / "train.parquet", "--calibration", calibrated, "--out", teacher)
        stages.append(_prediction(config, number, "train"))
        stages.append(Stage("teach", _words(python, _script("eval/teach.py"), *taught), teacher))
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
    asked = ("--verifier", folder / "run" / "draft", "--data", config.data, "--split", split, "--out", out)
    launch = config.predict.launch or [sys.executable]
    words = _words(*launch, _script("eval/predict.py"), *asked, *as_words(config.predict.options))
    return Stage(f"predict {split}", words, out)


def _words(*words: object) -> tuple[str, ...]:
    return tuple(str(word) for word in words)


def _script(name: str) -> str:
    """An entry script, by the path a user in this folder would type."""
    path = SCRIPTS / name
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)
