"""Role-typed facts become claims; what is not an annotation is listed with its line."""

import json
from pathlib import Path

import pytest

from proofreel.core.pairs import Transcript, VideoSegment
from proofreel.data_prep.importers.base import Rejected, Row
from proofreel.data_prep.importers.facts import conceptual_claim, contextual_claim, read_facts

ANNOTATION = {
    "video": "pan.mp4",
    "start_s": 1.0,
    "end_s": 2.5,
    "caption": "chop a carrot",
    "conceptual": {"Action": "chopping", "Object": ["carrot", "board"]},
    "contextual": ["chop carrot"],
    "negative_conceptual": {"Tool": "hammer"},
    "negative_contextual": ["chop onion"],
}


def read(tmp_path: Path, text: str, name: str = "a.jsonl") -> list[Row | Rejected]:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return list(read_facts(path))


def rows_of(tmp_path: Path, *annotations: dict) -> list[Row]:
    found = read(tmp_path, "\n".join(json.dumps(a) for a in annotations))
    assert all(isinstance(item, Row) for item in found), found
    return found  # type: ignore[return-value]


def rejected_of(tmp_path: Path, text: str, name: str = "a.jsonl") -> list[Rejected]:
    return [item for item in read(tmp_path, text, name) if isinstance(item, Rejected)]


def test_roles_and_phrases_become_the_sentences_of_the_format():
    assert conceptual_claim("Action", "chopping") == "Action is chopping."
    assert conceptual_claim("Object", " carrot. ") == "Object is carrot."
    assert contextual_claim("chop carrot") == "Chop carrot."
    assert contextual_claim(" DNA is shown. ") == "DNA is shown."


def test_every_fact_becomes_one_labelled_pair(tmp_path):
    pairs = [row.pair for row in rows_of(tmp_path, ANNOTATION)]
    assert [(p.claim, p.role, p.label, p.origin) for p in pairs] == [
        ("Action is chopping.", "Action", "supported", "annotated"),
        ("Object is carrot.", "Object", "supported", "annotated"),
        ("Object is board.", "Object", "supported", "annotated"),
        ("Chop carrot.", "contextual", "supported", "annotated"),
        ("Tool is hammer.", "Tool", "refuted", "negative_annotated"),
        ("Chop onion.", "contextual", "refuted", "negative_annotated"),
    ]
    assert {p.evidence for p in pairs} == {(VideoSegment("pan.mp4", 1.0, 2.5),)}
    assert {p.group for p in pairs} == {"pan.mp4"}
    assert len({p.id for p in pairs}) == len(pairs)


def test_the_caption_is_kept_but_never_shown_to_the_model(tmp_path):
    pairs = [row.pair for row in rows_of(tmp_path, ANNOTATION)]
    assert {p.context for p in pairs} == {None}
    assert {p.meta["caption"] for p in pairs} == {"chop a carrot"}


def test_optional_keys_reach_the_pairs(tmp_path):
    extra = {
        "id": "seg7",
        "group": "kitchen3",
        "split": "test",
        "caption_implicit": "chop a carrot with a knife",
        "transcript": "Now the carrot.",
        "distractors": ["bowl"],
        "meta": {"cook": 4},
    }
    pair = rows_of(tmp_path, {**ANNOTATION, **extra})[0].pair
    assert (pair.id, pair.group, pair.split) == ("seg7/Action/0", "kitchen3", "test")
    assert pair.evidence[1] == Transcript("Now the carrot.", 1.0, 2.5)
    assert pair.meta["cook"] == 4
    assert pair.meta["distractors"] == ["bowl"]
    assert "chop a carrot with a knife" in pair.meta.values()


def test_null_counts_as_absent(tmp_path):
    nulls = dict.fromkeys(("start_s", "end_s", "group", "caption", "negative_contextual", "meta", "split", "id"))
    pair = rows_of(tmp_path, {**ANNOTATION, **nulls})[0].pair
    assert pair.evidence == (VideoSegment("pan.mp4", 0.0, None),)
    assert pair.meta == {}


def test_two_spellings_of_a_path_are_one_video_and_one_group(tmp_path):
    pairs = [row.pair for row in rows_of(tmp_path, ANNOTATION, {**ANNOTATION, "video": "./x/../pan.mp4", "id": "b"})]
    assert len({p.evidence for p in pairs}) == len({p.group for p in pairs}) == 1


def test_a_list_and_lines_give_the_same_rows_with_the_line_each_starts_on(tmp_path):
    second = {**ANNOTATION, "video": "b.mp4"}
    lines = read(tmp_path, "\ufeff" + json.dumps(ANNOTATION) + "\r\n\n" + json.dumps(second) + "\n")
    text = "[\n" + json.dumps(ANNOTATION, indent=1) + ",\n\n" + json.dumps(second, indent=1) + "\n]\n"
    listed = read(tmp_path, text, "a.json")
    assert [i.pair for i in lines if isinstance(i, Row)] == [i.pair for i in listed if isinstance(i, Row)]
    assert [i.line for i in lines][:: len(lines) - 1] == [1, 3]
    numbers = sorted({i.line for i in listed if i.line})
    assert [text.splitlines()[number - 1] for number in numbers] == ["{", "{"]
    assert len(numbers) == 2


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"captoin": "x"}, "did you mean 'caption'"),
        ({"video": None}, "video must be a file name"),
        ({"video": ""}, "video must be a file name"),
        ({"start_s": "0"}, "start_s must be a finite number"),
        ({"end_s": True}, "end_s must be a finite number"),
        ({"end_s": 10**400}, "end_s must be a finite number"),
        ({"start_s": float("nan")}, "start_s must be a finite number"),
        ({"conceptual": ["Action"]}, "conceptual must map roles"),
        ({"conceptual": {"Action": None}}, "conceptual must map roles"),
        ({"conceptual": {"contextual": "x"}}, "unusable role name"),
        ({"conceptual": {" ": "x"}}, "unusable role name"),
        ({"contextual": "chop"}, "contextual must be a list"),
        ({"negative_contextual": [1]}, "negative_contextual must be a list"),
        ({"transcript": ["a"]}, "transcript must be text"),
        ({"meta": "a"}, "meta must be an object"),
        ({"split": "dev"}, "split is unknown"),
        ({"id": 3}, "id must be text"),
    ],
)
def test_a_wrong_annotation_is_listed_with_its_line_and_does_not_hide_the_next(tmp_path, change, words):
    text = "\n" + json.dumps({**ANNOTATION, **change}) + "\n" + json.dumps(ANNOTATION)
    found = read(tmp_path, text)
    bad = [item for item in found if isinstance(item, Rejected)]
    assert len(bad) == 1
    assert words in bad[0].reason
    assert bad[0].line == 2
    assert sum(isinstance(item, Row) for item in found) == 6


def test_all_faults_of_an_annotation_are_listed(tmp_path):
    bad = rejected_of(tmp_path, json.dumps({**ANNOTATION, "captoin": "x", "split": "dev", "end_s": "3"}))
    assert len(bad) == 3


@pytest.mark.parametrize("value", [3, "text", None, [ANNOTATION]])
def test_a_record_that_is_no_object_is_listed(tmp_path, value):
    bad = rejected_of(tmp_path, json.dumps([value]), "a.json")
    assert "must be an object" in bad[0].reason


def test_an_annotation_without_facts_is_listed(tmp_path):
    assert "holds no facts" in rejected_of(tmp_path, json.dumps({"video": "a.mp4"}))[0].reason


def test_a_truncated_list_gives_the_records_before_the_cut_and_says_where_it_broke(tmp_path):
    text = "[\n" + json.dumps(ANNOTATION) + ",\n" + json.dumps(ANNOTATION)[:40]
    found = read(tmp_path, text, "a.json")
    assert sum(isinstance(item, Row) for item in found) == 6
    assert isinstance(found[-1], Rejected)
    assert found[-1].line == 3
    assert "not read" in found[-1].reason


@pytest.mark.parametrize("end", ["", "\n", ", ", "} ]", "] trailing", " " + json.dumps(ANNOTATION) + "]"])
def test_a_list_that_does_not_end_rightly_is_an_error(tmp_path, end):
    assert len(rejected_of(tmp_path, "[" + json.dumps(ANNOTATION) + end, "a.json")) == 1


def test_a_truncated_line_costs_that_line_only(tmp_path):
    found = read(tmp_path, "\n".join([json.dumps(ANNOTATION)[:50], json.dumps(ANNOTATION), json.dumps(ANNOTATION) * 2]))
    assert [item.line for item in found if isinstance(item, Rejected)] == [1, 3]
    assert sum(isinstance(item, Row) for item in found) == 6


def test_a_key_given_twice_is_an_error_not_a_silent_loss(tmp_path):
    text = json.dumps(ANNOTATION).replace('"Action": "chopping"', '"Action": "chopping", "Action": "frying"')
    assert "given twice in one object, got ['Action']" in rejected_of(tmp_path, text)[0].reason


@pytest.mark.parametrize("name", ["a.json", "a.jsonl"])
def test_text_that_is_not_utf8_is_named_with_its_line(tmp_path, name):
    text = json.dumps({**ANNOTATION, "caption": "cr\xe8me"}, ensure_ascii=False)
    path = tmp_path / name
    path.write_bytes((f"[\n{text}]" if name == "a.json" else f"\n{text}").encode("latin-1"))
    bad = list(read_facts(path))
    assert [(item.line, item.kind) for item in bad if isinstance(item, Rejected)] == [(2, "text is not UTF-8")]


def test_a_json_file_that_is_no_list_is_an_error(tmp_path):
    assert "must be a JSON list" in rejected_of(tmp_path, json.dumps(ANNOTATION, indent=1), "a.json")[0].reason


def test_the_real_clips_give_every_annotated_fact(shared_data):
    path = shared_data / "video-clips" / "annotations.json"
    annotations = json.loads(path.read_text())
    rows = list(read_facts(path))
    assert all(isinstance(row, Row) for row in rows)
    sizes = {label: 0 for label in ("supported", "refuted")}
    for annotation in annotations:
        sizes["supported"] += len(annotation["conceptual"]) + len(annotation["contextual"])
        sizes["refuted"] += len(annotation["negative_conceptual"]) + len(annotation["negative_contextual"])
    pairs = [row.pair for row in rows if isinstance(row, Row)]
    assert {label: sum(p.label == label for p in pairs) for label in sizes} == sizes
    assert len({row.line for row in rows}) == len(annotations) == 22
