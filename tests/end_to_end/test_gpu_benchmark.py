"""benchmarks/gpu.py at small shapes: every part but the kitchen's pretraining runs, and nothing is measured twice."""

import json
from argparse import Namespace

import pytest

from benchmarks import gpu
from benchmarks.gpu_parts.cells import Part, Rows, run_part, table

PRESETS = ("qwen25_7b_text_lora", "qwen25vl_7b_nli_lora")
QUICK = ("--device", "cpu", "--shape", "tiny", "--rounds", "1", "--cell-s", "0.1", "--limit-s", "1")


def words_of(folder):
    paths = ("--rows", str(folder / "rows.jsonl"), "--work", str(folder / "work"), "--out", str(folder / "page.md"))
    parts = [part for part in gpu.PARTS if part != "kitchen"]
    return [*QUICK, *paths, "--parts", *parts, "--presets", *PRESETS]


def test_every_part_runs_writes_its_table_and_is_not_measured_again(tmp_path):
    assert gpu.main(words_of(tmp_path)) == 0
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert {row["state"] for row in rows} == {"began", "measured"}
    found = {row["part"]: row["values"] for row in rows if row["state"] == "measured"}
    assert set(found) == set(gpu.PARTS) - {"kitchen"}
    assert found["scoring"]["of counted"] == found["scoring"]["measured x"] / found["scoring"]["counted x"]
    assert found["first"]["after two steps"] < found["first"]["first loss"]
    assert found["precision"]["margins"] == 32
    assert found["precision"]["largest difference"] < 1
    assert found["largest"] == {"largest": 4, "more were tried": False}

    page = (tmp_path / "page.md").read_text()
    assert all(preset in page for preset in PRESETS)
    assert gpu.main(words_of(tmp_path)) == 0
    assert len((tmp_path / "rows.jsonl").read_text().splitlines()) == len(rows)
    assert (tmp_path / "page.md").read_text().count("\n## ") == page.count("\n## ") == 7


def measured(part, file, *, deadline=float("inf"), again=False):
    rows = Rows.read(file)
    return run_part(part, Namespace(again=again), rows, deadline), rows


@pytest.fixture
def part():
    """Cells 0, 1 and 2, of which 1 fails."""

    def measure(_, setting):
        if setting["i"] == 1:
            raise ValueError("no such luck\nand more")
        return {"square": setting["i"] ** 2}

    return Part("squares", "How large?", lambda _: ({"i": i} for i in range(3)), measure)


def test_a_cell_that_fails_is_written_down_and_the_others_are_measured(part, tmp_path):
    done, rows = measured(part, tmp_path / "rows.jsonl")
    assert done
    assert [row.get("values") for row in rows.ended("squares")] == [{"square": 0}, None, {"square": 4}]
    assert "| 1 |  | ValueError: no such luck |" in table(part, rows)
    n = len(rows.lines)
    assert len(measured(part, tmp_path / "rows.jsonl")[1].lines) == n
    assert len(measured(part, tmp_path / "rows.jsonl", again=True)[1].lines) == n + 2


def test_after_the_deadline_no_cell_begins_and_the_next_call_goes_on(part, tmp_path):
    done, rows = measured(part, tmp_path / "rows.jsonl", deadline=0.0)
    assert not done
    assert rows.lines == []
    assert measured(part, tmp_path / "rows.jsonl")[0]


def test_a_cell_that_twice_never_ended_is_given_up_and_a_torn_line_is_left_out(part, tmp_path):
    file = tmp_path / "rows.jsonl"
    began = json.dumps({"part": "squares", "setting": {"i": 2}, "state": "began"})
    file.write_text(f"{began}\n{began}\n{began[:20]}")
    _, rows = measured(part, file)
    assert {row["setting"]["i"]: row.get("error") for row in Rows.read(file).ended("squares")} == {
        0: None,
        1: "ValueError: no such luck",
        2: "did not end",
    }
    assert rows.of("squares", {"i": 0})[-1]["state"] == "measured"
