"""Folders behind addresses, fetched whole; outputs sent when they are whole, and kept until they are."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest

from proofreel import allow_remote
from proofreel.core import MediaError, local_folder, place, remote, written_to


@pytest.fixture(autouse=True)
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where fetched and unsent files are kept; nothing waits between tries."""
    for name in ("PROOFREEL_REMOTE", "RANK", "WORLD_SIZE"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setattr(remote, "_WAITS_S", (0.0, 0.0))
    allow_remote("memory://bucket", directory=tmp_path / "kept")
    yield tmp_path / "kept"
    monkeypatch.setenv("PROOFREEL_REMOTE", "")
    fsspec.filesystem("memory").store.clear()


def put(**files: bytes) -> None:
    for name, content in files.items():
        fsspec.filesystem("memory").pipe_file(f"/bucket/verifier/{name.replace('__', '/')}", content)


def stored() -> dict[str, bytes]:
    files = fsspec.filesystem("memory")
    return {name: files.cat_file(name) for name in files.find("/bucket")}


def again() -> None:
    """Another run."""
    remote._fetched_folder.cache_clear()


def test_a_folder_is_fetched_whole_once_and_each_version_is_another(kept, monkeypatch):
    put(config=b"1", model__weights=b"22")
    first = local_folder("memory://bucket/verifier")
    assert {str(p.relative_to(first)): p.read_bytes() for p in first.rglob("*") if p.is_file()} == {
        "config": b"1",
        "model/weights": b"22",
    }
    again()
    fetched: list[str] = []
    monkeypatch.setattr(remote, "_fetch_whole", lambda *words: fetched.append(words[1]))
    assert local_folder("memory://bucket/verifier/") == first
    assert not fetched
    monkeypatch.undo()
    allow_remote("memory://bucket", directory=kept)
    put(config=b"3")
    again()
    assert (local_folder("memory://bucket/verifier") / "config").read_bytes() == b"3"
    assert (first / "config").read_bytes() == b"1"  # whoever has it open goes on


def test_what_broke_off_is_no_folder(kept, monkeypatch):
    put(a=b"1", b=b"22")
    memory = type(fsspec.filesystem("memory"))
    get_file = memory.get_file

    def get(self: Any, path: str, target: str, **more: Any) -> None:
        if path.endswith("b"):
            raise OSError("gone")
        get_file(self, path, target, **more)

    monkeypatch.setattr(memory, "get_file", get)
    with pytest.raises(MediaError, match=r"memory://bucket/verifier: cannot be fetched, got OSError: gone in 3 tries"):
        local_folder("memory://bucket/verifier")
    assert not list((kept / "folders").iterdir())


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("memory://elsewhere/verifier", "nothing is fetched unless you say so"),
        ("memory://bucket/nothing", "no such folder, got no file below"),
        ("memory://bucket/verifier/config", "is no plain folder"),
        ("https://host/verifier", "names no folder that can be listed, got https://"),
        ("zip://verifier::a.zip", "names no folder that can be listed, got zip://"),
    ],
)
def test_what_is_no_folder_is_said(address, reason):
    put(config=b"1")
    with pytest.raises(MediaError, match=reason):
        local_folder(address)


def test_a_folder_above_the_limit_is_not_fetched(kept):
    put(config=b"1" * 2000)
    allow_remote("memory://bucket", directory=kept, max_gib=1000 / 2**30)
    with pytest.raises(MediaError, match="larger than everything that may be kept"):
        local_folder("memory://bucket/verifier")


def write(local: Path) -> int:
    local.write_text("rows")
    local.with_name("rejected.jsonl").write_text("bad")
    (local.parent / ".lock").touch()
    return 0


def test_a_file_is_sent_with_what_lies_beside_it(kept, capsys):
    assert written_to(place("memory://bucket/out/scored.csv"), write) == 0
    assert stored() == {"/bucket/out/scored.csv": b"rows", "/bucket/out/rejected.jsonl": b"bad"}
    assert "sent to memory://bucket/out/scored.csv: 2 files, 7 bytes" in capsys.readouterr().out
    assert not list((kept / "outputs").iterdir())


def test_a_folder_is_sent_with_its_manifest_last(monkeypatch):
    sent: list[str] = []
    memory = type(fsspec.filesystem("memory"))
    put_file = memory.put_file
    monkeypatch.setattr(
        memory, "put_file", lambda self, local, path, **more: sent.append(path) or put_file(self, local, path, **more)
    )

    def make(local: Path) -> int:
        for name in ("manifest.json", "train/a.parquet", "z.md"):
            (local / name).parent.mkdir(parents=True, exist_ok=True)
            (local / name).write_text(name)
        return 0

    assert written_to(place("memory://bucket/data/"), make) == 0
    assert sent == ["/bucket/data/train/a.parquet", "/bucket/data/z.md", "/bucket/data/manifest.json"]


def test_what_could_not_be_sent_is_kept_and_sent_when_started_again(kept, monkeypatch, capsys):
    memory = type(fsspec.filesystem("memory"))
    monkeypatch.setattr(memory, "put_file", lambda *_, **__: (_ for _ in ()).throw(OSError("bucket is full")))
    assert written_to("memory://bucket/out/scored.csv", write) == 1
    said = capsys.readouterr().err
    assert "memory://bucket/out/scored.csv: cannot be written, got OSError: bucket is full in 3 tries" in said
    (lies,) = kept.glob("outputs/*/scored.csv")
    assert str(lies.parent) in said
    monkeypatch.undo()
    allow_remote("memory://bucket", directory=kept)
    put_part = fsspec.filesystem("memory")
    put_part.pipe_file("/bucket/out/scored.csv", b"a part of an earlier try")
    seen = []
    assert (
        written_to("memory://bucket/out/scored.csv", lambda local: seen.append(local.read_text()) or write(local)) == 0
    )
    assert seen == ["rows"]
    assert stored()["/bucket/out/scored.csv"] == b"rows"


def test_what_lies_there_is_not_replaced_unless_asked_for(capsys):
    fsspec.filesystem("memory").pipe_file("/bucket/out/scored.csv", b"old")
    assert written_to("memory://bucket/out/scored.csv", write) == 1
    assert "holds something already; name another address, or remove it" in capsys.readouterr().err
    assert stored() == {"/bucket/out/scored.csv": b"old"}
    assert written_to("memory://bucket/out/scored.csv", write, overwrite=True) == 0
    assert stored()["/bucket/out/scored.csv"] == b"rows"


def test_a_command_that_failed_sends_nothing_and_its_good_exits_do():
    assert written_to("memory://bucket/a.csv", lambda local: write(local) + 1) == 1
    assert stored() == {}
    assert written_to("memory://bucket/a.csv", lambda local: write(local) + 3, good=(0, 3)) == 3
    assert "/bucket/a.csv" in stored()


def test_of_several_processes_the_first_sends(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    assert written_to("memory://bucket/a.csv", lambda local: 0) == 0
    assert stored() == {}


def test_an_address_that_nobody_allowed_is_refused_before_any_work(capsys):
    assert written_to("memory://elsewhere/a.csv", lambda local: pytest.fail("worked")) == 1
    assert "memory://elsewhere/a.csv: is an address" in capsys.readouterr().err


def test_a_path_is_only_passed_on(tmp_path):
    assert written_to(place(str(tmp_path / "a.csv")), lambda local: write(local) + 7) == 7
    assert (tmp_path / "a.csv").read_text() == "rows"
