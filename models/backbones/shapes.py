"""Networks without their weights: on the meta device, and counts of parameters and operations from a configuration.

What a preset would do to a 72B can be checked in a second, where its weights would need a cluster. The shapes of
released checkpoints are those of each one's own config.json on the Hugging Face hub (`Backbone.published`); most are
also in table 1 of the Qwen2.5-VL report (arXiv 2502.13923), which gives 3456 as the vision tower's MLP where the 3B and
the 7B were released with 3420. A network built from them has as many parameters, to the last one, as the hub counts in
the checkpoint's files.

A multiplication and its addition are two operations. Only what any correct implementation computes is counted: linear
layers over real tokens, and attention over the pairs of tokens that may see each other. Norms, activations, rotations
and softmax are left out; so is whatever a kernel computes and masks away, which therefore shows as time that the count
does not explain. Linear layers are tested against torch's FlopCounterMode, which does not count attention on the CPU.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.modeling_utils import set_zero3_state

from ..engine import Head
from .base import attention_widths
from .families import backbone_for


def meta_model(config: PreTrainedConfig, head: Head | None = None) -> PreTrainedModel:
    """The network of a configuration on the meta device: every module and name of the real one, and no weights.

    Args:
        config: of a supported backbone.
        head: one that has a layer replaces the output layer by it.
    """
    head = head if head is not None and head.has_layer else None
    if head is not None:
        config = copy.deepcopy(config)
        config.id2label = dict(enumerate(head.labels))
    # Under ZeRO-3 transformers would shard parts of it over the ranks, if it did not know that this is done already.
    with torch.device("meta"), set_zero3_state():
        return backbone_for(config.model_type).network(scored=head is not None)(config)


@dataclass(frozen=True)
class Parameters:
    """How many parameters a network has, part by part; from its configuration alone.

    `linears` are the matrices of the decoder layers' linear layers, which adapters and quantisation are about; `rest`
    is what is left of the language model: biases and norms.
    """

    embeddings: int
    lm_head: int  # 0 where it is tied to the embeddings
    linears: int
    rest: int
    vision: int  # tower and merger
    audio: int = 0

    @property
    def total(self) -> int:
        """All of them."""
        return self.embeddings + self.lm_head + self.linears + self.rest + self.vision + self.audio

    @classmethod
    def of(cls, config: Any) -> Parameters:
        """Of a backbone's configuration."""
        text, backbone = config.get_text_config(), backbone_for(config.model_type)
        words = text.vocab_size * text.hidden_size
        vision, audio = backbone.vision_config(config), backbone.audio_config(config)
        return cls(
            embeddings=words,
            lm_head=0 if config.tie_word_embeddings else words,
            linears=sum(i * o for i, o in backbone.linears(text)),
            rest=backbone.vectors(text) + text.hidden_size,
            vision=0 if vision is None else backbone.vision_parameters(vision),
            audio=0 if audio is None else backbone.audio_parameters(audio),
        )


def language_linears(config: Any) -> list[tuple[int, int]]:
    """(inputs, outputs) of the linear layers of all decoder layers, from a backbone's configuration."""
    return backbone_for(config.model_type).linears(config.get_text_config())


def lora_parameters(config: Any, rank: int) -> int:
    """Of adapters of this rank on every linear layer of the language model: rank x (inputs + outputs) each."""
    return rank * sum(i + o for i, o in language_linears(config))


def kept_numbers(config: Any) -> tuple[int, int]:
    """Numbers that a network keeps of a prefix: for each token, in keys and values, and whatever its length."""
    text, backbone = config.get_text_config(), backbone_for(config.model_type)
    return 2 * attention_widths(text)[1] * backbone.attention_layers(text), backbone.state_numbers(text)


VERDICT_ROWS = 2
"""Of the output layer, that a next-token verdict needs."""


@dataclass(frozen=True)
class Operations:
    """Operations of linear layers (the patch embedding among them) and of attention."""

    linear: int
    attention: int

    @property
    def total(self) -> int:
        """Both."""
        return self.linear + self.attention

    def __add__(self, other: Operations) -> Operations:
        """Of one after the other."""
        return Operations(self.linear + other.linear, self.attention + other.attention)


def forward_operations(config: Any, grids: Sequence[Sequence[int]], prefix: int, claims: Sequence[int]) -> Operations:
    """A forward that computes the evidence once and all claims after it; the sum over single claims is the plain way.

    Args:
        config: of the backbone.
        grids: (t, h, w) patches of every video and image, before merging.
        prefix: tokens of the evidence, visual ones included.
        claims: tokens of each claim.
    """
    text, backbone = config.get_text_config(), backbone_for(config.model_type)
    n_tokens, pairs = prefix + sum(claims), _causal(prefix) + sum(n * prefix + _causal(n) for n in claims)
    output = 2 * text.hidden_size * VERDICT_ROWS * len(claims)
    linears, (queries, _) = sum(i * o for i, o in backbone.linears(text)), attention_widths(text)
    attention = 4 * queries * pairs * backbone.attention_layers(text) + n_tokens * backbone.state_operations(text)
    return Operations(2 * n_tokens * linears + output, attention) + vision_operations_of(config, grids)


def training_operations(
    config: Any, grids: Sequence[Sequence[int]], prefix: int, claims: Sequence[int], lora_rank: int
) -> Operations:
    """Forward and backward of LoRA on all linear layers of the language model, checkpointed, with a frozen tower.

    Every layer runs forward twice. A frozen linear layer's backward costs one forward more (the gradient of its input;
    its weights have none); adapters' and attention's cost two. The tower only runs forward.
    """
    text, n_tokens = config.text_config, prefix + sum(claims)
    tower = vision_operations_of(config, grids)
    whole = forward_operations(config, grids, prefix, claims)
    output = 2 * text.hidden_size * VERDICT_ROWS * len(claims)
    layers = Operations(whole.linear - tower.linear - output, whole.attention - tower.attention)
    adapters = 2 * n_tokens * lora_parameters(config, lora_rank)
    linear = 3 * layers.linear + 4 * adapters + 2 * output
    return Operations(linear, 4 * layers.attention) + tower


def vision_operations_of(config: Any, grids: Sequence[Sequence[int]]) -> Operations:
    """The vision tower of a backbone's configuration; nothing of a text backbone."""
    backbone = backbone_for(config.model_type)
    vision = backbone.vision_config(config)
    return Operations(0, 0) if vision is None else Operations(*backbone.vision_operations(vision, grids))


def _causal(n_tokens: int) -> int:
    """Pairs of a token and itself or an earlier one."""
    return n_tokens * (n_tokens + 1) // 2
