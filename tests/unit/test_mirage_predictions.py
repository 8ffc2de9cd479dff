"""Model predictions with citations: every claim meets what its sentence cites, and nobody judged it yet."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from proofreel.core.pairs import VideoSegment, problems_of
from proofreel.data_prep.importers.base import Rejected, Row
from proofreel.data_prep.importers.mirage_predictions import MiragePredictionsOptions, read

COUNTS = {"qwen3_llm_only": 259, "qwen_72b_cag": 316, "qwen_72b_rag": 389}


def topic(**changes: Any) -> dict[str, Any]:
    return {
        "prediction": "First. Second.",
        "sentences": ["First.", "Second."],
        "claims": [["a", "b"], ["c"]],
        "citations": [["/far/away/v1.mp4", "/far/away/v2.mp4", "/other/v1.mp4"], []],
    } | changes


def write(path: Path, **topics: Any) -> Path:
    path.write_text(json.dumps(topics, indent=1), encoding="utf-8")
    return path


def rows_of(path: Path, **options: Any) -> list[Row]:
    return [item for item in read(path, MiragePredictionsOptions(**options)) if isinstance(item, Row)]


def rejected_of(path: Path, **options: Any) -> list[Rejected]:
    return [item for item in read(path, MiragePredictionsOptions(**options)) if isinstance(item, Rejected)]


@pytest.mark.parametrize("system", sorted(COUNTS))
def test_the_real_files_have_the_documented_counts(shared_data, system):
    folder = shared_data / "mirage"
    path = folder / "model_preds" / f"{system}_relevant_citations.json"
    found = list(read(path, MiragePredictionsOptions()))
    pairs = [item.pair for item in found if isinstance(item, Row)]
    assert len(pairs) == len(found) == len({pair.id for pair in pairs}) == COUNTS[system]
    assert len({pair.group for pair in pairs}) == 10
    assert not [problem for pair in pairs for problem in problems_of(pair)]
    listed = {
        id for value in json.loads((folder / "human_eval_subset.json").read_text()).values() for id in value["videos"]
    }
    assert {pair.evidence[0].path.removesuffix(".mp4") for pair in pairs} <= listed  # type: ignore[union-attr]


def test_a_claim_meets_each_video_its_sentence_cites_once(tmp_path):
    path = write(tmp_path / "sys_relevant_citations.json", A_topic=topic())
    pairs = [row.pair for row in rows_of(path)]
    assert [(p.id, p.evidence) for p in pairs] == [
        (f"sys/A_topic/0.{claim}/{video}", (VideoSegment(f"{video}.mp4"),))
        for claim in (0, 1)
        for video in ("v1", "v2")
    ]
    assert {(p.label, p.context, p.group, p.origin) for p in pairs} == {(None, "First.", "A topic", "prediction")}
    assert pairs[0].meta == {
        "system": "sys",
        "sentence": 0,
        "citations": ["/far/away/v1.mp4", "/other/v1.mp4"],
    }


def test_jointly_a_claim_meets_all_cited_videos_together(tmp_path):
    path = write(tmp_path / "sys.json", t=topic())
    pairs = [row.pair for row in rows_of(path, jointly=True)]
    assert [(p.id, p.evidence) for p in pairs] == [
        (f"sys/t/0.{claim}/v1+v2", (VideoSegment("v1.mp4"), VideoSegment("v2.mp4"))) for claim in (0, 1)
    ]
    assert pairs[0].meta["citations"] == ["/far/away/v1.mp4", "/other/v1.mp4", "/far/away/v2.mp4"]


@pytest.mark.parametrize("jointly", [True, False])
def test_a_claim_without_citation_is_listed_and_blocks_nothing(tmp_path, jointly):
    (bad,) = rejected_of(write(tmp_path / "sys.json", t=topic()), jointly=jointly)
    assert (bad.kind, bad.blocking, bad.line, bad.id) == ("claim has no citation", False, 2, "sys/t/1.0")
    assert "'c' in 'Second.'" in bad.reason


def test_the_same_claim_of_two_sentences_stays_two_rows(tmp_path):
    path = write(tmp_path / "sys.json", t=topic(claims=[["a"], ["a"]], citations=[["v1.mp4"], ["v1.mp4"]]))
    assert Counter((row.pair.claim, row.pair.context) for row in rows_of(path)) == {
        ("a", "First."): 1,
        ("a", "Second."): 1,
    }
    assert len({row.pair.id for row in rows_of(path)}) == 2


@pytest.mark.parametrize("citation", ["v1", "watch?v=v1&t=46s", "https://host/watch?v=v1", "/a/b/v1.webm"])
def test_a_citation_is_the_end_of_an_address(tmp_path, citation):
    path = write(tmp_path / "sys.json", t=topic(citations=[[citation], []]))
    assert {row.pair.evidence[0].path for row in rows_of(path, extension=".webm")} == {"v1.webm"}  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"citations": [[]]}, "must be aligned, got lengths {'sentences': 2, 'claims': 2, 'citations': 1}"),
        ({"claims": None}, "claims must be a list with one entry per sentence, got None"),
        ({"sentences": "First."}, "sentences must be a list with one entry per sentence"),
    ],
)
def test_a_damaged_topic_is_listed_with_its_line_and_does_not_hide_the_next(tmp_path, changes, words):
    path = write(tmp_path / "sys.json", bad=topic(**changes), good=topic())
    bad = [item for item in rejected_of(path) if item.blocking]
    assert [(item.line, item.id) for item in bad] == [(2, "bad")]
    assert words in bad[0].reason
    assert {row.record for row in rows_of(path)} == {"good"}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"sentences": [None, "Second."]}, "sentence must be text, got None"),
        ({"claims": [["a", None], ["c"]]}, "claims of a sentence must be a list of texts"),
        ({"claims": ["a", ["c"]]}, "claims of a sentence must be a list of texts"),
        ({"citations": [[None], []]}, "citations of a sentence must be a list of texts"),
        ({"citations": [["v1.mp4", ""], []]}, "citation names no video, got ''"),
    ],
)
def test_a_damaged_sentence_is_listed_and_the_next_one_read(tmp_path, changes, words):
    value = topic(**changes)
    value["citations"][1] = ["v3.mp4"]
    path = write(tmp_path / "sys.json", t=value)
    (bad,) = rejected_of(path)
    assert words in bad.reason
    assert bad.id == "t/0"
    assert [row.pair.claim for row in rows_of(path)] == ["c"]


def test_files_that_are_no_predictions_are_listed(tmp_path):
    path = tmp_path / "sys.json"
    for text, words in [("[]", "not an object"), ('{"t": 1}', "topic must be an object"), ('{"t": {', "JSON")]:
        path.write_text(text)
        assert words in str(rejected_of(path)[0].reason)
        assert rows_of(path) == []
