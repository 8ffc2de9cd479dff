"""The card of a published verifier: README.md with front matter that hubs read, made from what the directory holds.

Everything said is read from the directory and the data set's manifest; what is not known is said to be unknown. The
text is `model_card.md.j2`; the sentences on the run say over which base it trained, what was trained, by which teacher,
and what was merged. The front matter has the shape of the Hugging Face hub's model card specification, with
`model-index` for the numbers that hubs show; tests read it back with the hub's own client.

Apart from the export because a card needs nothing of it: it can be written again for any directory that is complete.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

import yaml
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from ...core import sha256_of
from ...data_prep.dataset import read_manifest
from ...models.decision import AbstainBand, Decision, OperatingPoint, StoredInterval, read_decision
from ...models.directory import VerifierConfig
from ...models.engine import HEADS, make_head
from ...models.inputs import LabelWords
from ..decisions import GUARANTEED
from ..metrics import METRICS, Hub, Metric
from ..scoring import CROSS_FITTED, read_predictions

TASK_NAME = "Claim verification"


def card_metrics() -> list[tuple[Metric, Hub]]:
    """The metrics of a card and how it shows them, in its order."""
    shown = [(metric, metric.hub) for metric in METRICS.values() if metric.hub is not None]
    return sorted(shown, key=lambda pair: pair[1].place)


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
    matter: dict[str, Any] = {
        "library_name": "proofreel",
        "pipeline_tag": pipeline_tag(config),
        "tags": tags_of(config),
    }
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
    metrics = [_metric(metric, hub, row) for metric, hub in card_metrics() if is_number(row.get(metric.key))]
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
    interval = (row.get("intervals") or {}).get(metric.name) or row.get(f"{metric.key}_interval")
    return interval if interval and is_number(interval.get("low")) and is_number(interval.get("high")) else None


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


def _metric(metric: Metric, hub: Hub, row: Mapping[str, Any]) -> dict[str, Any]:
    args: dict[str, Any] = {"convention": metric.definition}
    name = hub.name
    if (interval := interval_of(row, metric)) is not None:
        level = float(interval.get("level", 0.95))
        low, high = float(interval["low"]), float(interval["high"])
        args |= {"low": low, "high": high, "level": level, "resampled": "groups"}
        name += f" ({level:.0%} interval {low:{metric.format}} to {high:{metric.format}})"
    return {"type": hub.type, "value": float(row[metric.key]), "name": name, "args": args}


def tags_of(config: VerifierConfig) -> list[str]:
    """The hub's tags: what it is, how it is stored, its head, and the evidence that it was trained on."""
    tags = ["proofreel", "claim-verification", "calibrated"]
    tags += ["lora"] if config.weights == "adapter" else []
    tags += HEADS[config.head].tags
    return tags + list(config.modalities or ())


def run_lines(config: VerifierConfig) -> list[str]:
    """One sentence each, of what the configuration records."""
    base = f"`{config.base.path}`, revision `{config.base.revision}`" if is_hub_id(config) else "a local checkpoint"
    lines = [f"Base: {base}, weights SHA-256 `{config.base.weights_sha256}`."]
    parameters = config.trained.get("parameters") or {}
    parts = [f"{n:,} in {part}" for part, n in parameters.items() if n and part != "total"]
    if parts:
        lines.append(f"Trained parameters: {', '.join(parts)}, of {parameters.get('total', 0):,}.")
    for key in ("steps", "epochs", "git_revision"):
        if config.trained.get(key) is not None:
            lines.append(f"{key.replace('_', ' ')}: {config.trained[key]}")
    if config.quantization is not None:
        lines.append(f"The base is quantised: {config.quantization.get('bnb_4bit_quant_type', '8 bit')}.")
    if (start := config.trained.get("adapter_from")) is not None:
        lines.append(f"Training began from the adapter of verifier `{start[:12]}`.")
    lines += _teacher_lines(config.trained.get("teacher")) + _merge_lines(config.trained.get("merged"))
    return lines + _time_lines(config.time_rule, config.trained.get("time_rule"))


def _teacher_lines(teacher: Mapping[str, Any] | None) -> list[str]:
    if not teacher:
        return []
    several = [each.get("verifier_fingerprint") for each in teacher.get("teachers") or ()]
    names = ", ".join(f"`{str(name)[:12]}`" for name in several or [teacher.get("verifier_fingerprint")])
    who = f"{len(several)} verifiers ({names})" if len(several) > 1 else f"verifier {names}"
    how = "calibrated" if teacher.get("calibrated") else "not calibrated"
    return [f"Distilled from the {how} margins of {who}, teacher file SHA-256 `{teacher.get('file_sha256')}`."]


def _merge_lines(merged: Mapping[str, Any] | None) -> list[str]:
    if not merged:
        return []
    over = "a quantised base" if merged.get("from_quantised") else "its base"
    return [
        f"The adapter (verifier {merged['from_fingerprint'][:12]}), trained over {over} in {merged['from_dtype']}, was "
        f"merged into the full-precision base. On {merged['n']:,} calibration rows margins moved by at most "
        f"{merged['max_difference']:.2g}; the calibration was {merged['calibration']}."
    ]


def _time_lines(rule: str, took: Mapping[str, Any] | None) -> list[str]:
    if not took:
        return []
    return [
        f"Frames stand by the time rule `{rule}`; it was trained by `{took['from']}` (verifier "
        f"{took['from_fingerprint'][:12]}). On {took['n']:,} calibration rows margins moved by at most "
        f"{took['max_difference']:.2g}; the calibration was {took['calibration']}."
    ]


CARD, PREDICTIONS = "README.md", "predictions.parquet"
_OF_PARTS = ("auc", "balanced_accuracy", "f1", "ece_event")  # what the tables of controls, roles and origins show
_KINDS = {
    "video": "video segments",
    "image": "images",
    "audio": "sounds",
    "transcript": "transcripts",
    "passage": "passages of text",
}
_DATA: dict[bool | None, str] = {
    True: "Trained and calibrated on",
    False: "Trained on rows that are not recorded here; calibrated on",
    None: "Calibrated on",
}


@dataclass(frozen=True)
class DataFacts:
    """What a card says about data.

    Attributes:
        name: of the data set.
        manifest_sha256: of its manifest.json.
        counts: rows, groups and labels of each split, as in the manifest.
        trained_here: whether the run's record names these shards; None where there is no record.
    """

    name: str
    manifest_sha256: str
    counts: Mapping[str, Any]
    trained_here: bool | None


def describe_data(data: Path, draft: Path) -> DataFacts:
    """The facts of a data set, and whether the run that left `draft` trained on it."""
    manifest = read_manifest(data)
    output = manifest.get("config", {}).get("output")
    record = draft.parent / "run.json"
    trained_here = None
    if record.is_file():
        shards = json.loads(record.read_text(encoding="utf-8")).get("dataset") or {}
        trained_here = shards.get("train") == manifest.get("shards", {}).get("train")
    return DataFacts(
        name=PurePath(output).name if output else data.resolve().name,
        manifest_sha256=sha256_of(data / "manifest.json"),
        counts=manifest.get("counts", {}),
        trained_here=trained_here,
    )


def write_card(folder: Path, name: str, config: VerifierConfig, data: DataFacts, license: str | None = None) -> Path:
    """Write README.md into a verifier directory that is otherwise complete.

    Args:
        folder: the directory, with decision, golden inputs and, if it has one, its evaluation.
        name: of the verifier.
        config: of the directory.
        data: what it was calibrated (and perhaps trained) on.
        license: an identifier the hub knows, or None.
    """
    decision = read_decision(folder)
    path = folder / "eval" / "metrics.json"
    report: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    measured = _measured(folder / "eval" / PREDICTIONS, report, data)
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    text = environment.get_template("model_card.md.j2").render(
        front_matter=front_matter(name, config, report.get("headline"), measured, license),
        name=name,
        **_opening(config, folder),
        **_results(report, measured, folder),
        calibration=_calibration(decision),
        points=_table(_POINT_COLUMNS, [_point_cells(p, decision.default) for p in decision.points]),
        default_point=f"`{decision.default}` is the default: supported if p >= {decision.point().threshold:.4f}.",
        band=_band(decision),
        training=_training(config, data),
        limits=list(_limits(config)),
        packages=_packages(config),
    )
    card = folder / CARD
    card.write_text(text, encoding="utf-8", newline="\n")
    return card


def _measured(predictions: Path, report: Mapping[str, Any], data: DataFacts) -> Measured:
    """What a report stands on, as far as its own record and the predictions beside it tell."""
    digest = (report.get("source") or {}).get("manifest_sha256")
    same = digest in (None, data.manifest_sha256)
    splits = sorted({str(p.split) for p in read_predictions(predictions)[0]}) if predictions.is_file() else []
    if cross := (report.get("source") or {}).get(CROSS_FITTED):
        splits = [f"out of fold ({len(cross['folds'])} folds)"]
    return Measured(data.name if same else f"data set {digest[:12]}", "+".join(splits) or None, digest)


def head_line(config: VerifierConfig) -> str:
    """The sentence on what the verdict is read from."""
    head = make_head(config.head, LabelWords(config.supported_id, config.refuted_id), config.labels)
    return head.card_line((config.prompt.supported_word, config.prompt.refuted_word))


def _opening(config: VerifierConfig, folder: Path) -> dict[str, Any]:
    kinds = [_KINDS[k] for k in config.modalities or ()]
    listed = " and ".join([", ".join(kinds[:-1]), kinds[-1]] if len(kinds) > 1 else kinds)
    shown = (config.modalities or ("video",))[0]
    wanted = {
        "video": ("VideoSegment", 'VideoSegment("clip.mp4", 0.0, 4.0)'),
        "image": ("Image", 'Image("photo.jpg")'),
        "audio": ("Audio", 'Audio("speech.wav", 0.0, 4.0)'),
        "transcript": ("Transcript", 'Transcript("... what is said ...", 0.0, 4.0)'),
        "passage": ("Passage", 'Passage("... what is written ...")'),
    }[shown]
    golden = json.loads((folder / "golden" / "golden.json").read_text(encoding="utf-8"))
    return {
        "kinds": listed or "evidence of kinds that were not recorded",
        "adapter": config.weights == "adapter",
        "base": f"`{config.base.path}`" if is_hub_id(config) else "a local checkpoint",
        "head": head_line(config),
        "example": {
            "imports": f"Verifier, {wanted[0]}",
            "load": 'verifier = Verifier.from_pretrained("<this directory>")',
            "ask": f'verifier.score(["The pan is on the stove."], {wanted[1]})',
        },
        "n_golden": sum(len(case["margins"]) for case in golden),
    }


def _results(report: Mapping[str, Any], measured: Measured, folder: Path) -> dict[str, Any]:
    row = report.get("headline") or {}
    tables = [
        (heading, _part_table(report[key]))
        for heading, key in (("Controls", "controls"), ("By role", "by_role"), ("By origin of the claim", "by_origin"))
        if report.get(key)
    ]
    failed = [f"{f['n']} rows failed: {f['reason']}" for f in report.get("failures") or ()]
    return {
        "metrics": _metric_table(row) if row else "",
        "measured": f"{measured.split or 'a split that was not recorded'}: {_counted(row)}" if row else "",
        "data_name": measured.dataset,
        "intervals": any(interval_of(row, metric) for metric, _ in card_metrics()),
        "tables": tables,
        "per_row": f"A margin per row is in `eval/{PREDICTIONS}`." if (folder / "eval" / PREDICTIONS).is_file() else "",
        "warnings": [*(report.get("warnings") or ()), *(report.get("remarks") or ()), *failed],
    }


def _counted(row: Mapping[str, Any]) -> str:
    parts = [f"{row['n']:,} rows scored and labelled"]
    parts += [f"{row['n_groups']:,} groups"] if "n_groups" in row else []
    parts += [f"{row.get('n_failed', 0):,} failed (counted, in no metric)"]
    parts += [f"positive rate {row['positive_rate']:.3f}"] if is_number(row.get("positive_rate")) else []
    return ", ".join(parts)


def _metric_table(row: Mapping[str, Any]) -> str:
    rows = []
    for metric, hub in card_metrics():
        if is_number(row.get(metric.key)):
            interval, spec = interval_of(row, metric), metric.format
            between = f"{interval['low']:{spec}} to {interval['high']:{spec}}" if interval else ""
            rows.append([hub.name, f"{row[metric.key]:{spec}}", between, metric.definition])
    return _table(["metric", "value", "95% interval", "convention"], rows)


def _part_table(rows: Sequence[Mapping[str, Any]]) -> str:
    shown = [(metric, hub) for metric, hub in card_metrics() if metric.name in _OF_PARTS]
    cells = [
        [str(row["name"]), f"{row['n']:,}", f"{row.get('n_failed', 0):,}"]
        + [f"{row[m.key]:{m.format}}" if is_number(row.get(m.key)) else "–" for m, _ in shown]
        for row in rows
    ]
    return _table(["", "n", "failed", *(hub.name for _, hub in shown)], cells)


_POINT_COLUMNS = ["name", "p >=", "on its rows", "95% interval", "tp", "fp", "tn", "fn"]


def _point_cells(point: OperatingPoint, default: str) -> list[str]:
    promise = point.guarantee
    value = f"{point.objective} {point.metric:.3f}"
    if promise is not None:
        chance = "on average" if promise.delta is None else f"with chance {1 - promise.delta:g}"
        value = f"{promise.risk} (mean over groups) at most {promise.at_most:g} {chance}"
    name = f"**{point.name}**" if point.name == default else point.name
    counts = [f"{count:,.0f}" for count in (point.tp, point.fp, point.tn, point.fn)]
    return [name, f"{point.threshold:.4f}", value, _between(point.interval), *counts]


def _between(interval: StoredInterval | None) -> str:
    return "" if interval is None else f"{interval.low:.3f} to {interval.high:.3f}"


def _band(decision: Decision) -> str:
    band = decision.abstain
    if band is None:
        return ""
    return (
        f" Who wants a third answer takes p <= {band.refute_at_or_below:.4f} as refuted, p >= "
        f"{band.support_at_or_above:.4f} as supported and nothing in between: {band.coverage:.1%} of the fitting rows "
        f"then have a verdict, {band.selective_accuracy:.1%} of these are right.{_band_promise(band)}"
    )


def _band_promise(band: AbstainBand) -> str:
    if band.objective != GUARANTEED:
        return " That is what these rows show; other groups are promised nothing."
    if band.guarantee is None or band.guarantee.delta is None:
        return " At the stated share of supported claims nothing is promised."
    return (
        f" Guaranteed, with chance {1 - band.guarantee.delta:g}: on other groups at least {band.target:g} are right, "
        "as a mean over groups that get a verdict."
    )


def _calibration(decision: Decision) -> list[str]:
    c = decision.calibration
    rate = "unknown" if c.positive_rate is None else f"{c.positive_rate:.3f}"
    lines = [
        f"Method: {c.describe()}",
        f"Fitted on {c.n:,} rows of {c.n_groups:,} groups{_fitted_where(c.fitted_on)}.",
        f"Positive rate of the fit: {rate}. Where another share of claims is supported, say so: "
        "`verifier.score(claims, evidence, prior=0.1)`.",
    ]
    return lines + c.cautions()


def _fitted_where(fitted_on: Mapping[str, Any]) -> str:
    if (cross := fitted_on.get(CROSS_FITTED)) is None:
        return f" of the {fitted_on.get('split', 'calibration')} split"
    return (
        f", each scored by one of {len(cross['folds'])} verifiers trained with the same settings on the other folds; "
        "this verifier was trained on all of them, and not tested itself"
    )


def _training(config: VerifierConfig, data: DataFacts) -> list[str]:
    lines = [f"{_DATA[data.trained_here]} the data set {data.name}, manifest SHA-256 `{data.manifest_sha256}`."]
    for split, counts in data.counts.items():
        supported = counts.get("label", {}).get("supported", 0)
        lines.append(f"{split}: {counts['rows']:,} rows, {counts.get('groups', 0):,} groups, {supported:,} supported")
    return lines + run_lines(config)


def _limits(config: VerifierConfig) -> Iterator[str]:
    sampling, hears = config.sampling, bool(config.chat and config.chat.audio)
    if config.modalities is None:
        yield "Which kinds of evidence it was trained on is not recorded."
    else:
        possible = [kind for kind in _KINDS if kind != "audio" or hears]
        others = [_KINDS[kind] for kind in possible if kind not in config.modalities]
        if others:
            yield f"It was not trained on {', '.join(others)}: such verdicts are untested."
    if "video" in (config.modalities or ("video",)):
        yield (
            f"It sees at most {sampling.max_frames} frames of a segment, {sampling.fps:g} per second before that, of "
            f"at most {sampling.max_pixels:,} pixels each: what happens between frames or is smaller is not seen."
        )
        yield (
            "Its frames are resized by Pillow. The checkpoint's own processor rounds otherwise, by 1 or 2 grey levels: "
            "a program that resizes with it gets other margins, so give it these frames."
        )
        if not hears:
            yield "It hears nothing: speech counts only as a transcript that is given."
    yield f"Evidence and one claim have at most {config.max_tokens:,} tokens; longer ones are refused, never cut."
    if (windows := config.windowing) is None:
        yield "Evidence is judged whole; a segment much longer than those it was trained on is untested."
    else:
        yield f"A video longer than {windows.length_s:g} s is judged in windows ({windows.rule}), each by itself."
    yield "Probabilities hold for claims and evidence like those of the calibration split."


def _packages(config: VerifierConfig) -> str:
    if not config.requirements:
        return "Not recorded."
    rows = [[name, needed.versions, needed.reason] for name, needed in sorted(config.requirements.items())]
    return _table(["package", "versions", "why"], rows)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(_plain(cell) for cell in line) + " |" for line in lines)


def _plain(text: str) -> str:
    """Text that stays inside its cell."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
