"""Laws of evidence that is judged in parts, on the kitchen verifier and real clips of it."""

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest
from nightly import first_of

from examples.kitchen.encoding import write_video
from examples.kitchen.filming import film, plan_long
from examples.kitchen.sampling import FPS
from proofreel.core.errors import CalibrationError, ConfigError
from proofreel.core.pairs import Pair, Transcript, VideoSegment
from proofreel.models.decision.calibration import Calibration
from proofreel.models.decision.thresholds import Decision, OperatingPoint
from proofreel.models.inputs.windowing import Windowing
from proofreel.models.verifier.long_video import check_aggregation
from proofreel.models.verifier.verifier import Verifier

KITCHEN = Path(__file__).resolve().parents[2] / "checkpoints" / "kitchen-verifier"
CLAIMS = ["Ingredient is carrot.", "Tool is knife.", "Action is chopping."]


@pytest.fixture(scope="module")
def videos(tmp_path_factory):
    """Two kitchen videos of several steps: paths, relative to the returned folder."""
    root = tmp_path_factory.mktemp("videos")
    planned = plan_long(31, "test", 2)
    for video in planned:
        write_video(root / video.path, film(video), FPS)
    return root, [video.path for video in planned]


@pytest.fixture
def verifier(videos):
    """Without kept prefixes: the same question takes the same route each time."""
    return Verifier.from_pretrained(
        KITCHEN, device="cpu", media_root=videos[0], prefix_cache_gib=0, untrained_evidence=True
    )


def near(found, expected):
    return abs(found - expected) <= 1e-4 + 1e-5 * abs(expected)


@pytest.mark.parametrize("rule", first_of(["max:2:2", "noisy_or:3:1.5", "mean_top_k:2:1:3"]))
def test_a_long_video_gets_the_aggregate_of_its_windows_each_asked_by_itself(verifier, videos, rule):
    segment = VideoSegment(videos[1][0], 0.25, 8.0)
    verdicts = verifier.with_windowing(rule).score(CLAIMS, segment)
    windowing = Windowing.parse(rule)
    spans = windowing.cut(0.25, 8.0)
    for claim, verdict in zip(CLAIMS, verdicts, strict=True):
        alone = [verifier.score([claim], dataclasses.replace(segment, start_s=a, end_s=b))[0] for a, b in spans]
        assert verdict.route == "windows"
        assert [(w.segment.start_s, w.segment.end_s) for w in verdict.windows] == list(spans)
        for window, one in zip(verdict.windows, alone, strict=True):
            assert near(window.verdict.margin, one.margin)
            assert window.verdict.p_supported == pytest.approx(one.p_supported, abs=1e-4)
        assert near(verdict.margin, windowing.aggregate([one.margin for one in alone]))


def test_probability_and_label_are_those_of_the_aggregate(verifier, videos):
    windowed = verifier.with_windowing("noisy_or:2:1")
    for verdict in windowed.score(CLAIMS, VideoSegment(videos[1][0])):
        plain = verifier.verdict(verdict.margin)
        assert (verdict.p_supported, verdict.label) == (plain.p_supported, plain.label)
        assert verdict.margin == np.float32(verdict.margin)


def test_evidence_no_longer_than_a_window_is_judged_as_ever_bit_for_bit(verifier, videos):
    segment = VideoSegment(videos[1][0], 1.0, 3.0)
    windowed = verifier.with_windowing("max:2:1").score(CLAIMS, segment)
    assert windowed == verifier.score(CLAIMS, segment)
    assert all(verdict.route == "whole" and not verdict.windows for verdict in windowed)


def test_each_window_is_encoded_once_for_all_claims(verifier, videos, monkeypatch):
    seen, encode = [], verifier.encoder.evidence
    monkeypatch.setattr(verifier.encoder, "evidence", lambda e, media: seen.append(e) or encode(e, media))
    verdicts = verifier.with_windowing("max:2:1").score(CLAIMS, VideoSegment(videos[1][0]))
    assert len(seen) == len(set(seen)) == len(verdicts[0].windows) > 3


def test_many_pairs_at_once_are_what_each_is_alone_in_order_with_its_own_failure(verifier, videos):
    windowed = verifier.with_windowing("max:3:1.5")
    evidences = [
        (VideoSegment(videos[1][0]),),
        (VideoSegment("missing.mp4"),),
        (VideoSegment(videos[1][1]),),
        (VideoSegment(videos[1][0], 0.0, 2.0),),
        (VideoSegment(videos[1][0], 2.0, 900.0),),
        (VideoSegment(videos[1][0], absent=True),),
        (Transcript("A carrot is chopped."),),
        (VideoSegment(videos[1][0]),),
    ]
    pairs = [Pair(str(i), CLAIMS[i % 3], evidence) for i, evidence in enumerate(evidences)]
    done = []
    together = windowed.score_pairs(pairs, progress=done.append)
    assert sum(done) == len(pairs)
    for pair, verdict in zip(pairs, together, strict=True):
        (alone,) = windowed.score([pair.claim], pair.evidence)
        assert (verdict.error, verdict.route, len(verdict.windows)) == (alone.error, alone.route, len(alone.windows))
        assert verdict.error is not None or near(verdict.margin, alone.margin)
    assert [v.error is None for v in together] == [True, False, True, True, False, False, True, True]
    assert [v.route for v in together] == ["windows", "whole", "windows", "whole", "whole", "whole", "whole", "windows"]


def test_speech_of_known_times_goes_with_the_windows_it_overlaps_all_other_text_with_every_one(verifier, videos):
    video = VideoSegment(videos[1][0], 0.0, 6.0)
    early, elsewhere, timeless = (
        Transcript("chop the carrot", 0.5, 1.5),
        Transcript("take a knife", 70.0, 80.0),  # lies outside of the video: not its time
        Transcript("a recipe"),
    )
    windowed = verifier.with_windowing("max:2:2")
    (verdict,) = windowed.score(CLAIMS[:1], (early, video, elsewhere, timeless))
    first, second, third = verdict.windows
    cut = [dataclasses.replace(video, start_s=a, end_s=a + 2.0) for a in (0.0, 2.0, 4.0)]
    for window, evidence in zip(
        (first, second, third),
        [(early, cut[0], elsewhere, timeless), (cut[1], elsewhere, timeless), (cut[2], elsewhere, timeless)],
        strict=True,
    ):
        assert near(window.verdict.margin, verifier.score(CLAIMS[:1], evidence)[0].margin)


def test_a_window_that_fails_is_named_and_leaves_no_verdict_whatever_the_others_say(verifier, videos):
    too_long = Transcript("carrot " * 2000, 4.2, 4.4)
    video = VideoSegment(videos[1][0], 0.0, 6.0)
    for rule in ("max:2:2", "noisy_or:2:2", "mean_top_k:2:2:1"):
        (verdict,) = verifier.with_windowing(rule).score(CLAIMS[:1], (video, too_long))
        assert math.isnan(verdict.margin)
        assert math.isnan(verdict.p_supported)
        assert verdict.label is None
        assert verdict.error.startswith(f"{video.path}, window 4 s to 6 s: prompt: too long")
        assert [w.verdict.error is None for w in verdict.windows] == [True, True, False]


def test_several_videos_are_judged_together_where_they_fit_and_one_by_one_where_not(verifier, videos):
    both = tuple(VideoSegment(path, 1.0, 2.5) for path in videos[1])
    windowed = verifier.with_windowing("max:2:1")
    fits = windowed.score(CLAIMS, both)
    assert fits == verifier.score(CLAIMS, both)
    assert {v.route for v in fits} == {"whole"}
    n_one = windowed.encoder.count_prefix_tokens(both[:1], verifier.media_root)
    windowed.encoder.max_tokens = n_one + 40  # both do not fit any more
    apart = windowed.score(CLAIMS, both)
    for claim, verdict in zip(CLAIMS, apart, strict=True):
        alone = [verifier.score([claim], source)[0].margin for source in both]
        assert verdict.route == "sources"
        assert [w.segment for w in verdict.windows] == list(both)
        assert near(verdict.margin, max(alone))
    assert all("too long" in v.error for v in verifier.score(CLAIMS, both))  # without a rule there is no other road


def test_whether_sources_fit_is_asked_for_each_claim(verifier, videos):
    both = tuple(VideoSegment(path, 1.0, 2.5) for path in videos[1])
    windowed = verifier.with_windowing("max:2:1")
    n_tokens = windowed.encoder.count_prefix_tokens(both, verifier.media_root)
    short, long = "Tool is knife.", "Tool is knife" + " and knife" * 20 + "."
    windowed.encoder.max_tokens = n_tokens + len(windowed.encoder.claim_ids(short))
    assert [v.route for v in windowed.score([short, long], both)] == ["whole", "sources"]
    assert [windowed.score([claim], both)[0].route for claim in (short, long)] == ["whole", "sources"]


def test_sources_longer_than_a_window_are_cut_and_share_one_aggregate(verifier, videos):
    long, short = VideoSegment(videos[1][0], 0.0, 4.0), VideoSegment(videos[1][1], 1.0, 2.0)
    (verdict,) = verifier.with_windowing("mean_top_k:2:2:3").score(CLAIMS[:1], (long, short))
    parts = [dataclasses.replace(long, end_s=2.0), dataclasses.replace(long, start_s=2.0), short]
    assert verdict.route == "windows"
    assert [w.segment for w in verdict.windows] == parts
    assert near(verdict.margin, np.mean([verifier.score(CLAIMS[:1], part)[0].margin for part in parts]))


def test_a_source_that_cannot_be_read_is_named(verifier, videos):
    good, missing = VideoSegment(videos[1][0], 0.0, 4.0), VideoSegment("missing.mp4", 0.0, 1.0)
    (verdict,) = verifier.with_windowing("max:2:1").score(CLAIMS[:1], (good, missing))
    assert math.isnan(verdict.margin)
    assert "missing.mp4" in verdict.error


def test_too_many_windows_are_a_failure_in_words(verifier, videos):
    (verdict,) = verifier.with_windowing("max:1:0.00001").score(CLAIMS[:1], VideoSegment(videos[1][0]))
    assert "too many windows" in verdict.error


def test_a_calibration_of_evidence_judged_whole_is_not_passed_off_as_one_of_windows(verifier, videos):
    windowed = verifier.with_windowing("max:2:1")
    assert [note for note in windowed.notes if "max:2:1" in note and "whole" in note]
    (verdict,) = windowed.score(CLAIMS[:1], VideoSegment(videos[1][0]))
    assert "max:2:1" in verdict.note
    assert windowed.score(CLAIMS[:1], VideoSegment(videos[1][0], 0.0, 2.0))[0].note is None
    assert windowed.with_windowing(None).notes == verifier.notes
    assert verifier.windowing is None


def test_a_calibration_fitted_after_the_same_aggregation_needs_no_note(verifier, videos):
    verifier.decision = fitted("max:2:1")
    windowed = verifier.with_windowing("max:2:1")
    assert not windowed.notes
    assert windowed.score(CLAIMS[:1], VideoSegment(videos[1][0]))[0].note is None
    for other in ("max:2:0.5", "noisy_or:2:1", None):
        assert any("max:2:1" in note for note in verifier.with_windowing(other).notes)


def fitted(aggregation):
    calibration = Calibration("platt", 1.0, 0.0, 10, 5, 0.5, aggregation=aggregation)
    return Decision(calibration, (OperatingPoint("f1", "f1", 0.5, 1.0, 5, 0, 5, 0, 0.5),), "f1")


def test_a_directory_whose_calibration_saw_other_margins_is_refused():
    check_aggregation(None, Windowing(2, 1), "here")
    check_aggregation(fitted(None), None, "here")
    check_aggregation(fitted("max:2:1"), Windowing(2, 1), "here")
    for aggregation, windowing in ((None, Windowing(2, 1)), ("max:2:1", None), ("max:2:1", Windowing(2, 0.5))):
        with pytest.raises(CalibrationError, match="here: the calibration was fitted on margins"):
            check_aggregation(fitted(aggregation), windowing, "here")


def test_words_that_are_no_windowing_are_refused(verifier):
    with pytest.raises(ConfigError, match="max:8:4"):
        verifier.with_windowing("max")
