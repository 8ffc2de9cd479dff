"""Sentence embeddings by a local encoder, for RAGAS's answer relevance; nothing is downloaded.

MiRAGE compares queries with Qwen3-Embedding-0.6B, whose vector is the last token's last hidden state. A folder of
sentence-transformers says itself how it pools (`1_Pooling/config.json`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import AutoModel, AutoTokenizer

from ...core import ConfigError

POOLINGS = {"pooling_mode_lasttoken": "last", "pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "first"}


def folder_embeddings(
    folder: Path, device: str | None = None, batch: int = 32
) -> Callable[[Sequence[str]], NDArray[np.float64]]:
    """A function from texts to unit vectors, shape (n, size).

    Args:
        folder: of an encoder and its tokenizer, safetensors only.
        device: default: a GPU if there is one.
        batch: texts at once.

    Raises:
        ConfigError: no such folder, or a way of pooling that is not among `POOLINGS`.
    """
    if not folder.is_dir():
        raise ConfigError(f"--embedder: must be a folder, got {str(folder)!r}; download an encoder and give its path")
    pooling = _pooling(folder)
    place = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        model = AutoModel.from_pretrained(folder, local_files_only=True, use_safetensors=True).to(place).eval()
    except (OSError, ValueError) as error:
        raise ConfigError(f"--embedder: cannot be loaded, got {error}; give an encoder and its tokenizer") from error
    tokenizer.padding_side = "right"
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token

    @torch.inference_mode()
    def embed(texts: Sequence[str]) -> NDArray[np.float64]:
        vectors = []
        for start in range(0, len(texts), batch):
            inputs = tokenizer(list(texts[start : start + batch]), padding=True, return_tensors="pt").to(place)
            hidden_BTD = model(**inputs).last_hidden_state.float()
            pooled_BD = _pooled(hidden_BTD, inputs["attention_mask"], pooling)
            vectors.append(torch.nn.functional.normalize(pooled_BD, dim=-1).cpu().numpy().astype(np.float64))
        return np.concatenate(vectors) if vectors else np.zeros((0, 0))

    return embed


def _pooling(folder: Path) -> str:
    file = folder / "1_Pooling" / "config.json"
    if not file.is_file():
        return "last"
    settings = json.loads(file.read_text(encoding="utf-8"))
    chosen = [name for name, on in settings.items() if name.startswith("pooling_mode_") and on is True]
    if len(chosen) != 1 or chosen[0] not in POOLINGS:
        raise ConfigError(f"{file}: pooling must be one of {sorted(POOLINGS)}, got {chosen}; use another encoder")
    return POOLINGS[chosen[0]]


def _pooled(hidden_BTD: torch.Tensor, mask_BT: torch.Tensor, pooling: str) -> torch.Tensor:
    if pooling == "first":
        return hidden_BTD[:, 0]
    if pooling == "mean":
        weights_BT1 = mask_BT.unsqueeze(-1).to(hidden_BTD.dtype)
        return (hidden_BTD * weights_BT1).sum(1) / weights_BT1.sum(1)
    last_B = mask_BT.sum(1) - 1
    return hidden_BTD[torch.arange(len(hidden_BTD), device=hidden_BTD.device), last_B]
