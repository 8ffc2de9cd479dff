"""Qwen3-VL, dense: pictures in steps of 32 pixels, the time of every frame as text, and DeepStack.

What differs from Qwen2.5-VL (Qwen3-VL report, arXiv 2511.21631, section 2): a video is written frame by frame, each
temporal patch with its time in seconds before it and a run of placeholders of its own, so that no rotary position is a
time; rotary sections are interleaved; the tower looks at whole frames in every layer, and feature maps of three of its
layers are added to the first layers of the language model.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from .base import Backbone, Shape, TinySizes, TowerMemory
from .qwen25 import TOKENIZER_CLASSES, text_settings, tiny_text_settings
from .qwen25_vl import CHAT_TEMPLATE

if TYPE_CHECKING:
    from ..inputs import VisionLayout

ROPE_THETA = 5_000_000.0
MROPE_SECTION = (24, 20, 20)  # of half a head: t, h, w, in turns
FRAME_TURN = "<{seconds:.1f} seconds><|vision_start|><|video_pad|><|vision_end|>"
VOCABULARY = 151_936

# Of the vision tower, by its MLP: depth, hidden, layers whose feature maps go on. The 2B and 4B have the smaller one.
_TOWERS = {4096: (24, 1024, (5, 11, 17)), 4304: (27, 1152, (8, 16, 24))}


class Qwen3VL(Backbone):
    """Qwen3-VL, the dense models."""

    model_type = "qwen3_vl"
    name = "Qwen3-VL"
    sees = True
    published: ClassVar = {
        "Qwen3-VL-2B-Instruct": Shape(2048, 28, 16, 8, 6144, VOCABULARY, tied=True, vision_mlp=4096, head=128),
        "Qwen3-VL-4B-Instruct": Shape(2560, 36, 32, 8, 9728, VOCABULARY, tied=True, vision_mlp=4096, head=128),
        "Qwen3-VL-8B-Instruct": Shape(4096, 36, 32, 8, 12288, VOCABULARY, tied=False, vision_mlp=4304, head=128),
        "Qwen3-VL-32B-Instruct": Shape(5120, 64, 64, 8, 25600, VOCABULARY, tied=False, vision_mlp=4304, head=128),
    }
    lora_parts: ClassVar = {
        "language_model": Backbone.lora_parts["language_model"],
        "visual": r"model\.visual\.blocks\..*\.(qkv|proj|linear_fc1|linear_fc2)",
        "merger": r"model\.visual\.(merger|deepstack_merger_list\.\d+)\.linear_fc[12]",
        "lm_head": Backbone.lora_parts["lm_head"],
    }
    unquantised = ("model.visual", *Backbone.unquantised)
    norms_queries = True
    processor_classes: ClassVar = {
        **TOKENIZER_CLASSES,
        "processor_class": ("Qwen3VLProcessor",),
        "image_processor_type": ("Qwen2VLImageProcessor", "Qwen2VLImageProcessorFast"),
        "image_processor_class": ("Qwen2VLImageProcessor", "Qwen2VLImageProcessorFast"),
        "feature_extractor_type": ("Qwen2VLImageProcessor",),
        "video_processor_type": ("Qwen3VLVideoProcessor",),
    }

    def config_class(self) -> Any:
        """As the base says."""
        from transformers import Qwen3VLConfig

        return Qwen3VLConfig

    def network_class(self) -> Any:
        """As the base says."""
        from transformers import Qwen3VLForConditionalGeneration

        return Qwen3VLForConditionalGeneration

    def body_class(self) -> Any:
        """As the base says."""
        from transformers import Qwen3VLModel

        return Qwen3VLModel

    def vision_layout(self, config: Any) -> VisionLayout:
        """A video is a run of placeholders per temporal patch, its time before it; positions know no seconds."""
        from ..inputs import VisionLayout

        vision = config.vision_config
        return VisionLayout(
            image_token_id=config.image_token_id,
            video_token_id=config.video_token_id,
            spatial_merge_size=vision.spatial_merge_size,
            patch_step=vision.patch_size * vision.spatial_merge_size,
            frame_turn=FRAME_TURN,
            levels=1 + len(vision.deepstack_visual_indexes),
            video_budget=True,
        )

    def published_config(self, shape: Shape) -> Any:
        """As the base says."""
        depth, hidden, inner = _TOWERS[shape.vision_mlp or 0]
        return self.config_class()(
            text_config={
                **text_settings(shape),
                "head_dim": shape.head,
                "rope_parameters": _rope(ROPE_THETA, MROPE_SECTION),
            },
            vision_config={
                "depth": depth,
                "hidden_size": hidden,
                "intermediate_size": shape.vision_mlp,
                "out_hidden_size": shape.hidden,
                "deepstack_visual_indexes": list(inner),
            },
            tie_word_embeddings=shape.tied,
        )

    def vectors_per_layer(self, text: Any) -> int:
        """Four norms: before attention and MLP, and of queries and keys. There are no biases."""
        return 2 * text.hidden_size + 2 * text.head_dim

    def vision_parameters(self, vision: Any) -> int:
        """As the base says."""
        hidden, mlp = vision.hidden_size, vision.intermediate_size
        attention = hidden * 3 * hidden + 3 * hidden + hidden * hidden + hidden
        block = attention + 2 * hidden * mlp + mlp + hidden + 4 * hidden  # two norms with biases
        patches = _patch_values(vision) * hidden + hidden
        merged = hidden * vision.spatial_merge_size**2
        merger = merged * merged + merged + merged * vision.out_hidden_size + vision.out_hidden_size
        inner = len(_inner(vision))
        norms = 2 * hidden + inner * 2 * merged
        return patches + vision.num_position_embeddings * hidden + vision.depth * block + (1 + inner) * merger + norms

    def tower_memory(self, vision: Any) -> TowerMemory:
        """As the base says; frozen, the peak is where position embeddings are interpolated, in wide layers the MLP."""
        h, m = vision.hidden_size, vision.intermediate_size
        return TowerMemory(max(20.5 * h, 2 * m + 6.5 * h), 2 * m + 11 * h, 2 * m, 8 * h)

    def vision_operations(self, vision: Any, grids: Sequence[Sequence[int]]) -> tuple[int, int]:
        """As the base says; every layer sees whole temporal patches."""
        hidden, merged = vision.hidden_size, vision.hidden_size * vision.spatial_merge_size**2
        patches = sum(t * h * w for t, h, w in grids)
        layer = 2 * patches * (4 * hidden**2 + 2 * hidden * vision.intermediate_size)
        merger = 2 * (patches // vision.spatial_merge_size**2) * (merged**2 + merged * vision.out_hidden_size)
        mergers = (1 + len(_inner(vision))) * merger
        pairs = vision.depth * sum(t * (h * w) ** 2 for t, h, w in grids)
        return 2 * patches * _patch_values(vision) * hidden + vision.depth * layer + mergers, 4 * hidden * pairs

    def tiny(self, tokenizer: Any, sizes: TinySizes) -> tuple[Any, Any]:
        """As the base says."""
        network = self.network_class()(tiny_config(tokenizer, sizes))
        network.generation_config.eos_token_id = tokenizer.convert_tokens_to_ids("<|im_end|>")
        return network, tiny_processor(tokenizer, sizes)


def tiny_processor(tokenizer: Any, sizes: TinySizes) -> Any:
    """The real processor with small pixel limits, in this family's steps."""
    from transformers import Qwen2VLImageProcessor, Qwen3VLProcessor, Qwen3VLVideoProcessor

    size = {"shortest_edge": sizes.min_pixels, "longest_edge": sizes.max_pixels}
    of_video = {edge: 8 * pixels for edge, pixels in size.items()}
    mean: dict[str, Any] = {"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}
    return Qwen3VLProcessor(
        image_processor=Qwen2VLImageProcessor(size=size, patch_size=16, **mean),
        video_processor=Qwen3VLVideoProcessor(size=of_video),
        tokenizer=tokenizer,
        chat_template=CHAT_TEMPLATE,
    )


def tiny_config(tokenizer: Any, sizes: TinySizes) -> Any:
    """A configuration of these sizes: rotary sections as 3/8, 5/16, 5/16, feature maps of the first three layers."""
    from transformers import Qwen3VLConfig

    head = sizes.hidden // sizes.heads
    width = head // 2 * 5 // 16
    token = tokenizer.convert_tokens_to_ids
    return Qwen3VLConfig(
        text_config={
            **tiny_text_settings(tokenizer, sizes),
            "head_dim": head,
            "rope_parameters": _rope(10_000.0, (head // 2 - 2 * width, width, width)),
        },
        vision_config={
            "depth": sizes.vision_depth,
            "hidden_size": sizes.vision_hidden,
            "intermediate_size": sizes.vision_mlp,
            "num_heads": sizes.vision_heads,
            "out_hidden_size": sizes.hidden,
            "initializer_range": sizes.initializer_range,
            "num_position_embeddings": 64,
            "deepstack_visual_indexes": list(range(min(3, sizes.vision_depth, sizes.layers))),
        },
        image_token_id=token("<|image_pad|>"),
        video_token_id=token("<|video_pad|>"),
        vision_start_token_id=token("<|vision_start|>"),
        vision_end_token_id=token("<|vision_end|>"),
        tie_word_embeddings=sizes.tied,
    )


def _rope(theta: float, section: Sequence[int]) -> dict[str, Any]:
    return {"rope_type": "default", "rope_theta": theta, "mrope_section": list(section), "mrope_interleaved": True}


def _inner(vision: Any) -> Sequence[int]:
    """Layers whose feature maps go on; none of Qwen3.5, which shares this tower."""
    return getattr(vision, "deepstack_visual_indexes", None) or ()


def _patch_values(vision: Any) -> int:
    """Numbers of one patch of pixels."""
    return vision.in_channels * vision.temporal_patch_size * vision.patch_size**2
