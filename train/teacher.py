"""What a teacher said about the rows of a train split: read, checked against the rows, and put beside their labels.

A teacher file is a predictions file (eval/scoring/predictions.py) whose probabilities were calibrated on gold labels;
eval/teach.py writes it, of one teacher or several. It is refused where it does not belong to these rows: another data
set (unless this one was mined out of it), other claims, another prompt, another order of labels, a control run.

Apart from the recipe because reading a teacher needs no network: it is checked before a weight is loaded.
"""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..core import LABELS, ConfigError, Pair, RowError, sha256_of
from ..data_prep.dataset import MANIFEST, read_manifest
from ..eval.scoring import Prediction, read_predictions
from ..eval.teachers import clipped_log_odds
from ..models.engine import TWO_LABELS
from .arguments import DistillArguments, VerdictArguments
from .distillation_loss import Distillation

SHOWN, LISTED = 3, "teacher_rows.jsonl"


@dataclass(frozen=True)
class TeacherTargets:
    """Rows with their teacher's margins, and what there is to know of the teacher.

    Attributes:
        pairs: in their order; those without a label and a teacher's margin are left out.
        counts: `labelled`, `unlabelled` and `doubted` rows with a teacher, `labels_alone` without one, `left_out`.
        listed: each row that is doubted, on its label alone or left out: `pair_id`, `kind`, and the reason.
        record: of the file, for the verifier's directory.
        distillation: the loss.
        settings: what was asked, and the file's hash, for run.json.
    """

    pairs: list[Pair]
    counts: dict[str, int]
    listed: list[dict[str, str]]
    record: dict[str, Any]
    distillation: Distillation
    settings: dict[str, Any]

    def line(self) -> str:
        """The teacher's line in the plan of a run."""
        counts = self.counts
        text = f"{counts['labelled']} rows with labels, {counts['unlabelled']} without"
        for key, what in (
            ("doubted", "labels the teacher doubts, left to it"),
            ("labels_alone", "rows on labels alone"),
            ("left_out", "rows with neither left out"),
        ):
            text += f", {counts[key]} {what}" if counts[key] else ""
        return f"teacher       {text}"

    def write_list(self, folder: Path) -> None:
        """What is listed, a line of JSON each, beside the run's record."""
        text = "".join(json.dumps(each, ensure_ascii=False) + "\n" for each in self.listed)
        (folder / LISTED).write_text(text, encoding="utf-8")


def join_teacher(pairs: Sequence[Pair], distill: DistillArguments, arguments: VerdictArguments) -> TeacherTargets:
    """Put the margins of a teacher file beside the rows of the train split it scored.

    Args:
        pairs: the train split.
        distill: which file, what may be missing, and the loss.
        arguments: of the run: its data set and its prompt.

    Raises:
        ConfigError: settings that are no loss.
        RowError: a file that is not of these rows or this prompt, of an uncalibrated teacher, or without usable
            margins for some rows, unless `distill` allows it.
    """
    path, distillation = Path(distill.teacher), distillation_of(distill)
    predictions, source = read_predictions(path)
    _check_source(path, source, distill)
    own, scored = _manifests(Path(arguments.dataset_dir)), source.get("manifest_sha256")
    _check_manifest(path, scored, own, arguments.dataset_dir)
    if scored == own[0]:  # in a data set that was mined, rows of its parent are missing
        _check_no_others(path, pairs, predictions)
    _check_prompt(path, source.get("prompt_sha256"), arguments.prompt().sha256, distill)
    by_id = {p.pair_id: p for p in predictions}
    _check_claims(path, pairs, by_id)
    margins = {id: _margin(p, bool(source.get("calibrated"))) for id, p in by_id.items() if p.error is None}
    silent = [p for p in pairs if p.id not in margins]
    _check_silent(path, pairs, silent, by_id, distill)
    judged = [dataclasses.replace(pair, teacher_margin=margins.get(pair.id)) for pair in pairs]
    kept = [p for p in judged if (p.label, p.soft_label, p.teacher_margin) != (None, None, None)]
    record = {k: source.get(k) for k in ("verifier_fingerprint", "teachers", "calibrated", "prompt_sha256")}
    sha256 = sha256_of(path)
    settings = {**dataclasses.asdict(distill), "teacher_sha256": sha256}
    listed = list(_listed(judged, by_id, distillation))
    counts = _counted(judged, listed)
    return TeacherTargets(
        kept, counts, listed, {"file_sha256": sha256, **record, "rows": counts}, distillation, settings
    )


def _margin(prediction: Prediction, calibrated: bool) -> float:
    """Log-odds of the calibrated probability; of an uncalibrated teacher the margin itself."""
    if not calibrated:
        return prediction.margin
    return float(clipped_log_odds(np.array(prediction.p_supported)))


def _is_judged(pair: Pair) -> bool:
    return pair.label is not None or pair.soft_label is not None


def _listed(
    pairs: Sequence[Pair], by_id: Mapping[str, Prediction], distillation: Distillation
) -> Iterator[dict[str, str]]:
    """What becomes of rows that do not learn from label and teacher alike, though they might have."""
    for pair in pairs:
        if pair.teacher_margin is None:
            kind = "labels_alone" if _is_judged(pair) else "left_out"
            yield {"pair_id": pair.id, "kind": kind, "reason": _silence(pair.id, by_id)}
        elif distillation.doubts(pair):
            p = by_id[pair.id].p_supported
            yield {"pair_id": pair.id, "kind": "doubted", "reason": f"labelled {pair.label}, P(supported) {p:.4g}"}


def _silence(pair_id: str, by_id: Mapping[str, Prediction]) -> str:
    return str(by_id[pair_id].error) if pair_id in by_id else "not in the file"


def _counted(pairs: Sequence[Pair], listed: Sequence[Mapping[str, str]]) -> dict[str, int]:
    counts = Counter(each["kind"] for each in listed)
    with_teacher = [pair for pair in pairs if pair.teacher_margin is not None]
    counts["labelled"] = sum(map(_is_judged, with_teacher))
    counts["unlabelled"] = len(with_teacher) - counts["labelled"]
    return {name: counts[name] for name in ("labelled", "unlabelled", "doubted", "labels_alone", "left_out")}


def _check_source(path: Path, source: Mapping[str, Any], distill: DistillArguments) -> None:
    if (control := source.get("control")) is not None:
        raise RowError(f"{path}: scores of a control run, got {control!r}; score the pairs with their own evidence")
    labels = source.get("labels") or [*TWO_LABELS]
    known = isinstance(labels, list) and sorted(map(str, labels)) in (sorted(TWO_LABELS), sorted(LABELS))
    if not known or labels[0] != "supported":
        raise RowError(
            f"{path}: margins must be log-odds of supported, got labels in the order {labels}; score with the labels "
            f"in the order {list(LABELS)}"
        )
    if not source.get("calibrated") and not distill.uncalibrated_teacher:
        raise RowError(
            f"{path}: the teacher is not calibrated, got calibrated: {source.get('calibrated')}; fit a calibration "
            "(eval/calibrate.py) and apply it (eval/teach.py), or set uncalibrated_teacher: true"
        )


def _check_prompt(path: Path, teacher_prompt: str | None, prompt: str, distill: DistillArguments) -> None:
    if teacher_prompt != prompt and not distill.other_prompt:
        raise RowError(
            f"{path}: the teacher was asked with another prompt, got hash {teacher_prompt} and the student's "
            f"is {prompt}; use the teacher's prompt keys, or set other_prompt: true (None: not recorded, or "
            "teachers with several)"
        )


def _manifests(data: Path) -> list[str]:
    """The hashes of a data set's manifest and of those it was mined out of, the last of all at the end."""
    known, mining = [sha256_of(data / MANIFEST)], read_manifest(data).get("mining")
    while mining:
        known.append(mining["parent"]["manifest_sha256"])
        mining = mining["parent"].get("mining")
    return known


def _check_manifest(path: Path, scored: str | None, own: Sequence[str], data: str) -> None:
    """The file must be of this data set, or of one it was mined out of."""
    if scored not in own:
        raise RowError(
            f"{path}: margins of another data set, got manifest {scored} and {data} has {own[0]}; score the train "
            "split of this data set (eval/predict.py)"
        )


def _check_no_others(path: Path, pairs: Sequence[Pair], predictions: Sequence[Prediction]) -> None:
    """Rows of other splits do no harm; a row of train that is not there tells that these rows are others."""
    ids = {pair.id for pair in pairs}
    if others := [p.pair_id for p in predictions if p.split == "train" and p.pair_id not in ids]:
        raise RowError(
            f"{path}: holds rows that the train split lacks, got {len(others)} of {len(predictions)}, e.g. "
            f"{others[0]!r}; score the train split as it is now (eval/predict.py)"
        )


def _check_claims(path: Path, pairs: Sequence[Pair], by_id: Mapping[str, Prediction]) -> None:
    other = [p for p in pairs if p.id in by_id and by_id[p.id].claim not in ("", p.claim)]
    if other:
        raise RowError(
            f"{path}: other claims were scored, got {len(other)} of {len(pairs)}, e.g. {other[0].id!r}: "
            f"{by_id[other[0].id].claim!r}; score this data set's train split"
        )


def _check_silent(
    path: Path,
    pairs: Sequence[Pair],
    silent: Sequence[Pair],
    by_id: Mapping[str, Prediction],
    distill: DistillArguments,
) -> None:
    shown = "; ".join(f"{pair.id!r} ({_silence(pair.id, by_id)})" for pair in silent[:SHOWN])
    if len(silent) == len(pairs):
        raise RowError(
            f"{path}: no usable margin for any row, got 0 of {len(pairs)}, e.g. {shown}; mend what fails there, and "
            "score the train split again (eval/predict.py)"
        )
    if silent and distill.missing_teacher == "refuse":
        raise RowError(
            f"{path}: rows have no margin of the teacher, got {len(silent)} of {len(pairs)}, e.g. {shown}; score them, "
            "or set missing_teacher: labels to train these on their labels alone"
        )


def distillation_of(arguments: DistillArguments) -> Distillation:
    """The loss a run asks for."""
    if arguments.missing_teacher not in ("refuse", "labels"):
        raise ConfigError(f"missing_teacher: must be refuse or labels, got {arguments.missing_teacher!r}; pick one")
    return Distillation(
        arguments.alpha,
        arguments.temperature,
        arguments.soft_loss,  # type: ignore[arg-type]  (checked there)
        arguments.listwise_weight,
        arguments.distrust,
    )
