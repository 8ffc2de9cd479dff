"""A Qwen2.5-VL, and a Qwen2.5 text model, small enough for two CPU cores, saved in the real ones' on-disk format.

Same classes, same processor, same file names; only the sizes differ. The tokenizer is a byte-level BPE in Qwen2's
format, trained on the texts it is given. Everything downstream takes the directory by path, as it would take
Qwen2.5-VL-7B.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import Regex, Tokenizer, decoders, pre_tokenizers, trainers
from tokenizers.models import BPE
from transformers import (
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2_5_VLProcessor,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen2Tokenizer,
    Qwen2VLImageProcessor,
    Qwen2VLVideoProcessor,
)
from transformers.models.qwen2.tokenization_qwen2 import PRETOKENIZE_REGEX

SPECIAL_TOKENS = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
)

# Same structure as the released template: one turn per message, placeholders between vision_start and vision_end.
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}"
    "{% for content in message['content'] %}"
    "{% if content['type'] == 'image' %}<|vision_start|><|image_pad|><|vision_end|>"
    "{% elif content['type'] == 'video' %}<|vision_start|><|video_pad|><|vision_end|>"
    "{% elif 'text' in content %}{{ content['text'] }}{% endif %}"
    "{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

# A text checkpoint's template joins strings, which a list of parts is not, and makes up a system turn if it has none.
TEXT_CHAT_TEMPLATE = (
    "{% if messages[0].role != 'system' %}<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n{% endif %}"
    "{% for turn in messages %}{{ '<|im_start|>' + turn.role + '\n' + turn.content + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@dataclass(frozen=True)
class TinySizes:
    """Architecture of the tiny models; every field means what it means in Qwen2_5_VLConfig and Qwen2Config."""

    hidden: int = 128
    layers: int = 3
    heads: int = 4
    kv_heads: int = 2
    mlp: int = 384
    vision_hidden: int = 96
    vision_depth: int = 3
    vision_heads: int = 4
    vision_mlp: int = 256
    window: int = 112
    tokens_per_second: int = 2
    vocab: int = 640
    min_pixels: int = 56 * 56
    max_pixels: int = 84 * 84
    initializer_range: float = 0.02


def save_tiny_model(directory: str | Path, texts: Iterable[str], sizes: TinySizes | None = None, seed: int = 0) -> Path:
    """Write a randomly initialised tiny Qwen2.5-VL with its processor.

    Args:
        directory: created; receives config, safetensors, tokenizer, processor and chat template.
        texts: what the tokenizer is trained on; prompts and typical claims.
        sizes: the architecture.
        seed: of the weights.

    Returns:
        The directory.
    """
    directory, sizes = Path(directory), sizes or TinySizes()
    tokenizer = train_tokenizer(texts, sizes.vocab)
    processor = make_processor(tokenizer, sizes)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = Qwen2_5_VLForConditionalGeneration(tiny_config(tokenizer, sizes))
    model.generation_config.eos_token_id = tokenizer.convert_tokens_to_ids("<|im_end|>")
    model.save_pretrained(directory)
    processor.save_pretrained(directory)
    return directory


def save_tiny_text_model(
    directory: str | Path, texts: Iterable[str], sizes: TinySizes | None = None, seed: int = 0, tied: bool = False
) -> Path:
    """Write a randomly initialised tiny Qwen2.5 text model with its tokenizer; what sizes say of vision is left out.

    Args:
        directory: created; receives config, safetensors, tokenizer and chat template.
        texts: what the tokenizer is trained on; prompts and typical claims.
        sizes: the architecture.
        seed: of the weights.
        tied: the output layer is the embeddings, as in the released checkpoints up to 3B.

    Returns:
        The directory.
    """
    directory, sizes = Path(directory), sizes or TinySizes()
    tokenizer = train_tokenizer(texts, sizes.vocab)
    tokenizer.chat_template = TEXT_CHAT_TEMPLATE
    rope = {"rope_type": "default", "rope_theta": 10_000.0}
    config = Qwen2Config(**_language(tokenizer, sizes), rope_parameters=rope, tie_word_embeddings=tied)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = Qwen2ForCausalLM(config)
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    return directory


def train_tokenizer(texts: Iterable[str], vocab_size: int) -> Qwen2Tokenizer:
    """A byte-level BPE in Qwen2's format; deterministic for the same texts in the same order."""
    bpe = Tokenizer(BPE())
    split = pre_tokenizers.Split(Regex(PRETOKENIZE_REGEX), behavior="isolated", invert=False)
    bpe.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(False, use_regex=False)])
    bpe.decoder = decoders.ByteLevel()
    # The verdict words stand alone at the verdict position, so they must each be one token.
    corpus = [*texts, *(["yes", "no", "system", "user", "assistant"] * 1000)]
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size - len(SPECIAL_TOKENS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    bpe.train_from_iterator(corpus, trainer)
    model = json.loads(bpe.to_str())["model"]
    merges = [tuple(m) if isinstance(m, list) else tuple(m.split(" ")) for m in model["merges"]]
    tokenizer = Qwen2Tokenizer(vocab=model["vocab"], merges=merges)  # type: ignore[arg-type]  (pairs, as BPE takes)
    tokenizer.add_special_tokens({"additional_special_tokens": list(SPECIAL_TOKENS[1:])})
    return tokenizer


def make_processor(tokenizer: Qwen2Tokenizer, sizes: TinySizes) -> Qwen2_5_VLProcessor:
    """The real Qwen2.5-VL processor with small pixel limits."""
    size = {"shortest_edge": sizes.min_pixels, "longest_edge": sizes.max_pixels}
    return Qwen2_5_VLProcessor(
        image_processor=Qwen2VLImageProcessor(size=size),
        video_processor=Qwen2VLVideoProcessor(size=size),
        tokenizer=tokenizer,
        chat_template=CHAT_TEMPLATE,
    )


def tiny_config(tokenizer: Qwen2Tokenizer, sizes: TinySizes) -> Qwen2_5_VLConfig:
    """A Qwen2_5_VLConfig of these sizes; rotary sections split the head as 1/4, 3/8, 3/8 like the real one."""
    half = sizes.hidden // sizes.heads // 2
    section = [half // 4, (half - half // 4) // 2, half - half // 4 - (half - half // 4) // 2]

    def token(text: str) -> Any:
        return tokenizer.convert_tokens_to_ids(text)

    rope = {"rope_type": "default", "rope_theta": 10_000.0, "mrope_section": section}
    return Qwen2_5_VLConfig(
        text_config={**_language(tokenizer, sizes), "rope_parameters": rope},
        vision_config={
            "depth": sizes.vision_depth,
            "hidden_size": sizes.vision_hidden,
            "intermediate_size": sizes.vision_mlp,
            "num_heads": sizes.vision_heads,
            "out_hidden_size": sizes.hidden,
            "window_size": sizes.window,
            "initializer_range": sizes.initializer_range,
            "fullatt_block_indexes": [sizes.vision_depth - 1],
            "tokens_per_second": sizes.tokens_per_second,
        },
        image_token_id=token("<|image_pad|>"),
        video_token_id=token("<|video_pad|>"),
        vision_start_token_id=token("<|vision_start|>"),
        vision_end_token_id=token("<|vision_end|>"),
        tie_word_embeddings=False,
    )


def _language(tokenizer: Qwen2Tokenizer, sizes: TinySizes) -> dict[str, Any]:
    """What the configurations of a language model have in common."""
    return {
        "vocab_size": len(tokenizer),
        "hidden_size": sizes.hidden,
        "intermediate_size": sizes.mlp,
        "num_hidden_layers": sizes.layers,
        "num_attention_heads": sizes.heads,
        "num_key_value_heads": sizes.kv_heads,
        "initializer_range": sizes.initializer_range,
        "max_position_embeddings": 4096,
        "bos_token_id": None,
        "eos_token_id": tokenizer.convert_tokens_to_ids("<|im_end|>"),
        "pad_token_id": tokenizer.convert_tokens_to_ids("<|endoftext|>"),
    }
