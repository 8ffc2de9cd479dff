"""A build whose annotations and media lie elsewhere, in an archive, and inside the annotations themselves."""

import io
import json
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from moto.server import ThreadedMotoServer
from numbered_clips import encode
from PIL import Image as Picture
from s3fs import S3FileSystem

from proofreel import Frames, Image, Passage, Verifier, VideoSegment, allow_remote, score
from proofreel.core import MediaError, from_mapping, media_paths, remote
from proofreel.data_prep import build as build_command
from proofreel.data_prep.dataset import read_manifest, read_split
from proofreel.data_prep.media import FrameCache, FrameSampling
from proofreel.data_prep.pipeline import BuildConfig, build
from proofreel.eval import predict
from proofreel.eval.scoring import read_predictions

SAMPLING = FrameSampling(max_frames=4, min_pixels=28 * 28, max_pixels=56 * 56)


@pytest.fixture(autouse=True)
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("PROOFREEL_REMOTE", "")
    monkeypatch.setattr(remote, "REMOTE_DIRECTORY", str(tmp_path / "kept"))
    allow_remote(directory=tmp_path / "kept")
    yield tmp_path / "kept"
    fsspec.filesystem("memory").store.clear()


def opened(address: str, mode: str = "rb") -> Any:
    return fsspec.open(address, mode)


def put(name: str, content: bytes) -> None:
    fsspec.filesystem("memory").pipe_file(f"/{name}", content)


def png(shade: int) -> bytes:
    file = io.BytesIO()
    Picture.fromarray(np.full((40, 60, 3), shade, np.uint8)).save(file, "PNG")
    return file.getvalue()


def config(folder: Path, source: dict, **more: object) -> BuildConfig:
    values = {"output": str(folder / "data"), "sources": [source], "card": False, "shortcut_probe": False, **more}
    values["negatives"] = {"swapped_per_claim": 0}
    values["splits"] = {"train": 1.0, "validation": 0.0, "calibration": 0.0, "test": 0.0}
    return from_mapping(BuildConfig, values, "config")


def test_a_data_set_of_addresses_is_built_and_read(tmp_path: Path, kept: Path):
    for i in range(3):
        put(f"data/clips/{i}.png", png(i))
    put("data/clips/a.mp4", encode(tmp_path / "a.mp4").read_bytes())
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("in/b.png", png(9))
    put("data/clips/pictures.zip", archive.getvalue())
    rows = [
        {"video": "a.mp4", "start": 0.0, "end": 2.0},
        {"frames": ["0.png", "1.png", "2.png"], "times": [0.0, 0.5, 1.0]},
        {"image": "zip://in/b.png::pictures.zip"},
        {"image": "memory://data/clips/0.png"},
        {"image": "gone.png"},
        {"image": "memory://other/0.png"},
        {"video": "a.mp4", "start": 99.0, "end": 100.0},
    ]
    lines = [json.dumps({"claim": f"Claim {i}.", "label": "supported", **row}) for i, row in enumerate(rows)]
    put("data/rows.jsonl", "\n".join(lines).encode())
    columns = {name: name for name in ("video", "start", "end", "frames", "times", "image")}
    source = {"format": "table", "path": "memory://data/rows.jsonl", "options": columns}
    where = {"remote": ["memory://data"], "media_root": "memory://data/clips", "leaks": {"media": "allow"}}
    manifest = build(config(tmp_path, source, **where), skip_invalid=True)  # type: ignore[arg-type]
    pairs = {pair.claim: pair.evidence[0] for pair in read_split(tmp_path / "data", "train")}
    root = "memory://data/clips"
    assert pairs == {
        "Claim 0.": VideoSegment(f"{root}/a.mp4", 0.0, 2.0),
        "Claim 1.": Frames([f"{root}/{i}.png" for i in range(3)], [0.0, 0.5, 1.0]),
        "Claim 2.": Image(f"zip://in/b.png::{root}/pictures.zip"),
        "Claim 3.": Image(f"{root}/0.png"),
    }
    rejected = [json.loads(line)["reason"] for line in (tmp_path / "data/rejected.jsonl").read_text().splitlines()]
    for word in ("gone.png", "other/0.png", "start_s is past the end"):
        assert sum(word in reason for reason in rejected) == 1, rejected
    assert read_manifest(tmp_path / "data") == manifest
    cache = FrameCache(tmp_path / "frames")  # which decodes in a child that can fetch nothing
    shades = [int(cache.read(pairs[f"Claim {i}."], SAMPLING).pixels_FHWC[-1, 0, 0, 0]) for i in (1, 2, 3)]  # type: ignore[arg-type]
    assert shades == [2, 9, 0]
    assert len(cache.read(pairs["Claim 0."], SAMPLING).times_s) == 4  # type: ignore[arg-type]
    allow_remote(directory=kept)
    (tmp_path / "data2").mkdir()
    with pytest.raises(Exception, match="nothing is fetched unless you say so"):
        build(config(tmp_path / "data2", source, **{**where, "remote": []}))  # type: ignore[arg-type]


def test_pictures_of_a_parquet_file_become_media_of_the_data_set(tmp_path: Path):
    column = [{"bytes": png(i % 3), "path": None} for i in range(6)]
    table = pa.table({"claim": [f"Claim {i}." for i in range(6)], "image": column})
    pq.write_table(table, tmp_path / "rows.parquet")
    options = {"image": "image", "constants": ["label=supported"], "store": str(tmp_path / "media")}
    source = {"format": "table", "path": str(tmp_path / "rows.parquet"), "options": options}
    build(config(tmp_path, source))
    pairs = read_split(tmp_path / "data", "train")
    assert len(pairs) == 6
    files = {path for pair in pairs for piece in pair.evidence for path in media_paths(piece)}
    assert len(files) == 3
    assert {Path(path).parents[1] for path in files} == {tmp_path / "media"}


FIXTURES = Path(__file__).parents[1] / "fixtures"
SEEN = Passage("Ball 3 is red.")
CLAIMS = ["Ball 3 is red.", "Ball 3 is blue.", "The ball is gone."]


@pytest.fixture(params=["memory", "s3"])
def bucket(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a bucket with a verifier in it: in this process, and of an S3 server, as its users name it."""
    address = f"{request.param}://bucket"
    with ExitStack() as ends:
        if request.param == "s3":
            server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
            server.start()
            ends.callback(server.stop)
            host, port = server.get_host_and_port()
            monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
            urlopen(
                Request(f"http://{host}:{port}/moto-api/reset", method="POST")
            ).close()  # servers share their buckets
            for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
                monkeypatch.setenv(name, "of-the-test")
            monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
            S3FileSystem.clear_instance_cache()
            ends.callback(S3FileSystem.clear_instance_cache)
            S3FileSystem().mkdir("bucket")
        files, path = fsspec.url_to_fs(f"{address}/verifier/")
        files.put(f"{FIXTURES}/verifier_v1_1/", path, recursive=True)
        allow_remote(address)
        yield address


def test_a_verifier_scores_from_an_address_to_an_address(bucket: str, tmp_path: Path, capsys):
    given: dict = {"device": "cpu", "base": FIXTURES / "tiny_base", "untrained_evidence": True}
    here = Verifier.from_pretrained(FIXTURES / "verifier_v1_1", **given)
    there = Verifier.from_pretrained(f"{bucket}/verifier", **given)
    expected = [verdict.margin for verdict in here.score(CLAIMS, SEEN)]
    assert [verdict.margin for verdict in there.score(CLAIMS, SEEN)] == expected
    rows = [{"id": str(i), "claim": claim, "text": SEEN.text} for i, claim in enumerate(CLAIMS)]
    with opened(f"{bucket}/claims.jsonl", "w") as file:
        file.write("\n".join(map(json.dumps, rows)))
    words = [f"{bucket}/verifier", "--claims", f"{bucket}/claims.jsonl", "--out", f"{bucket}/out/scored.parquet"]
    words += ["--base", str(FIXTURES / "tiny_base"), "--device", "cpu", "--quiet", "--untrained-evidence"]
    assert score.main(words) == 0, capsys.readouterr()
    with opened(f"{bucket}/out/scored.parquet") as file:
        (tmp_path / "scored.parquet").write_bytes(file.read())
    margins = [row.margin for row in read_predictions(tmp_path / "scored.parquet")[0]]
    assert margins == pytest.approx(expected, abs=1e-4)
    assert score.main(words) == 1
    assert "holds something already" in capsys.readouterr().err


def test_a_data_set_is_built_at_an_address_and_predicted_from_there(bucket: str, tmp_path: Path, kept: Path, capsys):
    rows = [{"claim": claim, "text": SEEN.text, "label": "supported", "group": claim} for claim in CLAIMS]
    with opened(f"{bucket}/rows.jsonl", "w") as file:
        file.write("\n".join(map(json.dumps, rows)))
    columns = {"passage": "text", "label": "label", "group": "group"}
    (tmp_path / "build.yaml").write_text(
        json.dumps(
            {
                "output": f"{bucket}/data",
                "remote": [bucket],
                "media_root": bucket,
                "sources": [{"format": "table", "path": f"{bucket}/rows.jsonl", "options": columns}],
                "negatives": {"swapped_per_claim": 0},
                "splits": {"train": 0.0, "validation": 0.0, "calibration": 0.0, "test": 1.0},
                "card": False,
                "shortcut_probe": False,
            }
        )
    )
    assert build_command.main(["--config", str(tmp_path / "build.yaml")]) == 0, capsys.readouterr()
    assert f"--dataset_dir {bucket}/data --output_dir runs/data-run" in capsys.readouterr().out
    with opened(f"{bucket}/data/manifest.json", "r") as file:
        text = file.read()
    assert json.loads(text)["config"]["output"] == f"{bucket}/data"
    assert str(kept / "outputs") not in text
    assert build_command.main(["--config", str(tmp_path / "build.yaml"), "--shard", "1/2"]) == 1
    assert "output: shards meet in a folder of a disk" in capsys.readouterr().err
    words = ["--verifier", f"{bucket}/verifier", "--data", f"{bucket}/data", "--split", "test"]
    words += ["--base", str(FIXTURES / "tiny_base"), "--device", "cpu", "--untrained-evidence"]
    assert predict.main([*words, "--out", f"{bucket}/out/test.parquet"]) == 0, capsys.readouterr()
    with opened(f"{bucket}/out/test.parquet") as file:
        (tmp_path / "test.parquet").write_bytes(file.read())
    assert len(read_predictions(tmp_path / "test.parquet")[0]) == 3
    with pytest.raises(SystemExit):
        predict.main([*words[:3], f"{bucket}/nothing", *words[4:], "--out", f"{bucket}/out/more.parquet"])
    assert "no such folder, got no file below this address" in capsys.readouterr().err


def test_media_are_fetched_from_a_bucket_and_a_missing_one_is_said(bucket: str, tmp_path: Path):
    with opened(f"{bucket}/clips/a.png", "wb") as file:
        file.write(png(7))
    cache = FrameCache(tmp_path / "frames")
    assert int(cache.read(Image(f"{bucket}/clips/a.png"), SAMPLING).pixels_FHWC[0, 0, 0, 0]) == 7
    with pytest.raises(MediaError, match=r"clips/gone\.png: no such file"):
        cache.read(Image(f"{bucket}/clips/gone.png"), SAMPLING)
