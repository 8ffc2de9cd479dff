"""The first layers of a base with a fitted head, as the draft of a verifier that `proofreel export` publishes."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from examples.reading.base import keep_first_layers
from examples.reading.heads import SHRINKAGES, Choice
from examples.reading.states import Reader
from proofreel.core import Prompt, sha256_of
from proofreel.data_prep.dataset import MANIFEST, train_shards
from proofreel.data_prep.media import FrameSampling
from proofreel.eval.scoring import CROSS_FITTED
from proofreel.models.backbones import load_backbone, weights_sha256
from proofreel.models.directory import CONFIG, BaseModel, VerifierConfig, relative_base, write_directory
from proofreel.models.engine import NLIHead

RECIPE = {"what": "logistic head on frozen hidden states, fitted on FactCG and MiRAGE", "shrinkages": SHRINKAGES}


def recipe_sha256() -> str:
    """Hash of how the heads of all folds are fitted."""
    return hashlib.sha256(json.dumps(RECIPE, sort_keys=True).encode()).hexdigest()


def save_draft(reader: Reader, choice: Choice, weights_H: np.ndarray, data: Path, out: Path) -> Path:
    """Write the draft; one that is there already is kept.

    Args:
        reader: of the whole base.
        choice: how many layers stay.
        weights_H: of the head: margin = features @ weights.
        data: all rows the head was fitted on but FactCG's.
        out: the directory.
    """
    if out.exists():
        return out
    first = out.with_name("first-layers")
    if not first.exists():
        model = copy.deepcopy(reader.model)
        keep_first_layers(model, choice.layer)
        model.to(torch.bfloat16).save_pretrained(first)
        reader.encoder.processor.save_pretrained(first)
    words = reader.words
    model = load_backbone(first, head=NLIHead(), words=words)
    with torch.no_grad():
        model.score.weight.copy_(torch.from_numpy(np.stack([weights_H, np.zeros_like(weights_H)])))
    config = VerifierConfig(
        base=BaseModel(relative_base(str(first), out), None, weights_sha256(first)),
        weights="full",
        prompt=Prompt(),
        supported_id=words.supported_id,
        refuted_id=words.refuted_id,
        head="nli",
        sampling=FrameSampling(),
        chat=reader.encoder.chat.turns,
        dtype="float32",
        modalities=("passage",),
        trained={
            "parameters": {"score": int(weights_H.size) * 2},
            "train_shards": train_shards(data),
            "recipe_sha256": recipe_sha256(),
        },
    )

    def fill(folder: Path) -> None:
        model.save_pretrained(folder / "model")
        reader.encoder.processor.save_pretrained(folder / "processor")
        (folder / CONFIG).write_text(config.to_json(), encoding="utf-8")

    return write_directory(out, fill)


def fold_source(heads: Mapping[str, np.ndarray], data: Path) -> dict[str, Any]:
    """Where out-of-topic margins come from, in the terms of `proofreel join`; `heads` by fold."""
    prints = {fold: hashlib.sha256(weights_H.tobytes()).hexdigest() for fold, weights_H in heads.items()}
    return {
        "manifest_sha256": sha256_of(data / MANIFEST),
        CROSS_FITTED: {"folds": prints, "recipe_sha256": recipe_sha256()},
    }
