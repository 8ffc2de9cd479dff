"""The real vLLM, in an environment of its own: `make test-vllm` makes it and runs this file (docs/interchange.md)."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.vllm

ROOT = Path(__file__).resolve().parents[2]
CLAIMS = ["Action is chopping.", "Tool is knife.", "Ingredient is onion.", "Location is kitchen."]


@pytest.fixture(scope="module")
def merged(tmp_path_factory):
    """The published kitchen verifier, merged, with its golden inputs and calibration."""
    from proofreel.models.directory import write_directory, write_merged

    source, work = ROOT / "checkpoints" / "kitchen-verifier", tmp_path_factory.mktemp("merged")
    write_merged(source, work / "weights")

    def fill(folder: Path) -> None:
        shutil.copytree(work / "weights", folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("MANIFEST.sha256"))
        shutil.copytree(folder / "processor", folder / "model", dirs_exist_ok=True)
        for name in ("calibration.json", "thresholds.json"):
            shutil.copy(source / name, folder / name)
        shutil.copytree(source / "golden", folder / "golden")

    return write_directory(work / "verifier", fill)


def test_margins_are_ours_also_of_odd_spans(merged):
    from proofreel import Verifier, VideoSegment

    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    # Its golden margins are compared on loading, within 1e-4.
    theirs = Verifier.from_pretrained(merged, engine="vllm", engine_options={"enforce_eager": True})
    ours = Verifier.from_pretrained(merged)
    for start_s, end_s in ((0.0, 2.0), (0.13, 1.5), (0.3, 1.91)):
        clip = VideoSegment(str(ROOT / "examples" / "kitchen" / "sample.mp4"), start_s, end_s)
        expected, actual = ours.score(CLAIMS, clip), theirs.score(CLAIMS, clip)
        assert not any(verdict.error for verdict in actual)
        assert np.allclose([v.margin for v in actual], [v.margin for v in expected], atol=1e-4)
        assert [v.label for v in actual] == [v.label for v in expected]
