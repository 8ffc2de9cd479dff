"""Write what a run trained as a draft verifier: complete but for calibration, thresholds and golden inputs."""

from __future__ import annotations

import dataclasses
import json
import shutil
import tempfile
from pathlib import Path

from ..models.directory.format import CONFIG, VerifierConfig, relative_base, write_directory
from ..models.inputs.encoder import Encoder
from .trainer import VerdictTrainer

_WEIGHT_FILES = (
    "*.safetensors",
    "*.safetensors.index.json",
    "config.json",
    "generation_config.json",
    "adapter_config.json",
)


def save_draft(trainer: VerdictTrainer, encoder: Encoder, config: VerifierConfig) -> Path:
    """Gather the trained weights from all ranks and write `<output_dir>/draft` on the first one.

    Returns:
        The directory; every process returns the same path, after it exists.
    """
    out = Path(trainer.args.output_dir or "")
    with tempfile.TemporaryDirectory(dir=out, prefix=".weights-") as gathered:
        trainer.save_model(gathered)  # collective under ZeRO-3 and FSDP: every rank takes part
        if trainer.is_world_process_zero():
            if (out / "draft").exists():  # a resumed run that had finished before
                shutil.rmtree(out / "draft")
            write_directory(out / "draft", lambda folder: _fill(folder, out / "draft", Path(gathered), encoder, config))
    trainer.accelerator.wait_for_everyone()
    return out / "draft"


def _fill(folder: Path, final: Path, gathered: Path, encoder: Encoder, config: VerifierConfig) -> None:
    base = dataclasses.replace(config.base, path=relative_base(config.base.path, final))
    weights = folder / ("adapter" if config.weights == "adapter" else "model")
    weights.mkdir()
    # The Trainer also leaves a pickle of its arguments there: only named kinds of file are taken over.
    for pattern in _WEIGHT_FILES:
        for file in gathered.glob(pattern):
            shutil.copy2(file, weights / file.name)
    if config.weights == "adapter":
        path = weights / "adapter_config.json"
        values = json.loads(path.read_text(encoding="utf-8")) | {"base_model_name_or_path": base.path}
        path.write_text(json.dumps(values, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    encoder.processor.save_pretrained(folder / "processor")
    (folder / CONFIG).write_text(dataclasses.replace(config, base=base).to_json(), encoding="utf-8")
