"""Nothing that carries an answer crosses splits: the same media, or the same long claim, keeps its groups together."""

import dataclasses
import json
from collections import defaultdict
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from numbered_clips import encode

from proofreel.core.errors import RowError
from proofreel.core.pairs import Pair, Passage, Split, VideoSegment
from proofreel.data_prep.dataset.shards import read_manifest, read_split, write_pairs
from proofreel.data_prep.pipeline.config import BuildConfig, LeaksConfig, NegativesConfig, SourceConfig, SplitsConfig
from proofreel.data_prep.pipeline.leakage import Ties, loose_claim, torn
from proofreel.data_prep.pipeline.pipeline import build

LONG = "the committee announced on friday that the bridge will stay closed"
EVEN = SplitsConfig(0.25, 0.25, 0.25, 0.25)


def passages(tmp_path: Path, claims: dict[str, str], **changes: object) -> BuildConfig:
    """A build with one row per group: {group: claim}."""
    rows = [Pair(g, c, (Passage(f"text of {g}"),), "supported", group=g) for g, c in claims.items()]
    write_pairs(tmp_path / "rows.jsonl", rows)
    return BuildConfig(
        str(tmp_path / "out"),
        (SourceConfig("pairs", str(tmp_path / "rows.jsonl")),),
        media="absent",
        splits=EVEN,
        shortcut_probe=False,
        card=False,
        **changes,  # type: ignore[arg-type]
    )


def splits_of(config: BuildConfig) -> dict[str, set[str]]:
    found = defaultdict(set)
    for split in read_manifest(config.output)["shards"]:
        for pair in read_split(config.output, split):
            found[pair.group].add(split)
    return found


def test_groups_with_the_same_long_claim_fall_into_one_split(tmp_path):
    claims = {f"g{i}": f"claim number {i} is told here in words that nobody else uses {i}" for i in range(12)}
    claims.update(g3=f"{LONG}.", g8=f"The {LONG.upper()}", g11=LONG.replace("the ", ""))
    config = passages(tmp_path, claims)
    manifest = build(config)
    found = splits_of(config)
    assert found["g3"] == found["g8"] == found["g11"]
    assert len({split for group in found.values() for split in group}) == 4
    expected = {"media": 0, "claims": 1, "tied_sets": 1, "tied_groups": 3, "largest_share": round(3 / 12, 4)}
    assert manifest["leaks"] == expected


def test_short_claims_tie_nothing(tmp_path):
    config = passages(tmp_path, {f"g{i}": "Object is frying pan." for i in range(12)})
    assert build(config)["leaks"]["tied_groups"] == 0
    assert build(dataclasses.replace(config, leaks=LeaksConfig(claim_words=4)))["leaks"]["tied_groups"] == 12


def test_refusing_names_the_claim_the_groups_and_their_lines(tmp_path):
    claims = {f"g{i}": f"claim number {i} is told here in words that nobody else uses {i}" for i in range(8)}
    claims.update(dict.fromkeys([f"h{i}" for i in range(8)], LONG))
    config = passages(tmp_path, claims, leaks=LeaksConfig(claims="refuse"))
    with pytest.raises(RowError, match=rf"claim '{LONG}': 'h0' \(.*rows.jsonl:9\) in \w+"):
        build(config)
    assert not Path(config.output).exists()
    assert build(dataclasses.replace(config, leaks=LeaksConfig(claims="allow")))["leaks"]["claims"] == 0


def test_the_same_bytes_under_two_names_are_one_video(tmp_path):
    for i in range(8):
        encode(tmp_path / f"v{i}.mp4", "mpeg4", n_frames=5 if i in (2, 5) else 10 + i)
    rows = [
        Pair(f"r{i}", f"Claim {i}.", (VideoSegment(f"v{i}.mp4", 0.0, 0.2),), "supported", group=f"g{i}")
        for i in range(8)
    ]
    write_pairs(tmp_path / "rows.jsonl", rows)
    source = SourceConfig("pairs", str(tmp_path / "rows.jsonl"))
    config = BuildConfig(str(tmp_path / "out"), (source,), splits=EVEN, shortcut_probe=False, card=False)
    manifest = build(config)
    found = splits_of(config)
    assert found["g2"] == found["g5"]
    assert manifest["leaks"]["media"] == 1
    assert manifest["media_files"]


def test_ties_are_transitive_and_do_not_depend_on_their_order():
    edges = [("a", "b"), ("c", "d"), ("b", "c"), ("x", "y")]
    for order in (edges, edges[::-1]):
        ties = Ties()
        for pair in order:
            ties.tie("media", pair, "m")
        assert {ties.of(g) for g in "abcd"} == {ties.of("a")}
        assert ties.of("x") == ties.of("y") != ties.of("a")
        assert ties.of("free") == "free"
        splits: dict[str, Split] = {**dict.fromkeys("abcd", "train"), "x": "train", "y": "test"}
        assert torn(ties, splits) == [["x", "y"]]


@given(st.text(max_size=40))
def test_loose_claims_are_their_own_loose_form(text):
    assert loose_claim(loose_claim(text)) == loose_claim(text)


def test_numbers_and_words_tell_claims_apart_and_punctuation_does_not():
    assert loose_claim("The 3 eggs, beaten!") == loose_claim("3 EGGS beaten")
    assert loose_claim("3 eggs") != loose_claim("4 eggs")


def held_out(tmp_path: Path, **changes: object) -> BuildConfig:
    path = tmp_path / "facts.jsonl"
    rows = [
        {"video": f"v{a}{t}{n}.mp4", "conceptual": {"Action": f"action{a}", "Tool": f"tool{t}", "Place": f"p{n}"}}
        for a in range(6)
        for t in range(5)
        for n in range(3)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    splits = SplitsConfig(0.6, 0.1, 0.15, 0.15, held_out_roles=("Action", "Tool"))
    source = SourceConfig("facts", str(path))
    base = BuildConfig(
        str(tmp_path / "out"), (source,), media="absent", splits=splits, shortcut_probe=False, card=False
    )
    return dataclasses.replace(base, **changes)  # type: ignore[arg-type]


def combinations(config: BuildConfig, split: str) -> set[tuple[str, str]]:
    values: dict = defaultdict(dict)
    for pair in read_split(config.output, split):
        if pair.label == "supported":
            values[pair.evidence][pair.role] = pair.claim
    return {(v["Action"], v["Tool"]) for v in values.values()}


def test_a_compositional_test_shows_known_values_in_combinations_never_trained_on(tmp_path):
    config = held_out(tmp_path)
    manifest = build(config)
    trained = combinations(config, "train") | combinations(config, "validation")
    asked = combinations(config, "calibration") | combinations(config, "test")
    assert not trained & asked
    for position in (0, 1):
        assert {c[position] for c in asked} <= {c[position] for c in trained}
    assert len(manifest["held_out"]["combinations"]) == len(asked)
    assert manifest["held_out"]["of"] == 30
    rows = {split: manifest["counts"][split]["rows"] for split in manifest["shards"]}
    assert 0.2 < (rows["calibration"] + rows["test"]) / sum(rows.values()) < 0.45


def test_held_out_combinations_depend_on_the_seed_alone(tmp_path):
    chosen = []
    for seed in (0, 0, 1):
        chosen.append(build(held_out(tmp_path, seed=seed))["held_out"]["combinations"])
    assert chosen[0] == chosen[1] != chosen[2]


def test_roles_whose_combinations_cannot_be_held_out_are_refused(tmp_path):
    from proofreel.core.errors import ConfigError

    splits = SplitsConfig(0.6, 0.1, 0.15, 0.15, held_out_roles=("Action", "Material"))
    with pytest.raises(ConfigError, match="no combination can be held out, got 0"):
        build(held_out(tmp_path, splits=splits))


@pytest.mark.parametrize("policy", ["move", "allow"])
def test_a_made_claim_that_another_split_holds_is_left_out(tmp_path, policy):
    tools = ["knife", "spoon", "fork", "ladle", "whisk", "tongs", "grater", "peeler", "sieve", "pan", "pot", "bowl"]
    facts = [{"video": f"{t}.mp4", "start_s": 0.0, "end_s": 1.0, "conceptual": {"Tool": t}} for t in tools]
    (tmp_path / "facts.json").write_text(json.dumps(facts))
    config = BuildConfig(
        str(tmp_path / "out"),
        (SourceConfig("facts", str(tmp_path / "facts.json")),),
        media="absent",
        splits=EVEN,
        negatives=NegativesConfig(swapped_per_claim=0, altered_per_claim=3),
        leaks=LeaksConfig(claims=policy, claim_words=3),
        shortcut_probe=False,
        card=False,
    )
    manifest = build(config)
    splits_of_claim, made = defaultdict(set), 0
    for split in manifest["shards"]:
        for pair in read_split(config.output, split):
            splits_of_claim[loose_claim(pair.claim)].add(split)
            made += pair.label == "refuted"
    leaks = [claim for claim, splits in splits_of_claim.items() if len(splits) > 1]
    n_dropped = manifest["left_out"].get("made claims that another split holds", 0)
    assert (n_dropped > 0, len(leaks) > 0) == ((True, False) if policy == "move" else (False, True))
    assert made > 0
