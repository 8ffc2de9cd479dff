"""Swapped negatives never contradict what is known, and a balanced set leaves text nothing to go by."""

from collections import Counter
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from proofreel.core.pairs import Pair, VideoSegment, evidence_key
from proofreel.data_prep.importers.base import Row
from proofreel.data_prep.importers.facts import read_facts
from proofreel.data_prep.negatives.swapped import balanced_pairs, normal_claim, swapped_negatives

CLIPS_CONFIG = Path(__file__).parents[1] / "data" / "clips_build.yaml"


def world(table: dict[tuple[int, int], set[str]]) -> list[Pair]:
    """{(group, segment): claims that hold there} as annotated pairs."""
    return [
        Pair(f"{g}.{s}.{claim}", claim, (VideoSegment(f"v{g}", float(s), s + 1.0),), "supported", group=f"v{g}")
        for (g, s), claims in table.items()
        for claim in sorted(claims)
    ]


WORLDS = st.dictionaries(
    st.tuples(st.integers(0, 4), st.integers(0, 1)), st.sets(st.sampled_from("abcdefgh"), min_size=1), min_size=1
).map(world)


def differences(pairs: list[Pair], by: str) -> list[int]:
    """Supported minus refuted, per sentence or per segment."""
    counts: Counter[str] = Counter()
    for pair in pairs:
        key = normal_claim(pair.claim) if by == "claim" else evidence_key(pair.evidence)
        counts[key] += 1 if pair.label == "supported" else -1
    return list(counts.values())


def clips(shared_data: Path) -> tuple[list[Pair], list[str]]:
    items = list(read_facts(shared_data / "video-clips" / "annotations.json"))
    config = yaml.safe_load(CLIPS_CONFIG.read_text())
    return [item.pair for item in items if isinstance(item, Row)], config["negatives"]["generic_claims"]


def assert_no_negative_is_known_to_hold(negatives: list[Pair], pairs: list[Pair]) -> None:
    holds = {(normal_claim(p.claim), p.group) for p in pairs if p.label == "supported"}
    assert not [n for n in negatives if (normal_claim(n.claim), n.group) in holds]


@pytest.mark.parametrize(
    "other", ["object is KETTLE", " Object  is kettle. ", "Object is kettle", "Object is kettle.."]
)
def test_sentences_differ_only_in_what_matters(other):
    assert normal_claim(other) == normal_claim("Object is kettle.")


def test_different_sentences_stay_different():
    assert len({normal_claim(c) for c in ("Object is cup.", "Object is cups.", "Tool is cup.")}) == 3


@settings(max_examples=80, deadline=None)
@given(pairs=WORLDS, per_claim=st.integers(1, 3), seed=st.integers(0, 3))
def test_a_swapped_claim_goes_to_another_group_where_it_is_not_known_to_hold(pairs, per_claim, seed):
    made, missing = swapped_negatives(pairs, per_claim, ["a"], seed)
    assert_no_negative_is_known_to_hold(made, pairs)
    assert len(made) + missing == per_claim * sum(p.claim != "a" for p in pairs)
    assert not [n for n in made if n.claim == "a"]
    assert len({n.id for n in made} | {p.id for p in pairs}) == len(made) + len(pairs)
    assert len({(n.claim, n.evidence) for n in made}) == len(made)
    groups = {p.evidence: p.group for p in pairs}
    assert all((n.label, n.origin, n.group) == ("refuted", "swapped_evidence", groups[n.evidence]) for n in made)


@settings(max_examples=40, deadline=None)
@given(pairs=WORLDS, per_claim=st.integers(1, 3))
def test_no_swap_is_missed_where_one_is_possible(pairs, per_claim):
    made, missing = swapped_negatives(pairs, per_claim)
    if not missing:
        return
    used = {(n.claim, n.evidence) for n in made}
    holds = {(p.claim, p.group) for p in pairs}
    full = {
        p.claim for p in pairs if all((p.claim, q.evidence) in used for q in pairs if (p.claim, q.group) not in holds)
    }
    short = {p.claim for p in pairs if sum(n.meta["claim_of"] == p.id for n in made) < per_claim}
    assert short <= full


def test_a_swap_keeps_the_claim_its_context_and_role_and_takes_the_evidence():
    one = Pair(
        "1", "It is red.", (VideoSegment("a"),), "supported", context="c", group="a", role="Object", meta={"x": 1}
    )
    two = Pair("2", "It is blue.", (VideoSegment("b"),), "supported", group="b")
    made, _ = swapped_negatives([one, two], 1)
    swap = next(n for n in made if n.claim == "It is red.")
    assert (swap.context, swap.role, swap.evidence, swap.group) == ("c", "Object", two.evidence, "b")
    assert swap.meta == {"claim_of": "1"}


def test_an_annotated_negative_is_not_made_again():
    pairs = [
        *world({(0, 0): {"a"}, (1, 0): {"b"}}),
        Pair("n", "a", (VideoSegment("v1", 0.0, 1.0),), "refuted", group="v1"),
    ]
    made, missing = swapped_negatives(pairs, 1)
    assert [n.claim for n in made] == ["b"]
    assert missing == 1


def test_the_swapped_label_can_be_not_enough():
    made, _ = swapped_negatives(world({(0, 0): {"a"}, (1, 0): {"b"}}), 1, label="not_enough")
    assert {n.label for n in made} == {"not_enough"}


@settings(max_examples=150, deadline=None)
@given(pairs=WORLDS, seed=st.integers(0, 3))
def test_balanced_every_sentence_is_as_often_supported_as_refuted(pairs, seed):
    chosen, left_out = balanced_pairs(pairs, ["a"], seed)
    assert set(differences(chosen, "claim")) <= {0}
    assert_no_negative_is_known_to_hold([p for p in chosen if p.label == "refuted"], pairs)
    assert len({(p.claim, p.evidence) for p in chosen}) == len(chosen)
    kept = sum(p.label == "supported" for p in chosen)
    assert kept + sum(left_out.values()) == len(pairs)
    assert left_out["generic"] == sum(p.claim == "a" for p in pairs)


@settings(max_examples=60, deadline=None)
@given(pairs=WORLDS)
def test_balanced_leaves_out_only_claims_that_hold_in_more_segments_than_they_can_be_asked_of(pairs):
    chosen, _ = balanced_pairs(pairs)
    segments = {p.evidence: p.group for p in pairs}
    for claim in {p.claim for p in pairs}:
        groups = {p.group for p in pairs if p.claim == claim}
        free = sum(group not in groups for group in segments.values())
        kept = any(p.claim == claim for p in chosen)
        assert kept == (free >= sum(p.claim == claim for p in pairs))


def brute_force_best(pairs: list[Pair]) -> int:
    """The smallest possible sum of squared differences per segment, by trying every way."""
    chosen, _ = balanced_pairs(pairs)
    positives = [p for p in chosen if p.label == "supported"]
    keys = sorted({evidence_key(p.evidence) for p in pairs})
    groups = {evidence_key(p.evidence): p.group for p in pairs}
    states = {tuple(-sum(evidence_key(p.evidence) == key for p in positives) for key in keys)}
    for claim in sorted({p.claim for p in positives}):
        holds = {p.group for p in pairs if p.claim == claim}
        need = sum(p.claim == claim for p in positives)
        free = [i for i, key in enumerate(keys) if groups[key] not in holds]
        ways = [c for c in range(1 << len(free)) if c.bit_count() == need]
        states = {
            tuple(v + (i in {free[k] for k in range(len(free)) if way >> k & 1}) for i, v in enumerate(state))
            for state in states
            for way in ways
        }
    return min(sum(v * v for v in state) for state in states)


@settings(max_examples=25, deadline=None)
@given(
    pairs=st.dictionaries(
        st.tuples(st.integers(0, 3), st.integers(0, 1)),
        st.sets(st.sampled_from("abcd"), min_size=1),
        min_size=2,
        max_size=5,
    ).map(world)
)
def test_balanced_segments_are_as_even_as_any_choice_could_make_them(pairs):
    chosen, _ = balanced_pairs(pairs)
    assert sum(d * d for d in differences(chosen, "segment")) == brute_force_best(pairs)


def test_negatives_depend_on_the_seed_and_on_nothing_else():
    pairs = world({(g, s): set("abcdefgh"[g : g + 3]) for g in range(5) for s in range(2)})
    assert balanced_pairs(pairs, seed=1) == balanced_pairs(pairs, seed=1)
    assert balanced_pairs(pairs, seed=1) != balanced_pairs(pairs, seed=2)
    assert swapped_negatives(pairs, 1, seed=1) == swapped_negatives(pairs, 1, seed=1)
    assert swapped_negatives(pairs, 1, seed=1) != swapped_negatives(pairs, 1, seed=2)


def test_the_real_clips_balance_exactly_per_sentence_and_per_segment(shared_data):
    pairs, generic = clips(shared_data)
    chosen, left_out = balanced_pairs(pairs, generic)
    assert set(differences(chosen, "claim")) == {0}
    assert set(differences(chosen, "segment")) == {0}
    assert {p.origin for p in chosen} == {"annotated", "swapped_evidence"}
    assert len({normal_claim(p.claim) for p in chosen}) >= 60
    assert left_out["unbalanceable"] == 0
    assert_no_negative_is_known_to_hold([p for p in chosen if p.label == "refuted"], pairs)


def test_every_generic_claim_of_the_real_clips_is_annotated_there(shared_data):
    pairs, generic = clips(shared_data)
    annotated = {normal_claim(p.claim) for p in pairs if p.label == "supported"}
    assert {normal_claim(claim) for claim in generic} <= annotated
    assert len(set(generic)) == len(generic)


def test_claims_annotated_in_two_real_clips_are_never_asked_of_either(shared_data):
    pairs, _ = clips(shared_data)
    made, _ = swapped_negatives(pairs, 3)
    assert_no_negative_is_known_to_hold(made, pairs)
    assert {"Location is grass.", "Location is frying pan."} & {n.claim for n in made}
