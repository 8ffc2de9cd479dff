"""The model card: front matter that the hub's own client reads back, and nothing that the directory does not say."""

import dataclasses
import json
import math
from typing import Any

import pytest
from huggingface_hub import ModelCard
from huggingface_hub.repocard_data import eval_results_to_model_index

from proofreel.core.prompt import Prompt
from proofreel.data_prep.media.frames import FrameSampling
from proofreel.eval.calibration.fit import fit_decision
from proofreel.eval.metrics.catalogue import definition
from proofreel.eval.publishing.model_card import (
    DataFacts,
    Measured,
    card_metrics,
    describe_data,
    model_index,
    pipeline_tag,
    write_card,
)
from proofreel.eval.reports.page import make_report, write_report
from proofreel.eval.scoring.predictions import Prediction, write_predictions
from proofreel.models.decision.thresholds import write_decision
from proofreel.models.directory.format import BaseModel, Requirement, VerifierConfig

DATA = DataFacts(
    "pans", "a" * 64, {"train": {"rows": 1234, "groups": 56, "label": {"supported": 617, "refuted": 617}}}, True
)
CONFIG = VerifierConfig(
    base=BaseModel("Qwen/Qwen2.5-VL-3B-Instruct", "0123abc", "b" * 64),
    weights="adapter",
    prompt=Prompt(),
    supported_id=5,
    refuted_id=6,
    sampling=FrameSampling(),
    modalities=("transcript", "video"),
    trained={"parameters": {"language_model": 4096, "score": 0, "total": 99_999}, "steps": 77},
    requirements={"torch": Requirement(">=2.11", "its kernels")},
)


def rows_of(split, n=240, n_failed=0):
    rows = []
    for i in range(n):
        good = i % 2 == 0
        margin = math.sin(i * 12.9898) + (0.8 if good else -0.8)
        failed = i < n_failed
        rows.append(
            Prediction(
                f"{split}{i}",
                math.nan if failed else margin,
                math.nan if failed else 0.5,
                "supported" if good else "refuted",
                split,
                f"{split} group {i // 8}",
                ["Tool", "Act|ion"][i // 2 % 2],
                "annotated",
                "video",
                "x.mp4: gone" if failed else None,
            )
        )
    return rows


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A directory as export fills it before its card: a real fit and a real report of made-up margins."""
    folder = tmp_path_factory.mktemp("card") / "pan-verifier"
    decision = fit_decision(rows_of("calibration"), "platt", ["f1", "cost:5:1"], {"split": "calibration"})
    write_decision(folder, decision)
    (folder / "golden").mkdir()
    (folder / "golden" / "golden.json").write_text(json.dumps([{"margins": [0.1, 0.2]}, {"margins": [0.3]}]))
    path = folder / "eval" / "predictions.parquet"
    write_predictions(path, rows_of("test", n_failed=3), {"manifest_sha256": DATA.manifest_sha256})
    write_report(folder / "eval", make_report(path, folder, clips_per_kind=0))
    return folder


def card_of(folder, config=CONFIG, data=DATA, license: str | None = "mit") -> Any:
    return ModelCard.load(write_card(folder, "pan-verifier", config, data, license))


def headline(folder):
    return json.loads((folder / "eval" / "metrics.json").read_text())["headline"]


def test_the_hubs_client_reads_every_metric_back_with_its_interval_and_convention(folder):
    card, row = card_of(folder), headline(folder)
    assert card.data.model_name == "pan-verifier"
    results = {r.metric_type: r for r in card.data.eval_results}
    assert {"roc_auc", "f1", "balanced_accuracy", "expected_calibration_error", "log_loss"} <= set(results)
    for metric, hub in card_metrics():
        result = results[hub.type]
        assert result.metric_value == row[metric.key]
        assert result.metric_args["convention"] == definition(metric.name)
        assert (result.dataset_name, result.dataset_split) == ("pans", "test")
        assert result.dataset_args["n_failed"] == 3
        assert result.dataset_args["manifest_sha256"] == DATA.manifest_sha256
        assert (result.task_type, result.task_name) == ("video-text-to-text", "Claim verification")
        if metric.name in row["intervals"]:
            interval = row["intervals"][metric.name]
            assert (result.metric_args["low"], result.metric_args["high"]) == (interval["low"], interval["high"])
            assert f"{interval['low']:.3f} to {interval['high']:.3f}" in result.metric_name
    assert "auc" in row["intervals"]


def test_the_hubs_client_writes_the_same_index_that_it_read(folder):
    card = card_of(folder)
    ours = model_index("pan-verifier", CONFIG, headline(folder), Measured("pans", "test", DATA.manifest_sha256))
    assert eval_results_to_model_index(card.data.model_name, card.data.eval_results) == ours
    assert ModelCard(str(card)).data.to_dict() == card.data.to_dict()


def test_front_matter_names_what_hubs_sort_by(folder):
    data = card_of(folder).data.to_dict()
    assert data["library_name"] == "proofreel"
    assert data["base_model"] == "Qwen/Qwen2.5-VL-3B-Instruct"
    assert data["base_model_relation"] == "adapter"
    assert data["license"] == "mit"
    assert data["pipeline_tag"] == "video-text-to-text"
    assert {"claim-verification", "calibrated", "lora", "video", "transcript"} <= set(data["tags"])
    whole = card_of(folder, dataclasses.replace(CONFIG, weights="full"), license=None).data.to_dict()
    assert whole["base_model_relation"] == "finetune"
    assert "license" not in whole
    assert "lora" not in whole["tags"]


def test_a_base_beside_the_directory_is_no_model_of_the_hub(folder):
    local = dataclasses.replace(CONFIG, base=BaseModel("../base", None, "b" * 64))
    card = card_of(folder, local)
    assert card.data.base_model is None
    assert "../base" not in str(card)
    assert "b" * 64 in card.text


@pytest.mark.parametrize(
    ("kinds", "tag"),
    [
        (("passage", "video"), "video-text-to-text"),
        (("image", "passage"), "image-text-to-text"),
        (("passage", "transcript"), "text-classification"),
        (None, "video-text-to-text"),
    ],
)
def test_the_task_follows_the_kinds_of_evidence(kinds, tag):
    assert pipeline_tag(dataclasses.replace(CONFIG, modalities=kinds)) == tag


def test_the_text_says_what_was_measured_fitted_and_trained(folder):
    text, row = card_of(folder).text, headline(folder)
    for words in (
        "transcripts and video segments",
        f"{row['auc']:.3f}",
        "237 rows scored and labelled",
        "3 failed",
        "3 rows failed: x.mp4: gone",
        "platt: p = sigmoid(",
        "Positive rate of the fit: 0.500",
        "`f1` is the default",
        "cost_5_1",
        "Trained and calibrated on the data set pans",
        DATA.manifest_sha256,
        "train: 1,234 rows, 56 groups, 617 supported",
        "4,096 in language_model, of 99,999",
        "steps: 77",
        'Verifier.from_pretrained("',
        "recomputes 3 stored margins",
        "It was not trained on images, passages of text",
        "## Intended use",
        "## Known limits",
        "Its frames are resized by Pillow",
        "| torch | >=2.11 | its kernels |",
        "Act\\|ion",
        "eval/predictions.parquet",
    ):
        assert words in text, words


@pytest.mark.parametrize(
    ("trained_here", "said"),
    [(True, "Trained and calibrated on"), (False, "not recorded here"), (None, "Calibrated on")],
)
def test_training_data_is_named_only_where_the_run_recorded_it(folder, trained_here, said):
    text = card_of(folder, data=dataclasses.replace(DATA, trained_here=trained_here)).text
    assert said in text
    assert ("Trained and" in text) == (trained_here is True)


def test_results_on_another_data_set_are_not_given_this_ones_name(folder):
    card = card_of(folder, data=dataclasses.replace(DATA, manifest_sha256="c" * 64))
    assert {r.dataset_name for r in card.data.eval_results} == {f"data set {'a' * 12}"}


def test_without_an_evaluation_nothing_is_claimed(folder, tmp_path):
    import shutil

    bare = shutil.copytree(folder, tmp_path / "bare")
    shutil.rmtree(bare / "eval")
    card = card_of(bare)
    assert card.data.eval_results is None
    assert "nothing is claimed about its accuracy" in card.text
    assert "ROC-AUC" not in card.text


def test_an_undefined_metric_is_left_out_rather_than_null(folder):
    row = headline(folder) | {"auc": None, "f1": math.nan}
    measured = Measured("pans", None, None)
    (index,) = model_index("v", CONFIG, row, measured)
    kinds = {m["type"] for m in index["results"][0]["metrics"]}
    assert kinds == {hub.type for _, hub in card_metrics()} - {"roc_auc", "f1"}
    assert "split" not in index["results"][0]["dataset"]
    assert model_index("v", CONFIG, {"auc": math.nan}, measured) == []


def test_what_a_merge_did_is_told(folder):
    merged = {
        "from_fingerprint": "d" * 64,
        "from_dtype": "bfloat16",
        "from_quantised": True,
        "n": 480,
        "n_failed": 0,
        "max_difference": 0.125,
        "same": False,
        "calibration": "fitted again",
    }
    text = card_of(folder, dataclasses.replace(CONFIG, weights="full", trained={"merged": merged})).text
    assert "trained over a quantised base in bfloat16" in text
    assert "480 calibration rows margins moved by at most 0.12; the calibration was fitted again" in text


def test_who_taught_it_is_told(folder):
    teacher = {"file_sha256": "e" * 64, "verifier_fingerprint": "a" * 64, "teachers": None, "calibrated": True}
    text = card_of(folder, dataclasses.replace(CONFIG, trained={"teacher": teacher})).text
    told = "Distilled from the calibrated margins of verifier `aaaaaaaaaaaa`, teacher file SHA-256 `" + "e" * 64
    assert told in text
    teacher |= {"teachers": [{"verifier_fingerprint": c * 64} for c in "bc"], "calibrated": False}
    text = card_of(folder, dataclasses.replace(CONFIG, trained={"teacher": teacher})).text
    assert "the not calibrated margins of 2 verifiers (`bbbbbbbbbbbb`, `cccccccccccc`)" in text
    assert "Distilled" not in card_of(folder).text


def test_whose_adapter_it_began_from_is_told(folder):
    text = card_of(folder, dataclasses.replace(CONFIG, trained={"adapter_from": "c" * 64})).text
    assert "Training began from the adapter of verifier `cccccccccccc`." in text
    assert "Training began" not in card_of(folder).text


def test_facts_of_a_data_set_come_from_its_manifest_and_the_runs_record(colour_dataset, tmp_path):
    draft = tmp_path / "run" / "draft"
    draft.mkdir(parents=True)
    facts = describe_data(colour_dataset, draft)
    assert (facts.name, facts.trained_here) == ("data", None)
    assert facts.counts["train"]["rows"] == 24
    manifest = json.loads((colour_dataset / "manifest.json").read_text())
    (draft.parent / "run.json").write_text(json.dumps({"dataset": manifest["shards"]}))
    assert describe_data(colour_dataset, draft).trained_here is True
    (draft.parent / "run.json").write_text(json.dumps({"dataset": {"train": []}}))
    assert describe_data(colour_dataset, draft).trained_here is False
