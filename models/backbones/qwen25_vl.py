"""Qwen2.5-VL: a vision tower before the language model of Qwen2.5; it judges claims against every kind of evidence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from .base import Backbone, Shape, TinySizes, TowerMemory
from .qwen25 import ROPE_THETA, TOKENIZER_CLASSES, biases_and_norms, text_settings, tiny_text_settings

if TYPE_CHECKING:
    from ..inputs import VisionLayout

MROPE_SECTION = (16, 24, 24)  # of half a head: t, h, w

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


class Qwen25VL(Backbone):
    """Qwen2.5-VL."""

    model_type = "qwen2_5_vl"
    name = "Qwen2.5-VL"
    sees = True
    published: ClassVar = {
        "Qwen2.5-VL-3B-Instruct": Shape(2048, 36, 16, 2, 11008, 151_936, tied=True, vision_mlp=3420),
        "Qwen2.5-VL-7B-Instruct": Shape(3584, 28, 28, 4, 18944, 152_064, tied=False, vision_mlp=3420),
        "Qwen2.5-VL-72B-Instruct": Shape(8192, 80, 64, 8, 29568, 152_064, tied=False, vision_mlp=3456),
    }
    lora_parts: ClassVar = {
        "language_model": Backbone.lora_parts["language_model"],
        "visual": r"model\.visual\.blocks\..*\.(qkv|proj|gate_proj|up_proj|down_proj)",
        "merger": r"model\.visual\.merger\.mlp\.[02]",
        "lm_head": Backbone.lora_parts["lm_head"],
    }
    unquantised = ("model.visual", *Backbone.unquantised)
    processor_classes: ClassVar = {
        **TOKENIZER_CLASSES,
        "processor_class": ("Qwen2_5_VLProcessor", "Qwen2VLProcessor"),
        "image_processor_type": ("Qwen2VLImageProcessor", "Qwen2VLImageProcessorFast"),
        "image_processor_class": ("Qwen2VLImageProcessor", "Qwen2VLImageProcessorFast"),
        "feature_extractor_type": ("Qwen2VLImageProcessor",),
        "video_processor_type": ("Qwen2VLVideoProcessor", "Qwen2_5_VLVideoProcessor"),
    }

    def config_class(self) -> Any:
        """As the base says."""
        from transformers import Qwen2_5_VLConfig

        return Qwen2_5_VLConfig

    def network_class(self) -> Any:
        """As the base says."""
        from transformers import Qwen2_5_VLForConditionalGeneration

        return Qwen2_5_VLForConditionalGeneration

    def body_class(self) -> Any:
        """As the base says."""
        from transformers import Qwen2_5_VLModel

        return Qwen2_5_VLModel

    def vision_layout(self, config: Any) -> VisionLayout:
        """A video is one run of placeholders, and its temporal positions are seconds times `tokens_per_second`."""
        from ..inputs import VisionLayout

        vision = config.vision_config
        return VisionLayout(
            image_token_id=config.image_token_id,
            video_token_id=config.video_token_id,
            spatial_merge_size=vision.spatial_merge_size,
            tokens_per_second=float(vision.tokens_per_second),
            patch_step=vision.patch_size * vision.spatial_merge_size,
        )

    def published_config(self, shape: Shape) -> Any:
        """As the base says."""
        rope = {"rope_type": "default", "rope_theta": ROPE_THETA, "mrope_section": list(MROPE_SECTION)}
        return self.config_class()(
            text_config={**text_settings(shape), "rope_parameters": rope},
            vision_config=vision_settings(shape),
            tie_word_embeddings=shape.tied,
        )

    def vectors_per_layer(self, text: Any) -> int:
        """As the base says."""
        return biases_and_norms(text)

    def vision_parameters(self, vision: Any) -> int:
        """As the base says."""
        hidden, mlp = vision.hidden_size, vision.intermediate_size
        merged = hidden * vision.spatial_merge_size**2
        attention = hidden * 3 * hidden + 3 * hidden + hidden * hidden + hidden
        block = attention + 3 * hidden * mlp + 2 * mlp + hidden + 2 * hidden  # MLP with biases; two norms
        merger = hidden + merged * merged + merged + merged * vision.out_hidden_size + vision.out_hidden_size
        patches = vision.in_channels * vision.temporal_patch_size * vision.patch_size**2 * hidden
        return patches + vision.depth * block + merger

    def tower_memory(self, vision: Any) -> TowerMemory:
        """As the base says."""
        h, m = vision.hidden_size, vision.intermediate_size
        return TowerMemory(max(18.5 * h, 3 * m + 4.5 * h), 4 * m + 15 * h, 2 * m + 8 * h, 8 * h)

    def vision_operations(self, vision: Any, grids: Sequence[Sequence[int]]) -> tuple[int, int]:
        """As the base says. Windows see themselves; in some layers a whole temporal patch sees itself."""
        hidden, merged = vision.hidden_size, vision.hidden_size * vision.spatial_merge_size**2
        pixels = vision.in_channels * vision.temporal_patch_size * vision.patch_size**2
        patches = sum(t * h * w for t, h, w in grids)
        layer = 2 * patches * (4 * hidden**2 + 3 * hidden * vision.intermediate_size)
        merger = 2 * (patches // vision.spatial_merge_size**2) * (merged**2 + merged * vision.out_hidden_size)
        full = len(vision.fullatt_block_indexes)
        side = vision.window_size // vision.patch_size  # patches
        windowed_pairs = sum(t * _windows(h, side) * _windows(w, side) for t, h, w in grids)
        pairs = full * sum(t * (h * w) ** 2 for t, h, w in grids) + (vision.depth - full) * windowed_pairs
        return 2 * patches * pixels * hidden + vision.depth * layer + merger, 4 * hidden * pairs

    def tiny(self, tokenizer: Any, sizes: TinySizes) -> tuple[Any, Any]:
        """As the base says; the processor is the real one with small pixel limits."""
        from transformers import Qwen2_5_VLProcessor, Qwen2VLImageProcessor, Qwen2VLVideoProcessor

        network = self.network_class()(tiny_config(tokenizer, sizes))
        network.generation_config.eos_token_id = tokenizer.convert_tokens_to_ids("<|im_end|>")
        size = {"shortest_edge": sizes.min_pixels, "longest_edge": sizes.max_pixels}
        processor = Qwen2_5_VLProcessor(
            image_processor=Qwen2VLImageProcessor(size=size),
            video_processor=Qwen2VLVideoProcessor(size=size),
            tokenizer=tokenizer,
            chat_template=CHAT_TEMPLATE,
        )
        return network, processor


def tiny_config(tokenizer: Any, sizes: TinySizes) -> Any:
    """A configuration of these sizes."""
    from transformers import Qwen2_5_VLConfig

    rope = {"rope_type": "default", "rope_theta": 10_000.0, "mrope_section": tiny_section(sizes)}
    token = tokenizer.convert_tokens_to_ids
    return Qwen2_5_VLConfig(
        text_config={**tiny_text_settings(tokenizer, sizes), "rope_parameters": rope},
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
        tie_word_embeddings=sizes.tied,
    )


def tiny_section(sizes: TinySizes) -> list[int]:
    """Rotary sections of t, h and w: half a head as 1/4, 3/8, 3/8, like the real one."""
    half = sizes.hidden // sizes.heads // 2
    return [half // 4, (half - half // 4) // 2, half - half // 4 - (half - half // 4) // 2]


def _windows(length: int, side: int) -> int:
    """Sum of squares of the pieces that windows cut a side into; in two dimensions they multiply to pairs."""
    return length // side * side**2 + (length % side) ** 2


def vision_settings(shape: Shape) -> dict[str, Any]:
    """The vision tower, which is alike in all sizes but for its MLP and the width of its output."""
    return {
        "depth": 32,
        "hidden_size": 1280,
        "intermediate_size": shape.vision_mlp,
        "num_heads": 16,
        "out_hidden_size": shape.hidden,
        "patch_size": 14,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
        "tokens_per_second": 2,
        "window_size": 112,
        "fullatt_block_indexes": [7, 15, 23, 31],
    }
