"""A build says which splits cannot be used and what would help, and `proofreel run` stops before it trains on them."""

import json
from pathlib import Path

import pytest

from proofreel.core import ConfigError
from proofreel.data_prep.dataset import read_manifest
from proofreel.data_prep.pipeline import build, summary
from proofreel.data_prep.pipeline.config import BuildConfig, NegativesConfig, SourceConfig, SplitsConfig
from proofreel.train.run_steps import refuse_unusable


def config_of(folder: Path, n_videos: int, splits: SplitsConfig | None = None, refuted: bool = True) -> BuildConfig:
    facts = [
        {
            "video": f"v{i}.mp4",
            "start_s": 0.0,
            "end_s": 1.0,
            "conceptual": {"Action": f"action{i}"},
            "negative_contextual": [f"break thing {i}"] if refuted else [],
        }
        for i in range(n_videos)
    ]
    path = folder / "annotations.jsonl"
    path.write_text("".join(json.dumps(fact) + "\n" for fact in facts))
    return BuildConfig(
        str(folder / "out"),
        (SourceConfig("facts", str(path)),),
        media="absent",
        shortcut_probe=False,
        card=False,
        splits=splits or SplitsConfig(),
        negatives=NegativesConfig(swapped_per_claim=0),
    )


def test_shares_that_work_are_named_and_do(tmp_path):
    config = config_of(tmp_path, 14)
    manifest = build(config)
    unusable = manifest["unusable_splits"]
    assert set(unusable["problems"]) == {"calibration", "test"}
    assert "calibration cannot be used, got 1 groups with supported rows and 1 with others" in summary(
        manifest, tmp_path
    )
    words = [word for word in unusable["remedy"].split() if word.startswith("splits.")]
    shares = {key.removeprefix("splits."): float(value) for key, value in (word.split("=") for word in words)}
    with pytest.raises(ConfigError, match=r"test cannot be used.*splits\.train="):
        refuse_unusable(Path(config.output))
    again = build(
        config_of(
            tmp_path, 14, SplitsConfig(shares["train"], shares["validation"], shares["calibration"], shares["test"])
        )
    )
    assert again["unusable_splits"] == {}
    assert "note: few groups" in summary(again, tmp_path)
    assert f"calibration {again['counts']['calibration']['groups']}" in unusable["remedy"]
    refuse_unusable(Path(config.output))


def test_a_class_that_is_missing_is_not_mended_by_shares(tmp_path):
    unusable = build(config_of(tmp_path, 40, refuted=False))["unusable_splits"]
    assert set(unusable["problems"]) == {"train", "validation", "calibration", "test"}
    assert "40" not in unusable["remedy"]
    assert "negatives.swapped_per_claim=1" in unusable["remedy"]


def test_too_few_groups_for_any_shares(tmp_path):
    unusable = build(config_of(tmp_path, 4))["unusable_splits"]
    assert "annotate more groups" in unusable["remedy"]


def test_splits_without_a_share_are_not_wanted(tmp_path):
    assert build(config_of(tmp_path, 3, SplitsConfig(1.0, 0.0, 0.0, 0.0)))["unusable_splits"] == {}


def test_a_data_set_of_before_has_no_such_note(tmp_path):
    config = config_of(tmp_path, 14)
    build(config)
    path = Path(config.output) / "manifest.json"
    manifest = read_manifest(config.output)
    del manifest["unusable_splits"]
    path.write_text(json.dumps(manifest))
    refuse_unusable(Path(config.output))
