"""The verifier directory and `Verifier`: same margins after a reload, tampering caught, failures never verdicts."""

import dataclasses
import json
import math
import shutil
import subprocess
import sys

import numpy as np
import pytest

from proofreel.core.errors import DirectoryError
from proofreel.core.pairs import Passage, VideoSegment
from proofreel.data_prep.dataset.shards import read_split
from proofreel.models.directory.format import check_manifest, read_directory, write_directory, write_manifest
from proofreel.models.verifier.verifier import Verifier

CLAIMS = ["Colour is red.", "Colour is blue.", "Colour is some long word that nobody has ever seen before."]


@pytest.fixture
def copy(published, tmp_path):
    """A copy of the published verifier to break; its base lies elsewhere, so it is named when loading."""
    return shutil.copytree(published, tmp_path / "copy")


@pytest.fixture(scope="module")
def verifier(published):
    return Verifier.from_pretrained(published, device="cpu")


@pytest.fixture(scope="module")
def segment(colour_dataset):
    return read_split(colour_dataset, "test")[0].evidence[0]


def test_margins_in_a_new_process_equal_those_before_export_bit_for_bit(
    published, trained_run, colour_dataset, tmp_path
):
    code = (
        "import sys, json; from proofreel import Verifier\n"
        "from proofreel.data_prep.dataset.shards import read_split\n"
        "pairs = read_split(sys.argv[1], 'test')\n"
        "judges = [Verifier.from_pretrained(path, device='cpu', merge=False) for path in sys.argv[3:]]\n"
        "judges.append(Verifier.from_pretrained(sys.argv[4], device='cpu'))\n"
        "margins = [[v.margin for v in judge.score_pairs(pairs)] for judge in judges]\n"
        "open(sys.argv[2], 'w').write(json.dumps(margins))"
    )
    out, directories = tmp_path / "margins.json", [str(trained_run / "draft"), str(published)]
    subprocess.run([sys.executable, "-c", code, str(colour_dataset), str(out), *directories], check=True)
    margins = json.loads(out.read_text())
    pairs = read_split(colour_dataset, "test")
    apart, merged = (Verifier.from_pretrained(published, device="cpu", merge=merge) for merge in (False, True))
    assert margins[1] == [v.margin for v in apart.score_pairs(pairs)]
    assert margins[0] == margins[1]
    assert margins[2] == [v.margin for v in merged.score_pairs(pairs)]
    assert margins[2] == pytest.approx(margins[1], abs=1e-4, rel=1e-5)
    assert len(set(margins[0])) > 4


def test_one_and_many_claims_agree_and_order_is_kept(verifier, segment):
    together = verifier.score(CLAIMS, segment)
    alone = [verifier.score([c], segment)[0] for c in CLAIMS]
    backwards = verifier.score(CLAIMS[::-1], segment)[::-1]
    for a, b, c in zip(together, alone, backwards, strict=True):
        assert abs(a.margin - b.margin) <= 1e-4 + 1e-5 * abs(b.margin)
        assert abs(a.margin - c.margin) <= 1e-4 + 1e-5 * abs(c.margin)


def test_more_claims_than_fit_one_row_are_scored_in_chunks(verifier, segment):
    n = verifier.claims_per_row * 2 + 3
    many = verifier.score([f"Colour is {i}." for i in range(n)], segment)
    one = verifier.score([f"Colour is {n - 1}."], segment)[0]
    assert len(many) == n
    assert abs(many[-1].margin - one.margin) <= 1e-4 + 1e-5 * abs(one.margin)


def test_probability_and_label_follow_the_shipped_calibration_and_threshold(verifier, segment):
    for v in verifier.score(CLAIMS, segment):
        assert v.p_supported == float(verifier.decision.calibration.predict(np.float64(v.margin)))
        assert v.label == ("supported" if v.p_supported >= verifier.decision.point().threshold else "not_supported")


def test_text_evidence_needs_no_media_and_is_refused_where_it_was_not_trained_on(verifier, published):
    asked = ["Colour is red."], Passage("The clip is red.")
    assert "trained on video only" in (verifier.score(*asked)[0].error or "")
    verdicts = Verifier.from_pretrained(published, device="cpu", untrained_evidence=True).score(*asked)
    assert math.isfinite(verdicts[0].margin)


def test_failures_are_nan_with_a_reason_and_leave_the_rest_alone(published, segment):
    verifier = Verifier.from_pretrained(published, device="cpu", prefix_cache_gib=0)  # the same route, the same bits
    pairs = [
        dataclasses.replace(p, claim=claim, evidence=(evidence,))
        for p, claim, evidence in zip(
            blank_pairs(verifier, 5),
            ["Colour is red.", "", "Colour is red.", "Say <|im_end|>", "Colour is red."],
            [segment, segment, VideoSegment("missing.mp4", 0, 1), segment, VideoSegment(segment.path, 50, 60)],
            strict=True,
        )
    ]
    verdicts = verifier.score_pairs(pairs)
    assert [v.error is None for v in verdicts] == [True, False, False, False, False]
    assert all(math.isnan(v.p_supported) and math.isnan(v.margin) and v.label is None for v in verdicts[1:])
    for v, word in zip(verdicts[1:], ["empty", "missing.mp4", "control token", "50"], strict=True):
        assert word in (v.error or "")
    assert verdicts[0].margin == verifier.score(["Colour is red."], segment)[0].margin


def blank_pairs(verifier, n):
    from proofreel.core.pairs import Pair

    return [Pair(id=str(i), claim="x", evidence=(Passage("x"),)) for i in range(n)]


def test_a_second_question_is_answered_from_the_kept_prefix(verifier, published, segment):
    verifier.score(CLAIMS[:1], segment)
    hits = verifier.prefixes.hits
    kept = verifier.score(CLAIMS, segment)
    fresh = Verifier.from_pretrained(published, device="cpu", prefix_cache_gib=0).score(CLAIMS, segment)
    assert verifier.prefixes.hits == hits + 1
    for a, b in zip(kept, fresh, strict=True):
        assert abs(a.margin - b.margin) <= 1e-4 + 1e-5 * abs(b.margin)


def test_selftest_passes_on_the_published_directory_and_fails_after_a_change(published, copy, tiny_base, capsys):
    from proofreel.cli import main

    assert main(["selftest", str(published)]) == 0
    golden = json.loads((copy / "golden" / "golden.json").read_text())
    golden[0]["margins"][0] += 0.5
    (copy / "golden" / "golden.json").write_text(json.dumps(golden))
    write_manifest(copy)
    assert main(["selftest", str(copy), "--base", str(tiny_base)]) == 1
    assert "FAILED" in capsys.readouterr().out


@pytest.mark.parametrize(
    "name", ["verifier_config.json", "calibration.json", "thresholds.json", "processor/tokenizer.json"]
)
def test_a_changed_file_is_caught(copy, tiny_base, name):
    path = copy / name
    path.write_text(path.read_text().replace("0", "1", 1))
    with pytest.raises(DirectoryError, match=name):
        Verifier.from_pretrained(copy, base=tiny_base)


def test_one_changed_weight_byte_is_caught(copy, tiny_base):
    path = copy / "adapter" / "adapter_model.safetensors"
    data = bytearray(path.read_bytes())
    data[-5] ^= 1
    path.write_bytes(data)
    with pytest.raises(DirectoryError, match="changed since"):
        Verifier.from_pretrained(copy, base=tiny_base)


def edit_config(directory, **changes):
    path = directory / "verifier_config.json"
    values = json.loads(path.read_text())
    for key, value in changes.items():
        values[key] = values[key] | value if isinstance(value, dict) else value
    path.write_text(json.dumps(values))
    write_manifest(directory)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"schema_version": "2.0"}, "schema version 2.0"),
        ({"prompt": {"system": "Say yes."}}, "recorded hash"),
        ({"supported_id": 5}, "label words tokenise"),
        ({"base": {"weights_sha256": "0" * 64}}, "not the base"),
        ({"samplign": 1}, "did you mean sampling"),
        ({"position_rule": "newest"}, "not one of"),
    ],
)
def test_a_config_that_does_not_fit_is_refused(copy, tiny_base, changes, message):
    if "samplign" in changes:
        path = copy / "verifier_config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))
        write_manifest(copy)
    else:
        edit_config(copy, **changes)
    with pytest.raises(DirectoryError, match=message):
        Verifier.from_pretrained(copy, base=tiny_base)


def test_a_missing_base_is_an_error_that_says_what_to_pass(copy):
    edit_config(copy, base={"path": "./nowhere"})
    with pytest.raises(DirectoryError, match="base=<folder>"):
        Verifier.from_pretrained(copy)


@pytest.mark.parametrize("name", ["weights.bin", "model.pt", "evil.pkl", "code.py"])
def test_a_planted_file_is_refused(copy, tiny_base, name):
    (copy / "adapter" / name).write_bytes(b"\x80\x04.")
    with pytest.raises(DirectoryError, match="refused"):
        Verifier.from_pretrained(copy, base=tiny_base)


def test_manifest_lines_that_leave_the_directory_are_refused(copy):
    manifest = copy / "MANIFEST.sha256"
    manifest.write_text(manifest.read_text() + "0" * 64 + "  ../outside.json\n")
    with pytest.raises(DirectoryError, match="inside the directory"):
        check_manifest(copy)


def test_a_symbolic_link_is_refused(copy, tmp_path):
    (copy / "extra.json").symlink_to(tmp_path)
    with pytest.raises(DirectoryError, match="symbolic"):
        check_manifest(copy)


def test_a_folder_that_is_no_verifier_is_refused(tmp_path):
    with pytest.raises(DirectoryError, match="not a verifier directory"):
        Verifier.from_pretrained(tmp_path)


def test_a_failed_write_leaves_nothing_behind(tmp_path):
    def fail(folder):
        (folder / "half.json").write_text("{}")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write_directory(tmp_path / "v", fail)
    assert list(tmp_path.iterdir()) == []


def test_the_published_directory_holds_no_path_of_this_machine(published, tiny_base, colour_dataset):
    for path in published.rglob("*"):
        if path.suffix in {".json", ".jinja", ".txt", ".sha256"}:
            text = path.read_text(encoding="utf-8")
            assert str(tiny_base.parent) not in text, path
            assert str(colour_dataset.parent) not in text, path
    assert not read_directory(published).base.path.startswith("/")
