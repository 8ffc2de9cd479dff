"""proofreel score: rows in, the same rows out, in order; killed, shared out among processes, or at once: the same."""

import csv
import dataclasses
import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from deciding_verifiers import decision, maker
from numbered_clips import encode

from proofreel import cli, score
from proofreel.core.errors import RowError
from proofreel.core.pairs import Pair, Passage, Transcript, VideoSegment
from proofreel.data_prep.dataset.shards import write_pairs
from proofreel.eval import scoring
from proofreel.eval.scoring import claim_store, distributed
from proofreel.eval.scoring.distributed import Share, score_in_bulk
from proofreel.eval.scoring.predictions import read_predictions
from proofreel.eval.scoring.score import _alone
from proofreel.models.verifier.verifier import Verifier

ROOT = Path(__file__).resolve().parents[2]
FIXTURE = Path(__file__).parents[1] / "fixtures" / "verifier_v1_1"
PAIRS = [  # evidence comes back later in the file: rows that share it do not stand together
    Pair(f"r{i}", f"Object {i} is red ball.", (Passage(f"Ball {i % 9} is red."),), label="supported", group="g")
    for i in range(40)
]
PAIRS[7] = Pair("r7", "Object is red ball.", (VideoSegment("gone.mp4", 0, 1),))


@pytest.fixture(scope="module")
def verifier(tiny_base, small_sampling, tmp_path_factory) -> Verifier:
    make = maker(tiny_base, small_sampling, tmp_path_factory.mktemp("media"))
    return make(decision=decision(), fingerprint="one", prefix_cache_gib=0)


def run(path: Path, verifier: Any, pairs: Any = PAIRS, **options: Any) -> Any:
    return score_in_bulk(path, verifier, pairs, {"a": 1}, rows_per_block=8, progress=False, **options)


@pytest.fixture(scope="module")
def whole(verifier, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("whole") / "deep" / "scored.parquet"
    found = run(path, verifier)
    assert (found.n_rows, found.n_failed, found.n_found) == (40, 1, 0)
    assert [p.name for p in path.parent.iterdir()] == ["scored.parquet"]
    return path


def assert_same(path: Path, other: Path) -> None:
    found, expected = pq.read_table(path), pq.read_table(other)
    numbers = ("margin", "p_supported")
    assert found.drop_columns(list(numbers)).equals(expected.drop_columns(list(numbers)), check_metadata=True)
    m, n = (t["margin"].to_numpy() for t in (found, expected))
    assert np.allclose(m, n, rtol=1e-5, atol=1e-4, equal_nan=True)


def test_rows_are_those_asked_about_in_order_with_the_verifiers_own_verdicts(whole, verifier):
    table = pq.read_table(whole).to_pylist()
    assert [r["pair_id"] for r in table] == [p.id for p in PAIRS]
    for row, verdict in zip(table, verifier.score_pairs(PAIRS), strict=True):
        assert (row["verdict"], row["answer"]) == (verdict.label, verdict.answer) or verdict.label is None
        assert (row["error"] is None) == (verdict.error is None)
        if verdict.error is None:
            assert abs(row["margin"] - verdict.margin) <= 1e-4 + 1e-5 * abs(verdict.margin)
    assert (table[7]["verdict"], table[7]["answer"]) == (None, None)
    rows, source = read_predictions(whole)  # what reports and calibrations read
    assert len(rows) == 40
    assert source["operating_point"] == "balanced"


@pytest.mark.parametrize("world", [2, 3, 9])
def test_several_processes_give_the_file_of_one_whoever_comes_first(verifier, whole, tmp_path, world):
    path = tmp_path / "scored.parquet"
    for rank in range(world - 1, -1, -1):
        assert (run(path, verifier, share=Share(rank, world)) is None) == (rank > 0)
    assert_same(path, whole)
    assert all(run(path, verifier, share=Share(rank, world)) is None for rank in range(1, world))
    assert [p.name for p in tmp_path.iterdir()] == ["scored.parquet"]


def test_a_run_is_taken_up_by_any_number_of_processes(verifier, whole, tmp_path, monkeypatch):
    path, asked, ask = tmp_path / "scored.parquet", [], Verifier.score_pairs
    stopped = iter([False, False, True])

    def until_stopped(verifier, pairs, **options):
        if next(stopped):
            raise KeyboardInterrupt
        return ask(verifier, pairs, **options)

    monkeypatch.setattr(Verifier, "score_pairs", until_stopped)
    with pytest.raises(KeyboardInterrupt):
        run(path, verifier, share=Share(1, 3))
    assert len(list((tmp_path / "scored.parquet.blocks").glob("block-*.parquet"))) == 2
    monkeypatch.setattr(Verifier, "score_pairs", lambda s, p, **k: asked.extend(p) or ask(s, p, **k))
    found = run(path, verifier)
    assert found.n_found + len(asked) == 40
    assert found.n_found >= 8
    assert_same(path, whole)
    assert run(path, verifier).n_found == 40


def test_blocks_of_something_else_are_refused_or_replaced(verifier, whole, tmp_path):
    path = tmp_path / "scored.parquet"
    other = verifier.with_prior(0.1)
    run(path, other, share=Share(1, 2))
    with pytest.raises(RowError, match="something else"):
        run(path, verifier)
    run(path, verifier, overwrite=True)
    assert_same(path, whole)
    for changed in ({"verifier": other}, {"pairs": PAIRS[1:]}, {"operating_point": "strict"}):
        with pytest.raises(RowError, match="something else"):
            run(path, **({"verifier": verifier} | changed))
    assert run(path, verifier, PAIRS[:9], overwrite=True).n_rows == 9
    assert run(tmp_path / "none.parquet", verifier, []).n_rows == 0
    assert pq.read_table(tmp_path / "none.parquet").num_rows == 0


@pytest.mark.parametrize("at", [0, 1, 5])
def test_a_process_that_is_at_work_when_the_first_one_is_done_ends_well(verifier, whole, tmp_path, monkeypatch, at):
    path, look, looks = tmp_path / "scored.parquet", distributed.difference, iter(range(100))

    def look_after_the_end(file, source):
        if next(looks, 100) == at:
            run(path, verifier)
        return look(file, source)

    monkeypatch.setattr(distributed, "difference", look_after_the_end)
    assert run(path, verifier, share=Share(1, 2)) is None
    assert next(looks) > at
    assert_same(path, whole)
    assert [p.name for p in tmp_path.iterdir()] == ["scored.parquet"]


@pytest.mark.parametrize("rank", [0, 1])
def test_blocks_of_a_process_that_never_came_are_scored_by_the_others(verifier, whole, tmp_path, rank):
    path = tmp_path / "scored.parquet"
    run(path, verifier, share=Share(rank, 2))
    if rank:
        assert len(list((tmp_path / "scored.parquet.blocks").glob("block-*.parquet"))) == 5
        run(path, verifier, share=Share(0, 2))
    assert_same(path, whole)


def test_the_first_process_waits_and_says_for_whom_until_a_limit(verifier, whole, tmp_path, monkeypatch):
    path, told, held = tmp_path / "scored.parquet", [], ExitStack()
    monkeypatch.setattr(distributed, "_TELL_EVERY_S", -1.0)
    block = tmp_path / "scored.parquet.blocks" / "block-000003.parquet"
    held.enter_context(_alone(block))
    with pytest.raises(RowError, match="block-000003"):
        run(path, verifier, wait_limit_s=0.0)

    def tell(text: str) -> None:
        told.append(text)
        held.close()

    assert run(path, verifier, tell=tell).n_rows == 40
    assert "waiting for 1 of 5 blocks" in told[0]
    assert_same(path, whole)


# ---- the command


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Two clips, and claims about their spans, in no order, two of them bad."""
    folder = tmp_path_factory.mktemp("score")
    (folder / "videos").mkdir()
    for name in ("a.mp4", "b.mp4"):
        encode(folder / "videos" / name, n_frames=75)
    rows: list[Any] = [
        {"claim": f"Object {i} is red ball.", "video": f"{'ab'[i % 2]}.mp4", "start_s": i % 3 / 2, "end_s": 1.0 + i % 3}
        for i in range(24)
    ]
    rows[5], rows[9] = {"claim": "", "video": "a.mp4"}, {"claim": "Gone.", "video": "gone.mp4"}
    text = (
        "".join(json.dumps(row) + "\n" for row in rows[:20])
        + "{cut\n"
        + "".join(json.dumps(r) + "\n" for r in rows[20:])
    )
    (folder / "claims.jsonl").write_text(text)
    return folder


def words(folder: Path, out: Path, *more: str) -> list[str]:
    given = ["--claims", str(folder / "claims.jsonl"), "--media", str(folder / "videos"), "--out", str(out)]
    return [str(FIXTURE), *given, "--device", "cpu", "--rows-per-block", "4", "--quiet", *more]


@pytest.fixture(scope="module")
def scored(folder) -> Path:
    out = folder / "scored.parquet"
    assert score.main(words(folder, out)) == score.SOME_WITHOUT_SCORE
    return out


def test_the_command_writes_every_row_in_order_and_says_what_has_no_score(folder, scored, tmp_path, capsys):
    rows = pq.read_table(scored).to_pylist()
    assert [r["pair_id"] for r in rows] == [f"claims.jsonl:{n}" for n in range(1, 26)]
    without = {n: r["status"] for n, r in enumerate(rows, start=1) if r["error"] is not None}
    assert without == {6: "bad", 10: "failed", 21: "bad"}
    assert [r["video"] for r in rows[:3]] == ["a.mp4", "b.mp4", "a.mp4"]
    listed = [json.loads(line) for line in (folder / "scored.rejected.jsonl").read_text().splitlines()]
    assert [(r["file"], r["line"]) for r in listed] == [(str(folder / "claims.jsonl"), n) for n in (6, 21)]
    found = Verifier.from_pretrained(FIXTURE, device="cpu", media_root=folder / "videos").score(
        ["Object 0 is red ball."], VideoSegment("a.mp4", 0.0, 1.0)
    )
    assert rows[0]["margin"] == pytest.approx(found[0].margin, abs=1e-4)
    assert score.main(words(folder, scored)) == score.SOME_WITHOUT_SCORE
    said = capsys.readouterr()
    assert "25 rows, 22 scored, 1 failed, 2 bad; 23 of them scored before" in said.out
    assert f"bad row: {folder / 'claims.jsonl'}:6: " in said.err
    assert "gone.mp4" in said.out
    assert score.main(words(folder, tmp_path / "strict.parquet", "--strict")) == 1
    assert not (tmp_path / "strict.parquet").exists()


def test_csv_and_json_lines_hold_the_rows_of_parquet(folder, scored, tmp_path, monkeypatch):
    expected = pq.read_table(scored).to_pylist()
    for name in ("o.csv", "o.jsonl"):
        assert score.main(words(folder, tmp_path / name)) == score.SOME_WITHOUT_SCORE
        first = (tmp_path / name).read_bytes()
        with monkeypatch.context() as patch:
            patch.setattr(Verifier, "score_pairs", None)  # the rows lie beside the file
            assert score.main(words(folder, tmp_path / name)) == score.SOME_WITHOUT_SCORE
        assert (tmp_path / name).read_bytes() == first
    lines = [json.loads(line) for line in (tmp_path / "o.jsonl").read_text().splitlines()]
    with (tmp_path / "o.csv").open(newline="") as file:
        cells = list(csv.DictReader(file))
    for row, line, cell in zip(expected, lines, cells, strict=True):
        assert (line["status"], line["verdict"]) == (row["status"], row["verdict"])
        assert (cell["status"], cell["verdict"]) == (row["status"], row["verdict"] or "")
        assert (line["margin"] is None) == (cell["margin"] == "") == (row["status"] != "scored")
    assert [line.get("claim") for line in lines] == [row["input_claim"] for row in expected]
    (tmp_path / "mine.csv").write_text("a\n")
    assert score.main(words(folder, tmp_path / "mine.csv")) == 1
    assert score.main(words(folder, tmp_path / "o.txt")) == 1
    assert (tmp_path / "mine.csv").read_text() == "a\n"


def test_prior_and_operating_point_shift_and_label(folder, scored, tmp_path, capsys):
    out = tmp_path / "prior.parquet"
    assert score.main(words(folder, out, "--prior", "0.1", "--operating-point", "nothing")) == 1
    assert "operating point" in capsys.readouterr().err
    assert score.main(words(folder, out, "--prior", "0.1")) == score.SOME_WITHOUT_SCORE
    plain, shifted = (pq.read_table(p).to_pylist() for p in (scored, out))
    pairs = [(a, b) for a, b in zip(plain, shifted, strict=True) if a["error"] is None]
    assert all(a["p_supported"] != b["p_supported"] for a, b in pairs)
    assert all(abs(a["margin"] - b["margin"]) < 1e-4 for a, b in pairs)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"--claims": "none.jsonl"}, "no such file"),
        ({"--media": "none"}, "no such folder"),
        ({0: "none/there"}, "none/there"),
    ],
)
def test_what_is_not_there_is_said_in_one_line(folder, tmp_path, capsys, change, reason):
    given: Any = words(folder, tmp_path / "x.parquet")
    for name, value in change.items():
        given[name if name == 0 else given.index(name) + 1] = value
    assert score.main(given) == 1
    assert reason in capsys.readouterr().err.splitlines()[-1]


def test_a_path_that_leaves_the_media_folder_is_a_bad_row_unless_it_is_allowed(folder, tmp_path, capsys):
    (tmp_path / "claims.jsonl").write_text(json.dumps({"claim": "It is red.", "video": "in/../../a.mp4"}) + "\n")
    shutil.copytree(folder / "videos", tmp_path / "a" / "videos")
    (tmp_path / "a" / "videos" / "in").mkdir()
    shutil.move(tmp_path / "a" / "videos" / "a.mp4", tmp_path / "a" / "a.mp4")
    given = [str(FIXTURE), "--claims", str(tmp_path / "claims.jsonl"), "--media", str(tmp_path / "a" / "videos")]
    given += ["--out", str(tmp_path / "out.csv"), "--device", "cpu", "--quiet"]
    assert score.main(given) == 1
    assert "leaves the media root, got `..`" in capsys.readouterr().err
    assert score.main([*given, "--outside-media"]) == 0


def test_a_full_disk_is_one_line(folder, tmp_path, capsys, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(scoring, "score_in_bulk", full)
        assert score.main(words(folder, tmp_path / "x.parquet")) == 1
    assert "the disk is full; free some space" in capsys.readouterr().err.splitlines()[-1]
    small = claim_store._SCHEMA.replace("cache_size", "max_page_count = 9;\nPRAGMA cache_size")
    monkeypatch.setattr(claim_store, "_SCHEMA", small)
    assert score.main(words(folder, tmp_path / "y.parquet")) == 1
    assert "the disk is full; free some space" in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize("change", [["--strict"], ["--operating-point", "none"]])
def test_a_run_that_scores_nothing_leaves_no_claims_behind(folder, tmp_path, capsys, change):
    assert score.main(words(folder, tmp_path / "x.parquet", *change)) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["x.rejected.jsonl"]
    assert capsys.readouterr().err.splitlines()[-1].startswith("error: ")


def test_help_is_listed_and_loads_no_torch():
    assert "score" in cli.COMMANDS
    code = (
        "import sys, proofreel.cli\n"
        "try: proofreel.cli.main(['score', '--help'])\n"
        "except SystemExit as e: sys.exit(e.code or ('torch' in sys.modules) * 3)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "--operating-point" in done.stdout


def test_a_cascade_and_chat_rows_are_scored_by_the_same_command(folder, tmp_path):
    from proofreel.data_prep.exports.rows import media_columns, text_columns
    from proofreel.models.cascades.cascade import Cascade
    from proofreel.models.cascades.plan import Band, CascadePlan, View
    from proofreel.models.decision.calibration import IDENTITY, Calibration

    loaded = Verifier.from_pretrained(FIXTURE, device="cpu", media_root=folder / "videos")
    assert loaded.decision is not None
    identity = Calibration("none", 1.0, 0.0, n=9, n_groups=9, positive_rate=0.5)
    plan = CascadePlan(
        (IDENTITY, IDENTITY), (Band(0.2, 0.8),), dataclasses.replace(loaded.decision, calibration=identity)
    )
    cascade = Cascade([loaded, loaded], views=[View(max_frames=2), View()], plan=plan)
    directory = cascade.save_pretrained(tmp_path / "cascade-dir", [FIXTURE, FIXTURE])
    pairs = [Pair(f"{i}", f"Object {i} is red ball.", (VideoSegment("a.mp4"),), label="supported") for i in range(4)]
    chat = tmp_path / "chat.jsonl"
    prompt = loaded.encoder.prompt
    rows = [text_columns(p, "qwen", prompt, False) | media_columns(["a.mp4"], [], "qwen", 1, 0) for p in pairs]
    chat.write_text("".join(json.dumps(row) + "\n" for row in rows))
    given = words(folder, tmp_path / "out.parquet", "--strict")
    given[0], given[2] = str(directory), str(chat)
    assert score.main(given) == 0
    found = pq.read_table(tmp_path / "out.parquet").to_pylist()
    assert [r["label"] for r in found] == ["supported"] * 4
    expected = cascade.score_pairs(pairs)
    assert [r["margin"] for r in found] == pytest.approx([v.margin for v in expected], abs=1e-3)


def launch(*command: str, **environment: str) -> subprocess.Popen:
    values = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"} | environment
    return subprocess.Popen(
        [sys.executable, *command], cwd=ROOT, env=values, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


@pytest.mark.nightly
def test_a_run_killed_in_the_middle_goes_on_to_the_same_file(folder, scored, tmp_path):
    out = tmp_path / "scored.parquet"
    command = ["-m", "proofreel.score", *words(folder, out)]
    process, deadline = launch(*command), time.monotonic() + 120
    blocks = tmp_path / "scored.parquet.blocks"
    while process.poll() is None and time.monotonic() < deadline and not list(blocks.glob("block-*.parquet")):
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    if not out.exists():  # else it was quicker than us
        assert list(blocks.glob("block-*.parquet"))
    done = launch(*command)
    said, _ = done.communicate(timeout=300)
    assert done.returncode == score.SOME_WITHOUT_SCORE, said
    assert "of them scored before" in said
    assert_same(out, scored)


def test_two_processes_under_accelerate_give_the_rows_order_and_margins_of_one(folder, scored, tmp_path):
    out = tmp_path / "scored.parquet"
    launcher = ["-m", "accelerate.commands.launch", "--multi_gpu", "--num_machines", "1", "--num_processes", "2"]
    launcher += ["--mixed_precision", "no", "--dynamo_backend", "no", "--main_process_port", "0", "--module"]
    process = launch(*launcher, "proofreel.score", *words(folder, out), CUDA_VISIBLE_DEVICES="")
    said, _ = process.communicate(timeout=600)
    assert process.returncode == 0, said
    assert said.count("wrote ") == 1
    assert_same(out, scored)


def test_processes_that_accelerate_leaves_out_are_said(tmp_path):
    (tmp_path / "share.py").write_text("from proofreel.eval.scoring import Share\nprint(Share.of_launcher())\n")
    launcher = ["-m", "accelerate.commands.launch", "--num_machines", "1", "--mixed_precision", "no"]
    launcher += ["--dynamo_backend", "no", "--cpu", "--num_processes"]
    for wanted, warned in (("3", True), ("1", False)):
        said, _ = launch(*launcher, wanted, str(tmp_path / "share.py")).communicate(timeout=300)
        assert "Share(rank=0, world=1)" in said
        assert ("got 3; for that many launch with" in said) == warned


def test_pairs_of_text_alone_need_no_media(tmp_path):
    pairs = [Pair("a", "It is red.", (Transcript("All is red."),)), Pair("b", "It is red.", (Passage("Blue."),))]
    write_pairs(tmp_path / "claims.parquet", pairs)
    given = [str(FIXTURE), "--claims", str(tmp_path / "claims.parquet"), "--out", str(tmp_path / "o.parquet")]
    assert score.main([*given, "--untrained-evidence", "--quiet", "--device", "cpu"]) == 0
    assert read_predictions(tmp_path / "o.parquet")[0][1].error is None
