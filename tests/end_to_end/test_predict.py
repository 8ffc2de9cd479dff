"""eval/predict.py and eval/export.py: order kept, failures counted, controls honest, foreign calibrations refused."""

import dataclasses
import json
import math
import shutil
from typing import Any

import pytest
from random_drafts import HEADS, random_draft
from training_runs import with_rows

from proofreel.core.errors import RowError
from proofreel.core.pairs import LABELS, Pair, Passage, VideoSegment
from proofreel.core.prompt import Prompt
from proofreel.data_prep.dataset.shards import read_split
from proofreel.eval import calibrate, export, predict
from proofreel.eval.scoring.controls import hide_evidence, mismatch_evidence
from proofreel.eval.scoring.predictions import read_predictions
from proofreel.eval.scoring.score import predict as predict_pairs
from proofreel.eval.scoring.score import question_of
from proofreel.models.directory.format import read_directory
from proofreel.models.verifier.verifier import BATCH_TOKENS, Verifier


def test_one_prediction_per_row_in_order(published, colour_dataset, tmp_path):
    out = tmp_path / "test.parquet"
    words = ["--verifier", str(published), "--data", str(colour_dataset), "--split", "test", "--out", str(out)]
    assert predict.main([*words, "--device", "cpu"]) == 0
    predictions, source = read_predictions(out)
    pairs = read_split(colour_dataset, "test")
    assert [(p.pair_id, p.label, p.group) for p in predictions] == [(p.id, p.label, p.group) for p in pairs]
    assert source["calibrated"] is True
    verifier = Verifier.from_pretrained(published, device="cpu")
    assert source["verifier_fingerprint"] == verifier.fingerprint
    assert source["prompt_sha256"] == read_directory(published).prompt_sha256
    assert source["labels"] == list(verifier.head.labels)
    assert "model" not in source


def test_labels_are_in_the_order_of_the_head(tiny_base, small_sampling, tmp_path):
    for name, head in HEADS.items():
        draft = random_draft(tiny_base, tmp_path / name, small_sampling, head=head)
        about = question_of(Verifier.from_pretrained(draft, device="cpu"))
        assert about["labels"] == list(LABELS if name == "three labels" else LABELS[:2])
        assert about["prompt_sha256"] == Prompt().sha256


def test_several_processes_write_the_file_of_one_and_another_number_of_them_goes_on(
    published, colour_dataset, tmp_path, monkeypatch, capsys
):
    words = ["--verifier", str(published), "--data", str(colour_dataset), "--split", "test", "--device", "cpu"]
    words += ["--rows-per-block", "4", "--controls", "mismatched-evidence", "--out"]
    assert predict.main([*words, str(tmp_path / "one.parquet")]) == 0
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    assert predict.main([*words, str(tmp_path / "two.parquet")]) == 0
    assert not (tmp_path / "two.parquet").exists()
    monkeypatch.setenv("WORLD_SIZE", "1")
    monkeypatch.setenv("RANK", "0")
    capsys.readouterr()
    assert predict.main([*words, str(tmp_path / "two.parquet")]) == 0
    assert "12 rows, 0 failed, 12 of them scored before" in capsys.readouterr().out
    for name in ("", "-mismatched-evidence"):
        (rows, source), (expected, theirs) = (read_predictions(tmp_path / f"{n}{name}.parquet") for n in ("two", "one"))
        assert source == theirs
        assert rows == expected


def test_failed_rows_are_kept_with_their_reason(published, colour_dataset):
    good = read_split(colour_dataset, "test")[0]
    bad = dataclasses.replace(good, id="bad", evidence=(VideoSegment("gone.mp4", 0, 1),))
    found = predict_pairs(Verifier.from_pretrained(published, device="cpu"), [good, bad])
    assert math.isfinite(found[0].margin)
    assert found[0].error is None
    assert math.isnan(found[1].margin)
    assert "gone.mp4" in (found[1].error or "")


def rows(n_groups, per_group=2):
    return [
        Pair(f"{g}/{i}", "X.", (Passage(f"{g} {i // 2}"),), label="supported", group=str(g))
        for g in range(n_groups)
        for i in range(per_group)
    ]


@pytest.mark.parametrize("nth", [1, 2])
def test_mismatched_evidence_is_always_of_another_group_and_uses_every_evidence(nth):
    pairs = rows(5, per_group=4)
    owner = {p.evidence: p.group for p in pairs}
    changed = mismatch_evidence(pairs, nth)
    assert [(p.id, p.claim, p.label) for p in changed] == [(p.id, p.claim, p.label) for p in pairs]
    assert all(owner[c.evidence] != p.group for c, p in zip(changed, pairs, strict=True))
    assert {c.evidence for c in changed} == set(owner)


def test_zero_shot_is_the_base_without_adapter_and_calibration(published, colour_dataset, tiny_base):
    anew: Any = {"device": "cpu", "prefix_cache_gib": 0}  # by the same route, so that the bits can be compared
    tuned = Verifier.from_pretrained(published, **anew, merge=False)
    base = Verifier.from_pretrained(published, **anew, adapter=False)
    pairs = read_split(colour_dataset, "test")
    assert base.decision is None
    assert [v.margin for v in base.score_pairs(pairs)] != [v.margin for v in tuned.score_pairs(pairs)]
    tuned.model.disable_adapter_layers()  # type: ignore[operator]
    assert [v.margin for v in base.score_pairs(pairs)] == [v.margin for v in tuned.score_pairs(pairs)]


def test_batches_and_caches_do_not_change_predictions(published, colour_dataset, tmp_path, capsys):
    words = ["--verifier", str(published), "--data", str(colour_dataset), "--split", "test", "--device", "cpu"]
    found = []
    for name, options in (
        ("plain", []),
        ("single", ["--batch-tokens", "1"]),
        ("first", ["--vision-cache", str(tmp_path / "seen")]),
        ("again", ["--vision-cache", str(tmp_path / "seen")]),
    ):
        assert predict.main([*words, "--out", str(tmp_path / f"{name}.parquet"), *options]) == 0
        found.append([p.margin for p in read_predictions(tmp_path / f"{name}.parquet")[0]])
    for margins in found[1:]:
        assert all(abs(a - b) <= 1e-4 + 1e-5 * abs(b) for a, b in zip(margins, found[0], strict=True))
    assert predict.main([*words, "--out", str(tmp_path / "x.parquet"), "--batch-tokens", "0"]) == 1
    assert "batch_tokens" in capsys.readouterr().err


def test_the_size_of_a_batch_that_help_names_is_the_verifiers_own(capsys):
    with pytest.raises(SystemExit):
        predict.main(["--help"])
    assert f"default: {BATCH_TOKENS}" in " ".join(capsys.readouterr().out.split())


def test_hidden_evidence_gives_equal_claims_equal_margins(published, colour_dataset):
    pairs = read_split(colour_dataset, "test")
    hidden = hide_evidence(pairs)
    assert [(p.id, p.claim, p.label) for p in hidden] == [(p.id, p.claim, p.label) for p in pairs]
    margins_of: dict[str, list[float]] = {}
    verifier = Verifier.from_pretrained(published, device="cpu", untrained_evidence=True)
    for pair, v in zip(hidden, verifier.score_pairs(hidden), strict=True):
        margins_of.setdefault(pair.claim, []).append(v.margin)
    assert all(max(found) - min(found) <= 2e-4 for found in margins_of.values())


def test_mismatching_needs_two_groups():
    with pytest.raises(RowError, match="more groups"):
        mismatch_evidence(rows(1))


@pytest.mark.parametrize("name", ["folder.parquet", "x.jsonl", "x"])
def test_a_file_that_cannot_be_written_is_refused_before_anything_is_asked(colour_dataset, tmp_path, capsys, name):
    (tmp_path / "folder.parquet").mkdir()
    words = ["--verifier", str(tmp_path), "--data", str(colour_dataset), "--split", "test"]
    assert predict.main([*words, "--out", str(tmp_path / name)]) == 1
    assert f"--out: must be a Parquet file, got {tmp_path / name}" in capsys.readouterr().err


def test_who_judges_the_rows_it_was_trained_on_is_warned_and_nobody_else(trained_run, colour_dataset, tmp_path, capsys):
    moved = shutil.copytree(colour_dataset, tmp_path / "data")  # the same rows elsewhere
    other = with_rows(colour_dataset, tmp_path / "other", read_split(colour_dataset, "train")[1:])
    asked = ["--verifier", str(trained_run / "draft"), "--device", "cpu"]
    for n, (data, split, warned) in enumerate(
        ((moved, "train", True), (moved, "test", False), (other, "train", False))
    ):
        out = ["--data", str(data), "--split", split, "--out", str(tmp_path / f"{n}.parquet")]
        assert predict.main([*asked, *out]) == 0
        assert ("trained on these very rows" in capsys.readouterr().err) is warned


def test_an_absent_split_is_named(published, colour_dataset, tmp_path, capsys):
    words = ["--verifier", str(published), "--data", str(colour_dataset), "--out", str(tmp_path / "x.parquet")]
    assert predict.main([*words, "--split", "dev"]) == 1
    assert "dev" in capsys.readouterr().err


def test_export_refuses_a_calibration_fitted_on_another_verifier(
    trained_run, published, colour_dataset, tmp_path, capsys
):
    out = tmp_path / "calibration.parquet"
    common = ["--data", str(colour_dataset)]
    verifier = ["--verifier", str(published)]  # not the draft that is exported below
    assert predict.main([*common, *verifier, "--split", "calibration", "--out", str(out), "--device", "cpu"]) == 0
    assert calibrate.main(["--predictions", str(out), "--out", str(tmp_path / "calibrated")]) == 0
    draft = ["--verifier", str(trained_run / "draft"), "--calibration", str(tmp_path / "calibrated")]
    assert export.main([*common, *draft, "--out", str(tmp_path / "verifier")]) == 1
    assert "another verifier" in capsys.readouterr().err
    assert not (tmp_path / "verifier").exists()


def test_export_refuses_to_overwrite(trained_run, published, colour_dataset, capsys):
    words = ["--verifier", str(trained_run / "draft"), "--calibration", str(trained_run / "calibrated")]
    assert export.main([*words, "--data", str(colour_dataset), "--out", str(published)]) == 1
    assert "already exists" in capsys.readouterr().err


def test_a_draft_scores_without_label_and_says_it_is_uncalibrated(trained_run, colour_dataset):
    verifier = Verifier.from_pretrained(trained_run / "draft", device="cpu")
    pair = read_split(colour_dataset, "test")[0]
    verdict = verifier.score([pair.claim], pair.evidence)[0]
    assert verifier.decision is None
    assert verdict.label is None
    assert verdict.p_supported == pytest.approx(1 / (1 + math.exp(-verdict.margin)))


def test_ask_prints_one_line_per_claim_and_fails_if_any_does(published, colour_dataset, capsys):
    from proofreel.cli import main

    segment = read_split(colour_dataset, "test")[0].evidence[0]
    assert isinstance(segment, VideoSegment)
    words = ["ask", str(published), "Colour is red.", "Colour is blue.", "--video", segment.path, "--end", "1"]
    assert main(words) == 0
    lines = capsys.readouterr().out.strip().splitlines()
    assert [line.split("  ")[-1] for line in lines] == ["Colour is red.", "Colour is blue."]
    assert main([*words[:3], "--video", "gone.mp4"]) == 1
    assert "gone.mp4" in capsys.readouterr().out


def test_the_exported_golden_margins_are_the_drafts(published, trained_run):
    golden = json.loads((published / "golden" / "golden.json").read_text())
    assert golden
    assert all(len(case["margins"]) == len(case["claims"]) > 0 for case in golden)
