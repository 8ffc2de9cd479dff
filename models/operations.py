"""Operations counted from a configuration: what claims about one evidence must cost, together and one by one.

A multiplication and its addition are two operations. Only what any correct implementation computes is counted: linear
layers over real tokens, and attention over the pairs of tokens that may see each other. Norms, activations, rotations
and softmax are left out; so is whatever a kernel computes and masks away, which therefore shows as time that the count
does not explain. Linear layers are tested against torch's FlopCounterMode, which does not see attention on the CPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .shapes import language_linears


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


def forward(config: Any, grids: Sequence[Sequence[int]], prefix: int, claims: Sequence[int]) -> Operations:
    """A forward that computes the evidence once and all claims after it; the sum over single claims is the plain way.

    Args:
        config: of the backbone.
        grids: (t, h, w) patches of every video and image, before merging.
        prefix: tokens of the evidence, visual ones included.
        claims: tokens of each claim.
    """
    text = config.text_config
    n_tokens, pairs = prefix + sum(claims), _causal(prefix) + sum(n * prefix + _causal(n) for n in claims)
    output = 2 * text.hidden_size * text.vocab_size * len(claims)
    layers = Operations(2 * n_tokens * sum(i * o for i, o in language_linears(text)), 4 * text.hidden_size * pairs)
    return _times(layers, text.num_hidden_layers) + Operations(output, 0) + vision(config.vision_config, grids)


def training_step(
    config: Any, grids: Sequence[Sequence[int]], prefix: int, claims: Sequence[int], lora_rank: int
) -> Operations:
    """Forward and backward of LoRA on all linear layers of the language model, checkpointed, with a frozen tower.

    Every layer runs forward twice. A frozen linear layer's backward costs one forward more (the gradient of its input;
    its weights have none); adapters' and attention's cost two. The tower only runs forward.
    """
    text, n_tokens = config.text_config, prefix + sum(claims)
    seen = vision(config.vision_config, grids)
    whole = forward(config, grids, prefix, claims)
    output = 2 * text.hidden_size * text.vocab_size * len(claims)
    layers = Operations(whole.linear - seen.linear - output, whole.attention - seen.attention)
    adapters = 2 * n_tokens * lora_rank * sum(i + o for i, o in language_linears(text)) * text.num_hidden_layers
    linear = 3 * layers.linear + 4 * adapters + 2 * output
    return Operations(linear, 4 * layers.attention) + seen


def vision(config: Any, grids: Sequence[Sequence[int]]) -> Operations:
    """The vision tower and its merger. Windows see themselves; in some layers a whole temporal patch sees itself."""
    hidden, merged = config.hidden_size, config.hidden_size * config.spatial_merge_size**2
    pixels = config.in_channels * config.temporal_patch_size * config.patch_size**2
    patches = sum(t * h * w for t, h, w in grids)
    layer = 2 * patches * (4 * hidden**2 + 3 * hidden * config.intermediate_size)
    merger = 2 * (patches // config.spatial_merge_size**2) * (merged**2 + merged * config.out_hidden_size)
    full = len(config.fullatt_block_indexes)
    side = config.window_size // config.patch_size  # patches
    windowed_pairs = sum(t * _windows(h, side) * _windows(w, side) for t, h, w in grids)
    pairs = full * sum(t * (h * w) ** 2 for t, h, w in grids) + (config.depth - full) * windowed_pairs
    return Operations(2 * patches * pixels * hidden + config.depth * layer + merger, 4 * hidden * pairs)


def _causal(n_tokens: int) -> int:
    """Pairs of a token and itself or an earlier one."""
    return n_tokens * (n_tokens + 1) // 2


def _windows(length: int, side: int) -> int:
    """Sum of squares of the pieces that windows cut a side into; in two dimensions they multiply to pairs."""
    return length // side * side**2 + (length % side) ** 2


def _times(operations: Operations, n: int) -> Operations:
    return Operations(operations.linear * n, operations.attention * n)
