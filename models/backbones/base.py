"""What the code knows about a family of checkpoints: the one class to write for another backbone.

A family is a class in a file of its own, and one line of `BACKBONES` (families.py). Nothing here or in a family's file
imports torch before a network is asked for, so that files can be checked and options be listed without it.

What a family says of its pictures and positions is data, a `VisionLayout`: the step of pixels, whether a video is one
run of placeholders or one for each temporal patch with its time as text, how many feature maps its tower gives.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

if TYPE_CHECKING:
    from ..inputs import Branches, VisionLayout

# Anchored on the language model: bare suffixes such as `gate_proj` would hit the vision tower's MLPs as well. A text
# backbone's own layers lie one level higher.
LANGUAGE_LINEARS = r"(.*language_model.*|model\.layers\..*)\.(q_proj|k_proj|v_proj|o_proj|gate_proj|up_proj|down_proj)"


class Shape(NamedTuple):
    """Sizes of a published checkpoint, from its config.json."""

    hidden: int
    layers: int
    heads: int
    key_heads: int
    mlp: int
    vocabulary: int
    tied: bool  # the output layer is the embeddings
    vision_mlp: int | None = None  # None: text only
    head: int | None = None  # size of an attention head, where it is not hidden / heads


class TowerMemory(NamedTuple):
    """Numbers that a tower holds per patch (or mel frame) at its peak, measured tensor by tensor (train/memory.py)."""

    frozen: float
    layer: float  # of every layer, where the tower trains
    working: float  # by the one layer whose backward runs
    ends: float  # by patch embedding and mergers, or convolutions


class StateMemory(NamedTuple):
    """Bytes per token of one layer that carries a state, beside its MLP and norms; measured as `TowerMemory` is."""

    kept: float  # for its backward
    working: float  # while that runs
    forward: float  # at the peak of its forward, where nothing is kept


@dataclass(frozen=True)
class TinySizes:
    """Architecture of the tiny models; a text model leaves out what concerns vision and sound."""

    hidden: int = 128
    layers: int = 3
    heads: int = 4
    kv_heads: int = 2
    mlp: int = 384
    vision_hidden: int = 96
    vision_depth: int = 3
    vision_heads: int = 4
    vision_mlp: int = 256
    window: int = 112
    tokens_per_second: int = 2
    mel_bins: int = 32
    vocab: int = 640
    min_pixels: int = 56 * 56
    max_pixels: int = 84 * 84
    initializer_range: float = 0.02
    tied: bool = False  # the output layer is the embeddings, as in the released checkpoints up to 3B


class Backbone(ABC):
    """A family of checkpoints.

    Attributes:
        model_type: that of config.json, and the key in `BACKBONES`.
        name: the family's, for messages and docs.
        aliases: further model_types of config.json from whose folders this family's network is loaded.
        sees: it has a vision tower.
        hears: it has an audio tower.
        published: shapes of released checkpoints, by the part of their hub id after "Qwen/".
        lora_parts: where LoRA can go: patterns of whole module names. A part that two families have means the same.
        unquantised: modules that stay as they are when a checkpoint is quantised. bitsandbytes matches from the start
            of a module's name and replaces its defaults: name all of them.
        norms_queries: queries and keys pass a norm of their own before they meet.
        branches: whether claims can branch inside one row after their evidence ("packed"), or only from copies of what
            the network holds after it ("copied"), as where some layers carry one state through all tokens.
        processor_classes: values allowed for the keys of tokenizer and processor files that name a class; every other
            value is refused (safety.py).
    """

    model_type: ClassVar[str]
    name: ClassVar[str]
    aliases: ClassVar[tuple[str, ...]] = ()
    sees: ClassVar[bool] = False
    hears: ClassVar[bool] = False
    published: ClassVar[Mapping[str, Shape]] = {}
    lora_parts: ClassVar[Mapping[str, str]] = {"language_model": LANGUAGE_LINEARS, "lm_head": r"lm_head"}
    unquantised: ClassVar[tuple[str, ...]] = ("lm_head", "score")
    norms_queries: ClassVar[bool] = False
    branches: ClassVar[Branches] = "packed"
    processor_classes: ClassVar[Mapping[str, tuple[str, ...]]] = {}

    @abstractmethod
    def config_class(self) -> Any:
        """Of the configuration."""

    @abstractmethod
    def network_class(self) -> Any:
        """Of the network with the checkpoint's own output layer."""

    @abstractmethod
    def body_class(self) -> Any:
        """Of the network without an output layer, which `network_class` holds as `model`."""

    def network(self, scored: bool) -> Any:
        """The class of the network, with a `score` head in place of the output layer or without."""
        if not scored:
            return self.network_class()
        from .score_head import with_score_head

        return with_score_head(self.network_class(), self.body_class())

    def vision_config(self, config: Any) -> Any | None:
        """The part of a configuration that describes the vision tower; None of a text backbone."""
        return config.vision_config if self.sees else None

    def audio_config(self, config: Any) -> Any | None:
        """The part of a configuration that describes the audio tower; None of a backbone that hears nothing."""
        return config.audio_config if self.hears else None

    @abstractmethod
    def vision_layout(self, config: Any) -> VisionLayout:
        """Placeholder tokens, patches and positions; `TEXT_LAYOUT` of a text backbone."""

    @abstractmethod
    def published_config(self, shape: Shape) -> Any:
        """The configuration of a published checkpoint."""

    @abstractmethod
    def vectors_per_layer(self, text: Any) -> int:
        """Parameters of one decoder layer outside its linear layers' matrices: biases and norms.

        Where layers differ, `vectors` is overridden too, and this is what an attention layer holds.
        """

    def vectors(self, text: Any) -> int:
        """Parameters of all decoder layers outside their linear layers' matrices, from the text configuration."""
        return text.num_hidden_layers * self.vectors_per_layer(text)

    def linears(self, text: Any) -> list[tuple[int, int]]:
        """(inputs, outputs) of the linear layers of all decoder layers: q, k, v, o, gate, up, down of each."""
        return attention_layer(text) * text.num_hidden_layers

    def attention_layers(self, text: Any) -> int:
        """Decoder layers in which tokens see one another pair by pair."""
        return text.num_hidden_layers

    def state_numbers(self, text: Any) -> int:
        """Numbers of all layers' states that do not grow with the row."""
        return 0

    def state_operations(self, text: Any) -> int:
        """Operations per token of layers that carry a state instead, outside their linear layers."""
        return 0

    def state_memory(self, text: Any) -> StateMemory:
        """What a layer that carries a state holds per token in place of queries, keys and values."""
        return StateMemory(0, 0, 0)

    def tower_memory(self, vision: Any) -> TowerMemory:
        """What the tower holds per patch, from `vision_config`."""
        raise NotImplementedError

    def vision_parameters(self, vision: Any) -> int:
        """Parameters of the vision tower and its merger, from `vision_config`."""
        raise NotImplementedError

    def vision_operations(self, vision: Any, grids: Sequence[Sequence[int]]) -> tuple[int, int]:
        """Operations of the tower's and merger's linear layers, and of its attention.

        Args:
            vision: from `vision_config`.
            grids: (t, h, w) patches of every video and image, before merging.
        """
        raise NotImplementedError

    def audio_memory(self, audio: Any) -> TowerMemory:
        """What the audio tower holds per mel frame, from `audio_config`."""
        raise NotImplementedError

    def audio_parameters(self, audio: Any) -> int:
        """Parameters of the audio tower, from `audio_config`."""
        raise NotImplementedError

    def audio_operations(self, audio: Any, frames: Sequence[int]) -> tuple[int, int]:
        """Operations of the audio tower's linear layers and of its attention, from the mel frames of every sound."""
        raise NotImplementedError

    @abstractmethod
    def tiny(self, tokenizer: Any, sizes: TinySizes) -> tuple[Any, Any]:
        """A randomly initialised network of these sizes, and its processor or, of a text backbone, its tokenizer.

        The caller seeds torch.
        """


def attention_layer(text: Any, gated: bool = False) -> list[tuple[int, int]]:
    """(inputs, outputs) of a decoder layer with attention: q, k, v, o, gate, up, down; `gated` widens q by a gate."""
    hidden, mlp = text.hidden_size, text.intermediate_size
    queries, keys = attention_widths(text)
    projections = [(hidden, queries * (2 if gated else 1)), (hidden, keys), (hidden, keys), (queries, hidden)]
    return [*projections, *mlp_layers(hidden, mlp)]


def mlp_layers(hidden: int, mlp: int) -> list[tuple[int, int]]:
    """(inputs, outputs) of gate, up and down."""
    return [(hidden, mlp), (hidden, mlp), (mlp, hidden)]


def attention_widths(text: Any) -> tuple[int, int]:
    """Numbers per token in all queries, and in all keys (or values); queries can be wider than the hidden state."""
    head = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    return head * text.num_attention_heads, head * text.num_key_value_heads
