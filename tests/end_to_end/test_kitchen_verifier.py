"""The published example: checkpoints/kitchen-verifier loads from the repo, reproduces itself, and knows by looking."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
VERIFIER = ROOT / "checkpoints" / "kitchen-verifier"


def test_its_golden_margins_come_out_again(capsys):
    from proofreel.cli import main

    assert main(["selftest", str(VERIFIER)]) == 0
    assert "ok" in capsys.readouterr().out


def test_the_readmes_first_example_prints_what_the_readme_says():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    example = re.search(r"```python\n(.*?)```\n\n```\n(.*?)```", text, re.DOTALL)
    assert example
    assert len(example[1].splitlines()) <= 8
    assert len(text.splitlines()) < 120
    done = subprocess.run([sys.executable, "-c", example[1]], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    printed, stated = (
        [line.rstrip().partition(" ") for line in part.splitlines()] for part in (done.stdout, example[2])
    )
    assert [words for _, _, words in printed] == [words for _, _, words in stated], done.stdout
    assert [float(p) for p, _, _ in printed] == pytest.approx([float(p) for p, _, _ in stated], abs=0.002), done.stdout


def test_the_readme_states_its_fingerprint():
    from proofreel.models.directory import fingerprint

    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert re.findall(r"fingerprint: ([0-9a-f]{64})", text) == [fingerprint(VERIFIER)]


@pytest.fixture(scope="module")
def fresh_pairs(tmp_path_factory):
    """Claims about held-out combinations in clips of a seed nobody trained or calibrated on."""
    from proofreel.data_prep import build
    from proofreel.data_prep.dataset.shards import read_split

    out = tmp_path_factory.mktemp("fresh")
    sizes = ["--clips", "30", "20", "20", "40", "--long", "0", "0", "0", "0"]
    subprocess.run(
        [sys.executable, "-m", "examples.kitchen.make", "--out", str(out / "world"), "--seed", "77", *sizes],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    source = f"sources=[{{format: facts, path: {out}/world/annotations.json}}]"
    config = str(ROOT / "configs" / "kitchen_build.yaml")
    assert build.main(["--config", config, f"output={out}/data", source]) == 0
    return read_split(out / "data", "test")


def auc(verifier, pairs):
    from proofreel.eval.metrics.ranking import roc_auc

    verdicts = verifier.score_pairs(pairs)
    assert all(v.error is None for v in verdicts)
    return float(roc_auc([v.margin for v in verdicts], [p.label == "supported" for p in pairs]))


def test_it_judges_new_clips_and_falls_without_their_frames(fresh_pairs):
    from proofreel.eval.scoring.controls import mismatch_evidence
    from proofreel.models.verifier.verifier import Verifier

    verifier = Verifier.from_pretrained(VERIFIER, device="cpu")
    assert auc(verifier, fresh_pairs) >= 0.95
    assert abs(auc(verifier, mismatch_evidence(fresh_pairs)) - 0.5) <= 0.08
    assert auc(Verifier.from_pretrained(VERIFIER, device="cpu", adapter=False), fresh_pairs) <= 0.75


def test_it_is_small_and_names_no_place_on_any_machine():
    files = [p for p in VERIFIER.rglob("*") if p.is_file()]
    assert sum(p.stat().st_size for p in files) < 6 * 2**20
    assert json.loads((VERIFIER / "verifier_config.json").read_text())["base"]["path"] == "../kitchen-base"
