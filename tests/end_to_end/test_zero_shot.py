"""A checkpoint asked as it is: the verifier of its base alone, bit for bit; and configs that cannot be asked."""

import dataclasses
import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from random_drafts import random_draft

from proofreel.core.config import from_mapping, load_config
from proofreel.core.errors import ConfigError, ModelInputError
from proofreel.core.pairs import Passage
from proofreel.core.prompt import Prompt
from proofreel.core.storage import sha256_of
from proofreel.data_prep.dataset.shards import read_split
from proofreel.eval import predict
from proofreel.eval.scoring.predictions import read_predictions
from proofreel.models.verifier.verifier import Verifier
from proofreel.models.zero_shot.config import ZeroShotConfig, open_zero_shot

ENDPOINT = {"base_url": "http://host/v1", "model": "m", "mode": "live"}


def config_of(base: Path, sampling: Any, prompt: dict[str, Any] | None = None, **model: Any) -> ZeroShotConfig:
    values = {"path": str(base), "dtype": "float32"} | model
    given: dict[str, Any] = {"prompt": prompt or {}, "sampling": dataclasses.asdict(sampling), "model": values}
    return from_mapping(ZeroShotConfig, given, where="test")


def written(folder: Path, config: ZeroShotConfig) -> Path:
    path = folder / "teacher.yaml"
    values = dataclasses.asdict(config)
    path.write_text(json.dumps({key: value for key, value in values.items() if value is not None}))
    return path


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({}, "got neither"),
        ({"endpoint": ENDPOINT, "model": {"path": "x"}}, "got both"),
        ({"model": {"path": "x", "quantization": "int8"}}, "quantization"),
        ({"model": {"path": "x", "max_tokens": 0}}, "max_tokens"),
        ({"model": {"path": "x", "dtype": "float8"}}, "dtype"),
        ({"model": {"path": "x"}, "sampling": {"max_frames": 3}}, "max_frames"),
        ({"endpoint": ENDPOINT, "prompt": {"response_prefix": "<response>"}}, "response_prefix"),
        ({"endpoint": ENDPOINT, "prompt": {"supported_word": "Yes", "refuted_word": "yes "}}, "differ"),
        ({"endpoint": ENDPOINT, "prompt": {"refuted_word": " "}}, "differ"),
        ({"endpoint": {**ENDPOINT, "key": "sk-1"}}, "unknown key"),
        ({"endpont": ENDPOINT}, "did you mean endpoint"),
    ],
)
def test_a_config_that_cannot_be_asked_is_refused_before_anything_is_loaded(tmp_path, values, reason):
    (tmp_path / "c.yaml").write_text(json.dumps(values))
    with pytest.raises(ConfigError, match=reason):
        load_config(ZeroShotConfig, tmp_path / "c.yaml")


@pytest.fixture(scope="module")
def draft(tiny_base, small_sampling, tmp_path_factory) -> Path:
    """A draft whose adapter changes every verdict."""
    return random_draft(tiny_base, tmp_path_factory.mktemp("draft") / "draft", small_sampling)


def common(colour_dataset: Path, out: Path) -> list[str]:
    return ["--data", str(colour_dataset), "--split", "test", "--out", str(out), "--device", "cpu"]


def margins(path: Path) -> list[float]:
    return [row.margin for row in read_predictions(path)[0]]


def test_it_is_the_zero_shot_control_of_a_draft_over_the_same_base_to_the_bit(
    draft, tiny_base, small_sampling, colour_dataset, tmp_path
):
    config = written(tmp_path, config_of(tiny_base, small_sampling))
    tuned, plain = tmp_path / "tuned.parquet", tmp_path / "plain.parquet"
    words = ["--verifier", str(draft), "--controls", "zero-shot", "mismatched-evidence"]
    assert predict.main([*words, *common(colour_dataset, tuned)]) == 0
    words = ["--zero-shot", str(config), "--controls", "mismatched-evidence"]
    assert predict.main([*words, *common(colour_dataset, plain)]) == 0
    assert margins(plain) == margins(tmp_path / "tuned-zero-shot.parquet") != margins(tuned)
    control, about = read_predictions(tmp_path / "plain-mismatched-evidence.parquet")
    assert about["control"] == "mismatched-evidence"
    assert all(a.evidence != b.evidence for a, b in zip(control, read_predictions(plain)[0], strict=True))
    (_, source), (_, theirs) = read_predictions(plain), read_predictions(tmp_path / "tuned-zero-shot.parquet")
    assert source["model"] == {"name": "tiny-base", "revision": None}
    assert source["prompt_sha256"] == theirs["prompt_sha256"] == Prompt().sha256
    assert source["labels"] == theirs["labels"] == ["supported", "refuted"]
    assert source["manifest_sha256"] == sha256_of(colour_dataset / "manifest.json")
    assert (source["calibrated"], source["control"]) == (False, None)
    assert "model" not in theirs
    assert len({source["verifier_fingerprint"], theirs["verifier_fingerprint"]}) == 2


def opened(config: ZeroShotConfig, **options: Any) -> Verifier:
    judge, _ = open_zero_shot(config, device="cpu", **options)
    assert isinstance(judge, Verifier)
    assert (judge.decision, judge.windowing, judge.modalities) == (None, None, None)
    assert judge.notes
    return judge


def test_its_fingerprint_changes_with_all_that_a_margin_depends_on_and_with_nothing_else(
    tiny_base, small_sampling, tmp_path
):
    (tmp_path / "moved").symlink_to(tiny_base)
    same = {opened(config_of(base, small_sampling)).fingerprint for base in (tiny_base, tmp_path / "moved")}
    fewer = dataclasses.replace(small_sampling, max_frames=4)
    changes: list[ZeroShotConfig] = [
        config_of(tiny_base, small_sampling, {"system": "Is it so?"}),
        config_of(tiny_base, fewer),
        config_of(tiny_base, small_sampling, dtype="bfloat16"),
        config_of(tiny_base, small_sampling, max_tokens=100),
        config_of(tiny_base, small_sampling, position_rule="hf5"),
    ]
    others = {opened(config).fingerprint for config in changes}
    assert len(same) == 1
    assert len(same | others) == 1 + len(changes)


def test_a_prompt_over_its_tokens_is_a_row_with_its_reason_and_no_score(
    tiny_base, small_sampling, colour_dataset, tmp_path, capsys
):
    pairs = read_split(colour_dataset, "test")
    short = dataclasses.replace(pairs[0], id="short", evidence=(Passage("."),), claim="X.")
    n_tokens = (
        opened(config_of(tiny_base, small_sampling)).encoder.count_prefix_tokens(pairs[0].evidence) + 3
    )  # too few for a claim
    judge = opened(config_of(tiny_base, small_sampling, max_tokens=n_tokens))
    found = judge.score_pairs([*pairs, short])
    assert all(math.isnan(v.margin) and "too long" in (v.error or "") for v in found[:-1])
    assert found[-1].error is None
    config = written(tmp_path, config_of(tiny_base, small_sampling, max_tokens=n_tokens))
    assert predict.main(["--zero-shot", str(config), *common(colour_dataset, tmp_path / "t.parquet")]) == 0
    assert f"{len(pairs)} rows, {len(pairs)} failed" in capsys.readouterr().out


def test_words_that_are_no_tokens_and_places_that_do_not_exist_are_refused(tiny_base, small_sampling, tmp_path):
    with pytest.raises(ModelInputError, match="one token"):
        opened(config_of(tiny_base, small_sampling, {"supported_word": "corroborated"}))
    with pytest.raises(ConfigError, match="revision"):
        opened(config_of(tiny_base, small_sampling, revision="main"))
    with pytest.raises(ValueError, match="no such folder"):
        opened(config_of(tmp_path / "none", small_sampling))


def test_caches_windows_and_batches_are_those_of_a_verifier(tiny_base, small_sampling, colour_dataset, tmp_path):
    config = written(tmp_path, config_of(tiny_base, small_sampling))
    found = []
    for name, more in (
        ("plain", []),
        ("cached", ["--vision-cache", str(tmp_path / "seen"), "--frame-cache", str(tmp_path / "frames")]),
        ("single", ["--batch-tokens", "1", "--rows-per-block", "2"]),
        ("windows", ["--windowing", "max:0.5:0.25"]),
    ):
        out = tmp_path / f"{name}.parquet"
        assert predict.main(["--zero-shot", str(config), *common(colour_dataset, out), *more]) == 0
        found.append(margins(out))
    for other in found[1:3]:
        assert np.allclose(other, found[0], rtol=1e-5, atol=1e-4)
    assert not np.allclose(found[3], found[0], rtol=1e-5, atol=1e-4)
    assert read_predictions(tmp_path / "windows.parquet")[1]["aggregation"] == "max:0.5:0.25"


def test_exactly_one_of_verifier_and_zero_shot_is_given(draft, tmp_path, capsys):
    rest = ["--data", "x", "--split", "test", "--out", str(tmp_path / "t.parquet")]
    for words in ([], ["--verifier", str(draft), "--zero-shot", "c.yaml"]):
        with pytest.raises(SystemExit):
            predict.main([*words, *rest])
    assert "not allowed with" in capsys.readouterr().err


def test_a_config_is_named_where_it_is_wrong(colour_dataset, tmp_path, capsys):
    (tmp_path / "c.yaml").write_text("model: {path: x, quantisation: nf4}\n")
    words = common(colour_dataset, tmp_path / "t.parquet")
    assert predict.main(["--zero-shot", str(tmp_path / "c.yaml"), *words]) == 1
    assert "did you mean model.quantization?" in capsys.readouterr().err


def test_nf4_is_that_of_a_draft_over_nf4_and_another_function(tiny_base, small_sampling, colour_dataset, tmp_path):
    config = config_of(tiny_base, small_sampling, quantization="nf4")
    quantised = opened(config)
    modules = [type(module).__name__ for module in quantised.model.modules()]
    assert modules.count("Linear4bit") == 2 * 7
    folder = random_draft(tiny_base, tmp_path / "nf4", small_sampling, quantised=True)
    control = Verifier.from_pretrained(folder, device="cpu", adapter=False, prefix_cache_gib=0)
    pairs = read_split(colour_dataset, "test")
    found = [v.margin for v in quantised.score_pairs(pairs)]
    plain = opened(config_of(tiny_base, small_sampling))
    assert found == [v.margin for v in control.score_pairs(pairs)]
    assert found != [v.margin for v in plain.score_pairs(pairs)]
    assert quantised.fingerprint != plain.fingerprint


@pytest.mark.nightly
def test_two_launched_processes_write_the_file_of_one(tiny_base, small_sampling, colour_dataset, tmp_path):
    words = ["--zero-shot", str(written(tmp_path, config_of(tiny_base, small_sampling))), "--rows-per-block", "4"]
    whole, shared = tmp_path / "whole.parquet", tmp_path / "shared.parquet"
    assert predict.main([*words, *common(colour_dataset, whole)]) == 0
    command = [sys.executable, "-m", "proofreel.eval.predict", *words, *common(colour_dataset, shared)]
    launched = {"WORLD_SIZE": "2", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    processes = [subprocess.Popen(command, env={**os.environ, **launched, "RANK": rank}) for rank in ("0", "1")]
    assert [process.wait(timeout=240) for process in processes] == [0, 0]
    (rows, source), (expected, theirs) = read_predictions(shared), read_predictions(whole)
    assert source == theirs
    numbers: Any = {"margin": 0.0, "p_supported": 0.0}
    without = [[dataclasses.replace(row, **numbers) for row in each] for each in (rows, expected)]
    assert without[0] == without[1]
    assert np.allclose(margins(shared), margins(whole), rtol=1e-5, atol=1e-4)
    assert not list(tmp_path.glob("*.blocks"))
