"""From an uncalibrated verifier and its calibration to the published verifier directory.

An adapter may be merged into its base on the way, and one of an older release may take up today's time rule. Its
calibration is then kept where the margins of the calibration rows stay the same; where they do not, it is fitted again
on the new ones if `recalibrate` says so, else refused.
"""

from __future__ import annotations

import dataclasses
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...core import CalibrationError, ConfigError, DirectoryError, sha256_of
from ...data_prep.dataset import read_manifest, read_split, train_shards
from ...models.decision import Decision, OperatingPoint, read_decision, write_decision
from ...models.directory import (
    CONFIG,
    EXAMPLE,
    MANIFEST,
    Dtype,
    VerifierConfig,
    describe_adapter,
    fingerprint,
    read_directory,
    recipe_of,
    relative_base,
    requirements_of,
    trained_on,
    write_cross_encoder,
    write_directory,
    write_gguf_note,
    write_merged,
)
from ...models.inputs import Media, TimeRule, Windowing
from ...models.verifier import TOLERANCE, SelfTest, Verifier, selftest, write_golden
from ..calibration import FITTED_ROWS_FILE, MIN_ROWS, PerGroup, fit_decision, read_measuring, write_fitted_rows
from ..decisions import criterion_of
from ..scoring import CROSS_FITTED, Prediction, margins_of
from .evaluation import PREDICTIONS, evaluate, score_split, write_evaluation
from .model_card import describe_data, write_card


@dataclass(frozen=True)
class Comparison:
    """Margins of the same rows before and after merging.

    Attributes:
        n: rows scored both times.
        n_failed: rows that failed both times.
        max_difference: the largest |after - before| of these n.
        same: every difference is within the tolerance, and the same rows failed.
    """

    n: int
    n_failed: int
    max_difference: float
    same: bool


def compare(before: Sequence[Prediction], after: Sequence[Prediction], dtype: str) -> Comparison:
    """Whether merging changed the function, as far as these rows tell.

    Args:
        before: predictions of the verifier with its adapter.
        after: of the merged one, of the same rows in the same order.
        dtype: the precision the verifier was trained in; it decides the tolerance (`models.golden.TOLERANCE`).

    Raises:
        CalibrationError: other rows, or none that was scored both times: nothing is shown.
    """
    if [p.pair_id for p in before] != [p.pair_id for p in after]:
        raise CalibrationError("merging: margins must be of the same rows, got other pair ids; score one split twice")
    m, n = margins_of(before), margins_of(after)
    failed, both = np.isnan(m), ~np.isnan(m) & ~np.isnan(n)
    if not both.any():
        raise CalibrationError(
            f"merging: no row was scored before and after, got {len(m)} rows; give data whose media can be read"
        )
    difference = np.abs(n - m)[both]
    absolute, relative = TOLERANCE[dtype]
    within = bool((difference <= absolute + relative * np.abs(m[both])).all())
    same_failed = bool((failed == np.isnan(n)).all())
    return Comparison(int(both.sum()), int(failed.sum()), float(difference.max()), within and same_failed)


def refit(decision: Decision, predictions: Sequence[Prediction], fitted_on: dict[str, Any], where: str) -> Decision:
    """The same decision fitted again on other margins: method, objectives, default, band and guarantees as before.

    Raises:
        CalibrationError: as `fit_decision`; and for a point whose guarantee cannot be asked for again.
    """
    calibration = decision.calibration
    points = [decision.point(), *(p for p in decision.points if p.name != decision.default)]
    extra: dict[str, Any] = {}
    if controlled := [_risk(p) for p in points if p.guarantee is not None]:
        extra["risks"] = controlled
    if decision.abstain is not None:
        band = decision.abstain
        extra["abstain"] = (band.objective, band.target)
        if band.guarantee is not None:
            extra["abstain"] += (band.guarantee.delta,)
    if calibration.by_group is not None:
        corrected = calibration.by_group.corrections.values()
        extra["per_group"] = PerGroup(calibration.by_group.key, min([MIN_ROWS, *(c.n for c in corrected)]))
    criteria: list[Any] = [criterion_of(p) for p in points if p.guarantee is None]
    refitted = fit_decision(
        predictions,
        "auto" if "choice" in calibration.fitted_on else calibration.method,
        criteria,
        fitted_on,
        where,
        prior=calibration.prior,
        aggregation=calibration.aggregation,
        **extra,
    )
    names = [p.name for p in refitted.points]
    return dataclasses.replace(refitted, default=decision.default if decision.default in names else refitted.default)


def _risk(point: OperatingPoint) -> tuple[str, float, float]:
    promise = point.guarantee
    if promise is None or promise.delta is None:
        raise CalibrationError(
            f"operating point {point.name}: a guarantee on average is not fitted again here; "
            "export the merged verifier without it"
        )
    return promise.risk, promise.at_most, promise.delta


@dataclass(frozen=True)
class Evaluation:
    """What travels along as `eval/`: files made before, or a split to score and report on now.

    Attributes:
        report: folder written by eval/report.py.
        predictions: Parquet written by eval/predict.py, of the reported rows.
        split: of the data set, to be scored with what is exported; instead of the other two.
    """

    report: Path | None = None
    predictions: Path | None = None
    split: str | None = None

    def __post_init__(self) -> None:
        """Refuse both ways at once."""
        if self.split is not None and (self.report is not None or self.predictions is not None):
            raise ConfigError(
                f"evaluation: made before or made now, got a report or predictions and the split {self.split!r}; "
                "give one of them"
            )


@dataclass(frozen=True)
class Change:
    """How a verifier is changed before it is exported.

    Attributes:
        merge: merge the adapter into its full-precision base and store the whole model.
        dtype: of the merged weights; None: as trained.
        time_rule: by which it places frames from now on; None: as the verifier says.
        recalibrate: where that changes the function, fit calibration and thresholds again instead of refusing.
    """

    merge: bool = False
    dtype: Dtype | None = None
    time_rule: TimeRule | None = None
    recalibrate: bool = False


@dataclass(frozen=True)
class _Ready:
    """A verifier that will be exported as it is, the calibration folder that belongs to it, and what a change did."""

    draft: Path
    calibration: Path
    measured: dict[str, Any] | None = None  # None: nothing was changed


def export(
    draft: Path,
    calibration: Path,
    data: Path,
    out: Path,
    base: Path | None = None,
    evaluation: Evaluation | None = None,
    change: Change | None = None,
    license: str | None = None,
    device: str = "cpu",
) -> SelfTest:
    """Write the verifier directory `out` and prove that it reloads to the same margins.

    Args:
        draft: what training left.
        calibration: folder with calibration.json and thresholds.json fitted on the verifier's own predictions.
        data: data set whose calibration split gives the golden inputs, and the rows a changed verifier is compared on.
        out: must not exist.
        base: base checkpoint, if not where the verifier says.
        evaluation: what travels along as eval/.
        change: store the whole model instead of an adapter, or take up another time rule.
        license: for the model card.
        device: where golden margins, and everything else scored here, are computed.

    Raises:
        CalibrationError: the calibration was fitted on another verifier's predictions; or a change of it changes the
            function and fitting again was not asked for, or does not work out.
        ConfigError: an evaluation that cannot hold for what is exported.
        DirectoryError: the exported directory does not reproduce its own golden margins.
    """
    evaluation = evaluation or Evaluation()
    if out.exists():
        raise DirectoryError(f"{out}: already exists; choose another name or remove it")
    windowing = _check_fitted(draft, calibration, data)
    with _workplace(out) as work:
        ready = _Ready(draft, calibration)
        if change is not None:
            ready = _changed(draft, calibration, windowing, data, work, base, change, device)
        verifier = _load(ready.draft, windowing, base, device)
        if evaluation.split is not None:
            evaluate(verifier, data, evaluation.split, ready.calibration, work / "eval")
            evaluation = Evaluation(work / "eval", work / "eval" / PREDICTIONS)
            scored_with = verifier.fingerprint
        else:
            _check_holds(evaluation, ready)
            scored_with = fingerprint(draft)

        def fill(folder: Path) -> None:
            config = _fill(folder, out, ready, verifier, data)
            write_evaluation(
                folder / "eval",
                scored_with,
                read_measuring(ready.calibration),
                evaluation.report,
                evaluation.predictions,
            )
            write_card(folder, out.name, config, describe_data(data, draft), license)

        write_directory(out, fill)
    result = selftest(out, Verifier.from_pretrained(out, device=device, base=base), read_directory(out).dtype)
    if not result.passed:
        shutil.rmtree(out)
        raise DirectoryError(
            f"{out}: golden margins differ by {result.max_difference:g} after reloading, allowed {result.allowed:g} "
            f"{list(result.problems)}; the export was removed, please report this"
        )
    return result


def _check_fitted(draft: Path, calibration: Path, data: Path) -> Windowing | None:
    """The windowing that the calibration's margins were made by; it is the one that is exported."""
    fitted = read_decision(calibration).calibration
    fitted_on = fitted.fitted_on.get("verifier_fingerprint")
    if (cross := fitted.fitted_on.get(CROSS_FITTED)) is not None:
        _check_last(draft, calibration, data, cross)
    elif fitted_on != fingerprint(draft):
        raise CalibrationError(
            f"{calibration}: fitted on another verifier, got fingerprint {str(fitted_on)[:12]} instead of "
            f"{fingerprint(draft)[:12]}; run eval/predict.py and eval/calibrate.py with this draft"
        )
    windowing = None if fitted.aggregation is None else Windowing.parse(fitted.aggregation)
    if (recorded := read_directory(draft).windowing) not in (None, windowing):
        raise CalibrationError(
            f"{calibration}: fitted on margins aggregated by {fitted.aggregation}, got a verifier that says "
            f"{recorded.rule}; run eval/predict.py without --windowing, and eval/calibrate.py again"
        )
    return windowing


def _check_last(draft: Path, calibration: Path, data: Path, cross: Mapping[str, Any]) -> None:
    """A cross-fitted calibration belongs to a verifier trained like those of the folds, on the rows of all."""
    if not (recipe := recipe_of(draft)) or recipe != cross["recipe_sha256"]:
        raise CalibrationError(
            f"{draft}: trained with other settings than the verifiers of the folds, got recipe {str(recipe)[:12]} "
            f"instead of {cross['recipe_sha256'][:12]}; train it as they were"
        )
    folds = (read_manifest(data).get("cross") or {}).get("folds") or {}
    if sorted(folds) != sorted(cross["folds"]) or trained_on(draft) != train_shards(data):
        raise CalibrationError(
            f"{calibration}: fitted on verifiers of the folds {sorted(cross['folds'])}, got {draft}, which was not "
            f"trained on all folds of {data}; train it on that data set"
        )


def _rows_to_compare(data: Path) -> str:
    """The split that golden inputs are taken of; a data set in folds has but the one that the verifier trained on."""
    return "train" if "cross" in read_manifest(data) else "calibration"


def _load(draft: Path, windowing: Windowing | None, base: Path | None, device: str) -> Verifier:
    return Verifier.from_pretrained(draft, device=device, base=base).with_windowing(windowing)


@contextmanager
def _workplace(out: Path) -> Iterator[Path]:
    """A folder beside the export, so that what was made in it can be moved; removed in the end."""
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}.work-") as work:
        yield Path(work)


def _changed(
    draft: Path,
    calibration: Path,
    windowing: Windowing | None,
    data: Path,
    work: Path,
    base: Path | None,
    change: Change,
    device: str,
) -> _Ready:
    """The changed verifier with its calibration: the one there is where margins are the same, else one fitted again."""
    trained_dtype, changed = read_directory(draft).dtype, draft
    if change.merge:
        write_merged(draft, changed := work / "merged", base, change.dtype)
    if change.time_rule is not None:
        changed = _write_ruled(changed, work / "ruled", change.time_rule)
    before = _score(draft, windowing, data, work / "before.parquet", base, device)
    after = _score(changed, windowing, data, work / "after.parquet", base, device)
    comparison = compare(before, after, trained_dtype)
    if not comparison.same:
        if not change.recalibrate:
            what = " and ".join(["merging"] * change.merge + ["the time rule"] * (change.time_rule is not None))
            raise CalibrationError(
                f"{draft}: {what} changes what it says, got margins up to {comparison.max_difference:.4g} apart on "
                f"{comparison.n} calibration rows; pass --recalibrate to fit the calibration again, or "
                "export it as it is"
            )
        decision = read_decision(calibration)
        if CROSS_FITTED in decision.calibration.fitted_on:
            raise CalibrationError(
                f"{calibration}: cross-fitted, and cannot be fitted again on one verifier, got margins up to "
                f"{comparison.max_difference:.4g} apart; export it as it is"
            )
        about = {
            "split": "calibration",
            "predictions_sha256": sha256_of(work / "after.parquet"),
            "verifier_fingerprint": fingerprint(changed),
        }
        calibration = work / "recalibrated"
        write_decision(calibration, refit(decision, after, about, f"{draft} changed"))
        write_fitted_rows(calibration, after)
    measured = dataclasses.asdict(comparison) | {"calibration": "kept" if comparison.same else "fitted again"}
    return _Ready(changed, calibration, measured)


def _write_ruled(draft: Path, out: Path, time_rule: TimeRule) -> Path:
    """The same verifier under another time rule."""
    config = read_directory(draft)
    base = dataclasses.replace(config.base, path=relative_base(config.base.path, old=draft, new=out))
    took = {"from": config.time_rule, "from_fingerprint": fingerprint(draft)}
    ruled = dataclasses.replace(config, base=base, time_rule=time_rule, trained=config.trained | {"time_rule": took})

    def fill(folder: Path) -> None:
        shutil.copytree(draft, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns(MANIFEST))
        (folder / CONFIG).write_text(ruled.to_json(), encoding="utf-8")

    return write_directory(out, fill)


def _score(
    directory: Path, windowing: Windowing | None, data: Path, path: Path, base: Path | None, device: str
) -> list[Prediction]:
    return score_split(_load(directory, windowing, base, device), data, _rows_to_compare(data), path)


def _check_holds(evaluation: Evaluation, ready: _Ready) -> None:
    given = evaluation.report or evaluation.predictions
    if given is not None and ready.measured is not None and not ready.measured["same"]:
        raise ConfigError(
            f"{given}: is of the verifier before merging or a new time rule changed it, got margins up to "
            f"{ready.measured['max_difference']:.4g} apart; name the split to score again (--test-split), or leave it "
            "out"
        )


def _fill(folder: Path, out: Path, ready: _Ready, verifier: Verifier, data: Path) -> VerifierConfig:
    """Weights, processor, configuration, decision and golden inputs. A changed one is temporary: its files move."""
    config = _described(read_directory(ready.draft), out, ready, verifier)
    move_or_copy = shutil.copy2 if ready.measured is None else shutil.move
    unwanted = shutil.ignore_patterns(MANIFEST)
    shutil.copytree(ready.draft, folder, dirs_exist_ok=True, ignore=unwanted, copy_function=move_or_copy)
    (folder / CONFIG).write_text(config.to_json(), encoding="utf-8")
    if config.weights == "full":  # where other programs look for them
        shutil.copytree(folder / "processor", folder / "model", dirs_exist_ok=True)
        write_cross_encoder(folder, config, verifier.encoder)
        passage, claim = EXAMPLE
        write_gguf_note(
            folder,
            config,
            verifier.encoder,
            lambda: float(verifier.score_media([(claim, None)], (passage,), Media())[0]),
        )
    else:
        describe_adapter(folder / "adapter", config.base.path, _conditional_network(verifier))
    write_decision(folder, read_decision(ready.calibration))
    if (fitted := ready.calibration / FITTED_ROWS_FILE).is_file():  # a report by this directory can prove its rows new
        shutil.copy2(fitted, folder / FITTED_ROWS_FILE)
    write_golden(folder / "golden", verifier, read_split(data, _rows_to_compare(data)))
    return config


def _conditional_network(verifier: Verifier) -> type | None:
    """transformers' class of an adapter's base, where that is no causal language model and has no head of ours."""
    network: Any = type(verifier.model.get_base_model())
    ours = not network.__module__.startswith("transformers.models.")
    return None if ours or not network.__name__.endswith("ForConditionalGeneration") else network


def _described(config: VerifierConfig, out: Path, ready: _Ready, verifier: Verifier) -> VerifierConfig:
    """The configuration as published: the base as seen from `out`, the packages it needs, what a change did."""
    path = relative_base(config.base.path, old=ready.draft, new=out)
    needed = requirements_of(verifier.encoder.layout.sees, config.weights == "adapter", config.quantization is not None)
    trained = config.trained
    for name in ("merged", "time_rule"):
        if ready.measured is not None and name in trained:
            trained = trained | {name: trained[name] | ready.measured}
    return dataclasses.replace(
        config,
        base=dataclasses.replace(config.base, path=path),
        windowing=verifier.windowing,
        chat=verifier.encoder.chat.turns,
        requirements=needed | config.requirements,
        trained=trained,
    )
