"""Altered evidence never shows what is known to hold, stays in its video or leaves it as its kind says, and repeats."""

import dataclasses
import itertools
import json
import math
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proofreel.core.config import from_mapping
from proofreel.core.errors import ConfigError, RowError
from proofreel.core.pairs import Evidence, Image, Pair, Passage, Transcript, VideoSegment, problems_of
from proofreel.data_prep.negatives.evidence_changes import ORIGINS, AlteredEvidenceConfig, altered_evidence
from proofreel.data_prep.negatives.evidence_index import Known
from proofreel.data_prep.negatives.swapped import normal_claim

ONE_OF_EACH = AlteredEvidenceConfig(**dict.fromkeys(ORIGINS, 1))
EPSILON_S = 1e-5


def segment(video: int, start_s: float, length_s: float) -> VideoSegment:
    return VideoSegment(f"v{video}.mp4", start_s, round(start_s + length_s, 3))


SECONDS = st.integers(0, 300).map(lambda tenths: tenths / 10)
LENGTHS = st.integers(5, 80).map(lambda tenths: tenths / 10)
SEGMENTS = st.builds(segment, st.integers(0, 3), SECONDS, LENGTHS)


@st.composite
def worlds(draw) -> list[Pair]:
    """Pairs of a few claims over four videos: lone segments, segments with a transcript, several citations."""
    pairs = []
    for number in range(draw(st.integers(2, 12))):
        first = draw(SEGMENTS)
        said = Transcript(draw(st.sampled_from(["hello", "stir it", "serve"])), first.start_s, first.end_s)
        more = draw(st.sampled_from(["nothing", "transcript", "segments", "passage"]))
        evidence: tuple[Evidence, ...] = (first,)
        if more == "transcript":
            evidence = (first, said)
        elif more == "segments":
            evidence = tuple({first, *draw(st.lists(SEGMENTS, min_size=1, max_size=2))})
        elif more == "passage":
            evidence = (first, Passage(f"text {number}"), said)
        label = draw(st.sampled_from(["supported", "supported", "supported", "refuted"]))
        modality = draw(st.sampled_from(["visual", "audio", "ocr", "text", "mixed"]))
        claim, group = draw(st.sampled_from(["A.", "B.", "C."])), first.path
        pairs.append(Pair(f"p{number}", claim, evidence, label, group=group, modality=modality, split="train"))
    return pairs


CONFIGS = st.builds(
    AlteredEvidenceConfig,
    **dict.fromkeys(ORIGINS, st.integers(0, 3)),
    gap_s=st.sampled_from([0.0, 0.5, 3.0]),
    max_overlap=st.sampled_from([0.0, 0.25, 0.5]),
)
DURATIONS = st.sampled_from([{}, {f"v{i}.mp4": 40.0 for i in range(4)}])


def of(made: list[Pair], origin: str) -> list[Pair]:
    return [pair for pair in made if pair.origin == origin]


def alter_all(pairs, config, durations=None, seed=0) -> tuple[list[tuple[Pair, Pair]], Counter, Known]:
    """[(pair, a negative made of it)], what is missing, and the index."""
    known, missing, made = Known.of(pairs, durations, seed=seed), Counter(), []
    for pair in pairs:
        rows, lacking = altered_evidence(pair, config, known, seed)
        made.extend((pair, row) for row in rows)
        missing += lacking
    return made, missing, known


def spans_of(pairs: list[Pair], claim: str, path: str) -> list[tuple[float, float]]:
    return [
        (e.start_s, e.end_s or math.inf)
        for p in pairs
        if p.label == "supported" and normal_claim(p.claim) == normal_claim(claim)
        for e in p.evidence
        if isinstance(e, VideoSegment) and e.path == path
    ]


def segments_of(pair: Pair) -> list[VideoSegment]:
    return [e for e in pair.evidence if isinstance(e, VideoSegment)]


@settings(max_examples=80, deadline=None)
@given(pairs=worlds(), config=CONFIGS, durations=DURATIONS, seed=st.integers(0, 3))
def test_every_negative_is_a_sound_row_of_its_kind_and_none_is_lost_from_the_count(pairs, config, durations, seed):
    made, missing, known = alter_all(pairs, config, durations, seed)
    supported = sum(p.label == "supported" for p in pairs)
    for origin in ORIGINS:
        assert sum(new.origin == origin for _, new in made) + missing[origin] == getattr(config, origin) * supported
    assert len({new.id for _, new in made} | {p.id for p in pairs}) == len(made) + len(pairs)
    judged = {(normal_claim(p.claim), p.evidence) for p in pairs}
    for pair, new in made:
        assert problems_of(new) == []
        assert new.id.startswith(f"{pair.id}/{new.origin}/")
        assert new.evidence
        assert (normal_claim(new.claim), new.evidence) not in judged
        assert (new.claim, new.role, new.group, new.split) == (pair.claim, pair.role, pair.group, pair.split)
        assert (new.label, new.meta) == (config.label_of(new.origin), {"claim_of": pair.id})
        if new.origin != "shifted_span":
            assert not known.holds(normal_claim(new.claim), new.evidence)


@settings(max_examples=80, deadline=None)
@given(pairs=worlds(), config=CONFIGS, durations=DURATIONS)
def test_another_time_keeps_the_gap_to_every_span_where_the_claim_holds_and_stays_in_the_file(pairs, config, durations):
    config = dataclasses.replace(config, other_time=3)
    latest = {
        e.path: max(x.end_s or 0 for q in pairs for x in segments_of(q) if x.path == e.path)
        for p in pairs
        for e in segments_of(p)
    }
    for pair, new in alter_all(pairs, config, durations)[0]:
        if new.origin != "other_time":
            continue
        assert [e.path for e in segments_of(new)] == sorted(
            (e.path for e in segments_of(pair)), key=[e.path for e in segments_of(pair)].index
        )
        assert [type(e) for e in new.evidence] == [type(e) for e in pair.evidence]
        for moved in segments_of(new):
            assert moved.start_s >= 0
            assert (moved.end_s or math.inf) <= {**latest, **durations}[moved.path]
            for begin_s, end_s in spans_of(pairs, new.claim, moved.path):
                before = (moved.end_s or math.inf) + config.gap_s <= begin_s + EPSILON_S
                assert before or end_s + config.gap_s <= moved.start_s + EPSILON_S


@settings(max_examples=60, deadline=None)
@given(pairs=worlds(), share=st.sampled_from([0.0, 0.2, 0.5, 0.9]), durations=DURATIONS)
def test_a_near_miss_keeps_its_length_and_no_more_of_any_true_span_than_allowed(pairs, share, durations):
    config = AlteredEvidenceConfig(shifted_span=3, max_overlap=share)
    for pair, new in alter_all(pairs, config, durations)[0]:
        (old,), (moved,) = segments_of(pair), segments_of(new)
        assert moved.end_s is not None
        assert old.end_s is not None
        assert moved.end_s - moved.start_s == pytest.approx(old.end_s - old.start_s, abs=EPSILON_S)
        assert moved.start_s <= old.end_s
        assert old.start_s <= moved.end_s
        for begin_s, end_s in spans_of(pairs, new.claim, moved.path):
            common_s = min(moved.end_s, end_s) - max(moved.start_s, begin_s)
            assert common_s <= share * (end_s - begin_s) + (EPSILON_S if share else 0)


@settings(max_examples=80, deadline=None)
@given(pairs=worlds(), config=CONFIGS, seed=st.integers(0, 3))
def test_a_left_out_or_exchanged_piece_is_the_only_change_and_comes_from_a_group_where_the_claim_is_unknown(
    pairs, config, seed
):
    groups = {}
    for p in pairs:
        for e in p.evidence:
            groups.setdefault(getattr(e, "text", e), set()).add(p.group)
    holds = {(normal_claim(p.claim), p.group) for p in pairs if p.label == "supported"}
    for pair, new in alter_all(pairs, config, seed=seed)[0]:
        if new.origin == "dropped_citation":
            left = list(pair.evidence)
            assert any([*left[:i], *left[i + 1 :]] == list(new.evidence) for i in range(len(left)))
        elif new.origin.startswith("swapped"):
            assert [type(e) for e in new.evidence] == [type(e) for e in pair.evidence]
            changed = [(a, b) for a, b in zip(pair.evidence, new.evidence, strict=True) if a != b]
            if new.origin == "swapped_citation":
                assert len(changed) == 1
            visual = {isinstance(b, (VideoSegment, Image)) for _, b in changed}
            if new.origin != "swapped_citation":
                assert visual == {new.origin == "swapped_visual"}
            for old, piece in changed:
                found = groups[getattr(piece, "text", piece)]
                assert pair.group not in found
                assert not any((normal_claim(pair.claim), group) in holds for group in found)
                if isinstance(old, Transcript) and isinstance(piece, Transcript):
                    assert (piece.start_s, piece.end_s) == (old.start_s, old.end_s)


@settings(max_examples=60, deadline=None)
@given(pairs=worlds(), config=CONFIGS, seed=st.integers(0, 3), order=st.randoms(use_true_random=False))
def test_the_order_of_the_pairs_changes_nothing(pairs, config, seed, order):
    expected = {new.id: new for _, new in alter_all(pairs, config, seed=seed)[0]}
    shuffled = list(pairs)
    order.shuffle(shuffled)
    assert {new.id: new for _, new in alter_all(shuffled, config, seed=seed)[0]} == expected


def film(*claims: str, group: str = "v.mp4", **changes) -> list[Pair]:
    """One pair per claim, at [10, 12], [20, 22], ... of a video."""
    spans = [VideoSegment(group, 10.0 * (i + 1), 10.0 * (i + 1) + 2.0) for i in range(len(claims))]
    return [
        Pair(f"{group}/{i}", claim, (spans[i],), "supported", group=group, **changes) for i, claim in enumerate(claims)
    ]


def test_an_annotated_segment_is_preferred_to_a_drawn_window():
    pairs = film("Cut it.", "Fry it.", "Eat it.")
    for pair, new in alter_all(pairs, AlteredEvidenceConfig(other_time=2), {"v.mp4": 100.0})[0]:
        assert new.evidence in {p.evidence for p in pairs} - {pair.evidence}


def test_drawn_windows_differ_by_seed_lie_on_whole_seconds_where_the_annotation_does_and_reach_the_whole_file():
    (pair,) = film("Cut it.")
    known = Known.of([pair], {"v.mp4": 30.0})
    starts = Counter()
    for seed in range(300):
        (new,), _ = altered_evidence(pair, AlteredEvidenceConfig(other_time=1, gap_s=1.0), known, seed)
        (window,) = segments_of(new)
        assert window.end_s == window.start_s + 2.0
        starts[window.start_s] += 1
    assert set(starts) == {float(s) for s in [*range(8), *range(13, 29)]}
    (tenths,) = film("Cut it.")
    tenths = dataclasses.replace(tenths, evidence=(VideoSegment("v.mp4", 10.0, 12.5),))
    made = [altered_evidence(tenths, AlteredEvidenceConfig(other_time=1), known, seed)[0] for seed in range(50)]
    assert any(not float(segments_of(rows[0])[0].start_s).is_integer() for rows in made)


def test_without_a_duration_no_window_passes_the_latest_annotated_end():
    pair, other = film("Cut it.", "Fry it.")
    known = Known.of([pair, dataclasses.replace(other, evidence=(VideoSegment("v.mp4", 13.0, 14.0),))])
    for seed in range(40):
        rows, _ = altered_evidence(pair, AlteredEvidenceConfig(other_time=3), known, seed)
        assert all((segments_of(row)[0].end_s or 99) <= 14.0 for row in rows)


def test_a_span_to_an_unknown_end_of_the_file_blocks_everything_after_it():
    pair = dataclasses.replace(film("Cut it.")[0], evidence=(VideoSegment("v.mp4", 10.0),))
    late = Pair("late", "Fry it.", (VideoSegment("v.mp4", 50.0, 52.0),), "supported", group="v.mp4")
    early = dataclasses.replace(late, id="early", evidence=(VideoSegment("v.mp4", 5.0, 7.0),))
    made, missing = altered_evidence(pair, AlteredEvidenceConfig(other_time=2), Known.of([pair, late, early]))
    assert [new.evidence for new in made] == [early.evidence]
    assert missing == {"other_time": 1}


def test_touching_windows_touch_exactly_at_both_sides():
    (pair,) = film("Cut it.")
    made, missing = altered_evidence(pair, AlteredEvidenceConfig(shifted_span=3), Known.of([pair], {"v.mp4": 14.0}))
    assert {(e.start_s, e.end_s) for row in made for e in segments_of(row)} == {(8.0, 10.0), (12.0, 14.0)}
    assert missing == {"shifted_span": 1}


def test_the_nearest_miss_leaves_exactly_the_share_that_is_allowed():
    (pair,) = film("Cut it.")
    config = AlteredEvidenceConfig(shifted_span=4, max_overlap=0.5)
    made, _ = altered_evidence(pair, config, Known.of([pair], {"v.mp4": 99.0}))
    spans = {(e.start_s, e.end_s) for row in made for e in segments_of(row)}
    assert spans == {(9.0, 11.0), (11.0, 13.0), (8.5, 10.5), (11.5, 13.5)}


def test_what_persists_or_is_generic_or_not_supported_is_not_moved_in_time():
    pairs = [*film("Cut it.", "Fry it.", role="Location"), *film("Cut it.", "Fry it.", group="w.mp4", role="Action")]
    config = AlteredEvidenceConfig(other_time=1, shifted_span=1)
    made, missing, _ = alter_all(pairs, config, {"v.mp4": 99.0, "w.mp4": 99.0})
    assert {pair.group for pair, _ in made} == {"w.mp4"}
    assert missing == {"other_time": 2, "shifted_span": 2}
    known = Known.of(pairs, generic_claims=["cut IT"])
    assert altered_evidence(pairs[2], config, known) == ([], Counter())
    assert altered_evidence(dataclasses.replace(pairs[3], label="refuted"), config, known) == ([], Counter())
    things = [dataclasses.replace(pair, role="Object") for pair in pairs]  # what is in view stays there, unannotated
    assert alter_all(things, config, {"v.mp4": 99.0, "w.mp4": 99.0})[0] == []
    anywhere = dataclasses.replace(config, persistent_roles=())
    assert {pair.group for pair, _ in alter_all(pairs, anywhere, {"v.mp4": 99.0})[0]} == {"v.mp4", "w.mp4"}


def cited(group: str, claim: str, modality: str = "visual") -> Pair:
    shown, said = VideoSegment(f"{group}.mp4", 0.0, 5.0), Transcript(f"{group} says", 0.0, 5.0)
    return Pair(f"{group}/{claim}", claim, (shown, said), "supported", group=group, modality=modality)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("modality", "origins"),
    [
        ("visual", {"swapped_visual", "swapped_citation", "dropped_citation"}),
        ("ocr", {"swapped_visual", "swapped_citation", "dropped_citation"}),
        ("audio", {"swapped_text", "swapped_citation", "dropped_citation"}),
        ("text", {"swapped_text", "swapped_citation", "dropped_citation"}),
        ("mixed", {"swapped_visual", "swapped_text", "swapped_citation", "dropped_citation"}),
    ],
)
def test_only_what_may_carry_the_claim_is_taken_away(modality, origins):
    pairs = [cited("a", "Cut it.", modality), *(cited(g, f"{g}.") for g in "bcdefg")]
    made, missing = altered_evidence(pairs[0], ONE_OF_EACH, Known.of(pairs))
    assert {new.origin for new in made} == origins
    assert set(missing) == set(ORIGINS) - origins
    for new in made:
        lost = set(pairs[0].evidence) - set(new.evidence)
        if modality != "mixed":
            assert {isinstance(e, VideoSegment) for e in lost} == {modality in ("visual", "ocr")}


def test_a_piece_that_is_known_to_support_the_claim_alone_is_never_all_that_is_left():
    both = cited("a", "Cut it.", "mixed")
    alone = dataclasses.replace(both, id="alone", evidence=both.evidence[:1])
    made, missing = altered_evidence(both, AlteredEvidenceConfig(dropped_citation=2), Known.of([both, alone]))
    assert [new.evidence for new in made] == [both.evidence[1:]]
    assert missing == {"dropped_citation": 1}


def test_a_transcript_moves_with_its_segment_or_not_at_all():
    first = cited("a", "Cut it.")
    second = Pair("x", "B.", (VideoSegment("a.mp4", 7.0, 9.0), Transcript("later", 7.0, 9.0)), "supported", group="a")
    config = AlteredEvidenceConfig(other_time=2, shifted_span=1)
    made, missing = altered_evidence(first, config, Known.of([first, second], {"a.mp4": 60.0}))
    assert [new.evidence for new in made] == [second.evidence]
    assert missing == {"other_time": 1, "shifted_span": 1}


def test_several_segments_move_together_without_overlap_and_in_the_order_of_their_times():
    clues = tuple(VideoSegment("v.mp4", float(s), float(s + 4)) for s in (10, 20, 30))
    pair = Pair("p", "Cut it.", clues, "supported", group="v.mp4")
    for seed in range(60):
        made, _ = altered_evidence(pair, AlteredEvidenceConfig(other_time=1), Known.of([pair], {"v.mp4": 60.0}), seed)
        spans = [(e.start_s, e.end_s or 0.0) for row in made for e in segments_of(row)]
        assert len(spans) == 3
        assert all(a[1] <= b[0] for a, b in itertools.pairwise(spans))
        assert not [s for s in spans for c in clues if s[0] < (c.end_s or 0) and c.start_s < s[1]]


def test_what_somebody_judged_already_is_not_made_again():
    pair, other = film("Cut it.", "Fry it.")
    judged = dataclasses.replace(pair, id="judged", evidence=other.evidence, label="not_enough")
    config = AlteredEvidenceConfig(other_time=1)
    (new,), _ = altered_evidence(pair, config, Known.of([pair, other]))
    assert new.evidence == other.evidence
    (new,), _ = altered_evidence(pair, config, Known.of([pair, other, judged]))
    assert new.evidence != other.evidence


def test_labels_say_what_remains_and_can_be_set():
    assert {o: ONE_OF_EACH.label_of(o) for o in ORIGINS} == {
        "other_time": "refuted",
        "shifted_span": "refuted",
        "dropped_citation": "not_enough",
        "swapped_citation": "not_enough",
        "swapped_visual": "not_enough",
        "swapped_text": "not_enough",
    }
    assert dataclasses.replace(ONE_OF_EACH, max_overlap=0.2).label_of("shifted_span") == "not_enough"
    labels = {"swapped_visual": "refuted"}
    config = from_mapping(AlteredEvidenceConfig, {"other_time": 2, "gap_s": 1, "labels": labels}, "x.yaml")
    assert (config.other_time, config.gap_s, config.label_of("swapped_visual")) == (2, 1.0, "refuted")


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"other_time": -1}, "other_time: must not be negative, got -1"),
        ({"gap_s": -0.5}, "gap_s: must be a number of seconds >= 0"),
        ({"gap_s": math.nan}, "gap_s"),
        ({"max_overlap": 1.0}, r"max_overlap: must be a share in \[0, 1\), got 1.0"),
        ({"labels": {"moved": "refuted"}}, "no such kind of negative, got 'moved'"),
        ({"labels": {"other_time": "supported"}}, "labels.other_time is not one of"),
        ({"other_times": 1}, "did you mean other_time"),
    ],
)
def test_a_wrong_setting_is_named(values, words):
    with pytest.raises(ConfigError, match=words):
        from_mapping(AlteredEvidenceConfig, values, "x.yaml")


@pytest.mark.parametrize("duration_s", [0.0, -3.0, math.nan, math.inf])
def test_an_impossible_duration_is_refused(duration_s):
    with pytest.raises(RowError, match=r"v\.mp4: duration must be a positive number"):
        Known.of([], {"v.mp4": duration_s})


def youcook2(shared_data: Path) -> tuple[list[Pair], dict[str, float]]:
    (path,) = (shared_data / "youcook2").glob("*.json")
    database = json.loads(path.read_text(encoding="utf-8"))["database"]
    pairs = [
        Pair(
            f"{v}/{a['id']}",
            a["sentence"],
            (VideoSegment(f"{v}.mp4", a["segment"][0], a["segment"][1]),),
            "supported",
            group=v,
        )
        for v, video in database.items()
        for a in video["annotations"]
    ]
    return pairs, {f"{v}.mp4": video["duration"] for v, video in database.items()}


def test_every_segment_of_the_real_cooking_videos_gets_another_time_and_a_near_miss(shared_data):
    pairs, durations = youcook2(shared_data)
    made, missing, known = alter_all(pairs, AlteredEvidenceConfig(other_time=1, shifted_span=1, gap_s=2.0), durations)
    assert len(pairs) == 296
    assert missing["other_time"] == 0
    assert missing["shifted_span"] <= len(pairs) * 0.02
    assert not [new for _, new in made if known.holds(normal_claim(new.claim), new.evidence)]
    assert all((e.end_s or math.inf) <= durations[e.path] for _, new in made for e in segments_of(new))
