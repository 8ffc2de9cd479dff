"""Scoring on Ray, a small real cluster in this machine: the file of one process, also when a worker is killed."""

import functools
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from numbered_clips import encode

from proofreel import score
from proofreel.core.errors import ConfigError
from proofreel.core.pairs import Pair, VideoSegment
from proofreel.eval import predict
from proofreel.eval.scoring.distributed import score_in_bulk
from proofreel.eval.scoring.ray_blocks import facts_of, packed, ray_cluster, ray_engine, unpacked
from proofreel.eval.scoring.ray_options import RayWorkers
from proofreel.models.verifier.verifier import Verifier

FIXTURE = Path(__file__).parents[1] / "fixtures" / "verifier_v1_1"
TWO = RayWorkers(2)


def open_fixture(media, frame_cache):
    return Verifier.from_pretrained(FIXTURE, device="cpu", media_root=media, frame_cache=frame_cache)


def open_mortal(media, marker, frame_cache):
    """A verifier whose first process to score its second block is killed, as by the kernel; the next ones live."""
    verifier: Any = open_fixture(media, frame_cache)
    ask, n_asked = verifier.score_pairs, []

    def score_pairs(pairs, **options):
        n_asked.append(len(pairs))
        if len(n_asked) == 2 and not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return ask(pairs, **options)

    verifier.score_pairs = score_pairs
    return verifier


@pytest.fixture(scope="module")
def media(tmp_path_factory):
    folder = tmp_path_factory.mktemp("media")
    encode(folder / "a.mp4", n_frames=75)
    return folder


@pytest.fixture(scope="module")
def pairs():
    spans = [VideoSegment("a.mp4", i / 4, 1.0 + i / 4) for i in range(6)] + [VideoSegment("gone.mp4", 0.0, 1.0)]
    return [Pair(f"r{i}", f"Object {i} is red ball.", (spans[i % 7],), group="g") for i in range(21)]


@pytest.fixture(scope="module")
def whole(media, pairs, tmp_path_factory):
    path = tmp_path_factory.mktemp("whole") / "scored.parquet"
    verifier = Verifier.from_pretrained(FIXTURE, device="cpu", media_root=media, prefix_cache_gib=0)
    score_in_bulk(path, verifier, pairs, rows_per_block=3, progress=False)
    return path


@pytest.fixture(scope="module")
def cluster():
    with ray_cluster(TWO) as ray:
        ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers do not import tests
        yield ray


def assert_same(path, other):
    found, expected = pq.read_table(path), pq.read_table(other)
    numbers = ["margin", "p_supported"]
    assert found.drop_columns(numbers).equals(expected.drop_columns(numbers), check_metadata=True)
    for name in numbers:
        a, b = (table[name].to_numpy() for table in (found, expected))
        assert np.allclose(a, b, rtol=1e-5, atol=1e-4 if name == "margin" else 1e-6, equal_nan=True)


def test_pairs_pass_through_the_store_unchanged(pairs):
    assert unpacked(packed(pairs)) == pairs


def test_a_worker_killed_in_the_middle_changes_nothing_and_whole_blocks_are_kept(
    cluster, media, pairs, whole, tmp_path
):
    path, marker = tmp_path / "scored.parquet", tmp_path / "killed"
    opened = functools.partial(open_mortal, media, marker)
    facts = facts_of(opened, TWO)
    options: dict[str, Any] = {
        "rows_per_block": 3,
        "progress": False,
        "elsewhere": ray_engine(opened, facts, TWO, media),
    }
    first = score_in_bulk(path, facts, pairs, **options)
    assert first is not None
    assert first.n_failed == 3
    assert marker.exists()
    assert_same(path, whole)
    again = score_in_bulk(path, facts, pairs, **options)
    assert again is not None
    assert again.n_found == 21


@pytest.mark.nightly
def test_a_dataset_is_scored_by_parts_with_its_bad_rows(cluster, media, pairs, whole, tmp_path):
    from ray import data

    from proofreel.on_ray import score as score_dataset

    rows = [
        {"id": p.id, "claim": p.claim, "video": p.evidence[0].path, "start_s": p.evidence[0].start_s}
        | {"end_s": p.evidence[0].end_s, "group": p.group}
        for p in pairs
    ]
    rows.append(rows[0] | {"id": "bad", "claim": ""})
    given = {"parts": 4, "workers": TWO, "media_root": str(media), "device": "cpu"}
    assert score_dataset(data.from_items(rows), FIXTURE, tmp_path / "out", **given) == 21
    found = {
        row["pair_id"]: row for file in (tmp_path / "out").glob("*.parquet") for row in pq.read_table(file).to_pylist()
    }
    for row in pq.read_table(whole).to_pylist():
        other = found.pop(row["pair_id"])
        assert other["error"] == row["error"]
        assert np.allclose(other["p_supported"], row["p_supported"], atol=1e-6, equal_nan=True)
    (bad,) = found.values()
    assert "claim" in bad["error"]
    before = {file: file.stat().st_mtime_ns for file in (tmp_path / "out").glob("part-00000?.parquet")}
    assert score_dataset(data.from_items(rows), FIXTURE, tmp_path / "out", **given) == 21
    assert before == {file: file.stat().st_mtime_ns for file in before}


@pytest.mark.nightly
def test_the_command_scores_on_ray(cluster, tmp_path, capsys):
    rows = [{"claim": f"Object {i} is red ball.", "text": f"Ball {i % 3} is red."} for i in range(9)]
    claims = tmp_path / "claims.jsonl"
    claims.write_text("".join(json.dumps(row) + "\n" for row in rows))
    given = ["--claims", str(claims), "--device", "cpu", "--quiet", "--untrained-evidence"]
    words = [str(FIXTURE), *given]
    assert score.main([*words, "--out", str(tmp_path / "own.parquet")]) == 0
    assert score.main([*words, "--out", str(tmp_path / "ray.parquet"), "--engine", "ray", "--actors", "1:2"]) == 0
    assert_same(tmp_path / "ray.parquet", tmp_path / "own.parquet")


@pytest.mark.nightly
def test_predictions_and_their_controls_are_those_of_one_process(cluster, colour_dataset, tmp_path, capsys):
    given = ["--verifier", str(FIXTURE), "--data", str(colour_dataset), "--split", "test", "--device", "cpu"]
    given += ["--rows-per-block", "4", "--controls", "mismatched-evidence"]
    for name, more in (("own", []), ("ray", ["--engine", "ray", "--actors", "2"])):
        (tmp_path / name).mkdir()
        assert predict.main([*given, "--out", str(tmp_path / name / "test.parquet"), *more]) == 0, capsys.readouterr()
    files = sorted(file.name for file in (tmp_path / "own").iterdir())
    assert len(files) == 2
    assert files == sorted(file.name for file in (tmp_path / "ray").iterdir())
    for name in files:
        assert_same(tmp_path / "ray" / name, tmp_path / "own" / name)
    again = [*given, "--out", str(tmp_path / "ray" / "test.parquet"), "--engine", "ray"]
    assert predict.main(again) == 0  # all of it is there


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--zero-shot", "x.yaml", "--engine", "ray"], "--engine: only --verifier is spread over a cluster"),
        (["--verifier", str(FIXTURE), "--actors", "2"], "--actors: is read by --engine ray only"),
        (["--verifier", str(FIXTURE), "--engine", "ray", "--actors", "two"], "--actors: must be N or N:M, got 'two'"),
    ],
)
def test_what_a_cluster_would_not_read_is_refused_by_predict(words, reason, colour_dataset, tmp_path, capsys):
    out = ["--data", str(colour_dataset), "--split", "test", "--out", str(tmp_path / "test.parquet")]
    assert predict.main([*words, *out]) == 1
    assert reason in capsys.readouterr().err


@pytest.mark.parametrize("given", [{"actors": 0}, {"actors": (3, 2)}, {"decoders": -1}])
def test_a_pool_of_nobody_is_refused(given):
    with pytest.raises(ConfigError):
        RayWorkers(**given)
