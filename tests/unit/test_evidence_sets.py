"""Laws of sets of evidence: company does not refute, contradictions are said, the probability of a set is fitted."""

# pyright: reportOptionalMemberAccess=false, reportOperatorIssue=false, reportArgumentType=false

import json
import math

import numpy as np
import pytest

from proofreel.core.errors import CalibrationError, ConfigError
from proofreel.core.pairs import VideoSegment
from proofreel.eval.calibration.evidence_sets import fit_sets
from proofreel.models.decision.verdict import Verdict, failed
from proofreel.models.verifier.attribution import Attributed, AttributionPairs, CitedClaim, JudgedCitation
from proofreel.models.verifier.evidence_sets import SetCalibration, check_sets, set_verdict

PIECES = [VideoSegment(f"{name}.mp4", 0.0, 2.0) for name in "abc"]


class Reader:
    media_root = None

    def check_asked(self, evidence):
        """Anything may be asked about."""


def verdict(margin):
    return Verdict(1 / (1 + math.exp(-margin)), margin, "supported" if margin >= 0 else "not_supported")


def attributed(margins, one_prompt=-4.0, sets="largest", **options):
    """Pieces alone have these margins; sets of several in one prompt all have the same."""
    cited = AttributionPairs([CitedClaim("It is red.", PIECES[: len(margins)])], Reader(), sets)
    alone = {piece: margin for piece, margin in zip(PIECES, margins, strict=False)}
    said = [verdict(alone[p.evidence[0]] if len(p.evidence) == 1 else one_prompt) for p in cited.pairs]
    return cited.attributions(said, **options)[0]


def test_irrelevant_company_does_not_refute_and_the_right_citation_is_necessary():
    found = attributed([-3.0, 2.0, -3.0])
    assert found.recall.label == "supported"
    assert found.recall.margin == 2.0
    assert found.relevant == found.necessary == (False, True, False)
    before = attributed([-3.0, 2.0, -3.0], sets="one_prompt")
    assert before.recall.label == "not_supported"
    assert before.necessary == (False, False, False)


def test_by_pieces_no_prompt_of_several_is_asked_and_the_surest_decides():
    cited = AttributionPairs([CitedClaim("It is red.", PIECES)], Reader(), "pieces")
    assert [pair.evidence for pair in cited.pairs] == [(piece,) for piece in PIECES]
    found = attributed([-3.0, 2.0, -3.0], sets="pieces")
    assert found.recall.label == "supported"
    assert found.relevant == found.necessary == (False, True, False)
    assert found.one_prompt is None is found.contradiction
    assert attributed([-1.0, -2.0], one_prompt=3.0, sets="pieces").recall.label == "not_supported"
    alone = attributed([2.0], sets="pieces")
    assert alone.necessary == (True,)
    assert alone.one_prompt.margin == 2.0


def test_of_two_that_support_neither_is_necessary_and_pieces_that_support_only_together_both_are():
    assert attributed([2.0, 2.0, -3.0]).necessary == (False, False, False)
    jointly = attributed([-1.0, -2.0], one_prompt=3.0)
    assert jointly.recall.label == "supported"
    assert jointly.necessary == (True, True)


@pytest.mark.parametrize("sets", ["largest", "one_prompt"])
def test_contradictions_are_said_under_either_rule(sets):
    said = attributed([-3.0, 2.0, -3.0], sets=sets).contradiction
    assert said == "alone, evidence 2 (p = 0.881) supports the claim; all 3 in one prompt (p = 0.018) does not"
    assert "no piece alone does" in attributed([-1.0, -2.0], one_prompt=3.0, sets=sets).contradiction
    assert attributed([2.0, -3.0], one_prompt=1.0, sets=sets).contradiction is None
    assert attributed([2.0], sets=sets).contradiction is None


def test_a_piece_that_fails_leaves_no_verdict_and_a_prompt_that_alone_fails_leaves_the_pieces():
    broken = set_verdict([verdict(2.0), failed("a.mp4: missing")], failed("a.mp4: missing"))
    assert broken.error == "a.mp4: missing"
    long = set_verdict([verdict(2.0), verdict(-1.0)], failed("too long"))
    assert long.label == "supported"
    assert "too long" in long.note


def _sets(rng, n_sets, size):
    margins = rng.normal(-2.0, 1.5, (n_sets, size))
    labels = rng.random(n_sets) < 0.5
    margins[labels, 0] = rng.normal(2.5, 1.5, labels.sum())
    cites = tuple(JudgedCitation(piece, piece) for piece in range(size))
    return [Attributed("c", verdict(m), cites) for m in margins.max(axis=1)], labels


def test_a_fitted_probability_of_sets_holds_for_other_sets_of_every_size():
    rng = np.random.default_rng(0)
    found, labels = [], []
    for size in (2, 8):
        some, truth = _sets(rng, 2000, size)
        found, labels = found + some, [*labels, *truth]
    fitted = fit_sets(found, labels)
    assert fitted.per_log_n < 0
    assert SetCalibration.from_dict(json.loads(json.dumps(fitted.to_dict()))) == fitted
    for size in (2, 8):
        others, truth = _sets(rng, 2000, size)
        margins = np.array([each.recall.margin for each in others])
        p, single = fitted.predict(margins, np.full(len(margins), size)), 1 / (1 + np.exp(-margins))
        assert np.mean((p - truth) ** 2) < np.mean((single - truth) ** 2)
        assert abs(p.mean() - truth.mean()) < 0.05
    assert attributed([-3.0, 2.0, -3.0], calibration=fitted).recall.p_supported == pytest.approx(
        float(fitted.predict(2.0, 3))
    )


def test_what_is_no_calibration_of_sets_is_refused():
    few, labels = _sets(np.random.default_rng(0), 20, 3)
    with pytest.raises(CalibrationError, match="needs 50 sets"):
        fit_sets(few, labels)
    good = {"slope": 1.0, "intercept": 0.0, "per_log_n": -1.0, "n": 60, "sizes": [2, 8], "positive_rate": 0.5}
    for key, value in (("slope", -1.0), ("intercept", math.nan), ("sizes", [1, 8]), ("positive_rate", 1), ("more", 1)):
        with pytest.raises(CalibrationError):
            SetCalibration.from_dict(good | {key: value})
    fitted = SetCalibration.from_dict(good)
    for sets, prior in (("one_prompt", None), ("largest", 0.1), ("mean", None)):
        with pytest.raises(ConfigError):
            check_sets(sets, fitted, prior)
