"""Pictures that a table holds as bytes: kept by content, checked like files, a few rows at a time."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image as Picture

from proofreel.core import Frames, Image, MediaError, media_paths
from proofreel.data_prep.exports import given_rows, read_claims
from proofreel.data_prep.importers import IMPORTERS, Rejected
from proofreel.data_prep.importers.table import TableOptions
from proofreel.data_prep.media import frames, picture_files, read_image


def picture(shade: int, format: str = "PNG", side: int = 8) -> bytes:
    file = io.BytesIO()
    Picture.fromarray(np.full((side, side, 3), shade, np.uint8)).save(file, format)
    return file.getvalue()


def hf(data: bytes | None, path: str | None = None) -> dict[str, Any]:
    return {"bytes": data, "path": path}


@pytest.fixture(autouse=True)
def pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(picture_files, "REMOTE_DIRECTORY", str(tmp_path / "cache" / "remote"))
    return picture_files.picture_directory()


def rows(path: Path, options: TableOptions) -> list[Any]:
    items = list(IMPORTERS["table"].read(path, options))
    return [item if isinstance(item, Rejected) else item.pair for item in items]


def test_pictures_of_datasets_become_files_named_by_what_they_hold(tmp_path):
    column = [hf(picture(1)), hf(picture(2, "JPEG"), "a.jpg"), hf(picture(1)), hf(None, "b.png"), None]
    table = pa.table({"claim": [f"Claim {i}." for i in range(5)], "image": column})
    pq.write_table(table, tmp_path / "rows.parquet")
    options = TableOptions(image="image", constants=("label=supported",), store=str(tmp_path / "media"))
    first, second, third, named, none = rows(tmp_path / "rows.parquet", options)
    assert first.evidence == third.evidence
    assert (read_image(first.evidence[0].path) == 1).all()
    assert Path(second.evidence[0].path).suffix == ".jpg"
    assert named.evidence == (Image("b.png"),)
    assert isinstance(none, Rejected)
    assert len([path for path in (tmp_path / "media").rglob("*") if path.is_file()]) == 2
    assert first.group != second.group
    stated = rows(tmp_path / "rows.parquet", TableOptions(image="image", constants=("label=supported",)))
    assert "options.store" in str(stated[0])


def test_lists_of_pictures_are_frames_with_times_and_images_without(tmp_path):
    column = [[hf(picture(1)), hf(picture(2))]]
    images = [[picture(3), picture(4)]]
    table = pa.table({"claim": ["A claim."], "frames": column, "times_s": [[0.0, 0.5]], "image": images})
    pq.write_table(table, tmp_path / "rows.parquet")
    (pair,) = read_claims(tmp_path / "rows.parquet").pairs
    sampled, *images = pair.evidence
    assert isinstance(sampled, Frames)
    assert [int(read_image(path)[0, 0, 0]) for path in sampled.paths] == [1, 2]
    assert [int(read_image(path)[0, 0, 0]) for image in images for path in media_paths(image)] == [3, 4]


@pytest.mark.parametrize("data", [b"no picture", picture(1)[:40], b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n"])
def test_bytes_that_are_no_picture_are_rejected_row_by_row(tmp_path, data):
    table = pa.table({"claim": ["A claim.", "Another."], "image": [hf(data), hf(picture(1))]})
    pq.write_table(table, tmp_path / "rows.parquet")
    read = read_claims(tmp_path / "rows.parquet")
    assert len(read.pairs) == len(read.rejected) == 1
    assert "not a readable image" in str(read.rejected[0])


def test_a_picture_of_too_many_pixels_is_refused_before_it_is_decoded(tmp_path, monkeypatch):
    large = picture(1, side=20)
    monkeypatch.setattr(frames, "MAX_IMAGE_PIXELS", 100)
    monkeypatch.setattr(Picture.Image, "load", lambda *_: pytest.fail("decoded"))
    with pytest.raises(MediaError, match="more than 100"):
        picture_files.keep_picture(large, tmp_path)
    assert not list(tmp_path.rglob("*.png"))


def test_kept_pictures_are_read_beside_a_media_folder_and_no_other_file_is(tmp_path, pictures):
    (tmp_path / "media").mkdir()
    table = pa.table({"claim": ["A claim.", "Another."], "image": [hf(picture(1)), hf(None, f"{pictures}/../x.png")]})
    pq.write_table(table, tmp_path / "rows.parquet")
    read = read_claims(tmp_path / "rows.parquet", inside=tmp_path / "media")
    assert [pair.claim for pair in read.pairs] == ["A claim."]


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_a_few_rows_of_pictures_are_in_memory_at_once(tmp_path, kind, monkeypatch):
    n_rows, n_bytes = 200, 200_000
    noise = np.random.default_rng(0)
    table = pa.table({"claim": ["A claim."] * n_rows, "image": [hf(noise.bytes(n_bytes)) for _ in range(n_rows)]})
    path = tmp_path / f"rows.{kind}"
    if kind == "parquet":
        pq.write_table(table, path, row_group_size=20)
    else:
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
            writer.write_table(table)
    sizes: list[int] = []
    del table
    monkeypatch.setattr("proofreel.data_prep.importers.tabular_files._ROWS_OF_BYTES", 8)
    before = pa.total_allocated_bytes()
    for item in IMPORTERS["table"].read(path, TableOptions(image="image", constants=("label=supported",))):
        assert isinstance(item, Rejected)
        sizes.append(pa.total_allocated_bytes() - before)
    assert len(sizes) == n_rows
    assert max(sizes) < n_rows * n_bytes / 2, "a row group and a batch, not the file"


def test_scored_tables_leave_out_columns_of_bytes(tmp_path):
    table = pa.table({"claim": ["A claim."], "image": [hf(picture(1))], "note": ["x"]})
    pq.write_table(table, tmp_path / "rows.parquet")
    given = given_rows(tmp_path / "rows.parquet", read_claims(tmp_path / "rows.parquet"))
    assert list(given.columns) == ["claim", "note"]
    assert next(iter(given)).values == {"claim": "A claim.", "note": "x"}
