"""Every private name of another library that is overridden or read here, as it is in the version that it was seen in.

An upgrade that changes one of them fails here first. Then read the library's new code, correct what uses the name, and
write the new version and signature down. Public hooks were preferred wherever there is one.
"""

import inspect
import re
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, IterableDataset, dataloader
from transformers import PreTrainedModel, Trainer

from proofreel.train.trainer import VerdictTrainer

ROOT = Path(__file__).resolve().parents[2]
SEEN_IN = {"transformers": "5.23", "accelerate": "1.15", "torch": "2.14"}

METHODS = {
    # no hook leaves an epoch out, which a resumed run that had ended needs
    (Trainer, "_run_epoch"): "model, epoch, train_dataloader, steps_in_epoch, num_update_steps_per_epoch, trial, "
    "ignore_keys_for_eval, start_time, resume_from_checkpoint, epochs_trained, steps_trained_in_current_epoch",
    # on_save comes after older checkpoints were removed, and not at all where writing failed
    (Trainer, "_save_checkpoint"): "model, trial",
    # on_pre_optimizer_step is not told the norm, and on_log comes after the weights were touched
    (Trainer, "_get_grad_norm"): "model, grad_norm",
    # train_sampling_strategy has no order that depends on seed and epoch alone
    (Trainer, "_get_train_sampler"): "train_dataset",
    # no hook comes between the choice of the best checkpoint and its use
    (Trainer, "_load_best_model"): "",
    (PreTrainedModel, "_init_weights"): "module",
    # called, not overridden: prediction_step, which is public, is handed batches that are on no device yet
    (Trainer, "_prepare_inputs"): "inputs",
}
CALLED = {"_prepare_inputs"}

# Attributes, and the line of the library by which they are what is relied on.
LINES = {
    "_tr_loss": (Trainer, r"self\._tr_loss \+= tr_loss_step"),
    "_globalstep_last_logged": (Trainer, r"self\._globalstep_last_logged = self\.state\.global_step"),
    "_eval_dataloaders": (Trainer, r"self\._eval_dataloaders\[\w+\]"),
    "_train_batch_size": (Trainer, r"self\._train_batch_size"),
    "_iterator": (DataLoader, r"self\._iterator = self\._get_iterator\(\)"),
}


@pytest.mark.parametrize("library", SEEN_IN)
def test_the_installed_version_is_the_one_that_private_names_were_read_in(library):
    assert version(library).startswith(f"{SEEN_IN[library]}."), "read its changes, then raise the version here"


@pytest.mark.parametrize(("owner", "name"), METHODS, ids=lambda value: getattr(value, "__name__", value))
def test_a_private_method_has_the_signature_that_is_relied_on(owner, name):
    parameters = [p for p in inspect.signature(getattr(owner, name)).parameters if p != "self"]
    assert ", ".join(parameters) == METHODS[owner, name]


@pytest.mark.parametrize("name", LINES)
def test_a_private_attribute_is_what_it_was(name):
    owner, line = LINES[name]
    assert re.search(line, inspect.getsource(owner))


def test_a_network_names_the_weights_that_its_checkpoint_may_lack():
    """A new head is one of them (models/backbones/score_head.py): neither reported nor among the missing keys."""
    source = inspect.getsource(PreTrainedModel)
    assert "missing_patterns = self._keys_to_ignore_on_load_missing" in source
    assert "self._keys_to_ignore_on_load_missing = set(self._keys_to_ignore_on_load_missing or [])" in source


def test_a_prepared_loader_has_the_loader_it_was_made_of():
    """`BatchStream` takes the iterator from it that lost a worker."""
    loader: Any = Accelerator(cpu=True).prepare_data_loader(DataLoader([1, 2]))  # type: ignore[arg-type]
    assert hasattr(loader.base_dataloader, "_iterator")
    assert callable(loader.end)
    assert not isinstance(loader.dataset, IterableDataset)


def test_no_other_private_method_of_the_trainer_is_overridden_and_no_other_name_read():
    theirs = {name for name in dir(Trainer) if name.startswith("_") and not name.startswith("__")}
    overridden = {name for name in vars(VerdictTrainer) if name in theirs}
    assert overridden == {name for owner, name in METHODS if owner is Trainer} - CALLED
    source = "".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "train").glob("*.py")))
    read = {name for name in re.findall(r"\.(_[a-z]\w*)", source) if name in theirs | set(LINES)}
    assert read - overridden == CALLED | set(LINES)


def test_what_torch_says_of_a_failing_disk_and_of_a_dead_worker_is_as_it_is_read(tmp_path):
    """Both are told by their words only (train/checkpoints.py, train/faults.py)."""
    with pytest.raises(RuntimeError, match=r"Parent directory|inline_container|PytorchStreamWriter"):
        torch.save({}, tmp_path / "absent" / "optimizer.pt")
    assert r"DataLoader worker (pid(s)" in inspect.getsource(dataloader)
