"""Fitting a cascade: where each stage is sure, and what its probabilities mean on the rows that reach it.

One number, the risk r, is fitted: every stage but the last answers where its calibrated chance of being wrong,
min(p, 1 - p), is at most r (Chow, 1970: no other rule that abstains as often errs less). Risks are tried from never
answering to answering nearly always, and the one is taken that meets the target:

    auc_loss:0.005   the cheapest whose AUC is at most 0.005 below that of the last stage alone
    cost:0.5         the highest AUC at no more than 0.5 of what the last stage alone costs

AUCs are of cross-fitted probabilities, so that no stage profits from having been calibrated on the row.
Shape suffixes: _S stages, _N rows.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...core import CalibrationError, Pair, RowError
from ...models.cascades import NOBODY, Band, CascadePlan, CascadeStage, View, reached
from ...models.decision import IDENTITY, Calibration, sigmoid
from ..calibration import cross_fitted_logits, fit_calibration, fit_decision, grouped_folds
from ..decisions import GUARANTEED, BandTarget
from ..metrics import Floats, roc_auc
from ..scoring import Prediction, groups_of, labels_of, read_predictions, refuse_teacher_file, score_to
from .costs import Costs, Unit

FEWEST = 10  # rows of each class that must reach a stage: its map has two numbers to learn from them
N_RISKS = 40


@dataclass(frozen=True)
class Candidate:
    """What a risk gives on the calibration rows.

    Attributes:
        risk: at most this chance of being wrong, and a stage answers; -1: only the last one ever answers.
        auc: of cross-fitted probabilities.
        cost: as a share of that of the last stage alone; above 1, the others cost more than they save.
        answered: share of all rows that each stage answered.
    """

    risk: float
    auc: float
    cost: float
    answered: tuple[float, ...]


@dataclass(frozen=True)
class Fitted:
    """A plan, the candidate it came from, and all others."""

    plan: CascadePlan
    chosen: Candidate
    candidates: tuple[Candidate, ...]


@dataclass(frozen=True)
class _ReachedRows:
    """The calibration rows, as arrays; `known` are fits by stage and rows: risks often ask the same."""

    margins_SN: Floats
    labels: Floats
    groups: NDArray[np.str_]
    folds: NDArray[np.int64]
    method: str
    where: str
    known: dict[tuple[int, bytes], tuple[Calibration, Floats]] = field(default_factory=dict)


@dataclass(frozen=True)
class _Trial:
    """A risk tried out: calibrations, who answered, and cross-fitted margins (NaN where no stage did)."""

    calibrations: tuple[Calibration, ...]
    bands: tuple[Band, ...]
    stage_N: NDArray[np.int64]
    margins_N: Floats


def score_stages(
    stages: Sequence[CascadeStage], pairs: Sequence[Pair], folder: str | Path, source: dict[str, Any] | None = None
) -> list[list[Prediction]]:
    """What every stage says of every pair, each in a file of its own; goes on where an earlier call was stopped."""
    predictions = []
    for number, stage in enumerate(stages):
        path = Path(folder) / f"stage-{number}.parquet"
        score_to(path, stage.verifier, stage.shown(pairs), (source or {}) | {"view": _view(stage)})
        predictions.append(read_predictions(path)[0])
    return predictions


def read_stages(
    paths: Sequence[str | Path], stages: Sequence[CascadeStage], pairs: Sequence[Pair]
) -> list[list[Prediction]]:
    """Each stage's predictions of the pairs, in their order, from a file that eval/predict.py or `score_stages` wrote.

    Raises:
        RowError: not one file per stage, or a file of another verifier, another view, a control or other pairs.
    """
    if len(paths) != len(stages):
        raise RowError(f"predictions: one file for each stage, got {len(paths)} for {len(stages)}; give as many")
    return [_read_stage(Path(path), stage, pairs) for path, stage in zip(paths, stages, strict=True)]


def _read_stage(path: Path, stage: CascadeStage, pairs: Sequence[Pair]) -> list[Prediction]:
    predictions, source = read_predictions(path)
    refuse_teacher_file(path, source)
    expected = {"verifier_fingerprint": stage.verifier.fingerprint, "view": _view(stage), "control": None}
    actual = {"view": dataclasses.asdict(View())} | source
    for key, value in json.loads(json.dumps(expected)).items():
        if actual.get(key) != value:
            raise RowError(f"{path}: {key} is not the stage's, got {actual.get(key)!r} instead of {value!r}; score it")
    by_id = {row.pair_id: row for row in predictions}
    wrong = [pair.id for pair in pairs if pair.id not in by_id or by_id[pair.id].claim not in ("", pair.claim)]
    if wrong or len(by_id) != len(pairs):
        raise RowError(
            f"{path}: predictions of other rows, got {len(by_id)} for {len(pairs)} pairs, {len(wrong)} that it lacks "
            f"or has with another claim, e.g. {wrong[:1]}; score this split"
        )
    return [by_id[pair.id] for pair in pairs]


def _view(stage: CascadeStage) -> dict[str, Any]:
    return dataclasses.asdict(stage.view)


def fit_cascade(
    scored: Sequence[Sequence[Prediction]],
    costs: Sequence[Costs],
    target: str = "auc_loss:0.005",
    method: str = "platt",
    objective: str | Sequence[str] = "f1",
    *,
    unit: Unit = "flops",
    together: bool = True,
    abstain: BandTarget | None = None,
    fitted_on: dict[str, Any] | None = None,
    where: str = "cascade",
) -> Fitted:
    """Bands, calibrations and operating points from what every stage said of the calibration split.

    Args:
        scored: per stage, predictions of the same rows in the same order (`score_stages`).
        costs: per stage (`costs.costs_of`), of these rows.
        target: `auc_loss:X` or `cost:X`, see above.
        method: of every stage's calibration. Platt's two numbers are fitted well by the few rows that reach the end.
        unit: what costs are counted in; pictures are nearly all that long videos cost, and little of short ones.
        together: claims about one evidence come together, and it is read once; or one by one.
        objective, abstain: as for `fit_decision`, on the cascade's probabilities; no guaranteed band.
        fitted_on: stored with the cascade's decision.

    Raises:
        RowError: stages with different rows. CalibrationError: rows of another split or of several, too few of them, or
            a target that no risk reaches.
    """
    if abstain is not None and abstain[0] == GUARANTEED:
        raise CalibrationError(
            f"{where}: a cascade's margins were made with these labels and guarantee nothing, got {GUARANTEED}; "
            "use selective_accuracy, or calibrate a single verifier"
        )
    check_aligned(scored, costs)
    rows, used = _rows(scored, method, where)
    costs = [cost.take(used) for cost in costs]
    trials = {risk: trial for risk in _risks(rows) if (trial := _tried(rows, risk)) is not None}
    if -1.0 not in trials:
        raise CalibrationError(f"{where}: the last stage cannot be calibrated, got {len(used)} rows; label more")
    candidates = tuple(_candidate(rows, risk, trial, costs, (unit, together)) for risk, trial in trials.items())
    chosen = _chosen(candidates, target, where)
    trial = trials[chosen.risk]
    described = dataclasses.asdict(chosen) | {"answered": list(chosen.answered)}
    described |= {"target": target, "unit": unit, "together": together}
    about = (fitted_on or {"split": "calibration"}) | {"cascade": described}
    final = [
        dataclasses.replace(row, margin=float(margin), p_supported=float(sigmoid(margin)), error=None)
        for row, margin in zip((scored[-1][i] for i in used), trial.margins_N, strict=True)
        if not np.isnan(margin)
    ]
    decision = fit_decision(final, "none", objective, about, where, abstain=abstain)
    return Fitted(CascadePlan(trial.calibrations, trial.bands, decision), chosen, candidates)


def check_aligned(scored: Sequence[Sequence[Prediction]], costs: Sequence[Costs]) -> None:
    """`RowError` unless every stage has the same rows, in the same order, and as many costs."""
    ids = [[(p.pair_id, p.label, p.split, p.group) for p in rows] for rows in scored]
    if len(ids) < 2 or any(other != ids[0] for other in ids[1:]):
        raise RowError(
            f"cascade: every stage must have scored the same rows, got {[len(i) for i in ids]} rows that "
            "differ; score them with `score_stages`"
        )
    if [len(cost.prefix_tokens) for cost in costs] != [len(i) for i in ids]:
        raise RowError(f"cascade: every row has a cost at every stage, got {len(costs)} costs; see `costs_of`")


def _rows(scored: Sequence[Sequence[Prediction]], method: str, where: str) -> tuple[_ReachedRows, NDArray[np.int64]]:
    """The labelled rows of the calibration split, and their places."""
    splits = sorted({str(p.split) for p in scored[0]})
    if splits != ["calibration"]:
        raise CalibrationError(
            f"{where}: a cascade is fitted on the calibration split alone, got rows of {splits}; score that split"
        )
    used = np.array([i for i, row in enumerate(scored[0]) if row.label is not None], dtype=np.int64)
    labelled = [scored[0][i] for i in used]
    labels, groups = labels_of(labelled), groups_of(labelled)
    margins_SN = np.array([[rows[i].margin for i in used] for rows in scored], dtype=np.float32).astype(np.float64)
    folds = grouped_folds(labels, groups, where=where)
    return _ReachedRows(margins_SN, labels, groups, folds, method, where), used


def _risks(rows: _ReachedRows) -> list[float]:
    """Never, and the chances of being wrong among which the first stage's rows divide evenly."""
    is_scored = ~np.isnan(rows.margins_SN[0])
    if not _enough(rows, is_scored):
        return [-1.0]
    p = _shipped(_fit(rows, 0, is_scored), rows.margins_SN[0, is_scored])
    return [-1.0, *(float(r) for r in np.unique(np.quantile(np.minimum(p, 1 - p), np.linspace(0, 1, N_RISKS))[:-1]))]


def _tried(rows: _ReachedRows, risk: float) -> _Trial | None:
    """Every stage calibrated on the rows that reach it; None where too few reach one."""
    n_stages, n = rows.margins_SN.shape
    stage_N, margins_N = np.full(n, NOBODY), np.full(n, np.nan)
    calibrations, bands = [], (Band.at_risk(risk),) * (n_stages - 1)
    for stage in range(n_stages):
        is_reached = (stage_N == NOBODY) & ~np.isnan(rows.margins_SN[stage])
        fit = _fitted(rows, stage, is_reached)
        if fit is None and (risk >= 0 or stage == n_stages - 1):
            return None
        calibration, crossed_N = fit or (IDENTITY, margins_N)  # of a stage that never answers
        calibrations.append(calibration)
        sure = stage == n_stages - 1 or bands[stage].sure(_shipped(calibration, rows.margins_SN[stage]))
        ends = is_reached & sure
        stage_N[ends], margins_N[ends] = stage, crossed_N[ends]
    return _Trial(tuple(calibrations), bands, stage_N, margins_N)


def _fitted(rows: _ReachedRows, stage: int, is_reached: NDArray[np.bool_]) -> tuple[Calibration, Floats] | None:
    """A stage's calibration on these rows, and its cross-fitted log-odds of them (NaN elsewhere); None if too few."""
    key = stage, is_reached.tobytes()
    if key not in rows.known:
        labels, folds = rows.labels[is_reached], rows.folds[is_reached]
        if not (_enough(rows, is_reached) and _both_classes_outside(labels, folds)):
            return None
        crossed_N = np.full(len(is_reached), np.nan)
        crossed_N[is_reached] = cross_fitted_logits(rows.margins_SN[stage, is_reached], labels, folds, rows.method)
        rows.known[key] = _fit(rows, stage, is_reached), crossed_N
    return rows.known[key]


def _fit(rows: _ReachedRows, stage: int, is_reached: NDArray[np.bool_]) -> Calibration:
    margins, groups = rows.margins_SN[stage, is_reached], rows.groups[is_reached]
    about = {"stage": stage, "split": "calibration"}
    return fit_calibration(margins, rows.labels[is_reached], rows.method, groups, about, f"{rows.where}: stage {stage}")


def _shipped(calibration: Calibration, margins: Floats) -> Floats:
    """Probabilities as `CascadePlan` has them, to the last digit: who is asked must not depend on the route."""
    return sigmoid(calibration.logits(margins).astype(np.float32))


def _enough(rows: _ReachedRows, is_reached: NDArray[np.bool_]) -> bool:
    return min(int(np.sum(rows.labels[is_reached] == y)) for y in (0, 1)) >= FEWEST


def _both_classes_outside(labels: Floats, folds: NDArray[np.int64]) -> bool:
    outside = [labels[folds != fold] for fold in np.unique(folds)]
    return len(outside) > 1 and all(np.sum(y == 1) >= 2 <= np.sum(y == 0) for y in outside)


def _candidate(
    rows: _ReachedRows, risk: float, trial: _Trial, costs: Sequence[Costs], counted: tuple[Unit, bool]
) -> Candidate:
    unit, together = counted
    answered = ~np.isnan(trial.margins_N)
    auc = float(roc_auc(trial.margins_N[answered], rows.labels[answered]))
    shares = tuple(float(np.mean(trial.stage_N == stage)) for stage in range(len(costs)))
    reached_SN = [reached(trial.stage_N, stage) for stage in range(len(costs))]
    spent = sum(getattr(cost.total(a, together), unit) for cost, a in zip(costs, reached_SN, strict=True))
    alone = getattr(costs[-1].total(np.ones(len(rows.labels), dtype=bool), together), unit)
    return Candidate(risk, auc, spent / alone if alone else 0.0, shares)


def _chosen(candidates: Sequence[Candidate], target: str, where: str) -> Candidate:
    name, _, text = target.partition(":")
    try:
        bound = float(text)
    except ValueError:
        bound = -1.0
    if name not in ("auc_loss", "cost") or not 0 <= bound <= 1:
        raise CalibrationError(f"{where}: target must be auc_loss:X or cost:X with X in [0, 1], got {target!r}; fix it")
    if name == "auc_loss":
        alone = next(c.auc for c in candidates if c.risk < 0)
        return min((c for c in candidates if c.auc >= alone - bound), key=lambda c: (c.cost, -c.auc))
    affordable = [c for c in candidates if c.cost <= bound]
    if not affordable:
        least = min(c.cost for c in candidates)
        raise CalibrationError(f"{where}: no risk is as cheap, got {target}, at least {least:.3f}; allow that much")
    return max(affordable, key=lambda c: (c.auc, -c.cost))
