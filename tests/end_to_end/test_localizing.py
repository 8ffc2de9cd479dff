"""Laws of localisation and of its scores, and that the kitchen verifier finds steps in real clips."""

# pyright: reportArgumentType=false

import dataclasses
import itertools
import math
from pathlib import Path

import numpy as np
import pytest

from examples.kitchen.encoding import write_video
from examples.kitchen.filming import film, plan_long
from examples.kitchen.localize import facts_of
from examples.kitchen.sampling import FPS
from proofreel.core.errors import ConfigError, RowError
from proofreel.core.pairs import VideoSegment
from proofreel.core.spans import merged, total_s, without
from proofreel.eval.scores.cgbench import GroundedAnswer, at_random, grounding_scores, localization_scores
from proofreel.models.decision.verdict import JudgedWindow, Verdict, failed
from proofreel.models.verifier.localization import Localization, SupportedInterval, joined, localize
from proofreel.models.verifier.verifier import Verifier

KITCHEN = Path(__file__).resolve().parents[2] / "checkpoints" / "kitchen-verifier"


@pytest.fixture(scope="module")
def kitchen(tmp_path_factory):
    root = tmp_path_factory.mktemp("kitchen")
    video = plan_long(101, "test", 1)[0]
    write_video(root / video.path, film(video), FPS)
    return video, Verifier.from_pretrained(KITCHEN, device="cpu", media_root=root)


def window(start_s, end_s, p=0.9):
    return JudgedWindow(VideoSegment("a.mp4", start_s, end_s), Verdict(p, 0.0, None))


def test_windows_that_overlap_or_touch_are_one_interval_as_sure_as_its_surest():
    found = joined([window(0, 2, 0.6), window(1, 3, 0.9), window(3, 5, 0.7), window(5.5, 7.5, 0.8)])
    assert found == (SupportedInterval(0, 5, 0.9, 3), SupportedInterval(5.5, 7.5, 0.8, 1))
    assert joined([]) == ()


def test_intervals_cover_the_seconds_of_their_windows_and_keep_apart():
    rng = np.random.default_rng(0)
    for _ in range(100):
        kept = [window(s, s + 2.0) for s in np.arange(0, 20, 0.5) if rng.random() < 0.3]
        found = joined(kept)
        spans = [(w.segment.start_s, w.segment.end_s) for w in kept]
        assert tuple((i.start_s, i.end_s) for i in found) == merged(spans)
        assert all(one.end_s < other.start_s for one, other in itertools.pairwise(found))


def test_intervals_are_the_windows_at_or_above_the_operating_point(kitchen):
    video, verifier = kitchen
    for claim, found in zip(
        claims := list(facts_of(video))[:12], localize(verifier, claims, video.path, windowing="max:2:1"), strict=True
    ):
        verdict = verifier.with_windowing("max:2:1").score([claim], VideoSegment(video.path))[0]
        assert found.claim == claim
        assert found.error is None
        kept = [w for w in found.windows if w.verdict.label == "supported"]
        assert found.intervals == joined(kept)
        assert bool(kept) == (verdict.label == "supported")  # the largest window decides on both


def test_a_lower_threshold_finds_all_that_a_higher_one_does(kitchen):
    video, verifier = kitchen
    claims = list(facts_of(video))[:12]
    at = {t: localize(verifier, claims, video.path, windowing="max:2:1", threshold=t) for t in (0.0, 0.3, 0.8, 1.0)}
    for low, high in itertools.pairwise(at):
        for one, other in zip(at[low], at[high], strict=True):
            spans = [[(i.start_s, i.end_s) for i in found.intervals] for found in (one, other)]
            assert total_s(without(spans[1], spans[0])) == 0
    assert all(found.intervals[0] == SupportedInterval(0.0, *whole(found)) for found in at[0.0])


def whole(found):
    return found.windows[-1].segment.end_s, max(w.verdict.p_supported for w in found.windows), len(found.windows)


def test_one_claim_and_many_agree_and_a_span_is_searched_alone(kitchen):
    video, verifier = kitchen
    claims = list(facts_of(video))[:4]
    for claim, many in zip(claims, localize(verifier, claims, video.path, windowing="max:2:1"), strict=True):
        one = verifier.localize(claim, Path(video.path), windowing="max:2:1")
        assert [(i.start_s, i.end_s) for i in one.intervals] == [(i.start_s, i.end_s) for i in many.intervals]
    part = verifier.localize(claims[0], VideoSegment(video.path, 3.0, 6.5), windowing="max:2:1", threshold=0.0)
    assert [(i.start_s, i.end_s) for i in part.intervals] == [(3.0, 6.5)]
    short = verifier.localize(claims[0], VideoSegment(video.path, 3.0, 4.5), windowing="max:2:1", threshold=0.0)
    assert [(i.start_s, i.end_s, i.n_windows) for i in short.intervals] == [(3.0, 4.5, 1)]


def test_what_cannot_be_read_has_no_intervals_and_says_why(kitchen):
    video, verifier = kitchen
    for path in ("missing.mp4", VideoSegment(video.path, 0.0, 900.0), VideoSegment(video.path, absent=True)):
        found = verifier.localize("Tool is knife.", path, windowing="max:2:1", threshold=0.0)
        assert found.intervals == ()
        assert found.error
        assert math.isnan(found.verdict.p_supported)


def test_windows_and_a_threshold_are_needed(kitchen):
    video, verifier = kitchen
    with pytest.raises(ConfigError, match="no windows of its own"):
        verifier.localize("Tool is knife.", video.path)
    for threshold in (-0.1, 1.1, math.nan, True):
        with pytest.raises(ConfigError, match="probability"):
            verifier.localize("Tool is knife.", video.path, windowing="max:2:1", threshold=threshold)
    draft = Verifier.from_pretrained(KITCHEN, device="cpu", media_root=verifier.media_root, adapter=False)
    with pytest.raises(ConfigError, match="uncalibrated"):
        draft.localize("Tool is knife.", video.path, windowing="max:2:1")
    assert draft.localize("Tool is knife.", video.path, windowing="max:2:1", threshold=0.5).error is None


def test_the_kitchens_steps_are_found_far_better_than_by_chance(kitchen):
    root, verifier = kitchen[1].media_root, kitchen[1]
    found, references = [], []
    for video in plan_long(102, "test", 4):
        write_video(root / video.path, film(video), FPS)
        holds = facts_of(video)
        found += localize(verifier, list(holds), video.path, windowing="max:2:0.5")
        references += holds.values()
    scores = localization_scores(found, references)
    assert scores.named.n_failed == 0
    assert scores.named.miou >= 0.45
    assert scores.named.miou >= max(scores.chance.miou, scores.whole.miou) + 0.2


def test_a_videos_facts_hold_where_its_steps_say_and_the_others_nowhere(kitchen):
    video, _ = kitchen
    holds = facts_of(video)
    for step in video.steps:
        claim = f"Ingredient is {step.scene.facts.ingredient}."
        assert holds[claim] == [(step.start_s, step.end_s)]
    nowhere = [claim for claim, spans in holds.items() if not spans]
    assert any(claim.startswith("Ingredient is") for claim in nowhere)
    assert any(" is " not in claim for claim in nowhere)


# Scores --------------------------------------------------------------------------------------------------------------


def located(intervals, end_s=20.0, error=None):
    verdict = failed(error) if error else Verdict(0.5, 0.0, None)
    intervals = tuple(SupportedInterval(a, b, 0.9, 1) for a, b in intervals)
    return Localization("claim", intervals, (window(0.0, 2.0), window(end_s - 2.0, end_s)), verdict)


def test_scores_are_those_of_the_intervals_and_failures_are_counted_apart():
    found = [located([(1, 3), (8, 9)]), located([]), located([], error="damaged"), located([(0, 4)])]
    references = [[(2, 3)], [(5, 6)], [(5, 6)], [(0, 2), (1, 4)]]
    scores = localization_scores(found, references, thresholds=(0.5,))
    assert scores.named.miou == pytest.approx((1 / 3 + 0 + 1) / 3)
    assert (scores.named.recall, scores.named.n, scores.named.n_failed) == (pytest.approx(1 / 3), 3, 1)
    answers = [GroundedAnswer([(0.0, 20.0)], merged(ref)) for ref in (references[0], references[1], references[3])]
    assert scores.whole.miou == grounding_scores(answers, "code", (0.5,)).miou
    assert (math.isnan(scores.false_alarms), scores.n_nowhere) == (True, 0)


def test_an_interval_for_a_claim_that_holds_nowhere_is_a_false_alarm():
    found = [located([(1, 3)]), located([]), located([]), located([], error="damaged")]
    scores = localization_scores(found, [[]] * 4)
    assert (scores.false_alarms, scores.n_nowhere, scores.n_nowhere_failed) == (pytest.approx(1 / 3), 3, 1)
    assert math.isnan(scores.named.miou)
    assert math.isnan(scores.chance.miou)


def test_random_places_keep_lengths_stay_inside_and_do_not_overlap():
    rng = np.random.default_rng(0)
    for _ in range(300):
        edges = np.sort(rng.uniform(5, 25, 2 * rng.integers(1, 5)))
        spans = list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))
        drawn = at_random(rng, spans, (5.0, 25.0))
        assert sorted(b - a for a, b in drawn) == pytest.approx(sorted(b - a for a, b in spans))
        assert drawn[0][0] >= 5 - 1e-9
        assert drawn[-1][1] <= 25 + 1e-9
        assert all(one[1] <= other[0] + 1e-9 for one, other in itertools.pairwise(drawn))
    assert at_random(rng, [], (0.0, 1.0)) == []
    assert at_random(rng, [(0.0, 4.0)], (0.0, 4.0)) == [(0.0, 4.0)]
    with pytest.raises(RowError, match="must lie in"):
        at_random(rng, [(0.0, 3.0), (1.0, 4.0)], (0.0, 4.0))


def test_every_place_of_one_interval_is_as_likely():
    rng = np.random.default_rng(1)
    starts = np.sort([at_random(rng, [(0.0, 2.0)], (10.0, 20.0))[0][0] for _ in range(4000)])
    uniform = 10 + 8 * (np.arange(4000) + 0.5) / 4000
    assert np.abs(starts - uniform).max() <= 8 * 1.95 / math.sqrt(4000)  # Kolmogorov's bound, one run in a thousand


def test_chance_of_one_interval_is_the_tiou_integrated_over_its_places():
    found, reference = located([(0.0, 2.0)], end_s=10.0), [(4.0, 6.0)]
    places = np.linspace(0, 8, 80_001)
    both = np.clip(np.minimum(places + 2, 6) - np.maximum(places, 4), 0, None)
    expected = float(np.mean(both / (4 - both)))
    scores = localization_scores([found], [reference], draws=20_000, seed=3)
    assert scores.chance.miou == pytest.approx(expected, abs=0.006)
    few = [localization_scores([found], [reference], seed=seed).chance.miou for seed in (3, 3, 4)]
    assert few[0] == few[1] != few[2]


def test_each_localisation_has_its_reference():
    with pytest.raises(RowError, match="align"):
        localization_scores([located([])], [])
    broken = dataclasses.replace(located([(0.0, 30.0)]))
    with pytest.raises(RowError, match="must lie in"):
        localization_scores([broken], [[(0.0, 1.0)]])
