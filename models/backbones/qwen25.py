"""Qwen2.5, the text models: they judge claims against transcripts and passages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from .base import Backbone, Shape, TinySizes

if TYPE_CHECKING:
    from ..inputs import VisionLayout

ROPE_THETA = 1_000_000.0

TOKENIZER_CLASSES = {
    "tokenizer_class": ("Qwen2Tokenizer", "Qwen2TokenizerFast", "PreTrainedTokenizerFast"),
    "slow_tokenizer_class": ("Qwen2Tokenizer",),
}

# A text checkpoint's template joins strings, which a list of parts is not, and makes up a system turn if it has none.
TEXT_CHAT_TEMPLATE = (
    "{% if messages[0].role != 'system' %}<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n{% endif %}"
    "{% for turn in messages %}{{ '<|im_start|>' + turn.role + '\n' + turn.content + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


class Qwen25(Backbone):
    """Qwen2.5 text."""

    model_type = "qwen2"
    name = "Qwen2.5 text"
    published: ClassVar = {"Qwen2.5-7B-Instruct": Shape(3584, 28, 28, 4, 18944, 152_064, tied=False)}
    processor_classes = TOKENIZER_CLASSES

    def config_class(self) -> Any:
        """As the base says."""
        from transformers import Qwen2Config

        return Qwen2Config

    def network_class(self) -> Any:
        """As the base says."""
        from transformers import Qwen2ForCausalLM

        return Qwen2ForCausalLM

    def body_class(self) -> Any:
        """As the base says."""
        from transformers import Qwen2Model

        return Qwen2Model

    def vision_layout(self, config: Any) -> VisionLayout:
        """None of its tokens is a placeholder."""
        from ..inputs import TEXT_LAYOUT

        return TEXT_LAYOUT

    def published_config(self, shape: Shape) -> Any:
        """As the base says."""
        rope = {"rope_type": "default", "rope_theta": ROPE_THETA}
        return self.config_class()(**text_settings(shape), rope_parameters=rope, tie_word_embeddings=shape.tied)

    def vectors_per_layer(self, text: Any) -> int:
        """As the base says."""
        return biases_and_norms(text)

    def tiny(self, tokenizer: Any, sizes: TinySizes) -> tuple[Any, Any]:
        """As the base says; the tokenizer is given a text checkpoint's chat template."""
        tokenizer.chat_template = TEXT_CHAT_TEMPLATE
        rope = {"rope_type": "default", "rope_theta": 10_000.0}
        settings = tiny_text_settings(tokenizer, sizes)
        config = self.config_class()(**settings, rope_parameters=rope, tie_word_embeddings=sizes.tied)
        return self.network_class()(config), tokenizer


def text_settings(shape: Shape) -> dict[str, Any]:
    """What the configurations of published language models have in common."""
    return {
        "hidden_size": shape.hidden,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.key_heads,
        "intermediate_size": shape.mlp,
        "vocab_size": shape.vocabulary,
        "rms_norm_eps": 1e-6,
    }


def tiny_text_settings(tokenizer: Any, sizes: TinySizes) -> dict[str, Any]:
    """What the configurations of tiny language models have in common."""
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


def biases_and_norms(text: Any) -> int:
    """Biases of q, k and v, and two norms: what a decoder layer holds outside its matrices."""
    keys = text.hidden_size // text.num_attention_heads * text.num_key_value_heads
    return text.hidden_size + 2 * keys + 2 * text.hidden_size
