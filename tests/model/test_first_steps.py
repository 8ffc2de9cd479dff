"""A run that ended before its first step leaves nothing in the way; wandb's login is checked before rows are read."""

import json

import pytest
from conftest import sft_arguments

from proofreel.core import ConfigError, ProofreelError
from proofreel.train import recipe, sft
from proofreel.train.arguments import parse
from proofreel.train.recipe import run


@pytest.fixture
def fails(tiny_base, colour_dataset, tmp_path, monkeypatch):
    """A run that fails when its network is loaded; its directory and the words to start it again."""
    words = sft_arguments(tiny_base, colour_dataset, tmp_path / "run", max_steps=1)

    def no_memory(*_):
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(recipe, "load_model", no_memory)
        with pytest.raises(MemoryError):
            run(*parse(words))
    return tmp_path / "run", words


@pytest.mark.parametrize("more", [[], ["--learning_rate", "1e-3", "--resume_from_checkpoint", "true"]])
def test_a_run_that_failed_before_its_first_step_starts_again(fails, more):
    folder, words = fails
    assert sft.main([*words, *more]) == 0
    assert (folder / "draft").is_dir()
    assert "resumed" not in json.loads((folder / "run.json").read_text())


@pytest.mark.parametrize("kept", ["notes.txt", "checkpoint-1/trainer_state.json", "metrics.jsonl", "draft/x"])
def test_what_may_have_value_stays(fails, kept):
    folder, words = fails
    (folder / kept).parent.mkdir(exist_ok=True)
    (folder / kept).write_text('{"step": 1, "loss": 2.0}\n')
    with pytest.raises(ConfigError, match="not empty"):
        run(*parse(words))
    assert (folder / kept).exists()


def test_a_directory_that_another_process_holds_stays(fails, monkeypatch):
    folder, words = fails
    monkeypatch.setattr("proofreel.train.run_directory._HELD", {})  # as another process: the lock itself is still held
    with pytest.raises(ConfigError, match="not empty"):
        run(*parse(words))
    assert (folder / "run.json").exists()


@pytest.mark.parametrize("mode", ["online", "offline"])
def test_wandb_needs_a_login_before_rows_are_read(tiny_base, tmp_path, monkeypatch, mode):
    for name in ("WANDB_API_KEY", "WANDB_IDENTITY_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("WANDB_MODE", mode)
    words = sft_arguments(tiny_base, tmp_path / "no-such-data", tmp_path / "run", report_to="wandb")
    with pytest.raises(ProofreelError) as error:  # offline the rows come next, which are missing
        run(*parse(words))
    assert ("report_to" in str(error.value)) == (mode == "online")
