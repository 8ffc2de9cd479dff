"""Networks with a `score` head in place of the output layer: their classes, and the weights the head starts from.

No logits over the vocabulary exist anywhere then. The head is a linear layer without bias: whatever constant the labels
would need is the calibration's business. Apart from load.py because these are networks, and base.py needs them too.

Shape suffixes: _N verdict positions, _C labels, _H hidden.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from transformers import PreTrainedModel
from transformers.conversion_mapping import get_checkpoint_conversion_mapping, register_checkpoint_conversion_mapping
from transformers.initialization import copy_
from transformers.modeling_outputs import CausalLMOutputWithPast
from transformers.modeling_utils import slice_logits_to_keep

from ...core import DirectoryError
from ..engine import TWO_LABELS, Head
from ..inputs import LabelWords

# The output layer's weights in a checkpoint; where it is tied to the embeddings, only these are stored.
_OUTPUT_LAYERS = (
    "lm_head.weight",
    "model.embed_tokens.weight",
    "model.language_model.embed_tokens.weight",
    "thinker.lm_head.weight",
    "thinker.model.embed_tokens.weight",
)


class ScoreHead:
    """What a network gains from a `score` head: logits of labels at the kept positions.

    The configuration's `id2label` names the head's rows, in order.
    """

    accepts_loss_kwargs = False
    body_class: Any
    _tied_weights_keys = {}  # noqa: RUF012 (as transformers declares it)
    _keys_to_ignore_on_load_unexpected = [r"^lm_head\."]  # noqa: RUF012

    def __init__(self, config: Any, start_CH: torch.Tensor | None = None, *, head_is_new: bool = False) -> None:
        """`start_CH` are the weights of a head that is new; without it they are random.

        A head is new where the checkpoint is known to lack it. transformers then reports no missing weight that should
        be trained: `start_CH` or an adapter gives it.
        """
        PreTrainedModel.__init__(self, config)  # type: ignore[arg-type]  (all but the output layer)
        if head_is_new:  # of this network alone: in any other a head without weights is a fault
            self._keys_to_ignore_on_load_missing = {r"^score\.weight$"}
        self.model = self.body_class(config)
        self.score, self._start_CH = _new_head(config), start_CH
        self.post_init()  # type: ignore[attr-defined]

    def forward(self, *, logits_to_keep: int | torch.Tensor = 0, labels: None = None, **kwargs: Any) -> Any:
        """Logits (N, C) at the N positions that the bool mask `logits_to_keep` names; the rest as the backbone's own.

        `labels` is there because PEFT always passes it: the loss is not the network's (models/engine/forward.py).
        """
        return _scored(self, logits_to_keep, kwargs)

    def _init_weights(self, module: torch.nn.Module) -> None:
        if not _started(self, module):
            super()._init_weights(module)  # type: ignore[misc]


@functools.cache
def with_score_head(network: type, body: type) -> Any:
    """The class of a network with a `score` head: `Qwen2ForVerdicts` of `Qwen2ForCausalLM`, which files name it by.

    Args:
        network: with the checkpoint's own output layer.
        body: without one; what `network` holds as `model`.
    """
    name = network.__name__.partition("For")[0] + "ForVerdicts"
    # Weights have other names in files than in memory; transformers looks the renaming up by the class's name.
    if (renaming := get_checkpoint_conversion_mapping(network.__name__)) is not None:
        register_checkpoint_conversion_mapping(name, renaming, overwrite=True)
    left_over = [*ScoreHead._keys_to_ignore_on_load_unexpected, *(network._keys_to_ignore_on_load_unexpected or ())]  # type: ignore[attr-defined]
    members = {"body_class": body, "_keys_to_ignore_on_load_unexpected": left_over, "__doc__": ScoreHead.__doc__}
    return type(name, (ScoreHead, network), members)


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
