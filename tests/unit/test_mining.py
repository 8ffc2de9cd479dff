"""Mined negatives keep their shares, stay near the positives, and never hold what looks true and nobody judged."""

import dataclasses
import math
from collections import Counter

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proofreel.core.errors import ConfigError, RowError
from proofreel.core.pairs import Pair, VideoSegment, evidence_key
from proofreel.data_prep.negatives.hard_mining import DRAWN_FROM, MiningConfig, mine
from proofreel.data_prep.negatives.scores import Score, read_scores
from proofreel.eval.scoring.predictions import Prediction, write_predictions

TRUSTED = ("annotated", "negative_annotated")


def row(number: int, label: str | None, group: str = "g", role: str = "r", origin: str = "swapped_evidence") -> Pair:
    origin = "annotated" if label == "supported" else origin
    video = (VideoSegment(f"{group}.mp4"),)
    return Pair(f"p{number}", f"claim {number}.", video, label, group=group, role=role, origin=origin)  # type: ignore[arg-type]


ROWS = st.lists(
    st.tuples(
        st.sampled_from(["supported", "supported", "refuted", "refuted", "not_enough", None]),
        st.sampled_from("ab"),
        st.sampled_from(["Action", "Tool"]),
        st.sampled_from(["swapped_evidence", "negative_annotated"]),
        st.one_of(st.none(), st.sampled_from([0.0, 0.2, 0.5, 0.9, 0.95, 1.0]), st.floats(0, 1)),
    ),
    min_size=1,
    max_size=60,
)
CONFIGS = st.builds(
    MiningConfig,
    hard_share=st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0]),
    negatives_per_positive=st.integers(0, 3),
    guard_p=st.sampled_from([0.5, 0.95, 1.0]),
    unscored=st.just("keep"),
    balance=st.sampled_from(["group", "claim"]),
)


def world(rows) -> tuple[list[Pair], dict[str, Score]]:
    pairs = [row(n, label, group, role, origin) for n, (label, group, role, origin, _) in enumerate(rows)]
    return pairs, {pair.id: Score(p) for pair, (*_, p) in zip(pairs, rows, strict=True) if p is not None}


def split_of(pairs: list[Pair]) -> tuple[list[Pair], list[Pair]]:
    return [p for p in pairs if p.label == "supported"], [p for p in pairs if p.label != "supported"]


@settings(max_examples=150, deadline=None)
@given(rows=ROWS, config=CONFIGS, seed=st.integers(0, 3))
def test_positives_stay_shares_are_exact_and_every_row_is_accounted_for(rows, config, seed):
    pairs, scores = world(rows)
    mined = mine(pairs, scores, config, seed)
    positives, negatives = split_of(mined.pairs)
    assert positives == split_of([p for p in pairs if p.label is not None])[0]
    assert [p for p in pairs if p in mined.pairs] == mined.pairs
    counts, wanted = mined.counts, len(positives) * config.negatives_per_positive
    assert counts["negatives"] == len(negatives) == wanted - counts["missing"]
    assert counts["hard"] + counts["random"] == len(negatives) == sum(counts["drawn_from"].values())
    labelled = [p for p in pairs if p.label not in (None, "supported")]
    assert counts["negatives"] + counts["not_drawn"] + counts["too_certain"] == len(labelled)
    usable = sum(p.id in scores for p in labelled) - counts["too_certain"]
    if not counts["missing"] and usable >= wanted:
        assert counts["hard"] == math.floor(config.hard_share * wanted + 0.5)
        assert counts["hard_replaced_by_random"] == 0
    if counts["missing"]:
        assert counts["not_drawn"] == 0


@settings(max_examples=100, deadline=None)
@given(rows=ROWS, config=CONFIGS, seed=st.integers(0, 3))
def test_no_unjudged_negative_at_or_above_the_guard_is_trained_on_and_all_are_up_for_review(rows, config, seed):
    pairs, scores = world(rows)
    mined = mine(pairs, scores, config, seed)
    dangerous = {
        p.id
        for p in split_of([p for p in pairs if p.label is not None])[1]
        if p.origin not in TRUSTED and p.id in scores and scores[p.id].p_supported >= config.guard_p
    }
    assert not dangerous & {p.id for p in mined.pairs}
    listed = [item for item in mined.review if item.kind == "too_certain"]
    assert {item.pair.id for item in listed} == dangerous
    assert all(item.p_supported == scores[item.pair.id].p_supported for item in listed)
    assert [item.p_supported for item in listed] == sorted([i.p_supported or 0.0 for i in listed], reverse=True)


@settings(max_examples=60, deadline=None)
@given(rows=ROWS, config=CONFIGS, order=st.randoms(use_true_random=False))
def test_the_order_of_the_rows_changes_nothing(rows, config, order):
    pairs, scores = world(rows)
    mined = mine(pairs, scores, config, 1)
    shuffled = list(pairs)
    order.shuffle(shuffled)
    again = mine(shuffled, scores, config, 1)
    assert {p.id for p in again.pairs} == {p.id for p in mined.pairs}
    assert (again.review, again.counts) == (mined.review, mined.counts)


def many(groups: int = 4, positives: int = 8, negatives: int = 40) -> tuple[list[Pair], dict[str, Score]]:
    """Enough of everything; P(supported) of the negatives of a group rises with their number up to 0.9."""
    pairs, scores = [], {}
    for g in range(groups):
        for n in range(positives + negatives):
            label = "supported" if n < positives else "refuted"
            pair = dataclasses.replace(row(n, label, f"g{g}"), id=f"{g}/{n:02d}")
            pairs.append(pair)
            scores[pair.id] = Score(0.9 * n / (positives + negatives))
    return pairs, scores


def test_where_there_are_enough_negatives_each_group_and_role_gets_as_many_as_it_has_positives():
    pairs, scores = many()
    mined = mine(pairs, scores, MiningConfig())
    positives, negatives = split_of(mined.pairs)
    assert Counter(p.group for p in positives) == Counter(p.group for p in negatives)
    assert mined.counts["drawn_from"] == dict(zip(DRAWN_FROM, (32, 0, 0), strict=True))
    assert (mined.counts["hard"], mined.counts["random"], mined.counts["missing"]) == (24, 8, 0)


def test_the_hard_ones_are_the_most_probable_of_their_group_and_the_random_ones_are_not():
    pairs, scores = many()
    mined = mine(pairs, scores, MiningConfig())
    for g in range(4):
        ids = {p.id for p in mined.pairs}
        assert {f"{g}/{n}" for n in range(42, 48)} <= ids
    chosen = {p.id for s in range(60) for p in mine(pairs, scores, MiningConfig(hard_share=0.0), s).pairs}
    assert {p.id for p in pairs} == chosen


def test_rounding_does_not_add_up_over_many_small_groups():
    pairs = [row(2 * g, "supported", f"g{g}") for g in range(100)]
    pairs += [dataclasses.replace(row(1000 + 9 * g + k, "refuted", f"g{g}")) for g in range(100) for k in range(9)]
    mined = mine(pairs, {p.id: Score(0.1) for p in pairs}, MiningConfig())
    assert (mined.counts["hard"], mined.counts["random"]) == (75, 25)
    assert mined.counts["drawn_from"]["same group and role"] == 100


def test_a_group_without_negatives_takes_those_of_its_role_then_any():
    pairs = [
        *(row(n, "supported", "a", "Tool") for n in range(4)),
        row(10, "refuted", "b", "Tool"),
        row(11, "refuted", "a", "Tool"),
        row(12, "refuted", "a", "Action"),
        row(13, "refuted", "c", "Action"),
        row(14, "refuted", "c", "Action"),
    ]
    mined = mine(pairs, {p.id: Score(0.1) for p in pairs}, MiningConfig())
    assert mined.counts["drawn_from"] == dict(zip(DRAWN_FROM, (1, 1, 2), strict=True))
    assert {"p10", "p11"} < {p.id for p in mined.pairs}


def test_the_seed_decides_the_random_ones_and_nothing_else():
    pairs, scores = many()
    chosen = [{p.id for p in mine(pairs, scores, MiningConfig(), seed).pairs} for seed in (1, 1, 2)]
    assert chosen[0] == chosen[1] != chosen[2]
    hard_only = [{p.id for p in mine(pairs, scores, MiningConfig(hard_share=1.0), seed).pairs} for seed in (1, 2)]
    assert hard_only[0] == hard_only[1]


def test_a_saturated_probability_is_ordered_by_its_margin():
    pairs = [row(0, "supported"), *(row(n, "refuted", origin="annotated") for n in range(1, 6))]
    scores = {p.id: Score(1.0, float(p.id[1:])) for p in pairs}
    mined = mine(pairs, scores, MiningConfig(hard_share=1.0))
    assert [p.id for p in mined.pairs] == ["p0", "p5"]


def test_trusted_negatives_are_kept_however_sure_the_model_is():
    pairs = [row(0, "supported"), row(1, "refuted", origin="negative_annotated"), row(2, "refuted")]
    scores = {p.id: Score(1.0) for p in pairs}
    mined = mine(pairs, scores, MiningConfig())
    assert [p.id for p in mined.pairs] == ["p0", "p1"]
    (listed,) = mined.review
    assert (listed.pair.id, listed.to_dict()["pair"]["id"]) == ("p2", "p2")
    assert "'swapped_evidence', never judged, and P(supported) 1 >= 0.95" in listed.reason
    assert mine(pairs, scores, MiningConfig(trusted_origins=())).counts["missing"] == 1


@pytest.mark.parametrize(
    "bad", [None, Score(math.nan, unusable="scoring failed: decode error"), Score(math.nan, unusable="margin is nan")]
)
def test_rows_that_were_not_scored_are_refused_or_listed_and_never_hard(bad):
    pairs = [row(0, "supported"), row(1, "supported"), *(row(n, "refuted") for n in (2, 3))]
    scores = {"p3": Score(0.4)} | ({} if bad is None else {"p2": bad})
    reason = "there is no prediction" if bad is None else bad.unusable
    with pytest.raises(
        RowError, match=r"x\.parquet: rows have no usable prediction, got 1 of 2, e\.g\. 'p2' \(" + str(reason)
    ):
        mine(pairs, scores, MiningConfig(), where="x.parquet")
    mined = mine(pairs, scores, MiningConfig(hard_share=1.0, unscored="keep"))
    assert (mined.counts["hard"], mined.counts["random"], mined.counts["hard_replaced_by_random"]) == (1, 1, 1)
    (listed,) = mined.review
    assert (listed.kind, listed.pair.id, listed.p_supported, listed.reason) == ("unscored", "p2", None, reason)


def test_predictions_of_another_data_set_are_refused():
    pairs = [row(0, "supported"), row(1, "refuted")]
    with pytest.raises(RowError, match=r"not of these rows, got 2 of 3 unknown, e\.g\. 'q1'"):
        mine(pairs, {"p1": Score(0.1), "q2": Score(0.1), "q1": Score(0.1)}, MiningConfig())
    with pytest.raises(RowError, match=r"other claims were scored, got 1 of 1, e\.g\. 'p1': 'another'"):
        mine(pairs, {"p1": Score(0.1, claim="another")}, MiningConfig())
    with pytest.raises(RowError, match=r"other evidence was scored, got 1 of 1, e\.g\. 'p1'"):
        mine(pairs, {"p1": Score(0.1, evidence=evidence_key((VideoSegment("v.mp4", 50.0, 90.0),)))}, MiningConfig())


def test_evidence_may_lie_elsewhere_and_a_foreign_file_may_write_of_it_what_it_likes():
    clip, moved = (VideoSegment(f"/{folder}/v.mp4", 0.0, 2.0) for folder in ("here", "there"))
    pairs = [dataclasses.replace(row(n, label), evidence=(clip,)) for n, label in enumerate(("supported", "refuted"))]
    plain = mine(pairs, {p.id: Score(0.1) for p in pairs}, MiningConfig())
    for evidence in (evidence_key((moved,)), "clip 7"):
        assert mine(pairs, {p.id: Score(0.1, evidence=evidence) for p in pairs}, MiningConfig()) == plain


def test_a_number_of_positives_is_drawn_with_a_share_of_hard_ones():
    pairs = [row(n, "supported") for n in range(40)] + [row(n, "refuted") for n in range(40, 80)]
    scores = {p.id: Score(int(p.id[1:]) / 100) for p in pairs}
    config = MiningConfig(positives=10, positive_share_hard=0.5)
    mined = mine(pairs, scores, config)
    positives, negatives = split_of(mined.pairs)
    assert len(positives) == len(negatives) == 10
    assert {f"p{n}" for n in range(5)} <= {p.id for p in positives}
    assert any(int(p.id[1:]) > 10 for p in positives)
    assert [mined.counts[name] for name in ("positives", "positives_hard", "positives_missing")] == [10, 5, 0]
    few = mine(pairs, scores, MiningConfig(positives=99))
    assert len(split_of(few.pairs)[0]) == 40
    assert [few.counts[name] for name in ("positives", "positives_hard", "positives_missing")] == [40, 0, 59]
    with pytest.raises(RowError, match="no usable prediction, got 1 of 80"):
        mine(pairs, {id: score for id, score in scores.items() if id != "p7"}, config)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"hard_share": 1.5}, "hard_share: must be in"),
        ({"guard_p": -0.1}, "guard_p: must be in"),
        ({"guard_p": math.nan}, "guard_p: must be in"),
        ({"negatives_per_positive": -1}, "negatives_per_positive: must be at least 0, got -1"),
        ({"positives": 0}, "positives: must be at least 1, got 0"),
        ({"positive_share_hard": 0.5}, "positive_share_hard: all positives are kept"),
    ],
)
def test_a_wrong_setting_is_named(values, words):
    with pytest.raises(ConfigError, match=words):
        MiningConfig(**values)


def jsonl(path, *lines: str):
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def test_scores_are_read_from_json_lines_with_margins_probabilities_or_both(tmp_path):
    path = jsonl(
        tmp_path / "p.jsonl",
        '{"pair_id": "a", "margin": 0}',
        '{"pair_id": "b", "margin": -800}',
        '{"pair_id": "c", "p_supported": 0.25, "claim": "C."}',
        '{"pair_id": "d", "margin": 3.5, "p_supported": 0.6, "error": null, "split": "train"}',
        '{"pair_id": "e", "margin": NaN, "p_supported": NaN, "error": "decode error"}',
        '{"pair_id": "f", "margin": NaN, "p_supported": 0.5}',
        '{"pair_id": "g", "margin": Infinity}',
        '{"pair_id": "h"}',
    )
    scores, source = read_scores(path)
    assert source == {}
    assert {id: s.p_supported for id, s in scores.items() if s.unusable is None} == {
        "a": 0.5,
        "b": 0.0,
        "c": 0.25,
        "d": 0.6,
    }
    assert (scores["c"].claim, scores["d"].margin) == ("C.", 3.5)
    assert {id: s.unusable for id, s in scores.items() if s.unusable} == {
        "e": "scoring failed: decode error",
        "f": "margin is nan",
        "g": "margin is inf",
        "h": "neither margin nor p_supported is given",
    }


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("[1]", "must be an object"),
        ('{"margin": 1}', "pair_id must be the id of a pair, got None"),
        ('{"pair_id": 3, "margin": 1}', "pair_id must be the id of a pair, got 3"),
        ('{"pair_id": "a", "margin": "1"}', "margin must be a number or null, got '1'"),
        ('{"pair_id": "a", "margin": true}', "margin must be a number or null"),
        ('{"pair_id": "a", "margin": 1' + "0" * 400 + "}", "margin must be a number or null"),
        ('{"pair_id": "a", "p_supported": 1.5}', r"p_supported must be a probability, got 1\.5"),
        ('{"pair_id": "a", "margin": 1, "error": 5}', "error must be text or null, got 5"),
        ('{"pair_id": "ok", "margin": 1}', "pair_id occurs twice, got 'ok'"),
        ('{"pair_id": "a", "mar', "not JSON"),
    ],
)
def test_a_damaged_prediction_is_named_with_file_and_line(tmp_path, line, words):
    path = jsonl(tmp_path / "p.jsonl", '{"pair_id": "ok", "margin": 1}', line)
    with pytest.raises(RowError, match=rf"p\.jsonl:2: .*{words}"):
        read_scores(path)


def test_files_that_are_no_predictions_are_refused(tmp_path):
    with pytest.raises(RowError, match="no such predictions file"):
        read_scores(tmp_path / "none.parquet")
    (tmp_path / "p.csv").write_text("")
    with pytest.raises(RowError, match=r"got '\.csv'"):
        read_scores(tmp_path / "p.csv")
    (tmp_path / "p.parquet").write_bytes(b"PAR1 cut")
    with pytest.raises(RowError, match="not a readable predictions file"):
        read_scores(tmp_path / "p.parquet")
    pq.write_table(pa.table({"pair_id": ["a"], "score": [1.0]}), tmp_path / "p.parquet")
    with pytest.raises(RowError, match="columns are missing"):
        read_scores(tmp_path / "p.parquet")
    pq.write_table(pa.table({"pair_id": ["a"], "margin": ["high"]}), tmp_path / "p.parquet")
    with pytest.raises(RowError, match=r"p\.parquet:1: margin must be a number"):
        read_scores(tmp_path / "p.parquet")


def test_the_files_of_eval_are_read_but_not_those_of_a_control_without_the_evidence(tmp_path):
    common: dict = {"label": "refuted", "split": "train", "group": "g", "role": "", "origin": "annotated"}
    rows = [
        Prediction("a", 2.0, 0.8, modality="visual", claim="A.", **common),
        Prediction("b", math.nan, math.nan, modality="visual", error="no such file", claim="B.", **common),
    ]
    write_predictions(tmp_path / "p.parquet", rows, {"verifier_fingerprint": "abc", "control": "zero-shot"})
    scores, source = read_scores(tmp_path / "p.parquet")
    assert scores["a"] == Score(0.8, 2.0, None, "A.")
    assert scores["b"].unusable == "scoring failed: no such file"
    assert source["verifier_fingerprint"] == "abc"
    write_predictions(tmp_path / "p.parquet", rows, {"control": "mismatched-evidence"})
    with pytest.raises(RowError, match="scores of a control run, got 'mismatched-evidence'"):
        read_scores(tmp_path / "p.parquet")


def test_balanced_by_claim_every_sentence_is_as_often_false_as_true_though_one_fools_the_model_most():
    claims = ["Action is chopping.", "Action is stirring.", "Tool is knife."]
    pairs, scores = [], {}
    for n in range(90):
        claim, label = claims[n % 3], "supported" if n % 5 == 0 else "refuted"
        pairs.append(dataclasses.replace(row(n, label, f"g{n % 7}", claim.split()[0]), claim=claim))
        scores[f"p{n}"] = Score(0.9 if n % 3 == 0 else 0.1 + n / 1000)
    by_claim = mine(pairs, scores, MiningConfig(balance="claim"))
    for claim in claims:
        labels = Counter(p.label for p in by_claim.pairs if p.claim == claim)
        assert labels["supported"] == labels["refuted"] == 6
    assert by_claim.counts["drawn_from"]["same claim and role"] == 18
    by_group = mine(pairs, scores, MiningConfig())
    fooling = Counter(p.label for p in by_group.pairs if p.claim == claims[0])
    assert fooling["refuted"] > fooling["supported"]


def test_sentences_that_differ_in_case_and_full_stop_are_one_claim():
    pairs = [row(0, "supported", "a"), *(row(n, "refuted", "b") for n in range(1, 9))]
    pairs = [dataclasses.replace(p, claim="Chop onion." if n < 2 else f"Chop {n}.") for n, p in enumerate(pairs)]
    pairs[0] = dataclasses.replace(pairs[0], claim=" chop  Onion")
    mined = mine(pairs, {p.id: Score(0.1 * n) for n, p in enumerate(pairs)}, MiningConfig(balance="claim"))
    assert [p.id for p in mined.pairs] == ["p0", "p1"]
