"""Laws of the fitted rule from windows to intervals: lone windows raise no alarm, edges are met, other videos agree."""

# pyright: reportArgumentType=false

import json
import math

import numpy as np
import pytest

from proofreel.core.errors import CalibrationError, ConfigError
from proofreel.core.pairs import VideoSegment
from proofreel.eval.scores.cgbench import localization_scores
from proofreel.eval.scores.interval_fit import fit_intervals
from proofreel.models.decision.verdict import JudgedWindow, Verdict
from proofreel.models.verifier.interval_rule import IntervalRule, SupportedInterval, averaged
from proofreel.models.verifier.localization import Localization, joined, localize

WINDOWING = "max:1:0.25"


def windows_of(margins, length_s=1.0, stride_s=0.25):
    verdicts = [Verdict(1 / (1 + math.exp(-m)), float(m), None) for m in margins]
    starts = [stride_s * i for i in range(len(verdicts))]
    return [JudgedWindow(VideoSegment("a.mp4", s, s + length_s), v) for s, v in zip(starts, verdicts, strict=True)]


def test_without_averaging_and_with_one_threshold_it_is_the_windows_joined():
    rng = np.random.default_rng(0)
    rule = IntervalRule(WINDOWING, 1, 0.0, 0.0)
    for _ in range(50):
        windows = windows_of(rng.normal(-0.5, 2.0, 30))
        held = joined(w for w in windows if w.verdict.margin >= 0)
        assert [(i.start_s, i.end_s, i.p_supported) for i in rule.intervals(windows)] == [
            (i.start_s, i.end_s, i.p_supported) for i in held
        ]


def test_a_lone_window_raises_no_alarm_and_an_event_is_found_as_long_as_it_lasts():
    rule = IntervalRule(WINDOWING, 3, 1.0, -1.0, trim_s=0.25)
    lone, event = np.full(20, -4.0), np.full(20, -4.0)
    lone[10] = 6.0
    assert joined(w for w in windows_of(lone) if w.verdict.margin >= 0)  # an alarm by single windows
    assert rule.intervals(windows_of(lone)) == ()
    event[8:14] = 3.0
    assert rule.intervals(windows_of(event)) == (
        SupportedInterval(2.25, 4.0, pytest.approx(windows_of([3.0])[0].verdict.p_supported), 6),
    )
    at_ends = rule.intervals(windows_of(np.full(4, 3.0)))
    assert [(i.start_s, i.end_s) for i in at_ends] == [(0.0, 1.75)]  # the ends of the video are no edges


def test_averages_take_the_neighbours_there_are():
    assert averaged(np.array([3.0, 0.0, 0.0, 6.0]), 3).tolist() == [1.5, 1.0, 2.0, 3.0]
    assert averaged(np.array([3.0, 1.0]), 9).tolist() == [2.0, 2.0]


def _drawn(rng, n):
    """Margins that rise where a window shows most of an event of 2 s, with noise of single windows."""
    localizations, references = [], []
    for i in range(n):
        windows = windows_of(np.zeros(40))
        spans = [] if i % 2 else [(start := float(rng.uniform(1, 8)), start + 2.0)]
        shown = [sum(max(0.0, min(b, w.segment.end_s) - max(a, w.segment.start_s)) for a, b in spans) for w in windows]
        margins = -2.0 + 5.0 * (np.array(shown) >= 0.5) + rng.normal(0, 1.5, 40) + 4.0 * (rng.random(40) < 0.02)
        made = tuple(windows_of(margins))
        intervals = joined(w for w in made if w.verdict.margin >= 0)
        localizations.append(Localization("c", intervals, made, Verdict(0.5, 0.0, None)))
        references.append(spans)
    return localizations, references


def test_a_fitted_rule_has_fewer_false_alarms_and_meets_events_better_on_other_videos():
    rng = np.random.default_rng(0)
    fit, others = _drawn(rng, 160), _drawn(rng, 160)
    rule = fit_intervals({WINDOWING: fit[0]}, fit[1], false_alarms=0.1)
    assert rule.fitted_on["false_alarms"] <= 0.1
    assert IntervalRule.from_dict(json.loads(json.dumps(rule.to_dict()))) == rule
    before = localization_scores(*others, draws=1)
    by_rule = [Localization("c", rule.intervals(each.windows), each.windows, each.verdict) for each in others[0]]
    after = localization_scores(by_rule, others[1], draws=1)
    assert before.false_alarms > 0.5
    assert after.false_alarms < 0.2
    assert after.named.miou > before.named.miou + 0.1
    assert after.named.miou > 0.7


def test_what_is_no_rule_is_refused():
    rng = np.random.default_rng(0)
    few = _drawn(rng, 20)
    with pytest.raises(CalibrationError, match="needs 20 claims"):
        fit_intervals({WINDOWING: few[0]}, few[1])
    with pytest.raises(CalibrationError, match="false alarms in"):
        fit_intervals({WINDOWING: few[0]}, few[1], false_alarms=0.0)
    good = IntervalRule(WINDOWING, 3, 1.0, 0.0).to_dict()
    for key, value in (
        ("windowing", "max"),
        ("windowing", None),
        ("n_averaged", 2),
        ("n_averaged", True),
        ("found_at", -1.0),
        ("extends_at", math.nan),
        ("trim_s", 0.5),
        ("more", 1),
    ):
        with pytest.raises(CalibrationError):
            IntervalRule.from_dict(good | {key: value})


def test_a_rule_has_its_own_windows_and_thresholds():
    rule = IntervalRule(WINDOWING, 3, 1.0, 0.0)
    for given in ({"windowing": "max:2:1"}, {"threshold": 0.5}, {"operating_point": "f1"}):
        with pytest.raises(ConfigError, match="a rule has its own"):
            localize(None, ["c"], "a.mp4", rule=rule, **given)  # type: ignore[arg-type]
