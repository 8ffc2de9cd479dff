"""The front matter of a model card: what model hubs read, with `model-index` for the numbers they show.

The shape is that of the Hugging Face hub's model card specification; tests read it back with its own client.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import yaml

from ..models.directory import VerifierConfig
from .conventions import definition

TASK_NAME = "Claim verification"


class Metric(NamedTuple):
    """A number of a report: its key there, the identifier hubs know it by, how a reader calls it, and its convention.

    `convention` is a name of `conventions.DEFINITIONS`, under which a report also keeps the interval.
    """

    key: str
    type: str
    name: str
    convention: str


METRICS = (
    Metric("auc", "roc_auc", "ROC-AUC", "auc"),
    Metric("ap", "average_precision", "average precision", "ap"),
    Metric("balanced_accuracy", "balanced_accuracy", "balanced accuracy", "balanced_accuracy"),
    Metric("f1", "f1", "F1 of supported", "f1"),
    Metric("f1_macro", "f1_macro", "macro F1", "f1_macro"),
    Metric("accuracy", "accuracy", "accuracy", "accuracy"),
    Metric("nll_after", "log_loss", "log-loss", "nll"),
    Metric("brier_after", "brier_score", "Brier score", "brier"),
    Metric("ece_after", "expected_calibration_error", "calibration error, 15 equal-width bins", "ece_event"),
)


@dataclass(frozen=True)
class Measured:
    """What numbers were measured on."""

    dataset: str
    split: str | None
    manifest_sha256: str | None


def front_matter(
    name: str,
    config: VerifierConfig,
    row: Mapping[str, Any] | None,
    measured: Measured,
    license: str | None = None,
) -> str:
    """YAML between a card's two rules, without them.

    Args:
        name: of the verifier.
        config: of its directory.
        row: the headline of a report; None where nothing was measured.
        measured: what the headline stands on.
        license: an identifier the hub knows, or None.
    """
    matter: dict[str, Any] = {"library_name": "proofreel", "pipeline_tag": pipeline_tag(config), "tags": _tags(config)}
    if license is not None:
        matter["license"] = license
    if is_hub_id(config):
        matter |= {
            "base_model": config.base.path,
            "base_model_relation": "adapter" if config.weights == "adapter" else "finetune",
        }
    if row is not None and (index := model_index(name, config, row, measured)):
        matter["model-index"] = index
    return yaml.safe_dump(matter, sort_keys=False, allow_unicode=True).strip()


def model_index(name: str, config: VerifierConfig, row: Mapping[str, Any], measured: Measured) -> list[dict[str, Any]]:
    """The `model-index` of one row of results; empty where no metric is defined, as hubs take no null."""
    metrics = [_metric(metric, row) for metric in METRICS if is_number(row.get(metric.key))]
    if not metrics:
        return []
    dataset: dict[str, Any] = {"type": measured.dataset, "name": measured.dataset}
    if measured.split is not None:
        dataset["split"] = measured.split
    counts = {k: row[k] for k in ("n", "n_groups", "n_failed", "positive_rate") if is_number(row.get(k))}
    dataset["args"] = counts | ({"manifest_sha256": measured.manifest_sha256} if measured.manifest_sha256 else {})
    task = {"type": pipeline_tag(config), "name": TASK_NAME}
    return [{"name": name, "results": [{"task": task, "dataset": dataset, "metrics": metrics}]}]


def interval_of(row: Mapping[str, Any], metric: Metric) -> Mapping[str, Any] | None:
    """The interval a report gives a metric; None where it gives none or an undefined one."""
    found = (row.get("intervals") or {}).get(metric.convention) or row.get(f"{metric.key}_interval")
    return found if found and is_number(found.get("low")) and is_number(found.get("high")) else None


def is_number(value: Any) -> bool:
    """A finite number: what may stand in a table."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def is_hub_id(config: VerifierConfig) -> bool:
    """Whether the base is named by a hub id: one with a revision. A folder beside the directory means nothing there."""
    return config.base.revision is not None


def pipeline_tag(config: VerifierConfig) -> str:
    """The hub's task that fits best what the verifier judges claims by."""
    kinds = set(config.modalities or ("video",))
    if "video" in kinds:
        return "video-text-to-text"
    return "image-text-to-text" if "image" in kinds else "text-classification"


def _metric(metric: Metric, row: Mapping[str, Any]) -> dict[str, Any]:
    args: dict[str, Any] = {"convention": definition(metric.convention)}
    name = metric.name
    if (interval := interval_of(row, metric)) is not None:
        level = float(interval.get("level", 0.95))
        args |= {"low": float(interval["low"]), "high": float(interval["high"]), "level": level, "resampled": "groups"}
        name += f" ({level:.0%} interval {args['low']:.3f} to {args['high']:.3f})"
    return {"type": metric.type, "value": float(row[metric.key]), "name": name, "args": args}


def _tags(config: VerifierConfig) -> list[str]:
    tags = ["proofreel", "claim-verification", "calibrated"]
    tags += ["lora"] if config.weights == "adapter" else []
    tags += ["nli"] if config.head == "nli" else []
    return tags + list(config.modalities or ())
