"""Teacher files made up for the tests of distillation: what a teacher would have said, without one."""

import dataclasses
import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from proofreel.core.pairs import Pair
from proofreel.core.prompt import Prompt
from proofreel.core.storage import sha256_of
from proofreel.data_prep.dataset.shards import read_split
from proofreel.eval.scoring.predictions import Prediction, write_predictions
from proofreel.models.decision.calibrator import sigmoid


def believes_labels(pair: Pair) -> float:
    """A teacher that is right, and sure in its way of each row."""
    size = 1 + sum(map(ord, pair.id)) % 5 / 2
    return size if pair.label == "supported" else -size


def prediction(pair: Pair, margin: float, error: str | None = None) -> Prediction:
    """One row as eval/predict.py writes it; NaN with a reason where it could not."""
    p = math.nan if error else float(sigmoid(margin))
    kept = (pair.label, pair.split, pair.group, pair.role, pair.origin, "video")
    return Prediction(pair.id, math.nan if error else margin, p, *kept, error, pair.claim)


def source_of(dataset: Path, **changes: Any) -> dict[str, Any]:
    """What a calibrated file of this data set says of itself."""
    source = {
        "verifier_fingerprint": "f" * 64,
        "manifest_sha256": sha256_of(dataset / "manifest.json"),
        "pairs_sha256": "0" * 64,
        "calibrated": True,
        "control": None,
        "prompt_sha256": Prompt().sha256,
        "labels": ["supported", "refuted"],
    }
    return source | changes


def teacher_file(
    dataset: Path,
    path: Path,
    margin: Callable[[Pair], float] = believes_labels,
    change: Callable[[Prediction], Prediction | None] = lambda p: p,
    more: Iterable[Prediction] = (),
    rows: Iterable[Pair] | None = None,
    **source: Any,
) -> Path:
    """Write what a teacher says of a train split.

    Args:
        dataset: whose rows and manifest they are.
        path: of the file.
        margin: of a row.
        change: each prediction; None leaves it out.
        more: predictions beyond these.
        rows: in place of the train split.
        source: changes of what the file says of itself.
    """
    said = (change(prediction(p, margin(p))) for p in (read_split(dataset, "train") if rows is None else rows))
    write_predictions(path, [*(p for p in said if p is not None), *more], source_of(dataset, **source))
    return path


def failed(said: Prediction, reason: str = "gone.mp4: cannot be read") -> Prediction:
    """The same row, not scored."""
    return dataclasses.replace(said, margin=math.nan, p_supported=math.nan, error=reason)
