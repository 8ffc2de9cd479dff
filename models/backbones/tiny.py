"""Checkpoints small enough for two CPU cores, of every backbone, in the real ones' on-disk format.

Same classes, same processor, same file names; only the sizes differ. The tokenizer is a byte-level BPE in Qwen2's
format, trained on the texts it is given. Tests, examples and benchmarks take the directory by path, as they would take
a released checkpoint. Apart from families.py because the tokenizers library is needed only here.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from pathlib import Path

import torch
from tokenizers import Regex, Tokenizer, decoders, pre_tokenizers, trainers
from tokenizers.models import BPE
from transformers import Qwen2Tokenizer
from transformers.models.qwen2.tokenization_qwen2 import PRETOKENIZE_REGEX

from .base import TinySizes
from .families import backbone_for

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


def save_tiny_model(
    directory: str | Path,
    texts: Iterable[str],
    sizes: TinySizes | None = None,
    seed: int = 0,
    model_type: str = "qwen2_5_vl",
) -> Path:
    """Write a randomly initialised tiny model with its processor, or tokenizer.

    Args:
        directory: created; receives config, safetensors, tokenizer, chat template and, with vision, processors.
        texts: what the tokenizer is trained on; prompts and typical claims.
        sizes: the architecture.
        seed: of the weights.
        model_type: of the backbone.

    Returns:
        The directory.
    """
    directory, sizes, backbone = Path(directory), sizes or TinySizes(), backbone_for(model_type)
    tokenizer = train_tokenizer(texts, sizes.vocab)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        network, processor = backbone.tiny(tokenizer, sizes)
    network.save_pretrained(directory)
    processor.save_pretrained(directory)
    return directory


def save_tiny_text_model(
    directory: str | Path, texts: Iterable[str], sizes: TinySizes | None = None, seed: int = 0, tied: bool = False
) -> Path:
    """`save_tiny_model` of a text backbone; `tied` as of `TinySizes`."""
    sizes = dataclasses.replace(sizes or TinySizes(), tied=tied)
    return save_tiny_model(directory, texts, sizes, seed, model_type="qwen2")


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
