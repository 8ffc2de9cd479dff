"""train/checkpoints.py: what is whole, what is damaged, where a run goes on, and what a failing disk is."""

import json
import math
import os
import resource
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import save_file

from proofreel.core.errors import ConfigError
from proofreel.train import checkpoints
from proofreel.train.checkpoints import (
    COMPLETE,
    checkpoint_to_resume,
    clear_away,
    damage_of,
    decided_on_rank_0,
    is_write_failure,
    seal_checkpoint,
)

PART = Path("global_step") / "part.bin"


@pytest.fixture
def two_and_ten(tmp_path):
    """Two sealed checkpoints of a run."""
    for step in (2, 10):
        folder = tmp_path / f"checkpoint-{step}"
        (folder / PART).parent.mkdir(parents=True)
        (folder / PART).write_bytes(b"1234")
        seal_checkpoint(folder, {"step": step, "loss": math.nan})
    return tmp_path / "checkpoint-2", tmp_path / "checkpoint-10"


def test_the_last_whole_checkpoint_is_the_one_of_the_highest_step_and_a_named_one_must_be_the_last(
    two_and_ten, tmp_path
):
    two, ten = two_and_ten
    assert checkpoint_to_resume(tmp_path, True) == ten == checkpoint_to_resume(tmp_path, str(ten))  # not by name
    assert json.loads((ten / COMPLETE).read_text())["loss"] is None
    with pytest.raises(ConfigError, match=r"later checkpoints would be overwritten.*checkpoint-10"):
        checkpoint_to_resume(tmp_path, str(two))


@pytest.mark.parametrize("content", [b"123", b"1235", b"\0\0\0\0", None])
def test_a_file_that_is_not_what_was_sealed_is_damage_which_is_named_and_passed_over(
    two_and_ten, tmp_path, capsys, content
):
    two, ten = two_and_ten
    (ten / PART).unlink() if content is None else (ten / PART).write_bytes(content)
    assert str(PART) in (damage_of(ten) or "")
    assert checkpoint_to_resume(tmp_path, True) == two
    said = capsys.readouterr().err
    for words in ("warning", str(ten), str(PART), "goes on from checkpoint-2"):
        assert words in said
    with pytest.raises(ConfigError, match=rf"checkpoint-10 is not whole, got {PART}.*pass true.*checkpoint-2"):
        checkpoint_to_resume(tmp_path, str(ten))
    clear_away(tmp_path, two)
    assert sorted(f.name for f in tmp_path.iterdir()) == ["checkpoint-2", "damaged-checkpoint-10"]


def test_where_none_is_whole_the_run_begins_again_and_says_so(two_and_ten, tmp_path, capsys):
    for folder in two_and_ten:
        (folder / COMPLETE).write_text("{")
    assert checkpoint_to_resume(tmp_path, True) is None
    assert capsys.readouterr().err.count("begins again at step 0") == 2


def test_a_checkpoint_that_was_being_written_is_passed_over_without_a_word_and_removed(two_and_ten, tmp_path, capsys):
    two, ten = two_and_ten
    (ten / COMPLETE).unlink()
    assert checkpoint_to_resume(tmp_path, True) == two
    clear_away(tmp_path, two)
    assert [f.name for f in tmp_path.iterdir()] == ["checkpoint-2"]
    assert capsys.readouterr().err == ""


def test_a_seal_by_sizes_alone_resumes_with_a_note(two_and_ten, tmp_path, capsys):
    _, ten = two_and_ten
    (ten / COMPLETE).write_text(json.dumps({"files": {str(PART): 4}, "step": 10}))
    assert checkpoint_to_resume(tmp_path, True) == ten
    assert "note: " in capsys.readouterr().err
    (ten / PART).write_bytes(b"123")
    assert damage_of(ten) is not None


def test_every_file_and_folder_is_on_the_disk_before_the_seal_is_written(tmp_path, monkeypatch):
    folder = tmp_path / "checkpoint-1"
    (folder / PART).parent.mkdir(parents=True)
    (folder / PART).write_bytes(b"1234")
    synced: list[str] = []

    def fsync(handle: int) -> None:
        assert not (folder / COMPLETE).exists() or len(synced) > 4
        synced.append(os.readlink(f"/proc/self/fd/{handle}"))

    monkeypatch.setattr(checkpoints.os, "fsync", fsync)
    seal_checkpoint(folder, {})
    before = {str(path) for path in (folder / PART, (folder / PART).parent, folder, tmp_path)}
    assert before == set(synced[:4])
    assert synced[4:] == [str(folder / f".{COMPLETE}.tmp"), str(folder)]


def test_one_rank_reads_the_files_and_every_rank_gets_its_decision_or_its_error(monkeypatch):
    sent: list[list[object]] = []
    monkeypatch.setattr(checkpoints, "broadcast_object_list", lambda outcome: sent.append(list(outcome)))
    first, second = (SimpleNamespace(process_index=rank, world_size=2) for rank in range(2))
    assert decided_on_rank_0(lambda: 7, first) == 7  # type: ignore[arg-type]

    def refuse() -> None:
        raise ConfigError("no")

    with pytest.raises(ConfigError, match="no"):
        decided_on_rank_0(refuse, first)  # type: ignore[arg-type]
    assert sent == [[7, None], [None, "no"]]

    def receive(outcome: list[object]) -> None:
        outcome[:] = sent.pop(0)

    monkeypatch.setattr(checkpoints, "broadcast_object_list", receive)
    assert decided_on_rank_0(lambda: pytest.fail("another rank read it too"), second) == 7  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="no"):
        decided_on_rank_0(lambda: None, second)  # type: ignore[arg-type]


def raised_by(action) -> Exception:
    try:
        action()
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


def test_a_full_disk_is_told_from_all_else_that_can_go_wrong_while_a_checkpoint_is_saved(tmp_path):
    """Files above a limit of bytes stand for a full disk: safetensors renames, and would put a file over /dev/full."""
    weights = {"a": torch.zeros(1 << 16)}
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 10, limits[1]))
    try:
        disk = [
            raised_by(lambda: torch.save(weights, tmp_path / "optimizer.pt")),
            raised_by(lambda: save_file(weights, tmp_path / "adapter.safetensors")),
            raised_by(lambda: (tmp_path / "state.json").write_bytes(bytes(1 << 16))),
        ]
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert all(map(is_write_failure, disk)), disk
    others = [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
        torch.distributed.DistBackendError("NCCL error: remote process exited"),
        torch.distributed.DistNetworkError("Connection reset by peer"),
        RuntimeError("[../gloo/transport/tcp/pair.cc:534] Connection closed by peer"),
        ConnectionResetError("peer"),
        SafetensorError("shapes do not match"),
        raised_by(lambda: save_file({"a": weights["a"], "b": weights["a"][:9]}, tmp_path / "shared")),
    ]
    assert not any(map(is_write_failure, others)), others
