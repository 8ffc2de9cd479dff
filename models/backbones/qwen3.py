"""Qwen3, the text models: they judge claims against transcripts and passages."""

from __future__ import annotations

from typing import Any, ClassVar

from .base import Shape
from .qwen25 import ROPE_THETA, Qwen25, text_settings


class Qwen3(Qwen25):
    """Qwen3 text: queries and keys pass a norm of their own, and there are no biases."""

    model_type = "qwen3"
    name = "Qwen3 text"
    published: ClassVar = {
        "Qwen3-4B": Shape(2560, 36, 32, 8, 9728, 151_936, tied=True, head=128),
        "Qwen3-8B": Shape(4096, 36, 32, 8, 12_288, 151_936, tied=False, head=128),
    }
    norms_queries = True

    def config_class(self) -> Any:
        """As the base says."""
        from transformers import Qwen3Config

        return Qwen3Config

    def network_class(self) -> Any:
        """As the base says."""
        from transformers import Qwen3ForCausalLM

        return Qwen3ForCausalLM

    def body_class(self) -> Any:
        """As the base says."""
        from transformers import Qwen3Model

        return Qwen3Model

    def published_config(self, shape: Shape) -> Any:
        """As the base says."""
        rope = {"rope_type": "default", "rope_theta": ROPE_THETA}
        settings = text_settings(shape) | {"head_dim": shape.head}
        return self.config_class()(**settings, rope_parameters=rope, tie_word_embeddings=shape.tied)

    def vectors_per_layer(self, text: Any) -> int:
        """Four norms: before attention and MLP, and of queries and keys."""
        return 2 * text.hidden_size + 2 * text.head_dim
