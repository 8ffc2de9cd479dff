"""Laws of the fitted rule from windows to intervals: lone windows raise no alarm, edges are met, other videos agree."""

# pyright: reportArgumentType=false

import json
import math

import numpy as np
import pytest

from proofreel.core.errors import CalibrationError, ConfigError
from proofreel.core.pairs import VideoSegment
from proofreel.eval.scores.cgbench import localization_scores
from proofreel.eval.scores.interval_fit import fit_intervals, found_at_most
from proofreel.models.decision.verdict import JudgedWindow, Verdict
from proofreel.models.verifier.interval_rule import IntervalRule, SupportedInterval, averaged
from proofreel.models.verifier.localization import Localization, joined, localize

WINDOWING = "max:1:0.25"


def windows_of(margins, length_s=1.0, stride_s=0.25, video="a.mp4"):
    verdicts = [Verdict(1 / (1 + math.exp(-m)), float(m), None) for m in margins]
    starts = [stride_s * i for i in range(len(verdicts))]
    return [JudgedWindow(VideoSegment(video, s, s + length_s), v) for s, v in zip(starts, verdicts, strict=True)]


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


def test_edges_may_be_sought_with_other_averages_and_rules_without_them_are_read_as_before():
    margins = np.full(20, -4.0)
    margins[8:14] = 3.0
    kept = IntervalRule(WINDOWING, 5, 1.0, 0.0).to_dict()
    assert kept.pop("n_extended") is None
    before, alone = IntervalRule.from_dict(kept), IntervalRule.from_dict(kept | {"n_extended": 1})
    assert [(i.start_s, i.end_s) for i in before.intervals(windows_of(margins))] == [(2.0, 4.25)]
    assert before == IntervalRule.from_dict(kept | {"n_extended": None})
    margins[13] = 0.5  # still shown by its own window, no longer by the average of five
    assert [(i.start_s, i.end_s) for i in before.intervals(windows_of(margins))] == [(2.0, 4.0)]
    assert [(i.start_s, i.end_s) for i in alone.intervals(windows_of(margins))] == [(2.0, 4.25)]
    margins[10] = -1.0  # one window that fails to show it parts nothing that was found
    assert [(i.start_s, i.end_s) for i in alone.intervals(windows_of(margins))] == [(2.0, 4.25)]


def test_false_alarms_on_other_videos_are_on_average_no_more_than_allowed():
    rng, n_videos, n_claims = np.random.default_rng(0), 14, 8
    shares, plain = [], []
    for _ in range(2_000):
        of_video = rng.normal(0.0, 1.0, (n_videos + 1, 1)) + rng.normal(0.0, 0.3, (n_videos + 1, n_claims))
        known, other = of_video[:-1].ravel(), of_video[-1]
        names = np.repeat([f"{i}.mp4" for i in range(n_videos)], n_claims)
        shares.append(np.mean(other >= found_at_most(known, names, 0.1)))
        plain.append(np.mean(other > np.sort(known)[::-1][int(0.1 * len(known))]))
    assert np.mean(plain) > 0.115  # the share allowed among these claims is more among others
    assert 0.03 < np.mean(shares) < 0.105


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
        made = tuple(windows_of(margins, video=f"{i // 4}.mp4"))
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
    with pytest.raises(CalibrationError, match="9 videos, got 5"):
        found_at_most([1.0] * 10, [f"{i // 2}.mp4" for i in range(10)], 0.1)
    with pytest.raises(CalibrationError, match="false alarms in"):
        fit_intervals({WINDOWING: few[0]}, few[1], false_alarms=0.0)
    good = IntervalRule(WINDOWING, 3, 1.0, 0.0).to_dict()
    for key, value in (
        ("windowing", "max"),
        ("windowing", None),
        ("n_averaged", 2),
        ("n_averaged", True),
        ("n_extended", 4),
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
