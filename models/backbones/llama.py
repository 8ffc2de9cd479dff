"""Llama, the text models, SmolLM2 among them: they judge claims against transcripts and passages."""

from __future__ import annotations

from typing import Any, ClassVar

from .base import Shape
from .qwen25 import TOKENIZER_CLASSES, Qwen25, text_settings

ROPE_THETA = {"Llama-3.1-8B-Instruct": 500_000.0, "SmolLM2-135M-Instruct": 100_000.0}


class Llama(Qwen25):
    """Llama text: as Qwen2.5 computes, without biases."""

    model_type = "llama"
    name = "Llama text"
    published: ClassVar = {
        "SmolLM2-135M-Instruct": Shape(576, 30, 9, 3, 1536, 49_152, tied=True),
        "Llama-3.1-8B-Instruct": Shape(4096, 32, 32, 8, 14_336, 128_256, tied=False),
    }
    # transformers 5 writes TokenizersBackend for a tokenizer without a class of its own, as one read from GGUF.
    processor_classes: ClassVar = {
        "tokenizer_class": (
            *TOKENIZER_CLASSES["tokenizer_class"],
            *("GPT2Tokenizer", "GPT2TokenizerFast", "LlamaTokenizer", "LlamaTokenizerFast", "TokenizersBackend"),
        ),
        "slow_tokenizer_class": ("GPT2Tokenizer", "LlamaTokenizer"),
    }

    def config_class(self) -> Any:
        """As the base says."""
        from transformers import LlamaConfig

        return LlamaConfig

    def network_class(self) -> Any:
        """As the base says."""
        from transformers import LlamaForCausalLM

        return LlamaForCausalLM

    def body_class(self) -> Any:
        """As the base says."""
        from transformers import LlamaModel

        return LlamaModel

    def published_config(self, shape: Shape) -> Any:
        """As the base says."""
        theta = next(ROPE_THETA[name] for name, each in self.published.items() if each == shape)
        settings = text_settings(shape) | {"rms_norm_eps": 1e-5}
        rope = {"rope_type": "default", "rope_theta": theta}
        return self.config_class()(**settings, rope_parameters=rope, tie_word_embeddings=shape.tied)

    def vectors_per_layer(self, text: Any) -> int:
        """Two norms; there are no biases."""
        return 2 * text.hidden_size
