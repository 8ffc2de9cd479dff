"""Bad input stops a build and is listed: file, line, what is wrong, what to do. Nothing else is lost."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import av
import numpy as np
import PIL.Image
import pytest

from proofreel.core.errors import RowError
from proofreel.data_prep.dataset.shards import read_split
from proofreel.data_prep.pipeline.config import BuildConfig, SourceConfig, SplitsConfig
from proofreel.data_prep.pipeline.pipeline import build

BAD_LINE = 3


def clip(path: Path, seconds: float = 2.0) -> None:
    with av.open(str(path), "w") as file:
        stream = file.add_stream("mpeg4", rate=8)
        stream.width, stream.height, stream.pix_fmt = 32, 32, "yuv420p"  # type: ignore[attr-defined]
        for number in range(int(seconds * 8)):
            frame = av.VideoFrame.from_ndarray(np.full((32, 32, 3), 9 * number, np.uint8), format="rgb24")
            file.mux(stream.encode(frame))  # type: ignore[attr-defined]
        file.mux(stream.encode(None))  # type: ignore[attr-defined]


def row(name: str, **changes: object) -> dict[str, object]:
    """A ready pair on v.mp4."""
    span: dict[str, object] = {"kind": "video", "path": "v.mp4", "start_s": 0.0, "end_s": 1.0}
    changed = {key: changes.pop(key) for key in ("path", "start_s", "end_s") if key in changes}
    return {"id": name, "claim": f"Claim {name}.", "label": "supported", "evidence": [{**span, **changed}], **changes}


def lines(bad: bytes, more: bytes = b"") -> bytes:
    """Good rows with the bad line third."""
    good = [json.dumps(row(name)).encode() for name in "abcd"]
    return b"\n".join([*good[:2], bad, *good[2:], *([more] if more else [])]) + b"\n"


def changed(**changes: object) -> bytes:
    return lines(json.dumps(row("x", **changes)).encode())


def text_in_line(old: str, new: str) -> bytes:
    return lines(json.dumps(row("x")).replace(old, new).encode())


ROWS: dict[str, tuple[bytes, str]] = {
    "cut short": (lines(json.dumps(row("x")).encode()[:40]), "not valid JSON"),
    "another encoding": (
        lines(json.dumps(row("x")).replace("Claim", "Cla\u00efm").encode("latin-1")),
        "text is not UTF-8",
    ),
    "not an object": (lines(b"[1, 2]"), "a row must be an object"),
    "null claim": (lines(json.dumps({**row("x"), "claim": None}).encode()), "claim must be a str"),
    "no evidence": (lines(json.dumps({**row("x"), "evidence": []}).encode()), "evidence is empty"),
    "null start": (changed(start_s=None), "start_s is missing"),
    "NaN time": (text_in_line('"end_s": 1.0', '"end_s": NaN'), "end_s must be a finite number of seconds"),
    "infinite time": (text_in_line('"end_s": 1.0', '"end_s": Infinity'), "end_s must be a finite number of seconds"),
    "time as text": (changed(end_s="0:01"), "end_s must be a finite number of seconds"),
    "reversed span": (changed(start_s=1.5, end_s=0.5), "span is reversed or empty"),
    "empty span": (changed(start_s=1.0, end_s=1.0), "span is reversed or empty"),
    "negative start": (changed(start_s=-0.5), "start_s is negative"),
    "start beyond the end": (changed(start_s=5.0, end_s=None), "start_s is past the end of the video"),
    "end beyond the end": (changed(end_s=60.0), "end_s is past the end of the video"),
    "missing media": (changed(path="gone.mp4"), "media file is missing"),
    "path too long": (changed(path="x" * 5_000 + ".mp4"), "media file is missing"),
    "video as image too": (
        lines(json.dumps(row("x", evidence=[{"kind": "image", "path": "v.mp4"}])).encode()),
        "media is unreadable",
    ),
    "empty media": (changed(path="empty.mp4"), "media is unreadable"),
    "damaged media": (changed(path="damaged.mp4"), "media is unreadable"),
    "image as video": (changed(path="picture.mp4"), "media is unreadable"),
    "text as video": (changed(path="text.mp4"), "media is unreadable"),
    "folder as video": (changed(path="folder.mp4"), "media is unreadable"),
    "pipe as video": (changed(path="pipe.mp4"), "media is unreadable"),
    "dots out of the root": (changed(path="../outside.mp4"), "media path leaves the media root"),
    "link out of the root": (changed(path="link.mp4"), "media path leaves the media root"),
    "absolute path": (changed(path="/etc/hostname"), "media path leaves the media root"),
    "enormous claim": (changed(claim="word " * 100_000), "claim is longer than 2000 characters"),
    "control characters": (changed(claim="beep\u0007"), "claim holds control or surrogate characters"),
    "half a surrogate": (changed(claim="x \ud83d"), "claim holds control or surrogate characters"),
    "half a surrogate in the group": (changed(group="\udcff"), "text holds half a surrogate pair"),
    "blank claim": (changed(claim=" \t"), "claim is empty"),
    "unknown label": (changed(label="true"), "label is outside the vocabulary"),
    "unknown key": (changed(lable="supported"), "unknown keys"),
    "key twice": (text_in_line('"id": "x"', '"id": "x", "id": "y"'), "a key is given twice in one object"),
    "soft label of 2": (changed(soft_label=2.0), "soft_label must be a probability"),
    "same id, other label": (changed(id="a", claim="Claim a.", label="refuted"), "id is used with different labels"),
    "same question, other label": (
        changed(claim="claim A", label="refuted"),
        "the same claim and evidence have different labels",
    ),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A media root with good and bad files, and a file outside it."""
    root = tmp_path_factory.mktemp("bad") / "media"
    root.mkdir()
    clip(root / "v.mp4")
    clip(root.parent / "outside.mp4")
    (root / "empty.mp4").touch()
    (root / "damaged.mp4").write_bytes((root / "v.mp4").read_bytes()[:600])
    PIL.Image.new("RGB", (32, 32)).save(root / "picture.png")
    (root / "picture.png").rename(root / "picture.mp4")
    (root / "text.mp4").write_text("no video")
    (root / "folder.mp4").mkdir()
    os.mkfifo(root / "pipe.mp4")
    (root / "link.mp4").symlink_to(root.parent / "outside.mp4")
    return root


@pytest.fixture
def config(folder: Path, tmp_path: Path) -> Callable[[bytes], BuildConfig]:
    def made(content: bytes) -> BuildConfig:
        source = tmp_path / "rows.jsonl"
        source.write_bytes(content)
        return BuildConfig(
            str(tmp_path / "out"),
            (SourceConfig("pairs", str(source)),),
            media_root=str(folder),
            splits=SplitsConfig(1.0, 0.0, 0.0, 0.0),
            shortcut_probe=False,
            card=False,
        )

    return made


@pytest.mark.parametrize("fault", sorted(ROWS))
def test_it_is_named_with_its_file_line_and_remedy_and_the_rest_is_kept(config, fault):
    content, kind = ROWS[fault]
    settings = config(content)
    with pytest.raises(RowError, match="bad annotations"):
        build(settings)
    listed = [json.loads(line) for line in Path(f"{settings.output}.rejected.jsonl").read_text().splitlines()]
    here = [item for item in listed if item["line"] == BAD_LINE]
    assert len(here) == 1
    assert here[0]["file"] == settings.sources[0].path
    assert here[0]["kind"] == kind
    assert "; " in here[0]["reason"]
    manifest = build(settings, skip_invalid=True)
    lost = {"a"} if fault.startswith("same ") else set()  # both sides of a contradiction are kept out
    assert {pair.id for pair in read_split(settings.output, "train")} == set("abcd") - lost
    assert manifest["rejected"][kind] == len(listed)


def test_a_byte_order_mark_and_windows_line_ends_are_no_fault(config):
    content = b"\xef\xbb\xbf" + lines(json.dumps(row("x")).encode()).replace(b"\n", b"\r\n")
    build(config(content))
    assert len(read_split(config(content).output, "train")) == 5


def test_a_truncated_csv_names_the_line_and_keeps_what_came_before(shared_data, tmp_path):
    name = "all_qwen3_llm_only_claims-Batch_3388_results.csv"
    whole = (shared_data / "mirage" / "grounding_judgments" / name).read_bytes()
    source = tmp_path / name
    source.write_bytes(whole[: len(whole) // 2])
    settings = BuildConfig(
        str(tmp_path / "out"),
        (SourceConfig("grounding", str(source)),),
        media="absent",
        shortcut_probe=False,
        card=False,
    )
    with pytest.raises(RowError, match=rf"{name}:\d+: .*; "):
        build(settings)
    kept = build(settings, skip_invalid=True)
    assert kept["counts"]["all"]["rows"] > 500
    assert sum(kept["rejected"].values()) >= 1


def test_files_outside_the_root_may_be_allowed(config, folder):
    import dataclasses

    from proofreel.data_prep.pipeline.config import ProbingConfig

    settings = config(lines(json.dumps(row("x", path="link.mp4")).encode()))
    build(dataclasses.replace(settings, probing=ProbingConfig(outside_root="allow")))
    assert len(read_split(settings.output, "train")) == 5
