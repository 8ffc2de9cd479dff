"""The backbones with a `score` head: their classes, and the weights the head starts from.

The head stands in place of the output layer, so no logits over the vocabulary exist anywhere. It is a linear layer
without bias: whatever constant the labels would need is the calibration's business.

Shape suffixes: _N verdict positions, _C labels, _H hidden.

A text checkpoint's tokenizer in the place of a processor: the same calls, and nothing that takes pixels.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from transformers import (
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2_5_VLModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen2Model,
)
from transformers.conversion_mapping import get_checkpoint_conversion_mapping, register_checkpoint_conversion_mapping
from transformers.initialization import copy_
from transformers.modeling_outputs import CausalLMOutputWithPast
from transformers.modeling_utils import slice_logits_to_keep

from ...core import DirectoryError
from ..engine import TWO_LABELS, Head
from ..inputs import LabelWords

# The output layer's weights in a checkpoint; where it is tied to the embeddings, only these are stored.
_OUTPUT_LAYERS = ("lm_head.weight", "model.embed_tokens.weight", "model.language_model.embed_tokens.weight")


class Qwen2_5_VLForVerdicts(Qwen2_5_VLForConditionalGeneration):  # noqa: N801 (named as transformers names its own)
    """Logits of labels at the kept positions. The configuration's `id2label` names the head's rows, in order."""

    _tied_weights_keys = {}  # noqa: RUF012 (as transformers declares it)
    _keys_to_ignore_on_load_unexpected = [r"^lm_head\."]  # noqa: RUF012

    def __init__(self, config: Qwen2_5_VLConfig, start_CH: torch.Tensor | None = None) -> None:
        """`start_CH` are the head's weights where the checkpoint has none; without it they are random."""
        super(Qwen2_5_VLForConditionalGeneration, self).__init__(config)  # all but the output layer
        self.model = Qwen2_5_VLModel(config)
        self.score, self._start_CH = _new_head(config), start_CH
        self.post_init()

    def forward(self, *, logits_to_keep: int | torch.Tensor = 0, labels: None = None, **kwargs: Any) -> Any:  # type: ignore[override]
        """Logits (N, C) at the N positions that the bool mask `logits_to_keep` names; the rest as the backbone's own.

        `labels` is there because PEFT always passes it: the loss is not the network's (models/engine/forward.py).
        """
        return _scored(self, logits_to_keep, kwargs)

    def _init_weights(self, module: torch.nn.Module) -> None:
        if not _started(self, module):
            super()._init_weights(module)


class Qwen2ForVerdicts(Qwen2ForCausalLM):
    """The same of a text backbone."""

    accepts_loss_kwargs = False
    _tied_weights_keys = {}  # noqa: RUF012
    _keys_to_ignore_on_load_unexpected = [r"^lm_head\."]  # noqa: RUF012

    def __init__(self, config: Qwen2Config, start_CH: torch.Tensor | None = None) -> None:
        """`start_CH` as for `Qwen2_5_VLForVerdicts`."""
        super(Qwen2ForCausalLM, self).__init__(config)
        self.model = Qwen2Model(config)
        self.score, self._start_CH = _new_head(config), start_CH
        self.post_init()

    def forward(self, *, logits_to_keep: int | torch.Tensor = 0, labels: None = None, **kwargs: Any) -> Any:  # type: ignore[override]
        """As of `Qwen2_5_VLForVerdicts`."""
        return _scored(self, logits_to_keep, kwargs)

    def _init_weights(self, module: torch.nn.Module) -> None:
        if not _started(self, module):
            super()._init_weights(module)


def _new_head(config: Any) -> torch.nn.Linear:
    return torch.nn.Linear(config.get_text_config().hidden_size, config.num_labels or len(TWO_LABELS), bias=False)


def _scored(network: Any, logits_to_keep: int | torch.Tensor, inputs: dict[str, Any]) -> CausalLMOutputWithPast:
    outputs = network.model(**inputs)
    hidden_NH = slice_logits_to_keep(outputs[0], logits_to_keep)
    return CausalLMOutputWithPast(logits=network.score(hidden_NH), past_key_values=outputs.past_key_values)


def _started(network: Any, module: torch.nn.Module) -> bool:
    """Whether `module` is the head and was given its start; else it is to be initialised as others are.

    transformers asks for weights the checkpoint lacks, in its own way for sharded and quantised models.
    """
    if module is not network.score or network._start_CH is None:
        return False
    copy_(network.score.weight, network._start_CH)
    return True


# Weights have other names in files than in memory; transformers looks the renaming up by the class's name.
register_checkpoint_conversion_mapping(
    Qwen2_5_VLForVerdicts.__name__,
    get_checkpoint_conversion_mapping(Qwen2_5_VLForConditionalGeneration.__name__) or [],
    overwrite=True,
)


def score_start(path: str | Path, head: Head, words: LabelWords) -> torch.Tensor:
    """(C, H) float32 weights a head starts from (`Head.start`), given the verdict words' rows of the output layer.

    Raises:
        DirectoryError: the checkpoint has neither an output layer nor embeddings.
    """
    yes_H, no_H = (_output_row(Path(path), i) for i in (words.supported_id, words.refuted_id))
    return head.start(yes_H, no_H)


def _output_row(path: Path, token_id: int) -> torch.Tensor:
    """One row of the output layer, in float32; nothing else is read from the file."""
    for name in _OUTPUT_LAYERS:
        for file in sorted(path.glob("*.safetensors")):
            with safe_open(file, "pt") as tensors:
                if name in tensors.keys():  # noqa: SIM118 (not a dict)
                    return tensors.get_slice(name)[token_id].float()
    raise DirectoryError(
        f"{path}: no output layer to start a head from, got none of {_OUTPUT_LAYERS}; start it at random"
    )


class TextProcessor:
    """What `Encoder` and `save_draft` need of a processor, for a checkpoint that has only a tokenizer.

    Attributes:
        tokenizer: the checkpoint's.
    """

    def __init__(self, tokenizer: Any, where: str | Path = "tokenizer") -> None:
        """`where` is named in errors.

        Raises:
            DirectoryError: the tokenizer has no chat template.
        """
        if not tokenizer.chat_template:
            raise DirectoryError(
                f"{where}: the tokenizer has no chat template, got None; use a checkpoint that was tuned to chat"
            )
        self.tokenizer = tokenizer

    def apply_chat_template(self, messages: Sequence[dict[str, Any]], **options: Any) -> Any:
        """Render messages whose content may be a list of parts, as processors of vision backbones take it.

        Templates of text checkpoints join strings, and fail on a list or leave it out, so the parts are joined here.
        """
        return self.tokenizer.apply_chat_template([_joined(m) for m in messages], **options)

    def save_pretrained(self, directory: str | Path) -> Any:
        """Write the tokenizer's files with its chat template."""
        return self.tokenizer.save_pretrained(directory)


def _joined(message: dict[str, Any]) -> dict[str, Any]:
    content = message["content"]
    if isinstance(content, str):
        return message
    if seen := [part["type"] for part in content if part["type"] != "text"]:
        raise DirectoryError(f"chat template: a text backbone has no place for it, got a part of type {seen[0]!r}")
    return {**message, "content": "".join(part["text"] for part in content)}
