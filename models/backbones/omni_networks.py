"""Qwen2.5-Omni's thinker as the engine calls it: sounds as one table of frames, or their features; few logits.

transformers' own forward computes logits of the whole vocabulary at every token, and takes sounds padded to one length.
Names of classes and weights are transformers' own, so checkpoints load and open elsewhere unchanged. Apart from the
family's file because these are networks: importing them imports torch.

Shape suffixes: _FM mel frames of all sounds by mel bins, _N sounds, _TH audio tokens by hidden size.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from transformers import PreTrainedModel
from transformers.conversion_mapping import get_checkpoint_conversion_mapping, register_checkpoint_conversion_mapping
from transformers.modeling_outputs import CausalLMOutputWithPast
from transformers.modeling_utils import slice_logits_to_keep
from transformers.models.qwen2_5_omni import modeling_qwen2_5_omni as original


class Qwen2_5OmniThinkerModel(original.Qwen2_5OmniThinkerModel):  # noqa: N801 (transformers' name)
    """The network without an output layer."""

    def forward(  # type: ignore[override]
        self,
        input_ids: torch.Tensor | None = None,
        *,
        audio_values: torch.Tensor | None = None,
        audio_frames: torch.Tensor | None = None,
        audio_features: torch.Tensor | None = None,
        second_per_grid_ts: Any = None,
        **kwargs: Any,
    ) -> Any:
        """As transformers' own; and what is heard.

        Args:
            input_ids: tokens.
            audio_values: (F, M) log-mel frames of all sounds, one after the other.
            audio_frames: (N,) how many of them each sound has.
            audio_features: (T, H) what the audio tower gives, in place of the frames.
            second_per_grid_ts: of the videos; positions are given, so nothing here needs it.
            **kwargs: the rest.
        """
        if audio_values is not None and audio_frames is not None:
            audio_features = self.heard(audio_values, audio_frames)
        if audio_features is not None and input_ids is not None:
            embedded = self.get_input_embeddings()(input_ids)
            places = (input_ids == self.config.audio_token_id)[..., None]
            kwargs["inputs_embeds"] = embedded.masked_scatter(
                places, audio_features.to(embedded.device, embedded.dtype)
            )
        return super().forward(input_ids=cast(Any, input_ids), **kwargs)

    def heard(self, audio_values_FM: torch.Tensor, audio_frames_N: torch.Tensor) -> torch.Tensor:
        """(T, H) features of all sounds, one after the other."""
        features_TH = self.audio_tower(audio_values_FM.T, feature_lens=audio_frames_N).pooler_output
        unused = self.audio_tower.audio_bos_eos_token.weight  # of the checkpoint, and part of no sound
        if unused.requires_grad and torch.is_grad_enabled():  # ranks wait for its gradient where the tower trains
            features_TH = features_TH + 0.0 * unused.sum()
        return features_TH


class Qwen2_5OmniThinkerForConditionalGeneration(original.Qwen2_5OmniThinkerForConditionalGeneration):  # noqa: N801
    """The network with the checkpoint's own output layer."""

    # Of a whole published checkpoint: what speaks. transformers' own class would name them as left over.
    _keys_to_ignore_on_load_unexpected = [r"^talker\.", r"^token2wav\."]  # noqa: RUF012

    def __init__(self, config: Any) -> None:
        PreTrainedModel.__init__(self, config)
        text = config.text_config
        self.vocab_size = text.vocab_size
        self.model = Qwen2_5OmniThinkerModel(config)
        self.lm_head = torch.nn.Linear(text.hidden_size, text.vocab_size, bias=False)
        self.spatial_merge_size = config.vision_config.spatial_merge_size
        self.post_init()

    def forward(self, *, logits_to_keep: int | torch.Tensor = 0, labels: None = None, **kwargs: Any) -> Any:
        """Logits (N, V) at the N positions that the bool mask `logits_to_keep` names; the rest as the body's own.

        `labels` is there because PEFT always passes it: the loss is not the network's.
        """
        outputs = self.model(**kwargs)
        logits = self.lm_head(slice_logits_to_keep(outputs[0], logits_to_keep))
        return CausalLMOutputWithPast(logits=logits, past_key_values=outputs.past_key_values)


# Weights have other names in published files than in memory. transformers renames them for classes of its own alone,
# and for those that are registered.
register_checkpoint_conversion_mapping(
    Qwen2_5OmniThinkerForConditionalGeneration.__name__,
    cast(Any, get_checkpoint_conversion_mapping(Qwen2_5OmniThinkerForConditionalGeneration.__name__)),
    overwrite=True,
)
