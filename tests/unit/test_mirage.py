"""The normalised WikiVideo/MiRAGE JSON: repeats undone, ids joined, absence of support made explicit."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from proofreel.core.errors import ConfigError
from proofreel.core.pairs import problems_of
from proofreel.data_prep.importers.base import Rejected, Row
from proofreel.data_prep.importers.mirage import MirageOptions, read
from proofreel.data_prep.importers.mirage_grounding import read_judgments

TICKS = {"audio": False, "video": True, "ocr": False}


def topic(**changes: Any) -> dict[str, Any]:
    """Two sentences, two videos (so everything twice); v1 supports "seen" and v2 supports "read"."""
    return {
        "claims": [["seen", "none"], ["read"]] * 2,
        "original_article": ["First.", "Second."] * 2,
        "claims_to_supporting_videos": {
            "seen": {"supporting_videos": ["v1", "v1"], "videos_modalities": {"v1": TICKS}},
            "none": {"supporting_videos": [], "videos_modalities": {}},
            "read": {
                "supporting_videos": ["watch?v=v2&t=46s"],
                "videos_modalities": {"watch?v=v2&t=46s": {"audio": True, "video": False, "ocr": True}},
            },
        },
        "article": "Text.",
        "query_id": "q7",
        "videos": {"v1": {"language": "english", "video_type": "Raw", "relevance": 3}, "v2": {"language": "english"}},
    } | changes


def write(path: Path, **topics: Any) -> Path:
    path.write_text("\ufeff" + json.dumps(topics, indent=1), encoding="utf-8")
    return path


def rows_of(path: Path, **options: Any) -> list[Row]:
    return [item for item in read(path, MirageOptions(**options)) if isinstance(item, Row)]


def rejected_of(path: Path, **options: Any) -> list[Rejected]:
    return [item for item in read(path, MirageOptions(**options)) if isinstance(item, Rejected)]


def test_the_real_file_has_the_documented_counts(shared_data):
    path = shared_data / "mirage" / "human_eval_subset.json"
    found = list(read(path, MirageOptions()))
    pairs = [item.pair for item in found if isinstance(item, Row)]
    assert len(pairs) == len(found) == len({pair.id for pair in pairs}) == 5378
    assert len({pair.group for pair in pairs}) == 10
    assert len({(pair.group, pair.claim) for pair in pairs}) == 612
    assert len({pair.evidence for pair in pairs}) == 87
    assert Counter(pair.label for pair in pairs) == {"supported": 907, "not_enough": 4471}
    assert all((pair.label == "supported") == bool(pair.meta["channels"]) for pair in pairs)
    assert not [problem for pair in pairs for problem in problems_of(pair)]
    assert not [pair for pair in pairs if "watch" in pair.evidence[0].path]  # type: ignore[union-attr]


@pytest.mark.parametrize(("channels", "supported"), [(("video",), 399), (("video", "ocr"), 740), (("audio",), 438)])
def test_support_a_verifier_cannot_perceive_is_neither_positive_nor_negative(shared_data, channels, supported):
    path = shared_data / "mirage" / "human_eval_subset.json"
    rows, bad = rows_of(path, channels=channels), rejected_of(path, channels=channels)
    assert sum(row.pair.label == "supported" for row in rows) == supported
    assert len(bad) == sum(item.pairs or 0 for item in bad) == 907 - supported
    assert {(item.kind, item.blocking) for item in bad} == {("support is on no chosen channel", False)}


def test_a_topic_is_one_group_in_this_file_and_in_the_grounding_judgments(shared_data):
    folder = shared_data / "mirage"
    judged = read_judgments(next((folder / "grounding_judgments").glob("*cag*.csv")))
    groups = {row.pair.group for row in judged if isinstance(row, Row)}
    assert groups == {row.pair.group for row in rows_of(folder / "human_eval_subset.json")}


def test_every_distinct_claim_meets_every_listed_video_once(tmp_path):
    rows = rows_of(write(tmp_path / "a.json", A_topic=topic()))
    found = {(row.pair.claim, row.pair.evidence[0].path): row.pair for row in rows}  # type: ignore[union-attr]
    assert len(rows) == len(found) == 6
    assert {key for key, pair in found.items() if pair.label == "supported"} == {("seen", "v1.mp4"), ("read", "v2.mp4")}
    assert {pair.label for pair in found.values()} == {"supported", "not_enough"}
    assert Counter(pair.origin for pair in found.values()) == {"annotated": 2, "implicit_negative": 4}
    seen, read_ = found["seen", "v1.mp4"], found["read", "v2.mp4"]
    assert (seen.modality, seen.context, seen.group) == ("visual", "First.", "A topic")
    assert seen.meta == {
        "channels": ["video"],
        "query_id": "q7",
        "language": "english",
        "video_type": "Raw",
        "relevance": 3,
    }
    assert (read_.modality, read_.context, read_.meta["channels"]) == ("mixed", "Second.", ["audio", "ocr"])
    assert {(row.line, row.record) for row in rows} == {(2, "A_topic")}


def test_without_implicit_negatives_only_support_is_left(tmp_path):
    rows = rows_of(write(tmp_path / "a.json", t=topic()), implicit_negatives=False, extension=".webm")
    assert {row.pair.evidence[0].path for row in rows} == {"v1.webm", "v2.webm"}  # type: ignore[union-attr]
    assert {row.pair.origin for row in rows} == {"annotated"}


def test_a_claim_of_two_sentences_is_one_claim_that_names_both(tmp_path):
    rows = rows_of(write(tmp_path / "a.json", t=topic(claims=[["seen", "none"], ["read", "seen"]] * 2)))
    seen = [row.pair for row in rows if row.pair.claim == "seen"]
    assert [(pair.context, pair.meta["other_contexts"]) for pair in seen] == [("First.", ["Second."])] * 2


def test_ids_depend_on_claim_and_video_only(tmp_path):
    one = rows_of(write(tmp_path / "a.json", t=topic()))
    two = rows_of(write(tmp_path / "b.json", other=topic(), t=topic(claims=[["read"], ["none", "seen"]] * 2)))
    assert {row.pair.id for row in one} == {row.pair.id for row in two}


def test_null_descriptions_and_a_missing_query_id_are_no_fault(tmp_path):
    value = topic(query_id=None, videos={"v1": {"language": "english", "video_type": None}, "v2": {}})
    path = write(tmp_path / "a.json", t=value)
    assert rejected_of(path) == []
    assert rows_of(path)[0].pair.meta == {"channels": ["video"], "language": "english"}


def entry(videos: Any, modalities: Any) -> dict[str, Any]:
    return {"supporting_videos": videos, "videos_modalities": modalities}


@pytest.mark.parametrize(
    ("changed", "words", "lost"),
    [
        (entry(["v9"], {"v9": TICKS}), "supporting video is not listed, got 'v9'", 0),
        (entry(["v1"], {}), "contradict each other", 1),
        (entry([], {"v1": TICKS}), "contradict each other", 1),
        (entry(["v1"], {"v1": dict.fromkeys(TICKS, False)}), "contradict each other", 1),
        (entry(["v1"], {"v1": {"audio": True}}), "must tick", 2),
        (entry(["v1"], {"v1": TICKS | {"ocr": 1}}), "must tick", 2),
        (entry([7], {}), "must be a list of video ids", 2),
        (entry(None, None), "must be a list of video ids", 2),
        (None, "must be a list of video ids", 2),
    ],
)
def test_a_damaged_claim_is_listed_and_never_becomes_a_negative(tmp_path, changed, words, lost):
    judged = topic()["claims_to_supporting_videos"] | {"none": changed}
    path = write(tmp_path / "a.json", t=topic(claims_to_supporting_videos=judged))
    (bad,) = rejected_of(path)
    assert words in bad.reason
    assert "'none'" in bad.reason
    assert (bad.id, bad.line, bad.blocking) == ("t", 2, True)
    assert len(rows_of(path)) == 6 - lost


def test_claims_and_entries_that_do_not_meet_are_listed(tmp_path):
    judged = topic()["claims_to_supporting_videos"]
    without = {claim: value for claim, value in judged.items() if claim != "none"}
    path = write(tmp_path / "a.json", t=topic(claims_to_supporting_videos=without | {"extra": entry([], {})}))
    assert [(item.kind, item.pairs) for item in rejected_of(path)] == [
        ("claim has no entry in claims_to_supporting_videos", 2),
        ("claim is in no sentence of `claims`", 2),
    ]
    assert len(rows_of(path)) == 4


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"claims": None}, "claims must be a list"),
        ({"claims": [["seen"]]}, "must be aligned with claims, got 4 for 1"),
        ({"claims": ["seen"] * 4}, "claims must be lists of texts"),
        ({"claims": [[None]] * 4}, "claims must be lists of texts"),
        ({"original_article": [1, 2, 3, 4]}, "original_article must be a list of texts"),
        ({"claims_to_supporting_videos": []}, "must be an object, got []"),
        ({"videos": {}}, "at least one id"),
        ({"videos": {"v1": {}, "watch?v=v1": {}}}, "videos must have different ids"),
        ({"videos": {"": {}}}, "videos must have different ids"),
        ({"videos": {"v1": {"relevance": float("nan")}}}, "texts and whole numbers"),
        ({"videos": ["v1"]}, "videos must be an object"),
        ({"query_id": 5}, "query_id must be text"),
    ],
)
def test_a_damaged_topic_is_listed_with_its_line_and_does_not_hide_the_next(tmp_path, changes, words):
    path = write(tmp_path / "a.json", bad=topic(**changes), good=topic())
    (bad,) = rejected_of(path)
    assert words in bad.reason
    assert (bad.line, bad.id) == (2, "bad")
    assert {row.record for row in rows_of(path)} == {"good"}


def test_a_file_cut_short_gives_the_topics_before_and_says_where_it_broke(tmp_path):
    path = write(tmp_path / "a.json", one=topic(), two=topic())
    text = path.read_text(encoding="utf-8-sig")
    path.write_text(text[:-20], encoding="utf-8")
    assert {row.record for row in rows_of(path)} == {"one"}
    (bad,) = rejected_of(path)
    assert bad.kind == "not valid JSON"
    path.write_text(json.dumps([topic()]))
    assert "not an object" in rejected_of(path)[0].reason
    path.write_text(json.dumps({"t": None}))
    assert "topic must be an object" in rejected_of(path)[0].reason


@pytest.mark.parametrize("channels", [(), ("video", "smell")])
def test_channels_nobody_annotated_are_refused(tmp_path, channels):
    with pytest.raises(ConfigError, match="channels: must be some of"):
        rows_of(write(tmp_path / "a.json", t=topic()), channels=channels)
