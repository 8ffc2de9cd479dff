"""Laws of DualFact's measures: NumPy over a table, hand-worked clips, and the paper's Tables 7 and 12."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from proofreel.eval.facts import (
    ErrorCounts,
    FactVerdict,
    GroundedObject,
    PredictedFact,
    error_counts,
    error_counts_by_role,
    object_grounding,
    object_grounding_per_video,
    role_accuracy,
)


def verdicts_of(*rows):
    """(video, role, right answers, wrong answers) per row."""
    return [
        FactVerdict(video, role, predicted=hit, expected=True)
        for video, role, right, wrong in rows
        for hit in [True] * right + [False] * wrong
    ]


def test_every_average_of_a_worked_example_is_its_own_number():
    # Clip a: action 1/1, tool 1/3. Clip b: action 0/2 only.
    scores = role_accuracy(verdicts_of(("a", "action", 1, 0), ("a", "tool", 1, 2), ("b", "action", 0, 2)))
    assert scores.per_video == pytest.approx({"a": (1 + 1 / 3) / 2, "b": 0.0})
    assert scores.mean_of_videos == pytest.approx(1 / 3)
    assert scores.per_role_by_video == pytest.approx({"action": 0.5, "tool": 1 / 3})
    assert scores.per_role_pooled == pytest.approx({"action": 1 / 3, "tool": 1 / 3})
    assert scores.mean_of_roles == pytest.approx(1 / 3)
    assert scores.pooled == pytest.approx(2 / 6)
    assert (scores.n, scores.n_failed) == (6, 0)


def test_averages_agree_with_numpy_over_a_table_of_random_facts():
    rng = np.random.default_rng(0)
    videos, roles = rng.integers(0, 12, 400).astype(str), rng.choice(["action", "tool", "location"], 400)
    predicted, expected = rng.integers(0, 2, 400) == 1, rng.integers(0, 2, 400) == 1
    rows = zip(videos.tolist(), roles.tolist(), predicted.tolist(), expected.tolist(), strict=True)
    scores = role_accuracy([FactVerdict(*row) for row in rows])
    right = predicted == expected

    def cell(video, role):
        return right[(videos == video) & (roles == role)].mean()

    per_video = {v: np.mean([cell(v, r) for r in np.unique(roles[videos == v])]) for v in np.unique(videos)}
    assert scores.per_video == pytest.approx(per_video)
    assert scores.mean_of_videos == pytest.approx(np.mean(list(per_video.values())))
    for role in np.unique(roles):
        cells = [cell(v, role) for v in np.unique(videos[roles == role])]
        assert scores.per_role_by_video[role] == pytest.approx(np.mean(cells))
        assert scores.per_role_pooled[role] == pytest.approx(right[roles == role].mean())
    assert scores.pooled == pytest.approx(right.mean())
    assert scores.mean_of_roles == pytest.approx(np.mean([right[roles == r].mean() for r in np.unique(roles)]))


def test_order_of_facts_changes_no_average():
    rng = np.random.default_rng(1)
    facts = verdicts_of(("a", "x", 3, 1), ("a", "y", 0, 2), ("b", "x", 1, 4), ("c", "y", 2, 2))
    shuffled = [facts[i] for i in rng.permutation(len(facts))]
    assert role_accuracy(shuffled) == role_accuracy(facts)


def test_all_averages_agree_where_each_video_has_one_fact_of_each_role():
    facts = verdicts_of(("a", "x", 1, 0), ("a", "y", 0, 1), ("b", "x", 1, 0), ("b", "y", 1, 0))
    scores = role_accuracy(facts)
    assert scores.mean_of_videos == scores.mean_of_roles == scores.pooled == 0.75


def test_a_refuted_negative_fact_is_a_right_verdict():
    facts = [FactVerdict("a", "x", predicted=False, expected=False), FactVerdict("a", "x", True, expected=False)]
    assert role_accuracy(facts).pooled == 0.5


def test_failed_verdicts_are_left_out_and_counted():
    facts = verdicts_of(("a", "x", 1, 0), ("b", "x", 0, 1))
    failed = [FactVerdict("b", "x", None, True), FactVerdict("c", "y", None, True)]
    scores = role_accuracy([*facts, *failed])
    assert scores.n_failed == 2
    assert scores.mean_of_videos == role_accuracy(facts).mean_of_videos
    assert "c" not in scores.per_video
    assert "y" not in scores.per_role_pooled


def test_nothing_gives_nan_and_one_fact_gives_its_own_verdict():
    for facts in ([], [FactVerdict("a", "x", None, True)]):
        nothing = role_accuracy(facts)
        assert all(math.isnan(v) for v in (nothing.mean_of_videos, nothing.mean_of_roles, nothing.pooled))
        assert nothing.per_video == {}
    assert role_accuracy(verdicts_of(("a", "x", 1, 0))).mean_of_videos == 1.0


def test_object_grounding_gives_the_papers_table_12():
    objects = [GroundedObject("v", True, i < 4329) for i in range(7221)]
    objects += [GroundedObject("v", False, i >= 6524) for i in range(7878)]
    scores = object_grounding(objects)
    assert 100 * scores.recall == pytest.approx(59.95, abs=0.005)
    assert 100 * scores.specificity == pytest.approx(82.81, abs=0.005)
    assert 100 * scores.accuracy == pytest.approx(71.88, abs=0.005)
    assert (scores.n_there, scores.n_not_there, scores.n_failed) == (7221, 7878, 0)


def test_object_grounding_is_undefined_over_none_and_counts_failures():
    nothing = object_grounding([])
    assert all(math.isnan(v) for v in (nothing.recall, nothing.specificity, nothing.accuracy))
    scores = object_grounding([GroundedObject("v", True, True), GroundedObject("v", True, None)])
    assert (scores.recall, scores.accuracy, scores.n_failed) == (1.0, 1.0, 1)
    assert math.isnan(scores.specificity)


def test_object_grounding_per_video_pools_to_the_whole():
    rng = np.random.default_rng(2)
    rows = zip(rng.integers(0, 5, 200), rng.integers(0, 2, 200), rng.integers(0, 2, 200), strict=True)
    objects = [GroundedObject(str(v), bool(there), bool(found)) for v, there, found in rows]
    per_video, whole = object_grounding_per_video(objects), object_grounding(objects)
    assert set(per_video) == {o.video for o in objects}
    found = sum(s.recall * s.n_there for s in per_video.values())
    assert whole.recall == pytest.approx(found / whole.n_there)
    kept = sum(s.specificity * s.n_not_there for s in per_video.values())
    assert whole.accuracy == pytest.approx((found + kept) / 200)


def test_errors_of_a_worked_caption():
    # Gold of the paper's Table 13: soup stirred with a spoon in the pot. The caption says: a ladle, in the pot, a cat.
    facts = [
        PredictedFact("Tool", refuted=True, grounded=False),  # ladle: not there
        PredictedFact("Location", refuted=False, grounded=True),
        PredictedFact("Ingredient", refuted=True, grounded=True),  # cat: visible, beside the matter
    ]
    counts = error_counts(facts, required=["soup", "soup", "spoon", "pot"], expressed=["ladle", "pot", "cat"])
    assert counts == ErrorCounts(hallucination=1, saliency=1, omission=2, n_facts=3)
    assert counts.shares("caption_only") == {"omission": 0.5, "hallucination": 0.5}
    assert counts.shares("caption_grounded") == {"omission": 0.5, "hallucination": 0.25, "saliency": 0.25}
    assert counts.shares("video_grounded") == {"hallucination": 0.5, "saliency": 0.5}


@pytest.mark.parametrize(
    ("omission", "hallucination", "saliency", "caption_only"),
    [(65.43, 16.89, 17.68, 34.57), (51.06, 12.77, 36.17, 48.94)],  # Table 7 Ingredient, Table 9 Object
)
def test_grounding_parts_the_hallucinations_of_the_papers_tables(omission, hallucination, saliency, caption_only):
    counts = ErrorCounts(*(round(100 * x) for x in (hallucination, saliency)), omission=round(100 * omission))
    assert 100 * counts.shares("caption_only")["hallucination"] == pytest.approx(caption_only, abs=0.005)
    grounded = counts.shares("caption_grounded")
    assert 100 * grounded["saliency"] == pytest.approx(saliency, abs=0.005)
    assert sum(grounded.values()) == pytest.approx(1.0)


def test_supported_facts_are_no_errors_and_no_errors_have_no_shares():
    counts = error_counts([PredictedFact("Tool", refuted=False, grounded=False)], ["pan"], ["pan"])
    assert counts == ErrorCounts(n_facts=1)
    for mode in ("caption_only", "caption_grounded", "video_grounded"):
        assert all(math.isnan(share) for share in counts.shares(mode).values())


def test_failed_verdicts_and_unknown_grounding_are_never_taken_for_a_kind_of_error():
    facts = [PredictedFact("Tool", None, False), PredictedFact("Tool", True, None), PredictedFact("Tool", True, True)]
    counts = error_counts(facts)
    assert counts == ErrorCounts(saliency=1, unlocated=1, n_facts=2, n_failed=1)
    assert counts.shares("video_grounded") == {"hallucination": 0.0, "saliency": 1.0}
    assert error_counts([PredictedFact("Tool", True)]).shares("caption_only")["hallucination"] == 1.0


def test_empty_captions_omit_everything_and_empty_gold_omits_nothing():
    assert error_counts([], required=["soup", "spoon"]).omission == 2
    assert error_counts([], expressed=["soup"]).omission == 0


def test_counts_add_up_over_clips():
    one = error_counts([PredictedFact("Tool", True, True)], ["pan"], [])
    other = error_counts([PredictedFact("Tool", True, False), PredictedFact("Tool", None)], ["pan"], ["pan"])
    assert one + other == ErrorCounts(hallucination=1, saliency=1, omission=1, n_facts=2, n_failed=1)
    assert sum([one, other], ErrorCounts()) == one + other


def test_counts_by_role_add_up_to_the_whole_and_a_value_in_another_role_is_an_omission():
    facts = [PredictedFact("Tool", True, True), PredictedFact("Action", True, False), PredictedFact("Tool", False)]
    required, expressed = {"Tool": ["spoon"], "Location": ["pot"]}, {"Ingredient": ["spoon"], "Location": ["pot"]}
    by_role = error_counts_by_role(facts, required, expressed)
    assert by_role == {
        "Tool": ErrorCounts(saliency=1, omission=1, n_facts=2),
        "Action": ErrorCounts(hallucination=1, n_facts=1),
        "Location": ErrorCounts(),
        "Ingredient": ErrorCounts(),
    }


def test_real_annotations_have_a_role_for_each_fact_and_a_perfect_verifier_is_right_in_every_average(
    shared_data: Path,
):
    clips = json.loads((shared_data / "video-clips/annotations.json").read_text(encoding="utf-8"))
    facts = [
        FactVerdict(f"{clip['video']}@{clip['start_s']}", role, predicted=supported, expected=supported)
        for clip in clips
        for key, supported in (("conceptual", True), ("negative_conceptual", False))
        for role in clip[key]
    ]
    perfect = role_accuracy(facts)
    assert perfect.mean_of_videos == perfect.mean_of_roles == perfect.pooled == 1.0
    always_yes = role_accuracy([FactVerdict(f.video, f.role, True, f.expected) for f in facts])
    assert always_yes.pooled == pytest.approx(sum(f.expected for f in facts) / len(facts))
    assert set(always_yes.per_role_pooled) <= {"Action", "Object", "Tool", "Location"}
    nothing_said = error_counts_by_role([], {r: [v] for r, v in clips[0]["conceptual"].items()}, {})
    assert all(counts.omission == 1 for counts in nothing_said.values())
