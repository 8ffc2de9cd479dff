"""Drafts with random adapters, written as training writes them, in a second instead of after a training run."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig
from transformers import BitsAndBytesConfig, Qwen2_5_VLForConditionalGeneration

from proofreel.core.prompt import Prompt
from proofreel.models.backbones.load import load_backbone, load_processor, weights_sha256
from proofreel.models.backbones.lora import attach_lora
from proofreel.models.directory.format import CONFIG, BaseModel, VerifierConfig, relative_base, write_directory
from proofreel.models.engine.heads import THREE_LABELS, TWO_LABELS, NLIHead
from proofreel.models.inputs.chat_text import LabelWords

NF4 = {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True}
HEADS: dict[str, Any] = {"next token": None, "two labels": NLIHead(TWO_LABELS), "three labels": NLIHead(THREE_LABELS)}
ATTENTION = r".*language_model.*\.(q_proj|k_proj|v_proj|o_proj)"

# With a task, as TRL gives it: peft else writes the name of a module into the adapter's configuration.
_LORA: dict[str, Any] = {"r": 2, "lora_alpha": 1, "init_lora_weights": False, "task_type": "CAUSAL_LM"}


def random_draft(
    base: Path,
    out: Path,
    sampling: Any,
    head: NLIHead | None = None,
    parts: tuple[str, ...] = ("language_model",),
    quantised: bool = False,
    dtype: str = "float32",
    seed: int = 0,
    config: Any = None,
    **lora: Any,
) -> Path:
    """A draft whose LoRA (and head) is random and large enough to change every verdict; `config` are its fields."""
    torch.manual_seed(seed)
    quantization = BitsAndBytesConfig(**NF4) if quantised else None
    recorded = None if quantization is None else json.loads(json.dumps(quantization.to_diff_dict()))
    network = load_backbone(base, dtype=getattr(torch, dtype), quantization_config=quantization, head=head)
    adapted = attach_lora(
        network,
        LoraConfig(**{"r": 2, "lora_alpha": 1, "init_lora_weights": False, "task_type": "CAUSAL_LM"} | lora),
        parts,
    )
    processor = load_processor(base)
    words = LabelWords.of(Prompt(), processor.tokenizer)
    described = VerifierConfig(
        base=BaseModel(relative_base(str(base.resolve()), out), None, weights_sha256(base)),
        weights="adapter",
        prompt=Prompt(),
        supported_id=words.supported_id,
        refuted_id=words.refuted_id,
        sampling=sampling,
        head="next_token" if head is None else "nli",
        labels=TWO_LABELS if head is None else head.labels,
        dtype=dtype,  # type: ignore[arg-type]
        modalities=("video", "image", "transcript", "passage"),
        quantization=recorded,
    )

    def fill(folder: Path) -> None:
        adapted.save_pretrained(folder / "adapter")
        (folder / "adapter" / "README.md").unlink(missing_ok=True)
        processor.save_pretrained(folder / "processor")
        text = dataclasses.replace(described, **(config or {})).to_json()
        (folder / CONFIG).write_text(text, encoding="utf-8")

    return write_directory(out, fill)


def tied_copy(base: Path, out: Path) -> Path:
    """The same checkpoint with its embeddings for an output layer, as the released ones up to 3B."""
    network = Qwen2_5_VLForConditionalGeneration.from_pretrained(base)
    config: Any = network.config
    config.tie_word_embeddings = config.text_config.tie_word_embeddings = True
    network.lm_head.weight = network.model.language_model.embed_tokens.weight
    network.save_pretrained(out)
    load_processor(base).save_pretrained(out)
    return out
