"""The raw WikiVideo JSON: lists of ticks, video-major. Layouts made by hand, or from the real normalised file."""

import json
from pathlib import Path
from typing import Any

import pytest

from proofreel.core.errors import ConfigError
from proofreel.data_prep.importers import mirage
from proofreel.data_prep.importers.base import Rejected, Row
from proofreel.data_prep.importers.mirage_grounding import video_name
from proofreel.data_prep.importers.mirage_raw import MirageRawOptions, read

F, T = False, True


def topic(repeated: bool = True, **changes: Any) -> dict[str, Any]:
    """Two videos, two sentences. v1: a is heard, b is not there, c is seen and read. v2: only a, read."""
    sentences = [["First.", ["a", "b"]], ["Second.", ["c"]]]
    return {
        "videos": {"v1": {"language": "english"}, "watch?v=v2": {"language": "burmese"}},
        "audio_lists": [[T, F], [F], [F, F], [F]],
        "video_lists": [[F, F], [T], [F, F], [F]],
        "ocr_lists": [[F, F], [T], [T, F], [F]],
        "neither_lists": [[F, T], [F], [F, T], [T]],
        "video_ocr_lists": [[F, F], [T], [T, F], [F]],
        "claims": sentences * (2 if repeated else 1),
        "original_article": ["First.", "Second."],
        "article": "Text.",
    } | changes


def write(path: Path, **topics: Any) -> Path:
    path.write_text(json.dumps(topics, indent=1), encoding="utf-8")
    return path


def rows_of(path: Path, **options: Any) -> list[Row]:
    return [item for item in read(path, MirageRawOptions(**options)) if isinstance(item, Row)]


def rejected_of(path: Path, **options: Any) -> list[Rejected]:
    return [item for item in read(path, MirageRawOptions(**options)) if isinstance(item, Rejected)]


@pytest.mark.parametrize("repeated", [True, False])
def test_ticks_are_read_video_by_video_and_every_pair_was_judged(tmp_path, repeated):
    pairs = [row.pair for row in rows_of(write(tmp_path / "a.json", A_topic=topic(repeated)))]
    assert [(p.claim, p.evidence[0].path, p.meta["channels"]) for p in pairs] == [  # type: ignore[union-attr]
        ("a", "v1.mp4", ["audio"]),
        ("b", "v1.mp4", []),
        ("c", "v1.mp4", ["video", "ocr"]),
        ("a", "v2.mp4", ["ocr"]),
        ("b", "v2.mp4", []),
        ("c", "v2.mp4", []),
    ]
    assert [p.label for p in pairs] == ["supported" if p.meta["channels"] else "not_enough" for p in pairs]
    assert [p.modality for p in pairs] == ["audio", "visual", "mixed", "ocr", "visual", "visual"]
    assert {(p.group, p.origin) for p in pairs} == {("A topic", "annotated")}
    assert [p.context for p in pairs] == ["First.", "First.", "Second."] * 2
    assert {p.meta["language"] for p in pairs[3:]} == {"burmese"}


def test_the_raw_form_of_the_real_2025_topics_gives_the_pairs_of_the_normalised_form(shared_data, tmp_path):
    path = shared_data / "mirage" / "human_eval_subset.json"
    real = {name: value for name, value in json.loads(path.read_text()).items() if "2025" in value["query_id"]}
    raw = write(tmp_path / "raw.json", **{name: raw_form(value) for name, value in real.items()})
    normalised = [row.pair for row in mirage.read(path, mirage.MirageOptions()) if isinstance(row, Row)]

    def essence(pairs: list[Any]) -> dict[str, Any]:
        return {p.id: (p.claim, p.evidence, p.label, p.context, p.group, p.modality, p.meta["channels"]) for p in pairs}

    found = essence([row.pair for row in rows_of(raw)])
    assert rejected_of(raw) == []
    groups = {mirage.group_of(name) for name in real}
    assert found == essence([pair for pair in normalised if pair.group in groups])
    assert sum(row[2] == "supported" for row in found.values()) == 268


def raw_form(value: dict[str, Any]) -> dict[str, Any]:
    """The documented raw layout of a normalised topic, whose `claims` hold every sentence once per video already."""
    n = len(value["claims"]) // len(value["videos"])
    lists: dict[str, list[list[bool]]] = {f"{c}_lists": [] for c in ("audio", "video", "ocr", "neither", "video_ocr")}
    for video in value["videos"]:
        for claims in value["claims"][:n]:
            ticked = [ticks_of(value["claims_to_supporting_videos"][claim], video) for claim in claims]
            for channel in ("audio", "video", "ocr"):
                lists[f"{channel}_lists"].append([ticks[channel] for ticks in ticked])
            lists["neither_lists"].append([not any(ticks.values()) for ticks in ticked])
            lists["video_ocr_lists"].append([ticks["video"] or ticks["ocr"] for ticks in ticked])
    pairs = [list(pair) for pair in zip(value["original_article"], value["claims"], strict=True)]
    return {"videos": value["videos"], "claims": pairs, **lists}


def ticks_of(judged: dict[str, Any], video: str) -> dict[str, bool]:
    named = {video_name(name): ticks for name, ticks in judged["videos_modalities"].items()}
    return named.get(video, dict.fromkeys(("audio", "video", "ocr"), False))


def test_the_derived_list_may_be_missing_but_must_agree_where_present(tmp_path):
    value = topic()
    del value["video_ocr_lists"]
    assert len(rows_of(write(tmp_path / "a.json", t=value))) == 6
    path = write(tmp_path / "b.json", t=topic(video_ocr_lists=[[F, F], [F], [T, F], [F]]))
    (bad,) = rejected_of(path)
    assert "video_ocr_lists contradicts video and ocr, got False with ['video', 'ocr']" in bad.reason
    assert (len(rows_of(path)), bad.pairs) == (5, 1)


def test_neither_must_be_the_negation(tmp_path):
    path = write(tmp_path / "a.json", t=topic(neither_lists=[[T, T], [F], [F, F], [T]]))
    assert [(item.kind, item.pairs, item.blocking) for item in rejected_of(path)] == [
        ("'neither' contradicts the other ticks", 1, True)
    ] * 2
    assert len(rows_of(path)) == 4


def test_a_claim_of_two_sentences_is_merged_or_listed_where_the_judgments_differ(tmp_path):
    claims = [["First.", ["a", "b"]], ["Second.", ["a"]]] * 2
    path = write(tmp_path / "a.json", t=topic(claims=claims))
    rows, bad = rows_of(path), rejected_of(path)
    (merged,) = [row.pair for row in rows if row.pair.claim == "a"]
    assert merged.meta["channels"] == ["audio", "video", "ocr"]
    assert (merged.meta["judgments"], merged.meta["other_contexts"]) == (2, ["Second."])
    assert merged.meta["language"] == "english"
    assert [(item.kind, item.blocking) for item in bad] == [("judgments conflict", False)] * 2
    assert len(rows) == 3


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"audio_lists": [[T, F], [F], [F, F]]}, "got 3 lists for 4 entries of claims and 2 videos; expected"),
        ({"ocr_lists": [[T, F], [F], [F, F]]}, "ocr_lists has the wrong length, got 3; expected 4 = 2 sentences x 2"),
        ({"video_ocr_lists": [[F, F]]}, "video_ocr_lists has the wrong length, got 1; expected 4"),
        ({"video_ocr_lists": 4}, "video_ocr_lists has the wrong length, got 4; expected 4"),
        ({"neither_lists": None}, "neither_lists must be a list, got None"),
        ({"claims": [["S.", ["a", "b"]], ["T.", ["c"]], ["S.", ["a", "b"]], ["U.", ["c"]]]}, "same for every video"),
        ({"claims": [["S."]]}, "claims must be [sentence, [claim, ...]]"),
        ({"claims": []}, "expected one list per sentence and video"),
        ({"videos": {}}, "at least one id"),
        ({"videos": {"v2": {}, "watch?v=v2&t=3": {}}}, "videos must have different ids"),
    ],
)
def test_a_damaged_topic_is_listed_with_its_line_and_does_not_hide_the_next(tmp_path, changes, words):
    path = write(tmp_path / "a.json", bad=topic(**changes), good=topic())
    (bad,) = rejected_of(path)
    assert words in bad.reason
    assert (bad.line, bad.id) == (2, "bad")
    assert {row.record for row in rows_of(path)} == {"good"}


@pytest.mark.parametrize("inner", [[T], [T, None], [T, 0], None, "TF"])
def test_a_damaged_list_loses_the_claims_of_its_sentence_and_video_alone(tmp_path, inner):
    path = write(tmp_path / "a.json", t=topic(audio_lists=[inner, [F], [F, F], [F]]))
    (bad,) = rejected_of(path)
    assert "audio_lists needs a boolean per claim" in bad.reason
    assert "expected 2 of them: 'v1', 'First.'" in bad.reason
    assert bad.pairs == 2
    assert len(rows_of(path)) == 4


def test_options_are_those_of_the_normalised_form(tmp_path):
    path = write(tmp_path / "a.json", t=topic())
    assert {row.pair.evidence[0].path for row in rows_of(path, extension=".mkv")} == {"v1.mkv", "v2.mkv"}  # type: ignore[union-attr]
    assert [item.kind for item in rejected_of(path, channels=("video",))] == ["support is on no chosen channel"] * 2
    with pytest.raises(ConfigError):
        rows_of(path, channels=("touch",))
    path.write_text(json.dumps({"t": [1]}))
    assert "topic must be an object" in rejected_of(path)[0].reason
