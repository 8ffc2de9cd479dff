"""From a draft and its calibration to the published verifier directory."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

from ..data_prep.dataset import read_split
from ..data_prep.errors import CalibrationError, DirectoryError
from ..models.decisions import read_decision, write_decision
from ..models.directory import CONFIG, MANIFEST, fingerprint, read_directory, write_directory
from ..models.golden import SelfTest, selftest, write_golden
from ..models.paths import relative_base
from ..models.verifier import Verifier


def export(
    draft: Path, calibration: Path, data: Path, out: Path, base: Path | None = None, report: Path | None = None
) -> SelfTest:
    """Write the verifier directory `out` and prove that it reloads to the same margins.

    Args:
        draft: what training left.
        calibration: folder with calibration.json and thresholds.json fitted on the draft's own predictions.
        data: data set whose calibration split gives the golden inputs.
        out: must not exist.
        base: base checkpoint, if not where the draft says.
        report: folder of a report whose metrics.json travels along as eval/metrics.json.

    Raises:
        CalibrationError: the calibration was fitted on another verifier's predictions.
        DirectoryError: the exported directory does not reproduce its own golden margins.
    """
    config, decision = read_directory(draft), read_decision(calibration)
    fitted_on = decision.calibration.fitted_on.get("verifier_fingerprint")
    if fitted_on != fingerprint(draft):
        raise CalibrationError(
            f"{calibration}: fitted on another verifier, got fingerprint {str(fitted_on)[:12]} instead of "
            f"{fingerprint(draft)[:12]}; run eval/predict.py and eval/calibrate.py with this draft"
        )
    verifier = Verifier.from_pretrained(draft, device="cpu", base=base)
    pairs = read_split(data, "calibration")

    def fill(folder: Path) -> None:
        shutil.copytree(draft, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns(MANIFEST))
        path = relative_base(config.base.path, old=draft, new=out)
        moved = dataclasses.replace(config, base=dataclasses.replace(config.base, path=path))
        (folder / CONFIG).write_text(moved.to_json(), encoding="utf-8")
        write_decision(folder, decision)
        write_golden(folder / "golden", verifier, pairs)
        if report is not None:
            (folder / "eval").mkdir()
            shutil.copy2(report / "metrics.json", folder / "eval" / "metrics.json")

    write_directory(out, fill)
    result = selftest(out, Verifier.from_pretrained(out, device="cpu", base=base), config.dtype)
    if not result.passed:
        shutil.rmtree(out)
        raise DirectoryError(
            f"{out}: golden margins differ by {result.max_difference:g} after reloading, allowed {result.allowed:g}; "
            "the export was removed, please report this"
        )
    return result
