"""A published verifier gives in a fresh process what it gave at export, bit for bit with its adapter kept apart.

Every head, with LoRA on attention, on the MLPs as well and on the output layer, over a full and a quantised base, as an
adapter and merged. One fresh process scores them all.
"""

import json
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from random_drafts import ATTENTION, HEADS, random_draft

from proofreel.data_prep.dataset.shards import read_split
from proofreel.eval.calibration.fit import fit_decision
from proofreel.eval.calibration.fitted_rows import write_fitted_rows
from proofreel.eval.publishing.exporting import Change, Evaluation, export
from proofreel.eval.scoring.predictions import read_predictions
from proofreel.eval.scoring.score import predict
from proofreel.models.decision.thresholds import write_decision
from proofreel.models.directory.format import fingerprint, read_directory
from proofreel.models.verifier.golden import TOLERANCE
from proofreel.models.verifier.verifier import Verifier

TARGETS: dict[str, dict[str, Any]] = {
    "attention": {"target_modules": ATTENTION},
    "attention and MLP": {},
    "output layer too": {"parts": ("language_model", "lm_head")},
}
CASES = [
    (head, targets, quantised)
    for head in HEADS
    for targets in TARGETS
    for quantised in (False, True)
    if head == "next token" or targets != "output layer too"
]
# Every head, every set of targets, full and quantised, once each; all of their combinations are the nightly ones.
FEW = [
    ("next token", "output layer too", False),
    ("next token", "attention", True),
    ("two labels", "attention and MLP", True),
    ("three labels", "attention", False),
]
SCORE = """
import json, sys
from proofreel import Verifier
from proofreel.data_prep.dataset.shards import read_split
pairs, out = read_split(sys.argv[1], "test"), {}
for directory in sys.argv[3:]:
    verdicts = Verifier.from_pretrained(directory, device="cpu", merge=False).score_pairs(pairs)
    out[directory] = [[v.margin, v.p_supported] for v in verdicts]
open(sys.argv[2], "w").write(json.dumps(out))
"""


def directories(folder, base, sampling, data, case):
    """A draft, exported as an adapter and merged, each with its test rows scored at export."""
    head, targets, quantised = case
    draft = random_draft(base, folder / "draft", sampling, HEADS[head], quantised=quantised, **TARGETS[targets])
    rows = predict(Verifier.from_pretrained(draft, device="cpu"), read_split(data, "calibration"))
    about = {"split": "calibration", "verifier_fingerprint": fingerprint(draft)}
    write_decision(folder / "calibrated", fit_decision(rows, "temperature", "f1", about))
    write_fitted_rows(folder / "calibrated", rows)
    for name, change in (("adapter", None), ("merged", Change(merge=True, recalibrate=quantised))):
        export(draft, folder / "calibrated", data, folder / name, evaluation=Evaluation(split="test"), change=change)
    return {"draft": draft, "adapter": folder / "adapter", "merged": folder / "merged"}


@pytest.fixture(
    scope="module",
    params=[pytest.param(FEW, id="few"), pytest.param(CASES, id="every combination", marks=pytest.mark.nightly)],
)
def made(request, tmp_path_factory, tiny_base, small_sampling, colour_dataset):
    """Directories of several cases, and what a fresh process says of the test rows by each."""
    root = tmp_path_factory.mktemp("parity")
    all_of = {
        case: directories(root / str(i), tiny_base, small_sampling, colour_dataset, case)
        for i, case in enumerate(request.param)
    }
    listed = [str(d) for group in all_of.values() for d in group.values()]
    command = [sys.executable, "-c", SCORE, str(colour_dataset), str(root / "fresh.json"), *listed]
    subprocess.run(command, check=True, capture_output=True)
    fresh = json.loads((root / "fresh.json").read_text())
    return {case: {name: (d, np.array(fresh[str(d)])) for name, d in group.items()} for case, group in all_of.items()}


def stored(directory):
    rows, _ = read_predictions(directory / "eval" / "predictions.parquet")
    return np.array([[r.margin, r.p_supported] for r in rows])


def test_a_fresh_process_gives_the_exported_margins_and_probabilities_bit_for_bit(made):
    for case, group in made.items():
        for name in ("adapter", "merged"):
            directory, fresh = group[name]
            assert np.array_equal(stored(directory), fresh), (case, name)
            assert len(np.unique(fresh[:, 0])) > 4
        assert np.array_equal(group["draft"][1][:, 0], group["adapter"][1][:, 0]), case


def test_merged_agrees_with_its_adapter_or_says_that_it_does_not(made):
    absolute, relative = TOLERANCE["float32"]
    for case, group in made.items():
        (_, adapter), (directory, merged) = group["adapter"], group["merged"]
        difference = abs(merged[:, 0] - adapter[:, 0])
        told = read_directory(directory).trained["merged"]
        assert (difference <= absolute + relative * abs(adapter[:, 0])).all() == (not case[2]), case
        assert told["same"] is not case[2], case
        assert told["calibration"] == ("fitted again" if case[2] else "kept"), case
