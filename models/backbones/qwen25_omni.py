"""Qwen2.5-Omni, its thinker: Qwen2.5-VL's eyes, an audio tower, and positions in time that both share.

What differs from Qwen2.5-VL (Qwen2.5-Omni report, arXiv 2503.20215): a temporal position is 40 ms, which is one token
of audio; a video with its own sound is written in chunks of two seconds, each with its pictures and then what is heard
in it. The talker and the vocoder of a published checkpoint are not loaded: a verdict is a word of the thinker.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from .base import Shape, TinySizes, TowerMemory
from .qwen25 import ROPE_THETA, text_settings, tiny_text_settings
from .qwen25_vl import MROPE_SECTION, Qwen25VL, tiny_section, vision_settings

if TYPE_CHECKING:
    from ..inputs import VisionLayout

# Same structure as the released template, without its default system turn and its numbers of pictures and sounds.
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}"
    "{% for content in message['content'] %}"
    "{% if content['type'] == 'image' %}<|vision_bos|><|IMAGE|><|vision_eos|>"
    "{% elif content['type'] == 'audio' %}<|audio_bos|><|AUDIO|><|audio_eos|>"
    "{% elif content['type'] == 'video' %}<|vision_bos|><|VIDEO|><|vision_eos|>"
    "{% elif 'text' in content %}{{ content['text'] }}{% endif %}"
    "{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

# As the tokenizers of released checkpoints name them.
TOKENS = {
    "image_token": "<|IMAGE|>",
    "audio_token": "<|AUDIO|>",
    "video_token": "<|VIDEO|>",
    "vision_bos_token": "<|vision_bos|>",
    "vision_eos_token": "<|vision_eos|>",
    "audio_bos_token": "<|audio_bos|>",
    "audio_eos_token": "<|audio_eos|>",
}

_AUDIO_TOWER = {  # of both released sizes
    "num_mel_bins": 128,
    "d_model": 1280,
    "encoder_layers": 32,
    "encoder_attention_heads": 20,
    "encoder_ffn_dim": 5120,
}


class Qwen25Omni(Qwen25VL):
    """Qwen2.5-Omni's thinker."""

    model_type = "qwen2_5_omni_thinker"
    aliases = ("qwen2_5_omni",)
    name = "Qwen2.5-Omni"
    hears = True
    published: ClassVar = {
        "Qwen2.5-Omni-3B": Shape(2048, 36, 16, 2, 11008, 151_936, tied=False, vision_mlp=3420),
        "Qwen2.5-Omni-7B": Shape(3584, 28, 28, 4, 18944, 152_064, tied=False, vision_mlp=3420),
    }
    lora_parts: ClassVar = {
        **Qwen25VL.lora_parts,
        "visual": r"model\.visual\.blocks\..*\.(q|k|v|proj|gate_proj|up_proj|down_proj)",
        "audio": r"model\.audio_tower\.(layers\..*\.(q_proj|k_proj|v_proj|out_proj|fc1|fc2)|proj)",
    }
    unquantised = ("model.audio_tower", *Qwen25VL.unquantised)
    processor_classes: ClassVar = {
        **Qwen25VL.processor_classes,
        "processor_class": ("Qwen2_5OmniProcessor",),
        "feature_extractor_type": ("WhisperFeatureExtractor",),
    }

    def config_class(self) -> Any:
        """Of the thinker; of a whole checkpoint's configuration it takes the thinker's part."""
        from transformers import Qwen2_5OmniThinkerConfig

        return Qwen2_5OmniThinkerConfig

    def network_class(self) -> Any:
        """As the base says."""
        from .omni_networks import Qwen2_5OmniThinkerForConditionalGeneration

        return Qwen2_5OmniThinkerForConditionalGeneration

    def body_class(self) -> Any:
        """As the base says."""
        from .omni_networks import Qwen2_5OmniThinkerModel

        return Qwen2_5OmniThinkerModel

    def vision_layout(self, config: Any) -> VisionLayout:
        """A video is one run of placeholders, in chunks between runs of audio tokens where its sound is heard."""
        from ..inputs import VisionLayout

        vision = config.vision_config
        return VisionLayout(
            image_token_id=config.image_token_id,
            video_token_id=config.video_token_id,
            spatial_merge_size=vision.spatial_merge_size,
            tokens_per_second=float(config.position_id_per_seconds),
            patch_step=vision.patch_size * vision.spatial_merge_size,
            audio_token_id=config.audio_token_id,
            audio_start_id=config.audio_start_token_id,
            audio_end_id=config.audio_end_token_id,
            seconds_per_chunk=float(config.seconds_per_chunk),
        )

    def published_config(self, shape: Shape) -> Any:
        """As the base says."""
        rope = {"rope_type": "default", "rope_theta": ROPE_THETA, "mrope_section": list(MROPE_SECTION)}
        vision = vision_settings(shape)
        del vision["tokens_per_second"]
        return self.config_class()(
            text_config={**text_settings(shape), "rope_parameters": rope, "tie_word_embeddings": shape.tied},
            vision_config=vision,
            audio_config={**_AUDIO_TOWER, "output_dim": shape.hidden},
            vision_start_token_id=151_652,
            tie_word_embeddings=shape.tied,
        )

    def audio_memory(self, audio: Any) -> TowerMemory:
        """As the base says; layers hold a vector for every second frame."""
        width, mlp, bins = audio.d_model, audio.encoder_ffn_dim, audio.num_mel_bins
        return TowerMemory(max(4.5 * width, mlp + 1.5 * width) + bins, mlp + 4 * width, 0.0, 5 * width + 2 * bins)

    def audio_parameters(self, audio: Any) -> int:
        """Two convolutions, layers (keys have no bias), a norm, the projection, and two vectors that nothing uses."""
        width, mlp, out = audio.d_model, audio.encoder_ffn_dim, audio.output_dim
        convolutions = 3 * audio.num_mel_bins * width + width + 3 * width * width + width
        layer = 4 * width * width + 3 * width + 2 * width * mlp + mlp + width + 4 * width
        return convolutions + audio.encoder_layers * layer + 2 * width + width * out + out + 2 * out

    def audio_operations(self, audio: Any, frames: Sequence[int]) -> tuple[int, int]:
        """As the base says; a convolution is counted as the linear layer it is. Chunks of 2 s see themselves."""
        width, chunk = audio.d_model, 2 * audio.n_window
        halves = [(n - 1) // 2 + 1 for n in frames]
        tokens = [(n - 2) // 2 + 1 for n in halves]
        convolutions = 2 * 3 * (sum(frames) * audio.num_mel_bins * width + sum(halves) * width * width)
        layer = 2 * sum(halves) * (4 * width * width + 2 * width * audio.encoder_ffn_dim)
        projection = 2 * sum(tokens) * width * audio.output_dim
        pairs = sum(n // chunk * (chunk // 2) ** 2 + ((n % chunk - 1) // 2 + 1) ** 2 * bool(n % chunk) for n in frames)
        return convolutions + audio.encoder_layers * layer + projection, 4 * width * pairs * audio.encoder_layers

    def tiny(self, tokenizer: Any, sizes: TinySizes) -> tuple[Any, Any]:
        """As the base says; the processor is the real one with small pixel limits and few mel bins."""
        from transformers import (
            Qwen2_5OmniProcessor,
            Qwen2VLImageProcessor,
            Qwen2VLVideoProcessor,
            WhisperFeatureExtractor,
        )

        tokenizer._set_model_specific_special_tokens(TOKENS)  # as it does for those a file names
        tokenizer.add_special_tokens(TOKENS)
        network = self.network_class()(tiny_config(tokenizer, sizes))
        network.generation_config.eos_token_id = tokenizer.convert_tokens_to_ids("<|im_end|>")
        size = {"shortest_edge": sizes.min_pixels, "longest_edge": sizes.max_pixels}
        processor = Qwen2_5OmniProcessor(
            image_processor=Qwen2VLImageProcessor(size=size),
            video_processor=Qwen2VLVideoProcessor(size=size),
            feature_extractor=WhisperFeatureExtractor(
                feature_size=sizes.mel_bins, chunk_length=300, return_attention_mask=True
            ),
            tokenizer=tokenizer,
            chat_template=CHAT_TEMPLATE,
        )
        return network, processor


def tiny_config(tokenizer: Any, sizes: TinySizes) -> Any:
    """A configuration of these sizes; the audio tower is as wide as the vision tower."""
    from transformers import Qwen2_5OmniThinkerConfig

    rope = {"rope_type": "default", "rope_theta": 10_000.0, "mrope_section": tiny_section(sizes)}
    token = tokenizer.convert_tokens_to_ids
    return Qwen2_5OmniThinkerConfig(
        text_config={
            **tiny_text_settings(tokenizer, sizes),
            "rope_parameters": rope,
            "tie_word_embeddings": sizes.tied,
        },
        vision_config={
            "depth": sizes.vision_depth,
            "hidden_size": sizes.vision_hidden,
            "intermediate_size": sizes.vision_mlp,
            "num_heads": sizes.vision_heads,
            "out_hidden_size": sizes.hidden,
            "window_size": sizes.window,
            "initializer_range": sizes.initializer_range,
            "fullatt_block_indexes": [sizes.vision_depth - 1],
        },
        audio_config={
            "num_mel_bins": sizes.mel_bins,
            "d_model": sizes.vision_hidden,
            "encoder_layers": sizes.vision_depth,
            "encoder_attention_heads": sizes.vision_heads,
            "encoder_ffn_dim": sizes.vision_mlp,
            "output_dim": sizes.hidden,
            "initializer_range": sizes.initializer_range,
        },
        image_token_index=token("<|IMAGE|>"),
        video_token_index=token("<|VIDEO|>"),
        audio_token_index=token("<|AUDIO|>"),
        audio_start_token_id=token("<|audio_bos|>"),
        audio_end_token_id=token("<|audio_eos|>"),
        **{"vision_start_token_id": token("<|vision_bos|>"), "vision_end_token_id": token("<|vision_eos|>")},
        initializer_range=sizes.initializer_range,
        tie_word_embeddings=sizes.tied,
    )
