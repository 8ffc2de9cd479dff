"""What a caller holds, as evidence and pairs: read as what it is, or refused with an example; never misread."""

import base64
import io
import json
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image as Picture

from proofreel import as_pairs
from proofreel.core import Audio, Image, MediaError, ModelInputError, Pair, Passage, RowError, Transcript, VideoSegment
from proofreel.data_prep.dataset import write_pairs
from proofreel.data_prep.importers import IMPORTERS, Row, read_cues
from proofreel.data_prep.media import read_image
from proofreel.models.decision import Ranked, failed
from proofreel.models.questions import as_claims, as_evidence, as_evidences, is_one_pair

CLAIM = "The pan is on the stove."
SRT = "1\n00:00:01,000 --> 00:00:02,000\nTake a pan.\n\n2\n00:00:05,000 --> 00:00:06,000\nNow a lid.\n"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with files of every kind; nothing here is decoded but the picture."""
    monkeypatch.chdir(tmp_path)
    for name in ("clip.mp4", "my clip.MOV", "sound.mp3"):
        (tmp_path / name).touch()
    Picture.fromarray(np.arange(60, dtype=np.uint8).reshape(4, 5, 3)).save(tmp_path / "still.png")
    (tmp_path / "said.srt").write_text(SRT, encoding="utf-8")
    (tmp_path / "note.txt").write_text("A pan is hot.", encoding="utf-8")
    return tmp_path


HELD: list[tuple[Any, tuple[Any, ...]]] = [
    ("clip.mp4", (VideoSegment("clip.mp4"),)),
    (" clip.mp4\n", (VideoSegment("clip.mp4"),)),
    ("my clip.MOV", (VideoSegment("my clip.MOV"),)),
    ("still.png", (Image("still.png"),)),
    (Path("clip.mp4"), (VideoSegment("clip.mp4"),)),
    (Path("gone.mp4"), (VideoSegment("gone.mp4"),)),  # judged, and failed with its reason
    (VideoSegment(Path("clip.mp4"), 1.0), (VideoSegment("clip.mp4", 1.0),)),  # type: ignore[arg-type]
    ("said.srt", (Transcript("Take a pan. Now a lid.", 0.0, 6.0),)),
    (("said.srt", 4, 7), (Transcript("Now a lid.", 4.0, 7.0),)),
    ("note.txt", (Passage("A pan is hot."),)),
    ("A pan is hot.", (Passage("A pan is hot."),)),
    ("She says clip.mp4 is here.", (Passage("She says clip.mp4 is here."),)),
    ("line one\nclip.mp4", (Passage("line one\nclip.mp4"),)),
    ("data: a pan", (Passage("data: a pan"),)),
    (Passage("clip.mp4"), (Passage("clip.mp4"),)),
    (Path("sound.mp3"), (Audio("sound.mp3"),)),  # a verifier that hears nothing refuses it, and says what to give
    (("sound.mp3", 1, 2.5), (Audio("sound.mp3", 1.0, 2.5),)),
    (Audio("gone.wav", 1.0), (Audio("gone.wav", 1.0),)),
    (("clip.mp4", 2.8, 9.4), (VideoSegment("clip.mp4", 2.8, 9.4),)),
    (["clip.mp4", np.float32(2), None], (VideoSegment("clip.mp4", 2.0),)),
    ((Path("clip.mp4"), "0:05", "1:09.5"), (VideoSegment("clip.mp4", 5.0, 69.5),)),
    (("clip.mp4", "A pan."), (VideoSegment("clip.mp4"), Passage("A pan."))),
    ([("clip.mp4", 1, 2), Image("a.png")], (VideoSegment("clip.mp4", 1.0, 2.0), Image("a.png"))),
    ({"kind": "video", "path": "a.mp4", "start_s": 1.0, "end_s": None, "text": None}, (VideoSegment("a.mp4", 1.0),)),
    ({"video": "clip.mp4", "start": "0:02", "end": 3}, (VideoSegment("clip.mp4", 2.0, 3.0),)),
    ({"path": "clip.mp4", "start_s": 2}, (VideoSegment("clip.mp4", 2.0),)),
    ({"path": "still.png", "bytes": None}, (Image("still.png"),)),
    ({"text": "still.png"}, (Passage("still.png"),)),
    (json.dumps([{"kind": "passage", "text": "x"}]), (Passage("x"),)),
    (Ranked(0, Image("a.png"), failed("")), (Image("a.png"),)),
]


@pytest.mark.parametrize(("held", "evidence"), HELD)
def test_what_is_held_is_read_as_what_it_is(here, held, evidence):
    assert as_evidence(held) == evidence


def test_cues_are_what_is_said(here):
    assert as_evidence(read_cues(here / "said.srt")) == (Transcript("Take a pan. Now a lid.", 1.0, 6.0),)


WRONG: list[tuple[Any, str]] = [
    ("gone.mp4", "gone.mp4"),  # text before: the words of its name were judged
    ("my gone clip.mp4", "Passage('my gone clip.mp4')"),
    ("https://host/clip.mp4?x=1", "download"),
    (Path("."), "folder"),
    (3, "e.g."),
    (None, "e.g."),
    ([], "e.g."),
    (("A pan is hot.", 3), "e.g."),
    ({"vidoe": "clip.mp4"}, "vidoe"),
    ({"kind": "smell"}, "kind"),
    (("still.png", 1, 2), "video"),
    (np.zeros((2, 3, 4, 3), np.uint8), "picture"),
    (b"nothing", "bytes"),
]


@pytest.mark.parametrize(("held", "word"), WRONG)
def test_what_is_no_evidence_is_refused_in_one_sentence(here, held, word):
    with pytest.raises(ModelInputError) as caught:
        as_evidence(held)
    assert word in str(caught.value)
    assert isinstance(caught.value, ValueError)


def test_a_relative_name_starts_from_the_media_root_and_then_from_the_working_folder(here):
    (here / "root").mkdir()
    (here / "root" / "other.mp4").touch()
    assert as_evidence("other.mp4", here / "root") == (VideoSegment("other.mp4"),)
    assert as_evidence("clip.mp4", here / "root") == (VideoSegment(str(here / "clip.mp4")),)
    with pytest.raises(ModelInputError, match="root"):
        as_evidence("third.mp4", here / "root")


def stored(image: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


@pytest.mark.parametrize(
    "held",
    [
        lambda p: p,
        np.asarray,
        stored,
        lambda p: {"bytes": stored(p), "path": "clip.mp4"},
        lambda p: "data:image/png;base64," + base64.b64encode(stored(p)).decode(),
        lambda p: {"image": p},
    ],
    ids=["pillow", "array", "bytes", "datasets", "url", "column"],
)
def test_a_picture_in_memory_is_an_image_of_the_same_pixels(here, held):
    with Picture.open("still.png") as picture:
        (image,) = as_evidence(held(picture))
        again = as_evidence(held(picture))
    assert isinstance(image, Image)
    assert np.array_equal(read_image(image.path), read_image("still.png"))
    assert again == (image,)  # one file, so the same evidence


def test_a_picture_keeps_its_orientation(here):
    exif = Picture.Exif()
    exif[0x0112] = 6
    with Picture.open("still.png") as picture:
        picture.convert("RGB").save("turned.jpg", exif=exif)
    with Picture.open("turned.jpg") as turned:
        (image,) = as_evidence(turned)
    assert isinstance(image, Image)
    assert np.array_equal(read_image(image.path), read_image("turned.jpg"))


# Claims.


def test_claims_are_one_sentence_or_any_sequence_of_them():
    many = [(CLAIM, None), ("No.", None)]
    assert as_claims(CLAIM) == many[:1]
    for held in (
        [CLAIM, "No."],
        (CLAIM, "No."),
        pd.Series([CLAIM, "No."]),
        np.array([CLAIM, "No."]),
        iter([CLAIM, "No."]),
    ):
        assert as_claims(held) == many
    assert as_claims([CLAIM, "No."], "All of it.") == [(CLAIM, "All of it."), ("No.", "All of it.")]
    assert as_claims([CLAIM, "No."], [None, "x"]) == [(CLAIM, None), ("No.", "x")]


@pytest.mark.parametrize(
    "held", [3, None, [3], {"claim": CLAIM}, VideoSegment("a.mp4"), "clip.mp4", [CLAIM, "gone.mp4"]]
)
def test_what_is_no_claim_is_refused_with_an_example(held):
    with pytest.raises(ModelInputError, match=r"e\.g\. verifier\.score"):
        as_claims(held)


def test_another_number_of_contexts_is_refused():
    with pytest.raises(ModelInputError, match="1 for 2"):
        as_claims(["a", "b"], ["x"])


# Pairs.

PLAIN = {"claim": CLAIM, "video": "clip.mp4", "start_s": 2.0, "end_s": 4.0}
SEGMENT = (VideoSegment("clip.mp4", 2.0, 4.0),)
ONE: list[Any] = [
    Pair(claim=CLAIM, evidence=SEGMENT),
    Pair(claim=CLAIM, evidence=("clip.mp4", 2, 4)),  # type: ignore[arg-type]
    (CLAIM, ("clip.mp4", 2, 4)),
    (CLAIM, "clip.mp4", 2, 4),
    [CLAIM, {"video": "clip.mp4", "start": "0:02", "end": "0:04"}],
    PLAIN,
    pd.Series(PLAIN),
    {"claim": CLAIM, "evidence": SEGMENT},
    {"claim": CLAIM, "evidence": "clip.mp4", "start_s": 2, "end_s": 4, "annotator": "x"},
    {"claim": CLAIM, "evidence": '[{"kind": "video", "path": "clip.mp4", "start_s": 2, "end_s": 4}]'},
    {**PLAIN, "image": float("nan"), "transcript": None, "text": "", "score": 3},
]


@pytest.mark.parametrize("held", ONE)
def test_a_pair_in_any_shape_is_that_pair_and_needs_no_id(here, held):
    (pair,) = as_pairs([held])
    assert (pair.id, pair.claim, pair.evidence) == ("0", CLAIM, SEGMENT)
    assert pair.modality == "visual"
    assert is_one_pair(held)
    assert as_pairs(held) == [pair]


ROWS = [PLAIN, {"claim": "No.", "video": "my clip.MOV", "start_s": 0.0, "end_s": 1.0}]
TABLES: dict[str, Any] = {
    "list": lambda: ROWS,
    "tuple": lambda: tuple(ROWS),
    "generator": lambda: (row for row in ROWS),
    "pandas": lambda: pd.DataFrame(ROWS, index=[7, 3]),
    "arrow": lambda: pa.Table.from_pylist(ROWS),
    "datasets": lambda: datasets.Dataset.from_list(ROWS),
    "streamed": lambda: datasets.Dataset.from_list(ROWS).to_iterable_dataset(),
    "batch": lambda: datasets.Dataset.from_list(ROWS)[:2],
    "columns": lambda: {name: [row[name] for row in ROWS] for name in PLAIN},
    "zip": lambda: zip([CLAIM, "No."], [("clip.mp4", 2, 4), ("my clip.MOV", 0, 1)], strict=True),
}


@pytest.mark.parametrize("table", TABLES)
def test_tables_are_read_row_by_row_in_order(here, table):
    pairs = as_pairs(TABLES[table](), one_each=True)
    assert [(p.claim, p.evidence) for p in pairs] == [
        (CLAIM, SEGMENT),
        ("No.", (VideoSegment("my clip.MOV", 0.0, 1.0),)),
    ]
    assert [p.id for p in pairs] == ["0", "1"]
    assert as_evidences(ROWS if table in ("zip", "generator", "streamed") else TABLES[table]()) == [
        p.evidence for p in pairs
    ]


def test_pictures_of_a_data_set_are_taken_as_they_are_stored(here):
    rows = {"claim": [CLAIM], "image": [str(here / "still.png")]}
    data = datasets.Dataset.from_dict(rows).cast_column("image", datasets.Image())
    for held in (data, [data[0]]):
        (image,) = as_pairs(held)[0].evidence
        assert isinstance(image, Image)
        assert np.array_equal(read_image(image.path), read_image("still.png"))
    assert as_pairs(data)[0].evidence == (Image(str(here / "still.png")),)


def test_rows_of_our_own_files_and_importers_are_pairs(here):
    pairs = [
        Pair("a", CLAIM, (*SEGMENT, Passage("x")), "supported", role="Tool", meta={"k": [1]}),
        Pair("b", "No.", (Image("still.png"),), "refuted", modality="ocr", teacher_margin=-1.5),
    ]
    for name in ("a.parquet", "a.jsonl"):
        write_pairs(here / name, pairs)
        assert as_pairs(here / name) == pairs
        assert as_pairs(list(IMPORTERS["pairs"].read(here / name))) == pairs
    assert as_pairs(pd.read_parquet("a.parquet")) == pairs
    assert as_pairs(pq.read_table("a.parquet")) == pairs
    assert as_pairs([json.loads(line) for line in (here / "a.jsonl").read_text().splitlines()]) == pairs
    pd.DataFrame(ROWS).to_csv("rows.csv", index=False)
    assert [p.evidence for p in as_pairs("rows.csv")] == [p.evidence for p in as_pairs(ROWS)]


def test_a_record_of_several_facts_is_several_pairs_but_never_one_row_of_several_verdicts():
    record = {"video": "pan.mp4", "start_s": 1, "conceptual": {"Tool": "pan"}, "contextual": ["flip it"]}
    assert [p.claim for p in as_pairs([record])] == ["Tool is pan.", "Flip it."]
    assert [p.role for p in as_pairs(record)] == ["Tool", "contextual"]
    with pytest.raises(ModelInputError, match=r"pair 0: holds 2 claims.*as_pairs"):
        as_pairs([record], one_each=True)
    del record["contextual"]
    assert len(as_pairs([record], one_each=True)) == 1


def test_labels_and_splits_of_other_people_do_not_stand_in_the_way():
    rows = [{**PLAIN, "label": label, "split": "dev"} for label in (1, 0.0, True, "refuted", "yes", None)]
    assert [p.label for p in as_pairs(rows)] == ["supported", "refuted", "supported", "refuted", None, None]
    assert {p.split for p in as_pairs(rows)} == {None}


def test_a_missing_cell_fails_its_own_row_only(here):
    rows = pd.DataFrame([PLAIN, {"claim": None, "video": "clip.mp4"}, {"claim": "No.", "video": None}])
    pairs = as_pairs(rows)
    assert [(p.claim, bool(p.evidence)) for p in pairs] == [(CLAIM, True), ("", True), ("No.", False)]


WRONG_PAIRS: list[tuple[Any, str]] = [
    (3, "must be a list"),
    ("a sentence", "must be a list"),
    (["a sentence", "another", "third"], "pair 0"),
    ([("a", "b", "c")], "in a list"),
    ([(VideoSegment("a.mp4"), "A pan.")], "pair 0"),
    ([(CLAIM, "x"), ("clip.mp4", CLAIM)], "pair 1: names a media file"),
    ([(CLAIM, "x"), (CLAIM, "gone.mp4")], "pair 1: names a file that is not there"),
    ([{"claim": CLAIM}], "no column names evidence"),
    ([{"Claim": CLAIM, "video": "clip.mp4"}], "rename 'Claim'"),
    ([{"claim": CLAIM, "vidoe": "clip.mp4", "text": "x"}], "did you mean 'video'"),
    ([{"claim": CLAIM, "video": "clip.mp4", "start_time": 3}], "start_time"),
    ([{"claim": CLAIM, "video": "clip.mp4", "begin": 3}], "begin"),
    ([{"claim": CLAIM, "text": "x", "start_s": 3}], "times belong"),
    ([{"claim": CLAIM, "evidence": "A pan.", "start_s": 3}], "times belong"),
    ([{**PLAIN, "start_s": "soon"}], "start_s"),
    ([{"claim": 3, "text": "x"}], "must be a sentence"),
    ({"train": datasets.Dataset.from_list([PLAIN])}, r"data\['train'\]"),
]


@pytest.mark.parametrize(("held", "words"), WRONG_PAIRS)
def test_what_is_no_pair_is_refused_with_its_place_and_an_example(here, held, words):
    with pytest.raises(ModelInputError, match=words):
        as_pairs(held)


def test_a_file_with_bad_rows_is_refused_with_the_first_of_them(here):
    (here / "rows.jsonl").write_text(json.dumps(PLAIN) + "\n" + json.dumps({"claim": "", "video": "a.mp4"}) + "\n")
    with pytest.raises(RowError, match=r"rows\.jsonl:2.*1 bad rows"):
        as_pairs("rows.jsonl")


def test_an_unreadable_transcript_is_an_error_of_its_file(here):
    (here / "bad.srt").write_text("1\nnever --> never\nx\n")
    with pytest.raises(MediaError, match=r"bad\.srt"):
        as_evidence("bad.srt")


def test_named_tuples_of_a_table_are_rows_and_a_column_holds_one_evidence_each(here):
    table = pd.DataFrame({"claim": [CLAIM] * 2, "video": ["clip.mp4"] * 2, "start_s": [0, 1], "end_s": [2.0, None]})
    pairs = as_pairs(table)
    assert as_pairs(list(table.itertuples())) == pairs
    assert as_pairs(next(iter(table.itertuples(index=False)))) == pairs[:1]
    whole = [(VideoSegment("clip.mp4"),)] * 2
    assert len(as_evidences(np.zeros((4, 5, 3), np.uint8))) == 1
    assert len(as_evidences((here / "still.png").read_bytes())) == 1
    for column in (table["video"], pa.chunked_array([["clip.mp4"] * 2]), table["video"].to_numpy()):
        assert as_evidences(column) == whole
    assert as_evidences(table.drop(columns="claim").itertuples(index=False)) == [pair.evidence for pair in pairs]


def test_a_text_that_names_a_path_that_is_there_is_never_judged_as_words(here):
    (here / "shots").mkdir()
    (here / "shots" / "first").touch()
    assert as_evidence("shots/first") == (VideoSegment("shots/first"),)
    with pytest.raises(ModelInputError, match="folder"):
        as_evidence(str(here / "shots"))
    for words in ("shots", "salt and/or pepper", "shots/none"):
        assert as_evidence(words) == (Passage(words),)


def test_records_of_formats_that_stand_alone_are_the_pairs_of_their_importer(here):
    question = {"qid": 7, "video_uid": "vid", "question": "What colour is the car?", "answer": "Red", "duration": 600}
    question |= {"choices": ["Blue", "Red"], "right_answer": "B", "clue_intervals": [[50, 60]], "domain": "Driving"}
    recipe = {"annotations": [{"segment": [1, 3], "sentence": "cut it", "id": 0}], "subset": "training", "duration": 9}
    for name, held, records in (
        ("cgbench", [question | {"sub_category": "x"}], [question | {"sub_category": "x"}]),
        ("youcook2", {"database": {"abc": recipe}}, {"database": {"abc": recipe}}),
    ):
        (here / "records.json").write_text(json.dumps(records), encoding="utf-8")
        rows = list(IMPORTERS[name].read(here / "records.json", (IMPORTERS[name].options or dict)()))
        assert as_pairs(held) == [row.pair for row in rows if isinstance(row, Row)] != []
