"""train/sft.py as one of several processes, which then tells what engine it ran under and what it held.

    accelerate launch --config_file X.yaml tests/engine_process.py FOLDER <arguments of train/sft.py>

Writes FOLDER/<rank>.json: the engine as accelerate names it, the share of all weights that this process keeps, how
often it called the vision tower, how many videos and pictures it measured, and the best step of the run.

accelerate has FSDP for GPUs only. With ENGINE_DEVICE=cpu it is told that these are GPUs, and finds CPUs: its own FSDP2
code and torch's then run over gloo. transformers has bfloat16 without `use_cpu` for GPUs only, and is told the same.

For CPUs DeepSpeed compiles its own sums over processes, for a minute. Without them it takes gloo's, as accelerate does.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
from accelerate.state import PartialState
from accelerate.utils import DistributedType
from transformers import training_args

from proofreel.models.engine import backbone_of
from proofreel.models.inputs import Encoder
from proofreel.train import recipe
from proofreel.train.sft import main


def local_size(weight: Any) -> int:
    """Elements of a weight that this process keeps between its uses."""
    if hasattr(weight, "to_local"):  # FSDP2
        return weight.to_local().numel()
    # ZeRO-3: its shard; of so small a network the whole may be at hand as well, gathered for a use to come.
    return getattr(weight, "ds_tensor", weight).numel()


def watch(folder: Path) -> None:
    """Look at every trainer that is made, and once more when its draft is saved."""
    calls: list[int] = []
    measured: list[int] = []
    make, save, grid = recipe.make_trainer, recipe.save_draft, Encoder.grid

    def measure(encoder: Encoder, *args: Any) -> Any:
        measured.append(1)
        return grid(encoder, *args)

    def make_and_count(*args: Any, **kwargs: Any) -> Any:
        trainer: Any = make(*args, **kwargs)
        backbone_of(trainer.model).model.visual.register_forward_hook(lambda *_: calls.append(1))
        return trainer

    def save_and_tell(trainer: Any, *args: Any, **kwargs: Any) -> Any:
        weights = list(trainer.model.parameters())
        total = sum(getattr(w, "ds_numel", w.numel()) for w in weights)
        told = {
            "engine": trainer.accelerator.distributed_type.value,
            "held": sum(map(local_size, weights)) / total,
            "tower_calls": len(calls),
            "measured": len(measured),
            "best_metric": trainer.state.best_metric,
            "best_step": trainer.state.best_global_step,
        }
        (folder / f"{os.environ.get('RANK', '0')}.json").write_text(json.dumps(told), encoding="utf-8")
        return save(trainer, *args, **kwargs)

    recipe.make_trainer, recipe.save_draft = make_and_count, save_and_tell
    Encoder.grid = measure  # type: ignore[method-assign, assignment]  # pyright: ignore[reportAttributeAccessIssue]


if __name__ == "__main__":
    if os.environ.get("ENGINE_DEVICE") == "cpu":
        os.environ["ACCELERATE_TORCH_DEVICE"] = "cpu"
        PartialState._prepare_backend = lambda *_, **__: ("gloo", DistributedType.MULTI_GPU)  # type: ignore[method-assign]
    if os.environ.get("ACCELERATE_USE_DEEPSPEED") == "true":
        from deepspeed.comm import torch as communication

        communication.build_shm_op = lambda: None  # pyright: ignore[reportAttributeAccessIssue]
    training_args.is_torch_bf16_gpu_available = lambda: True
    torch.set_num_threads(1)
    watch(Path(sys.argv[1]))
    raise SystemExit(main(sys.argv[2:]))
