"""What export writes: the whole directory or nothing, its evaluation, and merging that keeps or refits what it must."""

import dataclasses
import json
import math
import shutil
from pathlib import Path
from typing import Any

import fsspec
import pytest
from random_drafts import random_draft
from safetensors.torch import load_file

from proofreel import allow_remote
from proofreel.core.errors import CalibrationError, ConfigError, DirectoryError, RowError
from proofreel.data_prep.dataset.shards import read_split
from proofreel.eval import calibrate, predict, report
from proofreel.eval.export import main
from proofreel.eval.publishing.exporting import Change, Evaluation, export
from proofreel.eval.scoring.predictions import Prediction, read_predictions, write_predictions
from proofreel.models.decision.calibrator import sigmoid
from proofreel.models.decision.thresholds import read_decision
from proofreel.models.directory.copies import push_to_hub
from proofreel.models.directory.format import (
    CONFIG,
    SCHEMA_VERSION,
    check_manifest,
    fingerprint,
    read_directory,
    write_manifest,
)
from proofreel.models.inputs.chat_template import QWEN_VL
from proofreel.models.verifier.self_test import selftest
from proofreel.models.verifier.verifier import Verifier

ROOT = Path(__file__).resolve().parents[2]


@dataclasses.dataclass(frozen=True)
class Run:
    """A draft with what predict, calibrate and report made of it."""

    draft: Path
    calibrated: Path
    test: Path
    report: Path
    data: Path

    def command(self, out: Path | str, *more: Any) -> list[str]:
        words = ["--verifier", self.draft, "--calibration", self.calibrated, "--data", self.data, "--out", out, *more]
        return [str(w) for w in words]


def make_run(folder: Path, draft: Path, data: Path) -> Run:
    run = Run(draft, folder / "calibrated", folder / "test.parquet", folder / "report", data)
    for split, out in (("calibration", folder / "calibration.parquet"), ("test", run.test)):
        words = ["--verifier", draft, "--data", data, "--split", split, "--out", out, "--device", "cpu"]
        assert predict.main([str(w) for w in words]) == 0
    words = ["--predictions", folder / "calibration.parquet", "--out", run.calibrated, "--method", "platt"]
    assert calibrate.main([*map(str, words), "--objective", "balanced_accuracy", "cost:5:1"]) == 0
    words = ["--predictions", run.test, "--calibration", run.calibrated, "--out", run.report, "--clips", 0]
    assert report.main([str(w) for w in words]) == 0
    return run


@pytest.fixture(scope="module")
def make(tmp_path_factory, tiny_base, small_sampling, colour_dataset):
    """A run of a random adapter, by its settings; each is made once."""
    kept: dict[str, Run] = {}

    def made(**settings) -> Run:
        key = json.dumps({k: str(v) for k, v in settings.items()})
        if key not in kept:
            folder = tmp_path_factory.mktemp("run")
            draft = random_draft(tiny_base, folder / "draft", small_sampling, **settings)
            kept[key] = make_run(folder, draft, colour_dataset)
        return kept[key]

    return made


@pytest.fixture(scope="module")
def run(make):
    return make(config={"modalities": ("video",)})


@pytest.fixture(scope="module")
def quantised(make):
    return make(quantised=True)


@pytest.fixture(scope="module")
def exported(run, tmp_path_factory):
    out = run.draft.parent / "exported"
    assert main(run.command(out, "--report", run.report, "--predictions", run.test, "--license", "apache-2.0")) == 0
    return out


@pytest.fixture(scope="module")
def merged(run):
    """Exported merged with everything scored now, twice merged would be an error."""
    out = run.draft.parent / "merged"
    assert main(run.command(out, "--merge", "--test-split", "test")) == 0
    return out


def test_the_directory_holds_all_its_parts_and_nothing_else(exported):
    files = {p.relative_to(exported).as_posix() for p in exported.rglob("*") if p.is_file()}
    several = {f for f in files if f.startswith(("processor/", "golden/"))}
    assert several >= {"processor/tokenizer.json", "processor/chat_template.jinja", "golden/golden.json"}
    assert files - several == {
        "README.md",
        "MANIFEST.sha256",
        "fitted_rows.json",
        "verifier_config.json",
        "calibration.json",
        "thresholds.json",
        "adapter/adapter_config.json",
        "adapter/adapter_model.safetensors",
        "eval/metrics.json",
        "eval/report.html",
        "eval/report.md",
        "eval/predictions.parquet",
    }
    check_manifest(exported)
    assert {p.stat().st_mode & 0o777 for p in exported.rglob("*") if p.is_file()} == {0o644}  # under umask 022
    listed = (exported / "MANIFEST.sha256").read_text().splitlines()
    assert {line.split("  ")[1] for line in listed} == files - {"MANIFEST.sha256"}
    assert not [p for p in exported.parent.iterdir() if p.name.startswith(".")]


def test_what_ships_is_what_export_writes_today(exported):
    """Same files, same schema, same keys: whoever changes the export runs docs/kitchen.md's two commands again."""
    shipped = ROOT / "checkpoints" / "kitchen-verifier"
    files, todays = ({p.relative_to(d).as_posix() for p in d.rglob("*") if p.is_file()} for d in (shipped, exported))
    assert files == todays
    optional = {"merged", "time_rule"}  # of what was exported otherwise
    for name in (CONFIG, "calibration.json", "thresholds.json", "adapter/adapter_config.json", "golden/settings.json"):
        ours, theirs = (json.loads((d / name).read_text()) for d in (shipped, exported))
        assert set(ours) - optional == set(theirs) - optional, name
    assert read_directory(shipped).modalities == ("video",)
    assert json.loads((shipped / CONFIG).read_text())["schema_version"] == SCHEMA_VERSION


def test_what_runs_no_program_of_its_own_is_stored_the_chat_turns_and_every_adapted_layer(exported):
    assert read_directory(exported).chat == QWEN_VL
    named = json.loads((exported / "adapter" / "adapter_config.json").read_text())["target_modules"]
    stored = load_file(exported / "adapter" / "adapter_model.safetensors")
    assert named == sorted({name.removeprefix("base_model.model.").split(".lora_")[0] for name in stored})


def test_requirements_come_with_a_reason_each(exported, merged):
    config = read_directory(exported)
    assert set(config.requirements) == {"torch", "transformers", "safetensors", "torchvision", "peft"}
    assert set(read_directory(merged).requirements) == set(config.requirements) - {"peft"}
    assert all(r.versions and r.reason for r in config.requirements.values())


def test_stored_margins_are_those_of_the_exported_verifier_with_its_own_probabilities(exported, run):
    rows, source = read_predictions(exported / "eval" / "predictions.parquet")
    pairs = read_split(run.data, "test")
    verifier = Verifier.from_pretrained(exported, device="cpu", merge=False)
    found = verifier.score_pairs(pairs)
    assert [r.margin for r in rows] == [v.margin for v in found]
    assert [r.p_supported for r in rows] == [v.p_supported for v in found]
    assert any(r.p_supported != float(sigmoid(r.margin)) for r in rows)
    for row, pair in zip(rows, pairs, strict=True):
        assert (row.pair_id, row.label, row.group, row.role, row.origin) == (
            pair.id,
            pair.label,
            pair.group,
            pair.role,
            pair.origin,
        )
        assert row.claim == pair.claim
    assert source["calibrated"] is True
    assert source["verifier_fingerprint"] == fingerprint(run.draft)


def test_stored_rows_and_page_name_no_folder_of_this_machine(exported, run):
    rows, _ = read_predictions(exported / "eval" / "predictions.parquet")
    stored = "".join(f"{r.evidence} {r.error}" for r in rows)
    assert "clip" in stored
    for text in (stored, (exported / "README.md").read_text(), (exported / "eval" / "report.html").read_text()):
        assert str(run.data.parent) not in text


def test_a_failed_row_is_stored_as_a_failure_without_its_folder(run, tmp_path):
    path = "/somewhere/private/a.mp4"
    row = Prediction(
        "1", math.nan, math.nan, "supported", "test", "g", "", "", "video", f"{path}: gone", "claim",
        json.dumps([{"kind": "video", "path": path, "start_s": 0, "end_s": 1}]),
    )  # fmt: skip
    write_predictions(tmp_path / "p.parquet", [row], {"verifier_fingerprint": fingerprint(run.draft)})
    out = tmp_path / "out"
    assert main(run.command(out, "--predictions", tmp_path / "p.parquet")) == 0
    (kept,), _ = read_predictions(out / "eval" / "predictions.parquet")
    assert kept.error == "a.mp4: gone"
    assert math.isnan(kept.margin)
    assert "private" not in kept.evidence
    assert not (out / "eval" / "metrics.json").exists()


@pytest.mark.parametrize("what", ["--predictions", "--report"])
def test_an_evaluation_of_another_verifier_is_refused(run, quantised, tmp_path, capsys, what):
    other = {"--predictions": quantised.test, "--report": quantised.report}[what]
    assert main(run.command(tmp_path / "out", what, other)) == 1
    assert "of another verifier" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_report_at_another_calibration_is_refused(run, tmp_path):
    shutil.copytree(run.report, tmp_path / "report")
    path = tmp_path / "report" / "metrics.json"
    values = json.loads(path.read_text())
    values["calibration"]["slope"] *= 2
    path.write_text(json.dumps(values))
    with pytest.raises(CalibrationError, match="another calibration"):
        export(run.draft, run.calibrated, run.data, tmp_path / "out", evaluation=Evaluation(tmp_path / "report"))
    with pytest.raises(RowError, match="not the numbers of a report"):
        export(run.draft, run.calibrated, run.data, tmp_path / "out", evaluation=Evaluation(tmp_path))
    assert not (tmp_path / "out").exists()


def test_an_evaluation_is_given_or_made_never_both(run):
    with pytest.raises(ConfigError, match="give one of them"):
        Evaluation(report=run.report, split="test")


def test_a_calibration_of_another_verifier_is_refused(run, quantised, tmp_path):
    with pytest.raises(CalibrationError, match="fitted on another verifier"):
        export(run.draft, quantised.calibrated, run.data, tmp_path / "out")


def test_a_directory_that_exists_is_left_alone(run, exported):
    before = fingerprint(exported)
    with pytest.raises(DirectoryError, match="already exists"):
        export(run.draft, run.calibrated, run.data, exported)
    assert fingerprint(exported) == before


def test_merging_a_full_precision_adapter_keeps_its_calibration(run, merged):
    config = read_directory(merged)
    assert config.weights == "full"
    assert read_decision(merged) == read_decision(run.calibrated)
    told = config.trained["merged"]
    assert (told["calibration"], told["same"], told["from_quantised"]) == ("kept", True, False)
    assert told["n"] == len(read_split(run.data, "calibration"))
    assert 0 < told["max_difference"] < 1e-3
    assert not (merged / "adapter").exists()
    assert selftest(merged, Verifier.from_pretrained(merged, device="cpu"), "float32").max_difference == 0
    rows, _ = read_predictions(merged / "eval" / "predictions.parquet")
    found = Verifier.from_pretrained(merged, device="cpu").score_pairs(read_split(run.data, "test"))
    assert [r.margin for r in rows] == [v.margin for v in found]


def test_merging_an_adapter_over_nf4_is_refused_unless_the_calibration_may_be_fitted_again(quantised, tmp_path, capsys):
    assert main(quantised.command(tmp_path / "no", "--merge")) == 1
    said = capsys.readouterr().err
    assert "merging changes what it says" in said
    assert "--recalibrate" in said
    assert list(tmp_path.iterdir()) == []
    given = ["--report", quantised.report]
    assert main(quantised.command(tmp_path / "no", "--merge", "--recalibrate", *given)) == 1
    assert "before merging" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_merged_quantised_verifier_is_fitted_measured_and_remembered_anew(quantised, tmp_path):
    out = tmp_path / "out"
    assert main(quantised.command(out, "--merge", "--recalibrate", "--test-split", "test")) == 0
    verifier = Verifier.from_pretrained(out, device="cpu")
    config, decision, before = read_directory(out), read_decision(out), read_decision(quantised.calibrated)
    assert (config.weights, config.quantization) == ("full", None)
    assert config.trained["merged"]["calibration"] == "fitted again"
    assert config.trained["merged"]["from_quantised"] is True
    assert decision.calibration.method == before.calibration.method == "platt"
    assert decision.calibration != before.calibration
    assert [p.name for p in decision.points] == [p.name for p in before.points]
    assert decision.default == before.default == "balanced_accuracy"
    golden = json.loads((out / "golden" / "golden.json").read_text())
    assert selftest(out, verifier, "float32").max_difference == 0
    assert len(golden) > 0
    rows, _ = read_predictions(out / "eval" / "predictions.parquet")
    found = verifier.score_pairs(read_split(quantised.data, "test"))
    assert [r.margin for r in rows] == [v.margin for v in found]
    metrics = json.loads((out / "eval" / "metrics.json").read_text())
    assert metrics["calibration"] == json.loads(json.dumps(decision.calibration.to_dict()))
    assert metrics["headline"]["n"] == len(rows)
    assert (out / "eval" / "report.html").is_file()


def test_half_precision_is_merged_in_float32_and_its_rounding_is_stated(make, tmp_path):
    half = make(dtype="bfloat16")
    assert main(half.command(tmp_path / "out", "--merge")) == 0
    told = read_directory(tmp_path / "out").trained["merged"]
    assert told["from_dtype"] == read_directory(tmp_path / "out").dtype == "bfloat16"
    assert told["max_difference"] > 0
    assert f"{told['max_difference']:.2g}" in (tmp_path / "out" / "README.md").read_text()


def test_a_draft_of_an_older_release_takes_up_the_rounded_positions_and_says_what_moved(run, tmp_path):
    older = shutil.copytree(run.draft, tmp_path / "older")
    config = json.loads((older / CONFIG).read_text())
    del config["time_rule"]
    (older / CONFIG).write_text(json.dumps(config | {"schema_version": "1.1"}))
    write_manifest(older)
    assert read_directory(older).time_rule == "truncated"
    calibrated = shutil.copytree(run.calibrated, tmp_path / "calibrated")
    stored = (calibrated / "calibration.json").read_text()
    (calibrated / "calibration.json").write_text(stored.replace(fingerprint(run.draft), fingerprint(older)))
    export(older, calibrated, run.data, tmp_path / "kept")
    assert read_directory(tmp_path / "kept").time_rule == "truncated"
    out = tmp_path / "out"
    export(older, calibrated, run.data, out, change=Change(time_rule="rounded", recalibrate=True))
    told = read_directory(out).trained["time_rule"]
    assert (read_directory(out).time_rule, told["from"], told["from_fingerprint"]) == (
        "rounded",
        "truncated",
        fingerprint(older),
    )
    assert told["n"] == len(read_split(run.data, "calibration"))
    assert "time rule `rounded`" in (out / "README.md").read_text()
    assert json.loads((out / "golden" / "settings.json").read_text())["time_rule"] == "rounded"


def test_options_of_merging_need_merging(run, tmp_path, capsys):
    with pytest.raises(SystemExit):
        main(run.command(tmp_path / "out", "--recalibrate"))
    assert "--merge" in capsys.readouterr().err


@pytest.mark.parametrize("parts", [("language_model",), ("language_model", "lm_head")])
def test_an_adapter_file_holds_its_low_rank_matrices_and_not_a_byte_of_the_base(
    tiny_base, small_sampling, tmp_path, parts
):
    draft = random_draft(tiny_base, tmp_path / "draft", small_sampling, parts=parts)
    path = draft / "adapter" / "adapter_model.safetensors"
    tensors = load_file(path)
    assert all(".lora_A." in n or ".lora_B." in n for n in tensors)
    assert any("lm_head" in n for n in tensors) == ("lm_head" in parts)
    assert all(2 in t.shape for t in tensors.values())  # the rank
    header = int.from_bytes(path.read_bytes()[:8], "little")
    assert path.stat().st_size == 8 + header + sum(t.numel() * t.element_size() for t in tensors.values())
    base = load_file(tiny_base / "model.safetensors")["lm_head.weight"]
    assert sum(t.numel() for n, t in tensors.items() if "lm_head" in n) in (0, 2 * sum(base.shape))


# The hub is a stub here: no network is to be had. Everything else is real.


class Hub:
    """Keeps what it is asked for, as huggingface_hub.HfApi would do it."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple, dict[str, Any]]] = []

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any, **named: Any) -> str:
            self.calls.append((name, args, named))
            return f"hub://{named.get('repo_id', '')}"

        return call


def test_pushing_hands_the_checked_directory_over_as_the_client_wants_it(exported):
    import inspect

    from huggingface_hub import HfApi

    hub = Hub()
    assert push_to_hub(exported, "me/verifier", private=True, revision="v1", api=hub) == "hub://me/verifier"
    assert [name for name, _, _ in hub.calls] == ["create_repo", "create_branch", "upload_folder"]
    for name, args, named in hub.calls:  # the real client takes these arguments
        inspect.signature(getattr(HfApi, name)).bind(None, *args, **named)
    (_, _, made), (_, _, branch), (_, _, upload) = hub.calls
    assert (made["private"], made["exist_ok"]) == (True, True)
    assert branch["branch"] == upload["revision"] == "v1"
    assert upload["folder_path"] == exported
    assert fingerprint(exported)[:12] in upload["commit_message"]


def test_what_is_damaged_or_a_draft_is_not_pushed(exported, run, tmp_path):
    copy = shutil.copytree(exported, tmp_path / "copy")
    (copy / "README.md").write_text("better")
    hub = Hub()
    with pytest.raises(DirectoryError, match=r"README\.md"):
        push_to_hub(copy, "me/verifier", api=hub)
    with pytest.raises(DirectoryError, match="uncalibrated verifier"):
        push_to_hub(run.draft, "me/verifier", api=hub)
    assert hub.calls == []


def test_a_verifier_is_exported_to_an_address_and_opens_from_there(run, merged, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PROOFREEL_REMOTE", "")
    allow_remote("memory://bucket", directory=tmp_path / "kept")
    try:
        assert main(run.command("memory://bucket/verifier", "--merge")) == 0, capsys.readouterr()
        assert "sent to memory://bucket/verifier: " in capsys.readouterr().out
        assert not list((tmp_path / "kept" / "outputs").iterdir())
        there = Verifier.from_pretrained("memory://bucket/verifier", device="cpu")
        here = Verifier.from_pretrained(merged, device="cpu")
        asked = read_split(run.data, "test")[:4]
        margins = [[verdict.margin for verdict in v.score_pairs(asked)] for v in (there, here)]
        assert margins[0] == margins[1]
        assert main(run.command("memory://bucket/verifier", "--merge")) == 1
        assert "holds something already" in capsys.readouterr().err
    finally:
        fsspec.filesystem("memory").store.clear()
