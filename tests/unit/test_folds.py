"""A build in folds: whole groups, each row once, and for every fold a data set that leaves it out."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from proofreel.core import ConfigError, RowError
from proofreel.core.pairs import Pair, Passage
from proofreel.data_prep.dataset import FOLDS, fold_names, read_manifest, read_split, splits_without, write_pairs
from proofreel.data_prep.pipeline import build, summary
from proofreel.data_prep.pipeline.config import BuildConfig, LeaksConfig, NegativesConfig, SourceConfig, SplitsConfig
from proofreel.train.run_steps import refuse_unusable

LONG = "the committee announced on friday that the bridge will stay closed"


def config_of(folder: Path, n_groups: int = 12, cross: int = 4, rows: int = 4, **changes: Any) -> BuildConfig:
    """A build of `n_groups` groups, group k with `rows` + k % 3 rows, labels in turn."""
    pairs = [
        Pair(f"g{k}r{i}", f"Claim {i} of {k}.", (Passage(f"text {i} of {k}"),), LABELS[i % 2], group=f"g{k:02}")
        for k in range(n_groups)
        for i in range(rows + k % 3)
    ]
    write_pairs(folder / "rows.jsonl", pairs)
    splits = SplitsConfig(cross=cross)
    config = BuildConfig(
        str(folder / "data"),
        (SourceConfig("pairs", str(folder / "rows.jsonl")),),
        splits=splits,
        negatives=NegativesConfig(swapped_per_claim=0),
        shortcut_probe=False,
        card=False,
    )
    return dataclasses.replace(config, **changes)


LABELS = ("supported", "refuted")


def folds_of(config: BuildConfig) -> dict[str, dict[str, list[Pair]]]:
    """{fold: {split: its rows}}, as a training that leaves the fold out reads them."""
    found = {}
    for name in read_manifest(config.output)["cross"]["folds"]:
        folder = Path(config.output) / FOLDS / name
        found[name] = {split: read_split(folder, split) for split in read_manifest(folder)["shards"]}
    return found


@pytest.mark.parametrize(("n", "validates"), [(2, False), (3, True), (5, True), (5, False), (12, True)])
def test_every_fold_is_in_one_split_of_each_training_and_tested_on_once(n, validates):
    names = fold_names(n)
    assert list(names) == sorted(names)
    tested = []
    for left_out in (*names, None):
        splits = splits_without(names, left_out, validates)
        held = [fold for folds in splits.values() for fold in folds]
        assert sorted(held) == sorted(names)
        assert ("validation" in splits) == validates
        tested += splits.get("test", [])
    assert sorted(tested) == sorted(names)


def test_folds_hold_whole_groups_and_each_row_is_tested_once_and_never_trained_on_there(tmp_path):
    config = config_of(tmp_path, negatives=NegativesConfig(swapped_per_claim=1))
    manifest = build(config)
    assert manifest["unusable_splits"] == {}
    folds = folds_of(config)
    every = [pair for name in manifest["shards"] for pair in read_split(config.output, name)]
    tested = [pair.id for splits in folds.values() for pair in splits["test"]]
    assert sorted(tested) == sorted(pair.id for pair in every)
    assert len(set(tested)) == len(tested)
    assert any(pair.origin == "swapped_evidence" for pair in every)
    for splits in folds.values():
        groups = {split: {pair.group for pair in pairs} for split, pairs in splits.items()}
        assert not groups["test"] & (groups["train"] | groups["validation"])
        assert not groups["train"] & groups["validation"]
        assert all(pair.split == split for split, pairs in splits.items() for pair in pairs)
        claims = {pair.claim for pair in splits["test"]}  # of negatives too: they are made within a fold
        assert not claims & {pair.claim for split in ("train", "validation") for pair in splits[split]}
    sizes = [len(splits["test"]) for splits in folds.values()]
    assert max(sizes) - min(sizes) <= 3
    text = summary(manifest, tmp_path)
    assert "empty splits" not in text
    assert "few groups: all 12" in text


def test_the_same_groups_and_seed_give_the_same_folds_and_bytes(tmp_path):
    manifests = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        config = config_of(tmp_path / name)
        build(config)
        manifests.append(read_manifest(config.output)["shards"])
    assert manifests[0] == manifests[1]


def test_tied_groups_share_a_fold(tmp_path):
    config = config_of(tmp_path, 8, 4)
    pairs = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    for pair in pairs:
        if pair["id"] in ("g1r0", "g6r0"):
            pair["claim"] = LONG
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs))
    build(config)
    (fold,) = [name for name, splits in folds_of(config).items() if "g01" in {p.group for p in splits["test"]}]
    assert "g06" in {pair.group for pair in folds_of(config)[fold]["test"]}
    with pytest.raises(RowError, match="g06"):
        build(dataclasses.replace(config, leaks=LeaksConfig(claims="refuse")))
    with pytest.raises(ConfigError, match=r"got 7 groups \(8 groups, .* tied ones count as one\) for 8 folds"):
        build(dataclasses.replace(config, splits=SplitsConfig(cross=8)))


@pytest.mark.parametrize(
    ("splits", "message"),
    [
        (SplitsConfig(cross=1), r"splits\.cross: folds are .*got 1; use 3 or more$"),
        (SplitsConfig(cross=2), r"got 2; use 3 or more, or splits\.validation=0"),
        (SplitsConfig(cross=1, validation=0), "folds are one to test on, one to train on, got 1"),
        (SplitsConfig(cross=0, validation=0), "got 0"),
        (SplitsConfig(cross=13), r"fewer groups than folds, got 12 groups for 13 folds; use at most 12"),
        (SplitsConfig(cross=4, held_out_roles=("Action",)), "held_out_roles"),
    ],
)
def test_folds_that_cannot_be_are_refused(tmp_path, splits, message):
    with pytest.raises(ConfigError, match=message):
        build(config_of(tmp_path, splits=splits))


def test_splits_that_the_annotations_fix_are_not_overruled(tmp_path):
    config = config_of(tmp_path)
    pairs = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(p | {"split": "test"}) + "\n" for p in pairs))
    with pytest.raises(ConfigError, match=r"splits\.cross: the annotations fix splits themselves, got 'test'"):
        build(config)


def test_a_fold_of_one_class_is_named_and_stops_the_run_before_training(tmp_path):
    config = config_of(tmp_path, 4, 4, rows=1)  # a group of one row has one class
    manifest = build(config)
    assert set(manifest["unusable_splits"]["problems"]) == {
        name for name, splits in folds_of(config).items() if len(splits["test"]) == 1
    }
    assert "got 1 groups with supported rows and 0 with others; it needs a group with each" in summary(
        manifest, tmp_path
    )
    assert "fewer folds" in manifest["unusable_splits"]["remedy"]
    with pytest.raises(ConfigError, match="fewer folds"):
        refuse_unusable(Path(config.output))


def test_of_two_folds_each_alone_must_do_for_a_calibration(tmp_path):
    two = SplitsConfig(cross=2, validation=0)
    assert set(build(config_of(tmp_path, 2, splits=two))["unusable_splits"]["problems"]) == {"fold-0", "fold-1"}
    assert build(config_of(tmp_path, 4, splits=two))["unusable_splits"] == {}


def test_few_groups_are_told_of_cross_fitting_and_it_works(tmp_path):
    config = config_of(tmp_path, 6, splits=SplitsConfig(0.7, 0.1, 0.1, 0.1))
    unusable = build(config)["unusable_splits"]
    assert "splits.cross=3" in unusable["remedy"]
    assert build(dataclasses.replace(config, splits=SplitsConfig(cross=3)))["unusable_splits"] == {}
