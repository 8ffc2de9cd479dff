"""Qwen3.5, dense: Qwen3-VL's eyes and prompt over a language model three quarters of whose layers are linear attention.

What differs from Qwen3-VL (config.json and README.md of Qwen/Qwen3.5-4B on the Hugging Face hub): three of four decoder
layers are gated delta nets. They see no pairs of tokens but carry one state through the row, behind a short
convolution, so that claims cannot branch inside it: they follow copies of the state (`branches`). The fourth attends,
with a gate beside each query and rotary positions in a quarter of each head. The tower gives its last layer alone.
Weights of the head that guesses several tokens ahead (`mtp`) stay in a checkpoint's files.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from .base import Backbone, Shape, StateMemory, TinySizes, attention_layer, mlp_layers
from .qwen3_vl import FRAME_TURN, Qwen3VL, tiny_processor
from .qwen25 import TOKENIZER_CLASSES, text_settings, tiny_text_settings

if TYPE_CHECKING:
    from ..inputs import VisionLayout

ROPE_THETA = 10_000_000.0
ROTARY_SHARE = 0.25  # of a head
MROPE_SECTION = (11, 11, 10)  # of half of that: t, h, w, in turns
VOCABULARY = 248_320
FULL_EVERY = 4  # decoder layers: the last of them attends

# Of the vision tower, by its MLP: depth, hidden, heads.
_TOWERS = {3072: (12, 768, 12), 4096: (24, 1024, 16), 4304: (27, 1152, 16)}

# Heads of the state's values, by hidden size; keys have 16 everywhere, and both kinds 128 numbers.
_VALUE_HEADS = {1024: 16, 2048: 16, 2560: 32, 4096: 32, 5120: 48}


class Qwen35(Qwen3VL):
    """Qwen3.5, the dense models."""

    model_type = "qwen3_5"
    name = "Qwen3.5"
    published: ClassVar = {
        "Qwen3.5-0.8B": Shape(1024, 24, 8, 2, 3584, VOCABULARY, tied=True, vision_mlp=3072, head=256),
        "Qwen3.5-2B": Shape(2048, 24, 8, 2, 6144, VOCABULARY, tied=True, vision_mlp=4096, head=256),
        "Qwen3.5-4B": Shape(2560, 32, 16, 4, 9216, VOCABULARY, tied=True, vision_mlp=4096, head=256),
        "Qwen3.5-9B": Shape(4096, 32, 16, 4, 12288, VOCABULARY, tied=False, vision_mlp=4304, head=256),
        "Qwen3.5-27B": Shape(5120, 64, 24, 4, 17408, VOCABULARY, tied=False, vision_mlp=4304, head=256),
    }
    lora_parts: ClassVar = {
        "language_model": r".*language_model.*\.(q_proj|k_proj|v_proj|o_proj|gate_proj|up_proj|down_proj"
        r"|in_proj_qkv|in_proj_z|in_proj_b|in_proj_a|out_proj)",
        "visual": Qwen3VL.lora_parts["visual"],
        "merger": r"model\.visual\.merger\.linear_fc[12]",
        "lm_head": Backbone.lora_parts["lm_head"],
    }
    branches = "copied"
    processor_classes: ClassVar = {
        **Qwen3VL.processor_classes,
        "tokenizer_class": (*TOKENIZER_CLASSES["tokenizer_class"], "Qwen3_5Tokenizer", "TokenizersBackend"),
    }

    def config_class(self) -> Any:
        """As the base says."""
        from transformers import Qwen3_5Config

        return Qwen3_5Config

    def network_class(self) -> Any:
        """As the base says."""
        from transformers import Qwen3_5ForConditionalGeneration

        return Qwen3_5ForConditionalGeneration

    def body_class(self) -> Any:
        """As the base says."""
        from transformers import Qwen3_5Model

        return Qwen3_5Model

    def vision_layout(self, config: Any) -> VisionLayout:
        """Qwen3-VL's, with one feature map and claims that follow copies."""
        from ..inputs import VisionLayout

        vision = config.vision_config
        return VisionLayout(
            image_token_id=config.image_token_id,
            video_token_id=config.video_token_id,
            spatial_merge_size=vision.spatial_merge_size,
            patch_step=vision.patch_size * vision.spatial_merge_size,
            frame_turn=FRAME_TURN,
            video_budget=True,
            branches=self.branches,
        )

    def published_config(self, shape: Shape) -> Any:
        """As the base says."""
        depth, hidden, heads = _TOWERS[shape.vision_mlp or 0]
        return self.config_class()(
            text_config={
                **text_settings(shape),
                "head_dim": shape.head,
                "rope_parameters": _rope(ROPE_THETA, MROPE_SECTION),
                "full_attention_interval": FULL_EVERY,
                "linear_num_key_heads": 16,
                "linear_num_value_heads": _VALUE_HEADS[shape.hidden],
                "linear_key_head_dim": 128,
                "linear_value_head_dim": 128,
                "tie_word_embeddings": shape.tied,
            },
            vision_config={
                "depth": depth,
                "hidden_size": hidden,
                "num_heads": heads,
                "intermediate_size": shape.vision_mlp,
                "out_hidden_size": shape.hidden,
            },
            tie_word_embeddings=shape.tied,
        )

    def attention_layers(self, text: Any) -> int:
        """As the base says."""
        return sum(kind == "full_attention" for kind in text.layer_types)

    def linears(self, text: Any) -> list[tuple[int, int]]:
        """Of attention layers, with gates beside their queries, and of delta nets: qkv, z, b, a, out, and the MLP."""
        hidden, (keys, values) = text.hidden_size, _state_widths(text)
        heads = text.linear_num_value_heads
        inputs = [(hidden, 2 * keys + values), (hidden, values), (hidden, heads), (hidden, heads)]
        state = [*inputs, (values, hidden), *mlp_layers(hidden, text.intermediate_size)]
        attending = self.attention_layers(text)
        return attention_layer(text, gated=True) * attending + state * (text.num_hidden_layers - attending)

    def vectors(self, text: Any) -> int:
        """Norms of attention layers; of the others norms, the convolution, and three vectors of the state."""
        keys, values = _state_widths(text)
        convolution = (2 * keys + values) * text.linear_conv_kernel_dim
        state = 2 * text.hidden_size + convolution + 2 * text.linear_num_value_heads + text.linear_value_head_dim
        attending = self.attention_layers(text)
        return attending * self.vectors_per_layer(text) + (text.num_hidden_layers - attending) * state

    def state_numbers(self, text: Any) -> int:
        """As the base says: the convolution's last columns, and a matrix of keys by values for each head."""
        keys, values = _state_widths(text)
        convolution = (2 * keys + values) * text.linear_conv_kernel_dim
        matrices = values * text.linear_key_head_dim
        return (text.num_hidden_layers - self.attention_layers(text)) * (convolution + matrices)

    def state_operations(self, text: Any) -> int:
        """The convolution, and three passes over the state for each token: to recall, to change it, to read."""
        keys, values = _state_widths(text)
        convolution = 2 * (2 * keys + values) * text.linear_conv_kernel_dim
        passes = 6 * values * text.linear_key_head_dim
        return (text.num_hidden_layers - self.attention_layers(text)) * (convolution + passes)

    def state_memory(self, text: Any) -> StateMemory:
        """As the base says, of transformers' own operations, in float32: flash-linear-attention's kernels keep less.

        Each value head has a few 64 x 64 matrices for every 64 tokens.
        """
        (keys, values), heads = _state_widths(text), text.linear_num_value_heads
        return StateMemory(
            9 * keys + 86 * values + 455 * heads, 10 * values + 500 * heads, 4 * keys + 45 * values + 780 * heads
        )

    def tiny(self, tokenizer: Any, sizes: TinySizes) -> tuple[Any, Any]:
        """As the base says."""
        network = self.network_class()(tiny_config(tokenizer, sizes))
        network.generation_config.eos_token_id = tokenizer.convert_tokens_to_ids("<|im_end|>")
        return network, tiny_processor(tokenizer, sizes)


def tiny_config(tokenizer: Any, sizes: TinySizes) -> Any:
    """A configuration of these sizes: every second layer attends, so that two layers hold both kinds."""
    from transformers import Qwen3_5Config

    head = sizes.hidden // sizes.heads
    width = head // 4 * 5 // 16  # positions turn half of a head: a quarter of a small one is too little for three axes
    token = tokenizer.convert_tokens_to_ids
    return Qwen3_5Config(
        text_config={
            **tiny_text_settings(tokenizer, sizes),
            "head_dim": head,
            "rope_parameters": _rope(10_000.0, (head // 4 - 2 * width, width, width), 0.5),
            "full_attention_interval": 2,
            "linear_num_key_heads": sizes.kv_heads,
            "linear_num_value_heads": sizes.heads,
            "linear_key_head_dim": head,
            "linear_value_head_dim": head,
            "tie_word_embeddings": sizes.tied,
        },
        vision_config={
            "depth": sizes.vision_depth,
            "hidden_size": sizes.vision_hidden,
            "intermediate_size": sizes.vision_mlp,
            "num_heads": sizes.vision_heads,
            "out_hidden_size": sizes.hidden,
            "initializer_range": sizes.initializer_range,
            "num_position_embeddings": 64,
        },
        image_token_id=token("<|image_pad|>"),
        video_token_id=token("<|video_pad|>"),
        vision_start_token_id=token("<|vision_start|>"),
        vision_end_token_id=token("<|vision_end|>"),
        tie_word_embeddings=sizes.tied,
    )


def _state_widths(text: Any) -> tuple[int, int]:
    """Numbers per token in all keys (or queries) of a gated delta net, and in all values."""
    keys = text.linear_num_key_heads * text.linear_key_head_dim
    return keys, text.linear_num_value_heads * text.linear_value_head_dim


def _rope(theta: float, section: Sequence[int], share: float = ROTARY_SHARE) -> dict[str, Any]:
    return {
        "rope_type": "default",
        "rope_theta": theta,
        "mrope_section": list(section),
        "mrope_interleaved": True,
        "partial_rotary_factor": share,
    }
