"""The MiRAGE judgments: known counts, no annotator in the data, disagreements reported and kept out."""

import csv
import json
from pathlib import Path

import pytest

from proofreel.core.pairs import problems_of
from proofreel.data_prep.importers.base import Rejected, Row, read_csv_records
from proofreel.data_prep.importers.mirage_grounding import COLUMNS, merge_judgments, read_judgments, video_name

HEADER = [
    "WorkerId",
    "Input.id",
    "Input.payload",
    "Answer.audio",
    "Answer.neither",
    "Answer.ocr",
    "Answer.sanity-check",
    "Answer.video",
    "Turkle.Username",
]
ANNOTATOR = "annotator-jane-doe"
COUNTS = {
    "all_qwen3_llm_only_claims-Batch_3388_results.csv": (541, 2319, 438),
    "all_qwen_72b_cag_claims-Batch_3398_results.csv": (595, 2853, 748),
    "all_qwen_72b_rag_claims-Batch_3386_results.csv": (814, 3583, 763),
}


def task(
    claims: list[str], ticks: dict[str, list[bool]], number: int = 0, video: str = "v1", **payload: object
) -> dict:
    answers = {name: ticks.get(name, [False] * len(claims)) for name in ("audio", "video", "ocr")}
    answers["neither"] = ticks.get("neither", [not any(t) for t in zip(*answers.values(), strict=True)])
    values = {
        "Wiki_Title": "Topic",
        "Claim_Sentence": "A sentence.\nOf two lines.",
        "Extracted_Claims": claims,
        "Video_Url": f"https://host/videos/{video}.mp4",
    }
    row = {"WorkerId": ANNOTATOR, "Turkle.Username": ANNOTATOR, "Input.id": f"t{number}", "Answer.sanity-check": ""}
    row["Input.payload"] = json.dumps(values | payload)
    return row | {f"Answer.{name}": json.dumps(value) for name, value in answers.items()}


def write(path: Path, *tasks: dict) -> Path:
    with path.open("w", newline="", encoding="utf-8-sig") as file:
        writer = csv.DictWriter(file, HEADER, quoting=csv.QUOTE_ALL)
        writer.writeheader()
        writer.writerows(tasks)
    return path


def rows_of(path: Path) -> list[Row]:
    return [item for item in read_judgments(path) if isinstance(item, Row)]


def rejected_of(path: Path) -> list[Rejected]:
    return [item for item in read_judgments(path) if isinstance(item, Rejected)]


@pytest.mark.parametrize("name", sorted(COUNTS))
def test_the_real_files_have_the_documented_counts(shared_data, name):
    path = shared_data / "mirage" / "grounding_judgments" / name
    found = list(read_judgments(path))
    rows = [item for item in found if isinstance(item, Row)]
    assert len(rows) == len(found)
    tasks = list(read_csv_records(path, COLUMNS))  # some tasks of the rag file hold no claim
    assert (len(tasks), len(rows), sum(row.pair.label == "supported" for row in rows)) == COUNTS[name]
    assert not [problem for row in rows for problem in problems_of(row.pair)]


def test_the_real_rag_file_repeats_68_pairs_one_of_them_with_both_labels(shared_data):
    name = "all_qwen_72b_rag_claims-Batch_3386_results.csv"
    rows = rows_of(shared_data / "mirage" / "grounding_judgments" / name)
    merged, conflicts = merge_judgments(rows)
    assert sum("judgments" in row.pair.meta for row in merged) == 67
    assert len(conflicts) == 2
    assert len(rows) == len(merged) + 67 + 2
    assert {item.pairs for item in conflicts} == {1}


def test_supported_means_heard_seen_or_read_and_the_modality_says_which(tmp_path):
    claims = ["heard", "seen", "read", "both", "none"]
    ticks = {
        "audio": [True, False, False, True, False],
        "video": [False, True, False, True, False],
        "ocr": [False, False, True, False, False],
    }
    pairs = {row.pair.claim: row.pair for row in rows_of(write(tmp_path / "a.csv", task(claims, ticks)))}
    assert {c: (p.label, p.modality, p.meta["channels"]) for c, p in pairs.items()} == {
        "heard": ("supported", "audio", ["audio"]),
        "seen": ("supported", "visual", ["video"]),
        "read": ("supported", "ocr", ["ocr"]),
        "both": ("supported", "mixed", ["audio", "video"]),
        "none": ("not_enough", "visual", []),
    }
    assert {(p.group, p.context, p.evidence[0].path) for p in pairs.values()} == {  # type: ignore[union-attr]
        ("Topic", "A sentence.\nOf two lines.", "v1.mp4")
    }


def test_no_column_about_annotators_is_read(tmp_path):
    assert COLUMNS.isdisjoint({"WorkerId", "Turkle.Username", "AssignmentId", "AcceptTime", "SubmitTime"})
    rows = rows_of(write(tmp_path / "a.csv", task(["c"], {})))
    assert rows
    assert ANNOTATOR not in repr(rows)


def test_ids_depend_on_claim_and_video_only(tmp_path):
    one = rows_of(write(tmp_path / "a.csv", task(["x", "y"], {}), task(["x"], {}, 1, video="v2")))
    two = rows_of(write(tmp_path / "b.csv", task(["x"], {}, 1, video="v2"), task(["y", "x"], {}, 9)))
    assert {row.pair.id for row in one} == {row.pair.id for row in two}
    assert len({row.pair.id for row in one}) == 3


def test_repeats_are_merged_with_all_channels_and_counted(tmp_path):
    path = write(tmp_path / "a.csv", task(["c"], {"audio": [True]}), task(["c"], {"ocr": [True]}, 1))
    merged, conflicts = merge_judgments(rows_of(path))
    assert conflicts == []
    assert [row.pair.meta for row in merged] == [{"channels": ["audio", "ocr"], "judgments": 2}]
    assert merged[0].pair.modality == "mixed"


def test_disagreeing_judgments_are_kept_out_and_each_is_listed(tmp_path):
    path = write(tmp_path / "a.csv", task(["c", "d"], {"audio": [True, True]}), task(["c"], {}, 1))
    merged, conflicts = merge_judgments(rows_of(path))
    assert [row.pair.claim for row in merged] == ["d"]
    lines = path.read_text(encoding="utf-8-sig").splitlines()
    assert [lines[item.line - 1].split(",")[1] for item in conflicts if item.line] == ['"t0"', '"t1"']
    assert not any(item.blocking for item in conflicts)


def test_lines_count_where_a_row_starts_even_if_cells_span_lines(tmp_path):
    spread = task(["c"], {})
    spread["Answer.sanity-check"] = "two\nlines"
    path = write(tmp_path / "a.csv", spread, task(["d"], {}, 1))
    assert [row.line for row in rows_of(path)] == [2, 4]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"Answer.audio": "[true"}, "Answer.audio is not JSON"),
        ({"Answer.audio": "[" * 100_000}, "Answer.audio is not JSON"),
        ({"Answer.audio": f"[{'9' * 5000}]"}, "Answer.audio is not JSON"),
        ({"Answer.audio": "true"}, "Answer.audio must be a JSON list"),
        ({"Answer.audio": "[true, false]"}, "must be 1 booleans"),
        ({"Answer.audio": "[1]"}, "must be 1 booleans"),
        ({"Answer.neither": "[false]"}, "'neither' contradicts"),
        ({"Input.payload": "{"}, "Input.payload is not JSON"),
        ({"Input.payload": "[]"}, "must be a JSON dict"),
        ({"Input.payload": "{}"}, "payload needs Wiki_Title"),
    ],
)
def test_a_damaged_task_is_listed_with_its_line_and_does_not_hide_the_next(tmp_path, change, words):
    path = write(tmp_path / "a.csv", task(["x"], {}, 7) | change, task(["y"], {}))
    bad = rejected_of(path)
    assert [(item.line, item.id) for item in bad] == [(2, "t7")]
    assert words in bad[0].reason
    assert [row.pair.claim for row in rows_of(path)] == ["y"]


def test_files_that_are_no_such_export_are_listed(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("Input.id,Answer.audio\n1,2\n")
    assert "columns are missing" in rejected_of(path)[0].reason
    path.write_bytes(b"\xff\xfe" + "Input.id".encode("utf-16-le"))
    assert "not UTF-8" in rejected_of(path)[0].reason
    path.write_text("")
    assert "columns are missing" in rejected_of(path)[0].reason
    path.write_text('Input.id,"Answer.au')
    assert "header is not CSV" in rejected_of(path)[0].reason


def test_a_file_cut_inside_a_cell_gives_the_rows_before_and_says_where_it_broke(tmp_path):
    path = write(tmp_path / "a.csv", task(["x"], {}), task(["y"], {}, 1))
    path.write_text(path.read_text(encoding="utf-8-sig")[:-40], encoding="utf-8")
    assert [row.pair.claim for row in rows_of(path)] == ["x"]
    assert [item.line for item in rejected_of(path)] == [3]


def test_a_video_is_named_by_the_end_of_its_address():
    assert video_name("https://host/videos/abc.mp4") == "abc.mp4"
    assert video_name("https://host/videos/watch?v=abc&t=46s") == "abc"
