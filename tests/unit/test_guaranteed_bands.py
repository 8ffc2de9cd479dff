"""A band's promised accuracy is kept as often as promised, where the plain band misses it, or it is refused."""

import dataclasses
import json

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import binomtest

from proofreel.core.errors import CalibrationError
from proofreel.eval.calibration.fit import fit_decision
from proofreel.eval.decisions.abstention import fit_band, parse_band
from proofreel.eval.decisions.guaranteed_bands import band_losses, guaranteed_band
from proofreel.eval.decisions.risk_control import groups_needed, margin_grid
from proofreel.eval.publishing.exporting import refit
from proofreel.eval.scoring.predictions import Prediction
from proofreel.models.decision.calibrator import sigmoid
from proofreel.models.decision.restated import with_prior
from proofreel.models.decision.thresholds import AbstainBand, read_decision, write_decision
from proofreel.models.decision.verdict import prior_notes

Columns = tuple[np.ndarray, np.ndarray, np.ndarray]  # probabilities or margins, labels, groups
GUARANTEED = ("selective_accuracy_guaranteed", 0.9, 0.2)


def _drawn(seed: int, n_groups: int, spread: float = 1.0, per_group: int = 5, apart: float = 1.5) -> Columns:
    rng = np.random.default_rng(seed)
    groups = np.repeat(np.arange(n_groups), rng.integers(1, 2 * per_group, n_groups))
    labels = (rng.random(len(groups)) < 0.5).astype(float)
    shift = rng.normal(0, spread, n_groups)[groups]
    return sigmoid(rng.normal(apart * (2 * labels - 1), 1) + shift), labels, groups


def _rows(n: int = 1_600) -> list[Prediction]:
    p, labels, groups = _drawn(0, n // 5, 0.3)
    return [
        Prediction(f"{i}", float(m), 0.5, "supported" if y else "refuted", "calibration", f"v{g}", "r", "o", "video")
        for i, (m, y, g) in enumerate(zip(np.log(p) - np.log1p(-p), labels, groups, strict=True))
    ]


def test_the_promised_accuracy_is_kept_with_the_chance_promised_and_the_plain_band_misses_it() -> None:
    target, delta, tries = 0.9, 0.2, 60
    many = _drawn(10**6, 4_000)
    missed: dict[str, int] = {"guaranteed": 0, "plain": 0}
    for seed in range(tries):
        columns = _drawn(seed, 150)
        plain = fit_band(*columns, "selective_accuracy", target, n_draws=2)
        missed["plain"] += _accuracy(plain, many) < target
        try:
            band = guaranteed_band(*columns, target, delta, n_draws=2)
        except CalibrationError:
            continue
        missed["guaranteed"] += _accuracy(band, many) < target
    assert binomtest(missed["guaranteed"], tries, delta, alternative="greater").pvalue > 0.001
    assert missed["plain"] > 0.4 * tries


def _accuracy(band: AbstainBand, rows: tuple[np.ndarray, ...]) -> float:
    return 1 - float(np.nanmean(band_losses(band, *rows)))


def test_a_band_worked_by_hand() -> None:
    # 200 groups of one row: margins of 2 are right, of 1 a coin; a band around 0 is at most 1.6 wide on either side.
    margins = np.repeat([-2.0, -1.0, 1.0, 2.0], 50)
    labels = np.concatenate([np.zeros(50), np.tile([0.0, 1.0], 50), np.ones(50)])
    band = guaranteed_band(sigmoid(margins), labels, np.arange(200), 0.8, 0.1, n_draws=10)
    assert (band.tp, band.fp, band.tn, band.fn) == (50, 0, 50, 0)
    assert (band.abstained_positive, band.abstained_negative) == (50, 50)
    state = band.decide(sigmoid(np.array([-1.6, -1.0, 1.0, 1.6])))
    assert state.tolist() == ["refuted", "abstain", "abstain", "supported"]
    assert band.guarantee is not None
    assert (band.guarantee.at_most, band.guarantee.delta, band.guarantee.n_groups) == (0.2, 0.1, 100)
    assert band.selective_accuracy_interval is not None


def test_the_loss_of_a_group_is_its_share_of_wrong_verdicts() -> None:
    band = AbstainBand(0.7, 0.3, "max_abstention", 0.2, 1, 0, 0, 0, 0, 0)
    p, labels = [0.9, 0.8, 0.1, 0.5, 0.2, 0.9], [1, 0, 1, 1, 0, 1]
    assert_allclose(band_losses(band, p, labels, [0, 0, 0, 1, 2, 2]), [2 / 3, np.nan, 0])


def test_all_rows_get_a_verdict_where_all_verdicts_are_right_often_enough() -> None:
    p, labels, groups = _drawn(1, 400, 0.0, apart=4.0)
    band = guaranteed_band(p, labels, groups, 0.9, n_draws=2)
    assert band.coverage == 1


@pytest.mark.parametrize("place", [-3.0, 3.0])
def test_margins_that_lie_to_one_side_get_a_band_where_they_lie(place: float) -> None:
    p, labels, groups = _drawn(2, 400, 0.0, apart=2.5)
    moved = sigmoid(np.log(p) - np.log1p(-p) + place)
    assert (
        abs(guaranteed_band(moved, labels, groups, 0.9).coverage - guaranteed_band(p, labels, groups, 0.9).coverage)
        < 0.15
    )


def test_stricter_targets_leave_more_without_a_verdict() -> None:
    columns = _drawn(3, 400)
    covered = [guaranteed_band(*columns, target, n_draws=2).coverage for target in (0.75, 0.85, 0.9)]
    assert covered == sorted(covered, reverse=True)
    assert covered[0] > covered[-1]


def test_too_few_groups_and_bands_that_none_certify_are_refused_with_what_can_be_had() -> None:
    needed = groups_needed(0.1, 0.1, 28)
    with pytest.raises(CalibrationError, match=f"needs at least {needed} groups .*got 30; fit on more groups"):
        guaranteed_band(*_drawn(4, 30), 0.9)
    columns = _drawn(5, 150)
    with pytest.raises(CalibrationError, match=r"got (0\.\d+) at best; lower the accuracy to that") as refusal:
        guaranteed_band(*columns, 0.96, delta=0.1)
    best = float(str(refusal.value).split("got ")[1].split(" ")[0])
    assert guaranteed_band(*columns, best).target == best
    with pytest.raises(CalibrationError, match=r"none above 0\.5; .*train further"):
        guaranteed_band(np.full(600, 0.5), np.tile([0, 1], 300), np.arange(600), 0.9)
    for target, delta in ((1.0, 0.1), (0.0, 0.1), (0.9, 1.0)):
        with pytest.raises(CalibrationError, match="lie between 0 and 1"):
            guaranteed_band(*columns, target, delta)


def test_a_decision_stores_refits_and_reads_the_promise(tmp_path) -> None:
    decision = fit_decision(_rows(), "platt", abstain=GUARANTEED)
    band = decision.abstain
    assert band is not None
    assert band.guarantee is not None
    write_decision(tmp_path, decision)
    assert read_decision(tmp_path).abstain == band
    assert "caution" not in json.loads((tmp_path / "thresholds.json").read_text())["abstain"]
    assert refit(decision, _rows(), {}, "again").abstain == band
    plain = fit_decision(_rows(), "platt", abstain=("selective_accuracy", 0.9)).abstain
    assert plain is not None
    assert "guarantee" not in plain.to_dict()


def test_a_map_fitted_on_the_same_rows_decides_as_the_margins_do() -> None:
    margins = np.array([row.margin for row in _rows()])
    labels, groups = np.array([row.label == "supported" for row in _rows()]), np.array([row.group for row in _rows()])
    mapped = fit_decision(_rows(), "platt", abstain=GUARANTEED)
    direct = guaranteed_band(
        sigmoid(margins), labels, groups, *GUARANTEED[1:], thresholds=sigmoid(margin_grid(margins))
    )
    assert mapped.abstain is not None
    state = mapped.abstain.decide(mapped.calibration.predict(margins))
    assert state.tolist() == direct.decide(sigmoid(margins)).tolist()


def test_for_another_share_the_promise_is_refused_or_withdrawn_aloud() -> None:
    fitted = fit_decision(_rows(), "platt", abstain=GUARANTEED)
    moved, margins = with_prior(fitted, 0.1), np.array([row.margin for row in _rows()])
    assert fitted.abstain is not None
    assert moved.abstain is not None
    states = [d.abstain.decide(d.calibration.predict(margins)) for d in (fitted, moved)]  # type: ignore[union-attr]
    assert np.array_equal(states[0], states[1])
    assert moved.abstain.guarantee is None
    assert "withdrawn" in str(moved.abstain.caution)
    assert any("withdrawn" in note for note in prior_notes((), moved))
    positive = moved.abstain.tp + moved.abstain.fn + moved.abstain.abstained_positive
    assert positive / moved.abstain.n == pytest.approx(0.1, abs=1e-3)
    assert with_prior(moved, None) == fitted
    with pytest.raises(CalibrationError, match="does not carry over"):
        fit_decision(_rows(), "platt", prior=0.1, abstain=GUARANTEED)


def test_a_map_that_ties_margins_promises_nothing() -> None:
    with pytest.raises(CalibrationError, match="keeps every margin apart"):
        fit_decision(_rows(), "histogram", abstain=GUARANTEED)


def test_the_words_of_a_command() -> None:
    assert parse_band("selective_accuracy_guaranteed:0.9") == ("selective_accuracy_guaranteed", 0.9, 0.1)
    assert parse_band("selective_accuracy_guaranteed:0.9:0.05") == ("selective_accuracy_guaranteed", 0.9, 0.05)
    for text in ("selective_accuracy:0.9:0.1", "selective_accuracy_guaranteed", "max_abstention:x", "other:0.2"):
        with pytest.raises(CalibrationError, match="--abstain"):
            parse_band(text)


def test_a_damaged_promise_is_refused() -> None:
    band = guaranteed_band(*_drawn(6, 400), 0.8)
    values = dataclasses.asdict(band)
    values["guarantee"]["delta"] = 2.0
    with pytest.raises(CalibrationError, match="delta must lie between 0 and 1"):
        AbstainBand.from_dict(values, "thresholds.json: abstain")
